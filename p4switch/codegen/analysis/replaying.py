"""Replay of egress: the changes made to the replicas of one packet are repeated for those of the next (replay.h).

Egress can be replayed if all its inputs can be compared: it reads only fields, tables and constants, and it changes
headers only by writing to their fields. Whether a packet reaches an action with a register, for example, is only known
when that action runs. Nothing is replayed then.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from fanin.p4switch.bmv2json.expressions import (
    ElementField,
    Field,
    LastField,
    RegisterValue,
    StackElement,
    StackName,
    UnionName,
)
from fanin.p4switch.bmv2json.program import Action, Branch, Table
from fanin.p4switch.codegen.layout import Layout
from fanin.p4switch.codegen.uses import fields_in, headers_written, pipeline_actions
from fanin.p4switch.codegen.writer import Writer

SET_FOR_REPLICAS = ("egress_port", "egress_spec", "egress_rid", "egress_global_timestamp", "packet_length")
"""Standard metadata that are set for each replica before egress."""
NOT_COMPARED = (ElementField, LastField, RegisterValue, StackElement, StackName, UnionName)
CHANGES = 64
"""Number of bits in replica_record.changed."""

Stretch = tuple[str, int, int]
"""Bytes of a header: its name, the first byte, and the byte after the last."""


class Replaying:
    """Fields that the program's egress uses, and whether it can be replayed."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        program = layout.program
        self.actions = {action.id for action in pipeline_actions(program.egress)}
        calls = [
            call
            for action in pipeline_actions(program.egress)
            for call in action.primitives
            if call.kind.repeatable
        ]
        nodes = program.egress.nodes.values()
        looked_at: list[Any] = [n.condition for n in nodes if isinstance(n, Branch)]
        looked_at += [n.keys for n in nodes if isinstance(n, Table)]
        looked_at += [call.arguments for call in calls]
        self.used = {f for f in fields_in(tuple(looked_at)) if self._is_compared(f)}
        targets = (
            a for c in calls for a, k in zip(c.arguments, c.kind.parameters, strict=True) if k == "target"
        )
        written = set(fields_in(tuple(targets)))
        self.written = self.used & written
        updated = [c for c in program.checksums if c.update]
        self.updated = {c.target for c in updated}
        looked_at_by_updates = fields_in(
            tuple((c.condition, program.calculations.get(c.calculation)) for c in updated)
        )
        changing = written | {layout.standard(name) for name in SET_FOR_REPLICAS}
        self.possible = (
            headers_written(program) is not None
            and not (layout.varbits or layout.queues or layout.requests or layout.may_fail)
            and not any(_mentions(part) for part in looked_at)
            # What updates read is replayed, or the same for all replicas.
            and not any(layout.is_metadata(f) and f in changing for f in looked_at_by_updates)
            and not any(layout.is_metadata(f) for f in self.updated)
        )

    def _is_compared(self, field: Field) -> bool:
        """Return whether a field must be compared explicitly.

        Validity always is, locals of actions are set before they are used, and fields without bits hold nothing.
        """
        if field.name == "$valid$" or field in self.layout.private:
            return False
        return self.layout.program.field_type(field).width > 0

    def varies(self, node: Action | Table) -> bool:
        """Return whether a node of egress may treat equal packets differently."""
        if not self.possible:
            return False
        if isinstance(node, Action):
            return node.id in self.actions and any(not p.kind.repeatable for p in node.primitives)
        if node not in self.layout.program.egress.nodes.values():
            return False
        program = self.layout.program
        counted = any(counter.table == node.name for counter in program.counters.values())
        metered = any(meter.table == node.name for meter in program.meters.values())
        own = counted or metered or node.with_counters or node.direct_meter is not None
        return own or node.support_timeout or node.profile is not None

    def write_record(self, out: Writer) -> None:
        """Write the declaration of the record, a member of `struct state`."""
        if self.possible:
            out.line('#include "replay.h"')
            out.line()

    def write(self, out: Writer) -> None:
        """Write `same_for_egress`, `repeat_egress`, and the functions that save and restore updated checksums."""
        used, written = self._stretches(self.used), self._stretches(self.written)
        updated = self._stretches(self.updated)
        # Updates come between one replica and the next, so what they may write is never left out.
        changing = [stretch for stretch in written if not any(_overlap(stretch, other) for other in updated)]
        del changing[CHANGES:]
        self._write_updated(out, updated)
        with out.block("static const struct beginning egress_uses[] =", ";"):
            for header in dict.fromkeys(header for header, _, _ in used):
                last = max(behind for name, _, behind in used if name == header)
                out.line(f"{{{self.layout.header_index(header)}, {last}}},")
            out.line("{0, 0}")
        out.line()
        with out.block("static const struct stretch egress_changes[] =", ";"):
            for header, first, behind in changing:
                out.line(f"{{{self.layout.header_index(header)}, {first}, {behind - first}}},")
            out.line("{0, 0, 0}")
        out.line()
        out.comment("Whether a packet equals the recorded one in everything that egress reads or writes.")
        with out.block("static bool same_for_egress(const struct replay *r, const struct packet *p)"):
            out.line("(void)r, (void)p;")
            for header in dict.fromkeys(header for header, _, _ in used):
                index = self.layout.header_index(header)
                out.line(f"if (p->valid[{index}] && p->header[{index}] - p->start != r->at[{index}])")
                out.line("    return false;")
            for header, first, behind in used:
                index = self.layout.header_index(header)
                out.line(f"if (!replay_same(r, p, {index}, {first}, {behind - first}))")
                out.line("    return false;")
            for field in sorted(self.used, key=lambda f: (f.header, f.name)):
                if self.layout.is_metadata(field):
                    member = self.layout.metadata_member(field).removeprefix("p->")
                    out.line(f"if (memcmp(&p->{member}, &r->{member}, sizeof p->{member}) != 0)")
                    out.line("    return false;")
            out.line("return true;")
        out.line()
        out.comment("Turns a packet into its replica number `i`, as egress would; returns whether it leaves.")
        head = "static bool repeat_egress(const struct replay *r, uint32_t i, struct packet *p)"
        with out.block(head):
            out.line("const struct replica_record *record = r->records + i;")
            for stretch in written:
                header, first, behind = stretch
                where = f"{self.layout.header_index(header)}, {first}, {behind - first}"
                if stretch in changing:
                    out.line(f"replay_change(r, record, p, {changing.index(stretch)}, {where});")
                else:
                    out.line(f"replay_write(r, record, p, {where});")
            out.line("for (uint32_t c = 0; c < record->counted; c++)")
            out.line("    count(record->counter[c], p->ingress_length);")
            out.line("return !record->dropped;")
        out.line()

    def _write_updated(self, out: Writer, updated: list[Stretch]) -> None:
        """Write functions that save and restore updated fields, so that replicas do not see each other's updates."""
        out.line(f"#define UPDATED {sum(behind - first for _, first, behind in updated) or 1}")
        for name, to, origin in (
            ("keep_updated", "kept + {at}", "{field}"),
            ("restore_updated", "{field}", "kept + {at}"),
        ):
            with out.block(f"static void {name}(struct packet *p, uint8_t *kept)"):
                out.line("(void)p, (void)kept;")
                at = 0
                for header, first, behind in updated:
                    field = f"{self.layout.header_pointer(header)} + {first}"
                    pointers = ", ".join(side.format(at=at, field=field) for side in (to, origin))
                    out.line(f"if ({self.layout.is_valid(header)})")
                    out.line(f"    memcpy({pointers}, {behind - first});")
                    at += behind - first
            out.line()

    def _stretches(self, used: set[Field]) -> list[Stretch]:
        """Return the bytes of these fields, merged where adjacent."""
        found: list[Stretch] = []
        kinds = [
            (f.header, self.layout.program.field_type(f)) for f in used if not self.layout.is_metadata(f)
        ]
        for header, kind in sorted(kinds, key=lambda k: (k[0], k[1].offset)):
            first, behind = kind.offset // 8, (kind.offset + kind.width + 7) // 8
            if found and found[-1][0] == header and first <= found[-1][2]:
                found[-1] = (header, found[-1][1], max(behind, found[-1][2]))
            else:
                found.append((header, first, behind))
        return found


def _overlap(a: Stretch, b: Stretch) -> bool:
    return a[0] == b[0] and a[1] < b[2] and b[1] < a[2]


def _mentions(node: Any) -> bool:
    """Return whether a node contains something that is not compared."""
    if isinstance(node, NOT_COMPARED):
        return True
    if isinstance(node, tuple):
        return any(_mentions(item) for item in node)
    if is_dataclass(node):
        return any(_mentions(getattr(node, f.name)) for f in fields(node))
    return False
