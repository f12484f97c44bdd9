"""Parsers in BMv2's JSON."""

from __future__ import annotations

from fanin.p4compiler import ir, types
from fanin.p4compiler.emit.actions import ActionWriter, assignment
from fanin.p4compiler.emit.expressions import Json, hexadecimal
from fanin.p4compiler.emit.layout import flat_fields
from fanin.p4compiler.externs.registry import EXTERNS
from fanin.p4compiler.source import Reporter, error

MAX_RANGE_CASES = 1024  # the most cases of a select that ranges are expanded to


class ParserWriter:
    """Writer of the parser's states.

    What the target does not support is raised as CompileError.
    """

    def __init__(self, actions: ActionWriter, reporter: Reporter) -> None:
        self.actions = actions
        self.expressions = actions.expressions
        self.reporter = reporter

    def parser(self, block: ir.Block) -> Json:
        """Return the JSON of the parser."""
        return {
            "name": "parser",
            "id": 0,
            "init_state": "start",
            "parse_states": [self.state(state, number) for number, state in enumerate(block.states)],
        }

    def value_set(self, value_set: ir.ValueSet, number: int) -> Json:
        """Return the JSON of a value set."""
        of = value_set.type
        widths = (
            [types.width(f.type) or 0 for f in flat_fields(of)]
            if isinstance(of, types.Struct | types.Tuple)
            else [types.width(of) or 0]
        )
        return {
            "name": value_set.name,
            "id": number,
            "compressed_bitwidth": sum(widths),
            "max_size": value_set.size,
        }

    def state(self, state: ir.State, number: int) -> Json:
        """Return the JSON of a state."""
        operations = [self.operation(s) for s in state.body]
        transitions = []
        for case in state.cases:
            transitions += self._transitions(case, state)
            if not case.keys or all(k.anything for k in case.keys):
                break  # no later case can match
        key = [self.expressions.left(e) for e in state.subjects]
        return {
            "name": state.name,
            "id": number,
            "parser_ops": operations,
            "transitions": transitions,
            "transition_key": key,
        }

    # Statements

    def operation(self, s: ir.Stmt) -> Json:
        """Return a statement as a parser operation."""
        match s:
            case ir.Assign(target=target):
                made = self.actions.assign(s)
                del made["source_info"]
                if isinstance(target.type, types.Header | types.Union | types.Stack | types.Varbit):
                    return {"op": "primitive", "parameters": [{**made, "op": assignment(target.type)}]}
                return {"op": "set", "parameters": made["parameters"]}
            case ir.CallHeader():
                return {"op": "primitive", "parameters": [self.actions.header(s)]}
            case ir.CallExtern(name="packet_in.extract"):
                return self._extract(s)
            case ir.CallExtern(name="packet_in.advance"):
                return {"op": "advance", "parameters": [self.expressions.value(s.arguments[0])]}
            case ir.CallExtern(name="verify"):
                return {"op": "verify", "parameters": [self.expressions.value(a) for a in s.arguments]}
            case ir.CallExtern(name=name) if name in EXTERNS and EXTERNS[name].in_parser:
                return {"op": "primitive", "parameters": self.actions.extern(s)}
            case ir.If():
                raise error(
                    s.span, "'if' in a parser is not supported", "use a select with a state for each case"
                )
            case ir.Scope() | ir.Return():
                raise error(s.span, "a function with more than one return is not supported in a parser")
        raise error(s.span, "this statement is not supported in a parser on this target")

    def _extract(self, s: ir.CallExtern) -> Json:
        header = s.arguments[0]
        match header:
            case ir.StackPart(base=base, part="next"):
                target = {"type": "stack", "value": self.expressions.left(base)["value"]}
            case ir.Field(base=ir.StackPart(base=base, part="next"), name=name):
                target = {"type": "union_stack", "value": [self.expressions.left(base)["value"], name]}
            case _:
                if not isinstance(header.type, types.Header):
                    raise error(header.span, f"only a header can be extracted, not {header.type}")
                found = self.expressions.left(header)
                if found["type"] != "header":
                    raise error(
                        header.span, "extracting to a computed index is not supported", "use stack.next"
                    )
                target = {"type": "regular", "value": found["value"]}
        assert isinstance(header.type, types.Header)
        varying = any(isinstance(f.type, types.Varbit) for f in header.type.fields)
        if len(s.arguments) == 1:
            if varying:
                raise error(
                    header.span,
                    f"{header.type} has a varbit field",
                    "give its size in bits: extract(h, size)",
                )
            return {"op": "extract", "parameters": [target]}
        if not varying:
            raise error(s.arguments[1].span, f"{header.type} has no varbit field", "extract(h) is enough")
        size = {"type": "expression", "value": self.expressions.value(s.arguments[1])}
        return {"op": "extract_VL", "parameters": [target, size]}

    # Transitions

    def _transitions(self, case: ir.SelectCase, state: ir.State) -> list[Json]:
        target = None if case.target in ("accept", "reject") else case.target
        if case.target == "reject" and case.span != state.span:  # already warned about
            hint = "the packet is not dropped: ingress runs, with standard_metadata.parser_error as it is"
            message = "a transition to reject behaves like accept on this target"
            self.reporter.warn(case.span, message, hint, option="unsupported")
        if not case.keys or all(k.anything for k in case.keys):
            return [{"type": "default", "value": None, "mask": None, "next_state": target}]
        if case.keys[0].value_set is not None:
            name = case.keys[0].value_set.name
            return [{"type": "parse_vset", "value": name, "mask": None, "next_state": target}]
        choices: list[list[tuple[int, int | None]]] = [[]]
        for value, subject in zip(case.keys, state.subjects, strict=True):
            width = types.width(subject.type) or 0
            masks = (
                _range_masks(value.value, value.high, width)
                if value.high is not None
                else [(value.value, value.mask)]
            )
            choices = [[*c, m] for c in choices for m in masks]
            if len(choices) > MAX_RANGE_CASES:
                raise error(
                    case.span, f"these ranges become more than {MAX_RANGE_CASES} masks", "use smaller ranges"
                )
        return [self.transition(choice, state, target) for choice in choices]

    def transition(self, keys: list[tuple[int, int | None]], state: ir.State, target: str | None) -> Json:
        """Return a transition: the keys concatenated, each padded to whole bytes."""
        value = mask = size = 0
        for (key, key_mask), subject in zip(keys, state.subjects, strict=True):
            width = types.width(subject.type) or 0
            padded = (width + 7) // 8 * 8
            full = (1 << width) - 1
            value = value << padded | key
            mask = mask << padded | (full if key_mask is None else key_mask)
            size += padded
        exact = all(m is None for _, m in keys)
        return {
            "type": "hexstr",
            "value": hexadecimal(value, size),
            "mask": None if exact else hexadecimal(mask, size),
            "next_state": target,
        }


def _range_masks(low: int, high: int, width: int) -> list[tuple[int, int | None]]:
    """Return the smallest set of values with masks that covers a range."""
    result: list[tuple[int, int | None]] = []
    full = (1 << width) - 1
    while low <= high:
        size = low & -low if low else 1 << width
        while low + size - 1 > high:
            size >>= 1
        result.append((low, full & ~(size - 1) if size > 1 else None))
        low += size
    return result
