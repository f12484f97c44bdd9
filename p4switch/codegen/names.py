"""C identifiers for the program's names: `ingress.ipv4_lpm` becomes `ingress_ipv4_lpm`, each unique."""

from __future__ import annotations

import re

C_KEYWORDS = """
    auto bool break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    main NULL true false errno
"""
KEYWORDS = frozenset(C_KEYWORDS.split())
# What the generated functions and the runtime's headers call their own.
OURS = re.compile(
    r"[psetif]|at|bits|cell|count|data|entry|error|group|hit|input|key\d*|leave|length|names?|packet|parse|port|process"
    r"|result.*|state|states|table|[tL]\d+|row\d+|bytes\d*|accept|too_short|extract|append\w*|(set|get|put|load|store)\w*"
    r"|(hash|wide|checksum|header|own|copy|same|stack|random|sign|sh[lr]|add|subtract|update|verify|trace|TRACE)_\w*|u?int\w*|ones|emit\w*"
)


class Names:
    """Hands out identifiers; the same name in the same space always gets the same one."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, object], str] = {}
        self._used: set[str] = set()

    def identifier(self, space: str, name: str, key: object = None) -> str:
        """`space` is a prefix for the C name and separates kinds; `key` tells apart objects of one name."""
        known = self._given.get((space, name if key is None else key))
        if known is not None:
            return known
        plain = space + sanitized(name)
        if plain in KEYWORDS or OURS.fullmatch(plain):
            plain += "_"
        identifier, number = plain, 2
        while identifier in self._used:
            identifier = f"{plain}_{number}"
            number += 1
        self._used.add(identifier)
        self._given[space, name if key is None else key] = identifier
        return identifier


def sanitized(name: str) -> str:
    """The name with whatever C does not allow in an identifier replaced."""
    text = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "_"
    return f"_{text}" if text[0].isdigit() else text


def comment(text: str) -> str:
    """Text that is safe inside a C comment, on one line."""
    return " ".join(text.split()).replace("*/", "* /").replace("/*", "/ *")
