"""The syntax tree as text: one line for each node where it fits, else its parts below it. Places are `@line:column`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import PurePath

from fanin.p4compiler import nodes
from fanin.p4compiler.source import Span

_WIDTH = 100
_INDENT = "  "


def dump_syntax(program: nodes.Program) -> str:
    """Format the declarations of a program. Declarations from included files are only counted."""
    if not program.declarations:
        return ""
    own = program.declarations[-1].span.file
    included = Counter(
        PurePath(d.span.file.path).name for d in program.declarations if d.span.file is not own
    )
    lines = [f"{name}: {count} declarations" for name, count in included.items()]
    for declaration in program.declarations:
        if declaration.span.file is own:
            lines += ["", *_lines("", declaration, "")]
    return "\n".join(lines).lstrip("\n") + "\n"


def _lines(label: str, value: object, indent: str) -> Iterator[str]:
    text = f"{indent}{label}{_flat(value)}"
    place = f"  @{value.span.line}:{value.span.column + 1}" if isinstance(value, nodes.Node) else ""
    if len(text) <= _WIDTH:
        yield text + place
    elif isinstance(value, nodes.Node):
        yield f"{indent}{label}{type(value).__name__}{place}"
        for name, part in _parts(value):
            yield from _lines("" if part is name else f"{name}: ", part, indent + _INDENT)
    elif isinstance(value, tuple):
        yield f"{indent}{label}".rstrip()
        for part in value:
            yield from _lines("- ", part, indent + _INDENT)
    else:
        yield text


def _flat(value: object) -> str:
    if isinstance(value, nodes.Boolean):
        return f"Boolean({str(value.value).lower()})"
    if isinstance(value, nodes.Node):
        return f"{type(value).__name__}({', '.join(_flat(part) for _, part in _parts(value))})"
    if isinstance(value, tuple):
        return f"[{', '.join(_flat(part) for part in value if not isinstance(part, Span))}]"
    return str(value)


def _parts(node: nodes.Node) -> list[tuple[str, object]]:
    """Return the non-empty fields of a node, without places. A flag that is set has its name as its value."""
    found = [(f.name, getattr(node, f.name)) for f in fields(node)]
    present = [(name, value) for name, value in found if not isinstance(value, Span)]
    return [
        (name, name if value is True else value)
        for name, value in present
        if value is not None and value is not False and value not in ((), "")
    ]
