"""Applying a table: its key in words, the look-up (table.h), the entry's action."""

from __future__ import annotations

from p4switch.codegen.actions import ActionWriter
from p4switch.codegen.expressions import ExpressionWriter, literal
from p4switch.codegen.layout import Layout
from p4switch.codegen.names import Names
from p4switch.codegen.state import State
from p4switch.codegen.writer import Writer
from p4switch.keys import KeyLayout
from p4switch.program import Action, Table


class TableWriter:
    """Writes a function `apply_...` for each table; it returns what the control flow asks about."""

    def __init__(self, layout: Layout, state: State, actions: ActionWriter, names: Names) -> None:
        self.layout = layout
        self.state = state
        self.actions = actions
        self.names = names

    def function(self, table: Table) -> str:
        """The C name of a table's function."""
        return self.names.identifier("apply_", table.name)

    def write(self, out: Writer, table: Table) -> None:
        """The function: looks up, runs the action, returns true on a hit (or the action's id, see control.py)."""
        out.source(table.source)
        entry = "e"
        with out.block(f"static struct result {self.function(table)}(struct state *s, struct packet *p)"):
            if table.is_call:
                self._write_constant(out, table)
                return
            index = self.state.table_index(table.name)
            out.line(f"struct table *t = &s->tables[{index}];")
            if table.keys:
                self._write_lookup(out, table)
                out.line(f"const bool hit = {entry} != NULL;")
                if table.with_counters or self._direct_counter(table):
                    out.line("if (hit) {")
                    out.line("    e->packets++;")
                    out.line("    e->bytes += p->ingress_length;")
                    out.line("}")
                out.line("if (!hit)")
                out.line("    e = t->miss;")
            else:
                out.line("const bool hit = false;")
                out.line("struct entry *e = t->miss;")
            with out.block("switch (e->action)"):
                for number, action in enumerate(table.actions):
                    out.line(f"case {number}:")
                    out.line(f"    {self._call(action, 'entry_data(t, e)')};")
                    out.line("    break;")
            out.line("return (struct result){hit, e->action};")
        out.line()

    def _write_constant(self, out: Writer, table: Table) -> None:
        """A table without keys whose default is fixed is a call."""
        default = table.default
        assert default is not None
        number, action = next((i, a) for i, a in enumerate(table.actions) if a.id == default.action)
        words = [
            literal(word)
            for parameter, value in zip(action.parameters, default.data, strict=True)
            for word in ([value >> 64, value & (1 << 64) - 1] if parameter.width > 64 else [value])
        ]
        if words:
            out.line(f"static const uint64_t data[] = {{{', '.join(words)}}};")
        out.line(f"{self._call(action, 'data' if words else 'NULL')};")
        out.line(f"return (struct result){{false, {number}}};")

    def _call(self, action: Action, data: str) -> str:
        return f"{self.actions.function(action)}(s, p, {data})"

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
                if valid != "1":
                    code = f"({valid} ? {code} : 0)"  # a field of an invalid header matches as 0
            if place.width > 64:
                out.line(f"key[{place.word}] |= (uint64_t)({code} >> 64); /* {key.name} */")
                out.line(f"key[{place.word + 1}] |= (uint64_t){code};")
            else:
                shift = f" << {place.shift}" if place.shift else ""
                out.line(f"key[{place.word}] |= (uint64_t){code}{shift}; /* {key.name} */")
        if keys.kind == "exact":
            out.line(f"struct entry *e = table_find_exact(t, key, {keys.words});")
        else:
            out.line(f"struct entry *e = table_find(t, key, {keys.words}, {keys.ranges});")
