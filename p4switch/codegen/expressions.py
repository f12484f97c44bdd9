"""Expressions in C.

BMv2 computes with integers of any size and truncates on assignment. Here every expression has the range of its values,
and from that a native type in which nothing can overflow (`value`). Where only the low bits matter, because the result
is masked or assigned, arithmetic is modulo 2^32, 2^64 or 2^128 instead (`truncated`).
"""

from __future__ import annotations

from dataclasses import dataclass

from fanin.p4switch.bmv2json.expressions import (
    Binary,
    Boolean,
    Conditional,
    Constant,
    ElementField,
    Expression,
    Field,
    HeaderName,
    LastField,
    Lookahead,
    Parameter,
    RegisterValue,
    StackElement,
    StackName,
    Unary,
    UnionName,
)
from fanin.p4switch.bmv2json.program import FieldType, ProgramError
from fanin.p4switch.codegen.layout import WIDEST, Layout, access, machine_width, storage_type, wide_words
from fanin.p4switch.word_packing import to_words, word_count

TYPES = {  # in order of preference, with their ranges
    "int32_t": (-(1 << 31), (1 << 31) - 1),
    "uint32_t": (0, (1 << 32) - 1),
    "int64_t": (-(1 << 63), (1 << 63) - 1),
    "uint64_t": (0, (1 << 64) - 1),
    "int128_t": (-(1 << 127), (1 << 127) - 1),
    "uint128_t": (0, (1 << 128) - 1),
}
WIDE = "wide_t"
WIDE_OPERATORS = {  # functions of wide.h; {0}, {1}: the operands
    "+": "wide_add({0}, {1})",
    "-": "wide_subtract({0}, {1})",
    "*": "wide_multiply({0}, {1})",
    "&": "wide_and({0}, {1})",
    "|": "wide_or({0}, {1})",
    "^": "wide_xor({0}, {1})",
    "==": "wide_equal({0}, {1})",
    "!=": "(!wide_equal({0}, {1}))",
    "<": "wide_less({0}, {1})",
    "<=": "(!wide_less({1}, {0}))",
    ">": "wide_less({1}, {0})",
    ">=": "(!wide_less({0}, {1}))",
}
ARITHMETIC = {"+", "-", "*"}
BITWISE = {"&", "|", "^"}
MAX_SHIFT = 255  # bits: amounts have at most 8
COMPARISON = {"==", "!=", "<", "<=", ">", ">="}
SATURATING = {"+": "add_saturating_i32", "-": "subtract_saturating_i32"}
MAX_EXPRESSION = 1 << 20  # characters of C


@dataclass(frozen=True, slots=True)
class CValue:
    """C expression of type `type` whose value lies in `low`..`high`.

    Raises:
        ProgramError: If it is too long.
    """

    code: str
    low: int
    high: int
    type: str

    def __post_init__(self) -> None:
        if len(self.code) > MAX_EXPRESSION:
            raise ProgramError("an expression is too long: split it with variables")

    def cast(self, to: str) -> str:
        """Return the expression converted to another type."""
        if self.type == to:
            return self.code
        if to == WIDE:
            return f"wide_of_{'unsigned' if self.type.startswith('u') else 'signed'}({self.code})"
        return f"({to}){f'wide_low({self.code})' if self.type == WIDE else self.code}"

    @property
    def distance(self) -> str:
        """Return the expression as the right operand of C's shifts."""
        return self.cast("uint64_t") if self.type == WIDE else self.code

    @property
    def is_nonzero(self) -> str:
        """Return a C condition that the value is not 0."""
        return operate("!=", self.code, constant_operand(self.type, 0), self.type)


Operand = Expression | CValue  # a CValue is C that is already written


def type_for(low: int, high: int) -> str:
    """Return the first type that holds the range."""
    return next((t for t, (least, most) in TYPES.items() if least <= low and high <= most), WIDE)


def unsigned_type(width: int) -> str:
    """Return the type for arithmetic modulo at least 2^width."""
    return storage_type(max(32, width))


def operate(op: str, left: str, right: str, kind: str) -> str:
    """Return C for an operator between two operands of one type."""
    return WIDE_OPERATORS[op].format(left, right) if kind == WIDE else f"({left} {op} {right})"


def unsigned_range(width: int) -> tuple[int, int]:
    """Return the range of bit<width>."""
    return 0, (1 << width) - 1


def range_of(field: FieldType) -> tuple[int, int]:
    """Return the range of a field."""
    if field.signed and field.width:
        return -(1 << (field.width - 1)), (1 << (field.width - 1)) - 1
    return unsigned_range(field.width)


def literal(value: int) -> str:
    """Return an integer constant in C, signed if its type (`type_for`) is: an unsigned one would make sums unsigned."""
    if TYPES["int32_t"][0] < value <= TYPES["int32_t"][1]:
        return str(value)
    if value < 0:
        if value >= -(1 << 63):
            return f"(-{-value - 1}ll - 1)"
        return f"(-(int128_t){literal(-value - 1)} - 1)"
    if value < 1 << 64:
        return f"0x{value:x}{'u' if value < 1 << 32 else 'll' if value < 1 << 63 else 'ull'}"
    whole = f"U128(0x{value >> 64:x}ull, 0x{value & (1 << 64) - 1:x}ull)"
    return f"(int128_t){whole}" if value < 1 << 127 else whole


def literal_of(kind: str, value: int) -> str:
    """Return an integer constant of the given type. A negative wide_t has all its words set."""
    if kind != WIDE:
        return f"({kind}){literal(value)}"
    if value < 0:
        return f"wide_not({literal_of(kind, -value - 1)})"
    words = reversed(to_words(value, value.bit_length()))
    return f"(wide_t){{{{{', '.join(f'{word:#x}ull' for word in words)}}}}}"


def constant_operand(kind: str, value: int) -> str:
    """Return an integer constant to be the operand next to one of the given type."""
    return literal_of(kind, value) if kind == WIDE else literal(value)


def constant(value: int) -> CValue:
    """Return a literal as a typed value."""
    kind = type_for(value, value)
    return CValue(literal_of(kind, value) if kind == WIDE else literal(value), value, value, kind)


def c_words(code: str, width: int) -> list[str]:
    """Return C for the words of an unsigned number (words.py). `code` is evaluated for each word."""
    if width > WIDEST:
        return [f"({code}).word[{n}]" for n in reversed(range(word_count(width)))]
    return [f"(uint64_t)({code} >> 64)", f"(uint64_t){code}"] if width > 64 else [f"(uint64_t){code}"]


def value_of_words(words: list[str], width: int) -> str:
    """Return C of the type `unsigned_type(width)` for the number in these words."""
    if width > WIDEST:
        return f"{{{{{', '.join(reversed(words))}}}}}"
    return f"U128({words[0]}, {words[1]})" if width > 64 else f"({unsigned_type(width)}){words[0]}"


class ExpressionWriter:
    """Translator of expressions to C, inside one function.

    `where` names the element in errors; `parameters` are the C names and widths of the enclosing action's parameters.
    What the switch does not support is raised as ProgramError.
    """

    def __init__(self, layout: Layout, where: str, parameters: tuple[tuple[str, int], ...] = ()) -> None:
        self.layout = layout
        self.where = where
        self.parameters = parameters
        self.locals: dict[Field, str] = {}  # metadata that are variables of the function

    def unsupported(self, what: str) -> ProgramError:
        """Return an error that names the element."""
        return ProgramError(f"{self.where}: {what}")

    # Leaves

    def field_type(self, reference: Field) -> FieldType:
        """Return the type of a field."""
        return self.layout.program.field_type(reference)

    def field(self, reference: Field) -> CValue:
        """Return a field's value."""
        kind = self.field_type(reference)
        if kind.varying:
            raise self.unsupported(f"{reference.header}.{reference.name}: arithmetic on a varbit")
        if kind.width == 0:
            return constant(0)
        low, high = range_of(kind)
        if self.layout.is_metadata(reference):
            signed = kind.signed or kind.width <= 16  # C promotes 8 and 16 bits to int
            place = self.locals.get(reference) or self.layout.metadata_member(reference)
            return CValue(place, low, high, storage_type(max(32, kind.width), signed=signed))
        header_type = self.layout.program.headers[reference.header].type
        return self.bits(self.layout.header_index(reference.header), header_type.name, kind)

    def bits(self, index: str, header_type: str, kind: FieldType) -> CValue:
        """Return the value of a field of the header with that number."""
        if kind.width == 0:
            return constant(0)
        macro = self.layout.field_macro(self.layout.program.header_types[header_type], kind)
        low, high = range_of(kind)
        code = f"get{access(kind.width)}({self.layout.field_base(index, kind)}, {macro})"
        if kind.signed:
            code = f"sign{access(kind.width)}({code}, {kind.width})"
        return CValue(code, low, high, storage_type(max(32, kind.width), signed=kind.signed))

    def register(self, expression: RegisterValue) -> CValue:
        """Return the value of a register cell. Only subclasses that can reach registers support it."""
        raise self.unsupported(f"register {expression.register} in an expression")

    def element_index(self, element: StackElement) -> str:
        """Return C for the number of a stack's element, where an index out of range selects the last one."""
        stack = self.layout.program.stacks[element.stack]
        last = stack.depth - 1
        index = self.value(element.index)
        first = self.layout.header_index(stack.headers[element.member])
        step = f" * {stack.unit}" if stack.unit > 1 else ""
        if index.low == index.high and 0 <= index.low <= last:
            return f"{first} + {index.code}{step}"
        return f"{first} + at_most({index.cast('uint64_t')}, {last}){step}"

    def header_number(self, expression: Expression) -> str:
        """Return C for the number of the header that an expression refers to."""
        match expression:
            case HeaderName(name) if not self.layout.program.headers[name].is_metadata:
                return self.layout.header_index(name)
            case StackElement():
                return f"({self.element_index(expression)})"
            case Conditional(condition, then, otherwise):
                choice = f"{self.header_number(then)} : {self.header_number(otherwise)}"
                return f"({self.condition(condition)} ? {choice})"
        raise self.unsupported(f"a header is needed, not {expression}")

    def check_alike(self, *expressions: Expression) -> None:
        """Check that headers have the same layout: otherwise one would be read or written beyond its end."""
        names = [name for expression in expressions for name in self._headers(expression)]
        for name in names[1:]:
            first, other = (self.layout.program.headers[n].type for n in (names[0], name))
            if first.shape != other.shape:
                raise self.unsupported(f"headers {names[0]} and {name} differ in their fields")

    def _headers(self, expression: Expression) -> list[str]:
        """Return the headers that an expression may refer to. A stack is represented by its first element."""
        match expression:
            case HeaderName(name):
                return [name]
            case StackElement(stack, _, member):
                return [self.layout.program.stacks[stack].headers[member]]
            case Conditional(_, then, otherwise):
                return self._headers(then) + self._headers(otherwise)
        return []

    def leaf(self, expression: Operand) -> CValue:
        """Return the value of an expression without an operator."""
        match expression:
            case CValue():
                return expression
            case Field():
                return self.field(expression)
            case Constant(value):
                self.fitting(value, value)
                return constant(value)
            case Parameter(index):
                if index >= len(self.parameters):
                    raise self.unsupported(f"parameter {index} does not exist")
                name, width = self.parameters[index]
                return CValue(name, *unsigned_range(width), unsigned_type(width))
            case RegisterValue():
                return self.register(expression)
            case ElementField(element, offset):
                stack = self.layout.program.stacks[element.stack]
                header_type = self.layout.program.headers[stack.headers[element.member]].type
                return self.bits(self.element_index(element), header_type.name, header_type.fields[offset])
            case LastField(stack_name, name, member):
                stack = self.layout.program.stacks[stack_name]
                header_type = self.layout.program.headers[stack.headers[member]].type
                kind = header_type.field(name)
                if kind is None:
                    raise self.unsupported(f"field {name} of stack {stack_name} does not exist")
                used = f"p->{self.layout.stack_next(stack_name)}"
                first = self.layout.header_index(stack.headers[member])
                step = f" * {stack.unit}" if stack.unit > 1 else ""
                return self.bits(f"{first} + ({used} ? {used} - 1 : 0){step}", header_type.name, kind)
            case Lookahead():
                raise self.unsupported("lookahead outside a parser")
        raise self.unsupported(f"{type(expression).__name__} where a number is needed")

    # Numbers, exactly

    def value(self, expression: Operand) -> CValue:
        """Return the expression's exact value."""
        match expression:
            case Binary("two_comp_mod", operand, Constant(width)):
                return self.signed_wrap(operand, width)
            case Binary("sat_cast" | "usat_cast" as op, operand, Constant(width)):
                return self.saturate(operand, width, signed=op == "sat_cast")
            case Binary(op, left, right) if op in ARITHMETIC:
                return self.arithmetic(op, self.value(left), self.value(right))
            case Binary(op, left, right) if op in BITWISE:
                return self.bitwise(op, left, right)
            case Binary("<<" | ">>" as op, left, right):
                return self.shift(op, self.value(left), self.value(right))
            case Binary("/" | "%" as op, left, right):
                return self.divide(op, self.value(left), self.value(right))
            case Unary("-", operand):
                return self.arithmetic("-", constant(0), self.value(operand))
            case Unary("~", operand):
                inner = self.value(operand)
                kind = self.fitting(min(inner.low, -inner.high - 1), max(inner.high, -inner.low - 1))
                code = f"wide_not({inner.cast(kind)})" if kind == WIDE else f"(~{inner.cast(kind)})"
                return CValue(code, -inner.high - 1, -inner.low - 1, kind)
            case Unary("b2d", operand):
                return CValue(f"({self.condition(operand)})", 0, 1, "int32_t")
            case Unary("last_stack_index", StackName(stack)):
                size = self.layout.program.stacks[stack].depth
                return CValue(f"((int32_t)p->{self.layout.stack_next(stack)} - 1)", -1, size - 1, "int32_t")
            case Unary("size_stack", StackName(stack)):
                size = self.layout.program.stacks[stack].depth
                return CValue(f"p->{self.layout.stack_next(stack)}", 0, size, "uint32_t")
            case Conditional(condition, then, otherwise):
                first, second = self.value(then), self.value(otherwise)
                low, high = min(first.low, second.low), max(first.high, second.high)
                kind = self.fitting(low, high)
                code = f"({self.condition(condition)} ? {first.cast(kind)} : {second.cast(kind)})"
                return CValue(code, low, high, kind)
            case Unary() | Binary() | Boolean():
                raise self.unsupported(
                    f"operator {getattr(expression, 'op', 'bool')} where a number is needed"
                )
        return self.leaf(expression)

    def fitting(self, low: int, high: int) -> str:
        """Return a type for the range.

        Raises:
            ProgramError: If there is none.
        """
        kind = type_for(low, high)
        if kind == WIDE:
            bits = 64 * wide_words(self.layout.program)
            if max(-low - 1, high).bit_length() >= bits:
                raise self.unsupported(f"an intermediate result needs more than {bits} bits")
        return kind

    def arithmetic(self, op: str, a: CValue, b: CValue) -> CValue:
        """Return a sum, difference or product; exact."""
        if op == "+":
            low, high = a.low + b.low, a.high + b.high
        elif op == "-":
            low, high = a.low - b.high, a.high - b.low
        else:
            corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
            low, high = min(corners), max(corners)
        kind = self.fitting(min(low, a.low, b.low), max(high, a.high, b.high))
        return CValue(operate(op, a.cast(kind), b.cast(kind), kind), low, high, kind)

    def bitwise(self, op: str, left: Expression, right: Expression) -> CValue:
        """Return `and`, `or` or `exclusive or` of integers in two's complement of any size."""
        if op == "&" and isinstance(left, Constant):
            left, right = right, left
        if op == "&" and isinstance(right, Constant) and right.value >= 0:
            return self.masked(left, right.value)
        a, b = self.value(left), self.value(right)
        if op == "&" and (a.low >= 0 or b.low >= 0):
            low, high = 0, min(v.high for v in (a, b) if v.low >= 0)
        else:
            bits = max(abs(n).bit_length() for v in (a, b) for n in (v.low, v.high))
            low = 0 if a.low >= 0 and b.low >= 0 else -(1 << bits)
            high = (1 << bits) - 1
        kind = self.fitting(min(low, a.low, b.low), max(high, a.high, b.high))
        return CValue(operate(op, a.cast(kind), b.cast(kind), kind), low, high, kind)

    def masked(self, operand: Operand, mask: int) -> CValue:
        """Return operand & mask, computed from the operand's low bits only."""
        width = max(1, mask.bit_length())
        self.fitting(0, mask)
        kind = unsigned_type(width)
        bits = self.truncated(operand, width)
        if kind == WIDE:
            whole = mask == (1 << width) - 1
            code = f"wide_cut({bits}, {width})" if whole else operate("&", bits, literal_of(WIDE, mask), WIDE)
            return CValue(code, 0, mask, WIDE)
        if mask in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF):
            return CValue(bits, 0, mask, kind)
        return CValue(f"({bits} & {literal(mask)})", 0, mask, kind)

    def shift(self, op: str, a: CValue, n: CValue) -> CValue:
        """Return a shift. The distance must not be negative."""
        if n.low < 0:
            raise self.unsupported("a shift by a distance that may be negative")
        if op == "<<":
            if n.high > MAX_SHIFT:
                raise self.unsupported(f"a shift left by up to {n.high} bits whose result is not cut off")
            low, high = min(a.low, a.low << n.high), max(a.high, a.high << n.high)
            kind = self.fitting(low, high)
            if kind == WIDE:
                code = f"wide_shift_left({a.cast(WIDE)}, {n.cast('uint64_t')})"
                return CValue(code, low, high, WIDE)
            return CValue(f"({a.cast(kind)} << {n.distance})", low, high, kind)
        low, high = min(a.low >> n.low, a.low >> n.high), max(a.high >> n.low, a.high >> n.high)
        if a.type == WIDE:
            return CValue(f"wide_shift_right({a.code}, {n.cast('uint64_t')})", low, high, WIDE)
        bits = int("".join(c for c in a.type if c.isdigit()))
        if n.high < bits:
            return CValue(f"({a.code} >> {n.distance})", low, high, a.type)
        sign = "u" if a.type.startswith("u") else "i"
        return CValue(f"shr_{sign}{bits}({a.code}, {n.cast('uint64_t')})", low, high, a.type)

    def divide(self, op: str, a: CValue, b: CValue) -> CValue:
        """Return a quotient or remainder of numbers that are not negative."""
        if a.low < 0 or b.low < 0:
            raise self.unsupported(f"operator {op} on numbers that may be negative")
        if b.high == 0:
            return constant(0)
        kind = self.fitting(0, max(a.high, b.high))
        name = f"{'divide' if op == '/' else 'modulo'}_{kind}"
        high = a.high if op == "/" else min(a.high, max(b.high - 1, 0))
        return CValue(f"{name}({a.cast(kind)}, {b.cast(kind)})", 0, high, kind)

    def signed_wrap(self, operand: Operand, width: int) -> CValue:
        """Return the operand's low bits as a signed number."""
        low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
        self.fitting(low, high)
        bits = self.truncated(operand, width)
        kind = storage_type(max(32, width), signed=True)
        if width in (8, 16, 32, 64):
            return CValue(f"(int{width}_t){bits}", low, high, kind)
        return CValue(f"sign{access(width)}({bits}, {width})", low, high, kind)

    def saturate(self, operand: Expression, width: int, *, signed: bool) -> CValue:
        """Return the operand limited to the range of int<width> or bit<width>."""
        low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else unsigned_range(width)
        if signed and width == 32 and isinstance(operand, Binary) and operand.op in SATURATING:
            a, b = self.value(operand.left), self.value(operand.right)
            if min(a.low, b.low) >= low and max(a.high, b.high) <= high:
                return CValue(f"{SATURATING[operand.op]}({a.code}, {b.code})", low, high, "int32_t")
            inner = self.arithmetic(operand.op, a, b)
        else:
            inner = self.value(operand)
        if inner.low >= low and inner.high <= high:
            return inner
        kind = self.fitting(min(inner.low, low), max(inner.high, high))
        limits = f"{literal_of(kind, low)}, {literal_of(kind, high)}"
        return CValue(f"clamp_{kind}({inner.cast(kind)}, {limits})", low, high, kind)

    # Numbers, low bits only

    def truncated(self, expression: Operand, width: int) -> str:
        """Return C of type `unsigned_type(width)` that is right in its low `width` bits; higher bits are undefined."""
        kind = unsigned_type(width)
        match expression:
            case Binary(op, left, right) if op in ARITHMETIC | BITWISE:
                if op == "&":
                    for operand, other in ((left, right), (right, left)):
                        if isinstance(other, Constant) and ~other.value & ((1 << width) - 1) == 0:
                            return self.truncated(operand, width)
                return operate(op, self.truncated(left, width), self.truncated(right, width), kind)
            case Binary("<<", left, right):
                distance = self.value(right)
                if distance.low < 0:
                    raise self.unsupported("a shift by a distance that may be negative")
                if kind == WIDE:
                    return f"wide_shift_left({self.truncated(left, width)}, {distance.cast('uint64_t')})"
                bits = max(32, machine_width(width))
                if distance.high < bits:
                    return f"({self.truncated(left, width)} << {distance.distance})"
                return f"shl{bits}({self.truncated(left, width)}, {distance.cast('uint64_t')})"
            case Binary("two_comp_mod", operand, Constant(modulus)) if modulus >= width:
                return self.truncated(operand, width)
            case Unary("~", operand):
                inner = self.truncated(operand, width)
                return f"wide_not({inner})" if kind == WIDE else f"(~{inner})"
            case Unary("-", operand):
                return operate("-", constant(0).cast(kind), self.truncated(operand, width), kind)
            case Conditional(condition, then, otherwise):
                return (
                    f"({self.condition(condition)} ? {self.truncated(then, width)}"
                    f" : {self.truncated(otherwise, width)})"
                )
            case Constant(value):
                return literal_of(kind, value & ((1 << width) - 1))
        return self.value(expression).cast(kind)

    def assigned(self, expression: Operand, kind: FieldType) -> str:
        """Return C of the machine type for a field of that type, holding the expression truncated to it."""
        if not kind.width:
            return "0"
        low, high = range_of(kind)
        if kind.signed:
            wrapped = self.signed_wrap(expression, kind.width)
            return wrapped.code
        if kind.width in (8, 16, 32, 64, 128):
            return self.truncated(expression, kind.width)
        if isinstance(expression, (CValue, Field, Constant, Parameter, Unary)):
            value = self.value(expression)
            if low <= value.low and value.high <= high:
                return value.cast(unsigned_type(kind.width))
        return self.masked(expression, high).code

    # Conditions

    def condition(self, expression: Expression) -> str:
        """Return a boolean expression as a C condition."""
        match expression:
            case Boolean(value):
                return "1" if value else "0"
            case Unary("not", operand):
                return f"!{self.condition(operand)}"
            case Unary("valid", HeaderName(name)):
                return self.layout.is_valid(name)
            case Unary("valid", StackElement(stack_name, index, member)):
                stack = self.layout.program.stacks[stack_name]
                first = self.layout.header_index(stack.headers[member])
                number = self.value(index).cast("uint64_t")
                return f"valid_element(p, {first}, {number}, {stack.depth}, {stack.unit})"
            case Unary("valid_union", UnionName(name)):
                members = self.layout.program.unions[name].headers
                return f"({' || '.join(self.layout.is_valid(m) for m in members)})"
            case Unary("d2b", operand):
                return self.value(operand).is_nonzero
            case Binary("and" | "or" as op, left, right):
                return f"({self.condition(left)} {'&&' if op == 'and' else '||'} {self.condition(right)})"
            case Binary("==" | "!=" as op, left, right) if (same := self._same(left, right)) is not None:
                return same if op == "==" else f"!{same}"
            case Binary("==" | "!=" as op, left, right) if self.is_boolean(left):
                return f"(!!{self.condition(left)} {op} !!{self.condition(right)})"
            case Binary(op, left, right) if op in COMPARISON:
                a, b = self.value(left), self.value(right)
                kind = self.fitting(min(a.low, b.low), max(a.high, b.high))
                return operate(op, a.cast(kind), b.cast(kind), kind)
            case Conditional(condition, then, otherwise):
                return f"({self.condition(condition)} ? {self.condition(then)} : {self.condition(otherwise)})"
        return self.value(expression).is_nonzero

    def _same(self, left: Expression, right: Expression) -> str | None:
        """Return a C condition that two headers, header unions or varbits are equal; None for other operands."""
        match left, right:
            case ((HeaderName() | StackElement()), _):
                stacks = self.layout.program.stacks
                name = left.name if isinstance(left, HeaderName) else stacks[left.stack].headers[0]
                self.layout.check_varbit(name, self.where)
                self.check_alike(left, right)
                return f"same_header(p, {self.header_number(left)}, {self.header_number(right)})"
            case UnionName(union), UnionName(other):
                unions = self.layout.program.unions
                pairs = list(zip(unions[union].headers, unions[other].headers, strict=True))
                for header, its in pairs:
                    self.layout.check_varbit(header, self.where)
                    self.check_alike(HeaderName(header), HeaderName(its))
                same = " || ".join(
                    f"same_header(p, {self.layout.header_index(a)}, {self.layout.header_index(b)})"
                    for a, b in pairs
                )
                return f"({same})"
            case Field(), Field() if self.field_type(left).varying:
                if not self.field_type(right).varying:
                    raise self.unsupported("a comparison of a varbit with a number")
                for field in (left, right):
                    self.layout.check_varbit(field.header, self.where)
                headers = f"{self.layout.header_index(left.header)}, {self.layout.header_index(right.header)}"
                return f"same_varbit(p, {headers})"
        return None

    def is_boolean(self, expression: Expression) -> bool:
        """Return whether the expression is a boolean, not a number."""
        match expression:
            case Boolean() | Unary("not" | "valid" | "d2b"):
                return True
            case Binary(op):
                return op in COMPARISON | {"and", "or"}
            case Conditional(_, then, _):
                return self.is_boolean(then)
        return False
