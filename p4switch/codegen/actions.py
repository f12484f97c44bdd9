"""Actions: one C function each, written primitive by primitive. Names and semantics are BMv2's."""

from __future__ import annotations

from collections.abc import Sequence

from fanin.p4switch.bmv2json.expressions import (
    Constant,
    ElementField,
    Expression,
    Field,
    HeaderName,
)
from fanin.p4switch.bmv2json.program import (
    Action,
    Argument,
    Primitive,
    ProgramError,
    RegisterArray,
    Source,
)
from fanin.p4switch.codegen.analysis.replaying import Replaying
from fanin.p4switch.codegen.analysis.rolling import Advancing, Run, RunFinder
from fanin.p4switch.codegen.calculations import Calculations
from fanin.p4switch.codegen.expressions import (
    WIDE,
    CValue,
    ExpressionWriter,
    Operand,
    c_words,
    unsigned_range,
    unsigned_type,
    value_of_words,
)
from fanin.p4switch.codegen.layout import WIDEST, Layout, access
from fanin.p4switch.codegen.loops import LoopWriter
from fanin.p4switch.codegen.names import Names, helper_name, quoted
from fanin.p4switch.codegen.state import StateMembers
from fanin.p4switch.codegen.tracing import Numbers, RecordKind
from fanin.p4switch.codegen.uses import Uses, jumps_back
from fanin.p4switch.codegen.writer import Writer
from fanin.p4switch.word_packing import word_count


class ActionWriter:
    """Writer of action functions, shared by everything that contains primitives."""

    def __init__(
        self,
        layout: Layout,
        state: StateMembers,
        calculations: Calculations,
        names: Names,
        uses: Uses,
        runs: RunFinder,
        replaying: Replaying,
    ) -> None:
        self.layout = layout
        self.state = state
        self.calculations = calculations
        self.names = names
        self.uses = uses
        self.runs = runs
        self.replaying = replaying
        self.numbers = Numbers(layout.program)
        self.has_exit = {
            a.id
            for a in layout.program.actions.values()
            if jumps_back(a.primitives) or any(p.kind.may_end for p in a.primitives)
        }

    def function(self, action: Action) -> str:
        """Return the C name of an action."""
        return self.names.identifier("action_", action.name, ("action", action.id))

    def call(self, action: Action, data: str) -> str:
        """Return a call of an action."""
        metadata = "m, " if action.id in self.layout.inlined else ""
        return f"{self.function(action)}(s, p, {metadata}{data})"

    def write(self, out: Writer, action: Action) -> None:
        """Write the function of an action."""
        inlined = action.id in self.layout.inlined
        head = self.layout.function(
            "void", self.function(action), inlined=inlined, more=", const uint64_t *data"
        )
        out.line("__attribute__((unused))")
        with out.block(head):
            parameters: list[tuple[str, int]] = []
            word = 0
            names = Names()
            for number, parameter in enumerate(action.parameters):
                name = names.identifier("", parameter.name, number)
                end = word + word_count(parameter.width)
                value = value_of_words([f"data[{n}]" for n in range(word, end)], parameter.width)
                out.line(f"const {unsigned_type(parameter.width)} {name} = {value};")
                parameters.append((name, parameter.width))
                word = end
            out.line(f"(void)s, (void)p, {'(void)m, ' if inlined else ''}(void)data;")
            if self.replaying.varies(action):
                out.line("replay_refuse(&s->replay);")
            arguments = [word for name, width in parameters for word in c_words(name, width)]
            out.trace(RecordKind.ACTION, self.numbers.of(action), *arguments)
            body = PrimitiveWriter(self, f"action {action.name}", tuple(parameters))
            body.replayed = self.replaying.possible and action.id in self.replaying.actions
            taken = {n for n, _ in parameters}
            for field in sorted(self.uses.locals[action.id], key=lambda f: (f.header, f.name)):
                local = self.layout.metadata_member(field).rpartition(".")[2]
                body.expressions.locals[field] = f"{local}_" if local in taken else local
            inner = out.inner()
            body.parts(inner, self.runs.parts(action.id))
            for name, _ in parameters:
                if not inner.mentions(name):
                    out.line(f"(void){name};")
            for field, local in body.expressions.locals.items():
                if inner.mentions(local):
                    kind = self.layout.member_type(field)
                    out.line(f"{kind} {local} = {'{{0}}' if kind == WIDE else '0'};")
            out.append(inner)
        out.line()


class PrimitiveWriter:
    """Writer of the primitives of one function. Their kinds write the C (primitives/), with the methods below.

    What the switch does not support is raised as ProgramError.
    """

    def __init__(self, actions: ActionWriter, where: str, parameters: tuple[tuple[str, int], ...]) -> None:
        self.layout = actions.layout
        self.state = actions.state
        self.calculations = actions.calculations
        self.numbers = actions.numbers
        self.where = where
        self.expressions = ExpressionWriter(actions.layout, where, parameters)
        self.temporaries = 0
        self.replayed = False  # in egress, which may be replayed
        self.source: Source | None = None  # of the current primitive
        self.number = 0  # and its number in a trace
        self.helper = ""  # and the name of its C function, if its kind has one
        self.abandon = "return;"  # leaves the function after a failed assertion
        self.touched: set[str] = set()  # headers that every path to this point has marked as written
        self.places: range | None = None  # the indices a jump may lead to; None outside actions
        self.place = 0  # of the current primitive

    def parts(self, out: Writer, parts: Sequence[Primitive | Run]) -> None:
        """Write an action's primitives in order, with labels at jump targets, and its runs as loops."""
        targets = set()
        self.places = range(len(parts) + 1)
        for part in parts:
            if isinstance(part, Primitive) and part.kind.jumps and isinstance(part.arguments[-1], Constant):
                targets.add(part.arguments[-1].value)
        for index, part in enumerate(parts):
            self.place = index
            if index in targets:
                out.label(f"L{index}")
                self.touched.clear()
            if isinstance(part, Run):
                out.source(part.group[0].source)
                for primitive in part.group:
                    self.touch(out, primitive)
                LoopWriter(part, self.layout, self.state, self.numbers, self.expressions, self.store).write(
                    out
                )
            else:
                out.source(part.source)
                self.primitive(out, part)
        if len(parts) in targets:
            out.label(f"L{len(parts)}")

    def primitive(self, out: Writer, primitive: Primitive) -> None:
        """Write one primitive call."""
        self.source = primitive.source
        self.number = self.numbers.of(primitive)
        self.layout.trace_invalid(out, primitive.arguments)
        self.touch(out, primitive)
        self.helper = helper_name(primitive.kind)
        primitive.kind.write(self, out, *primitive.arguments)
        if not primitive.kind.traces_itself:
            self.trace(out, primitive.arguments[0] if primitive.arguments else None)

    def touch(self, out: Writer, primitive: Primitive) -> None:
        """Write calls that mark the headers a primitive writes to as touched."""
        for target, kind in zip(primitive.arguments, primitive.kind.parameters, strict=True):
            if kind == "target":
                self.touch_target(out, target)

    def touch_target(self, out: Writer, target: Argument | Advancing) -> None:
        """Write a call that marks a target's header as touched, unless that is known already."""
        match target:
            case ElementField(element):
                out.line(f"touch(p, {self.expressions.element_index(element)});")
            case Field(header) | Advancing(header):
                if header not in self.touched and not self.layout.program.headers[header].is_metadata:
                    self.touched.add(header)
                    out.line(f"touch(p, {self.layout.header_index(header)});")

    def trace(self, out: Writer, target: Argument | None) -> None:
        """Write a trace record of the current statement, with the new value of its target if that is a number."""
        if out.traced:
            out.trace(RecordKind.STATEMENT, self.number, *self.recorded(target))

    def recorded(self, target: Argument | None) -> tuple[str, ...]:
        """Return the C words of a field's value; empty for anything else."""
        match target:
            case Field():
                kind = self.layout.program.field_type(target)
            case ElementField(element, offset):
                stack = self.layout.program.stacks[element.stack]
                kind = self.layout.program.headers[stack.headers[element.member]].type.fields[offset]
            case _:
                return ()
        if kind.varying or not kind.width:
            return ()
        return tuple(c_words(self.expressions.value(target).code, kind.width))

    def sized_words(self, value: Expression) -> list[str]:
        """Return C words for a value of any width: the number of words, doubled and odd if signed; the words."""
        found = self.expressions.value(value)
        signed = found.low < 0
        bits = max(found.high, ~found.low if signed else 0).bit_length() + signed
        count = word_count(bits)
        whole = self.expressions.masked(found, (1 << 64 * count) - 1).code
        return [str(count << 1 | signed), *c_words(whole, 64 * count)]

    def trace_words(self, out: Writer, *words: str) -> None:
        """Write a trace record of the current statement with these C words."""
        out.trace(RecordKind.STATEMENT, self.number, *words)

    def trace_failure(self, out: Writer) -> None:
        """Write a trace record that the current statement drops the packet."""
        out.trace(RecordKind.FAILED, self.number)

    def trace_cell(self, out: Writer, at: str, array: RegisterArray) -> None:
        """Write a trace record of a register's index and the value there."""
        if out.traced:
            nothing = "(wide_t){{0}}" if array.width > WIDEST else "0"
            value = f"({at} < {array.size} ? {self.state.cell(array.name, at)} : {nothing})"
            self.trace_words(out, at, *c_words(value, array.width))

    # What primitives are written with

    def unsupported(self, message: str) -> ProgramError:
        """Return an error that names the place."""
        return self.expressions.unsupported(message)

    def quoted(self, text: str) -> str:
        """Return a C string literal."""
        return quoted(text)

    def index(self, out: Writer, expression: Expression) -> str:
        """Return C for an array index that is evaluated once."""
        if isinstance(expression, Constant):
            return self.expressions.value(expression).code
        return self.temporary(out, "uint64_t", self.expressions.value(expression).cast("uint64_t"))

    def temporary(self, out: Writer, kind: str, code: str) -> str:
        """Declare a constant local variable with the value of an expression, and return its name."""
        self.temporaries += 1
        name = f"t{self.temporaries}"
        out.line(f"const {kind} {name} = {code};")
        return name

    # Assignment

    def assign(self, out: Writer, target: Expression, source: Operand) -> None:
        """Write `target = source`, truncated to the target's width."""
        match target:
            case Field():
                kind = self.layout.program.field_type(target)
                if kind.varying:
                    raise self.unsupported(f"{target.header}.{target.name}: a number for a varbit")
                self.store(out, target, self.expressions.assigned(source, kind))
            case ElementField(element, offset):
                stack = self.layout.program.stacks[element.stack]
                header_type = self.layout.program.headers[stack.headers[element.member]].type
                kind = header_type.fields[offset]
                if not kind.width:
                    return
                pointer = self.layout.field_base(self.expressions.element_index(element), kind)
                code = self.expressions.assigned(source, kind)
                macro = self.layout.field_macro(header_type, kind)
                out.line(f"put{access(kind.width)}({pointer}, {macro}, {code});")
            case _:
                raise self.unsupported(f"assignment to {type(target).__name__}")

    def store(self, out: Writer, target: Field, code: str) -> None:
        """Write an assignment of C code of the field's machine type, which is truncated already."""
        if not self.layout.program.field_type(target).width:
            return
        if self.layout.is_metadata(target):
            place = self.expressions.locals.get(target) or self.layout.metadata_member(target)
            out.line(f"{place} = {code};")
            return
        header_type = self.layout.program.headers[target.header].type
        kind = self.layout.program.field_type(target)
        macro = self.layout.field_macro(header_type, kind)
        pointer = self.layout.field_base(self.layout.header_index(target.header), kind)
        out.line(f"put{access(kind.width)}({pointer}, {macro}, {code});")

    def store_cell(self, out: Writer, target: Field, code: str, width: int) -> None:
        """Write an assignment of a register cell of `width` bits."""
        kind = unsigned_type(width)
        read = code if width > WIDEST else f"({kind}){code}"
        value = CValue(read, *unsigned_range(width), kind)
        self.store(out, target, self.expressions.assigned(value, self.layout.program.field_type(target)))

    def assign_number(self, out: Writer, target: Expression, code: str) -> None:
        """Write an assignment of C code of type uint64_t."""
        name = self.temporary(out, "uint64_t", code)
        self.assign(out, target, CValue(name, *unsigned_range(64), "uint64_t"))

    def copy_headers(self, out: Writer, targets: Sequence[str], sources: Sequence[str]) -> None:
        """Write header assignments, pair by pair."""
        if len(targets) != len(sources):
            raise self.unsupported("an assignment of stacks or unions of different sizes")
        for to, origin in zip(targets, sources, strict=True):
            self.expressions.check_alike(HeaderName(to), HeaderName(origin))
            out.line(f"copy_header(p, {self.layout.header_index(to)}, {self.layout.header_index(origin)});")

    def check_jump(self, out: Writer, to: int) -> None:
        """Reject a jump to a missing index; limit backward jumps, so that packets in an endless loop are dropped."""
        if self.places is None:
            raise self.unsupported("a jump outside an action")
        if to not in self.places:
            raise self.unsupported(f"a jump to {to}, of {len(self.places) - 1} primitives")
        if to > self.place:
            return
        with out.block("if (++s->base.spent.jumps > MAX_JUMPS)"):
            out.line(
                'report_drop(&s->base, &s->base.drops.too_many_jumps, "its action jumps back too often");'
            )
            out.line("p->failed = p->exit = true;")
            out.trace(RecordKind.LOOPING, self.number)
            out.line("return;")
