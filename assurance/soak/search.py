"""Search through every history of one slot: sending, loss, duplication, reordering, lost registers and a second grant.

A state of the world is the contents of the switches' cells and tables, and the chunk that each worker waits for. All
states that can be reached are visited. A packet once sent may arrive at any later time and any number of times, or
never. That covers every interleaving, and more than a network can do. Packets that were sent in one history of a state
may arrive in all of its histories, which is even more, but keeps the number of states small. So the search proves more
than necessary: that no worker takes a wrong sum even then. Whether a state can finish is examined with all packets in
flight lost: those that some history has left can only help.

The switches run the compiled program with the controller's own plans.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import chain

import numpy as np
import typer

from fanin.controller.planner import OURS, Planner
from fanin.controller.telemetry import Event, Reason
from fanin.controller.tree import FIRST_UDP_PORT, Job, Tree
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch
from fanin.simulator.hosts.stations import Flow
from fanin.simulator.tables import install
from fanin.topologies.shapes import leaf_spine
from fanin.workers import wire
from fanin.workers.wire import HEADERS

_CELLS = 2  # of the slot: its two versions
_VALUES = 64
_TELLING = 4  # values that differ; the others are 0 in every packet
_SIZE_64 = 1
_NOT_QUANTIZABLE, _OF_SCATTER, _CALL = wire.NOT_QUANTIZABLE, wire.OF_SCATTER, 5

Cells = tuple[tuple[int, ...], ...]  # contents of one switch, by register


class SearchWrongSumError(AssertionError):
    """A worker took a sum that is not its job's."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease of the slot for chunks from `first_chunk` on, of which the workers sum so many."""

    lease: int = 1
    first_chunk: int = 0
    chunks: int = 3


@dataclass(frozen=True, slots=True)
class Model:
    """The world, and what may happen in addition to loss, duplication and reordering.

    Attributes:
        racks: Workers under each leaf. With several leaves there is a tree.
        grants: One grant, or two. The controller replaces the first by the second, switch by switch, while packets and
            workers of the first still exist.
        registers_lost: Whether each switch may lose its registers once, and keep its tables.
        restarts: Whether it may also lose its tables, which are then installed again.
        overlap: Whether workers of the second grant may begin while entries of the first may still be installed, which
            the controller does not allow.
        ahead: So many workers, from rank 0 on, make another call than the others.
        types: The msg_type of each worker's updates, GIVE or TAKE. Empty: they are all UPDATE.
        scatter: Whether those that give and take do so in a scatter.
    """

    racks: tuple[int, ...] = (2,)
    grants: tuple[Grant, ...] = (Grant(),)
    registers_lost: bool = False
    restarts: bool = False
    overlap: bool = False
    ahead: int = 0
    types: tuple[int, ...] = ()
    scatter: bool = False


@dataclass(frozen=True, slots=True)
class _Packet:
    """A packet in flight to a port of a switch, or a result in flight to a worker.

    Attributes:
        switch: Number of the switch, or -1.
        port: Port of the switch.
        frame: The frame.
        worker: Rank of the worker, or -1.
        grant: Grant of the result.
        chunk: Chunk of the result.
        right: Whether it is the sum of what all workers of this grant sent for it.
    """

    switch: int = -1
    port: int = 0
    frame: bytes = b""
    worker: int = -1
    grant: int = 0
    chunk: int = 0
    right: bool = True


# Cells and tables by switch; number of results of each worker of each grant (-1: it has not begun); switches that
# have lost something, one bit each.
State = tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, ...], ...], int]


@dataclass
class World:
    """A model with switches that run `engine`'s program.

    Attributes:
        model: The model.
        engine: A switch with the program.
        planner: Plans the entries of switches.
        exponents: Whether packets carry exponents and the call, which switches compare or combine.
    """

    model: Model
    engine: Engine
    planner: Planner = OURS
    exponents: bool = True
    _cells: list[Cells] = field(default_factory=list)
    _cell_numbers: dict[Cells, int] = field(default_factory=dict)
    _packets: list[_Packet] = field(default_factory=list)
    _packet_numbers: dict[_Packet, int] = field(default_factory=dict)
    _steps: dict[tuple[int, int, int, int], tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        model = self.model
        self.topology = leaf_spine(int(len(model.racks) > 1), len(model.racks), max(model.racks))
        self.workers = [
            host
            for leaf, size in zip(self.topology.leaves, model.racks, strict=True)
            for host in self.topology.hosts_of(leaf.name)[:size]
        ]
        self.switches = [switch.name for switch in self.topology.switches]
        self._rank_of = {host.name: rank for rank, host in enumerate(self.workers)}
        self._neighbours = [self.topology.neighbours(name) for name in self.switches]
        self._plans = [
            self.planner.plan_aggregation(self.topology, self._tree(grant)) for grant in model.grants
        ]
        self._engines: dict[tuple[int, int], Engine] = {}
        self._registers = [
            name
            for name in self.engine.program.registers
            if "aggregation" in name
            and ("block_" not in name or any(name.endswith(f"block_0.r_{i}") for i in range(_TELLING)))
        ]
        self._fresh = self._number_of(tuple((0,) * _CELLS for _ in self._registers))
        self._updates = [
            [
                [self._update(number, rank, chunk) for chunk in range(grant.chunks)]
                for rank in range(len(self.workers))
            ]
            for number, grant in enumerate(model.grants)
        ]

    def _tree(self, grant: Grant) -> Tree:
        last = grant.first_chunk + grant.chunks - 1
        names = tuple(host.name for host in self.workers)
        return self.planner.aggregation_tree(
            self.topology,
            Job(
                grant.lease,
                names,
                slots=1,
                first_chunk=grant.first_chunk,
                last_chunk=last,
                checksums=False,
            ),
        )

    # -- packets

    def contribution(self, grant: int, rank: int, chunk: int) -> tuple[int, ...]:
        """Return values for which any wrong choice or number of contributions gives another sum."""
        values = [0] * _VALUES
        for i in range(_TELLING):
            values[i] = (-1) ** i * (100 ** (rank + 1) * (4 * grant + chunk + 1) + i)
        return tuple(values)

    def _datagram(self, kind: int, grant: int, chunk: int, ranks: Sequence[int]) -> bytes:
        of = self.model.grants[grant]
        number = of.first_chunk + chunk
        flag = _NOT_QUANTIZABLE if chunk % 2 and 0 in ranks else 0
        flag |= _OF_SCATTER if self.model.scatter else 0
        added = [self.contribution(grant, rank, chunk) for rank in ranks if self._type(rank) != wire.TAKE]
        sums = [sum(of_all) for of_all in zip([0] * _VALUES, *added, strict=True)]
        combined = (
            (max(ranks), flag, _CALL + (min(ranks) < self.model.ahead)) if self.exponents else (0, 0, 0)
        )
        head = kind << 4 | _SIZE_64, of.lease, number, (number & 1) << 15, *combined
        if kind in (wire.TAKE, wire.ACKNOWLEDGEMENT):
            return struct.pack(">BBIHbBI", *head)
        return struct.pack(f">BBIHbBI{_VALUES}i", *head, *sums)

    def _type(self, rank: int) -> int:
        return self.model.types[rank] if self.model.types else wire.UPDATE

    def _update(self, grant: int, rank: int, chunk: int) -> int:
        host = self.workers[rank]
        leaf = self.topology.switch(host.leaf)
        flow = Flow(host, leaf.mac, host.gateway, FIRST_UDP_PORT, FIRST_UDP_PORT)
        datagram = self._datagram(self._type(rank), grant, chunk, [rank])
        frame = flow.frames(np.frombuffer(datagram, np.uint8)[np.newaxis])[0].tobytes()
        port = self.topology.port_towards(leaf.name, host.name)
        return self._packet(_Packet(self.switches.index(leaf.name), port, frame))

    @cached_property
    def _expected(self) -> dict[tuple[int, int], tuple[int, int, bytes, bytes]]:
        """Return, by lease and chunk number, the grant, its chunk, the result, and what those who gave get."""
        everybody = range(len(self.workers))
        return {
            (grant.lease, grant.first_chunk + chunk): (
                number,
                chunk,
                self._datagram(wire.RESULT, number, chunk, everybody),
                self._datagram(wire.ACKNOWLEDGEMENT, number, chunk, everybody),
            )
            for number, grant in enumerate(self.model.grants)
            for chunk in range(grant.chunks)
        }

    def _sent(self, switch: int, port: int, frame: bytes) -> int | None:
        """Return the number of a packet that leaves a switch; None if nothing takes it."""
        node = self._neighbours[switch][port]
        if node in self._rank_of:
            lease, number = struct.unpack_from(">BI", frame, HEADERS + 1)
            if (lease, number) not in self._expected:
                return None
            rank = self._rank_of[node]
            grant, chunk, result, acknowledgement = self._expected[lease, number]
            awaited = acknowledgement if self._type(rank) == wire.GIVE else result
            if frame[HEADERS] != awaited[0]:  # a switch that has lost its registers does not know who gives
                return None
            right = frame[HEADERS:] == awaited
            return self._packet(_Packet(worker=rank, grant=grant, chunk=chunk, right=right))
        far = self.topology.port_towards(node, self.switches[switch])
        return self._packet(_Packet(self.switches.index(node), far, frame))

    def _packet(self, packet: _Packet) -> int:
        if packet not in self._packet_numbers:
            self._packet_numbers[packet] = len(self._packets)
            self._packets.append(packet)
        return self._packet_numbers[packet]

    # -- switches

    def _number_of(self, cells: Cells) -> int:
        if cells not in self._cell_numbers:
            self._cell_numbers[cells] = len(self._cells)
            self._cells.append(cells)
        return self._cell_numbers[cells]

    def _switch(self, switch: int, tables: int) -> Engine:
        """Return a switch with the tables of these grants (one bit each)."""
        if (switch, tables) not in self._engines:
            name = self.switches[switch]
            engine = self.engine.new_instance()
            install(engine, self.planner.plan_forwarding(self.topology)[name].items)
            for number, plan in enumerate(self._plans):
                if tables >> number & 1:
                    install(engine, plan[name].items)
            self._engines[switch, tables] = engine
        return self._engines[switch, tables]

    def _step(self, switch: int, tables: int, cells: int, packet: int) -> tuple[int, int]:
        """Return what the switch's cells hold after a packet, and what it sends."""
        key = switch, tables, cells, packet
        if key not in self._steps:
            engine, before = self._switch(switch, tables), self._cells[cells]
            self._write(engine, before)
            arrived = self._packets[packet]
            sent = 0
            for port, frame in engine.process(arrived.port, arrived.frame):
                number = self._sent(switch, port, frame)
                sent |= 0 if number is None else 1 << number
            after = tuple(tuple(engine.register(name).read(0, _CELLS)) for name in self._registers)
            self._steps[key] = self._number_of(after), sent
        return self._steps[key]

    def events(self) -> set[str]:
        """Return the aggregation events in any of the switches so far."""
        return self._counted("ingress.aggregation.events", Event)

    def drops(self) -> set[str]:
        """Return the reasons for which any of the switches dropped a packet so far."""
        return self._counted("ingress.drops", Reason)

    def _counted(self, counter: str, names: type[IntEnum]) -> set[str]:
        return {
            name.name
            for name in names
            for engine in self._engines.values()
            if engine.counter(counter).read(name).packets
        }

    def _write(self, engine: Engine, cells: Cells) -> None:
        for name, values in zip(self._registers, cells, strict=True):
            for i, value in enumerate(values):
                engine.register(name).write(i, value)

    # -- states

    def start(self) -> State:
        """Return the state in which nothing has been sent, and the first grant is in force."""
        count = len(self.switches)
        waiting = (0,) * len(self.workers), *((-1,) * len(self.workers) for _ in self.model.grants[1:])
        return (self._fresh,) * count, (1,) * count, waiting, 0

    def finished(self, state: State) -> bool:
        """Return whether all workers of the last grant have all their sums."""
        return all(count == self.model.grants[-1].chunks for count in state[2][-1])

    def lost(self, state: State) -> list[str]:
        """Return the switches that have lost something."""
        return [name for i, name in enumerate(self.switches) if state[3] >> i & 1]

    def waited_for(self, state: State) -> int:
        """Return the chunk that the last worker of the last grant waits for."""
        return max(0, min(state[2][-1]))

    def holders(self, state: State, chunk: int) -> set[str]:
        """Return the switches that hold the result of a chunk of the last grant, and the workers that have had it."""
        grant = self.model.grants[-1]
        number = grant.first_chunk + chunk
        wanted = {"lease": grant.lease, "chunk": number, "done": 1}
        places = [(self._registers.index(f"ingress.aggregation.{name}"), v) for name, v in wanted.items()]
        holders = {
            name
            for name, cells in zip(self.switches, state[0], strict=True)
            if all(self._cells[cells][register][number & 1] == value for register, value in places)
        }
        had = zip(self.workers, state[2][-1], strict=True)
        return holders | {host.name for host, count in had if count > chunk}

    def spontaneous(self, state: State) -> Iterator[tuple[State, int]]:
        """Yield the states after events without a packet from a switch, and what switches send then."""
        cells, tables, had, lost = state
        for number, of_grant in enumerate(had):
            for rank, count in enumerate(of_grant):
                for packet in self._updates[number][rank][: count + 1]:
                    yield self.arrival(state, packet)
        for i in range(len(self.switches)):
            if lost >> i & 1:
                continue
            without = *cells[:i], self._fresh, *cells[i + 1 :]
            if self.model.registers_lost:
                yield (without, tables, had, lost | 1 << i), 0
            if self.model.restarts:
                yield (without, (*tables[:i], 0, *tables[i + 1 :]), had, lost | 1 << i), 0
        for i, installed in enumerate(tables):
            for other in self._installs(installed, had):
                yield (cells, (*tables[:i], other, *tables[i + 1 :]), had, lost), 0
        if len(had) == 2 and had[1][0] < 0 and self._may_begin(tables):
            yield (cells, tables, (had[0], (0,) * len(self.workers)), lost), 0

    def _may_begin(self, tables: Sequence[int]) -> bool:
        """Return whether workers of the second grant may begin: it is installed everywhere, the first one nowhere."""
        return all(installed & 2 and (installed == 2 or self.model.overlap) for installed in tables)

    def _installs(self, installed: int, had: Sequence[Sequence[int]]) -> Sequence[int]:
        """Return the tables that the controller may install in a switch next; bit i stands for grant i."""
        if len(had) == 1:
            return () if installed else (1,)
        same = self.model.grants[0].lease == self.model.grants[1].lease
        begun = had[1][0] >= 0
        return {0: (2,) if begun else (1, 2), 1: (0, 2 if same else 3), 2: (), 3: (2,)}[installed]

    def arrival(self, state: State, number: int) -> tuple[State, int]:
        """Return the state after a packet's arrival, and what switches send then.

        Raises:
            WrongSumError: A worker takes a wrong sum.
        """
        cells, tables, had, lost = state
        packet = self._packets[number]
        if packet.worker < 0:
            i = packet.switch
            after, sent = self._step(i, tables[i], cells[i], number)
            if after == cells[i]:
                return state, sent
            return ((*cells[:i], after, *cells[i + 1 :]), tables, had, lost), sent
        of_grant = had[packet.grant]
        if of_grant[packet.worker] != packet.chunk:
            return state, 0
        if not packet.right:
            raise SearchWrongSumError(f"worker {packet.worker}, grant {packet.grant}, chunk {packet.chunk}")
        of_grant = *of_grant[: packet.worker], packet.chunk + 1, *of_grant[packet.worker + 1 :]
        return (cells, tables, (*had[: packet.grant], of_grant, *had[packet.grant + 1 :]), lost), 0

    def without_loss(self, state: State) -> State:
        """Return the state after a time without loss: the controller is done, and each worker retransmits its chunk.

        This covers the last grant. Arrivals are answered until nothing more is sent.
        """
        cells, _tables, had, lost = state
        last = len(had) - 1
        if had[last][0] < 0:
            had = *had[:last], (0,) * len(self.workers)
        state = cells, (1 << last,) * len(self.switches), had, lost
        for rank, count in enumerate(had[last]):
            if count == self.model.grants[last].chunks:
                continue
            waiting = deque([self._updates[last][rank][count]])
            while waiting:
                state, sent = self.arrival(state, waiting.popleft())
                waiting.extend(_bits(sent))
        return state


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        mask ^= lowest
        yield lowest.bit_length() - 1


def explore(world: World) -> dict[State, int]:
    """Return every state that can be reached, and the packets that may be in flight then.

    Raises:
        WrongSumError: A worker takes a wrong sum.
    """
    start = world.start()
    on_their_way = {start: 0}
    handled: dict[State, int] = {}
    following: dict[State, set[State]] = {}
    waiting = deque([start])

    def reach(state: State, packets: int) -> None:
        known = on_their_way.get(state, -1)
        if known < 0 or packets & ~known:
            if known < 0 or handled.get(state) == known:
                waiting.append(state)
            on_their_way[state] = packets | max(known, 0)

    while waiting:
        state = waiting.popleft()
        packets = on_their_way[state]
        before = handled.get(state)
        new = packets & ~(before or 0)
        handled[state] = packets
        after = following.setdefault(state, set())
        for other in after:
            reach(other, packets)
        arrivals = (world.arrival(state, number) for number in _bits(new))
        for other, sent in chain(world.spontaneous(state) if before is None else (), arrivals):
            if other != state:
                after.add(other)
            reach(other, packets | sent)
    return on_their_way


def stuck(world: World, states: Iterable[State]) -> list[State]:
    """Return the states that do not finish although nothing more is lost."""
    finishes: dict[State, bool] = {}
    for state in states:
        path = [state]
        while path[-1] not in finishes:
            last = path[-1]
            following = world.without_loss(last)
            if world.finished(following) or following == last:
                finishes[last] = world.finished(following)
            else:
                path.append(following)
        for one in path:
            finishes[one] = finishes[path[-1]]
    return [state for state in states if not finishes[state]]


def main(
    racks: str = "2,1",
    chunks: int = 3,
    second_first_chunk: int | None = None,
    second_lease: int = 1,
    registers_lost: bool = False,
    restarts: bool = False,
) -> None:
    """Search larger models than the tests do; `second_first_chunk` makes a second grant, of as many chunks."""
    grants = [Grant(1, 0, chunks)]
    if second_first_chunk is not None:
        grants.append(Grant(second_lease, second_first_chunk, chunks))
    model = Model(
        tuple(map(int, racks.split(","))), tuple(grants), registers_lost=registers_lost, restarts=restarts
    )
    world = World(model, load_switch())
    states = explore(world)
    typer.echo(f"{len(states)} states, no wrong sum, {len(stuck(world, states))} stuck")


if __name__ == "__main__":
    typer.run(main)
