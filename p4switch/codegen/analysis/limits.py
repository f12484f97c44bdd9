"""Upper limits on a program, so that its generated code, its state and its packets stay within bounds.

The reader has rejected fields and numbers that are too wide (reader/values.py).
"""

from __future__ import annotations

import os

from fanin.p4switch.bmv2json.expressions import Constant, Field, HeaderName
from fanin.p4switch.bmv2json.program import (
    LONGEST_PACKET,
    Calculation,
    FieldList,
    Program,
    ProgramError,
)
from fanin.p4switch.codegen.keys import METER_WORDS
from fanin.p4switch.codegen.layout import cell_bytes, packet_headers

MAX_HEADER_BYTES = (1 << 16) - 1
MAX_HEADERS = (1 << 16) - 1
MAX_HEADERS_BYTES = 1 << 20  # of all instances together, and of all that the deparser may emit
MAX_METADATA_BYTES = 1 << 16  # bytes in memory; they are cleared for every packet
MAX_INPUT_BYTES = LONGEST_PACKET  # of a hash or digest, without the payload
MAX_KEY_BITS = 1 << 16  # of a table, or of a parser state
MAX_PARAMETER_BITS = 1 << 16  # of an action
MAX_STATE_BYTES = 1 << 30  # registers, counters and meters; on a small machine half of its memory
COUNTER_BYTES, METER_BYTES = 16, 8 * METER_WORDS


def check_limits(program: Program) -> None:
    """Check that nothing in the program is too large.

    Raises:
        ProgramError: If something is. The message names it and the limit.
    """
    _check_headers(program)
    for action in program.actions.values():
        bits = sum(parameter.width for parameter in action.parameters)
        _at_most(f"action {action.name}: its parameters", bits, MAX_PARAMETER_BITS, "bits together")
    for table in program.tables.values():
        bits = sum(key.width for key in table.keys)
        _at_most(f"table {table.name}: its keys", bits, MAX_KEY_BITS, "bits together")
    for state in program.parser.states.values():
        bits = sum(state.key_widths)
        _at_most(f"parser state {state.name}: its keys", bits, MAX_KEY_BITS, "bits together")
    for calculation in program.calculations.values():
        size = calculation_bytes(program, calculation)
        _at_most(f"calculation {calculation.name}: its input", size, MAX_INPUT_BYTES, "bytes")
    for digest in program.digests.values():
        _at_most(f"digest {digest.name}: its fields", digest_bytes(program, digest), MAX_INPUT_BYTES, "bytes")
    _check_state(program)


def input_bytes(program: Program) -> int:
    """Return the buffer size in bytes that the inputs of the program's hashes and digests need."""
    sizes = [digest_bytes(program, digest) for digest in program.digests.values()]
    for calculation in program.calculations.values():
        payload = LONGEST_PACKET if any(piece.value is None for piece in calculation.inputs) else 0
        sizes.append(calculation_bytes(program, calculation) + payload)
    return max(sizes, default=0) + 8


def calculation_bytes(program: Program, calculation: Calculation) -> int:
    """Return the largest size in bytes of a calculation's input, without the payload.

    Raises:
        ProgramError: If metadata is given as a whole.
    """
    bits = 0
    for piece in calculation.inputs:
        match piece.value:
            case Field():
                bits += program.field_type(piece.value).width
            case HeaderName(name):
                if program.headers[name].is_metadata:
                    raise ProgramError(
                        f"calculation {calculation.name}: {name} is metadata: it has to be given field by field"
                    )
                bits += program.headers[name].type.width
            case Constant():
                bits += piece.width
    return (bits + 7) // 8


def digest_bytes(program: Program, digest: FieldList) -> int:
    """Return the size of a digest, with each field in whole bytes."""
    fields = [field for field in digest.fields if isinstance(field, Field)]
    return sum((program.field_type(field).width + 7) // 8 for field in fields)


def _check_headers(program: Program) -> None:
    headers = packet_headers(program)
    for header in headers:
        _at_most(f"header type {header.type.name}", header.type.width // 8, MAX_HEADER_BYTES, "bytes")
    _at_most("the program", len(headers), MAX_HEADERS, "headers")
    size = sum(header.type.width // 8 for header in headers)
    _at_most("the program's headers", size, MAX_HEADERS_BYTES, "bytes together")
    size = sum(program.headers[name].type.width // 8 for name in program.deparser.order)
    _at_most(f"deparser {program.deparser.name}: its headers", size, MAX_HEADERS_BYTES, "bytes together")
    metadata = [f for header in program.headers.values() if header.is_metadata for f in header.type.fields]
    size = sum(cell_bytes(program, f.width) for f in metadata if f.width)
    _at_most("the program's metadata", size, MAX_METADATA_BYTES, "bytes")


def _check_state(program: Program) -> None:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = min(MAX_STATE_BYTES, memory // 2)
    arrays = [
        (f"register {r.name}", r.size, cell_bytes(program, r.width)) for r in program.registers.values()
    ]
    arrays += [(f"counter {c.name}", c.size, COUNTER_BYTES) for c in program.counters.values() if not c.table]
    arrays += [(f"meter {m.name}", m.size, METER_BYTES) for m in program.meters.values() if not m.table]
    total = 0
    for name, size, cell in arrays:
        total += size * cell
        if total > most:
            raise ProgramError(
                f"{name}: {size} cells of {cell} bytes, {total} bytes with the arrays before it: "
                f"registers, counters and meters may have at most {most} together on this machine"
            )


def _at_most(what: str, size: int, limit: int, unit: str) -> None:
    if size > limit:
        raise ProgramError(f"{what}: {size} {unit}, at most {limit} are possible")
