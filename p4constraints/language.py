"""Constraints on table entries and actions: their grammar, their types and their meaning.

The language is that of p4-constraints (github.com/p4lang/p4-constraints, "language specification"). A constraint
is a Boolean expression about the keys of an entry, or about the parameters of an action. Numbers convert to the type of
a key: in `k == 5`, a ternary key `k` has the value 5 and a mask of ones.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

MATCH_KINDS = ("exact", "ternary", "lpm", "range", "optional")
_DEEPEST = 100  # nested expressions

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<number>0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|(?:0[dD])?[0-9]+)\b
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\]|\.\$[a-z]+\$)*)
    |(?P<string>'[^']*')
    |(?P<symbol>::|&&|\|\||->|==|!=|<=|>=|[<>!;()-])""",
    re.VERBOSE | re.DOTALL,
)
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_FIELDS = {
    "exact": ("value",),
    "ternary": ("value", "mask"),
    "optional": ("value", "mask"),
    "lpm": ("value", "prefix_length"),
    "range": ("low", "high"),
}


class ConstraintError(Exception):
    """Constraint that is not valid: what is wrong, and the position in its text."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class Type(NamedTuple):
    """Type of an expression: bool, int (any number), bit, or the kind of a match.

    `width` is in bits. It is 0 for bool, int, and the match of a string, whose number may have any width.
    """

    kind: str
    width: int = 0

    def __str__(self) -> str:
        return f"{self.kind}<{self.width}>" if self.width else self.kind


BOOL, INT = Type("bool"), Type("int")

Value = int | tuple[int, int]
"""A number; for a match the numbers of its two fields: value and mask, value and prefix length, low and high."""

Values = Mapping[str, Value]
_Evaluate = Callable[[Values], Value]


class _Typed(NamedTuple):
    type: Type
    evaluate: _Evaluate
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Clause:
    """Part of a constraint that has to hold by itself; `names` are the keys and attributes that it mentions."""

    text: str
    names: tuple[str, ...]
    holds: _Evaluate


@dataclass(frozen=True, slots=True)
class Constraint:
    """Constraint: its clauses, which `;` separates."""

    clauses: tuple[Clause, ...]

    @classmethod
    def parse(cls, text: str, types: Mapping[str, Type]) -> Constraint:
        """Parse a constraint.

        Args:
            text: The constraint.
            types: The types of the names that it may mention: keys, parameters, and attributes such as `::priority`.

        Raises:
            ConstraintError: If it is not a valid Boolean expression.
        """
        return cls(tuple(_Parser(text, types).constraint()))

    def violated(self, values: Values) -> Clause | None:
        """Return the first clause that does not hold for these values, or None."""
        return next((clause for clause in self.clauses if not clause.holds(values)), None)


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    """Parser by recursive descent, which types and translates each expression to a function of the values."""

    def __init__(self, text: str, types: Mapping[str, Type]) -> None:
        self.source = text
        self.types = types
        self.tokens = list(_tokens(text))
        self.at = 0
        self.depth = 0

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def accept(self, *texts: str) -> _Token | None:
        token = self.token
        if token.kind == "symbol" and token.text in texts:
            self.at += 1
            return token
        return None

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.unexpected(f"'{text}'")

    def unexpected(self, wanted: str) -> ConstraintError:
        found = f"'{self.token.text}'" if self.token.text else "the end"
        return ConstraintError(f"{wanted} is expected here, not {found}", self.token.at)

    def constraint(self) -> Iterator[Clause]:
        while True:
            first = self.token
            found = self.expression()
            self.require(found, BOOL, first.at)
            end = self.token.at
            yield Clause(
                " ".join(self.source[first.at : end].split()), tuple(sorted(found.names)), found.evaluate
            )
            if not self.accept(";") and self.token.text:
                raise self.unexpected("an operator, or ';'")
            if not self.token.text:
                return

    def expression(self) -> _Typed:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ConstraintError(f"expressions are nested over {_DEEPEST} deep", self.token.at)
        left_at = self.token.at
        left = self.disjunction()
        if arrow := self.accept("->"):
            right = self.disjunction()
            left = self.boolean(
                left, right, arrow, left_at, lambda a, b: lambda v: int(not a(v) or bool(b(v)))
            )
            if again := self.accept("->"):
                raise ConstraintError("'->' has no order: write parentheses", again.at)
        self.depth -= 1
        return left

    def disjunction(self) -> _Typed:
        at, left = self.token.at, self.conjunction()
        while operator := self.accept("||"):
            right = self.conjunction()
            left = self.boolean(
                left, right, operator, at, lambda a, b: lambda v: int(bool(a(v)) or bool(b(v)))
            )
        return left

    def conjunction(self) -> _Typed:
        at, left = self.token.at, self.comparison()
        while operator := self.accept("&&"):
            right = self.comparison()
            left = self.boolean(
                left, right, operator, at, lambda a, b: lambda v: int(bool(a(v)) and bool(b(v)))
            )
        return left

    def boolean(
        self,
        left: _Typed,
        right: _Typed,
        operator: _Token,
        left_at: int,
        combine: Callable[[_Evaluate, _Evaluate], _Evaluate],
    ) -> _Typed:
        self.require(left, BOOL, left_at)
        self.require(right, BOOL, operator.at)
        return _Typed(BOOL, combine(left.evaluate, right.evaluate), left.names | right.names)

    def comparison(self) -> _Typed:
        left = self.unary()
        operator = self.accept(*_COMPARISONS)
        if operator is None:
            return left
        right = self.unary()
        if again := self.accept(*_COMPARISONS):
            raise ConstraintError(f"'{again.text}' after another comparison: write parentheses", again.at)
        return _compare(left, right, operator)

    def unary(self) -> _Typed:
        if operator := self.accept("!", "-"):
            self.depth += 1
            if self.depth > _DEEPEST:
                raise ConstraintError(f"expressions are nested over {_DEEPEST} deep", operator.at)
            operand = self.unary()
            self.depth -= 1
            self.require(operand, BOOL if operator.text == "!" else INT, operator.at)
            inner = operand.evaluate
            if operator.text == "!":
                return operand._replace(evaluate=lambda values: int(not inner(values)))
            return operand._replace(evaluate=lambda values: -inner(values))  # type: ignore[operator]
        return self.primary()

    def primary(self) -> _Typed:
        token = self.token
        if self.accept("("):
            found = self.expression()
            while self.accept(";"):  # as && with the lowest precedence
                more = self.expression()
                self.require(found, BOOL, token.at)
                self.require(more, BOOL, token.at)
                one, other = found.evaluate, more.evaluate
                found = _Typed(BOOL, _both(one, other), found.names | more.names)
            self.expect(")")
            return found
        if self.accept("::"):
            name = self.name("an attribute, such as priority")
            return self.named(f"::{name.text}", name)
        if token.kind == "number":
            self.at += 1
            digits = token.text[2:] if token.text[:2] in ("0d", "0D") else token.text
            number = int(digits) if digits.isdigit() else int(digits, 0)
            return _Typed(INT, lambda _: number, frozenset())
        name = self.name("a key, a number or a parenthesis")
        if name.text in ("true", "false"):
            truth = int(name.text == "true")
            return _Typed(BOOL, lambda _: truth, frozenset())
        if name.text in ("ipv4", "ipv6", "mac") and self.accept("("):
            address = self.address(name.text)
            self.expect(")")
            return _Typed(INT, lambda _: address, frozenset())
        found = self.named(name.text, name)
        return self.projection(found, name) if self.accept("::") else found

    def name(self, wanted: str) -> _Token:
        if self.token.kind != "name":
            raise self.unexpected(wanted)
        self.at += 1
        return self.tokens[self.at - 1]

    def named(self, name: str, token: _Token) -> _Typed:
        of = self.types.get(name)
        if of is None:
            names = ", ".join(self.types) or "none"
            raise ConstraintError(f"there is no '{name}' here; there are {names}", token.at)
        return _Typed(of, lambda values: values[name], frozenset({name}))

    def projection(self, of: _Typed, key: _Token) -> _Typed:
        field = self.name("a field of the key")
        there = _FIELDS.get(of.type.kind, ())
        if field.text not in there:
            fields = ", ".join(there) or "no fields"
            raise ConstraintError(
                f"'{key.text}' has type {of.type}, which has {fields}, not '{field.text}'", field.at
            )
        inner = of.evaluate
        if of.type.kind == "exact":
            return of._replace(type=Type("bit", of.type.width))
        place = there.index(field.text)
        result = INT if field.text == "prefix_length" else Type("bit", of.type.width)
        return of._replace(type=result, evaluate=lambda values: inner(values)[place])  # type: ignore[index]

    def address(self, kind: str) -> int:
        token = self.token
        if token.kind != "string":
            raise self.unexpected("an address in single quotes")
        self.at += 1
        text = token.text[1:-1]
        try:
            if kind == "ipv4":
                return int(ipaddress.IPv4Address(text))
            if kind == "ipv6":
                return int(ipaddress.IPv6Address(text))
            if re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
                return int(text.replace(":", ""), 16)
        except ValueError:
            pass
        raise ConstraintError(f"'{text}' is not an address of type {kind}", token.at)

    def require(self, found: _Typed, wanted: Type, at: int) -> None:
        if found.type != wanted:
            raise ConstraintError(
                f"an expression of type {wanted} is needed here, this has type {found.type}", at
            )


def _both(one: _Evaluate, other: _Evaluate) -> _Evaluate:
    return lambda values: int(bool(one(values)) and bool(other(values)))


def _compare(left: _Typed, right: _Typed, operator: _Token) -> _Typed:
    """Return a comparison, of two expressions converted to one type."""
    one, other = left.type, right.type
    ranks = {"int": 0, "bit": 1, "exact": 2}
    rank, other_rank = ranks.get(one.kind, 3), ranks.get(other.kind, 3)
    common = one if rank >= other_rank else other
    fits = one == other or (
        BOOL not in (one, other) and rank != other_rank and (INT in (one, other) or one.width == other.width)
    )
    if not fits:
        raise ConstraintError(f"'{operator.text}' cannot compare {one} with {other}", operator.at)
    text = operator.text
    if text not in ("==", "!=") and common.kind not in ("int", "bit", "exact"):
        raise ConstraintError(f"'{text}' compares numbers, not {common}: write '::' and a field", operator.at)
    a, b = _convert(left, common, operator), _convert(right, common, operator)
    return _Typed(BOOL, lambda values: int(_COMPARE[text](a(values), b(values))), left.names | right.names)


_COMPARE: dict[str, Callable[[Value, Value], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,  # type: ignore[operator]
    "<=": lambda a, b: a <= b,  # type: ignore[operator]
    ">": lambda a, b: a > b,  # type: ignore[operator]
    ">=": lambda a, b: a >= b,  # type: ignore[operator]
}


def _convert(expression: _Typed, to: Type, operator: _Token) -> _Evaluate:
    """Return the expression as a value of another type. A negative number is one in two's complement."""
    inner, width = expression.evaluate, to.width
    ones = (1 << width) - 1 if width else -1
    if expression.type == INT and width:
        number = inner
        if not expression.names:
            constant = number({})
            assert isinstance(constant, int)
            if not -(1 << width) < constant < 1 << width:
                raise ConstraintError(f"{constant} does not fit {to}", operator.at)

        def inner(values: Values) -> Value:
            return number(values) & ones  # type: ignore[operator]

    if expression.type.kind in ("int", "bit", "exact"):
        if to.kind in ("ternary", "optional"):
            return lambda values: (inner(values), ones)  # type: ignore[return-value]
        if to.kind == "lpm":
            return lambda values: (inner(values), width)  # type: ignore[return-value]
        if to.kind == "range":
            return lambda values: (inner(values), inner(values))  # type: ignore[return-value]
    return inner


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ConstraintError(f"'{text[at]}' is not part of the language", at)
        if found.lastgroup != "space":
            yield _Token(found.lastgroup or "", found[0], at)
        at = found.end()
    yield _Token("end", "", len(text))
