"""Tracing: a traced program replaces the one that forwards while somebody reads its records."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, c_bool, c_uint32, c_uint64, c_void_p
from functools import cache

from fanin.native.shared import check_numbers, check_structs
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.engine.library import runtime
from fanin.p4switch.entries import Entry, GroupReference, MemberReference, OneShot
from fanin.p4switch.trace.conditions import (
    TRACE_CONDITIONS,
    TRACE_PORT,
    TraceCondition,
    meets,
    parse_conditions,
)
from fanin.p4switch.trace.decode import Choices, Decoder
from fanin.p4switch.trace.events import PacketTrace

_MOST_WAITING = 10_000  # packets for a follower that does not read
_SHARED: dict[int, Tracer] = {}  # by the switch, those that others may follow


class TraceError(Exception):
    """Trace that cannot be started. The message explains why."""


class Tracer:
    """Trace of a switch until it is closed: of all packets, or of those that meet the conditions.

    If `logs`, whoever reads the trace logs the messages in it, and `Engine.messages` has none of them.

    Raises:
        TraceError: If somebody else is tracing the switch.
    """

    def __init__(self, engine: Engine, conditions: list[TraceCondition], *, logs: bool = False) -> None:
        self.program, self.drop_port = engine.program, engine.drop_port
        self._base = engine.base
        self._lock = engine.lock
        self._library = engine.load_traced()
        self._tables = engine.tables
        self._profiles = {
            table.name: engine.profile(table.profile)
            for table in engine.program.tables.values()
            if table.profile is not None
        }
        ports = engine.port_statistics().keys() or None
        self._decoder = Decoder(self.program, self.find_entry, self._choices, ports)
        self._entries: dict[str, dict[int, Entry]] = {}
        self.lost = 0
        self._followers: set[Follower] = set()
        traced = ctypes.addressof(c_void_p.in_dll(self._library, "program_traced"))
        wanted = (TraceCondition * max(1, len(conditions)))(*conditions)
        with self._lock:
            if not _runtime().switch_trace(self._base, traced, len(conditions), wanted, logs):
                raise TraceError("this switch is being traced already: wait until the other command ends")

    def packets(self) -> Iterator[PacketTrace]:
        """Return the packets since the last call; `lost` counts those that there was no memory for."""
        place, lost = c_void_p(), c_uint64()
        with self._lock:
            used = _runtime().switch_traced(self._base, ctypes.byref(place), ctypes.byref(lost))
            records = ctypes.string_at(place, used) if used else b""
        self.lost += lost.value
        self._entries.clear()
        if not self._followers:
            return self._decoder.packets(records)
        found = list(self._decoder.packets(records))
        for follower in tuple(self._followers):
            follower.receive(found)
        return iter(found)

    def share(self) -> None:
        """Let others follow the trace, which is of all packets and is read several times per second."""
        _SHARED[self._base] = self

    def close(self) -> None:
        """Stop tracing and run the ordinary program again."""
        _SHARED.pop(self._base, None)
        with self._lock:
            _runtime().switch_untrace(self._base)

    def find_entry(self, table: str, index: int) -> Entry | None:
        """Return the entry at that index now, or None."""
        if table not in self._entries:
            self._entries[table] = self._tables[table].places()
        return self._entries[table].get(index)

    def _choices(self, table: str, index: int | None) -> Choices | None:
        """Return what an entry or the default entry of a table with an action profile chooses from now."""
        entry = None if index is None else self.find_entry(table, index)
        action = self._tables[table].default() if index is None else entry and entry.action
        profile = self._profiles[table]
        match action:
            case MemberReference(number) if number in profile.members:
                return "member", number, [(number, profile.members[number], 1)]
            case GroupReference(number) if number in profile.groups:
                members = sorted(profile.groups[number])
                return "group", number, [(m, profile.members[m], weight) for m, weight in members]
            case OneShot(choices):
                return "action set", None, [(None, call, weight) for call, weight in choices]
        return None


class Follower:
    """Packets that another tracer of a switch reads and that meet conditions. `lost` counts those not read in time."""

    def __init__(self, tracer: Tracer, conditions: list[TraceCondition]) -> None:
        self.lost = 0
        self._program = tracer.program
        self._conditions = conditions
        self._waiting: deque[PacketTrace] = deque()

    def receive(self, packets: Iterable[PacketTrace]) -> None:
        """Take packets that the tracer has read, in its thread."""
        for packet in packets:
            if len(self._waiting) == _MOST_WAITING:
                self.lost += 1
            elif meets(self._program, self._conditions, packet):
                self._waiting.append(packet)

    def packets(self) -> Iterator[PacketTrace]:
        """Yield the packets since the last call."""
        while self._waiting:
            yield self._waiting.popleft()


@contextmanager
def followed(engine: Engine, conditions: str = "") -> Iterator[Tracer | Follower]:
    """Trace packets as `traced` does. If the switch is traced for its own log, follow that trace."""
    shared = _SHARED.get(engine.base)
    if shared is None:
        with traced(engine, conditions) as tracer:
            yield tracer
        return
    follower = Follower(shared, parse_conditions(engine.program, conditions))
    shared._followers.add(follower)
    try:
        yield follower
    finally:
        shared._followers.discard(follower)


@contextmanager
def traced(engine: Engine, conditions: str = "", *, logs: bool = False) -> Iterator[Tracer]:
    """Trace packets during a `with` block, all or those that meet the conditions (trace/conditions.py).

    Meanwhile another library of the same program processes packets with the same state. Otherwise tracing is free.

    Raises:
        ConditionError: If a condition is not valid.
        TraceError: If somebody else is tracing the switch.
        ToolchainError: If there is no C compiler.
    """
    tracer = Tracer(engine, parse_conditions(engine.program, conditions), logs=logs)
    try:
        yield tracer
    finally:
        tracer.close()


@cache
def _runtime() -> ctypes.CDLL:
    library = runtime()
    check_structs(library, {"trace_condition": TraceCondition})
    check_numbers(library, {"TRACE_CONDITIONS": TRACE_CONDITIONS, "TRACE_PORT": TRACE_PORT})
    library.switch_trace.restype = c_bool
    library.switch_trace.argtypes = [c_void_p, c_void_p, c_uint32, POINTER(TraceCondition), c_bool]
    library.switch_traced.restype = c_uint64
    library.switch_traced.argtypes = [c_void_p, POINTER(c_void_p), POINTER(c_uint64)]
    library.switch_untrace.restype = None
    library.switch_untrace.argtypes = [c_void_p]
    return library
