"""Checksums that a program verifies and updates. Partial ones stay partial if possible (analysis/partial.py)."""

from __future__ import annotations

from fanin.p4switch.bmv2json.expressions import Field
from fanin.p4switch.bmv2json.program import Checksum, ProgramError
from fanin.p4switch.codegen.analysis.partial import Reads, TransportSum, left_partial, reads
from fanin.p4switch.codegen.calculations import Calculations
from fanin.p4switch.codegen.expressions import ExpressionWriter
from fanin.p4switch.codegen.layout import Layout
from fanin.p4switch.codegen.names import Names
from fanin.p4switch.codegen.tracing import RecordKind
from fanin.p4switch.codegen.writer import Writer


class ChecksumWriter:
    """Writer of `reads_checksum`, `verify_checksums` and `update_checksums`."""

    def __init__(self, layout: Layout, names: Names, calculations: Calculations) -> None:
        self.layout = layout
        self.names = names
        self.calculations = calculations
        program = layout.program
        self.sums = {} if layout.goes_again else left_partial(program)
        self.sums = {
            checksum: total
            for checksum, total in self.sums.items()
            if calculations.summed(Writer(), total.pseudo, checksum.name) is not None
        }

    def write(self, out: Writer) -> None:
        """Write all functions, and the deparser's order, which determines what an update may leave partial."""
        order = ", ".join(self.layout.header_index(h) for h in self.layout.program.deparser.order) or "0"
        out.line(f"static const uint16_t deparser_order[] = {{{order}}};")
        out.line()
        for name in dict.fromkeys(checksum.calculation for checksum in self.sums):
            total = next(total for checksum, total in self.sums.items() if checksum.calculation == name)
            self._write_is_partial(out, name, total)
            self._write_pseudo_sum(out, name, total)
            self._write_leaves_partial(out, name, total)
        self._write_reads(out)
        for verify in (True, False):
            head = "verify_checksums" if verify else "update_checksums"
            with out.block(f"static void {head}(struct state *s, struct packet *p)"):
                out.line("(void)s, (void)p;")
                if not verify:
                    out.line("p->partial_to = UINT32_MAX;")
                for checksum in self.layout.program.checksums:
                    if checksum.verify if verify else checksum.update:
                        self._write_checksum(out, checksum, verify)
            out.line()

    # Partial checksums

    def _is_partial(self, checksum: Checksum) -> str:
        return f"{self.names.identifier('is_partial_', checksum.calculation)}(s, p)"

    def _pseudo_sum(self, checksum: Checksum) -> str:
        return f"{self.names.identifier('pseudo_sum_', checksum.calculation)}(s, p)"

    def _place(self, field: Field) -> str:
        """Return the address of a byte-aligned field."""
        offset = self.layout.program.field_type(field).offset // 8
        return f"{self.layout.header_pointer(field.header)} + {offset}"

    def _write_is_partial(self, out: Writer, name: str, total: TransportSum) -> None:
        """Write a test that the sender's card would sum the same: from the checksum's header to the end."""
        program, layout = self.layout.program, self.layout
        out.comment(
            "Whether this checksum is the partial one, and its header and the next ones reach the packet's end."
        )
        out.line("INLINE")
        function = self.names.identifier("is_partial_", name)
        with out.block(f"bool {function}(const struct state *s, const struct packet *p)"):
            pointer = layout.header_pointer(total.field.header)
            self._write_is_the_partial_one(out, total)
            out.line(
                f"const uint8_t *at = {pointer} + {program.headers[total.field.header].type.width // 8};"
            )
            for header in total.following:
                with out.block(f"if ({layout.is_valid(header)})"):
                    out.line(f"if ({layout.header_pointer(header)} != at)")
                    out.line("    return false;")
                    out.line(f"at += {program.headers[header].type.width // 8};")
            out.line(f"return at == {'p->payload' if total.payload else 'p->end'};")
        out.line()

    def _write_is_the_partial_one(self, out: Writer, total: TransportSum) -> None:
        """Write a return of false unless this checksum is there and is the packet's partial one."""
        tests = [
            self.layout.is_valid(total.field.header),
            self.calculations.all_valid(total.pseudo),
            f"p->checksum == {self._place(total.field)}",
            f"s->base.checksum_offset == {self.layout.program.field_type(total.field).offset // 8}",
        ]
        out.line(f"if (!({' && '.join(tests)}))")
        out.line("    return false;")

    def _write_leaves_partial(self, out: Writer, name: str, total: TransportSum) -> None:
        """Write a test that the sender's card would sum the same in the packet that leaves."""
        program, layout = self.layout.program, self.layout
        order = program.deparser.order
        function = self.names.identifier("leaves_partial_", name)
        out.comment(
            "Whether this checksum may leave partial: of what leaves, exactly what is summed follows its header."
        )
        out.line("UNUSED_STATIC")
        with out.block(f"bool {function}(struct state *s, struct packet *p)"):
            behind = order[order.index(total.field.header) + 1 :] if total.field.header in order else ()
            summed = [header for header in behind if header in total.following]
            if total.payload or not behind or tuple(summed) != total.following or layout.varbits:
                out.line("(void)s, (void)p;")
                out.line("return false;")
            else:
                self._write_is_the_partial_one(out, total)
                out.line("uint32_t length = 0;")
                last = max(map(order.index, (total.field.header, *total.following)))
                for header in order[: last + 1]:
                    out.line(f"if ({layout.is_valid(header)})")
                    between = header in behind and header not in summed
                    width = program.headers[header].type.width // 8
                    out.line("    return false;" if between else f"    length += {width};")
                out.line("if (p->truncate_to != UINT32_MAX)")
                out.line("    return p->truncate_to == length;")
                out.line(
                    "return p->payload == p->end"
                    + "".join(f" && !{layout.is_valid(h)}" for h in order[last + 1 :])
                    + ";"
                )
        out.line()

    def _write_pseudo_sum(self, out: Writer, name: str, total: TransportSum) -> None:
        function = self.names.identifier("pseudo_sum_", name)
        out.line("INLINE")
        with out.block(f"uint16_t {function}(const struct state *s, const struct packet *p)"):
            out.line("(void)s, (void)p;")
            body = self.calculations.summed(out, total.pseudo, f"calculation {name}")
            assert body is not None
            with out.block():
                out.append(body)
                out.line("return (uint16_t)~checksum_finish(words, numbers);")
        out.line()

    def _write_reads(self, out: Writer) -> None:
        found = reads(self.layout.program, self.sums)
        out.comment(
            "Whether the program uses the value of a partial checksum, which then has to be completed."
        )
        with out.block("static bool reads_checksum(const struct state *s, const struct packet *p)"):
            out.line("(void)s, (void)p;")
            if any(p.value is None for c in self.layout.program.calculations.values() for p in c.inputs):
                out.line("if (p->checksum >= p->payload)")
                out.line("    return true;")
            spared = dict.fromkeys(total.field for total in self.sums.values())
            for field in dict.fromkeys([*spared, *sorted(found.compared, key=lambda f: (f.header, f.name))]):
                self._write_spared(out, field, found)
            read = self._bytes_read(found)
            for name, first, last in self._bytes_between(read):
                header = self.layout.header_pointer(name)
                inside = f"p->checksum >= {header} + {first} && p->checksum < {header} + {last}"
                out.line(f"if ({self.layout.is_valid(name)} && {inside})")
                out.line("    return false;")
            for name, first, last in read:
                header = self.layout.header_pointer(name)
                inside = f"p->checksum + 1 >= {header} + {first} && p->checksum <= {header} + {last}"
                out.line(f"if ({self.layout.is_valid(name)} && {inside})")
                out.line("    return true;")
            out.line("return false;")
        out.line()

    def _write_spared(self, out: Writer, field: Field, found: Reads) -> None:
        """Write the conditions under which a spared field counts as read although its checksum is partial."""
        place = self._place(field)
        with out.block(
            f"if ({self.layout.is_valid(field.header)} && p->checksum + 1 >= {place} && p->checksum <= {place} + 1)"
        ):
            out.line(f"if (p->checksum != {place})")
            out.line("    return true;")
            if field in found.compared:
                out.line("if (p->partial_sum == 0)", "a complete checksum is never 0")
                out.line("    return true;")
            for checksum, total in self.sums.items():
                if checksum.verify and total.field == field:
                    right = (
                        f"({self._is_partial(checksum)} && p->partial_sum == {self._pseudo_sum(checksum)})"
                    )
                    out.line(f"if ({' && '.join([*self._conditions(checksum), f'!{right}'])})")
                    out.line("    return true;")

    def _bytes_read(self, found: Reads) -> list[tuple[str, int, int]]:
        """Return the ranges of headers that the program reads, as (header, first byte, last byte)."""
        layout = self.layout
        stretches: list[tuple[str, int, int]] = []
        order = {header.name: number for number, header in enumerate(layout.packet_headers)}
        kinds = [(order[f.header], layout.program.field_type(f), f.header) for f in found.fields]
        for _, kind, header in sorted(kinds, key=lambda k: (k[0], k[1].offset)):
            first, last = kind.offset // 8, (kind.offset + kind.width - 1) // 8
            if kind.behind_varbit:
                last = layout.program.headers[header].type.width // 8
            if stretches and stretches[-1][0] == header and first <= stretches[-1][2] + 1:
                stretches[-1] = (header, stretches[-1][1], max(last, stretches[-1][2]))
            else:
                stretches.append((header, first, last))
        return stretches

    def _bytes_between(self, read: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
        """Return the gaps between the ranges read in the same header, which may hold a checksum."""
        stretches = []
        for name in dict.fromkeys(header for header, _, _ in read):
            kind = self.layout.program.headers[name].type
            if kind.varbit is not None:
                continue
            at, size = 0, kind.fixed_bytes
            for first, last in [*((a, b) for header, a, b in read if header == name), (size, size)]:
                if first - at > 1:
                    stretches.append((name, at, first - 1))
                at = last + 1
        return stretches

    # Verify and update

    def _conditions(self, checksum: Checksum) -> list[str]:
        conditions = [self.layout.is_valid(checksum.target.header)]
        if checksum.condition is not None:
            where = f"checksum {checksum.name}"
            conditions.append(ExpressionWriter(self.layout, where).condition(checksum.condition))
        return conditions

    def _write_checksum(self, out: Writer, checksum: Checksum, verify: bool) -> None:
        where = f"checksum {checksum.name}"
        kind = self.layout.program.field_type(checksum.target)
        if not 0 < kind.width <= 64:
            raise ProgramError(f"{where}: a checksum field of {kind.width} bits; it needs 1 to 64")
        call = self.calculations.call(checksum.calculation, where)
        total = self.sums.get(checksum)
        with out.block(f"if ({' && '.join(self._conditions(checksum))})"):
            if verify:
                self._write_verify(out, checksum, call, total)
            elif self.layout.is_metadata(checksum.target):
                out.line(f"{self.layout.metadata_member(checksum.target)} = {call};")
            elif total is not None and not self.layout.program.deparser.primitives:
                self._write_partial_update(out, checksum, call)
            else:
                self._write_put(out, checksum, call)
                if any(total.field == checksum.target for total in self.sums.values()):
                    self._write_complete(out, checksum)
            if not verify:
                number = self.layout.program.checksums.index(checksum)
                writer = ExpressionWriter(self.layout, where)
                out.trace(RecordKind.UPDATED, number, writer.value(checksum.target).cast("uint64_t"))

    def _write_verify(self, out: Writer, checksum: Checksum, call: str, total: TransportSum | None) -> None:
        """Write the verification. A checksum still partial here is right: reads_checksum would have completed it."""
        target = (
            ExpressionWriter(self.layout, f"checksum {checksum.name}").value(checksum.target).cast("uint64_t")
        )
        if total is not None:
            right = "0" if total.includes_field else target
            call = f"(p->checksum == {self._place(total.field)} ? {right} : {call})"
        out.line(f"uint64_t computed = {call};")
        out.line(f"if (computed != {target})")
        out.line("    p->checksum_error = true;")
        number = self.layout.program.checksums.index(checksum)
        out.trace(RecordKind.CHECKSUM, number, target, "computed")

    def _write_partial_update(self, out: Writer, checksum: Checksum, call: str) -> None:
        count = len(self.layout.program.deparser.order)
        stands = f"stands_as_it_leaves(p, deparser_order, {count})"
        leaves = f"{self.names.identifier('leaves_partial_', checksum.calculation)}(s, p)"
        with out.block(f"if (p->checksum && (({self._is_partial(checksum)} && {stands}) || {leaves}))"):
            out.line(f"p->partial_sum = {self._pseudo_sum(checksum)};")
            out.line("p->partial_to = p->truncate_to;")
            self._write_put(out, checksum, "p->partial_sum")
        with out.block("else"):
            self._write_put(out, checksum, call)
            self._write_complete(out, checksum)

    def _write_complete(self, out: Writer, checksum: Checksum) -> None:
        """Write that the checksum is complete now: a checksum with another value than the partial sum is."""
        out.line(f"if (p->checksum == {self._place(checksum.target)})")
        out.line("    p->partial_sum = (uint16_t)~load_be16(p->checksum);")

    def _write_put(self, out: Writer, checksum: Checksum, code: str) -> None:
        kind = self.layout.program.field_type(checksum.target)
        macro = self.layout.field_macro(self.layout.program.headers[checksum.target.header].type, kind)
        out.line(f"put64({self.layout.header_pointer(checksum.target.header)}, {macro}, {code});")
