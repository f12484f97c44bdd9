"""What simple_switch does around a program: standard metadata, multicast, drops, from arrival to departure.

Source: BMv2's docs/simple_switch.md, "Pseudocode for what happens at the end of ingress and egress processing".
"""

from __future__ import annotations

from p4switch.codegen.expressions import ExpressionWriter
from p4switch.codegen.layout import Layout
from p4switch.codegen.uses import fields_read
from p4switch.codegen.writer import Writer
from p4switch.program import Field

INSTANCE_NORMAL, INSTANCE_REPLICATION = 0, 5


def write_frame(out: Writer, layout: Layout) -> None:
    """The exported functions, and the way of a packet through parser, ingress, egress and deparser."""
    _write_reads_checksum(out, layout)
    _write_egress(out, layout)
    _write_process(out, layout)
    _write_open(out)


def _set(out: Writer, layout: Layout, name: str, code: str) -> None:
    field = layout.standard(name)
    if field is not None:
        width = layout.program.field_type(field).width
        cut = code if width in (8, 16, 32, 64) else f"{code} & {(1 << width) - 1:#x}"
        out.line(f"{layout.metadata_member(field)} = {cut};")


def _get(layout: Layout, name: str) -> str | None:
    field: Field | None = layout.standard(name)
    return (
        None if field is None else ExpressionWriter(layout, "standard_metadata").value(field).cast("uint32_t")
    )


def _write_reads_checksum(out: Writer, layout: Layout) -> None:
    program = layout.program
    out.line(
        "/* Whether the program uses the checksum of which only a part is there yet: then it has to be completed. */"
    )
    with out.block("static bool reads_checksum(const struct packet *p)"):
        out.line("(void)p;")
        if any(piece.value is None for c in program.calculations.values() for piece in c.inputs):
            out.line("if (p->checksum >= p->payload)")
            out.line("    return true;")
        for name, first, last in _bytes_read(layout):
            header = layout.header_pointer(name)
            inside = f"p->checksum + 1 >= {header} + {first} && p->checksum <= {header} + {last}"
            out.line(f"if ({layout.is_valid(name)} && {inside})")
            out.line("    return true;")
        out.line("return false;")
    out.line()


def _bytes_read(layout: Layout) -> list[tuple[str, int, int]]:
    """Stretches of headers that the program reads: header, first and last byte."""
    stretches: list[tuple[str, int, int]] = []
    order = {header.name: number for number, header in enumerate(layout.packet_headers)}
    kinds = [(order[f.header], layout.program.field_type(f), f.header) for f in fields_read(layout.program)]
    for _, kind, header in sorted(kinds, key=lambda k: (k[0], k[1].offset)):
        first, last = kind.offset // 8, (kind.offset + kind.width - 1) // 8
        if stretches and stretches[-1][0] == header and first <= stretches[-1][2] + 1:
            stretches[-1] = (header, stretches[-1][1], last)
        else:
            stretches.append((header, first, last))
    return stretches


def _write_egress(out: Writer, layout: Layout) -> None:
    order = ", ".join(layout.header_index(h) for h in layout.program.deparser.order) or "0"
    out.line(f"static const uint16_t deparser_order[] = {{{order}}};")
    out.line()
    with out.block("static void leave(struct state *s, struct packet *p, uint32_t port)"):
        _set(out, layout, "egress_port", "port")
        _set(out, layout, "egress_spec", "(s->base.drop_port + 1)")
        _set(out, layout, "egress_global_timestamp", "p->now")
        _set(out, layout, "enq_timestamp", "p->now")
        _set(out, layout, "packet_length", "p->length")
        out.line("p->exit = false;")
        out.line("egress(s, p);")
        spec = _get(layout, "egress_spec")
        if spec is not None:
            out.line(f"if ({spec} == s->base.drop_port)")
            out.line("    return;")
        out.line("update_checksums(s, p);")
        count = len(layout.program.deparser.order)
        out.line(f"uint8_t *first = emit_headers(p, deparser_order, {count}, s->input);")
        out.line("uint32_t length = (uint32_t)(p->end - first);")
        out.line("uint8_t *checksum = kept_checksum(p);")
        with out.block("if (length > p->truncate_to)"):
            out.line("length = p->truncate_to;")
            out.line("checksum = NULL;")
        out.line("s->base.emit(s->base.emit_context, port, first, length, checksum);")
    out.line()


def _write_process(out: Writer, layout: Layout) -> None:
    arguments = "struct switch_base *base, uint32_t port, uint32_t length, uint64_t now, uint8_t *checksum"
    head = f"static void process({arguments})"
    with out.block(head):
        out.line("struct state *s = (struct state *)base;")
        out.line("struct packet *p = &s->arrived;")
        out.line("begin_packet(p, length, now, checksum);")
        for stack in layout.program.stacks.values():
            out.line(f"p->{layout.stack_next(stack.name)} = 0;")
        _set(out, layout, "ingress_port", "port")
        _set(out, layout, "packet_length", "length")
        _set(out, layout, "ingress_global_timestamp", "now")
        out.line("const uint32_t error = parse(s, p);")
        out.line("clear_invalid(p);")
        with out.block("if (p->checksum && reads_checksum(p))"):
            out.line("complete_checksum(p->checksum, base->checksum_offset, p->end);")
            out.line("process(base, port, length, now, NULL);")
            out.line("return;")
        if layout.standard("parser_error") is None:
            out.line("(void)error;")
        _set(out, layout, "parser_error", "error")
        out.line("verify_checksums(s, p);")
        _set(out, layout, "checksum_error", "p->checksum_error")
        out.line("ingress(s, p);")
        group = _get(layout, "mcast_grp")
        if group is not None:
            with out.block(f"if ({group})"):
                _set(out, layout, "instance_type", str(INSTANCE_REPLICATION))
                out.line(f"const struct replicas *group = base->multicast[{group} % MULTICAST_GROUPS];")
                with out.block("for (uint32_t i = 0; group && i < group->count; i++)"):
                    out.line("struct packet *copy = p;")
                    with out.block("if (i + 1 < group->count)"):
                        out.line("copy = &s->copy;")
                        out.line("copy_packet(copy, p);")
                    field = layout.standard("egress_rid")
                    if field is not None:
                        member = layout.metadata_member(field).replace("p->", "copy->", 1)
                        out.line(f"{member} = group->replica[i].instance;")
                    out.line("leave(s, copy, group->replica[i].port);")
                out.line("return;")
        spec = _get(layout, "egress_spec")
        if spec is not None:
            out.line(f"if ({spec} != base->drop_port)")
            out.line(f"    leave(s, p, {spec});")
    out.line()


def _write_open(out: Writer) -> None:
    with out.block("struct switch_base *program_open(uint32_t drop_port, uint64_t seed)"):
        out.line("struct state *s = aligned_alloc(64, (sizeof *s + 63) / 64 * 64);")
        out.line("if (!s)")
        out.line("    return NULL;")
        out.line("memset(s, 0, sizeof *s);")
        out.line("s->base.process = process;")
        out.line("s->base.tables = s->tables;")
        out.line("s->base.buffer = s->arrived.bytes + HEADROOM;")
        out.line("s->base.drop_port = drop_port;")
        out.line("s->base.random = seed;")
        out.line("return &s->base;")
