"""Hashes and checksums: the input is assembled in network byte order, then given to the algorithm (hash.h)."""

from __future__ import annotations

from collections.abc import Sequence

from fanin.p4switch.bmv2json.expressions import Constant, Field, HeaderName
from fanin.p4switch.bmv2json.program import Calculation, CalculationInput, ProgramError
from fanin.p4switch.codegen.expressions import ExpressionWriter, literal
from fanin.p4switch.codegen.layout import Layout, access
from fanin.p4switch.codegen.names import Names
from fanin.p4switch.codegen.writer import Writer

ALGORITHMS = {
    "csum16": "hash_csum16",
    "cksum16": "hash_csum16",
    "crc16": "hash_crc16",
    "crc16_custom": "hash_crc16_custom",
    "crc32": "hash_crc32",
    "crc32_custom": "hash_crc32_custom",
    "crcCCITT": "hash_crcCCITT",
    "crc8_custom": "hash_crc8",
    "crc64_custom": "hash_crc64",
    "xxh64": "hash_xxh64",
    "bmv2_hash": "hash_xxh64",
    "hash_ex": "hash_ex",
    "identity": "hash_identity",
    "xor16": "hash_xor16",
    "xor32": "hash_xor32",
    "toeplitz": "hash_toeplitz",
    "round_robin": "hash_round_robin",
    "round_robin_consistent": "hash_round_robin_consistent",
}


def append_function(width: int) -> str:
    """Return the function of packet.h that appends a number of `width` bits to the input of a hash."""
    return "append" if width <= 64 else f"append{access(width)}"


class Calculations:
    """Writer of a C function for each calculation of the program.

    What the switch does not support is raised as ProgramError.
    """

    def __init__(self, layout: Layout, names: Names) -> None:
        self.layout = layout
        self.names = names

    def call(self, name: str, where: str) -> str:
        """Return a C expression for a calculation's result."""
        if name not in self.layout.program.calculations:
            raise ProgramError(f"{where}: calculation {name} does not exist")
        return f"{self.names.identifier('calculate_', name)}(s, p)"

    def write(self, out: Writer) -> None:
        """Write all calculations."""
        for calculation in self.layout.program.calculations.values():
            self._write(out, calculation)

    def _write(self, out: Writer, calculation: Calculation) -> None:
        where = f"calculation {calculation.name}"
        if calculation.algorithm not in ALGORITHMS:
            raise ProgramError(f"{where}: algorithm {calculation.algorithm} is not supported")
        function = self.names.identifier("calculate_", calculation.name)
        out.line("__attribute__((unused))")
        with out.block(f"static uint64_t {function}(struct state *s, struct packet *p)"):
            out.line("(void)p;")
            if ALGORITHMS[calculation.algorithm] == "hash_csum16":
                self._write_sum(out, calculation, where)
            out.line("uint8_t *input = s->input;")
            out.line("uint32_t bits = 0;")
            aligned = True
            for pieces in self._stretches(calculation.inputs):
                if len(pieces) > 1 and aligned:
                    self._write_stretch(out, pieces)
                else:
                    for piece in pieces:
                        self._write_input(out, piece.value, piece.width, where)
                aligned = aligned and sum(self._width(piece) for piece in pieces) % 8 == 0
            if any(piece.value is None for piece in calculation.inputs):
                out.line("memcpy(input + (bits + 7) / 8, p->payload, (size_t)(p->end - p->payload));")
                out.line("bits = (bits + 7) / 8 * 8 + 8 * (uint32_t)(p->end - p->payload);")
            remembering = self.layout.program.hash_states
            memory = ""
            if calculation.name in remembering:
                memory = f"&s->hash_states[{remembering.index(calculation.name)}], "
            out.line(f"return {ALGORITHMS[calculation.algorithm]}({memory}input, (bits + 7) / 8);")
        out.line()

    def _write_sum(self, out: Writer, calculation: Calculation, where: str) -> None:
        """Write the Internet checksum as a sum of 16-bit words: without a buffer while all its headers are valid."""
        body = self.summed(out, calculation.inputs, where)
        if body is not None:
            with out.block(f"if ({self.all_valid(calculation.inputs)})"):
                out.append(body)
                out.line("return checksum_finish(words, numbers);")

    def all_valid(self, inputs: Sequence[CalculationInput]) -> str:
        """Return a C condition that all headers among the inputs are valid."""
        headers = {
            v.header if isinstance(v, Field) else v.name
            for v in (piece.value for piece in inputs)
            if isinstance(v, (Field, HeaderName))
        }
        tests = [self.layout.is_valid(h) for h in self.layout.program.headers if h in headers]
        return " && ".join(t for t in tests if t != "1") or "1"

    def summed(self, out: Writer, inputs: Sequence[CalculationInput], where: str) -> Writer | None:
        """Return C that declares `words` and `numbers`, whose sum is that of the inputs (hash.h).

        None means that the inputs are not made of 16-bit words.
        """
        bits, body = 0, out.inner(1)
        body.line("uint64_t words = 0, numbers = 0;")
        for pieces in self._stretches(inputs):
            width = sum(self._width(piece) for piece in pieces)
            bits += width
            if self._is_number(pieces):
                line = self._number_summed(pieces[0].value, width, -bits % 16, where)
            elif (bits - width) % 16:
                return None
            else:
                line = self._bytes_summed(pieces, width, where, is_last=pieces[-1] is inputs[-1])
            if line is None:
                return None
            body.line(line)
        return body

    def _is_number(self, pieces: list[CalculationInput]) -> bool:
        """Return whether the pieces are one number: a constant or a field, not bytes that can be summed in place."""
        value = pieces[0].value
        if isinstance(value, Field) and len(pieces) == 1:
            return not self.layout.program.field_type(value).varying
        return isinstance(value, Constant)

    def _number_summed(
        self, value: Field | HeaderName | Constant | None, width: int, shift: int, where: str
    ) -> str | None:
        """Return C that adds a number ending `shift` bits before the end of a word; None if it is too wide."""
        if width + shift > 64:
            return None
        code = literal(value.value & (1 << width) - 1) if isinstance(value, Constant) else ""
        if isinstance(value, Field):
            code = ExpressionWriter(self.layout, where).masked(value, (1 << width) - 1).code
        moved = f"(uint64_t){code}{f' << {shift}' if shift else ''}"
        return f"numbers += {f'checksum_fold({moved})' if width + shift > 48 else moved};"

    def _bytes_summed(
        self, pieces: list[CalculationInput], width: int, where: str, *, is_last: bool
    ) -> str | None:
        """Return C that adds the payload, a header, some of its fields or a varbit.

        None means that the inputs after it would not be aligned to words.
        """
        first = pieces[0].value
        if first is None:
            return "words += checksum_sum(p->payload, (uint32_t)(p->end - p->payload));"
        assert isinstance(first, (Field, HeaderName))
        name = first.header if isinstance(first, Field) else first.name
        pointer = self.layout.header_pointer(name)
        kind = self.layout.program.field_type(first) if isinstance(first, Field) else None
        if kind is not None and kind.varying:
            if not is_last:
                return None
            self.layout.check_varbit(name, where)
            index = self.layout.header_index(name)
            return f"words += checksum_sum({pointer} + varbit_at[{index}], p->varying[{index}]);"
        if width % 16 or self.layout.program.headers[name].type.varbit:
            return None
        return f"words += checksum_sum({pointer} + {kind.offset // 8 if kind else 0}, {width // 8});"

    def _width(self, piece: CalculationInput) -> int:
        match piece.value:
            case Field():
                return self.layout.program.field_type(piece.value).width
            case HeaderName(name):
                return self.layout.program.headers[name].type.width
        return piece.width

    def _stretches(self, inputs: Sequence[CalculationInput]) -> list[list[CalculationInput]]:
        """Group the inputs that form whole bytes of one header without a gap."""
        stretches: list[list[CalculationInput]] = []
        for piece in inputs:
            last = stretches[-1][-1].value if stretches else None
            if (
                isinstance(piece.value, Field)
                and isinstance(last, Field)
                and last.header == piece.value.header
                and not self.layout.is_metadata(last)
            ):
                before, kind = (self.layout.program.field_type(f) for f in (last, piece.value))
                apart = kind.varying or before.varying or kind.behind_varbit != before.behind_varbit
                if before.offset + before.width == kind.offset and not apart:
                    stretches[-1].append(piece)
                    continue
            stretches.append([piece])
        whole: list[list[CalculationInput]] = []
        for pieces in stretches:
            first = pieces[0].value
            begins = self.layout.program.field_type(first).offset if isinstance(first, Field) else 0
            if begins % 8 or sum(self._width(p) for p in pieces) % 8:
                whole += [[p] for p in pieces]
            else:
                whole.append(pieces)
        return whole

    def _write_stretch(self, out: Writer, pieces: list[CalculationInput]) -> None:
        first = pieces[0].value
        assert isinstance(first, Field)
        size = sum(self._width(p) for p in pieces) // 8
        kind = self.layout.program.field_type(first)
        names = f"{first.name} .. {getattr(pieces[-1].value, 'name', '')}"
        with out.block(f"if ({self.layout.is_valid(first.header)})"):
            pointer = (
                f"{self.layout.field_base(self.layout.header_index(first.header), kind)} + {kind.offset // 8}"
            )
            out.line(f"memcpy(input + bits / 8, {pointer}, {size});", names)
            out.line(f"bits += {8 * size};")

    def _write_input(
        self, out: Writer, value: Field | HeaderName | Constant | None, width: int, where: str
    ) -> None:
        match value:
            case Constant(number):
                for shift in reversed(range(0, width, 64)):
                    piece = min(64, width - shift)
                    code = literal(number >> shift & (1 << piece) - 1)
                    out.line(f"bits = append(input, bits, {piece}, {code});")
            case HeaderName(name):
                size = f"header_bytes(p, {self.layout.header_index(name)})"
                out.line(f"if ({self.layout.is_valid(name)})")
                out.line(f"    bits = append_bytes(input, bits, {self.layout.header_pointer(name)}, {size});")
            case Field(header):
                kind = self.layout.program.field_type(value)
                if kind.varying:
                    self.layout.check_varbit(header, where)
                    index = self.layout.header_index(header)
                    place = f"{self.layout.header_pointer(header)} + varbit_at[{index}]"
                    out.line(f"if ({self.layout.is_valid(header)})")
                    out.line(f"    bits = append_bytes(input, bits, {place}, p->varying[{index}]);")
                    return
                expressions = ExpressionWriter(self.layout, where)
                code = expressions.truncated(value, kind.width)
                if not kind.width:
                    return
                append = append_function(kind.width)
                valid = self.layout.is_valid(header)
                if valid != "1":
                    out.line(f"if ({valid})")
                out.line(
                    f"{'' if valid == '1' else '    '}bits = {append}(input, bits, {kind.width}, {code});"
                )
