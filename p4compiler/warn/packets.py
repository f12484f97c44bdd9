"""Warnings about what leaves the switch: headers that are never emitted, and checksums that are not updated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from fanin.p4compiler import ir, types
from fanin.p4compiler.nodes import annotation_text
from fanin.p4compiler.psa.expand import is_frame
from fanin.p4compiler.rewrite import Path, bodies, overlap, path
from fanin.p4compiler.source import Reporter, Span


def warn_of_packets(program: ir.FlatProgram, reporter: Reporter) -> None:
    """Warn about headers that are valid and never emitted or emitted twice, and about old checksums."""
    _warn_of_headers(program, reporter)
    _warn_of_copies(program, reporter)
    _warn_of_checksums(program, reporter)


def statements(block: ir.Block) -> Iterator[ir.Stmt]:
    """Yield all statements of a flat block, with those in branches, parser states and actions."""
    return chain.from_iterable(sequences(block))


def sequences(block: ir.Block) -> Iterator[tuple[ir.Stmt, ...]]:
    """Yield the statements of a flat block that follow one another directly, as in a branch, a state or an action."""
    todo = [block.body, *(state.body for state in block.states), *(action.body for action in block.actions)]
    while todo:
        body = todo.pop()
        yield body
        todo += (inner for s in body for inner in bodies(s))


# Headers


def _warn_of_headers(program: ir.FlatProgram, reporter: Reporter) -> None:
    emitted = [
        where
        for s in statements(program.blocks[ir.Role.DEPARSER])
        if isinstance(s, ir.CallExtern) and s.name == "packet_out.emit"
        for where in [path(s.arguments[0])]
        if where is not None
    ]
    made: dict[Path, ir.Expr] = {}
    removed: list[Path] = []
    for role in (ir.Role.PARSER, ir.Role.INGRESS, ir.Role.EGRESS):
        for s in statements(program.blocks[role]):
            match s:
                case ir.CallExtern(name="packet_in.extract", arguments=(header, *_)):
                    _note(header, made, program)
                case ir.CallHeader(method="setValid", header=header):
                    _note(header, made, program)
                case ir.CallHeader(method="setInvalid" | "pop_front", header=header):
                    removed += [where for where in [path(header)] if where]
                case ir.Assign(target=target, value=value) if types.width(target.type) is None:
                    removed += [where for where in (path(target), path(value)) if where]
    for where, header in made.items():
        if not any(overlap(where, other) for other in (*emitted, *removed)):
            text = header.span.fragment()
            message = f"{text} is extracted or made valid, but never emitted: packets leave without it"
            deparser = program.blocks[ir.Role.DEPARSER]
            packet, headers = (parameter.name for parameter in deparser.parameters)
            place = ".".join(map(str, (headers, *where[1:])))
            hint = f"write {packet}.emit({place}); in {deparser.name}"
            reporter.warn(header.span, message, hint, option="never-emitted")


def _warn_of_copies(program: ir.FlatProgram, reporter: Reporter) -> None:
    for body in sequences(program.blocks[ir.Role.DEPARSER]):
        emitted: list[Path] = []
        for s in body:
            where = (
                path(s.arguments[0]) if isinstance(s, ir.CallExtern) and s.name == "packet_out.emit" else None
            )
            if not isinstance(s, ir.CallExtern) or where is None:
                continue
            if any(overlap(where, other) for other in emitted):
                text = s.arguments[0].span.fragment()
                what = "is emitted twice" if where in emitted else "has headers that are emitted twice"
                message = f"{text} {what}: packets leave with two copies"
                reporter.warn(s.arguments[0].span, message, "remove one of the two", option="emitted-twice")
            emitted.append(where)


def _note(header: ir.Expr, made: dict[Path, ir.Expr], program: ir.FlatProgram) -> None:
    """Remember a header that becomes valid, if it belongs to the packet and may be emitted."""
    where = path(header)
    if where is None or where[0] is not program.roots.hdr or not isinstance(header.type, types.Header):
        return
    if annotation_text(header.type.annotations, "controller_header") == "packet_out":
        return
    made.setdefault(tuple(part for part in where if not isinstance(part, int)), header)


# Checksums

_CHECKSUM_WORDS = ("checksum", "csum", "cksum", "chksum")


def _warn_of_checksums(program: ir.FlatProgram, reporter: Reporter) -> None:
    blocks = program.blocks
    changed: dict[Path, Span] = {}  # fields of the packet's headers
    for role in (ir.Role.INGRESS, ir.Role.EGRESS):
        for s in statements(blocks[role]):
            for target in _targets(s):
                where = path(target)
                # an element at a computed index has no place of its own
                if where is not None and len(where) > 1 and where[0] is program.roots.hdr:
                    changed.setdefault(where, target.span)
    updated = [
        where
        for s in statements(blocks[ir.Role.COMPUTE_CHECKSUM])
        for target in _targets(s)
        for where in [path(target)]
        if where is not None
    ]
    warned: set[Path] = set()
    for changed_field, span in sorted(changed.items(), key=lambda item: item[1][1:5]):
        where = changed_field[:-1]
        checksum = _checksum_of(_type_at(where))
        if checksum is None:
            continue
        field: Path = (*where, checksum)
        written = [other for other in (*updated, *changed) if len(other) <= len(field)]
        if is_frame(
            program
        ):  # hdr.ingress or hdr.egress: egress may update the checksum of what ingress has changed
            field, written = (where[0], *field[2:]), [(other[0], *other[2:]) for other in written]
        if field in warned or any(overlap(field, other) for other in written):
            continue
        warned.add(field)
        message = f"{span.fragment()} changes, but the header's {checksum} is never updated: receivers drop the packet"
        if is_frame(program):
            hint = "compute it in the deparser: clear(), add() and get() of an InternetChecksum()"
        else:
            name = ".".join(str(part) for part in where[1:])
            compute = blocks[ir.Role.COMPUTE_CHECKSUM]
            hint = (
                f"call update_checksum({compute.parameters[0].name}.{name}.isValid(), {{ ... }}, "
                f"{compute.parameters[0].name}.{name}.{checksum}, HashAlgorithm.csum16); in {compute.name}"
            )
        reporter.warn(span, message, hint, option="stale-checksum")


def _targets(s: ir.Stmt) -> Iterable[ir.Expr]:
    match s:
        case ir.Assign(target=target):
            return (target,)
        case ir.CallExtern(arguments=arguments, directions=directions):
            return [a for a, d in zip(arguments, directions, strict=True) if d in ("out", "inout")]
    return ()


def _type_at(where: Path) -> types.Type | None:
    """Return the type of the value at a place, or None."""
    of: types.Type | None = None
    if where and isinstance(where[0], ir.Variable):
        of = where[0].type
    for part in where[1:]:
        if isinstance(of, types.Fields) and isinstance(part, str) and part in of.by_name:
            of = of.by_name[part]
        elif isinstance(of, types.Stack) and isinstance(part, int):
            of = of.element
        else:
            return None
    return of


def _checksum_of(of: types.Type | None) -> str | None:
    """Return the name of a header's checksum field, or None."""
    if not isinstance(of, types.Header):
        return None
    named = [f.name for f in of.fields if any(word in f.name.lower() for word in _CHECKSUM_WORDS)]
    return named[0] if len(named) == 1 else None
