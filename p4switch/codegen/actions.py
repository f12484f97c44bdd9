"""Actions: one C function each, written primitive by primitive. Names and semantics are BMv2's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fanin.p4switch.bmv2json.expressions import (
    Binary,
    Constant,
    ElementField,
    Expression,
    Field,
    HeaderName,
    StackName,
    UnionName,
)
from fanin.p4switch.bmv2json.primitives import PRIMITIVES
from fanin.p4switch.bmv2json.program import (
    Action,
    Argument,
    ExpressionList,
    Named,
    Primitive,
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
from fanin.p4switch.codegen.names import Names, quoted
from fanin.p4switch.codegen.state import StateMembers
from fanin.p4switch.codegen.tracing import Numbers, RecordKind
from fanin.p4switch.codegen.uses import JUMPS, Uses, jumps_back
from fanin.p4switch.codegen.writer import Writer
from fanin.p4switch.word_packing import word_count

FROM_OPERANDS = {
    "add": "+",
    "subtract": "-",
    "bit_xor": "^",
    "bit_or": "|",
    "bit_and": "&",
    "shift_left": "<<",
    "shift_right": ">>",
}
ENDS = {"exit", "assert", "assume"}  # the pipeline
IN_PLACE = {"add_to_field": "+", "subtract_from_field": "-"}
RECORDED_INSIDE = {"register_read", "register_write", "count", "execute_meter", "jump", "jump_if_zero"}


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
            if jumps_back(a.primitives) or any(p.op in ENDS for p in a.primitives)
        }

    def function(self, action: Action) -> str:
        """Return the C name of an action."""
        return self.names.identifier("action_", action.name, ("action", action.id))

    def write(self, out: Writer, action: Action) -> None:
        """Write the function of an action."""
        head = f"static void {self.function(action)}(struct state *s, struct packet *p, const uint64_t *data)"
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
            out.line("(void)s, (void)p, (void)data;")
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


# What writes the C of a primitive: a method of PrimitiveWriter, by the primitive's name without leading underscores.
WRITERS: dict[str, Callable[..., None]] = {}


def writes(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a method as the one that writes these primitives."""

    def register(method: Callable[..., None]) -> Callable[..., None]:
        WRITERS.update(dict.fromkeys(names, method))
        return method

    return register


class PrimitiveWriter:
    """Writer of the primitives of one function.

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
        self.abandon = "return;"  # leaves the function after a failed assertion
        self.touched: set[str] = set()  # headers that every path to this point has marked as written
        self.places: range | None = None  # the indices a jump may lead to; None outside actions
        self.place = 0  # of the current primitive

    def parts(self, out: Writer, parts: Sequence[Primitive | Run]) -> None:
        """Write an action's primitives in order, with labels at jump targets, and its runs as loops."""
        targets = set()
        self.places = range(len(parts) + 1)
        for part in parts:
            if isinstance(part, Primitive) and part.op in JUMPS and isinstance(part.arguments[-1], Constant):
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
        name = primitive.op.lstrip("_")
        if name in FROM_OPERANDS:
            target, left, right = self.operands(primitive.arguments)
            self.assign(out, target, Binary(FROM_OPERANDS[name], left, right))
        elif name in IN_PLACE:
            target, operand = self.operands(primitive.arguments)
            self.assign(out, target, Binary(IN_PLACE[name], target, operand))
        else:
            WRITERS[name](self, out, *primitive.arguments)
        if name not in RECORDED_INSIDE:
            self.trace(out, primitive.arguments[0] if primitive.arguments else None)

    def touch(self, out: Writer, primitive: Primitive) -> None:
        """Write calls that mark the headers a primitive writes to as touched."""
        for target, kind in zip(primitive.arguments, PRIMITIVES[primitive.op], strict=True):
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

    def trace_cell(self, out: Writer, at: str, array: RegisterArray) -> None:
        """Write a trace record of a register's index and the value there."""
        if out.traced:
            nothing = "(wide_t){{0}}" if array.width > WIDEST else "0"
            value = f"({at} < {array.size} ? {self.state.cell(array.name, at)} : {nothing})"
            out.trace(RecordKind.STATEMENT, self.number, at, *c_words(value, array.width))

    def operands(self, arguments: Sequence[Argument]) -> list[Expression]:
        """Return the arguments that are expressions."""
        return [a for a in arguments if not isinstance(a, (Named, ExpressionList))]

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
                    raise self.expressions.unsupported(
                        f"{target.header}.{target.name}: a number for a varbit"
                    )
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
                raise self.expressions.unsupported(f"assignment to {type(target).__name__}")

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

    @writes("assign", "modify_field")
    def write_assign(self, out: Writer, target: Expression, source: Expression) -> None:
        """Write `assign` or `modify_field`."""
        self.assign(out, target, source)

    @writes("no_op")
    def write_no_op(self, out: Writer) -> None:
        """Write nothing."""

    # Headers

    @writes("add_header", "add_header_fast")
    def write_add_header(self, out: Writer, target: Expression) -> None:
        """Write setValid(), which fills a header with zeros if it was not valid."""
        out.line(f"set_valid(p, {self.expressions.header_number(target)});")

    @writes("remove_header")
    def write_remove_header(self, out: Writer, target: Expression) -> None:
        """Write setInvalid()."""
        out.line(f"set_invalid(p, {self.expressions.header_number(target)});")

    @writes("assign_header", "copy_header")
    def write_assign_header(self, out: Writer, target: Expression, source: Expression) -> None:
        """Write a header assignment: fields and validity."""
        match target, source:
            case HeaderName() as to, HeaderName() as origin if self.layout.program.headers[
                to.name
            ].is_metadata:
                self.assign_struct(out, to, origin)
            case _:
                self.expressions.check_alike(target, source)
                numbers = map(self.expressions.header_number, (target, source))
                out.line(f"copy_header(p, {', '.join(numbers)});")

    def assign_struct(self, out: Writer, target: HeaderName, source: HeaderName) -> None:
        """Write an assignment of a metadata instance, field by field."""
        for field in self.layout.program.headers[target.name].type.fields:
            self.assign(out, Field(target.name, field.name), Field(source.name, field.name))

    @writes("assign_header_stack", "assign_union_stack")
    def write_assign_header_stack(self, out: Writer, target: StackName, source: StackName) -> None:
        """Write a header stack assignment, element by element."""
        stacks = self.layout.program.stacks
        if stacks[target.name].unit != stacks[source.name].unit:
            raise self.expressions.unsupported(
                f"stacks {target.name} and {source.name} differ in their elements"
            )
        self.copy_headers(out, stacks[target.name].headers, stacks[source.name].headers)
        out.line(f"p->{self.layout.stack_next(target.name)} = p->{self.layout.stack_next(source.name)};")

    @writes("assign_union")
    def write_assign_union(self, out: Writer, target: UnionName, source: UnionName) -> None:
        """Write a header union assignment, member by member."""
        unions = self.layout.program.unions
        self.copy_headers(out, unions[target.name].headers, unions[source.name].headers)

    def copy_headers(self, out: Writer, targets: Sequence[str], sources: Sequence[str]) -> None:
        """Write header assignments, pair by pair."""
        if len(targets) != len(sources):
            raise self.expressions.unsupported("an assignment of stacks or unions of different sizes")
        for to, origin in zip(targets, sources, strict=True):
            self.expressions.check_alike(HeaderName(to), HeaderName(origin))
            out.line(f"copy_header(p, {self.layout.header_index(to)}, {self.layout.header_index(origin)});")

    @writes("assign_VL")
    def write_assign_vl(self, out: Writer, target: Expression, source: Expression) -> None:
        """Write an assignment of a varbit, including its length."""
        if not isinstance(target, Field) or not isinstance(source, Field):
            raise self.expressions.unsupported("assign_VL needs two fields")
        kinds = [self.layout.program.field_type(f) for f in (target, source)]
        if not all(k.varying for k in kinds) or kinds[0].width < kinds[1].width:
            raise self.expressions.unsupported("assign_VL needs two varbits of one width")
        for field in (target, source):
            self.layout.check_varbit(field.header, self.where)
        headers = f"{self.layout.header_index(target.header)}, {self.layout.header_index(source.header)}"
        out.line(f"copy_varbit(p, {headers});")

    def shift_stack(self, out: Writer, function: str, stack: StackName, by: Expression) -> None:
        """Write a push or pop."""
        whole = self.layout.program.stacks[stack.name]
        first = self.layout.header_index(whole.headers[0])
        amount = self.expressions.value(by).cast("uint32_t")
        used = f"&p->{self.layout.stack_next(stack.name)}"
        out.line(f"{function}(p, {first}, {whole.depth}, {whole.unit}, {used}, {amount});")

    @writes("push")
    def write_push(self, out: Writer, stack: StackName, by: Expression) -> None:
        """Write push_front(), which makes the new first elements invalid."""
        self.shift_stack(out, "stack_push", stack, by)

    @writes("pop")
    def write_pop(self, out: Writer, stack: StackName, by: Expression) -> None:
        """Write pop_front()."""
        self.shift_stack(out, "stack_pop", stack, by)

    # The packet's fate

    @writes("mark_to_drop", "drop")
    def write_mark_to_drop(self, out: Writer, metadata: HeaderName | None = None) -> None:
        """Write mark_to_drop() for standard_metadata or a copy: egress_spec = the drop port, mcast_grp = 0."""
        of = metadata.name if metadata is not None else "standard_metadata"
        spec, group = self.layout.standard("egress_spec", of), self.layout.standard("mcast_grp", of)
        if spec is None:
            raise self.expressions.unsupported(f"mark_to_drop needs {of}.egress_spec")
        self.store(out, spec, "s->base.drop_port")
        if group is not None:
            self.store(out, group, "0")

    @writes("truncate")
    def write_truncate(self, out: Writer, length: Expression) -> None:
        """Write truncate(), which limits the number of bytes that leave."""
        amount = self.temporary(out, "uint64_t", self.expressions.value(length).cast("uint64_t"))
        out.line(f"if ({amount} < p->truncate_to)")
        out.line(f"    p->truncate_to = (uint32_t){amount};")

    @writes("exit")
    def write_exit(self, out: Writer) -> None:
        """Write exit, which leaves the pipeline at the end of the action."""
        out.line("p->exit = true;")

    # State

    def index(self, out: Writer, expression: Expression) -> str:
        """Return C for an array index that is evaluated once."""
        if isinstance(expression, Constant):
            return self.expressions.value(expression).code
        return self.temporary(out, "uint64_t", self.expressions.value(expression).cast("uint64_t"))

    @writes("register_read")
    def write_register_read(
        self, out: Writer, target: Expression, register: Named, index: Expression
    ) -> None:
        """Write a register read. If the index is out of range, the target keeps its value."""
        array = self.state.register(register.name, self.where)
        at = self.index(out, index)
        with out.block(f"if ({at} < {array.size})"):
            cell = self.state.cell(register.name, at)
            if not isinstance(target, Field):
                raise self.expressions.unsupported("register_read into something that is not a field")
            field = self.layout.program.field_type(target)
            kind = unsigned_type(array.width)
            read = cell if array.width > WIDEST else f"({kind}){cell}"
            value = CValue(read, *unsigned_range(array.width), kind)
            self.store(out, target, self.expressions.assigned(value, field))
        self.trace_cell(out, at, array)

    @writes("register_write")
    def write_register_write(
        self, out: Writer, register: Named, index: Expression, source: Expression
    ) -> None:
        """Write a register write. If the index is out of range, nothing is written."""
        array = self.state.register(register.name, self.where)
        at = self.index(out, index)
        cut = self.expressions.masked(source, (1 << array.width) - 1).code
        out.line(f"if ({at} < {array.size})")
        out.line(f"    {self.state.cell(register.name, at)} = {cut};")
        self.trace_cell(out, at, array)

    @writes("count")
    def write_count(self, out: Writer, counter: Named, index: Expression) -> None:
        """Write a count. If the index is out of range, nothing is counted."""
        member = self.state.counter(counter.name, self.where)
        at = self.index(out, index)
        with out.block(f"if ({at} < {self.layout.program.counters[counter.name].size})"):
            out.line(f"count(&s->{member}[{at}], p->ingress_length);")
            if self.replayed:
                out.line(f"replay_counted(&s->replay, &s->{member}[{at}]);")
        out.trace(RecordKind.STATEMENT, self.number, at)

    @writes("execute_meter")
    def write_execute_meter(self, out: Writer, meter: Named, index: Expression, target: Expression) -> None:
        """Write a meter execution. If the index is out of range, nothing is metered and the target keeps its value."""
        member = self.state.meter(meter.name, self.where)
        array = self.layout.program.meters[meter.name]
        at = self.index(out, index)
        with out.block(f"if ({at} < {array.size})"):
            amount = "p->ingress_length" if array.by_bytes else "1"
            self.assign_number(
                out, target, f"meter_execute(&s->{member}[{at}], {amount}, p->ingress_length, p->now)"
            )
        out.trace(RecordKind.STATEMENT, self.number, at, *self.recorded(target))

    # After the pipeline

    @writes("clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress")
    def write_clone(self, out: Writer, session: Expression, fields: Constant) -> None:
        """Write a clone of either kind: as in simple_switch, the pipeline that it happens in determines which."""
        self.field_list(fields)
        number = self.temporary(out, "uint64_t", self.expressions.value(session).cast("uint64_t"))
        out.line(f"p->request.clone = SESSIONS | ((uint32_t){number} % SESSIONS);")
        out.line(f"p->request.clone_list = {fields.value};")

    @writes("resubmit")
    def write_resubmit(self, out: Writer, fields: Constant) -> None:
        """Write resubmit(): after ingress, the original packet enters the parser again."""
        self.field_list(fields)
        out.line(f"p->request.resubmit = {fields.value};")

    @writes("recirculate")
    def write_recirculate(self, out: Writer, fields: Constant) -> None:
        """Write recirculate(): after the deparser, the packet enters the parser again."""
        self.field_list(fields)
        out.line(f"p->request.recirculate = {fields.value};")

    def field_list(self, fields: Constant) -> None:
        """Check the number of a field list, where 0 means none."""
        if fields.value and fields.value not in self.layout.program.field_lists:
            raise self.expressions.unsupported(f"field list {fields.value} does not exist")

    @writes("generate_digest")
    def write_generate_digest(self, out: Writer, _receiver: Expression, digest: Constant) -> None:
        """Write digest(): after ingress, the fields are sent to the control plane."""
        if digest.value not in self.layout.program.digests:
            raise self.expressions.unsupported(f"digest {digest.value} does not exist")
        out.line(f"p->request.digest = {digest.value};")

    # Messages

    @writes("log_msg")
    def write_log_msg(self, out: Writer, text: Named, values: ExpressionList) -> None:
        """Write log_msg(). Each `{}` of the text shows a value in decimal."""
        pieces = text.name.split("{}")
        codes = [self.expressions.masked(v, (1 << 64) - 1).code for v in values.items]
        if len(pieces) != len(codes) + 1:
            raise self.expressions.unsupported(f"log_msg: {len(codes)} values for {text.name!r}")
        form = quoted("%llu".join(piece.replace("%", "%%") for piece in pieces) + "\n")
        arguments = "".join(f", (unsigned long long){code}" for code in codes)
        out.line("if (s->base.logs)")
        out.line(f"    fprintf(stderr, {form}{arguments});")

    @writes("assert", "assume")
    def write_assert(self, out: Writer, condition: Expression) -> None:
        """Write an assertion. If it fails, the packet is dropped at once and counted; BMv2 would end its process."""
        with out.block(f"if (!{self.expressions.condition(condition)})"):
            out.line("s->base.failures++;")
            out.line("p->failed = p->exit = true;")
            out.trace(RecordKind.FAILED, self.number)
            place = self.source or self.where
            out.line(f"fputs({quoted(f'assertion failed: {place}' + chr(10))}, stderr);")
            out.line(self.abandon)

    # Externs

    @writes("modify_field_rng_uniform")
    def write_modify_field_rng_uniform(
        self, out: Writer, target: Expression, low: Expression, high: Expression
    ) -> None:
        """Write random(), uniform in low..high. If low > high, nothing is written."""
        least = self.temporary(out, "uint64_t", self.expressions.value(low).cast("uint64_t"))
        most = self.temporary(out, "uint64_t", self.expressions.value(high).cast("uint64_t"))
        with out.block(f"if ({least} <= {most})"):
            self.assign_number(out, target, f"random_between(&s->base, {least}, {most})")

    @writes("modify_field_with_hash_based_offset")
    def write_modify_field_with_hash_based_offset(
        self, out: Writer, target: Expression, base: Expression, calculation: Named, size: Expression
    ) -> None:
        """Write hash(): base + calculation % size, where size 0 means 1."""
        result = self.temporary(out, "uint64_t", self.calculations.call(calculation.name, self.where))
        offset = self.expressions.value(base).cast("uint64_t")
        if isinstance(size, Constant) and size.value == 0:
            out.line(f"(void){result};")
            self.assign_number(out, target, offset)
            return
        modulus = self.temporary(out, "uint64_t", self.expressions.value(size).cast("uint64_t"))
        self.assign_number(out, target, f"({modulus} ? {result} % {modulus} : 0) + {offset}")

    def assign_number(self, out: Writer, target: Expression, code: str) -> None:
        """Write an assignment of C code of type uint64_t."""
        name = self.temporary(out, "uint64_t", code)
        self.assign(out, target, CValue(name, *unsigned_range(64), "uint64_t"))

    # Jumps

    @writes("jump")
    def write_jump(self, out: Writer, offset: Constant) -> None:
        """Write a jump to the primitive of that index."""
        self.check_jump(out, offset.value)
        out.line(f"goto L{offset.value};")

    @writes("jump_if_zero")
    def write_jump_if_zero(self, out: Writer, condition: Expression, offset: Constant) -> None:
        """Write a jump that is taken if the condition is 0 or false."""
        out.trace(RecordKind.STATEMENT, self.number, f"!!{self.expressions.condition(condition)}")
        with out.block(f"if (!({self.expressions.condition(condition)}))"):
            self.check_jump(out, offset.value)
            out.line(f"goto L{offset.value};")

    def check_jump(self, out: Writer, to: int) -> None:
        """Reject a jump to a missing index; limit backward jumps, so that packets in an endless loop are dropped."""
        if self.places is None:
            raise self.expressions.unsupported("a jump outside an action")
        if to not in self.places:
            raise self.expressions.unsupported(f"a jump to {to}, of {len(self.places) - 1} primitives")
        if to > self.place:
            return
        with out.block("if (++s->base.spent.jumps > MAX_JUMPS)"):
            out.line('report_drop(&s->base.drops.too_many_jumps, "its action jumps back too often");')
            out.line("p->failed = p->exit = true;")
            out.trace(RecordKind.LOOPING, self.number)
            out.line("return;")
