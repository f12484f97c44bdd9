"""The parser in C: a label for each state, and gotos between them."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter

from fanin.p4switch.bmv2json.expressions import Expression, Lookahead
from fanin.p4switch.bmv2json.program import (
    LONGEST_PACKET,
    Advance,
    ExtractHeader,
    ExtractNext,
    HeaderType,
    ParserCall,
    ParserOperation,
    ParserState,
    Set,
    Transition,
    Verify,
)
from fanin.p4switch.codegen.actions import ActionWriter, PrimitiveWriter
from fanin.p4switch.codegen.analysis.rolling import nodes
from fanin.p4switch.codegen.expressions import (
    WIDE,
    CValue,
    ExpressionWriter,
    c_words,
    constant_operand,
    operate,
    unsigned_range,
    unsigned_type,
)
from fanin.p4switch.codegen.keys import KeyLayout
from fanin.p4switch.codegen.layout import Layout, access
from fanin.p4switch.codegen.names import Names
from fanin.p4switch.codegen.tracing import RecordKind
from fanin.p4switch.codegen.writer import Writer


class ParserExpressions(ExpressionWriter):
    """Expressions that can look ahead in the packet."""

    def leaf(self, expression: object) -> CValue:
        """Return the value of a leaf. The caller has checked that a lookahead is within the packet."""
        if isinstance(expression, Lookahead):
            low, high = unsigned_range(expression.width)
            self.fitting(low, high)
            code = f"get{access(expression.width)}(at, {expression.offset}, {expression.width})"
            return CValue(code, low, high, unsigned_type(expression.width))
        return super().leaf(expression)  # type: ignore[arg-type]


class ParserWriter:
    """Writer of `parse`."""

    def __init__(self, layout: Layout, actions: ActionWriter, names: Names) -> None:
        self.layout = layout
        self.actions = actions
        self.names = names
        self.parser = layout.program.parser
        self.loops = _has_loop(self.parser.states.values())

    def label(self, state: str | None) -> str:
        """Return the label of a state; None is accept."""
        return "accept" if state is None else self.names.identifier("state_", state)

    def error(self, name: str) -> str:
        """Return the number of a core library error, or 0 if the program does not have it."""
        return str(self.layout.program.errors.get(name, 0))

    def write(self, out: Writer) -> None:
        """Write the function that parses a packet and returns its parser error."""
        with out.block("static uint32_t parse(struct state *s, struct packet *p)"):
            out.line("uint8_t *at = p->start;", "the parser's position")
            out.line(f"uint32_t error = {self.error('NoError')};")
            if self.loops:
                out.line("uint32_t states = 0;", "limits loops that extract nothing")
            out.line("(void)s;")
            out.trace(RecordKind.PARSE, 0)
            out.line(f"goto {self.label(self.parser.initial)};")
            out.line()
            for state in self.parser.states.values():
                self._write_state(out, state)
            if any(self._may_run_short(s) for s in self.parser.states.values()):
                out.label("too_short")
                out.line(f"error = {self.error('PacketTooShort')};")
            out.label("accept")
            out.line("p->payload = at;")
            out.trace(RecordKind.PARSED, "error")
            out.line("return error;")
        out.line()

    def _may_run_short(self, state: ParserState) -> bool:
        moves = any(isinstance(o, (ExtractHeader, ExtractNext, Advance)) for o in state.operations)
        return moves or bool(_lookaheads((state.key, state.operations)))

    def _write_state(self, out: Writer, state: ParserState) -> None:
        expressions = ParserExpressions(self.layout, f"parser state {state.name}")
        out.label(self.label(state.name))
        out.trace(RecordKind.STATE, self.actions.numbers.of(state))
        if self.loops:
            with out.block("if (++states > PARSER_STATES)"):
                out.line(f"error = {self.error('ParserTimeout')};")
                out.line("goto accept;")
        for operation in state.operations:
            self._write_operation(out, operation, expressions)
        self._write_transitions(out, state, expressions)
        out.line()

    def _need(self, out: Writer, count: str) -> None:
        out.line(f"if ((uint64_t)(p->end - at) < {count})")
        out.line("    goto too_short;")

    def _need_ahead(self, out: Writer, ahead: Lookahead, expressions: ParserExpressions) -> None:
        bits = ahead.offset + ahead.width
        if bits > 8 * LONGEST_PACKET:
            raise expressions.unsupported(
                f"a lookahead of {ahead.width} bits at {ahead.offset}, beyond the end of any packet"
            )
        self._need(out, str((bits + 7) // 8))

    def _write_operation(
        self, out: Writer, operation: ParserOperation, expressions: ParserExpressions
    ) -> None:
        for ahead in _lookaheads(operation):
            self._need_ahead(out, ahead, expressions)
        match operation:
            case ExtractHeader(name, length):
                header = self.layout.program.headers[name]
                if header.is_metadata:
                    raise expressions.unsupported(f"extraction into {name}, which is not a header")
                self._write_extract(out, header.type, self.layout.header_index(name), length, expressions)
            case ExtractNext(stack_name, member, length):
                stack = self.layout.program.stacks[stack_name]
                header_type = self.layout.program.headers[stack.headers[member]].type
                used = f"p->{self.layout.stack_next(stack_name)}"
                with out.block(f"if ({used} >= {stack.depth})"):
                    out.line(f"error = {self.error('StackOutOfBounds')};")
                    out.line("goto accept;")
                step = f" * {stack.unit}" if stack.unit > 1 else ""
                first = self.layout.header_index(stack.headers[member])
                self._write_extract(out, header_type, f"{first} + {used}{step}", length, expressions)
                out.line(f"{used}++;")
            case Set(target, value):
                primitives = self._primitives(expressions)
                primitives.number = self.actions.numbers.of(operation)
                primitives.touch_target(out, target)
                with out.block():
                    primitives.assign(out, target, value)
                primitives.trace(out, target)
            case Verify(condition, error):
                with out.block(f"if (!{expressions.condition(condition)})"):
                    out.line(f"error = {expressions.truncated(error, 32)};")
                    out.line("goto accept;")
            case Advance(bits):
                amount = expressions.value(bits)
                if amount.low == amount.high and amount.low % 8 == 0:
                    self._need(out, str(amount.low // 8))
                    out.line(f"at += {amount.low // 8};")
                    return
                with out.block():
                    out.line(f"const uint64_t bits = {amount.cast('uint64_t')};")
                    with out.block("if (bits % 8)"):
                        out.line(f"error = {self.error('ParserInvalidArgument')};")
                        out.line("goto accept;")
                    self._need(out, "bits / 8")
                    out.line("at += bits / 8;")
            case ParserCall(primitive):
                with out.block():
                    out.source(primitive.source)
                    self._primitives(expressions).primitive(out, primitive)

    def _write_extract(
        self,
        out: Writer,
        header_type: HeaderType,
        header: str,
        length: Expression | None,
        expressions: ParserExpressions,
    ) -> None:
        """Write the extraction of a header, with `length` bits of its varbit."""
        size = header_type.fixed_bytes
        if length is None:
            if header_type.varbit is not None:
                raise expressions.unsupported(f"extraction of {header_type.name} without its varbit's length")
            self._need(out, str(size))
            out.line(f"extract(p, {header}, at);")
            out.trace_line(f"trace_header(&s->base, p, TRACE_EXTRACT, {header});")
            out.line(f"at += {size};")
            return
        if header_type.varbit is None:
            raise expressions.unsupported(f"extract_VL of {header_type.name}, which has no varbit")
        with out.block():
            out.line(f"const uint64_t bits = {expressions.value(length).cast('uint64_t')};")
            with out.block("if (bits % 8)"):
                out.line(f"error = {self.error('ParserInvalidArgument')};")
                out.line("goto accept;")
            self._need(out, f"{size} + bits / 8")
            with out.block(f"if (bits > {header_type.varbit.width})"):
                out.line(f"error = {self.error('HeaderTooShort')};")
                out.line("goto accept;")
            out.line(f"p->varying[{header}] = (uint16_t)(bits / 8);")
            out.line(f"extract(p, {header}, at);")
            out.trace_line(f"trace_header(&s->base, p, TRACE_EXTRACT, {header});")
            out.line(f"at += {size} + bits / 8;")

    def _primitives(self, expressions: ParserExpressions) -> PrimitiveWriter:
        primitives = PrimitiveWriter(self.actions, expressions.where, ())
        primitives.expressions = expressions
        primitives.abandon = "goto accept;"
        return primitives

    def _write_transitions(self, out: Writer, state: ParserState, expressions: ParserExpressions) -> None:
        for ahead in _lookaheads(state.key):  # BMv2 looks ahead even where nothing is compared
            self._need_ahead(out, ahead, expressions)
        choices: list[Transition] = []
        default: str | None = None
        for transition in state.transitions:
            if transition.values is None and transition.value_set is None:
                default = transition.next_state
                break
            choices.append(transition)
        if not choices:
            out.line(f"goto {self.label(default)};")
            return
        compared = {
            number
            for choice in choices
            for number, width in enumerate(state.key_widths)
            if choice.value_set is not None or _compared(choice, number, width)
        }
        with out.block():
            for number, (key, width) in enumerate(zip(state.key, state.key_widths, strict=True)):
                kind = unsigned_type(width)
                value = expressions.value(key)
                code = expressions.masked(key, (1 << width) - 1).code if value.low < 0 else value.cast(kind)
                # A compiler warns about a variable without a use.
                write = out.line if number in compared else out.trace_line
                write(f"const {kind} key{number} = {code};")
            keys = [word for n, width in enumerate(state.key_widths) for word in c_words(f"key{n}", width)]
            out.trace(RecordKind.SELECT, self.actions.numbers.of(state), *keys)
            for choice in choices:
                if choice.value_set is not None:
                    self._write_value_set(out, choice.value_set, expressions.where)
                test = "known" if choice.value_set else self._matches(choice, state.key_widths)
                out.line(f"if ({test})")
                out.line(f"    goto {self.label(choice.next_state)};")
                if choice.value_set is not None:
                    out.line("}")
        out.line(f"goto {self.label(default)};")

    def _write_value_set(self, out: Writer, name: str, where: str) -> None:
        """Write a lookup in a value set. It opens a block in which `known` is the result."""
        index = self.actions.state.value_set_index(name, where)
        layout = KeyLayout(self.layout.program.value_sets[name].table)
        out.line("{")
        out.line(f"uint64_t key[{layout.words}] = {{0}};")
        for number, place in enumerate(layout.places):
            if place.width > 64:
                for word, code in enumerate(c_words(f"key{number}", place.width), place.word):
                    out.line(f"key[{word}] = {code};")
            else:
                out.line(f"key[{place.word}] |= (uint64_t)key{number} << {place.shift};")
        out.line(
            f"const bool known = table_find(&s->value_sets[{index}], key, {layout.words}, 0, 0) != NULL;"
        )

    def _matches(self, choice: Transition, widths: tuple[int, ...]) -> str:
        if choice.values is None or choice.masks is None:
            return "1"
        tests = []
        for number, (value, width) in enumerate(zip(choice.values, widths, strict=True)):
            full = (1 << width) - 1
            kept = _compared(choice, number, width)
            if not kept:
                continue
            kind, key = unsigned_type(width), f"key{number}"
            if kept != full:
                key = operate("&", key, constant_operand(kind, kept), kind)
            wanted = constant_operand(kind, value & kept)
            tests.append(operate("==", key, wanted, kind) if kind == WIDE else f"{key} == {wanted}")
        return " && ".join(tests) or "1"


def _compared(choice: Transition, number: int, width: int) -> int:
    """Return the bits of a key that a choice without a value set compares."""
    mask = None if choice.masks is None else choice.masks[number]
    full = (1 << width) - 1
    return full if mask is None else mask & full


def _lookaheads(node: object) -> list[Lookahead]:
    """Return every lookahead inside a node."""
    return [found for found in nodes(node) if isinstance(found, Lookahead)]


def _has_loop(states: Iterable[ParserState]) -> bool:
    """Return whether a state can be entered twice."""
    leads = {s.name: {t.next_state for t in s.transitions if t.next_state} for s in states}
    try:
        TopologicalSorter(leads).prepare()
    except CycleError:
        return True
    return False
