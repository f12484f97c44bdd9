"""Which brace is never closed: the true cause of an error that shows only where the program stops making sense."""

from __future__ import annotations

from fanin.p4compiler.parse.lex import STRING, Token


def unclosed_brace(tokens: list[Token], at: int) -> Token | None:
    """The `{` that lacks its `}`, if the braces do not balance; `at` is where the program was found not to be P4.

    A `}` that begins a line further left than the line of its `{` was meant for an outer one: then it is this `{`.
    Without such a pair it is the innermost one that is open at the error.
    """
    texts = [token.text for token in tokens if token.kind != STRING]
    if texts.count("{") <= texts.count("}"):
        return None
    opened: list[Token] = []
    innermost: Token | None = None
    for place, token in enumerate(tokens):
        if place == at and opened:
            innermost = opened[-1]
        if token.kind == STRING:
            continue
        if token.text == "{":
            opened.append(token)
        elif token.text == "}" and opened:
            candidate = opened.pop()
            if _is_further_left(token, candidate):
                return candidate
    return innermost or opened[-1]


def _is_further_left(closing: Token, opening: Token) -> bool:
    """Whether a line begins with the closing brace, left of where the line of the opening one begins."""
    file = opening.span.file
    if closing.span.file is not file:
        return False
    above, below = file.line(opening.span.line), file.line(closing.span.line)
    begins = len(below) - len(below.lstrip())
    return closing.span.column == begins < len(above) - len(above.lstrip())
