"""Lexical analysis: the text of one file -> tokens, including line ends for the preprocessor."""

from __future__ import annotations

import re
from typing import NamedTuple

from fanin.p4compiler.source import SourceFile, Span, error

NAME = "name"
NUMBER = "number"
STRING = "string"
SYMBOL = "symbol"
NEWLINE = "newline"
STRAY = (
    # a character that begins no token; an error only when the parser reaches it, not in a branch that #if skips
    "stray"
)
END = "end"


class Token(NamedTuple):
    """Token: its kind (one of the constants of this module), its text and its place.

    `glued` is True if nothing separates it from the token before. A right shift is two glued `>`, because `>>` may also
    close two lists of type arguments.
    """

    kind: str
    text: str
    span: Span
    glued: bool = False


TOKEN = re.compile(
    r"""
      (?P<space>[ \t\f\v\r]+ | \\\r?\n | //(?:[^\\\n]|\\(?:.|\n))* | /\*.*?\*/)
    | (?P<open>/\*)
    | (?P<newline>\n)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>[0-9][0-9A-Za-z_]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*" | "(?:[^"\\]|\\.)*")
    | (?P<symbol>&&& | \|\+\|= | \|-\|= | \|\+\| | \|-\| | \.\.\. | <<= | \#\# | :: | [-+*/%&|^]= | \+\+ | \+: | << | <=
        | >= | == | != | && | \|\| | \.\. | [-+*/%&|^~!<>=(){}\[\];:,.?@\#])
    """,
    re.VERBOSE | re.DOTALL,
)


def tokenize(file: SourceFile) -> list[Token]:
    """Return all tokens of a file, without comments and white space, each line ended by a NEWLINE token.

    Raises:
        CompileError: If a comment is not closed.
    """
    text = "\n".join(file.lines) + "\n"
    tokens: list[Token] = []
    append = tokens.append
    match = TOKEN.match
    line, line_start, position, glued = file.first, 0, 0, False
    directive = False  # whether the line begins with #: a string then ends on its line
    while position < len(text):
        found = match(text, position)
        column = position - line_start
        if found is None:
            append(Token(STRAY, text[position], Span(file, line, column, line, column + 1)))
            position += 1
            continue
        kind, end = found.lastgroup, found.end()
        if kind == "space":
            newlines = text.count("\n", position, end)
            if newlines:
                line += newlines
                line_start = text.rindex("\n", position, end) + 1
            glued = False
        elif kind == "newline":
            append(Token(NEWLINE, "\n", Span(file, line, column, line, column + 1)))
            directive = False
            line += 1
            line_start = end
            glued = False
        elif kind == "open":
            raise error(
                Span(file, line, column, line, column + 2), "this comment is never closed", "end it with */"
            )
        else:
            assert kind is not None
            begun = line
            newlines = text.count("\n", position, end) if kind == STRING else 0
            if newlines and directive:
                append(Token(STRAY, '"', Span(file, line, column, line, column + 1), glued))
                position += 1
                continue
            if kind == SYMBOL and found.group() == "#" and (not tokens or tokens[-1].kind == NEWLINE):
                directive = True
            if newlines:
                line += newlines
                line_start = text.rindex("\n", position, end) + 1
            append(Token(kind, found.group(), Span(file, begun, column, line, end - line_start), glued))
            glued = True
        position = end
    return tokens


_NUMBER = re.compile(
    r"(?:(?P<width>[0-9]+)(?P<sign>[ws]))?"
    r"(?:0[xX](?P<hex>[0-9a-fA-F_]+)|0[bB](?P<bin>[01_]+)|0[oO](?P<oct>[0-7_]+)|0[dD](?P<dec>[0-9_]+)|(?P<plain>[0-9_]+))"
)


MAX_DIGITS = 3500  # Python refuses to write or read numbers of more than 4300 decimal digits


class Number(NamedTuple):
    """Number literal: its value, its width in bits (None: arbitrary precision), whether it is int<>, its base."""

    value: int
    width: int | None
    signed: bool
    base: int


def parse_number(token: Token) -> Number:
    """Parse a NUMBER token (P4_16 specification, 6.4.3.2).

    Raises:
        CompileError: If it is not a valid number.
    """
    match = _NUMBER.fullmatch(token.text)
    if match is None:
        raise error(
            token.span, f"'{token.text}' is not a number", "write it like 10, 0x1F, 0b101, 8w255 or 8s17"
        )
    for name, base in (("hex", 16), ("bin", 2), ("oct", 8), ("dec", 10), ("plain", 10)):
        digits = (match[name] or "").replace("_", "")
        if digits:
            if len(digits) > MAX_DIGITS or len(match["width"] or "") > MAX_DIGITS:
                raise error(
                    token.span, f"this number has more than {MAX_DIGITS} digits", "check it for a typo"
                )
            width = int(match["width"]) if match["width"] else None
            return Number(int(digits, base), width, match["sign"] == "s", base)
    raise error(token.span, f"'{token.text}' has no digits")
