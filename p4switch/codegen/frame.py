"""The code that simple_switch runs around a program: standard metadata, multicast and drops, from arrival to departure.

Source: BMv2's docs/simple_switch.md, "Pseudocode for what happens at the end of ingress and egress processing".
"""

from __future__ import annotations

import re

from fanin.p4switch.bmv2json.expressions import Field
from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.codegen.actions import ActionWriter, PrimitiveWriter
from fanin.p4switch.codegen.calculations import append_function
from fanin.p4switch.codegen.checksums import ChecksumWriter
from fanin.p4switch.codegen.expressions import ExpressionWriter
from fanin.p4switch.codegen.layout import QUEUEING, Layout, packet_headers
from fanin.p4switch.codegen.tracing import RecordKind
from fanin.p4switch.codegen.uses import headers_written
from fanin.p4switch.codegen.writer import Writer

INSTANCE_NORMAL, INSTANCE_REPLICATION = 0, 5


def write_frame(out: Writer, layout: Layout, actions: ActionWriter, checksums: ChecksumWriter) -> None:
    """Write the exported functions, and the path of a packet through parser, ingress, egress and deparser."""
    if layout.goes_again:
        _write_copies(out, layout)
    if "digest" in layout.requests:
        _write_digest(out, layout)
    checksums.write(out)
    _write_replicate(out, layout, actions)
    _write_deparse(out, layout, actions)
    _write_egress(out, layout, actions)
    _write_run(out, layout)
    _write_process(out, layout)
    _write_open(out, layout)


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


def _write_copies(out: Writer, layout: Layout) -> None:
    """Write the functions on metadata that again.h needs."""
    lists = layout.program.field_lists
    with out.block("static void preserve(struct packet *to, const struct packet *from, uint32_t list)"):
        out.line("(void)to, (void)from;")
        with out.block("switch (list)"):
            for number, kept in lists.items():
                out.line(f"case {number}:")
                for field in kept.fields:
                    if not isinstance(field, Field) or not layout.is_metadata(field):
                        raise ProgramError(f"field list {kept.name}: {field} is not a metadata field")
                    if not layout.program.field_type(field).width:
                        continue
                    member = layout.metadata_member(field).removeprefix("p->")
                    out.line(f"    to->{member} = from->{member};")
                out.line("    break;")
    for name, standard in (
        ("instance_type", "instance_type"),
        ("packet_length", "packet_length"),
        ("rid", "egress_rid"),
        ("priority", "priority"),
    ):
        with out.block(f"static void set_{name}(struct packet *p, uint32_t value)"):
            out.line("(void)p, (void)value;")
            _set(out, layout, standard, "value")
    with out.block("static void set_ingress_port(struct packet *p, const struct packet *from)"):
        out.line("(void)p, (void)from;")
        port = layout.standard("ingress_port")
        if port is not None:
            member = layout.metadata_member(port).removeprefix("p->")
            out.line(f"p->{member} = from->{member};")
    out.line("static void replicate(struct state *s, struct packet *p, const struct replicas *group);")
    out.line()
    out.line('#include "again.h"')
    out.line()


def _write_replicate(out: Writer, layout: Layout, actions: ActionWriter) -> None:
    """Write the replication. Each replica is the packet itself, restored to its state before the previous replica."""
    replays = actions.replaying.possible and not out.traced
    changes = "bytes_of(p)"
    written = headers_written(layout.program)
    if written is not None and not (layout.varbits or layout.queues or layout.goes_again):
        names = ", ".join(layout.header_index(h) for h in sorted(written)) or "0"
        out.comment("The headers whose fields egress may write. It changes headers in no other way.")
        out.line(f"static const uint16_t egress_writes[] = {{{names}}};")
        out.line()
        count = len(layout.program.deparser.order)
        changes = f"changeable(p, deparser_order, {count}, egress_writes, {len(written)})"
    if replays:
        actions.replaying.write(out)
    out.comment("Sends every replica of a group, each made from the packet as it is now.")
    out.line("static void leave(struct state *s, struct packet *p, uint32_t port);")
    if replays:
        out.line("static void deparse(struct state *s, struct packet *p, uint32_t port);")
    out.line()
    out.line("__attribute__((unused))")
    head = "static void replicate(struct state *s, struct packet *p, const struct replicas *group)"
    with out.block(head):
        out.line("uint8_t *const start = p->start;")
        out.line(f"const uint32_t changes = {changes}, kept = to_put_back(p, changes);")
        out.line("const bool all = changes == bytes_of(p);")
        out.line("s->base.sharing = (struct sharing){s->base.sharing.serial + 1, start + changes};")
        if replays:
            out.line("struct replay *r = &s->replay;")
            out.line("const uint64_t superframe = all ? ALONE : s->base.superframe;")
            with out.block("if (replay_fits(r, p, group, superframe) && same_for_egress(r, p))"):
                out.line("uint8_t kept_bytes[UPDATED];")
                out.line("const uint16_t partial_sum = p->partial_sum;")
                out.line("keep_updated(p, kept_bytes);")
                with out.block("for (uint32_t i = 0; i < group->count; i++)"):
                    out.line("restore_updated(p, kept_bytes);")
                    out.line("p->partial_sum = partial_sum;")
                    out.line("if (repeat_egress(r, i, p))")
                    out.line("    deparse(s, p, group->replica[i].port);")
                out.line("s->base.sharing.from = NULL;")
                out.line("return;")
            uses = "egress_uses, sizeof egress_uses / sizeof *egress_uses - 1"
            out.line(f"replay_open(r, p, group, superframe, {uses});")
        with out.block("for (uint32_t i = 0; group && i < group->count; i++)"):
            out.line("if (i > 0)")
            out.line("    put_back(p, start, &s->copy, kept, all);")
            out.line("else if (group->count > 1)")
            out.line("    set_aside(&s->copy, p, kept, all);")
            _set(out, layout, "egress_rid", "group->replica[i].instance")
            out.trace(RecordKind.REPLICA, "group->replica[i].port", "group->replica[i].instance")
            out.line("leave(s, p, group->replica[i].port);")
            out.trace(RecordKind.COPY_DONE, 0)
        if replays:
            out.line("r->record = NULL;")
        out.line("s->base.sharing.from = NULL;")
    out.line()


def _write_egress(out: Writer, layout: Layout, actions: ActionWriter) -> None:
    if layout.queues:
        _write_queue(out, layout)
    name = "depart" if layout.queues else "leave"
    with out.block(f"static void {name}(struct state *s, struct packet *p, uint32_t port)"):
        if not layout.queues:
            _write_gate(out, layout)
        _set(out, layout, "egress_port", "port")
        _set(out, layout, "egress_spec", "(s->base.drop_port + 1)")
        _set(out, layout, "egress_global_timestamp", "p->now")
        if layout.queues:
            for field in QUEUEING:
                _set(out, layout, field, f"s->base.queueing.{field}")
        _set(out, layout, "packet_length", "p->length")
        out.trace(
            RecordKind.EGRESS, "port", _get(layout, "egress_rid") or "0", _get(layout, "instance_type") or "0"
        )
        out.line("p->exit = false;")
        out.line("egress(s, p);")
        if layout.may_fail:
            out.line("if (p->failed)")
            out.line("    return;")
        if layout.goes_again:
            with out.block("if (p->request.clone)"):
                _trace_clone(out)
                out.line("clone_egress(s, p);")
        spec = _get(layout, "egress_spec")
        dropped = "false" if spec is None else f"{spec} == s->base.drop_port"
        if actions.replaying.possible and not out.traced:
            changes = "egress_changes, sizeof egress_changes / sizeof *egress_changes - 1"
            out.line(f"replay_record(&s->replay, p, {dropped}, {changes});")
        if spec is not None:
            out.trace(RecordKind.EGRESS_DONE, spec, "s->base.drop_port")
            out.line(f"if ({dropped})")
            out.line("    return;")
        out.line("deparse(s, p, port);")
    out.line()


def _write_deparse(out: Writer, layout: Layout, actions: ActionWriter) -> None:
    deparser = layout.program.deparser
    with out.block("static void deparse(struct state *s, struct packet *p, uint32_t port)"):
        out.line("update_checksums(s, p);")
        if deparser.primitives:
            with out.block():
                PrimitiveWriter(actions, "deparser", ()).parts(out, deparser.primitives)
        count = len(deparser.order)
        out.trace_line(f"for (unsigned i = 0; i < {count}; i++)")
        out.trace_line("    if (p->valid[deparser_order[i]])")
        out.trace_line("        trace_header(&s->base, p, TRACE_DEPARSE, deparser_order[i]);")
        for header in packet_headers(layout.program) if out.traced else ():
            # The compilers call a local variable NAME_NUMBER. It is no part of the packet.
            variable = re.search(r"_\d+$", header.name)
            if header.name not in deparser.order and not header.always_valid and not variable:
                out.trace_line(f"if ({layout.is_valid(header.name)})")
                out.trace(RecordKind.NOT_EMITTED, layout.header_index(header.name))
        out.line(f"uint8_t *first = emit_headers(p, deparser_order, {count}, s->input);")
        out.line("uint32_t length = (uint32_t)(p->end - first);")
        if layout.goes_again:
            out.line("if (p->request.recirculate)")
            out.line("    undo_truncate(p);")
        out.line("uint8_t *checksum = kept_checksum(p, first, s->base.checksum_offset);")
        with out.block("if (length > p->truncate_to)"):
            out.line("length = p->truncate_to;")
            out.line("if (p->partial_to != p->truncate_to)")
            out.line("    checksum = NULL;")
        with out.block("if (length > LONGEST_PACKET)"):
            out.trace(RecordKind.TOO_LONG, "length")
            why = '"it has grown beyond the longest packet"'
            out.line(f"report_drop(&s->base, &s->base.drops.too_long, {why});")
            out.line("return;")
        if layout.goes_again:
            with out.block("if (p->request.recirculate)"):
                out.trace(RecordKind.RECIRCULATE, "p->request.recirculate")
                out.line("parse_again(s, p, first, length, p->request.recirculate, RECIRCULATED);")
                out.line("return;")
        out.trace_line("trace_bytes(&s->base, TRACE_OUTPUT, port, first, length);")
        out.line("s->base.emit(s->base.emit_context, port, first, length, checksum);")
    out.line()


def _write_gate(out: Writer, layout: Layout) -> None:
    """Write the checks that drop packets before egress: of a priority without a queue, or over the limit of passes."""
    if layout.goes_again:
        with out.block("if (!may_pass(s))"):
            out.trace(RecordKind.TOO_OFTEN, 0)
            out.line("return;")
    if layout.priority is not None:
        with out.block(f"if ({layout.metadata_member(layout.priority)} >= s->base.priority_queues)"):
            out.trace(RecordKind.PRIORITY, layout.metadata_member(layout.priority))
            out.line("return;")


def _write_queue(out: Writer, layout: Layout) -> None:
    """Write the queue between ingress and egress, placed there so that egress sees it as a packet leaves it."""
    out.line("static void depart(struct state *s, struct packet *p, uint32_t port);")
    out.line()
    with out.block("static void leave(struct state *s, struct packet *p, uint32_t port)"):
        _write_gate(out, layout)
        out.line("bool dropped = false;")
        out.line("struct packet *waits = NULL;")
        out.line(
            "const size_t room = offsetof(struct packet, bytes) + HEADROOM + (size_t)(p->end - p->start);"
        )
        out.line("if (s->base.queue)")
        priority = "0" if layout.priority is None else layout.metadata_member(layout.priority)
        out.line(
            f"    waits = s->base.queue(s->base.emit_context, port, {priority}, p->length, room, &dropped);"
        )
        out.trace(RecordKind.QUEUE, "port", "waits != NULL", "dropped")
        with out.block("if (waits)"):
            out.line("waits->dirty = true;")
            out.line("copy_packet(waits, waits->bytes + HEADROOM, p, bytes_of(p));")
            if layout.families:
                out.line("waits->family = family_wait(&s->base);")
        out.line("if (waits || dropped)")
        out.line("    return;")
        out.line("s->base.queueing = (struct queueing){.enq_timestamp = p->now};")
        out.line("depart(s, p, port);")
    out.line()
    with out.block(
        "static void dequeue(struct switch_base *base, void *packet, uint32_t port, uint64_t now)"
    ):
        out.line("struct state *s = (struct state *)base;")
        out.line("struct packet *p = packet;")
        out.trace_line(f"trace_begin(base, {_get(layout, 'ingress_port') or '0'}, now, p);")
        out.trace_line(f"trace_filter(base, {_get(layout, 'ingress_port') or '0'}, p);")
        out.trace(RecordKind.DEQUEUED, "port", "now - p->now")
        if layout.families:
            out.line("family_resume(base, p->family);")
        out.line("base->queueing.enq_timestamp = p->now;")
        out.line("if (now > p->now)")
        out.line("    p->now = now;")
        out.line("depart(s, p, port);")
        _write_end(out, layout)
        out.trace_line("trace_end(base);")
    out.line()


def _write_digest(out: Writer, layout: Layout) -> None:
    """Write the function that appends the fields of a digest, each in whole bytes."""
    expressions = ExpressionWriter(layout, "digest")
    with out.block("static void send_digest(struct state *s, struct packet *p)"):
        out.line("uint32_t bits = 0;")
        with out.block("switch (p->request.digest)"):
            for number, digest in layout.program.digests.items():
                out.line(f"case {number}:")
                for field in digest.fields:
                    if not isinstance(field, Field):
                        raise ProgramError(f"digest {digest.name}: {field} is not a field")
                    width = layout.program.field_type(field).width
                    code = expressions.masked(field, (1 << width) - 1).code
                    bits = (width + 7) // 8 * 8
                    if not bits:
                        continue
                    append = append_function(width)
                    out.line(f"    bits = {append}(s->input, bits, {bits}, {code});", field.name)
                out.line("    break;")
        out.trace(RecordKind.DIGEST, "p->request.digest")
        out.line("report_digest(&s->base, p->request.digest, s->input, bits / 8);")
    out.line()


def _write_run(out: Writer, layout: Layout) -> None:
    """Write the function that runs after the parser."""
    head = "static void run(struct state *s, struct packet *p, uint32_t error)"
    with out.block(head):
        if layout.standard("parser_error") is None:
            out.line("(void)error;")
        _set(out, layout, "parser_error", "error")
        out.line("verify_checksums(s, p);")
        _set(out, layout, "checksum_error", "p->checksum_error")
        if layout.may_fail:
            out.line("if (p->failed)", "in the parser")
            out.line("    return;")
        out.trace(RecordKind.INGRESS, 0, _get(layout, "instance_type") or "0")
        out.line("ingress(s, p);")
        if layout.may_fail:
            out.line("if (p->failed)")
            out.line("    return;")
        if layout.goes_again:
            with out.block("if (p->request.clone)"):
                _trace_clone(out)
                out.line("clone_ingress(s, p);")
                out.line("p->request.clone = 0;")
        if "digest" in layout.requests:
            out.line("if (p->request.digest)")
            out.line("    send_digest(s, p);")
        if layout.goes_again:
            with out.block("if (p->request.resubmit)"):
                out.trace(RecordKind.RESUBMIT, "p->request.resubmit")
                out.line(
                    "parse_again(s, p, s->original, s->original_length, p->request.resubmit, RESUBMITTED);"
                )
                out.line("return;")
        group = _get(layout, "mcast_grp")
        if group is not None:
            with out.block(f"if ({group})"):
                _set(out, layout, "instance_type", str(INSTANCE_REPLICATION))
                if layout.goes_again:
                    out.line("p->request.recirculate = 0;")
                out.line("undo_truncate(p);")
                members = f"s->base.multicast[{group} % MULTICAST_GROUPS]"
                out.trace(RecordKind.MULTICAST, group, f"{members} ? {members}->count : 0")
                out.line(f"replicate(s, p, s->base.multicast[{group} % MULTICAST_GROUPS]);")
                out.line("return;")
        spec = _get(layout, "egress_spec")
        if spec is not None:
            _set(out, layout, "instance_type", str(INSTANCE_NORMAL))
            out.trace(RecordKind.INGRESS_DONE, spec, "s->base.drop_port")
            out.line(f"if ({spec} != s->base.drop_port)")
            out.line(f"    leave(s, p, {spec});")
    out.line()


def _write_process(out: Writer, layout: Layout) -> None:
    bytes_in, when = "uint8_t *packet, uint32_t length", "uint64_t now, uint8_t *checksum"
    with out.block(f"static void process(struct switch_base *base, uint32_t port, {bytes_in}, {when})"):
        out.line("struct state *s = (struct state *)base;")
        out.line("struct packet *p = &s->arrived;")
        out.line("begin_packet(p, packet, length, now, checksum);")
        if layout.bounded:
            out.line("base->spent = (struct spent){0};")
        _set(out, layout, "ingress_port", "port")
        _set(out, layout, "packet_length", "length")
        _set(out, layout, "ingress_global_timestamp", "now")
        if layout.goes_again:
            out.line("if (checksum)")
            out.line("    complete_checksum(checksum, base->checksum_offset, p->end);")
            out.line("p->checksum = NULL;")
            out.line("keep_original(s, p);")
        out.trace_line("trace_begin(base, port, now, p);")
        out.line("const uint32_t error = parse(s, p);")
        out.trace_line("trace_filter(base, port, p);")
        with out.block("if (p->checksum && reads_checksum(s, p))"):
            out.line("complete_checksum(p->checksum, base->checksum_offset, p->end);")
            out.line("base->process(base, port, packet, length, now, NULL);")
            out.line("return;")
        out.line("run(s, p, error);")
        _write_end(out, layout)
        out.trace_line("trace_end(base);")
    out.line()


def _write_end(out: Writer, layout: Layout) -> None:
    """Write what follows a packet: those that it has caused, unless they wait before egress."""
    if layout.goes_again:
        out.line("run_again(s);")
    if layout.families:
        out.line("family_leave(base);")


def _trace_clone(out: Writer) -> None:
    session = "s->base.sessions[p->request.clone % SESSIONS]"
    out.trace(RecordKind.CLONE, "p->request.clone % SESSIONS", f"{session} ? {session}->count : 0")


def _write_open(out: Writer, layout: Layout) -> None:
    out.trace_line(
        f"const struct traced program_traced = {{process, {'dequeue' if layout.queues else 'NULL'}}};"
    )
    with out.block("struct switch_base *program_open(uint32_t drop_port, uint64_t seed)"):
        # calloc returns fresh pages: cells that no packet has used take no memory.
        out.line("void *memory = calloc(1, sizeof(struct state) + _Alignof(struct state));")
        out.line("if (!memory)")
        out.line("    return NULL;")
        out.line("const uintptr_t aligned = (uintptr_t)memory + _Alignof(struct state);")
        out.line("struct state *s = (struct state *)(aligned - aligned % _Alignof(struct state));")
        out.line("s->base.memory = memory;")
        out.line("s->base.process = process;")
        if layout.queues:
            out.line("s->base.dequeue = dequeue;")
        out.line("s->base.tables = s->tables;")
        out.line("s->base.headroom = HEADROOM;")
        out.line("s->base.buffer = s->arrived.bytes + HEADROOM;")
        out.line("s->base.drop_port = drop_port;")
        out.line("s->base.priority_queues = 1;")
        out.line("s->base.random = seed;")
        out.line("s->base.value_sets = s->value_sets;")
        if count := len(layout.program.hash_states):
            out.line("s->base.hash_states = s->hash_states;")
            out.line(f"s->base.hash_state_count = {count};")
        out.line("s->base.digest_event = -1;")
        out.line("s->base.message_event = -1;")
        out.line("return &s->base;")
