"""Replays of traces in virtual time: every rank does the nodes of its trace, and calls collectives on the fabric.

The collectives of a group are carried out by the scenario's algorithm: in the network, what switches can do.
All-to-alls and sends go from host to host. A processor of a rank does one node at a time, and calls of a group begin in
the order of the trace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from fanin.controller.tree import SLOTS
from fanin.experiments.models.timers import recovery, virtual_window
from fanin.experiments.results.checking import Errors, Promise, oracle_of
from fanin.experiments.results.measured import Measured
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.experiments.scenario.tables.workload import (
    MOST_JOBS,
    Workload,
    array_bytes,
    groups_in_network,
)
from fanin.experiments.virtual.rank_station import Channel, ChannelStation, run_ranks
from fanin.experiments.workloads.trace import Node, Processor, Trace, TraceCall
from fanin.experiments.workloads.trace_files import load_trace
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Fabric
from fanin.simulator.hosts.stations import PeerPort, Vector, WorkerStation, addresses
from fanin.simulator.job_spec import JobSpec
from fanin.simulator.network import MakeNetwork
from fanin.workers.collective import Algorithm, Operation
from fanin.workers.host_based.engine import fastest
from fanin.workers.host_based.participant import Group
from fanin.workers.host_based.transport import FIRST_PEER_PORT

_VALUES = 4  # separates their random numbers from those of other vectors
_SHIFTS = 16  # successive calls send other parts of a rank's values, so that an old result is never right


def run_replay(settings: Settings, workload: Workload, switch: Engine, make_network: MakeNetwork) -> Measured:
    """Run a point with a trace and check all results.

    Args:
        settings: The point.
        workload: Its table.
        switch: The program of its switches.
        make_network: Builds the network, with the arguments of VirtualNetwork.

    Raises:
        TraceError: If the trace cannot be read.
        CollectiveError: If a worker gives up.
        UnfinishedError: If the run does not end.
        DeadlockError: If links pause one another in a circle.
        ControllerError: If the controller fails.
        PythonFileError: If the user's worker or controller fails.
    """
    trace = load_trace(workload.trace)
    measured = run_ranks(
        settings, switch, make_network, lambda fabric: _Replay(settings, workload, trace, fabric)
    )
    steps = [each * workload.scale for each in trace.step_seconds]
    return replace(measured, trace_step_seconds=float(np.mean(steps)) if steps else None)


class _Part(NamedTuple):
    """A call as a channel sees it: its operation and the number of float32 values of an array."""

    operation: Operation
    elements: int


class _Vectors(Sequence[Vector]):
    """The vectors that a rank puts into the calls of a channel, made when each begins."""

    def __init__(self, values: Vector, parts: Sequence[_Part]) -> None:
        self._values, self._parts = values, parts

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, call: Any) -> Any:
        return _vector(self._values, call, self._parts[call].elements).copy()


class _OfAllRanks(Sequence[Sequence[Vector]]):
    """The vectors of a job, by call and rank."""

    def __init__(self, vectors: Sequence[_Vectors]) -> None:
        self._vectors = vectors

    def __len__(self) -> int:
        return len(self._vectors[0])

    def __getitem__(self, call: Any) -> Any:
        return _OfCall(self._vectors, call)


class _OfCall(Sequence[Vector]):
    def __init__(self, vectors: Sequence[_Vectors], call: int) -> None:
        self._vectors, self._call = vectors, call

    def __len__(self) -> int:
        return len(self._vectors)

    def __getitem__(self, rank: Any) -> Any:
        return self._vectors[rank][self._call]


def _vector(values: Vector, call: int, elements: int) -> Vector:
    first = call % _SHIFTS
    return values[first : first + elements]


class _Replay:
    """The ranks of a trace on the hosts of a fabric.

    Attributes:
        stations: Their stations.
        computing: Seconds of computing of each rank's busiest processor, [ranks, steps].
        window: Packets in flight.
    """

    def __init__(self, settings: Settings, workload: Workload, trace: Trace, fabric: Fabric) -> None:
        self._settings, self._workload, self._fabric = settings, workload, fabric
        self._in_switches = settings.in_switches
        self._jobs = groups_in_network(trace, self._in_switches)[: MOST_JOBS // settings.trees]
        self.window = virtual_window(settings)
        if self._jobs:
            self.window = min(self.window, SLOTS // (settings.trees * len(self._jobs)))
        self._port = FIRST_PEER_PORT
        channels: dict[tuple[tuple[int, ...], bool, bool], dict[int, Channel]] = {}
        for ranks in self._jobs:  # jobs of the fabric come first
            calls = [call for call in trace.groups[ranks, False] if self._in_network(call)]
            channels[ranks, False, True] = self._job(ranks, calls)
        for (ranks, send), of_all in trace.groups.items():
            calls = [call for call in of_all if not self._in_network(call)]
            if calls:
                channels[ranks, send, False] = self._group(ranks, calls, len(fabric.jobs) + len(channels))
        self.stations = []
        self.computing = np.zeros((len(trace.ranks), trace.steps))
        for rank, nodes in enumerate(trace.ranks):
            own: list[Channel] = []
            places: dict[tuple[tuple[int, ...], bool, bool], int] = {}
            for key, by_rank in channels.items():
                if rank in by_rank:
                    places[key] = len(own)
                    own.append(by_rank[rank])
            called = [
                places[node.call.ranks, node.call.send, self._in_network(node.call)]
                if node.call is not None and len(node.call.ranks) > 1
                else None
                for node in nodes
            ]
            seconds = [self._seconds(node) for node in nodes]
            busy: defaultdict[tuple[int, Processor], float] = defaultdict(float)
            for node, time in zip(nodes, seconds, strict=True):
                busy[node.step, node.processor] += time
            for (step, _), time in busy.items():
                self.computing[rank, step] = max(self.computing[rank, step], time)
            self.stations.append(_ReplayStation(nodes, seconds, called, own, trace.steps))

    def errors(self) -> Iterator[Errors]:
        """Yield the errors of what ranks receive."""
        yield from (station.errors for station in self.stations)

    def _in_network(self, call: TraceCall) -> bool:
        return not call.send and call.operation in self._in_switches and call.ranks in self._jobs

    def _seconds(self, node: Node) -> float:
        workload = self._workload
        rate = workload.flops * workload.utilization
        return workload.scale * (node.seconds + node.flop / rate)

    def _values(self, ranks: Sequence[int], parts: Sequence[_Part]) -> list[Vector]:
        """Return the values from which the vectors of each rank are taken."""
        count = _SHIFTS + max(part.elements for part in parts)
        seed = self._settings.seed
        return [
            np.random.default_rng((seed, rank, _VALUES)).standard_normal(count, np.float32) for rank in ranks
        ]

    def _parts(self, calls: Sequence[TraceCall]) -> list[_Part]:
        return [
            _Part(call.operation, array_bytes(call, self._workload.scale) // ELEMENT_BYTES) for call in calls
        ]

    def _job(self, ranks: tuple[int, ...], calls: Sequence[TraceCall]) -> dict[int, Channel]:
        """Start the job that carries out calls of a group in the network, and return each rank's channel."""
        settings, parts = self._settings, self._parts(calls)
        spec = JobSpec(
            hosts=tuple(settings.members[rank] for rank in ranks),
            trees=settings.trees,
            window=self.window,
            values=settings.values,
            recovery=recovery(settings),
            congestion_control=settings.congestion_control,
            payload=settings.payload,
            priority=settings.priority,
            calls=tuple(part.operation for part in parts),
            on_call=True,
        )
        values = self._values(ranks, parts)
        inputs = _OfAllRanks([_Vectors(one, parts) for one in values])
        job = self._fabric.start(spec, inputs, make_worker=settings.implementation.make_worker, in_place=True)
        expected = self._expected(values, parts, settings.algorithm)
        return {
            rank: Channel(station, [granted.udp_port for granted in job.granted], expected, own)
            for own, (rank, station) in enumerate(zip(ranks, job.stations, strict=True))
        }

    def _group(self, ranks: tuple[int, ...], calls: Sequence[TraceCall], session: int) -> dict[int, Channel]:
        """Return each rank's channel to a group of hosts."""
        settings, topology, parts = self._settings, self._fabric.topology, self._parts(calls)
        members = [settings.members[rank] for rank in ranks]
        values, flows = self._values(ranks, parts), settings.flows_per_pair
        algorithm = "ring" if settings.algorithm == "in-network" else settings.algorithm
        expected = self._expected(values, parts, algorithm)
        first, self._port = self._port, self._port + len(ranks) * flows
        found = {}
        for own, rank in enumerate(ranks):
            host = topology.host(members[own])
            group = Group(
                own,
                len(ranks),
                algorithm,
                settings.transport or "selective-repeat",
                settings.shards,
                self.window,
                settings.window_per,
                session=session,
                flows=flows,
                calls=tuple(part.operation for part in parts),
                make_control=settings.congestion_control(topology, host.name),
                payload=settings.payload,
            )
            port = PeerPort(
                fastest(group, recovery(settings)),
                host,
                topology.switch(host.leaf).mac,
                addresses(topology.host(name) for name in members),
                self._fabric.card(host.name),
                settings.priority,
                first,
            )
            # An all-to-all must not write into what it sends.
            in_place = all(part.operation != "all-to-all" for part in parts)
            station = WorkerStation(port, _Vectors(values[own], parts), in_place=in_place, called=0)
            others = [peer for peer in range(len(ranks)) if peer != own]
            ports = [first + peer * flows + flow for peer in others for flow in range(flows)]
            found[rank] = Channel(station, ports, expected, own)
        return found

    def _expected(self, values: Sequence[Vector], parts: Sequence[_Part], algorithm: Algorithm) -> Any:
        """Return a function that returns what a call must give."""
        oracle = oracle_of(self._settings, algorithm, self.window, trees=self._settings.trees)

        @lru_cache(maxsize=8)
        def expected(call: int) -> Promise:
            part = parts[call]
            return oracle.promise([_vector(one, call, part.elements) for one in values], part.operation)

        return expected


class _ReplayStation(ChannelStation):
    """A Station that does the nodes of a rank.

    Args:
        nodes: The nodes.
        seconds: Seconds of computing of each.
        called: The number of the channel that a node calls; None for computing.
        channels: The channels.
        steps: Number of steps.

    Attributes:
        ended: When it finished each step, in seconds.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        seconds: Sequence[float],
        called: Sequence[int | None],
        channels: Sequence[Channel],
        steps: int,
    ) -> None:
        super().__init__(channels)
        self._nodes, self._seconds, self._called = nodes, seconds, called
        self._waiting = [len(node.after) for node in nodes]
        self._followers: list[list[int]] = [[] for _ in nodes]
        for number, node in enumerate(nodes):
            for before in node.after:
                self._followers[before].append(number)
        self._left = [0] * steps
        for node in nodes:
            self._left[node.step] += 1
        # By channel: its nodes in the order of the trace, how many have been called, and how many have ended.
        self._order: list[list[int]] = [[] for _ in channels]
        for number, channel in enumerate(called):
            if channel is not None:
                self._order[channel].append(number)
        self._begun, self._over = [0] * len(channels), [0] * len(channels)
        self._may_call = [False] * len(nodes)
        self._ready: dict[Processor, list[int]] = {"cpu": [], "gpu": []}
        self._computes: dict[Processor, tuple[float, int]] = {}  # until when, and the node
        for number, count in enumerate(self._waiting):
            if not count:
                self._let(number)
        self._close_steps()

    @property
    def _done(self) -> bool:
        return len(self.ended) == len(self._left)

    @property
    def _next_time(self) -> float | None:
        return min((until for until, _ in self._computes.values()), default=None)

    def _may_go_on(self) -> bool:
        return any(self._calls_over(place) > over for place, over in enumerate(self._over))

    def _calls_over(self, place: int) -> int:
        return len(self._channels[place].station.outputs)

    def _go_on(self) -> None:
        """End what has ended, and begin what can begin."""
        progress = True
        while progress:
            progress = False
            for processor, (until, number) in list(self._computes.items()):
                if self._now >= until:
                    del self._computes[processor]
                    self._end(number)
                    progress = True
            for place in range(len(self._channels)):
                while self._over[place] < self._calls_over(place):
                    self._over[place] += 1
                    self._end(self._order[place][self._over[place] - 1])
                    progress = True
                order = self._order[place]
                while self._begun[place] < len(order) and self._may_call[order[self._begun[place]]]:
                    self._begun[place] += 1
                    self._channels[place].call()
            for processor, ready in self._ready.items():
                if ready and processor not in self._computes:
                    number = heappop(ready)
                    self._computes[processor] = self._now + self._seconds[number], number
                    progress |= not self._seconds[number]

    def _let(self, number: int) -> None:
        """Let a node begin that waits for no other."""
        if self._called[number] is None:
            heappush(self._ready[self._nodes[number].processor], number)
        else:
            self._may_call[number] = True

    def _end(self, number: int) -> None:
        for other in self._followers[number]:
            self._waiting[other] -= 1
            if not self._waiting[other]:
                self._let(other)
        self._left[self._nodes[number].step] -= 1
        self._close_steps()

    def _close_steps(self) -> None:
        while len(self.ended) < len(self._left) and not self._left[len(self.ended)]:
            self.ended.append(self._now)
