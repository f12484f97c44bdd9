"""The application of tables: the key in words, the lookup (table.h), and the entry's action."""

from __future__ import annotations

from fanin.p4switch.bmv2json.program import Action, ProgramError, Table
from fanin.p4switch.codegen.actions import ActionWriter, PrimitiveWriter
from fanin.p4switch.codegen.expressions import (
    ExpressionWriter,
    c_words,
    constant_operand,
    literal,
    unsigned_type,
)
from fanin.p4switch.codegen.keys import EntryExtra, KeyLayout
from fanin.p4switch.codegen.layout import Layout
from fanin.p4switch.codegen.names import Names
from fanin.p4switch.codegen.state import StateMembers
from fanin.p4switch.codegen.tracing import RecordKind
from fanin.p4switch.codegen.writer import Writer
from fanin.p4switch.word_packing import to_words


class TableWriter:
    """Writer of a function `apply_...` for each table, which returns the result that the control flow depends on."""

    def __init__(self, layout: Layout, state: StateMembers, actions: ActionWriter, names: Names) -> None:
        self.layout = layout
        self.state = state
        self.actions = actions
        self.names = names

    def function(self, table: Table) -> str:
        """Return the C name of a table's function."""
        return self.names.identifier("apply_", table.name)

    def in_ingress(self, table: Table) -> bool:
        """Return whether a table is applied in ingress, where its function is inlined."""
        return table in self.layout.program.ingress.nodes.values()

    def call(self, table: Table) -> str:
        """Return the application of a table."""
        return f"{self.function(table)}(s, p{', m' if self.in_ingress(table) else ''})"

    def write(self, out: Writer, table: Table) -> None:
        """Write the function: look up, run the action, return true on a hit (or the action's id, see control.py)."""
        out.source(table.source)
        entry = "e"
        inlined = self.in_ingress(table)
        with out.block(self.layout.function("struct result", self.function(table), inlined=inlined)):
            if inlined:
                out.line("(void)m;")
            if table.is_call:
                self._write_constant(out, table)
                return
            if self.actions.replaying.varies(table):
                out.line("replay_refuse(&s->replay);")
            index = self.state.table_index(table.name)
            out.line(f"struct table *t = &s->tables[{index}];")
            if table.keys:
                self.layout.trace_invalid(out, table.keys)
                self._write_lookup(out, table)
                out.line(f"const bool hit = {entry} != NULL;")
                keys = [f"key[{word}]" for word in range(KeyLayout(table).words)]
                out.trace(RecordKind.TABLE, self._number(table), "hit", "hit ? table_index(t, e) : 0", *keys)
                out.line("if (!hit)")
                out.line("    e = t->miss;")
            else:
                out.line("const bool hit = false;")
                out.trace(RecordKind.TABLE, self._number(table), "hit", "0")
                out.line("struct entry *e = t->miss;")
            self._write_resources(out, table)
            chosen, data = "e->action", "entry_data(t, e)"
            if table.profile is not None:
                self._write_choice(out, table)
                chosen, data = "chosen", "chosen_data"
            with out.block(f"switch ({chosen})"):
                for number, action in enumerate(table.actions):
                    out.line(f"case {number}:")
                    out.line(f"    {self._call(action, data)};")
                    out.line("    break;")
            out.line(f"return (struct result){{hit, {chosen}}};")
        out.line()

    def _write_choice(self, out: Writer, table: Table) -> None:
        """Write the choice of an entry's action; with an action selector the hash chooses it in the entry's group."""
        out.line("uint32_t chosen = e->action;")
        out.line("const uint64_t *chosen_data = entry_data(t, e);")
        selector = self.layout.program.profiles[table.profile or ""].selector
        if selector is None:
            return
        with out.block(f"if (chosen == {len(table.actions) + 1})"):
            out.comment(
                "a group: choices, words of each, whether it is chosen at random; then actions and data"
            )
            out.line("const uint64_t *group = (const uint64_t *)(uintptr_t)chosen_data[0];")
            hash_of = self.actions.calculations.call(selector, table.name)
            out.line(f"const uint64_t hash = group[2] ? next_random(&s->base) : {hash_of};")
            out.trace(RecordKind.CHOICE, self._number(table), "group[0] ? hash % group[0] : 0", "group[0]")
            out.line("chosen_data = group[0] ? group + 3 + hash % group[0] * group[1] : NULL;")
            out.line("chosen = chosen_data ? (uint32_t)*chosen_data++ : UINT32_MAX;")

    def _write_constant(self, out: Writer, table: Table) -> None:
        """Write a table without keys and with a fixed default as a call."""
        default = table.default
        assert default is not None
        number, action = next((i, a) for i, a in enumerate(table.actions) if a.id == default.action)
        words = [
            literal(word)
            for parameter, value in zip(action.parameters, default.data, strict=True)
            for word in to_words(value, parameter.width)
        ]
        if words:
            out.line(f"static const uint64_t data[] = {{{', '.join(words)}}};")
        out.line(f"{self._call(action, 'data' if words else 'NULL')};")
        out.line(f"return (struct result){{false, {number}}};")

    def _write_resources(self, out: Writer, table: Table) -> None:
        """Write the updates of an entry's counter, its meter and the time of its last hit."""
        if table.with_counters or self._direct_counter(table):
            out.line("e->packets++;")
            out.line("e->bytes += p->ingress_length;")
        if self._direct_counter(table):
            out.trace(RecordKind.COUNTED, self._number(table), "e->packets", "e->bytes")
        extra = EntryExtra.of(self.layout.program, table)
        if extra.words:
            out.line("uint64_t *extra = entry_extra(t, e);")
        if extra.meter is not None:
            if extra.meter.target is None:
                raise ProgramError(f"meter {extra.meter.name}: a direct meter needs a field for its result")
            amount = "p->ingress_length" if extra.meter.by_bytes else "1"
            primitives = PrimitiveWriter(self.actions, f"meter {extra.meter.name}", ())
            code = f"meter_execute((struct meter *)extra, {amount}, p->ingress_length, p->now)"
            # BMv2 runs no meter on a miss: that of the default entry is run once it has rates.
            with out.block("if (hit || ((struct meter *)extra)->rates)"):
                primitives.touch_target(out, extra.meter.target)
                primitives.assign_number(out, extra.meter.target, code)
                out.trace(RecordKind.COLOUR, self._number(table), *primitives.recorded(extra.meter.target))
        if extra.last_hit is not None:
            out.line(f"extra[{extra.last_hit}] = p->now;")

    def _number(self, table: Table) -> int:
        return self.actions.numbers.of(table)

    def _call(self, action: Action, data: str) -> str:
        return self.actions.call(action, data)

    def _direct_counter(self, table: Table) -> bool:
        return any(c.table == table.name for c in self.layout.program.counters.values())

    def _write_lookup(self, out: Writer, table: Table) -> None:
        keys = KeyLayout(table)
        expressions = ExpressionWriter(self.layout, f"table {table.name}")
        out.line(f"uint64_t key[{keys.words}] = {{0}};")
        for place, key in zip(keys.places, table.keys, strict=True):
            valid = self.layout.is_valid(key.target.header)
            if key.target.name == "$valid$":
                code = f"(uint64_t)({valid})"
            else:
                full = (1 << key.width) - 1
                code = expressions.masked(key.target, full if key.mask is None else key.mask & full).code
                if valid != "1":  # a field of an invalid header matches as 0
                    code = f"({valid} ? {code} : {constant_operand(unsigned_type(key.width), 0)})"
            if place.width > 64:
                with out.block():
                    out.line(f"const {unsigned_type(key.width)} value = {code};", key.name)
                    for word, part in enumerate(c_words("value", key.width), place.word):
                        out.line(f"key[{word}] = {part};")
            else:
                shift = f" << {place.shift}" if place.shift else ""
                out.line(f"key[{place.word}] |= (uint64_t){code}{shift};", key.name)
        if keys.kind == "exact":
            out.line(f"struct entry *e = table_find_exact(t, key, {keys.words});")
        else:
            out.line(f"struct entry *e = table_find(t, key, {keys.words}, {keys.ranges}, {keys.joined});")
