"""The engine: one v1model program compiled to native code, its control plane, and its packet ports."""

from __future__ import annotations

import ctypes
import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from p4switch.bmv2json.expressions import Field
from p4switch.bmv2json.program import LONGEST_PACKET, Program, RegisterArray
from p4switch.bmv2json.reader import read_program, without_folders
from p4switch.codegen import translate
from p4switch.codegen.layout import cell_bytes
from p4switch.codegen.limits import check_limits
from p4switch.engine.action_profile import ProfileState
from p4switch.engine.batch import BatchProcessor, Departures
from p4switch.engine.entries import (
    DEFAULT_CLONE_OPTIONS,
    Clones,
    CounterValue,
    Digest,
    Entry,
    EntryAction,
    EntryKey,
    MeterConfig,
    MeterCounters,
    Replica,
    TableError,
    TableErrorCode,
)
from p4switch.engine.hash_state import HashState
from p4switch.engine.library import (
    Collected,
    Drops,
    LinkStatistics,
    PortStatistics,
    compile_program,
    load_program,
    runtime,
)
from p4switch.engine.match_table import MatchTable
from p4switch.engine.meters import Counter, Meter
from p4switch.engine.replicas import ReplicaGroups
from p4switch.engine.value_sets import ValueSetState
from p4switch.ports.links import Direction, LinkProperties
from p4switch.ports.live import LivePorts, PortError
from p4switch.trace.conditions import parse_conditions
from p4switch.trace.tracer import Tracer


class Engine:
    """One v1model program compiled to native code, with its tables, counters, registers and multicast groups.

    Every control-plane method is safe against a running forwarding loop. Names are those of the JSON; one that does
    not exist raises TableError(NOT_FOUND).
    """

    def __init__(
        self,
        program: Program,
        config: bytes,
        library: ctypes.CDLL,
        cpu_port: int | None,
        drop_port: int,
        seed: int,
    ):
        self.program = program
        self._config = config
        self._cpu_port = cpu_port
        self._drop_port = drop_port
        self._library = library
        self._base: int = library.program_open(drop_port, seed)
        if not self._base:
            raise MemoryError(f"no memory for the state of {program.name}")
        runtime().switch_open(self._base)
        self._tables: dict[str, MatchTable] = {}
        self._groups = ReplicaGroups(self._base, sessions=False)
        self._sessions = ReplicaGroups(self._base, sessions=True)
        self._profiles = {p.name: ProfileState(p) for p in program.profiles.values()}
        self._collected = Collected()
        self._batches = BatchProcessor(self._base)
        self._counter_at = _addresses(library, "program_counters", 1)
        self._register_at = _addresses(library, "program_registers", 2)
        self._meter_at = _addresses(library, "program_meters", 1)
        for index, table in enumerate(program.tables.values()):
            address = runtime().switch_table(self._base, index)
            profile = self._profiles.get(table.profile) if table.profile else None
            self._tables[table.name] = MatchTable(program, table, address, profile)
        self._value_sets = {
            s.name: ValueSetState(program, s, runtime().switch_value_set(self._base, number))
            for number, s in enumerate(program.value_sets.values())
        }
        self.priority_queues = 1
        self._holder: int | None = None  # the thread in a transaction
        self._live: list[LivePorts] = []  # one, when the ports are open
        self._close = weakref.finalize(
            self,
            _close,
            self._base,
            len(program.tables),
            len(program.value_sets),
            self._collected,
            self._live,
        )

    @classmethod
    def load(
        cls, config: bytes, *, cpu_port: int | None = None, drop_port: int = 511, seed: int = 0
    ) -> Engine:
        """Translates BMv2 JSON, compiles it (or takes it from the cache) and loads it; `seed` is that of random().

        Raises ProgramError (what is malformed or unsupported) and ToolchainError (no C compiler).
        """
        with ThreadPoolExecutor(1) as executor:
            making = executor.submit(runtime)  # which is compiled at the same time, if it has to be
            program = read_program(config)
            check_limits(program)  # a machine with more memory may have filled the cache
            library = load_program(compile_program(without_folders(config), lambda: translate(program)))
            making.result()
        return cls(program, config, library, cpu_port, drop_port, seed)

    def another(self, seed: int = 0) -> Engine:
        """A switch of the same program with a state of its own, and empty tables."""
        return Engine(self.program, self._config, self._library, self._cpu_port, self._drop_port, seed)

    def process(self, port: int, packet: bytes, now: int = 0) -> list[tuple[int, bytes]]:
        """One packet through the program; `now` in microseconds; the outputs in order as (port, packet)."""
        if len(packet) > LONGEST_PACKET:
            raise ValueError(f"a packet has at most {LONGEST_PACKET} bytes, not {len(packet)}")
        out = self._collected
        runtime().switch_process(self._base, port, packet, len(packet), now, ctypes.byref(out))
        return list(_records(ctypes.string_at(out.bytes, out.used) if out.used else b""))

    def process_batch(
        self,
        ports: NDArray[np.uint32],
        packets: NDArray[np.uint8],
        lengths: NDArray[np.uint32],
        times: NDArray[np.uint64],
    ) -> Departures:
        """Packets through the program one after the other, as by process(); rows of `packets` [count, room] hold them.

        `times` in microseconds. ValueError: a packet that comes or leaves is longer than `room`.
        """
        return self._batches.process(ports, packets, lengths, times)

    @contextmanager
    def traced(self, conditions: str = "") -> Iterator[Tracer]:
        """Traces packets for the time of a `with` block, all or those that meet the conditions (trace/conditions.py).

        Meanwhile another library of the same program works on the same state; otherwise tracing costs nothing.
        Raises ConditionError, TraceError (somebody else traces this switch) and ToolchainError.
        """
        wanted = parse_conditions(self.program, conditions)
        translated = compile_program(
            without_folders(self._config), lambda: translate(self.program, traced=True), traced=True
        )
        ports = self.port_statistics().keys() or None
        tracer = Tracer(
            self._base, self.program, load_program(translated), self._tables, ports, wanted, self._locked
        )
        try:
            yield tracer
        finally:
            tracer.close()

    # Tables

    def table_insert(self, table: str, entry: Entry) -> None:
        """Adds an entry; TableError: ALREADY_EXISTS, RESOURCE_EXHAUSTED, INVALID_ARGUMENT."""
        with self._locked():
            self._table(table).insert(entry, self.now())

    def table_modify(self, table: str, entry: Entry) -> None:
        """Changes the action of an entry; TableError: NOT_FOUND, INVALID_ARGUMENT."""
        with self._locked():
            self._table(table).modify(entry)

    def table_delete(self, table: str, key: EntryKey) -> None:
        """Removes an entry; TableError: NOT_FOUND, INVALID_ARGUMENT."""
        with self._locked():
            self._table(table).delete(key)

    def table_release(self, table: str, size: int) -> None:
        """Lets the entries that the program declares be changed, and others be added up to `size`.

        The JSON does not say whether a program declares `entries` or `const entries`; P4Info does.
        """
        with self._locked():
            self._table(table).release(size)

    def table_entries(self, table: str) -> list[Entry]:
        """Every entry of a table, those that the program declares included."""
        with self._locked():
            return self._table(table).entries()

    def table_entry(self, table: str, key: EntryKey) -> Entry | None:
        """The entry of that key, if there is one."""
        with self._locked():
            return self._table(table).entry(key)

    def table_set_default(self, table: str, action: EntryAction | None) -> None:
        """Sets what runs on a miss; None: back to the program's."""
        with self._locked():
            self._table(table).set_default(action)

    def table_default(self, table: str) -> EntryAction | None:
        """What runs on a miss; None: nothing."""
        with self._locked():
            return self._table(table).default()

    def table_counter(self, table: str, key: EntryKey | None) -> CounterValue:
        """The direct counter of an entry; here and below, None is the default entry's key."""
        with self._locked():
            return self._table(table).counter(key)

    def table_counter_write(self, table: str, key: EntryKey | None, value: CounterValue) -> None:
        """Sets the direct counter of an entry."""
        with self._locked():
            self._table(table).write_counter(key, value)

    def table_meter(self, table: str, key: EntryKey | None) -> MeterConfig | None:
        """The rates of an entry's direct meter; None: it has none, and everything is green."""
        with self._locked():
            return self._table(table).meter(key).config()

    def table_meter_write(self, table: str, key: EntryKey | None, config: MeterConfig | None) -> None:
        """Sets the rates of an entry's direct meter."""
        with self._locked():
            found = self._table(table)
            found.meter(key).configure(config, found.meter_rates)

    def table_meter_counters(self, table: str, key: EntryKey | None) -> MeterCounters:
        """What an entry's direct meter has found green, yellow and red."""
        with self._locked():
            return self._table(table).meter(key).counters()

    def table_meter_counters_write(self, table: str, key: EntryKey | None, counters: MeterCounters) -> None:
        """Sets the counters of an entry's direct meter."""
        with self._locked():
            self._table(table).meter(key).set_counters(counters)

    def table_last_hits(self, table: str) -> list[tuple[Entry, int]]:
        """Every entry of a table that supports timeouts, with the time of its last packet (microseconds; 0: none)."""
        with self._locked():
            return self._table(table).last_hits()

    @contextmanager
    def profile(self, name: str) -> Iterator[ProfileState]:
        """The members and groups of an action profile, for the time of a `with` block, which holds the lock."""
        if name not in self._profiles:
            raise TableError(TableErrorCode.NOT_FOUND, f"action profile {name} does not exist")
        with self._locked():
            yield self._profiles[name]

    def value_set_write(self, name: str, members: list[EntryKey]) -> None:
        """Replaces the members of a value set; TableError: NOT_FOUND, or as ValueSetState.write."""
        with self._locked():
            self._value_set(name).write(members)

    def value_set_members(self, name: str) -> list[EntryKey]:
        """The members of a value set."""
        with self._locked():
            return list(self._value_set(name).members)

    def _value_set(self, name: str) -> ValueSetState:
        if name not in self._value_sets:
            raise TableError(TableErrorCode.NOT_FOUND, f"value set {name} does not exist")
        return self._value_sets[name]

    # Multicast and mirroring

    def multicast_insert(self, group: int, replicas: tuple[Replica, ...]) -> None:
        """Adds a group; ids are 1..65535."""
        with self._locked():
            self._groups.insert(group, replicas)

    def multicast_modify(self, group: int, replicas: tuple[Replica, ...]) -> None:
        """Replaces the replicas of a group."""
        with self._locked():
            self._groups.modify(group, replicas)

    def multicast_delete(self, group: int) -> None:
        """Removes a group."""
        with self._locked():
            self._groups.delete(group)

    def multicast_groups(self) -> dict[int, tuple[Replica, ...]]:
        """All groups."""
        return self._groups.all()

    def session_insert(
        self, session: int, replicas: tuple[Replica, ...], clones: Clones = DEFAULT_CLONE_OPTIONS
    ) -> None:
        """Adds a mirroring session: where clones go, and what becomes of them; numbers are 0..32767."""
        with self._locked():
            self._sessions.insert(session, replicas, clones)

    def session_modify(
        self, session: int, replicas: tuple[Replica, ...], clones: Clones = DEFAULT_CLONE_OPTIONS
    ) -> None:
        """Replaces the replicas of a mirroring session, and what becomes of clones."""
        with self._locked():
            self._sessions.modify(session, replicas, clones)

    def session_delete(self, session: int) -> None:
        """Removes a mirroring session."""
        with self._locked():
            self._sessions.delete(session)

    def sessions(self) -> dict[int, tuple[Replica, ...]]:
        """All mirroring sessions."""
        return self._sessions.all()

    def set_priority_queues(self, count: int) -> None:
        """How many queues a port has, one at first: a packet of that priority or a higher one is dropped.

        The higher priority goes first where packets wait for an emulated link; elsewhere none waits.
        """
        with self._locked():
            runtime().switch_set_priority_queues(self._base, count)
            self.priority_queues = count

    # Reports

    def keep_digests(self, event: int | None) -> None:
        """Keeps digests from now on and writes to the eventfd `event` when there are some; None: no longer."""
        with self._locked():
            runtime().switch_keep_digests(self._base, -1 if event is None else event)

    def digests(self) -> list[Digest]:
        """The digests since the last call."""
        with self._locked():
            place = ctypes.c_void_p()
            used = runtime().switch_digests(self._base, ctypes.byref(place))
            data = ctypes.string_at(place, used) if used else b""
        found = []
        for number, packed in _records(data):
            kept = self.program.digests[number]
            values, at = [], 0
            for field in kept.fields:
                assert isinstance(field, Field)
                size = (self.program.field_type(field).width + 7) // 8
                values.append(int.from_bytes(packed[at : at + size], "big"))
                at += size
            found.append(Digest(kept.name, tuple(values)))
        return found

    def log_messages(self, wanted: bool) -> None:
        """Whether log_msg() writes to stderr."""
        with self._locked():
            runtime().switch_log(self._base, wanted)

    def drops(self) -> Drops:
        """How many packets were dropped because something has a bound."""
        found = Drops()
        with self._locked():
            runtime().switch_drops(self._base, ctypes.byref(found))
        return found

    def failed_assertions(self) -> int:
        """How many packets were dropped because assert() or assume() was false."""
        with self._locked():
            return int(runtime().switch_failures(self._base))

    # Counters and registers

    def counter_read(self, name: str, index: int) -> CounterValue:
        """One cell of an indirect counter."""
        with self._locked():
            cells = self._counter(name)
            self._in_range(name, index, len(cells))
            return CounterValue(cells[index].packets, cells[index].bytes)

    def counter_read_all(self, name: str) -> list[CounterValue]:
        """Every cell of an indirect counter."""
        with self._locked():
            return [CounterValue(cell.packets, cell.bytes) for cell in self._counter(name)]

    def counter_write(self, name: str, index: int, value: CounterValue) -> None:
        """Sets one cell of an indirect counter."""
        with self._locked():
            cells = self._counter(name)
            self._in_range(name, index, len(cells))
            cells[index].packets, cells[index].bytes = value.packets, value.bytes

    def meter_read(self, name: str, index: int) -> MeterConfig | None:
        """The rates of one cell of an indirect meter; None: it has not been configured, and everything is green."""
        with self._locked():
            return self._meter(name, index).config()

    def meter_write(self, name: str, index: int, config: MeterConfig | None) -> None:
        """Sets the rates of one cell of an indirect meter, with full buckets."""
        with self._locked():
            self._meter(name, index).configure(config, self.program.meters[name].rates)

    def meter_counters(self, name: str, index: int) -> MeterCounters:
        """What one cell of an indirect meter has found green, yellow and red."""
        with self._locked():
            return self._meter(name, index).counters()

    def meter_counters_write(self, name: str, index: int, counters: MeterCounters) -> None:
        """Sets the counters of one cell of an indirect meter."""
        with self._locked():
            self._meter(name, index).set_counters(counters)

    def _meter(self, name: str, index: int) -> Meter:
        indirect = [m for m in self.program.meters.values() if m.table is None]
        for meter, (offset,) in zip(indirect, self._meter_at, strict=False):
            if meter.name == name:
                self._in_range(name, index, meter.size)
                return Meter.from_address(self._base + offset + index * ctypes.sizeof(Meter))
        raise TableError(TableErrorCode.NOT_FOUND, f"meter {name} does not exist")

    def set_hash_key(self, calculation: str, key: bytes) -> None:
        """Sets the key of a calculation by toeplitz; TableError: NOT_FOUND, or INVALID_ARGUMENT for the key."""
        found = self.program.calculations.get(calculation)
        if found is None or found.algorithm != "toeplitz":
            raise TableError(
                TableErrorCode.NOT_FOUND, f"the program has no calculation {calculation} by toeplitz"
            )
        with self._locked():
            index = self.program.hash_states.index(calculation)
            HashState.from_address(runtime().switch_hash_state(self._base, index)).set_key(key)

    def register_read(self, name: str, start: int = 0, count: int | None = None) -> list[int]:
        """`count` cells from `start` (all by default), as unsigned integers."""
        register, size = self._register(name)
        end = register.size if count is None else start + count
        if not 0 <= start <= end <= register.size:
            raise TableError(
                TableErrorCode.INVALID_ARGUMENT, f"{name}: {start}..{end} of {register.size} cells"
            )
        if start == end:
            return []
        with self._locked():
            first, step = self._register_place(name, start)
            data = ctypes.string_at(first, (end - start - 1) * step + size)
        return [int.from_bytes(data[at : at + size], "little") for at in range(0, (end - start) * step, step)]

    def register_write(self, name: str, index: int, value: int) -> None:
        """Sets one cell; the value is unsigned, as wide as the register."""
        register, size = self._register(name)
        self._in_range(name, index, register.size)
        if not 0 <= value < 1 << register.width:
            raise TableError(
                TableErrorCode.INVALID_ARGUMENT, f"{name}: {value} does not fit into {register.width} bits"
            )
        with self._locked():
            cell, _ = self._register_place(name, index)
            ctypes.memmove(cell, value.to_bytes(size, "little"), size)

    def _counter(self, name: str) -> ctypes.Array[Counter]:
        indirect = [c for c in self.program.counters.values() if c.table is None]
        for counter, (offset,) in zip(indirect, self._counter_at, strict=False):
            if counter.name == name:
                return (Counter * counter.size).from_address(self._base + offset)
        raise TableError(TableErrorCode.NOT_FOUND, f"counter {name} does not exist")

    def _register(self, name: str) -> tuple[RegisterArray, int]:
        register = self.program.registers.get(name)
        if register is None:
            raise TableError(TableErrorCode.NOT_FOUND, f"register {name} does not exist")
        return register, cell_bytes(self.program, register.width)

    def _register_place(self, name: str, index: int) -> tuple[int, int]:
        """The address of a cell, and the bytes from it to the next one."""
        first, step = self._register_at[list(self.program.registers).index(name)]
        return self._base + first + index * step, step

    def _in_range(self, name: str, index: int, size: int) -> None:
        if not 0 <= index < size:
            raise TableError(
                TableErrorCode.INVALID_ARGUMENT, f"{name}: index {index} is not in 0..{size - 1}"
            )

    # Live ports

    def start(
        self,
        ports: Mapping[int, str],
        packet_in: Callable[[bytes], None] | None = None,
        *,
        offload: bool = True,
        links: Mapping[tuple[int, Direction], LinkProperties] | None = None,
    ) -> None:
        """Opens the interfaces and forwards in a thread; packets to the CPU port go to `packet_in`, in another.

        `offload`: packets that leave one behind the other may go as one superframe. `links` are emulated at their
        ports. Raises PortError.
        """
        if self._live:
            raise PortError("the ports are open already")
        self._live.append(LivePorts(self._base, ports, self._cpu_port, packet_in, offload, links or {}))

    def stop(self) -> None:
        """Ends the threads and closes the ports; may be called twice."""
        while self._live:
            self._live.pop().close()

    def packet_out(self, packet: bytes, port: int) -> None:
        """Processes a packet as if it had come in at `port` (the CPU port); what leaves goes out of the live ports.

        Raises PortError if they are not open.
        """
        if not self._live:
            raise PortError("packet-out needs open ports")
        self._live[0].packet_out(packet, port)

    def port_statistics(self) -> dict[int, PortStatistics]:
        """Packets and frames of each live port."""
        return self._live[0].statistics() if self._live else {}

    def set_link(self, port: int, direction: Direction, properties: LinkProperties) -> None:
        """Emulates a link at a live port from now on; raises PortError."""
        if not self._live:
            raise PortError("emulated links need open ports")
        with self._locked():
            self._live[0].set_link(port, direction, properties)

    def link_statistics(self, port: int, direction: Direction) -> LinkStatistics | None:
        """What has happened on an emulated link since the ports were opened; None where there has been none."""
        if not self._live:
            return None
        with self._locked():
            return self._live[0].link_statistics(port, direction)

    def now(self) -> int:
        """The time of the live ports' clock in microseconds; 0 while they are closed."""
        return self._live[0].now() if self._live else 0

    # Inside

    def _table(self, name: str) -> MatchTable:
        if name not in self._tables:
            raise TableError(TableErrorCode.NOT_FOUND, f"table {name} does not exist")
        return self._tables[name]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What this thread writes inside the `with` block, packets see all of or nothing."""
        with self._locked():
            self._holder = threading.get_ident()
            try:
                yield
            finally:
                self._holder = None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._holder == threading.get_ident():  # inside a transaction
            yield
            return
        runtime().switch_lock(self._base)
        try:
            yield
        finally:
            runtime().switch_unlock(self._base)


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbered records as the runtime keeps them: number, length (4 bytes each, native), bytes."""
    at = 0
    while at < len(data):
        number, length = struct.unpack_from("=II", data, at)
        yield number, data[at + 8 : at + 8 + length]
        at += 8 + length


def _addresses(library: ctypes.CDLL, symbol: str, columns: int) -> list[tuple[int, ...]]:
    """The rows of an array of offsets that a program exports, up to the row of zeros at its end."""
    rows: list[tuple[int, ...]] = []
    address = ctypes.addressof(ctypes.c_uint64.in_dll(library, symbol))
    while True:
        row = tuple((ctypes.c_uint64 * columns).from_address(address + 8 * columns * len(rows)))
        if row[0] == 0:
            return rows
        rows.append(row)


def _close(base: int, tables: int, value_sets: int, collected: Collected, live: list[LivePorts]) -> None:
    while live:
        live.pop().close()
    runtime().switch_close(base, tables, value_sets)
    runtime().switch_collected_free(ctypes.byref(collected))
