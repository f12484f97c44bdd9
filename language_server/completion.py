"""Completion: the names that may stand at a place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fanin.language_server.describe import headline, signature
from fanin.language_server.outline import Region, regions
from fanin.language_server.programs import Programs, Snapshot
from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.index import Definition
from fanin.p4compiler.parse.lex import NAME, NEWLINE, STRING, TOKEN, Token, tokenize
from fanin.p4compiler.parse.preprocess import Macro
from fanin.p4compiler.parse.program import PROPERTIES
from fanin.p4compiler.source import SourceFile, Span

_TOP = ("action", "const", "control", "enum", "error", "extern", "header", "header_union", "match_kind", "package",
        "parser", "struct", "type", "typedef")  # fmt: skip
_LOCAL = ("action", "apply", "const", "table", "value_set", "state")
_STATEMENT = ("if", "else", "switch", "return", "exit", "for", "const", "transition", "select", "default", "true",
              "false", "in", "break", "continue", "error")  # fmt: skip
_TYPES = ("bit", "int", "bool", "varbit", "tuple", "string", "void", "in", "out", "inout")
_ANNOTATIONS = ("name", "noWarn", "hidden", "defaultonly", "tableonly", "field_list", "controller_header",
                "p4runtime_translation", "entry_restriction", "action_restriction", "refers_to", "alias", "optional",
                "pragma", "metadata")  # fmt: skip
_DIRECTIVES = (
    "include",
    "define",
    "undef",
    "if",
    "ifdef",
    "ifndef",
    "elif",
    "else",
    "endif",
    "error",
    "warning",
)
_HEADER = {"isValid": "bool isValid()", "setValid": "void setValid()", "setInvalid": "void setInvalid()"}
_STACK = {"next": "", "last": "", "lastIndex": "bit<32>", "size": "bit<32>", "push_front": "void push_front(int count)",
          "pop_front": "void pop_front(int count)"}  # fmt: skip
_SIZES = ("minSizeInBits", "minSizeInBytes", "maxSizeInBits", "maxSizeInBytes")
_END = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Name that may stand at a place: its kind, as the outline calls kinds, and a detail to show next to it."""

    name: str
    kind: str
    detail: str = ""


def complete(programs: Programs, path: Path, line: int, column: int) -> list[Suggestion]:
    """Return what may stand at a place, in lines from 1 and characters from 0; nothing in comments and strings."""
    lines = programs.text(path).split("\n")[:line]
    if len(lines) < line:
        return []
    lines[-1] = lines[-1][:column]
    before = _END.sub("", "\n".join(lines))
    if not _in_code(before):
        return []
    last = before.rpartition("\n")[2].strip()
    if last in ("#", "# "):
        return [Suggestion(name, "keyword") for name in _DIRECTIVES]
    if before.endswith("@"):
        return [Suggestion(name, "annotation") for name in _ANNOTATIONS]
    tokens = [t for t in tokenize(SourceFile("", tuple(before.split("\n")))) if t.kind != NEWLINE]
    for snapshot in programs.snapshots(path):
        visible = {d.name: d for d in _visible(programs, snapshot, path, line, column)}
        if tokens and tokens[-1].text == ".":
            found = list(_members(_type_before(tokens[:-1], visible), snapshot))
        else:
            found = list(_in_scope(tokens, visible, snapshot))
        if found:
            return list({s.name: s for s in found}.values())
    return []


def _in_code(text: str) -> bool:
    """Return whether a text ends neither in a comment nor in a string."""
    position = 0
    while position < len(text):
        found = TOKEN.match(text, position)
        if found is None:
            if text[position] == '"' and "\n" not in text[position:]:
                return False
            position += 1
            continue
        written = found.group()
        if found.lastgroup == "open" or (written.startswith("//") and found.end() == len(text)):
            return False
        position = found.end()
    return True


# Scopes


def _visible(
    programs: Programs, snapshot: Snapshot, path: Path, line: int, column: int
) -> Iterator[Definition]:
    """Yield the definitions that are visible at a place, outer ones first."""
    analysis = snapshot.analysis
    old = programs.moves(snapshot, path).nearest_old(line)
    areas: dict[SourceFile, list[Region]] = {}
    for region in regions(analysis.tree) if analysis.tree is not None else ():
        areas.setdefault(region.span.file, []).append(region)
    found: list[tuple[int, Definition]] = []
    for definition in analysis.index.definitions:
        span = definition.span
        here = analysis.index.paths.get(span.file.path) == path
        later = here and span[1:3] > (old, column) and not isinstance(definition.symbol, Macro)
        if definition.owner is not None or later:
            continue
        around = [r for r in areas.get(span.file, ()) if r.span.contains(span) and _name_span(r.node) != span]
        if all(here and _holds(r.span, old, column) for r in around):
            found.append((len(around), definition))
    yield from (definition for _, definition in sorted(found, key=lambda pair: pair[0]))


def _name_span(node: nodes.Node) -> Span | None:
    return node.name_span if isinstance(node, nodes.Declaration) else None


def _holds(span: Span, line: int, column: int) -> bool:
    return (span.line, span.column) <= (line, column) <= (span.end_line, span.end_column)


def _in_scope(
    tokens: list[Token], visible: dict[str, Definition], snapshot: Snapshot
) -> Iterator[Suggestion]:
    """Yield what may stand where no dot precedes, according to the brackets around it."""
    around = _brackets(tokens)
    last = tokens[-1].text if tokens else ""
    inside = around[-1] if around else []
    words = [t.text for t in inside]
    if words[-2:] == ["key", "="] and last == ":":
        yield from (
            Suggestion(d.name, "match_kind")
            for d in snapshot.analysis.index.definitions
            if d.owner == "match_kind"
        )
        return
    in_parser = bool(around) and "parser" in [t.text for t in around[0]]
    if last == "transition" or (last == ":" and "select" in words):
        states = (d for d in snapshot.analysis.index.definitions if isinstance(d.symbol, nodes.State))
        yield from (Suggestion(d.name, "state") for d in states)
        yield from (Suggestion(name, "state") for name in ("accept", "reject"))
        if last == "transition":
            yield Suggestion("select", "keyword")
        return
    default = last == "=" and [t.text for t in tokens[-2:-1]] == ["default_action"]
    if default or words[-2:] == ["actions", "="]:
        yield from (_suggestion(d) for d in visible.values() if isinstance(d.symbol, ir.Action))
        return
    if words[:1] == ["table"] and last in ("{", ";", "}", "const"):
        yield from (Suggestion(name, "keyword") for name in (*PROPERTIES, "const"))
        return
    yield from map(_suggestion, visible.values())
    if not around:
        words_here: tuple[str, ...] = (*_TOP, *_TYPES)
    elif len(around) == 1:
        words_here = (*_LOCAL, *_TYPES) if words[:1] != ["struct"] else _TYPES
    else:
        words_here = (*_STATEMENT, *_TYPES)
    if in_parser:
        words_here = (*words_here, "state", "transition")
    yield from (Suggestion(word, "keyword") for word in words_here)


def _brackets(tokens: list[Token]) -> list[list[Token]]:
    """Return for each brace that is open at the end the tokens of the statement before it."""
    around: list[list[Token]] = []
    statement: list[Token] = []
    for token in tokens:
        if token.kind == STRING:
            continue
        if token.text == "{":
            around.append(statement)
            statement = []
        elif token.text == "}":
            statement = []
            if around:
                around.pop()
        elif token.text == ";":
            statement = []
        else:
            statement = [*statement, token]
    return around


def _suggestion(definition: Definition) -> Suggestion:
    return Suggestion(definition.name, kind_of(definition), headline(definition).partition("\n")[0])


def kind_of(definition: Definition) -> str:
    """Return the kind of a definition, as the outline calls it."""
    symbol = definition.symbol
    if definition.owner is not None and not isinstance(symbol, list | nodes.State):
        return {True: "field", False: "member"}[isinstance(definition.owner, types.Fields)]
    match symbol:
        case list():
            return "function" if definition.owner is None else "method"
        case types.Header() | types.Struct() | types.Union():
            return "struct"
        case types.Block() | ir.Block():
            return symbol.kind
        case types.Type():
            return (
                "typedef"
                if not isinstance(symbol, types.Enum | types.Extern)
                else type(symbol).__name__.lower()
            )
        case ir.Text() | ir.Aggregate():
            return "constant"
    return type(symbol).__name__.lower()


# Members


def _type_before(tokens: list[Token], visible: dict[str, Definition]) -> object:
    """Return the type or object that the tokens before a dot denote, or None."""
    at = len(tokens)
    steps: list[str] = []
    while at:
        token = tokens[at - 1]
        if token.text in (")", "]") and token.kind != STRING:
            steps.append(token.text)
            at = _opening(tokens, at - 1)
        elif token.kind == NAME:
            steps.append(token.text)
            at -= 1
            if at and tokens[at - 1].text == ".":
                at -= 1
                continue
            break
        else:
            return None
    if not steps or steps[-1] in (")", "]"):
        return None
    first = steps.pop()
    found: object = visible[first].symbol if first in visible else None
    if first == "error":
        found = types.Error()
    for step in reversed(steps):
        found = _step(found, step)
    return found


def _opening(tokens: list[Token], at: int) -> int:
    """Return the place of the bracket that a closing one closes, or 0."""
    depth = 0
    while at >= 0:
        text = tokens[at].text if tokens[at].kind != STRING else ""
        depth += text in (")", "]", "}")
        depth -= text in ("(", "[", "{")
        if depth == 0:
            return at
        at -= 1
    return 0


def _step(found: object, step: str) -> object:
    """Return what a member, an index or a call of a type or object denotes."""
    of = found.type if isinstance(found, ir.Variable | ir.Instance) else found
    match of:
        case types.Stack():
            return of.element if step in ("]", "next", "last") else None
        case types.Fields():
            return of.by_name.get(step)
        case ir.Table():
            return of if step in ("apply", ")") else None
    return None


def _members(found: object, snapshot: Snapshot) -> Iterable[Suggestion]:
    """Yield the members of a type or object."""
    is_type = isinstance(found, types.Type)
    of = found.type if isinstance(found, ir.Variable | ir.Instance) else found
    match of:
        case types.Fields():
            yield from (Suggestion(f.name, "field", str(f.type)) for f in of.fields)
            if isinstance(of, types.Header | types.Union):
                yield from (Suggestion(name, "method", text) for name, text in _HEADER.items())
            yield from (Suggestion(name, "method", f"int {name}()") for name in _SIZES)
        case types.Stack():
            yield from (
                Suggestion(n, "method" if "(" in t else "field", t or str(of.element))
                for n, t in _STACK.items()
            )
        case types.ExternInstance(extern=extern):
            for name, signatures in extern.methods.items():
                if name != extern.name:
                    yield Suggestion(name, "method", signature(signatures[0]))
        case types.BlockInstance() | ir.Block():
            yield Suggestion("apply", "method")
        case ir.Table():
            yield from (Suggestion(name, "method") for name in ("apply", "hit", "miss", "action_run"))
        case types.Enum() if is_type:
            yield from (Suggestion(name, "member", f"{value}") for name, value in of.members.items())
        case types.Error() if is_type:
            errors = (d for d in snapshot.analysis.index.definitions if isinstance(d.owner, types.Error))
            yield from (Suggestion(d.name, "member") for d in errors)
