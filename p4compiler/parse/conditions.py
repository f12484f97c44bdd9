"""Integer expressions of #if and #elif (ISO C 6.10.1): tokens with expanded macros -> a value."""

from __future__ import annotations

import operator
from collections.abc import Callable

from fanin.p4compiler.fold import MAX_BITS, MAX_SHIFT
from fanin.p4compiler.parse.lex import NAME, NUMBER, Token, parse_number
from fanin.p4compiler.source import Span, error


def _divide(left: int, right: int) -> int:
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _remainder(left: int, right: int) -> int:
    return left - right * _divide(left, right)


_LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a) or bool(b))},
    {"&&": lambda a, b: int(bool(a) and bool(b))},
    {"|": operator.or_},
    {"^": operator.xor},
    {"&": operator.and_},
    {"==": operator.eq, "!=": operator.ne},
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge},
    {"<<": operator.lshift, ">>": operator.rshift},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": _divide, "%": _remainder},
)


def evaluate(tokens: list[Token], place: Span) -> int:
    """Return the value of an expression. Names that are not macros count as 0.

    Raises:
        CompileError: If the tokens are not an integer expression.
    """
    reader = _Reader(tokens, place)
    value = reader.ternary()
    if reader.at < len(tokens):
        raise error(
            tokens[reader.at].span, f"unexpected '{tokens[reader.at].text}' in a preprocessor condition"
        )
    return value


class _Reader:
    def __init__(self, tokens: list[Token], place: Span) -> None:
        self.tokens = tokens
        self.place = place
        self.at = 0

    def peek(self) -> str:
        here = self.tokens[self.at : self.at + 2]
        if len(here) == 2 and here[0].text == here[1].text == ">" and here[1].glued:
            return ">>"
        return here[0].text if here else ""

    def take(self) -> Token:
        if self.at >= len(self.tokens):
            raise error(self.place, "this preprocessor condition ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def ternary(self) -> int:
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        self.take()
        chosen = self.ternary()
        if self.take().text != ":":
            raise error(self.place, "'?' without its ':' in a preprocessor condition")
        other = self.ternary()
        return chosen if condition else other

    def binary(self, level: int) -> int:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while (name := self.peek()) in _LEVELS[level]:
            token = self.take()
            self.at += name == ">>"
            right = self.binary(level + 1)
            if name in "/%" and right == 0:
                raise error(token.span, "division by zero in a preprocessor condition")
            if name in ("<<", ">>") and not 0 <= right <= MAX_SHIFT:
                raise error(token.span, f"a shift by {right} in a preprocessor condition")
            left = int(_LEVELS[level][name](left, right))
            if left.bit_length() > MAX_BITS:
                raise error(token.span, f"the result has more than {MAX_BITS} bits")
        return left

    def unary(self) -> int:
        token = self.take()
        match token.text:
            case "!":
                return int(not self.unary())
            case "-":
                return -self.unary()
            case "+":
                return self.unary()
            case "~":
                return ~self.unary()
            case "(":
                value = self.ternary()
                if self.take().text != ")":
                    raise error(token.span, "this parenthesis is never closed")
                return value
        if token.kind == NUMBER:
            return parse_number(token).value
        if token.kind == NAME:
            return int(token.text == "true")
        raise error(token.span, f"unexpected '{token.text}' in a preprocessor condition")
