"""What a program may take of memory, so that one that asks for more is refused before it is taken."""

from __future__ import annotations

import os

from p4switch.codegen.layout import cell_bytes
from p4switch.program import Program, ProgramError

MAX_HEADER_BYTES = 1 << 20  # of all instances: each packet in hand has room for them
MAX_HEADERS = 1 << 14
MAX_STATE_BYTES = 1 << 30
_COUNTER_BYTES, _METER_BYTES = 16, 128  # more than they are


def check_sizes(program: Program) -> None:
    """Raises ProgramError for headers, or state (registers, counters and meters), beyond what this machine may give."""
    headers = program.headers.values()
    size = sum(header.type.width + 7 for header in headers) // 8
    if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        raise ProgramError(
            f"{len(headers)} headers of {size} bytes: {MAX_HEADERS} of {MAX_HEADER_BYTES} bytes are possible"
        )
    arrays = {
        f"register array {r.name}": r.size * cell_bytes(program, r.width) for r in program.registers.values()
    }
    arrays |= {
        f"counter {c.name}": c.size * _COUNTER_BYTES for c in program.counters.values() if c.table is None
    }
    arrays |= {f"meter {m.name}": m.size * _METER_BYTES for m in program.meters.values() if m.table is None}
    size, most = sum(arrays.values()), min(MAX_STATE_BYTES, _memory() // 2)
    if size > most:
        largest = max(arrays, key=lambda name: arrays[name])
        raise ProgramError(
            f"{largest} takes {arrays[largest] >> 20} MiB, all state {size >> 20}: here it may be {most >> 20}"
        )


def _memory() -> int:
    """Bytes of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
