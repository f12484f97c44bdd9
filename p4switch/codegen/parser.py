"""The parser: a label for each state, gotos between them."""

from __future__ import annotations

from p4switch.codegen.actions import ActionWriter, PrimitiveWriter
from p4switch.codegen.expressions import ExpressionWriter, Value, literal, unsigned_range, unsigned_type
from p4switch.codegen.layout import WIDEST, Layout, machine_width
from p4switch.codegen.names import Names
from p4switch.codegen.writer import Writer
from p4switch.program import (
    Advance,
    Extract,
    ExtractNext,
    Lookahead,
    ParserCall,
    ParserOperation,
    ParserState,
    ProgramError,
    Set,
    Transition,
    Verify,
)


class ParserExpressions(ExpressionWriter):
    """Expressions that may look ahead in the packet."""

    def leaf(self, expression: object) -> Value:
        """Lookahead reads behind the parser's position; the caller has checked that it is there."""
        if isinstance(expression, Lookahead):
            if expression.width > WIDEST:
                raise self.unsupported(f"a lookahead of over {WIDEST} bits")
            machine = max(32, machine_width(expression.width))
            code = f"get{machine}(at, {expression.offset}, {expression.width})"
            return Value(code, *unsigned_range(expression.width), f"uint{machine}_t")
        return super().leaf(expression)  # type: ignore[arg-type]


class ParserWriter:
    """Writes `parse`."""

    def __init__(self, layout: Layout, actions: ActionWriter, names: Names) -> None:
        self.layout = layout
        self.actions = actions
        self.names = names
        self.parser = layout.program.parser

    def label(self, state: str | None) -> str:
        """The label of a state; None is accept."""
        return "accept" if state is None else self.names.identifier("state_", state)

    def error(self, name: str) -> str:
        """The number of a core library error, 0 where the program does not have it."""
        return str(self.layout.program.errors.get(name, 0))

    def write(self, out: Writer) -> None:
        """The function that parses a packet and returns its parser error."""
        with out.block("static uint32_t parse(struct state *s, struct packet *p)"):
            out.line("uint8_t *at = p->start; /* the parser's position */")
            out.line(f"uint32_t error = {self.error('NoError')};")
            if self._has_loop():
                out.line("uint32_t states = 0; /* a loop that extracts nothing has to end, too */")
            out.line("(void)s;")
            out.line(f"goto {self.label(self.parser.initial)};")
            out.line()
            for state in self.parser.states.values():
                self._write_state(out, state)
            if any(self._may_run_short(s) for s in self.parser.states.values()):
                out.label("too_short")
                out.line(f"error = {self.error('PacketTooShort')};")
            out.label("accept")
            out.line("p->payload = at;")
            out.line("return error;")
        out.line()

    def _has_loop(self) -> bool:
        """Whether a state can be entered twice."""
        reached: dict[str, set[str]] = {
            s.name: {t.next_state for t in s.transitions if t.next_state} for s in self.parser.states.values()
        }
        for _ in reached:
            for targets in reached.values():
                targets |= {further for t in list(targets) for further in reached[t]}
        return any(name in targets for name, targets in reached.items())

    def _may_run_short(self, state: ParserState) -> bool:
        lookahead = any(isinstance(k, Lookahead) for k in state.key)
        return lookahead or any(
            isinstance(o, (Extract, ExtractNext, Advance)) or (isinstance(o, Set) and _lookaheads(o.value))
            for o in state.operations
        )

    def _write_state(self, out: Writer, state: ParserState) -> None:
        expressions = ParserExpressions(self.layout, f"parser state {state.name}")
        out.label(self.label(state.name))
        if self._has_loop():
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

    def _write_operation(
        self, out: Writer, operation: ParserOperation, expressions: ParserExpressions
    ) -> None:
        match operation:
            case Extract(name):
                header = self.layout.program.headers[name]
                size = header.type.width // 8
                if header.is_metadata:
                    raise expressions.unsupported(f"extraction into {name}, which is no header")
                self._need(out, str(size))
                out.line(f"extract(p, {self.layout.header_index(name)}, at);")
                out.line(f"at += {size};")
            case ExtractNext(stack_name):
                stack = self.layout.program.stacks[stack_name]
                size = self.layout.program.headers[stack.headers[0]].type.width // 8
                used = f"p->{self.layout.stack_next(stack_name)}"
                with out.block(f"if ({used} >= {len(stack.headers)})"):
                    out.line(f"error = {self.error('StackOutOfBounds')};")
                    out.line("goto accept;")
                self._need(out, str(size))
                out.line(f"extract(p, {self.layout.header_index(stack.headers[0])} + {used}++, at);")
                out.line(f"at += {size};")
            case Set(target, value):
                for ahead in _lookaheads(value):
                    self._need(out, str((ahead.offset + ahead.width + 7) // 8))
                primitives = self._primitives(expressions)
                with out.block():
                    primitives.assign(out, target, value)
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

    def _primitives(self, expressions: ParserExpressions) -> PrimitiveWriter:
        primitives = PrimitiveWriter(self.actions, expressions.where, ())
        primitives.expressions = expressions
        return primitives

    def _write_transitions(self, out: Writer, state: ParserState, expressions: ParserExpressions) -> None:
        for key in state.key:
            if isinstance(key, Lookahead):
                self._need(out, str((key.offset + key.width + 7) // 8))
        choices: list[Transition] = []
        default: str | None = None
        for transition in state.transitions:
            if transition.values is None:
                default = transition.next_state
                break
            choices.append(transition)
        if not choices:
            out.line(f"goto {self.label(default)};")
            return
        with out.block():
            for number, (key, width) in enumerate(zip(state.key, state.key_widths, strict=True)):
                if width > WIDEST:
                    raise ProgramError(f"{expressions.where}: a transition key of over {WIDEST} bits")
                kind = unsigned_type(width)
                value = expressions.value(key)
                code = expressions.masked(key, (1 << width) - 1).code if value.low < 0 else value.cast(kind)
                out.line(f"const {kind} key{number} = {code};")
            for choice in choices:
                out.line(f"if ({self._matches(choice, state.key_widths)})")
                out.line(f"    goto {self.label(choice.next_state)};")
        out.line(f"goto {self.label(default)};")

    def _matches(self, choice: Transition, widths: tuple[int, ...]) -> str:
        if choice.values is None or choice.masks is None:
            return "1"
        tests = []
        for number, (value, mask, width) in enumerate(zip(choice.values, choice.masks, widths, strict=True)):
            full = (1 << width) - 1
            if mask is None or mask & full == full:
                tests.append(f"key{number} == {literal(value & full)}")
            elif mask & full:
                tests.append(f"(key{number} & {literal(mask & full)}) == {literal(value & mask & full)}")
        return " && ".join(tests) or "1"


def _lookaheads(expression: object) -> list[Lookahead]:
    """Every lookahead inside an expression."""
    if isinstance(expression, Lookahead):
        return [expression]
    found: list[Lookahead] = []
    for slot in getattr(expression, "__slots__", ()):
        found += _lookaheads(getattr(expression, slot))
    return found
