"""The C of a whole program: declarations, actions, tables, parser, control flow, and simple_switch's frame."""

from __future__ import annotations

from pathlib import PurePath

from fanin.p4switch.bmv2json.program import Program, ProgramError
from fanin.p4switch.codegen.actions import ActionWriter
from fanin.p4switch.codegen.analysis.limits import check_limits
from fanin.p4switch.codegen.analysis.replaying import Replaying
from fanin.p4switch.codegen.analysis.rolling import RunFinder
from fanin.p4switch.codegen.calculations import Calculations
from fanin.p4switch.codegen.checksums import ChecksumWriter
from fanin.p4switch.codegen.control import ControlWriter
from fanin.p4switch.codegen.frame import write_frame
from fanin.p4switch.codegen.layout import Layout
from fanin.p4switch.codegen.names import Names, helper_name
from fanin.p4switch.codegen.parser import ParserWriter
from fanin.p4switch.codegen.state import StateMembers
from fanin.p4switch.codegen.tables import TableWriter
from fanin.p4switch.codegen.tracing import RecordKind
from fanin.p4switch.codegen.uses import Uses
from fanin.p4switch.codegen.writer import Writer


def translate(program: Program, *, traced: bool = False) -> str:
    """Return the C source of a program.

    A traced program does the same with the same state, and records what happens to each packet (tracing.py).

    Raises:
        ProgramError: If the program is not supported. The message names the element.
    """
    try:
        return _translate(program, traced)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ProgramError(f"cannot be translated ({type(error).__name__}: {error})") from error
    except (MemoryError, RecursionError) as error:
        raise ProgramError("cannot be translated: its expressions are nested too deeply") from error


def _translate(program: Program, traced: bool) -> str:
    check_limits(program)
    names = Names()
    uses = Uses(program)
    runs = RunFinder(program, uses)
    layout = Layout(program, names, uses, runs.headers)
    state = StateMembers(program, names, runs.rows)
    calculations = Calculations(layout, names)
    replaying = Replaying(layout)
    actions = ActionWriter(layout, state, calculations, names, uses, runs, replaying)
    tables = TableWriter(layout, state, actions, names)

    out = Writer(traced=traced)
    out.comment(f"{PurePath(program.name).name}, translated from BMv2 JSON by p4switch.")
    out.line()
    out.line("#include <stddef.h>")
    out.line("#include <stdlib.h>")
    out.line()
    out.line('#include "meter.h"')
    out.line('#include "report.h"')
    out.line('#include "switch.h"')
    if layout.families:
        out.line('#include "family.h"')
    out.line()
    layout.write(out)
    replaying.write_record(out)
    state.write(out, layout, replaying)
    _write_own_offsets(out, layout)
    out.line('#include "packet.h"')
    out.line()
    if traced:
        _write_kinds(out)
    calculations.write(out)
    for kind in dict.fromkeys(call.kind for call in layout.calls):
        if kind.helper is not None:
            kind.helper(out, helper_name(kind))
    for action in program.actions.values():
        actions.write(out, action)
    for table in program.tables.values():
        tables.write(out, table)
    ParserWriter(layout, actions, names).write(out)
    ingress = ControlWriter(layout, tables, actions, names, program.ingress)
    egress = ControlWriter(layout, tables, actions, names, program.egress)
    ingress.write(out)
    egress.write(out)
    write_frame(out, layout, actions, ChecksumWriter(layout, names, calculations))
    return out.text()


def _write_kinds(out: Writer) -> None:
    """Write the enumerators of `Kind`, and the functions of records."""
    with out.block("enum trace_kind", ";"):
        for kind in RecordKind:
            out.line(f"TRACE_{kind.name} = {kind.value},")
    out.line()
    out.line('#include "trace.h"')
    out.line()


def _write_own_offsets(out: Writer, layout: Layout) -> None:
    with out.block("static const uint32_t own_offset[HEADERS + 1] =", ";"):
        for header in layout.packet_headers:
            member = layout.own_bytes(header.name).removeprefix("p->")
            out.line(f"[{layout.header_index(header.name)}] = offsetof(struct packet, {member}),")
    out.line()
