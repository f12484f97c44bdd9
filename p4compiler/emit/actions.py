"""Actions in BMv2's JSON: statements -> primitives."""

from __future__ import annotations

from typing import Any

from fanin.p4compiler import ir, types
from fanin.p4compiler.emit.expressions import ExpressionWriter, Json, literal, source_info
from fanin.p4compiler.emit.numbers import Numbers
from fanin.p4compiler.lower import field_of
from fanin.p4compiler.source import Span, error

_HEADER_PRIMITIVES = {
    "setValid": "add_header",
    "setInvalid": "remove_header",
    "push_front": "push",
    "pop_front": "pop",
}
_CLONES = {0: "clone_ingress_pkt_to_egress", 1: "clone_egress_pkt_to_egress"}  # by CloneType


class ActionWriter:
    """Writer of the bodies of a block's actions.

    `field_lists` maps each call to the number of the field list that it preserves. What the target does not support is
    raised as CompileError.
    """

    def __init__(
        self,
        role: ir.Role,
        expressions: ExpressionWriter,
        numbers: Numbers,
        field_lists: dict[ir.CallExtern, int],
    ) -> None:
        self.role = role
        self.expressions = expressions
        self.numbers = numbers
        self.field_lists = field_lists
        # For each enclosing loop: the jumps out of it, and the jumps to its update.
        self.loops: list[tuple[list[Json], list[Json]]] = []

    def action(self, action: ir.Action) -> Json:
        """Return the JSON of an action."""
        for parameter in action.parameters:
            if not isinstance(types.scalar(parameter.type), types.Bits) or not types.width(parameter.type):
                hint = "use bit<1>"
                raise error(
                    parameter.span,
                    f"an action's data cannot be of type {parameter.type} on this target",
                    hint,
                )
        return {
            "name": action.name,
            "id": self.numbers.actions[action],
            "runtime_data": [{"name": p.name, "bitwidth": types.width(p.type)} for p in action.parameters],
            "primitives": self.body(action.body),
        }

    def body(self, statements: tuple[ir.Stmt, ...]) -> list[Json]:
        """Return the primitives of statements, with jump targets as numbers of primitives."""
        primitives: list[Json] = []
        exits: list[Json] = []
        self.statements(statements, primitives, [exits])
        for jump in exits:
            jump["parameters"] = [literal(len(primitives))]
        return primitives

    def statements(self, statements: tuple[ir.Stmt, ...], out: list[Json], returns: list[list[Json]]) -> None:
        """Append the primitives of statements to `out`.

        Args:
            statements: The statements.
            out: The primitives so far.
            returns: For each enclosing scope, the jumps that leave it.
        """
        for s in statements:
            match s:
                case ir.Assign():
                    out.append(self.assign(s))
                case ir.If():
                    self.if_statement(s, out, returns)
                case ir.Scope(body=body):
                    leaving: list[Json] = []
                    self.statements(body, out, [*returns, leaving])
                    for jump in leaving:
                        jump["parameters"] = [literal(len(out))]
                case ir.Return(span=span):
                    _jump(span, out, returns[-1])
                case ir.Exit(span=span):
                    out.append({"op": "exit", "parameters": [], "source_info": source_info(span)})
                    _jump(span, out, returns[0])
                case ir.Loop():
                    self.loop(s, out, returns)
                case ir.Break(span=span):
                    _jump(span, out, self.loops[-1][0])
                case ir.Continue(span=span):
                    _jump(span, out, self.loops[-1][1])
                case ir.CallExtern():
                    out += self.extern(s)
                case ir.CallHeader():
                    out.append(self.header(s))
                case _:
                    raise error(s.span, "this statement is not supported in an action")

    def if_statement(self, s: ir.If, out: list[Json], returns: list[list[Json]]) -> None:
        """Append an if: conditional jumps over the branches that are not taken."""
        where = source_info(s.span)
        test = self.expressions.argument(s.condition)
        skip: Json = {"op": "_jump_if_zero", "parameters": [test], "source_info": where}
        out.append(skip)
        self.statements(s.chosen, out, returns)
        if not s.other:
            skip["parameters"].append(literal(len(out)))
            return
        end: Json = {"op": "_jump", "parameters": [], "source_info": where}
        out.append(end)
        skip["parameters"].append(literal(len(out)))
        self.statements(s.other, out, returns)
        end["parameters"].append(literal(len(out)))

    def loop(self, s: ir.Loop, out: list[Json], returns: list[list[Json]]) -> None:
        """Append a loop: its body, its update, and a jump back to the beginning."""
        begin = len(out)
        leaving: list[Json] = []
        continuing: list[Json] = []
        self.loops.append((leaving, continuing))
        self.statements(s.body, out, returns)
        for jump in continuing:
            jump["parameters"] = [literal(len(out))]
        self.statements(s.update, out, returns)
        self.loops.pop()
        out.append({"op": "_jump", "parameters": [literal(begin)], "source_info": source_info(s.span)})
        for jump in leaving:
            jump["parameters"] = [literal(len(out))]

    def assign(self, s: ir.Assign) -> Json:
        """Return the primitive of an assignment."""
        writer = self.expressions
        left = writer.left(s.target)
        if left["type"] == "expression":
            left = {"type": "expression", "value": left}
        return {
            "op": assignment(s.target.type),
            "parameters": [left, writer.argument(s.value)],
            "source_info": source_info(s.span),
        }

    def header(self, s: ir.CallHeader) -> Json:
        """Return the primitive of a built-in method of a header or stack."""
        parameters = [self.expressions.left(s.header)]
        if s.method in ("push_front", "pop_front"):
            parameters.append(literal(s.count))
        return {
            "op": _HEADER_PRIMITIVES[s.method],
            "parameters": parameters,
            "source_info": source_info(s.span),
        }

    # Externs

    def extern(self, s: ir.CallExtern) -> list[Json]:
        """Return the primitives of an extern call; an empty list if the target does its work implicitly."""
        arguments = s.arguments
        instance = s.instance.name if s.instance is not None else ""
        value = self.expressions.argument
        parameters: list[Any]
        match s.name:
            case "direct_counter.count" | "direct_meter.read":
                return []
            case "register.read":
                op, parameters = (
                    "register_read",
                    [self._target(s, 0), _object("register_array", instance), value(arguments[1])],
                )
            case "register.write":
                op, parameters = (
                    "register_write",
                    [_object("register_array", instance), *map(value, arguments)],
                )
            case "counter.count":
                op, parameters = "count", [_object("counter_array", instance), value(arguments[0])]
            case "meter.execute_meter":
                op, parameters = (
                    "execute_meter",
                    [_object("meter_array", instance), value(arguments[0]), self._target(s, 1)],
                )
            case "mark_to_drop":
                op, parameters = "mark_to_drop", [self.expressions.left(arguments[0])]
            case "random":
                op, parameters = "modify_field_rng_uniform", [self._target(s, 0), *map(value, arguments[1:])]
            case "hash":
                op, parameters = "modify_field_with_hash_based_offset", self._hash(s)
            case "truncate":
                op, parameters = "truncate", [value(arguments[0])]
            case "digest":
                op, parameters = (
                    "generate_digest",
                    [value(arguments[0]), literal(self.numbers.learn_lists[s], 32)],
                )
            case "clone" | "clone_preserving_field_list":
                op, parameters = self._clone(s)
            case "resubmit_preserving_field_list":
                op, parameters = "resubmit", [self.field_list(s, arguments[0], ir.Role.INGRESS)]
            case "recirculate_preserving_field_list":
                op, parameters = "recirculate", [self.field_list(s, arguments[0], ir.Role.EGRESS)]
            case "assert" | "assume":
                op, parameters = s.name, [value(arguments[0])]
            case "log_msg":
                op, parameters = "log_msg", self._log(s)
            case _:
                raise error(s.span, f"{s.name}() is not supported here")
        primitives: list[Json] = [{"op": op, "parameters": parameters, "source_info": source_info(s.span)}]
        for argument, direction in zip(arguments, s.directions, strict=True):
            bits = types.scalar(argument.type)
            if direction == "out" and isinstance(bits, types.Bits) and bits.signed:
                # BMv2 writes the bits without their sign: a register that holds -1 reads as 2^W - 1.
                again = ir.Assign(s.span, argument, argument)
                primitives.append(self.assign(again))
                signed = self.expressions.bring_back(self.expressions.value(argument), bits)
                primitives[-1]["parameters"][1] = {"type": "expression", "value": signed}
        return primitives

    def _target(self, s: ir.CallExtern, position: int) -> Json:
        left = self.expressions.left(s.arguments[position])
        if left["type"] == "expression":
            raise error(s.span, "a field with a computed index cannot be written here", "use a variable")
        return left

    def _hash(self, s: ir.CallExtern) -> list[Json]:
        _, algorithm, base, _, limit = s.arguments
        if not isinstance(algorithm, ir.Constant):
            raise error(algorithm.span, "the hash algorithm must be known when compiling")
        calculation = _object("calculation", self.numbers.calculations[s])
        value = self.expressions.argument
        return [self._target(s, 0), value(base), calculation, value(limit)]

    def _clone(self, s: ir.CallExtern) -> tuple[str, list[Json]]:
        kind = s.arguments[0]
        if not isinstance(kind, ir.Constant):
            raise error(kind.span, "the kind of clone must be known when compiling")
        if self.role != ir.PIPELINES[kind.value]:
            raise error(s.span, f"a clone from {('ingress', 'egress')[kind.value]} is not possible here")
        session = self.expressions.argument(s.arguments[1])
        if s.name == "clone":
            return _CLONES[kind.value], [session, literal(self.field_lists[s], 32)]
        return _CLONES[kind.value], [session, self.field_list(s, s.arguments[2], self.role)]

    def field_list(self, s: ir.CallExtern, index: ir.Expr, role: ir.Role) -> Json:
        """Return the number of the list of metadata fields that @field_list(index) marks."""
        if self.role != role:
            raise error(s.span, f"{s.name}() is only possible in {role.name.lower()}")
        if not isinstance(index, ir.Constant):
            raise error(index.span, "the number of the field list must be known when compiling")
        return literal(self.field_lists[s], 32)

    def _log(self, s: ir.CallExtern) -> list[Json]:
        """Return the arguments of log_msg: the text with each `{}` expanded for its value, and the values."""
        text, *data = s.arguments
        assert isinstance(text, ir.Text)
        first, *pieces = text.value.split("{}")
        values = _elements(data[0]) if data else []
        if len(pieces) != len(values):
            raise error(
                s.span, f"the text has {len(pieces)} places ({{}}), and there are {len(values)} values"
            )
        shown = [_shown(value) for value in values]
        form = first + "".join(shape + piece for (shape, _), piece in zip(shown, pieces, strict=True))
        parts = [self.expressions.argument(part) for _, found in shown for part in found]
        return [{"type": "string", "value": form}, {"type": "parameters_vector", "value": parts}]


def _elements(data: ir.Expr) -> list[ir.Expr]:
    if isinstance(data, ir.Aggregate):
        return list(data.elements)
    if isinstance(data.type, types.Struct | types.Tuple):
        return [field_of(data, f.name, f.type, n) for n, f in enumerate(data.type.fields)]
    return [data]


def _shown(e: ir.Expr) -> tuple[str, list[ir.Expr]]:
    """Return the format of a value in a message, and the numbers in it. Structs and headers show field names."""
    if not isinstance(e.type, types.Struct | types.Header):
        return "{}", [e]
    fields = e.type.fields
    inner = [_shown(field_of(e, f.name, f.type, n)) for n, f in enumerate(fields)]
    shape = ",".join(f"{f.name}:{shape}" for f, (shape, _) in zip(fields, inner, strict=True))
    return f"({shape})", [part for _, parts in inner for part in parts]


def assignment(of: types.Type) -> str:
    """Return the primitive that assigns values of this type."""
    match of:
        case types.Varbit():
            return "assign_VL"
        case types.Header():
            return "assign_header"
        case types.Union():
            return "assign_union"
        case types.Stack(element=types.Union()):
            return "assign_union_stack"
        case types.Stack():
            return "assign_header_stack"
    return "assign"


def _jump(span: Span, out: list[Json], jumps: list[Json]) -> None:
    """Append a jump whose target is not yet known, and remember it in `jumps`."""
    jump: Json = {"op": "_jump", "parameters": [], "source_info": source_info(span)}
    jumps.append(jump)
    out.append(jump)


def _object(kind: str, name: str) -> Json:
    return {"type": kind, "value": name}
