"""A program's names in C: as identifiers, in comments and in string literals, and never as code.

No other module may put text of the program into C. `check` rejects lines in which such text would be code (writer.py).
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from fanin.p4switch.bmv2json.primitive_kind import PrimitiveKind
from fanin.p4switch.bmv2json.program import ProgramError

RUNTIME = Path(__file__).parents[1] / "runtime"
C_KEYWORDS = """
    auto bool break case char const continue default do double else enum extern float for goto if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    main NULL true false errno asm typeof linux unix
"""
KEYWORDS = frozenset(C_KEYWORDS.split())
# Names that the generated functions and the runtime's headers use themselves.
OURS = re.compile(
    r"[psetifm]|at|bits|cell|count|data|entry|error|group|hit|input|key\d*|leave|length|names?|packet|parse|port|process"
    r"|result.*|state|states|table|[tL]\d+|row\d+|bytes\d*|accept|too_short|extract|append\w*|(set|get|put|load|store)\w*"
    r"|(primitive|hash|wide|checksum|header|own|copy|same|stack|random|sign|sh[lr]|add|subtract|update|verify|trace|TRACE)_\w*|u?int\w*|ones|emit\w*"
    r"|HEADERS|HEADROOM|REQUESTS|TABLES|UNIONS|VALUE_SETS|VARBITS|WIDE_WORDS|egress_(uses|writes)|union_of|varbit_at"
    r"|deparser_order|program_(open|meters|counters|registers|traced)"
)
# Names that some C library may define as macros. A test asks the compiler for those of the installed one.
LIBRARY = re.compile(
    r"[A-Z][A-Z0-9_]*|[LP]_\w+|atomic_\w+|[bl]e\d+toh|hto[bl]e\d+|pthread_cleanup_\w+|sched_priority|kill_dependency"
    r"|offsetof|alloca|stdin|stdout|stderr|assert|static_assert|i386"
)
MAX_COMMENT = 400  # characters

_STRING = r'"(?:[^"\\]|\\[0-7]{3}|\\n)*"'
_PUNCTUATION = r"[-+%&|^~!=<>:;,.(){}\[\] ]|/(?![/*])|\*(?!/)|\?(?!\?)"
_CODE = re.compile(rf"(?:\w|{_PUNCTUATION}|{_STRING})*", re.ASCII)
_DIRECTIVE = re.compile(r'#(?:include (?:"\w+\.h"|<\w+\.h>)|define \w+(?: [\w, ]+)?)', re.ASCII)


class Names:
    """Generator of C identifiers. The same name in the same space always gets the same identifier."""

    def __init__(self) -> None:
        self._given: dict[tuple[str, object], str] = {}
        self._used: set[str] = set()

    def identifier(self, space: str, name: str, key: object = None) -> str:
        """Return the identifier of an object.

        Args:
            space: A prefix of the C name, which also separates kinds of objects.
            name: The object's name in the program.
            key: Distinguishes objects of the same name.
        """
        return self._identifier(space, name, name if key is None else key, runtime_macros())

    def macro(self, name: str, key: object) -> str:
        """Return the identifier of an object that is defined as a macro, which must not be a word of the runtime."""
        return self._identifier("", name, key, runtime_words())

    def _identifier(self, space: str, name: str, key: object, taken: frozenset[str]) -> str:
        known = self._given.get((space, key))
        if known is not None:
            return known
        plain = space + sanitized(name)
        if plain in KEYWORDS or plain in taken or OURS.fullmatch(plain) or LIBRARY.fullmatch(plain):
            plain += "_"
        identifier, number = plain, 2
        while identifier in self._used:
            identifier = f"{plain}_{number}"
            number += 1
        self._used.add(identifier)
        self._given[space, key] = identifier
        return identifier


def sanitized(name: str) -> str:
    """Return the name with characters replaced that C does not allow in identifiers."""
    text = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "_"
    return f"_{text}" if text[0].isdigit() else text


def helper_name(kind: PrimitiveKind) -> str:
    """Return the name of the C function that a kind of primitive may have."""
    return f"primitive_{sanitized(kind.name)}"


def comment(text: str) -> str:
    """Return a one-line C comment, which no text can end early."""
    text = " ".join(text.split())
    text = "".join(c if c.isprintable() else "?" for c in text[:MAX_COMMENT]) + "…" * (
        len(text) > MAX_COMMENT
    )
    return f"/* {text.replace('*/', '* /').replace('/*', '/ *')} */"


def quoted(text: str) -> str:
    """Return a C string literal, with special characters written as octal escapes."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character == "\n":
        return "\\n"
    if character.isascii() and character.isprintable() and character not in '"\\?':
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode(errors="replace"))


def check(code: str) -> str:
    """Return a line of code after checking that it is one the translation writes.

    It has no comments, no line continuations, and only the two known directives.

    Raises:
        ProgramError: If text of the program got into it without having been made an identifier.
    """
    if _DIRECTIVE.fullmatch(code) or _CODE.fullmatch(code):
        return code
    raise ProgramError(f"refused, as it would be code for the C compiler: {code[:100]!r}")


@cache
def runtime_words() -> frozenset[str]:
    """Return every identifier in the runtime's headers."""
    return frozenset(re.findall(r"[A-Za-z_]\w*", _headers()))


@cache
def runtime_macros() -> frozenset[str]:
    """Return every macro that the runtime's headers define."""
    return frozenset(re.findall(r"#define (\w+)", _headers()))


@cache
def _headers() -> str:
    texts = "\n".join(path.read_text() for path in sorted(RUNTIME.glob("*.h")))
    return re.sub(r"/\*.*?\*/|//.*?$", "", texts, flags=re.DOTALL | re.MULTILINE)
