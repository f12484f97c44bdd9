"""End-to-end benchmark of all-reduce on live networks: through the switches, with a ring over TCP, and with Gloo.

On each network every algorithm has a group of processes, one in each host's namespace. The groups take turns, round by
round, so that other activity on the machine affects all of them. Every result is compared with the exact sum.

This is not a scenario over experiments/live/run.py, which would lose what is measured here. Points of a scenario run
one after the other, each with its own processes, so groups could not take turns. Gloo's workers run in PyTorch's
Python, which need not have what experiments/live/worker.py imports. Rows of points have no columns for the processor
time of workers and switches, nor for where in a worker it is spent. And a scenario records every input and output
vector, 4.8 GB for three of the largest with 8 workers; here each vector is checked where it is.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.bench.allreduce_worker import Join, Order, Report
from fanin.assurance.bench.neighbour import KINDS, NOTHING, neighbours
from fanin.controller.controller import Controller
from fanin.controller.jobs.ledger import Ledger
from fanin.controller.requirements import PROGRAM
from fanin.controller.tree import Job
from fanin.experiments.scenario.compilers import CompiledProgram, compile_program
from fanin.experiments.scenario.targets import EMBEDDED
from fanin.native.files import write_json
from fanin.testbed.interrupt import run_until_interrupted
from fanin.testbed.mininet_net import MininetNetwork
from fanin.testbed.runs import scratch
from fanin.testbed.worker_process import Start, WorkerProcess, start_on
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from fanin.topologies.units import RATES, quantity_text
from fanin.workers.recovery import Pace

ROOT = Path(__file__).parents[3]
ALGORITHMS = ("in-network", "ring", "gloo")
SIZES = (1 << 10, 16 << 10, 64 << 10, 256 << 10, 1_000_000, 10_000_000, 100_000_000)  # bytes
WORKERS = (4, 8)
GIGABIT = 10**9
ROUNDS, ROUNDS_OF_LARGEST, LARGEST = 5, 3, 50_000_000  # LARGEST: bytes from which a round takes long
SILENCE = 120.0  # seconds
_BARRIERS = 20
_BURST = 1.1  # of its rate: a link exceeds this only for a moment, while its bucket is full
_TCP_PORTS = {"ring": 5001, "gloo": 5101}
EFFICIENCY = 1024 / 1104  # share of a packet's bytes on the wire that are values


class BenchError(RuntimeError):
    """A worker ended too early. The message has the end of its output."""


@dataclass(frozen=True, slots=True)
class BenchNetwork:
    """A network to measure on: a single switch, or 2 leaves below 2 spines.

    Attributes:
        workers: Number of workers.
        leaves: 1 or 2.
        rate: Rate of each link in bits/s. None is unlimited.
        offload: Whether to send many datagrams in a frame, if the kernel can.
    """

    workers: int
    leaves: int
    rate: int | None = None
    offload: bool = True

    @property
    def topology(self) -> Topology:
        """Return its switches, hosts and links."""
        spines = 0 if self.leaves == 1 else 2
        return leaf_spine(
            spines, self.leaves, self.workers // self.leaves, rate=self.rate, offload=self.offload
        )

    def __str__(self) -> str:
        """Return its description for a table."""
        switches = "one switch" if self.leaves == 1 else "leaf-spine 2x2"
        rate = "unlimited" if self.rate is None else quantity_text(self.rate, RATES)
        return f"{self.workers} workers, {switches}, {rate}"


@dataclass(frozen=True, slots=True)
class Timing:
    """One algorithm at one size: medians over all repetitions. Times are in seconds.

    Attributes:
        seconds: From the last worker's call to the last worker's result.
        least: The smallest of these times.
        repetitions: Number of repetitions.
        goodput_bits_per_second: Bits of the vector per second.
        user: User processor time of all workers together.
        system: System processor time of all workers together.
        retransmissions: Retransmissions of the whole series.
        wrong: Number of elements outside their bound.
    """

    seconds: float
    least: float
    repetitions: int
    goodput_bits_per_second: float
    user: float
    system: float
    retransmissions: int
    wrong: int


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of the time of an in-network all-reduce, in seconds, and what limits it.

    Attributes:
        worker: Time of the mean worker by part. Receive and send are the kernel's; the rest is Python and exponents.
        switches: Processor time of all switches, including the kernel and yielding afterwards.
        busy: Processor time of all processes, including waits that yield, as a share of what the cores had from the
            first call to the last result.
        limit: What limits the speed, in words.
    """

    worker: dict[str, float]
    switches: float
    busy: float
    limit: str


@dataclass(frozen=True, slots=True)
class AllReduceCase:
    """One size on one network.

    Attributes:
        network: Description of the network.
        beside: What else kept a core busy, one of neighbour.KINDS.
        superframes: Whether datagrams crossed the network many in a frame.
        workers: Number of workers.
        leaves: Number of leaves.
        link_bits_per_second: Rate of each link, or None.
        bytes: Size of the vector.
        measured: Timing of each algorithm.
        ratios: How many times as long each other algorithm takes as in-network aggregation.
        split: Where the time goes.
    """

    network: str
    beside: str
    superframes: bool
    workers: int
    leaves: int
    link_bits_per_second: int | None
    bytes: int
    measured: dict[str, Timing]
    ratios: dict[str, float]
    split: Split


def networks(workers: Sequence[int], plain: bool) -> list[BenchNetwork]:
    """Return the networks of the benchmark; with `plain`, each also with plain frames only."""
    each = [
        *(BenchNetwork(count, leaves) for leaves in (1, 2) for count in workers),
        *(BenchNetwork(count, 1, GIGABIT) for count in workers),
    ]
    return [
        replace(network, offload=offload)
        for network in each
        for offload in ((True, False) if plain else (True,))
    ]


def repetitions(size: int, rate: int | None) -> int:
    """Return the repetitions in a round, so that no size takes much longer than another."""
    return max(1, min(20, round((60_000_000 if rate is None else 20_000_000) / size)))


class Group:
    """The processes of one algorithm, by rank."""

    def __init__(self, joins: Sequence[Join], start: Start, python: Path, folder: Path) -> None:
        self._name = joins[0].algorithm
        self._workers: list[WorkerProcess] = []
        argv = [str(python), "-m", "fanin.assurance.bench.allreduce_worker"]
        paths = ":".join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        for join in joins:
            errors = folder / f"{join.algorithm}-{join.rank}.err"
            self._workers.append(WorkerProcess(start, join.rank, argv, errors, {"PYTHONPATH": paths}))

    async def ask(self, documents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send a document to each process, and return their answers by rank.

        Raises:
            BenchError: A process has ended, or all are silent.
        """
        for worker, document in zip(self._workers, documents, strict=True):
            worker.tell(json.dumps(document).encode())
        answers = [asyncio.create_task(self._answer(rank)) for rank in range(len(self._workers))]
        waiting = set(answers)
        try:
            while waiting:
                heard, waiting = await asyncio.wait(
                    waiting, timeout=SILENCE, return_when=asyncio.FIRST_COMPLETED
                )
                if not heard:
                    raise BenchError(f"{self._name}: its group has not answered for {SILENCE:g} s")
                for answer in heard:
                    answer.result()
        finally:
            for answer in waiting:
                answer.cancel()
        return [answer.result() for answer in answers]

    async def _answer(self, rank: int) -> dict[str, Any]:
        line = await self._workers[rank].hear()
        if not line:
            raise BenchError(f"{self._name}-{rank}: {await self._workers[rank].end()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def measure(self, order: Order) -> list[Report]:
        """Return every worker's report, by rank.

        Raises:
            BenchError: See ask.
        """
        return [Report(**said) for said in await self.ask([asdict(order)] * len(self._workers))]

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.kill()


def measure_network(
    on: BenchNetwork,
    sizes: Sequence[int],
    program: CompiledProgram,
    gloo_python: Path | None,
    rounds: int,
    progress: Callable[[AllReduceCase], None],
    beside: Sequence[str] = (NOTHING,),
) -> list[AllReduceCase]:
    """Measure all sizes on one network, smallest first.

    Args:
        on: The network.
        sizes: Sizes in bytes.
        program: Program of the switches.
        gloo_python: A Python that has Gloo, or None.
        rounds: Number of rounds.
        progress: Called with each case.
        beside: What else keeps a core busy, in turns: some of neighbour.KINDS.

    Raises:
        BenchError: A worker ended.
        NetworkError: The network is not in order.
        ControllerError: The controller failed.
    """
    topology = on.topology
    with tempfile.TemporaryDirectory(prefix="bench-", dir=scratch()) as name:
        folder = Path(name)
        with MininetNetwork(topology, EMBEDDED.launcher, folder) as network:

            async def run() -> list[AllReduceCase]:
                ledger = Ledger(folder / "leases.json")
                made = (topology, program.p4info, program.device_config, ledger, network.patience)
                async with Controller(*made) as controller:
                    pace = EMBEDDED.live_pace(on.rate)
                    hosts = [host.name for host in topology.ranked_hosts]
                    start = start_on(network, hosts)
                    grant = await controller.grant(hosts, slots=pace.window)
                    with ExitStack() as stack:
                        busy = neighbours(beside, stack)
                        groups = {}
                        for algorithm in ALGORITHMS:
                            if python := gloo_python if algorithm == "gloo" else Path(sys.executable):
                                joins = _joins(algorithm, topology, grant.tree.job, pace)
                                groups[algorithm] = group = Group(joins, start, python, folder)
                                stack.callback(group.close)
                                await group.ask([asdict(join) for join in joins])
                        cases = []
                        barrier = await _barrier_seconds(groups["in-network"], network)
                        for size in sizes:
                            of_size = await _measure_size(on, size, groups, network, rounds, barrier, busy)
                            for case in of_size:
                                progress(case)
                            cases += of_size
                        return cases

            return run_until_interrupted(run())


def _joins(algorithm: str, topology: Topology, job: Job, pace: Pace) -> list[Join]:
    hosts = topology.ranked_hosts
    return [
        Join(
            algorithm=algorithm,
            rank=rank,
            hosts=tuple(str(host.ip) for host in hosts),
            port=job.udp_port if algorithm == "in-network" else _TCP_PORTS[algorithm],
            interface=topology.links_of(host.name)[0].end(host.name).interface,
            switch=str(host.gateway),
            lease=job.lease_of(rank),
            segments=pace.segments,
        )
        for rank, host in enumerate(hosts)
    ]


async def _barrier_seconds(group: Group, network: MininetNetwork) -> float:
    """Return the switches' processor time for the barrier before each all-reduce, itself one of a single element."""
    before = network.switch_seconds()
    await group.measure(Order(1, _BARRIERS))
    return (network.switch_seconds() - before) / (_BARRIERS + 1) / 2


async def _measure_size(
    on: BenchNetwork,
    size: int,
    groups: Mapping[str, Group],
    network: MininetNetwork,
    rounds: int,
    barrier: float,
    busy: Mapping[str, AbstractContextManager[None]],
) -> list[AllReduceCase]:
    """Measure one size, and return a case for each kind of other work in `busy`."""
    order = Order(size // 4, repetitions(size, on.rate))
    rounds = rounds if size < LARGEST else min(rounds, ROUNDS_OF_LARGEST)
    reports: dict[str, dict[str, list[list[Report]]]] = {
        beside: {algorithm: [] for algorithm in groups} for beside in busy
    }
    switches = dict.fromkeys(busy, 0.0)
    for _ in range(rounds):
        for beside, works in busy.items():
            with works:
                for algorithm, group in groups.items():
                    before = network.switch_seconds()
                    reports[beside][algorithm].append(await group.measure(order))
                    if algorithm == "in-network":
                        switches[beside] += network.switch_seconds() - before
    each = rounds * (order.repetitions + 1)
    return [
        _case(
            on,
            network.superframes,
            size,
            beside,
            reports[beside],
            max(0.0, switches[beside] / each - barrier),
        )
        for beside in busy
    ]


def _case(
    on: BenchNetwork,
    superframes: bool,
    size: int,
    beside: str,
    reports: Mapping[str, list[list[Report]]],
    switches: float,
) -> AllReduceCase:
    """Build a case; `switches` is the switches' processor time for one all-reduce in the network."""
    measured = {algorithm: _summary(size, series) for algorithm, series in reports.items()}
    ours = measured["in-network"]
    return AllReduceCase(
        network=str(on),
        beside=beside,
        superframes=superframes,
        workers=on.workers,
        leaves=on.leaves,
        link_bits_per_second=on.rate,
        bytes=size,
        measured=measured,
        ratios={
            name: other.seconds / ours.seconds for name, other in measured.items() if name != "in-network"
        },
        split=_split(on, ours, reports["in-network"], switches, beside),
    )


def _times(reports: Sequence[Report]) -> list[float]:
    """Return the time of each repetition from the last call to the last result; all processes share CLOCK_MONOTONIC."""
    return _until_last_result(reports, np.max([report.starts for report in reports], axis=0))


def _whole_times(reports: Sequence[Report]) -> list[float]:
    """Return the time of each repetition from the first call on."""
    return _until_last_result(reports, np.min([report.starts for report in reports], axis=0))


def _until_last_result(reports: Sequence[Report], since: NDArray[np.float64]) -> list[float]:
    times: list[float] = (np.max([report.ends for report in reports], axis=0) - since).tolist()
    return times


def _summary(size: int, rounds: Sequence[Sequence[Report]]) -> Timing:
    times = [seconds for reports in rounds for seconds in _times(reports)]
    everybody = [report for reports in rounds for report in reports]
    median = statistics.median(times)
    return Timing(
        seconds=median,
        least=min(times),
        repetitions=len(times),
        goodput_bits_per_second=8 * size / median,
        user=sum(report.user for report in everybody) / len(times),
        system=sum(report.system for report in everybody) / len(times),
        retransmissions=sum(report.retransmissions for report in everybody),
        wrong=sum(report.wrong for report in everybody),
    )


def _split(
    on: BenchNetwork, ours: Timing, rounds: Sequence[Sequence[Report]], switches: float, beside: str
) -> Split:
    everybody = [report for reports in rounds for report in reports]
    count = ours.repetitions * on.workers
    own = sum(sum(report.ends) - sum(report.starts) for report in everybody) / count
    parts = {name: sum(report.parts[name] for report in everybody) / count for name in everybody[0].parts}
    parts["the rest"] = own - sum(parts.values())
    whole = statistics.fmean(seconds for reports in rounds for seconds in _whole_times(reports))
    cores = len(os.sched_getaffinity(0))
    busy = (ours.user + ours.system + switches) / whole / cores
    each = switches / len(on.topology.switches) / whole
    used = 0.0 if on.rate is None else ours.goodput_bits_per_second / on.rate / EFFICIENCY
    if 0.85 < used < _BURST:
        limit = f"the links: {used:.0%} of what the packets' headers leave of them"
    elif each > 0.8:
        limit = f"the switch: its one thread is busy {each:.0%} of the time"
    elif busy > 0.8:
        takers = {
            "the workers' own code": ours.user,
            "the workers' kernel": ours.system,
            "the switches": switches,
        }
        most = max(takers, key=lambda name: takers[name])
        limit = (
            f"the {cores} cores, {busy:.0%} busy, {takers[most] / sum(takers.values()):.0%} of it for {most}"
        )
    else:
        others = "" if beside == NOTHING else f" with this, and one with {KINDS[beside]}"
        limit = f"waiting for one another: the {cores} cores are {busy:.0%} busy{others}"
    return Split(parts, switches, busy, limit)


def bench(
    workers: Sequence[int],
    sizes: Sequence[int],
    gloo_python: Path | None,
    progress: Callable[[AllReduceCase], None],
    rounds: int = ROUNDS,
    plain: bool = False,
    beside: Sequence[str] = (NOTHING,),
) -> list[AllReduceCase]:
    """Measure every size on every network, with each of neighbour.KINDS asked for; see networks and measure_network."""
    program = compile_program(PROGRAM, "embedded")
    cases = []
    for network in networks(workers, plain):
        cases += measure_network(network, sizes, program, gloo_python, rounds, progress, beside)
    return cases


def write(cases: Sequence[AllReduceCase], gloo: bool, machine: Mapping[str, Any], folder: Path) -> None:
    """Write allreduce.json into `folder`; `machine` is the result of host()."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "cases": [asdict(case) for case in cases],
        "gloo": "measured" if gloo else "not installed",
        "machine": machine,
    }
    write_json(document, folder / "allreduce.json")


# -- as tables

Rows = list[list[str]]


def by_network(cases: Sequence[AllReduceCase]) -> dict[str, list[AllReduceCase]]:
    """Return the cases of each network, by its description."""
    found: dict[str, list[AllReduceCase]] = {}
    for case in cases:
        frames = "superframes" if case.superframes else "plain frames"
        found.setdefault(f"{case.network}, {frames}", []).append(case)
    return found


def time_table(cases: Sequence[AllReduceCase], *, with_load: bool) -> tuple[list[str], Rows]:
    """Return headings and rows of the algorithms' times, for the sizes of one network.

    Args:
        cases: The sizes of one network.
        with_load: Show the other load on the machine.
    """
    names = list(dict.fromkeys(name for case in cases for name in case.measured))
    headings = [f"{name} ms" if name == "in-network" else f"{name} ms\nmultiple" for name in names]
    rows: Rows = []
    for case in cases:
        ours, cells = case.measured["in-network"], []
        for name in names:
            time = f"{case.measured[name].seconds * 1e3:.2f}" if name in case.measured else ""
            ratio = case.ratios.get(name)
            multiple = "" if ratio is None else f"×{ratio:.2f}"
            cells.append(time if name == "in-network" else f"{time}\n{multiple}")
        goodput = f"{ours.goodput_bits_per_second / 1e9:.3f}"
        load = [case.beside] if with_load else []
        rows.append([size_text(case.bytes), *cells, goodput, f"{ours.retransmissions:,}", *load])
    return ["size", *headings, "Gb/s", "resent", *(["load"] if with_load else [])], rows


def cost_table(cases: Sequence[AllReduceCase]) -> tuple[list[str], Rows]:
    """Return headings and rows of where the time of in-network aggregation goes, for the sizes of one network."""
    parts = list(dict.fromkeys(part for case in cases for part in case.split.worker))
    rows: Rows = []
    for case in cases:
        ours, total = case.measured["in-network"], sum(case.split.worker.values())
        rows.append(
            [
                size_text(case.bytes),
                *(f"{case.split.worker.get(part, 0) / total:.0%}" for part in parts),
                f"{ours.user * 1e3:.2f}\n{ours.system * 1e3:.2f}",
                f"{case.split.switches * 1e3:.2f}",
                case.split.limit,
            ]
        )
    return ["size", *parts, "CPU ms\nin kernel", "switches\nCPU ms", "limit"], rows


def size_text(size: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    return f"{size / 1024:g} KiB" if size < 10**6 else f"{size / 10**6:g} MB"
