"""Actions in BMv2's JSON: statements -> primitives."""

from __future__ import annotations

from fanin.p4compiler import ir, types
from fanin.p4compiler.emit.expressions import ExpressionWriter, Json, literal, source_info
from fanin.p4compiler.emit.numbers import Numbers
from fanin.p4compiler.externs.registry import EXTERNS
from fanin.p4compiler.source import Span, error

_HEADER_PRIMITIVES = {
    "setValid": "add_header",
    "setInvalid": "remove_header",
    "push_front": "push",
    "pop_front": "pop",
}


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
            if not isinstance(types.scalar(parameter.type), types.Bits):
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
        extern = EXTERNS.get(s.name)
        if extern is None:
            raise error(s.span, f"{s.name}() is not supported here")
        primitive = extern.emit(self, s)
        if primitive is None:
            return []
        op, parameters = primitive
        primitives: list[Json] = [{"op": op, "parameters": parameters, "source_info": source_info(s.span)}]
        for argument, direction in zip(s.arguments, s.directions, strict=True):
            bits = types.scalar(argument.type)
            if direction == "out" and isinstance(bits, types.Bits) and bits.signed:
                # BMv2 writes the bits without their sign: a register that holds -1 reads as 2^W - 1.
                again = ir.Assign(s.span, argument, argument)
                primitives.append(self.assign(again))
                signed = self.expressions.bring_back(self.expressions.value(argument), bits)
                primitives[-1]["parameters"][1] = {"type": "expression", "value": signed}
        return primitives

    def target(self, s: ir.CallExtern, position: int) -> Json:
        """Return the argument that the extern writes to."""
        left = self.expressions.left(s.arguments[position])
        if left["type"] == "expression":
            raise error(s.span, "a field with a computed index cannot be written here", "use a variable")
        return left

    def number(self, value: int) -> Json:
        """Return the number of a list in the JSON."""
        return literal(value, 32)

    def instance(self, kind: str, s: ir.CallExtern) -> Json:
        """Return the object whose method is called. `kind` is the JSON's, for example register_array."""
        assert s.instance is not None
        return {"type": kind, "value": s.instance.name}


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
