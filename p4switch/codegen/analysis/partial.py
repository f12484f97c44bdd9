"""Transport checksums that the sender of a packet may have left unfinished.

A kernel leaves TCP's and UDP's checksums to its network card: the packet holds only the sum of the pseudo-header
(virtio's NEEDS_CSUM). A program that verifies or updates such a checksum need not read the payload: the card completes
it, or nobody has to if the packet never leaves memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from fanin.p4switch.bmv2json.expressions import Binary, Constant, Field, HeaderName, Unary
from fanin.p4switch.bmv2json.program import (
    Branch,
    Calculation,
    CalculationInput,
    Checksum,
    HeaderType,
    Named,
    Program,
    Set,
    Table,
)

SUMS = ("csum16", "cksum16")


@dataclass(frozen=True, slots=True)
class TransportSum:
    """Sum over a pseudo-header, a header except for its checksum, and what follows the header in the packet.

    Attributes:
        field: The checksum.
        following: The headers after the checksum's own.
        payload: True if the data after those headers is part of the sum.
        pseudo: All other inputs.
        includes_field: True if the checksum itself is among the inputs, so that the result is 0 if it is right. It is
            then left out of `pseudo`.
    """

    field: Field
    following: tuple[str, ...]
    payload: bool
    pseudo: tuple[CalculationInput, ...]
    includes_field: bool


def transport_sum(program: Program, calculation: Calculation) -> TransportSum | None:
    """Return the parts of a calculation if it is a transport checksum, else None."""
    if calculation.algorithm not in SUMS:
        return None
    inputs, bits = calculation.inputs, 0
    for first, piece in enumerate(inputs):
        if isinstance(piece.value, Field) and bits % 16 == 0 and _is_plain(program, piece.value.header):
            for field, count in _headers_but_a_field(program, inputs[first:], piece.value.header):
                return _with_rest(program, inputs, first, first + count, field)
        bits += _width(program, piece)
    return None


def _headers_but_a_field(
    program: Program, inputs: Sequence[CalculationInput], header: str
) -> Iterator[tuple[Field, int]]:
    """Yield a 16-bit field and a number of inputs, if those inputs are the whole header except for that field."""
    names = [field.name for field in program.headers[header].type.fields]
    given = [piece.value for piece in inputs[: len(names) - 1]]
    for kind in program.headers[header].type.fields:
        others = [Field(header, name) for name in names if name != kind.name]
        if kind.width == 16 and kind.offset % 16 == 0 and given == others:
            yield Field(header, kind.name), len(given)


def _with_rest(
    program: Program, inputs: tuple[CalculationInput, ...], first: int, end: int, field: Field
) -> TransportSum | None:
    following: list[str] = []
    while end < len(inputs):
        value = inputs[end].value
        if not isinstance(value, Field | HeaderName):
            break
        header = value.name if isinstance(value, HeaderName) else value.header
        kinds = program.headers[header].type.fields
        whole = [Field(header, kind.name) for kind in kinds]
        count = 1 if isinstance(value, HeaderName) else len(kinds)
        if header in (field.header, *following) or not _is_plain(program, header):
            break
        if isinstance(value, Field) and [piece.value for piece in inputs[end : end + count]] != whole:
            break
        following.append(header)
        end += count
    payload = end < len(inputs) and inputs[end].value is None
    rest = [*inputs[:first], *inputs[end + payload :]]
    own = [piece for piece in rest if piece.value == field]
    pseudo = tuple(piece for piece in rest if piece.value != field)
    if not pseudo or len(own) > 1 or any(piece.value is None for piece in pseudo):
        return None
    if own and sum(_width(program, piece) for piece in rest[: rest.index(own[0])]) % 16:
        return None
    return TransportSum(field, tuple(following), payload, pseudo, bool(own))


def _is_plain(program: Program, header: str) -> bool:
    """Return whether a header is part of packets and has a fixed length in 16-bit words."""
    kind: HeaderType = program.headers[header].type
    return not program.headers[header].is_metadata and kind.varbit is None and kind.width % 16 == 0


def _width(program: Program, piece: CalculationInput) -> int:
    match piece.value:
        case Field():
            return program.field_type(piece.value).width
        case HeaderName(name):
            return program.headers[name].type.width
    return piece.width


def left_partial(program: Program) -> dict[Checksum, TransportSum]:
    """Return the checksums that need not be computed while they are partial in the packet."""
    in_actions = {
        argument.name
        for action in program.actions.values()
        for primitive in action.primitives
        for argument in primitive.arguments
        if isinstance(argument, Named) and argument.kind == "calculation"
    }
    found = {}
    for checksum in program.checksums:
        calculation = program.calculations.get(checksum.calculation)
        if calculation is None or calculation.name in in_actions:
            continue
        total = transport_sum(program, calculation)
        if total is None or total.includes_field == (checksum.target == total.field):
            continue
        if not (checksum.update and total.includes_field):
            found[checksum] = total
    return found


@dataclass(frozen=True, slots=True)
class Reads:
    """Header fields whose value a program uses, alone or as part of a header.

    `compared` are 16-bit fields that it only compares with 0.
    """

    fields: frozenset[Field]
    compared: frozenset[Field]


def reads(program: Program, spared: Mapping[Checksum, TransportSum]) -> Reads:
    """Return what a program reads, apart from the accesses to the checksums in `spared` that verify or update them."""
    read: list[Any] = []
    for action in program.actions.values():
        for primitive in action.primitives:
            read += primitive.arguments[1:] if primitive.kind.overwrites else primitive.arguments
    for state in program.parser.states.values():
        read += state.key
        for operation in state.operations:
            read.append(operation.value if isinstance(operation, Set) else operation)
    for pipeline in (program.ingress, program.egress):
        read += [node.condition for node in pipeline.nodes.values() if isinstance(node, Branch)]
        read += [node.keys for node in pipeline.nodes.values() if isinstance(node, Table)]
    read += [program.deparser.primitives, *program.digests.values()]
    read += [checksum.condition for checksum in program.checksums]
    read += [c.target for c in program.checksums if c.verify and c not in spared]
    read += [c.target for c, total in spared.items() if c.verify and c.target != total.field]
    computed = {c.calculation for c in program.checksums if c not in spared}
    left_out = {c.calculation: total.field for c, total in spared.items() if c.calculation not in computed}
    for name, calculation in program.calculations.items():
        read += [piece for piece in calculation.inputs if piece.value != left_out.get(name, piece)]
    used = list(_uses(tuple(read)))
    found = {field for field, asked_for_zero in used if not asked_for_zero or not _is_word(program, field)}
    for name in _whole_headers(tuple(read), program):
        found |= {Field(name, field.name) for field in program.headers[name].type.fields}
    found = {f for f in found if f.name != "$valid$" and not program.headers[f.header].is_metadata}
    compared = {field for field, asked_for_zero in used if asked_for_zero and _is_word(program, field)}
    return Reads(frozenset(found), frozenset(compared))


def _is_word(program: Program, field: Field) -> bool:
    if program.headers[field.header].is_metadata:
        return False
    kind = program.field_type(field)
    return kind.width == 16 and kind.offset % 8 == 0 and not kind.behind_varbit


def _uses(node: Any) -> Iterator[tuple[Field, bool]]:
    """Yield every field inside a node, and whether it is only compared with 0 there."""
    match node:
        case Field():
            yield node, False
        case Binary("==" | "!=", Field() as field, Constant(0)):
            yield field, True
        case tuple():
            for item in node:
                yield from _uses(item)
        case _ if is_dataclass(node):
            for part in fields(node):
                yield from _uses(getattr(node, part.name))


def _whole_headers(node: Any, program: Program) -> set[str]:
    """Return the headers that are copied, compared or hashed as a whole, and the elements of all stacks."""
    names = {name for stack in program.stacks.values() for name in stack.headers}
    if isinstance(node, HeaderName):
        return names | {node.name}
    if isinstance(node, Unary) and node.op == "valid":
        return names
    if isinstance(node, tuple):
        return names.union(*(_whole_headers(item, program) for item in node))
    if is_dataclass(node):
        return names.union(*(_whole_headers(getattr(node, f.name), program) for f in fields(node)))
    return names
