"""Descriptions of what a name means: what an editor shows next to it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fanin.native.text import counted
from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.index import Definition
from fanin.p4compiler.parse.preprocess import Macro
from fanin.p4compiler.source import Span

_COMMENT = re.compile(r"\s*(?://+|/\*+|\*+/?)\s?(.*?)(?:\*/)?\s*$")


def describe(definition: Definition) -> str:
    """Return what a name means as Markdown: its declaration, its width or parts, and the comment above it."""
    comment = comment_above(definition.span)
    return "\n\n".join(
        [f"```p4\n{headline(definition)}\n```", *_details(definition), *([comment] if comment else [])]
    )


def headline(definition: Definition) -> str:
    """Return a declaration in one line, or in one for each signature of a function."""
    name, symbol, owner = definition.name, definition.symbol, definition.owner
    match symbol:
        case Macro(parameters=parameters, body=body):
            written = f"({', '.join(parameters)})" if parameters is not None else ""
            text = " ".join(token.text for token in body)
            return f"#define {name}{written} {text if len(text) < 200 else text[:200] + ' …'}".rstrip()
        case ir.Variable():
            return f"{symbol.direction} {symbol.type} {name}".strip()
        case ir.Constant():
            return f"const {symbol.type} {name} = {number(symbol)}"
        case ir.Text():
            return f'const string {name} = "{symbol.value}"'
        case ir.Aggregate():
            return f"const {symbol.type} {name}"
        case ir.Action():
            return f"action {name}({parameters_of(symbol.parameters)})"
        case ir.Function():
            return f"{symbol.result} {name}({parameters_of(symbol.parameters)})"
        case ir.Block():
            return f"{symbol.kind} {name}({parameters_of(symbol.parameters)})"
        case ir.Instance():
            return f"{symbol.type}({', '.join(a.span.fragment() for a in symbol.arguments)}) {name}"
        case ir.Table():
            return f"table {name}"
        case ir.ValueSet():
            return f"value_set<{symbol.type}>({symbol.size}) {name}"
        case nodes.State():
            return f"state {name}"
        case list():
            return "\n".join(signature(s) for s in symbol)
        case "match_kind":
            return f"match_kind {name}"
    if isinstance(owner, types.Enum):
        return f"{owner.name}.{name} = {owner.members.get(name)}"
    if isinstance(owner, types.Error):
        return f"error.{name}"
    if owner is not None:
        return f"{symbol} {owner}.{name}"
    match symbol:
        case types.Header() | types.Struct() | types.Union() if symbol.name == name:
            kind = {types.Header: "header", types.Union: "header_union"}.get(type(symbol), "struct")
            return f"{kind} {name}"
        case types.Enum() if symbol.name == name:
            return f"enum {f'{symbol.underlying} ' if symbol.underlying else ''}{name}"
        case types.NewType() if symbol.name == name:
            return f"type {symbol.base} {name}"
        case types.Extern():
            return f"extern {name}{_generic(symbol.type_parameters)}"
        case types.Block():
            shape = ", ".join(map(_parameter, symbol.parameters))
            return f"{symbol.kind} {name}{_generic(symbol.type_parameters)}({shape})"
    return f"typedef {symbol} {name}"


def _details(definition: Definition) -> Iterable[str]:
    symbol = definition.symbol
    match symbol:
        case ir.Table():
            return _table(symbol)
        case types.Extern():
            signatures = [signature(s) for of in symbol.methods.values() for s in of]
            return [f"```p4\n{chr(10).join(signatures)}\n```"] if signatures else []
        case ir.Variable(type=of):
            return _parts(of)
        case types.Type() if definition.owner is None:
            return _parts(symbol)
        case types.Type() if isinstance(definition.owner, types.Header | types.Struct):
            bits = _offset(definition.owner, definition.name)
            place = [f"bit {bits} of `{definition.owner}`"] if bits is not None else []
            return [", ".join([*place, *_width(symbol)]), *_fields(symbol)]
    return []


def _table(table: ir.Table) -> list[str]:
    lines = ["| key | match |", "|---|---|"] if table.key else ["no key"]
    lines += [f"| `{k.expr.span.fragment()}` : {k.expr.type} | {k.match_kind} |" for k in table.key]
    size = f", size `{table.size.span.fragment()}`" if table.size is not None else ""
    const = "const " if table.default_constant else ""
    actions = ", ".join(f"`{call.action.name}`" for call in table.actions)
    entries = f", {counted(len(table.entries), 'entry', 'entries')}" if table.entries else ""
    return [
        "\n".join(lines),
        f"actions {actions}; {const}default `{table.default.action.name}`{size}{entries}",
    ]


def _parts(of: types.Type) -> list[str]:
    if isinstance(of, types.Enum):
        return [", ".join(f"`{name}` = {value}" for name, value in of.members.items()), *_width(of)]
    return [*_width(of), *_fields(of)]


def _width(of: types.Type) -> list[str]:
    least, most = types.total_width(of, longest=False), types.total_width(of, longest=True)
    if least is None or most is None:
        return []
    bits = str(most) if least == most else f"{least} to {most}"
    whole = f", {most // 8} byte{'s' * (most != 8)}" if least == most and most % 8 == 0 and most else ""
    return [f"{bits} bit{'s' * (bits != '1')}{whole}"]


def _fields(of: types.Type) -> list[str]:
    if isinstance(of, types.Stack):
        return _fields(of.element)
    if not isinstance(of, types.Fields) or not of.fields:
        return []
    packed = isinstance(of, types.Header)
    lines = ["| field | type | bits |", "|---|---|---|"] if packed else ["| field | type |", "|---|---|"]
    for field in of.fields:
        offset, width = _offset(of, field.name), types.total_width(field.type, longest=True)
        last = f"–{offset + width - 1}" if offset is not None and width and width > 1 else ""
        bits = f"{offset}{last}" if offset is not None else "varies"
        lines.append(f"| `{field.name}` | {field.type} |{f' {bits} |' if packed else ''}")
    return ["\n".join(lines)]


def _offset(of: types.Fields, name: str) -> int | None:
    """Return the number of bits before a field of a header, or None if it varies or the type is no header."""
    offset = 0
    for field in of.fields if isinstance(of, types.Header) else ():
        if field.name == name:
            return offset
        width = types.total_width(field.type, longest=False)
        if width is None or width != types.total_width(field.type, longest=True):
            return None
        offset += width
    return None


def number(constant: ir.Constant) -> str:
    """Return a constant as a program writes it: decimal and, from 10 on, hexadecimal."""
    if isinstance(constant.type, types.Bool):
        return "true" if constant.value else "false"
    return f"{constant.value} (0x{constant.value:x})" if constant.value > 9 else str(constant.value)


def signature(of: types.Signature) -> str:
    """Return the declaration of a function or method."""
    shape = ", ".join(map(_parameter, of.parameters))
    return f"{of.result} {of.name}{_generic(of.type_parameters)}({shape})"


def parameters_of(variables: Iterable[ir.Variable]) -> str:
    """Return parameters as a program writes them."""
    return ", ".join(f"{v.direction} {v.type} {v.name}".strip() for v in variables)


def _parameter(parameter: types.Parameter) -> str:
    return f"{parameter.direction} {parameter.type} {parameter.name}".strip()


def _generic(names: tuple[str, ...]) -> str:
    return f"<{', '.join(names)}>" if names else ""


def comment_above(span: Span) -> str:
    """Return the text of the comment in the lines above a declaration, or after it on its line."""
    found: list[str] = []
    number_ = span.line - 1
    while (line := span.file.line(number_).strip()).startswith(("//", "/*", "*", "@")):
        if not line.startswith("@"):
            matched = _COMMENT.match(line)
            found.insert(0, matched[1] if matched else "")
        number_ -= 1
    after = span.file.line(span.line)[span.end_column :].partition("//")[2].strip()
    return "\n".join([*found, after]).strip()
