"""The engine: one v1model program compiled to native code, its control plane, and its packet ports."""

from __future__ import annotations

import ctypes
import struct
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, lru_cache, partial
from typing import TypeVar

from fanin.native.collector import uncollected
from fanin.p4switch.bmv2json.expressions import Field
from fanin.p4switch.bmv2json.primitive_kind import Message
from fanin.p4switch.bmv2json.program import LONGEST_PACKET, Primitive, Program, ProgramError, Set
from fanin.p4switch.codegen.analysis.limits import check_limits
from fanin.p4switch.codegen.layout import cell_bytes
from fanin.p4switch.engine.action_profile import ProfileState
from fanin.p4switch.engine.arrays import CounterCells, MeterCells, RegisterCells
from fanin.p4switch.engine.hash_state import HashState
from fanin.p4switch.engine.library import (
    MESSAGE_OF_DROP,
    Collected,
    Drops,
    LinkStatistics,
    PortStatistics,
    compile_program,
    load_program,
    runtime,
)
from fanin.p4switch.engine.links import Direction, LinkProperties
from fanin.p4switch.engine.live_ports import LivePorts, PortError
from fanin.p4switch.engine.match_table import MatchTable, TableShape
from fanin.p4switch.engine.replicas import ReplicaGroups
from fanin.p4switch.engine.switch import RunningSwitch
from fanin.p4switch.engine.value_sets import ValueSetState
from fanin.p4switch.entries import Digest, TableError, TableErrorCode
from fanin.p4switch.reader import read_program, without_folders

_Named = TypeVar("_Named")
_MAX_KEPT = 4  # programs; a controller that connects again often sets the one the switch already has


class Engine:
    """v1model program compiled to native code, with its tables, counters, registers and multicast groups.

    `multicast` and `sessions` are its multicast groups and mirroring sessions, `base` is the address of its state, and
    `drop_port` the value of egress_spec that drops a packet.
    All methods of the engine and its parts may be called while it forwards. Packets see all or nothing of what a thread
    writes while it holds `lock`. Names are those of the JSON. An unknown name is raised as TableError, NOT_FOUND.
    """

    def __init__(
        self,
        config: bytes,
        program: Program,
        library: ctypes.CDLL,
        shapes: Mapping[str, TableShape],
        cpu_port: int | None,
        drop_port: int,
        seed: int,
    ):
        self.program = program
        self._config = config
        self._cpu_port = cpu_port
        self.drop_port = drop_port
        self._library = library
        self._shapes = shapes
        self._switch = switch = RunningSwitch(program, library, drop_port, seed)
        self.base, self.lock = switch.base, switch.lock
        self._profiles = {p.name: ProfileState(switch, p) for p in program.profiles.values()}
        self._tables = {
            table.name: MatchTable(
                switch,
                shapes[table.name],
                runtime().switch_table(switch.base, index),
                self._profiles.get(table.profile) if table.profile else None,
            )
            for index, table in enumerate(program.tables.values())
        }
        self._value_sets = {
            s.name: ValueSetState(switch, program, s, runtime().switch_value_set(switch.base, number))
            for number, s in enumerate(program.value_sets.values())
        }
        self.multicast = ReplicaGroups(switch, sessions=False)
        self.sessions = ReplicaGroups(switch, sessions=True)
        counters = [c for c in program.counters.values() if c.table is None]
        self._counters = {
            counter.name: CounterCells(switch, counter, offset)
            for counter, (offset,) in zip(counters, _addresses(library, "program_counters", 1), strict=False)
        }
        meters = [m for m in program.meters.values() if m.table is None]
        self._meters = {
            meter.name: MeterCells(switch, meter, offset)
            for meter, (offset,) in zip(meters, _addresses(library, "program_meters", 1), strict=False)
        }
        self.priority_queues = 1
        self._collected = Collected()
        weakref.finalize(self, _free, self._collected)

    @classmethod
    def load(
        cls, config: bytes, *, cpu_port: int | None = None, drop_port: int = 511, seed: int = 0
    ) -> Engine:
        """Translate BMv2 JSON to C, compile it or take the result from the cache, and load it.

        Args:
            config: The BMv2 JSON.
            cpu_port: The port to the control plane, or None.
            drop_port: The value of egress_spec that drops a packet.
            seed: The seed of random().

        Raises:
            ProgramError: If the program is malformed or not supported. The message names the element.
            ToolchainError: If there is no C compiler.
        """
        try:
            return cls(config, *_compiled(config), cpu_port, drop_port, seed)
        except TableError as error:  # one of the program's entries
            raise ProgramError(str(error)) from None

    @cached_property
    def _registers(self) -> dict[str, RegisterCells]:
        """Return all registers. A program may have hundreds, which many switches never need."""
        program, places = self.program, _addresses(self._library, "program_registers", 2)
        return {
            register.name: RegisterCells(self._switch, register, cell_bytes(program, register.width), *place)
            for register, place in zip(program.registers.values(), places, strict=False)
        }

    def new_instance(self, seed: int = 0) -> Engine:
        """Return a switch of the same program with its own state and empty tables."""
        return Engine(
            self._config, self.program, self._library, self._shapes, self._cpu_port, self.drop_port, seed
        )

    def process(self, port: int, packet: bytes, now: int = 0) -> list[tuple[int, bytes]]:
        """Process one packet.

        Args:
            port: The port it arrives at.
            packet: Its bytes.
            now: The time in microseconds.

        Returns:
            The packets that leave, in order, as (port, packet).

        Raises:
            ValueError: If the packet is too long.
        """
        if len(packet) > LONGEST_PACKET:
            raise ValueError(f"a packet has at most {LONGEST_PACKET} bytes, not {len(packet)}")
        out = self._collected
        runtime().switch_process(self.base, port, packet, len(packet), now, ctypes.byref(out))
        return list(_records(ctypes.string_at(out.bytes, out.used) if out.used else b""))

    @property
    def run_function(self) -> int:
        """Return the address of the C function that runs the switch on packets of other C: native/program.h."""
        return ctypes.cast(runtime().switch_run, ctypes.c_void_p).value or 0

    def load_traced(self) -> ctypes.CDLL:
        """Compile the program with tracing: C that records what it does with each packet.

        Raises:
            ToolchainError: If there is no C compiler.
        """
        return load_program(
            compile_program(
                without_folders(self._config), partial(_translated, self.program, traced=True), traced=True
            )
        )

    @property
    def tables(self) -> Mapping[str, MatchTable]:
        """Return all tables, by name."""
        return self._tables

    # Access for the control plane

    def table(self, name: str) -> MatchTable:
        """Return a table."""
        return _named(self._tables, name, "table")

    def profile(self, name: str) -> ProfileState:
        """Return the members and groups of an action profile."""
        return _named(self._profiles, name, "action profile")

    def value_set(self, name: str) -> ValueSetState:
        """Return a parser value set."""
        return _named(self._value_sets, name, "value set")

    def counter(self, name: str) -> CounterCells:
        """Return an indirect counter."""
        return _named(self._counters, name, "counter")

    def meter(self, name: str) -> MeterCells:
        """Return an indirect meter."""
        return _named(self._meters, name, "meter")

    def register(self, name: str) -> RegisterCells:
        """Return a register."""
        return _named(self._registers, name, "register")

    def keep_cells(self, previous: Engine) -> None:
        """Take over the cells of registers and counters of another program, if this one has the same.

        An entry's direct counter is kept if both programs have the entry.
        """
        with previous.lock, self.lock:
            for name, register in self._registers.items():
                register.keep(previous._registers.get(name))
            for name, counter in self._counters.items():
                counter.keep(previous._counters.get(name))
            for name, table in self._tables.items():
                if name in previous._tables:
                    table.keep_counters(previous._tables[name])

    def set_priority_queues(self, count: int) -> None:
        """Set the number of queues of every port, initially one. Packets of that priority or a higher one are dropped.

        Packets with a higher priority go first on an emulated link. Without one there is no queue.
        """
        with self.lock:
            runtime().switch_set_priority_queues(self.base, count)
            self.priority_queues = count

    @property
    def config(self) -> bytes:
        """Return the BMv2 JSON that the engine was loaded from."""
        return self._config

    def set_crc(
        self,
        calculation: str,
        polynomial: int,
        initial: int,
        final: int,
        *,
        reflect_input: bool,
        reflect_output: bool,
    ) -> None:
        """Set the parameters of a crc16_custom or crc32_custom. Before, they are crc16 and crc32.

        Raises:
            TableError: NOT_FOUND if there is no such calculation.
        """
        found = self.program.calculations.get(calculation)
        if found is None or found.algorithm not in ("crc16_custom", "crc32_custom"):
            raise TableError(TableErrorCode.NOT_FOUND, f"the program has no custom CRC {calculation}")
        with self.lock:
            state = self._hash_state(calculation)
            state.polynomial, state.initial, state.final = polynomial, initial, final
            state.reflects_input, state.reflects_output = reflect_input, reflect_output
            state.crc_set = True

    def set_hash_key(self, calculation: str, key: bytes) -> None:
        """Set the key of a toeplitz calculation.

        Raises:
            TableError: NOT_FOUND, or INVALID_ARGUMENT for the key.
        """
        found = self.program.calculations.get(calculation)
        if found is None or found.algorithm != "toeplitz":
            raise TableError(
                TableErrorCode.NOT_FOUND, f"the program has no toeplitz calculation {calculation}"
            )
        with self.lock:
            self._hash_state(calculation).set_key(key)

    def _hash_state(self, calculation: str) -> HashState:
        index = self.program.hash_states.index(calculation)
        return HashState.from_address(runtime().switch_hash_state(self.base, index))

    # Reports

    def keep_digests(self, event: int | None) -> None:
        """Start to keep digests, and write to the eventfd `event` when there are some. None stops it."""
        with self.lock:
            runtime().switch_keep_digests(self.base, -1 if event is None else event)

    def digests(self) -> list[Digest]:
        """Return the digests since the last call."""
        with self.lock:
            place = ctypes.c_void_p()
            used = runtime().switch_digests(self.base, ctypes.byref(place))
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

    def wake_for_messages(self, event: int | None) -> None:
        """Write to the eventfd `event` from now on when there are messages. None stops it."""
        with self.lock:
            runtime().switch_wake_for_messages(self.base, -1 if event is None else event)

    def messages(self) -> tuple[list[Message], int]:
        """Return the messages since the last call, and the number of those that there was no room for."""
        place, lost = ctypes.c_void_p(), ctypes.c_uint64()
        with self.lock:
            used = runtime().switch_messages(self.base, ctypes.byref(place), ctypes.byref(lost))
            data = ctypes.string_at(place, used) if used else b""
        return [self._message(number, packed) for number, packed in _records(data)], lost.value

    def _message(self, number: int, packed: bytes) -> Message:
        if number == MESSAGE_OF_DROP:
            return Message("error", f"a packet is dropped: {packed.decode()} (further ones are only counted)")
        statement = self._statements[number]
        assert isinstance(statement, Primitive)
        assert statement.kind.message is not None
        return statement.kind.message(statement, struct.unpack(f"={len(packed) // 8}Q", packed))

    @cached_property
    def _statements(self) -> Sequence[Primitive | Set]:
        # Imported here because few programs have messages.
        from fanin.p4switch.codegen.tracing import Numbers

        return Numbers(self.program).statements

    def drops(self) -> Drops:
        """Return the numbers of packets dropped because of limits."""
        found = Drops()
        with self.lock:
            runtime().switch_drops(self.base, ctypes.byref(found))
        return found

    def failed_assertions(self) -> int:
        """Return the number of packets dropped because of a failed assert() or assume()."""
        with self.lock:
            return int(runtime().switch_failures(self.base))

    # Live ports

    def start(
        self,
        ports: Mapping[int, str],
        packet_in: Callable[[bytes], None] | None = None,
        *,
        offload: bool = True,
        links: Mapping[tuple[int, Direction], LinkProperties] | None = None,
        captures: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        """Open the interfaces and forward packets in a thread.

        Args:
            ports: The interfaces by port number.
            packet_in: Receives packets to the CPU port, in another thread.
            offload: Whether packets that leave one after another may be sent as one superframe.
            links: The links to emulate at the ports.
            captures: The files that record the packets of a port, arriving and leaving, as descriptors of pcap files.

        Raises:
            PortError: If ports are open already, or one cannot be opened.
        """
        if self._switch.live:
            raise PortError("the ports are open already")
        self._switch.live.append(
            LivePorts(self.base, ports, self._cpu_port, packet_in, offload, links or {}, captures or {})
        )

    def stop(self) -> None:
        """Stop the threads and close the ports. It may be called twice."""
        while self._switch.live:
            self._switch.live.pop().close()

    def packet_out(self, packet: bytes, port: int) -> None:
        """Process a packet as if it had arrived at `port`. The results are sent through the live ports.

        Raises:
            PortError: If the ports are not open, or the packet is too long.
        """
        if not self._switch.live:
            raise PortError("packet-out needs open ports")
        self._switch.live[0].packet_out(packet, port)

    def port_statistics(self) -> dict[int, PortStatistics]:
        """Return the numbers of packets and frames of each live port."""
        return self._switch.live[0].statistics() if self._switch.live else {}

    def set_link(self, port: int, direction: Direction, properties: LinkProperties) -> None:
        """Emulate a link at a live port from now on.

        Raises:
            PortError: If the port is not open, or there is no memory.
        """
        if not self._switch.live:
            raise PortError("emulated links need open ports")
        with self.lock:
            self._switch.live[0].set_link(port, direction, properties)

    def link_statistics(self, port: int, direction: Direction) -> LinkStatistics | None:
        """Return the statistics of an emulated link since the ports were opened; None if there has been none."""
        if not self._switch.live:
            return None
        with self.lock:
            return self._switch.live[0].link_statistics(port, direction)

    def now(self) -> int:
        """Return the time of the live ports' clock in microseconds; 0 while they are closed."""
        return self._switch.now()


@lru_cache(_MAX_KEPT)
def _compiled(config: bytes) -> tuple[Program, ctypes.CDLL, Mapping[str, TableShape]]:
    """Return a program, its native code, from the cache or compiled, and its tables."""
    with ThreadPoolExecutor(1) as executor:
        making = executor.submit(runtime)  # compiles the runtime at the same time, if necessary
        with uncollected():
            program = read_program(config)
        # also for cached programs: another machine with more memory may have filled the cache
        check_limits(program)
        library = load_program(compile_program(without_folders(config), partial(_translated, program)))
        making.result()
    return program, library, {t.name: TableShape.of(program, t) for t in program.tables.values()}


def _translated(program: Program, *, traced: bool = False) -> str:
    """Return the C of a program that is not in the cache."""
    # Imported here because it takes as long to load as the rest of a switch whose program is in the cache.
    from fanin.p4switch.codegen.translate import translate

    return translate(program, traced=traced)


def _named(parts: Mapping[str, _Named], name: str, kind: str) -> _Named:
    if name not in parts:
        raise TableError(TableErrorCode.NOT_FOUND, f"{kind} {name} does not exist")
    return parts[name]


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered records of the runtime: number, length (4 bytes each, native order), bytes."""
    at = 0
    while at < len(data):
        number, length = struct.unpack_from("=II", data, at)
        yield number, data[at + 8 : at + 8 + length]
        at += 8 + length


@lru_cache(3 * _MAX_KEPT)
def _addresses(library: ctypes.CDLL, symbol: str, columns: int) -> tuple[tuple[int, ...], ...]:
    """Return the rows of an array of offsets that a program exports, up to the row of zeros at its end."""
    rows: list[tuple[int, ...]] = []
    address = ctypes.addressof(ctypes.c_uint64.in_dll(library, symbol))
    while True:
        row = tuple((ctypes.c_uint64 * columns).from_address(address + 8 * columns * len(rows)))
        if row[0] == 0:
            return tuple(rows)
        rows.append(row)


def _free(collected: Collected) -> None:
    runtime().switch_collected_free(ctypes.byref(collected))
