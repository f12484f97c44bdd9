"""State that outlives a packet: registers, counters and match tables, as members of `struct state`.

Registers of one size and width that are always used at the same index are stored as one row, REG[cell][i], so that
the loops over them (see analysis/rolling.py) access consecutive memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from fanin.p4switch.bmv2json.program import Program, ProgramError, RegisterArray
from fanin.p4switch.codegen.analysis.limits import input_bytes
from fanin.p4switch.codegen.analysis.replaying import Replaying
from fanin.p4switch.codegen.layout import Layout, cell_bytes, storage_type
from fanin.p4switch.codegen.names import Names
from fanin.p4switch.codegen.writer import Writer


@dataclass(frozen=True, slots=True)
class Row:
    """Registers that share a row, in the order of their columns."""

    member: str
    registers: tuple[str, ...]
    size: int
    width: int


class StateMembers:
    """C names of registers, counters and tables.

    A name that does not exist is raised as ProgramError.
    """

    def __init__(self, program: Program, names: Names, rows: list[tuple[str, ...]]) -> None:
        self.program = program
        self.names = names
        self.counters = [c for c in program.counters.values() if c.table is None]
        self.meters = [m for m in program.meters.values() if m.table is None]
        self.tables = list(program.tables.values())
        self.rows: list[Row] = []
        self.place: dict[str, tuple[Row, int]] = {}
        rowed = {name for row in rows for name in row}
        alone = [(name,) for name in program.registers if name not in rowed]
        for registers in rows + alone:
            first = program.registers[registers[0]]
            row = Row(names.identifier("reg_", first.name), registers, first.size, first.width)
            self.rows.append(row)
            self.place.update({name: (row, column) for column, name in enumerate(registers)})

    def register(self, name: str, where: str) -> RegisterArray:
        """Return the register array of that name."""
        if name not in self.program.registers:
            raise ProgramError(f"{where}: register {name} does not exist")
        return self.program.registers[name]

    def cell(self, name: str, index: str) -> str:
        """Return the C lvalue of a register's cell."""
        row, column = self.place[name]
        return f"s->{row.member}[{index}][{column}]"

    def counter(self, name: str, where: str) -> str:
        """Return the member with an indirect counter's cells."""
        if name not in self.program.counters:
            raise ProgramError(f"{where}: counter {name} does not exist")
        return self.names.identifier("counter_", name)

    def table_index(self, name: str) -> str:
        """Return the enumerator of a table."""
        return self.names.identifier("T_", name)

    def meter(self, name: str, where: str) -> str:
        """Return the member with an indirect meter's cells."""
        meter = self.program.meters.get(name)
        if meter is None or meter.table is not None:
            raise ProgramError(f"{where}: meter {name} does not exist, or is a direct one")
        return self.names.identifier("meter_", name)

    def value_set_index(self, name: str, where: str) -> str:
        """Return the enumerator of a value set."""
        if name not in self.program.value_sets:
            raise ProgramError(f"{where}: value set {name} does not exist")
        return self.names.identifier("V_", name)

    def write(self, out: Writer, layout: Layout, replaying: Replaying) -> None:
        """Write `struct state`, and the descriptions by which the control plane finds registers and counters in it."""
        with out.block("enum", ";"):
            for table in self.tables:
                out.line(f"{self.table_index(table.name)},")
            out.line("TABLES")
        out.line()
        with out.block("enum", ";"):
            for name in self.program.value_sets:
                out.line(f"{self.value_set_index(name, '')},")
            out.line("VALUE_SETS")
        out.line()
        if layout.goes_again:
            out.line("struct again;")
            out.line()
        with out.block("struct state", ";"):
            out.line("struct switch_base base;")
            out.line("struct table tables[TABLES + 1], value_sets[VALUE_SETS + 1];")
            if self.program.hash_states:
                out.line(f"struct hash_state hash_states[{len(self.program.hash_states)}];")
            for meter in self.meters:
                out.line(f"struct meter {self.meter(meter.name, '')}[{max(1, meter.size)}];")
            for counter in self.counters:
                out.line(f"struct counter {self.counter(counter.name, '')}[{max(1, counter.size)}];")
            for row in self.rows:
                kind = storage_type(row.width)
                columns = len(row.registers)
                out.line(f"{kind} {row.member}[{max(1, row.size)}][{columns}] __attribute__((aligned(64)));")
            inputs = input_bytes(self.program)
            out.line(
                f"uint8_t input[HEADROOM + {inputs}];", "input of a hash or digest; output of the deparser"
            )
            # A store that crosses pages takes about 30 cycles: metadata and pointers begin a page.
            out.line("struct packet arrived __attribute__((aligned(4096))), copy;")
            if replaying.possible:
                out.line("struct replay replay;")
            if layout.goes_again:
                out.line("struct again *again, *again_last;", "packets that wait for their next pass")
                out.line("size_t again_bytes;", "of packets in `again`")
                out.line("uint32_t original_length;")
                out.line("uint8_t original[LONGEST_PACKET];", "the packet as it arrived")
        out.line()
        out.comment("Offsets in struct state, in the order of the program's meters, counters and registers.")
        with out.block("const uint64_t program_meters[] =", ";"):
            for meter in self.meters:
                out.line(f"offsetof(struct state, {self.meter(meter.name, '')}),")
            out.line("0")
        with out.block("const uint64_t program_counters[] =", ";"):
            for counter in self.counters:
                out.line(f"offsetof(struct state, {self.counter(counter.name, '')}),")
            out.line("0")
        with out.block("const uint64_t program_registers[][2] =", ";", "first cell, bytes from cell to cell"):
            for name, register in self.program.registers.items():
                row, column = self.place[name]
                cell = cell_bytes(self.program, register.width)
                out.line(
                    f"{{offsetof(struct state, {row.member}) + {column * cell}, {cell * len(row.registers)}}},"
                )
            out.line("{0, 0}")
        out.line()
