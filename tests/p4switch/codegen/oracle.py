"""BMv2's arithmetic in plain Python: integers of any size, cut to a field's width when they are assigned."""

from __future__ import annotations

import random
from typing import Any

from tests.p4switch.documents import field, number, operation

Values = dict[tuple[str, str], int]


def cut(value: int, width: int, signed: bool) -> int:
    """The value that a field of this type holds after the assignment of `value`."""
    value &= (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value


def evaluate(item: dict[str, Any], values: Values) -> Any:
    """The exact value of an expression of the JSON."""
    match item["type"]:
        case "field":
            return values[tuple(item["value"])]
        case "hexstr":
            return int(item["value"], 16)
    e = item["value"]
    op = e["op"]
    if op == "?":
        return evaluate(e["left"] if evaluate(e["cond"], values) else e["right"], values)
    right = evaluate(e["right"], values)
    if e["left"] is None:
        return {
            "~": lambda: ~right,
            "d2b": lambda: right != 0,
            "b2d": lambda: int(right),
            "not": lambda: not right,
        }[op]()
    left = evaluate(e["left"], values)
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "&":
            return left & right
        case "|":
            return left | right
        case "^":
            return left ^ right
        case "<<":
            return left << right
        case ">>":
            return left >> right
        case "/":
            return left // right if right else 0
        case "%":
            return left % right if right else 0
        case "==":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case ">=":
            return left >= right
        case "and":
            return left and right
        case "or":
            return left or right
        case "two_comp_mod":
            return cut(left, right, True)
        case "sat_cast":
            return max(-(1 << (right - 1)), min((1 << (right - 1)) - 1, left))
        case "usat_cast":
            return max(0, min((1 << right) - 1, left))
    raise AssertionError(op)


class Expressions:
    """Random expressions over given fields, as a P4 compiler writes them: results are brought back to a width."""

    def __init__(self, seed: int, fields: list[tuple[str, str]], widths: tuple[int, ...]) -> None:
        self.random = random.Random(seed)
        self.fields = fields
        self.widths = widths

    def number(self, depth: int) -> dict[str, Any]:
        r = self.random
        if depth == 0 or r.random() < 0.1:
            if r.random() < 0.75:
                return field(*r.choice(self.fields))
            return number(r.choice(self.constants()))
        width = r.choice(self.widths)
        match r.randrange(10):
            case 0 | 1 | 2:
                made = operation(r.choice("+-*"), self.number(depth - 1), self.number(depth - 1))
                if r.random() < 0.5:
                    return operation("&", made, number((1 << width) - 1))
                return operation("two_comp_mod", made, number(max(2, width)))
            case 3:
                return operation(r.choice("&|^"), self.number(depth - 1), self.number(depth - 1))
            case 4:
                made = operation(r.choice("+-"), self.number(depth - 1), self.number(depth - 1))
                signed = r.random() < 0.5
                return operation(
                    "sat_cast" if signed else "usat_cast", made, number(max(2, r.choice([width, 32])))
                )
            case 5:
                distance = operation("&", self.number(depth - 1), number(0x7F))
                return operation(
                    "&", operation("<<", self.number(depth - 1), distance), number((1 << width) - 1)
                )
            case 6:
                return operation(
                    ">>", self.number(depth - 1), operation("&", self.number(depth - 1), number(0x7F))
                )
            case 7:
                return operation("&", operation("~", None, self.number(depth - 1)), number((1 << width) - 1))
            case 8:
                return operation(
                    "?", self.number(depth - 1), self.number(depth - 1), cond=self.truth(depth - 1)
                )
            case _:
                return operation("b2d", None, self.truth(depth - 1))

    def constants(self) -> list[int]:
        """Small ones, the limits of C's types, and those of one of the widths."""
        width = self.random.choice(self.widths)
        limit = 1 << (width - 1)
        limits = [limit - 1, limit, 2 * limit - 1, -limit, -1]
        return [0, 1, 3, 0xFF, 0x7FFF, 0x80000000, 0xFFFFFFFF, self.random.getrandbits(width), *limits]

    def truth(self, depth: int) -> dict[str, Any]:
        r = self.random
        if depth <= 0 or r.random() < 0.6:
            op = r.choice(["==", "!=", "<", "<=", ">", ">="])
            return operation(op, self.number(max(0, depth - 1)), self.number(max(0, depth - 1)))
        if r.random() < 0.3:
            return operation("not", None, self.truth(depth - 1))
        if r.random() < 0.3:
            return operation("d2b", None, self.number(depth - 1))
        return operation(r.choice(["and", "or"]), self.truth(depth - 1), self.truth(depth - 1))
