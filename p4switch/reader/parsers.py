"""Reader for parsers."""

from __future__ import annotations

from fanin.p4switch.bmv2json.expressions import Constant, Expression, Field, LastField, Lookahead, Unary
from fanin.p4switch.bmv2json.program import (
    Advance,
    ExtractHeader,
    ExtractNext,
    Parser,
    ParserCall,
    ParserOperation,
    ParserState,
    ProgramError,
    Set,
    Transition,
    Verify,
)
from fanin.p4switch.reader.expressions import Expressions
from fanin.p4switch.reader.values import Json, integer, optional_text, text


class ParserReader:
    """Reader for parsers.

    Malformed or unsupported items are raised as ProgramError.
    """

    def __init__(self, expressions: Expressions) -> None:
        self.expressions = expressions
        self.names = expressions.names

    def parser(self, item: Json) -> Parser:
        """Read a parser with all its states."""
        states = {text(s, "name"): self._state(s) for s in item["parse_states"]}
        initial = optional_text(item, "init_state")
        if initial is not None and initial not in states:
            raise ProgramError(f"parser {item['name']}: initial state {initial} does not exist")
        for state in states.values():
            for transition in state.transitions:
                if transition.next_state is not None and transition.next_state not in states:
                    raise ProgramError(
                        f"parser state {state.name}: next state {transition.next_state} does not exist"
                    )
        return Parser(text(item, "name"), initial, states)

    def _state(self, item: Json) -> ParserState:
        where = f"parser state {item['name']}"
        key = tuple(self.expressions.expression(k, where) for k in item.get("transition_key", []))
        widths = tuple(self._key_width(k, where) for k in key)
        return ParserState(
            text(item, "name"),
            tuple(self._operation(o, where) for o in item.get("parser_ops", [])),
            key,
            widths,
            tuple(self._transition(t, widths, where) for t in item.get("transitions", [])),
        )

    def _key_width(self, key: Expression, where: str) -> int:
        match key:
            case Field(header, name):
                found = self.names.headers[header].type.field(name)
            case LastField(stack, name, member):
                found = self.names.headers[self.names.stacks[stack].headers[member]].type.field(name)
            case Lookahead(_, width):
                return width
            case Unary("b2d", _):
                return 1
            case _:
                raise ProgramError(f"{where}: transition key {key} is not supported")
        if found is None:
            raise ProgramError(f"{where}: transition key {key} does not exist")
        return found.width

    def _transition(self, item: Json, widths: tuple[int, ...], where: str) -> Transition:
        kind = item.get("type", "default" if item["value"] == "default" else "hexstr")
        next_state = optional_text(item, "next_state")
        if kind == "default":
            return Transition(None, None, next_state)
        if kind == "parse_vset":
            return Transition(None, None, next_state, text(item, "value"))
        if kind != "hexstr":
            raise ProgramError(f"{where}: transition type {kind} is not supported")
        values = _split(integer(item["value"]), widths)
        mask = item.get("mask")
        masks = (None,) * len(widths) if mask is None else _split(integer(mask), widths)
        return Transition(values, masks, next_state)

    def _operation(self, item: Json, where: str) -> ParserOperation:
        op, parameters = item["op"], item["parameters"]
        match op:
            case "extract" | "extract_VL":
                target = parameters[0]
                length = self.expressions.expression(parameters[1], where) if op == "extract_VL" else None
                if target["type"] == "regular":
                    return ExtractHeader(self.names.header(target["value"]), length)
                if target["type"] == "stack":
                    return ExtractNext(self.names.stack(target["value"]), 0, length)
                if target["type"] == "union_stack":
                    stack, member = target["value"]
                    return ExtractNext(self.names.stack(stack), self.names.member(stack, member), length)
                raise ProgramError(f"{where}: extraction into {target['type']} is not supported")
            case "set":
                return Set(
                    self.expressions.expression(parameters[0], where),
                    self.expressions.expression(parameters[1], where),
                )
            case "verify":
                return Verify(
                    self.expressions.expression(parameters[0], where),
                    self.expressions.expression(parameters[1], where),
                )
            case "advance":
                return Advance(self.expressions.expression(parameters[0], where))
            case "shift":
                return Advance(Constant(8 * integer(parameters[0])))
            case "primitive":
                return ParserCall(self.expressions.primitive(parameters[0], where))
        raise ProgramError(f"{where}: parser operation {op} is not supported")


def _split(value: int, widths: tuple[int, ...]) -> tuple[int, ...]:
    """Split a concatenation of byte-padded fields."""
    parts = []
    for width in reversed(widths):
        size = (width + 7) // 8 * 8
        parts.append(value & ((1 << size) - 1))
        value >>= size
    return tuple(reversed(parts))
