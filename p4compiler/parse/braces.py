"""Search for the brace that is never closed, which often causes a syntax error far below it."""

from __future__ import annotations

from fanin.p4compiler.parse.lex import STRING, Token


def unclosed_brace(tokens: list[Token], at: int) -> Token | None:
    """Return the `{` that lacks its `}`, or None if the braces balance.

    A `}` at the beginning of a line that is indented less than the line of its `{` was meant for an outer brace. Then
    the result is this `{`. Otherwise it is the innermost brace that is open at the error.

    Args:
        tokens: All tokens of the program.
        at: The index of the token where the syntax error was found.
    """
    texts = [token.text for token in tokens if token.kind != STRING]
    if texts.count("{") <= texts.count("}"):
        return None
    opened: list[tuple[Token, Token]] = []  # each brace, and the token whose line it belongs to
    parentheses: list[Token] = []
    head: Token | None = None  # the "(" of the ")" just read
    innermost: Token | None = None
    for place, token in enumerate(tokens):
        if place == at and opened:
            innermost = opened[-1][0]
        if token.kind == STRING:
            continue
        if token.text == "{":
            opened.append((token, head or token))  # parameters may begin lines above it
        elif token.text == "}" and opened:
            candidate, first = opened.pop()
            if _is_further_left(token, first):
                return candidate
        elif token.text == "(":
            parentheses.append(token)
        head = parentheses.pop() if token.text == ")" and parentheses else None
    return innermost or opened[-1][0]


def _is_further_left(closing: Token, opening: Token) -> bool:
    """Return whether the closing brace begins its line, indented less than the line of the opening one."""
    file = opening.span.file
    if closing.span.file is not file:
        return False
    above, below = file.line(opening.span.line), file.line(closing.span.line)
    begins = len(below) - len(below.lstrip())
    return closing.span.column == begins < len(above) - len(above.lstrip())
