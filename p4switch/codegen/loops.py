"""Runs of similar statements (analysis/rolling.py) as C loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fanin.p4switch.bmv2json.expressions import Field
from fanin.p4switch.codegen.analysis.rolling import Advancing, Run, nodes
from fanin.p4switch.codegen.expressions import (
    CValue,
    ExpressionWriter,
    Operand,
    c_words,
    range_of,
    unsigned_range,
)
from fanin.p4switch.codegen.layout import Layout, machine_width
from fanin.p4switch.codegen.state import StateMembers
from fanin.p4switch.codegen.tracing import Numbers, RecordKind
from fanin.p4switch.codegen.writer import Writer


class LoopExpressions(ExpressionWriter):
    """Expressions inside a loop: metadata is in local variables, advancing fields depend on the loop counter."""

    def __init__(self, outer: ExpressionWriter) -> None:
        super().__init__(outer.layout, outer.where, outer.parameters)
        self.locals = dict(outer.locals)
        self.headers: dict[str, str] = {}

    def leaf(self, expression: Operand) -> CValue:
        """Return an advancing field, or any other value as ExpressionWriter does."""
        if isinstance(expression, Advancing):
            kind = expression.first
            machine = max(32, kind.width)
            low, high = range_of(kind)
            if kind.signed:
                return CValue(f"(int{kind.width}_t){self.load(expression)}", low, high, f"int{machine}_t")
            sign = "u" if kind.width >= 32 else ""
            return CValue(self.load(expression), low, high, f"{sign}int{machine}_t")
        return super().leaf(expression)

    def place(self, field: Advancing) -> str:
        """Return the address of an advancing field."""
        offset = f" + {field.first.offset // 8}" if field.first.offset else ""
        return f"{self.headers[field.header]}{offset} + {field.stride // 8} * i"

    def load(self, field: Advancing) -> str:
        """Return the bits of an advancing field, unsigned."""
        if field.first.width == 8:
            return f"({self.place(field)})[0]"
        return f"load_be{field.first.width}({self.place(field)})"


class LoopWriter:
    """Writer of one run as a loop. `outside` and `store` are those of the enclosing function."""

    def __init__(
        self,
        run: Run,
        layout: Layout,
        state: StateMembers,
        numbers: Numbers,
        outside: ExpressionWriter,
        store: Callable[[Writer, Field, str], None],
    ) -> None:
        self.run = run
        self.layout = layout
        self.state = state
        self.numbers = numbers
        self.outside = outside
        self.store = store
        self.expressions = LoopExpressions(outside)
        self.registers: dict[str, str] = {}
        self.lifted: list[Field] = []

    def write(self, out: Writer) -> None:
        """Write the loop. With registers it is written twice: for an index in range, and without them for any other."""
        with out.block():
            self._declare(out)
            if self.run.index is None:
                self._write_loop(out, with_registers=False)
            else:
                index = self.outside.value(self.run.index).cast("uint64_t")
                out.line(f"const uint64_t cell = {index};")
                with out.block(f"if (cell < {self.run.size})"):
                    self._declare_registers(out)
                    self._write_loop(out, with_registers=True)
                with out.block("else"):
                    self._write_loop(out, with_registers=False)
            for reference in self.lifted:
                if any(p.arguments[0] == reference for p in self.run.group):
                    member = self.layout.metadata_member(reference)
                    out.line(f"{member} = {self.expressions.locals[reference]};")

    def _declare(self, out: Writer) -> None:
        """Declare restricted pointers for headers, so that gcc assumes no overlap, and local variables for metadata."""
        for node in nodes(self.run.group):
            if isinstance(node, Advancing) and node.header not in self.expressions.headers:
                name = f"bytes{len(self.expressions.headers)}"
                self.expressions.headers[node.header] = name
                out.line(f"uint8_t *restrict {name} = {self.layout.header_pointer(node.header)};")
        for reference in self._metadata():
            member = self.layout.metadata_member(reference)
            local = member.rpartition(".")[2]
            self.expressions.locals[reference] = local
            self.lifted.append(reference)
            out.line(f"{self.layout.member_type(reference)} {local} = {member};")

    def _metadata(self) -> list[Field]:
        """Return the metadata that the loop's statements use, without variables local to the action."""
        used: dict[Field, None] = {}
        for primitive in self.run.group:
            arguments = list(primitive.arguments)
            if primitive.op == "register_read":
                arguments = arguments[:1]
            elif primitive.op == "register_write":
                arguments = arguments[2:]
            for node in nodes(tuple(arguments)):
                if isinstance(node, Field) and self.layout.is_metadata(node) and self._width(node):
                    used[node] = None
        return [field for field in used if field not in self.expressions.locals]

    def _declare_registers(self, out: Writer) -> None:
        for number, (first, sequence) in enumerate(self.run.registers.items()):
            row, start = self.state.place[first]
            step = self.state.place[sequence[1]][1] - start
            width = machine_width(row.width)
            offset = f" + {start}" if start else ""
            out.line(f"uint{width}_t *restrict row{number} = s->{row.member}[cell]{offset};")
            self.registers[first] = f"row{number}[{'' if step == 1 else f'{step} * '}i]"

    def _write_loop(self, out: Writer, *, with_registers: bool) -> None:
        with out.block(f"for (int i = 0; i < {self.run.count}; i++)"):
            first = self.numbers.of(self.run.first)
            for position, primitive in enumerate(self.run.group):
                number = f"{first + position} + {len(self.run.group)} * i"
                arguments: tuple[Any, ...] = primitive.arguments
                if primitive.op == "register_read":
                    if with_registers:
                        register = self.state.program.registers[arguments[1].name]
                        kind = f"uint{max(32, machine_width(register.width))}_t"
                        cell = f"({kind}){self.registers[register.name]}"
                        self._assign(out, arguments[0], CValue(cell, *unsigned_range(register.width), kind))
                    self._trace_cell(out, number, arguments[1].name, with_registers)
                elif primitive.op == "register_write":
                    if with_registers:
                        register = self.state.program.registers[arguments[0].name]
                        cut = self.expressions.masked(arguments[2], (1 << register.width) - 1).code
                        out.line(f"{self.registers[register.name]} = {cut};")
                    self._trace_cell(out, number, arguments[0].name, with_registers)
                else:
                    self._assign(out, arguments[0], arguments[1])
                    value = self.expressions.value(arguments[0])
                    out.trace(RecordKind.STATEMENT, number, *c_words(value.code, self._width(arguments[0])))

    def _width(self, target: Any) -> int:
        kind = target.first if isinstance(target, Advancing) else self.layout.program.field_type(target)
        return kind.width

    def _trace_cell(self, out: Writer, number: str, register: str, in_range: bool) -> None:
        value = self.registers[register] if in_range else "0"
        out.trace(
            RecordKind.STATEMENT,
            number,
            "cell",
            *c_words(value, self.state.program.registers[register].width),
        )

    def _assign(self, out: Writer, target: Any, source: Operand) -> None:
        if isinstance(target, Advancing):
            code = self.expressions.assigned(source, target.first)
            if target.first.width == 8:
                out.line(f"({self.expressions.place(target)})[0] = {code};")
            else:
                out.line(f"store_be{target.first.width}({self.expressions.place(target)}, {code});")
        else:
            code = self.expressions.assigned(source, self.layout.program.field_type(target))
            local = self.expressions.locals.get(target)
            if local is None:
                self.store(out, target, code)
            else:
                out.line(f"{local} = {code};")
