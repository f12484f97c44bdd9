"""Random scenarios of an in-network all-reduce in virtual time, each held against what must be true of all of them.

What must hold: every sum is exact, bit for bit; each chunk is delivered once; every worker finishes within a bound;
nothing is left over, and no packet has met a rule that faults of links, stalls and restarts cannot explain.

A scenario is drawn from its seed, and replays exactly. One that fails is shrunken: parts are taken away as long as it
still fails.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from controller.telemetry import Event, Reason
from experiments.virtual import HEADERS, Cluster, ClusterSpec, MakeWorker, Vector, load_switch, quantized_sum
from p4switch.engine import Engine
from topologies.model import leaf_spine
from topologies.virtual import SECOND, Burst, Faults, HostModel, LinkModel
from topologies.virtual.links import NO_FAULTS, Transit
from topologies.virtual.network import Observer
from topologies.virtual.packets import PacketStore
from workers import wire
from workers.collective import CollectiveError
from workers.protocol import Lease, Worker
from workers.recovery import Recovery

RECOVERY = Recovery(initial_rto=2e-3, min_rto=5e-4, max_rto=2e-2, give_up=10.0)
NOTICE = 1e-3  # seconds from a switch's restart to the new lease

# What faults of links and stalls may lead to.
EXPECTED_DROPS = {Reason.NONE, Reason.LOST, Reason.OLD_CHUNK, Reason.DUPLICATE, Reason.STALE_RESULT}
EXPECTED_IGNORED = {"duplicate"}
# With restarts, packets of an old lease, and packets that meet a switch without tables, too.
EXPECTED_AFTER_RESTART = {Reason.NOT_ADMITTED}


@dataclass(frozen=True, slots=True)
class Stall:
    """Worker `rank` does nothing for `seconds` from `begin` on."""

    rank: int
    begin: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Restart:
    """The switch of this number (modulo how many there are) loses its state at `time` (seconds)."""

    switch: int
    time: float


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that one run depends on; times in seconds, rates in bits/s, elements of each all-reduce.

    racks: workers under each leaf. overflow: workers count only themselves, so that sums meet the limits of int32.
    """

    seed: int
    racks: tuple[int, ...] = (2,)
    spines: int = 1
    rate: int | None = 10**10
    delay: float = 2e-6
    queue_bytes: int | None = None
    coalescing: float = 4e-6
    window: int = 4
    values: int = 64
    elements: tuple[int, ...] = (1000,)
    skew: float = 0.0
    faults: Faults = NO_FAULTS
    stalls: tuple[Stall, ...] = ()
    restarts: tuple[Restart, ...] = ()
    overflow: bool = False

    @property
    def workers(self) -> int:
        """How many."""
        return sum(self.racks)

    @property
    def bound(self) -> float:
        """Seconds within which all workers must have finished, but for an accident of one in millions.

        Turns of the window, one behind the other, each as long as several timeouts: a chunk crosses four links with
        an update and its result, and an attempt fails if one of them loses it.
        """
        attempts = 2 + 8 / (1 - self.faults.mean_loss) ** 4
        turns = sum(-(-self._chunks(elements) // self.window) for elements in self.elements) + 10
        held_up = sum(stall.seconds for stall in self.stalls) + self.skew
        return turns * attempts * RECOVERY.max_rto * (1 + len(self.restarts)) + held_up

    @property
    def chunks(self) -> int:
        """Of all all-reduces together."""
        return sum(map(self._chunks, self.elements))

    def _chunks(self, elements: int) -> int:
        blocks = -(-elements // self.values)
        return blocks + min(self.window, blocks)

    def __str__(self) -> str:
        """As an expression that makes it, without what is as by default."""
        default = asdict(Scenario(self.seed))
        differing = [
            f"{name}={getattr(self, name)!r}"
            for name, value in asdict(self).items()
            if value != default[name] or name == "seed"
        ]
        return f"Scenario({', '.join(differing)})"


def draw_scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    draw = random.Random(f"soak {seed}")
    leaves = draw.choice((1, 1, 2, 2, 3, 4))
    racks = tuple(draw.randint(1, 4) for _ in range(leaves))
    window = draw.choice((1, 1, 2, 3, 4, 8, 16, 64))
    values = draw.choice((64, 64, 256))
    longest = values * draw.choice((2, 8, 30)) * min(window, 8)
    elements = tuple(draw.randint(1, longest) for _ in range(draw.choice((1, 1, 2, 3))))
    workers = sum(racks)
    stalls = tuple(
        Stall(draw.randrange(workers), draw.uniform(0, 2e-3), draw.choice((1e-4, 5e-3)))
        for _ in range(draw.choice((0, 0, 0, 1, 2)))
    )
    restarts = tuple(
        Restart(draw.randrange(8), draw.uniform(0, 2e-3)) for _ in range(draw.choice((0, 0, 0, 0, 0, 1, 2)))
    )
    return Scenario(
        seed=seed,
        racks=racks,
        spines=draw.choice((0, 1, 2)) if leaves == 1 else draw.choice((1, 2)),
        rate=draw.choice((None, 10**9, 10**10, 10**11)),
        delay=draw.choice((5e-6, 2e-5)),
        queue_bytes=draw.choice((None, None, 2_500, 20_000)),
        coalescing=draw.choice((0.0, 2e-5, 2e-5, 5e-5)),
        window=window,
        values=values,
        elements=elements,
        skew=draw.choice((0.0, 0.0, 1e-4)),
        faults=_draw_faults(draw),
        stalls=stalls,
        restarts=restarts,
        overflow=workers > 1 and draw.random() < 0.1,
    )


def _draw_faults(draw: random.Random) -> Faults:
    def often(*choices: float) -> float:
        return draw.choice((0.0, *choices))

    return Faults(
        loss=often(0.001, 0.02, 0.1),
        corruption=often(0.0, 0.0, 0.02),
        duplication=often(0.01, 0.2),
        reordering=often(0.02, 0.3),
        displacement=draw.choice((2e-5, 2e-4, 2e-3)),
        burst=Burst(draw.choice((0.001, 0.01)), draw.choice((0.1, 0.3))) if draw.random() < 0.25 else None,
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, and what was wrong with it: nothing, if `violations` is empty. `seconds` are virtual."""

    violations: tuple[str, ...]
    packet_hops: int
    faults: Counter[str]
    seconds: float
    events: Counter[Event] = field(default_factory=Counter)


def run_scenario(
    scenario: Scenario,
    switch: Engine,
    make_worker: MakeWorker | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Run it on switches like `switch` (see Engine.another), and check everything."""
    inputs = [_inputs(scenario, step) for step in range(len(scenario.elements))]
    draw = np.random.Generator(np.random.PCG64([scenario.seed, 1]))
    cluster = Cluster(
        _spec(scenario),
        switch,
        inputs,
        starts=list(draw.random(scenario.workers) * scenario.skew),
        make_worker=make_worker or _worker,
        observer=observer,
    )
    for stall in scenario.stalls:
        host = cluster.members[stall.rank % scenario.workers]
        cluster.network.stall(host, stall.begin, stall.begin + stall.seconds)
    problems: list[str] = []
    restarted = 0
    try:
        for restart in sorted(scenario.restarts, key=lambda r: r.time):
            if cluster.run(max(restart.time, cluster.network.now / SECOND)):
                break
            names = list(cluster.engines)
            cluster.restart_switch(names[restart.switch % len(names)], NOTICE)
            restarted += 1
        if cluster.run(scenario.bound):
            cluster.network.run()  # what is still on its way must come to rest
            problems += _check(scenario, cluster, inputs, restarted)
        else:
            problems += _unfinished(scenario, cluster)
    except CollectiveError as error:
        problems.append(f"{type(error).__name__}: {error}")
    faults = Counter(cluster.network.faults)
    faults += Counter({"stall": len(scenario.stalls), "switch restart": restarted})
    return Outcome(
        tuple(problems),
        cluster.network.hops,
        faults,
        max((s.ended[-1] for s in cluster.stations if s.ended), default=0.0),
        Counter({event: count for event, count in cluster.events().items() if count}),
    )


def _worker(lease: Lease, recovery: Recovery) -> Worker:
    return Worker(lease, recovery, on_saturation="count")


def _spec(scenario: Scenario) -> ClusterSpec:
    topology = leaf_spine(
        scenario.spines,
        len(scenario.racks),
        max(scenario.racks),
        rate=scenario.rate,
        uplink_rate=scenario.rate,
    )
    hosts = [
        host.name
        for leaf, count in zip(topology.leaves, scenario.racks, strict=True)
        for host in topology.hosts_of(leaf.name)[:count]
    ]
    return ClusterSpec(
        topology,
        window=scenario.window,
        values=scenario.values,
        hosts=tuple(hosts),
        links=LinkModel(scenario.delay, scenario.queue_bytes, faults=scenario.faults),
        host=HostModel(scenario.coalescing),
        recovery=RECOVERY,
        counted=1 if scenario.overflow else None,
        seed=scenario.seed,
    )


def _inputs(scenario: Scenario, step: int) -> list[Vector]:
    draw = np.random.Generator(np.random.PCG64([scenario.seed, 2, step]))
    shape = scenario.workers, scenario.elements[step]
    values = draw.random(shape, np.float32) * np.float32(2) - np.float32(1)
    # Exponents that differ from block to block and from worker to worker.
    values *= np.exp2(draw.integers(-20, 20, (scenario.workers, 1))).astype(np.float32)
    if scenario.overflow:  # of one sign: then the saturated sum does not depend on the order of the additions
        values = np.abs(values)
    return list(values)


def _exact_sum(scenario: Scenario, inputs: Sequence[Vector]) -> tuple[Vector, int]:
    """What every worker must get, bit for bit, and how many chunks saturate: exact integers, dequantized."""
    return quantized_sum(inputs, scenario.values, 1 if scenario.overflow else scenario.workers)


def _check(
    scenario: Scenario, cluster: Cluster, inputs: Sequence[Sequence[Vector]], restarted: int
) -> Iterator[str]:
    """What is wrong after a run in which every worker finished."""
    expected = [_exact_sum(scenario, vectors) for vectors in inputs]
    for rank, station in enumerate(cluster.stations):
        for step, (output, (exact, _)) in enumerate(zip(station.outputs, expected, strict=True)):
            if not np.array_equal(output.view(np.int32), exact.view(np.int32)):
                wrong = np.flatnonzero(output != exact)
                yield f"rank {rank}, all-reduce {step}: {len(wrong)} wrong elements, the first at {wrong[:1]}"
        statistics = station.worker.statistics
        if not restarted:
            if statistics.accepted != scenario.chunks:
                yield f"rank {rank}: {statistics.accepted} chunks delivered of {scenario.chunks}"
            if statistics.saturated != (saturated := sum(count for _, count in expected)):
                yield f"rank {rank}: {statistics.saturated} results flagged as saturated, {saturated} are"
        if (
            unexpected := set(+statistics.ignored)
            - EXPECTED_IGNORED
            - ({"other lease"} if restarted else set())
        ):
            yield f"rank {rank}: datagrams that were {', '.join(sorted(unexpected))}"
        if station.not_ours or station.deadline() is not None:
            yield f"rank {rank}: {station.not_ours} foreign frames, next deadline {station.deadline()}"
    if cluster.network.store.in_use:
        yield f"{cluster.network.store.in_use} packets left over"
    yield from _unexpected_drops(cluster, restarted)


def _unexpected_drops(cluster: Cluster, restarted: int) -> Iterator[str]:
    expected = EXPECTED_DROPS | (EXPECTED_AFTER_RESTART if restarted else set())
    for reason, count in cluster.drops().items():
        if count and reason not in expected:
            yield f"switches dropped {count} packets as {reason.name}"


def _unfinished(scenario: Scenario, cluster: Cluster) -> Iterator[str]:
    for rank, station in enumerate(cluster.stations):
        if not station.finished:
            waits = station.worker.outstanding(cluster.network.now / SECOND)
            yield f"rank {rank} has not finished within {scenario.bound:.3g} s: {waits or 'waits for nothing'}"


def shrink(scenario: Scenario, switch: Engine, make_worker: MakeWorker | None = None) -> Scenario:
    """The smallest scenario found that still fails, from one that does."""
    while smaller := next(
        (s for s in _smaller(scenario) if s != scenario and run_scenario(s, switch, make_worker).violations),
        None,
    ):
        scenario = smaller
    return scenario


def _smaller(scenario: Scenario) -> Iterable[Scenario]:
    """Scenarios with a little less in each, the largest steps first."""
    if len(scenario.elements) > 1:
        yield from (replace(scenario, elements=scenario.elements[:-1]),)
    if len(scenario.racks) > 1:
        yield replace(scenario, racks=scenario.racks[:-1])
    for i, size in enumerate(scenario.racks):
        if size > 1:
            yield replace(scenario, racks=(*scenario.racks[:i], size - 1, *scenario.racks[i + 1 :]))
    for name in ("stalls", "restarts"):
        parts = getattr(scenario, name)
        for i in range(len(parts)):
            yield replace(scenario, **{name: parts[:i] + parts[i + 1 :]})
    without_fault: tuple[dict[str, Any], ...] = (
        *({"burst": None}, {"corruption": 0.0}, {"loss": 0.0}, {"duplication": 0.0}, {"reordering": 0.0}),
    )
    for fault in without_fault:
        yield replace(scenario, faults=replace(scenario.faults, **fault))
    plain: tuple[dict[str, Any], ...] = (
        *({"queue_bytes": None}, {"skew": 0.0}, {"spines": 1}, {"coalescing": 0.0}, {"rate": None}),
    )
    for change in plain:
        yield replace(scenario, **change)
    for i, count in enumerate(scenario.elements):
        if count > scenario.values:
            less = (*scenario.elements[:i], count // 2, *scenario.elements[i + 1 :])
            yield replace(scenario, elements=less)
    if scenario.window > 1:
        yield replace(scenario, window=scenario.window // 2)


# -- many of them ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """A scenario in which something was wrong."""

    seed: int
    violations: tuple[str, ...]


@dataclass(slots=True)
class Soak:
    """Scenarios run so far. `seconds` of real time."""

    scenarios: int = 0
    packet_hops: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    def write(self, folder: Path) -> None:
        """summary.json into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        summary = {
            "scenarios": self.scenarios,
            "packet_hops": self.packet_hops,
            "faults": dict(sorted(self.faults.items())),
            "violations": len(self.failures),
            "failures": [asdict(failure) for failure in self.failures],
            "seconds": self.seconds,
        }
        (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")


_switch: Engine  # of a process of the pool


def _load() -> None:
    global _switch
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a terminal's Ctrl-C reaches everybody; the parent ends the pool
    _switch = load_switch()


def _run_seed(seed: int) -> tuple[int, Outcome]:
    return seed, run_scenario(draw_scenario(seed), _switch)


def soak(first_seed: int, seeds: int, progress: Callable[[Soak], None]) -> Soak:
    """Run the scenarios of `seeds` seeds on all cores; `progress` is told after each."""
    begun = time.monotonic()
    so_far = Soak()
    # Spawned, not forked: a compiled program is loaded in each, and threads of this one would not come along.
    with ProcessPoolExecutor(
        min(len(os.sched_getaffinity(0)), seeds), multiprocessing.get_context("spawn"), _load
    ) as pool:
        for seed, outcome in pool.map(_run_seed, range(first_seed, first_seed + seeds), chunksize=1):
            so_far.scenarios += 1
            so_far.packet_hops += outcome.packet_hops
            so_far.faults += outcome.faults
            so_far.seconds = time.monotonic() - begun
            if outcome.violations:
                so_far.failures.append(Failure(seed, outcome.violations))
            progress(so_far)
    return so_far


class Trace:
    """An observer that writes a line for each packet that arrives: microseconds, link, what it says."""

    def __init__(self, file: TextIO, scenario: Scenario) -> None:
        self._file = file
        topology = _spec(scenario).topology
        self._links = [
            f"{near.node} > {far.node}"
            for link in topology.links
            for near, far in ((link.a, link.b), (link.b, link.a))
        ]

    def __call__(self, arrived: Transit, store: PacketStore) -> None:
        """See Observer."""
        for link, moment, packet in zip(
            arrived.links.tolist(), arrived.times.tolist(), arrived.packets.tolist(), strict=True
        ):
            size = int(store.lengths[packet]) - HEADERS
            what = wire.as_packets(store.rows[packet : packet + 1, HEADERS : HEADERS + size])[0]
            kind, index = int(what["kind"]), int(what["pool_index"])
            self._file.write(
                f"{moment / 1e6:14.6f} {self._links[link]:16} {'result' if kind >> 4 else 'update'} "
                f"lease {what['lease']} chunk {what['tsi']} slot {index & 0x7FFF} version {index >> 15} "
                f"e0 {what['e0']} values {what['values'][0]}, {what['values'][1]} …"
                f"{' saturated' if kind & wire.SATURATED else ''}\n"
            )
