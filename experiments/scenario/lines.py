"""The lines of a TOML file on which its keys are, which tomllib does not tell."""

from __future__ import annotations

import re
from collections.abc import Mapping

# A text is one of these tokens after another: values of several lines hide what looks like a key.
_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|\#[^\n]*|[\[\]{}=\n]|[^\[\]{}=\n"\'\#]+|.',
    re.DOTALL,
)
_PART = re.compile(r'"((?:\\.|[^"\\])*)"|\'([^\']*)\'|([\w-]+)')


def lines_of(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each table and key of a TOML text, from 1; tables of an array have their number, from 0.

    Args:
        text: What tomllib can read.
    """
    found: dict[tuple[str, ...], int] = {}
    counts: dict[tuple[str, ...], int] = {}  # tables of each array so far
    table: tuple[str, ...] = ()
    line, depth, begun = 1, 0, ""  # begun: what this line has before its first =
    in_value = False
    for token in _TOKEN.findall(text):
        if token == "\n" and not depth:
            if (header := begun.strip()).startswith("[") and not in_value:
                table = _in_arrays(_parts(header), counts, new=header.startswith("[["))
                found.setdefault(table, line)
            begun, in_value = "", False
        elif token == "=" and not depth and not in_value:
            found.setdefault((*table, *_parts(begun)), line)
            in_value = True
        elif in_value and token in "[{":
            depth += 1
        elif in_value and token in "]}":
            depth -= 1
        elif not in_value and not token.startswith("#"):
            begun += token
        line += token.count("\n")
    return found


def line_of(lines: Mapping[tuple[str, ...], int], path: tuple[str, ...]) -> int | None:
    """Return the line of a key, or of the nearest table or value that contains it; None if the text has neither."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path)


def _parts(key: str) -> tuple[str, ...]:
    """Return the parts of a dotted key, or of a header."""
    return tuple("".join(groups) for groups in _PART.findall(key))


def _in_arrays(path: tuple[str, ...], counts: dict[tuple[str, ...], int], *, new: bool) -> tuple[str, ...]:
    """Return the path of a table with the numbers of the arrays in it, of which the header may add a table."""
    found: tuple[str, ...] = ()
    for place, part in enumerate(path):
        found = (*found, part)
        if new and place == len(path) - 1:
            counts[found] = counts.get(found, -1) + 1
        if found in counts:
            found = (*found, str(counts[found]))
    return found
