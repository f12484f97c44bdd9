"""A traced program in the place of the one that forwards, for as long as somebody looks."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Iterator
from ctypes import POINTER, c_bool, c_uint32, c_uint64, c_void_p
from functools import cache

from native.shared import check_numbers, check_structs
from p4switch.bmv2json.program import Program
from p4switch.engine.entries import Entry
from p4switch.engine.library import runtime
from p4switch.engine.match_table import MatchTable
from p4switch.engine.switch import SwitchLock
from p4switch.trace.conditions import TRACE_CONDITIONS, TRACE_PORT, TraceCondition
from p4switch.trace.decode import Decoder
from p4switch.trace.events import PacketTrace


class TraceError(Exception):
    """A trace that cannot be kept; says why."""


class Tracer:
    """The trace of a switch whose state begins at `base`, until it is closed.

    `lock` is the switch's; `ports` are those that are open, None if there are none at all.

    Raises:
        TraceError: somebody else is tracing it.
    """

    def __init__(
        self,
        base: int,
        program: Program,
        library: ctypes.CDLL,
        tables: dict[str, MatchTable],
        ports: Collection[int] | None,
        conditions: list[TraceCondition],
        lock: SwitchLock,
    ) -> None:
        self._base = base
        self._lock = lock
        self._library = library  # keeps it loaded
        self._tables = tables
        self._decoder = Decoder(program, self._entry, ports)
        self._entries: dict[str, dict[int, Entry]] = {}
        self.lost = 0
        traced = ctypes.addressof(c_void_p.in_dll(library, "program_traced"))
        wanted = (TraceCondition * max(1, len(conditions)))(*conditions)
        with lock:
            if not _runtime().switch_trace(base, traced, len(conditions), wanted):
                raise TraceError("this switch is being traced already")

    def packets(self) -> Iterator[PacketTrace]:
        """The packets since the last call; `lost` counts those that there has been no room for."""
        place, lost = c_void_p(), c_uint64()
        with self._lock:
            used = _runtime().switch_traced(self._base, ctypes.byref(place), ctypes.byref(lost))
            records = ctypes.string_at(place, used) if used else b""
        self.lost += lost.value
        self._entries.clear()
        return self._decoder.packets(records)

    def close(self) -> None:
        """The ordinary program runs again."""
        with self._lock:
            _runtime().switch_untrace(self._base)

    def _entry(self, table: str, index: int) -> Entry | None:
        """The entry in that place now, if there is one."""
        if table not in self._entries:
            self._entries[table] = self._tables[table].places()
        return self._entries[table].get(index)


@cache
def _runtime() -> ctypes.CDLL:
    library = runtime()
    check_structs(library, {"trace_condition": TraceCondition})
    check_numbers(library, {"TRACE_CONDITIONS": TRACE_CONDITIONS, "TRACE_PORT": TRACE_PORT})
    library.switch_trace.restype = c_bool
    library.switch_trace.argtypes = [c_void_p, c_void_p, c_uint32, POINTER(TraceCondition)]
    library.switch_traced.restype = c_uint64
    library.switch_traced.argtypes = [c_void_p, POINTER(c_void_p), POINTER(c_uint64)]
    library.switch_untrace.restype = None
    library.switch_untrace.argtypes = [c_void_p]
    return library
