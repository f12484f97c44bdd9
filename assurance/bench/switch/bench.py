"""The whole benchmark of the switch: its cases, their goals, and switch.json."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fanin.assurance.bench.switch import aggregation, native, network, tables
from fanin.assurance.bench.switch.aggregation import Shape
from fanin.assurance.bench.switch.errors import SwitchBenchError
from fanin.assurance.bench.switch.loading import loading_seconds
from fanin.assurance.bench.switch.p4runtime import fill, running
from fanin.assurance.bench.switch.rates import Contender, Rate, Received, compare, delivered, started
from fanin.assurance.bench.switch.tables import ROUTES, TABLE, Routes
from fanin.controller.errors import ControllerError
from fanin.controller.requirements import PROGRAM
from fanin.experiments.results.provenance import machine
from fanin.experiments.scenario.tools import BMV2, ToolMissingError
from fanin.native.files import write_json
from fanin.native.toolchain import ToolchainError, compiler_version
from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.engine.live_ports import PortError
from fanin.simulator.fabric import load_switch
from fanin.testbed import superframes
from fanin.testbed.switch_processes import Bmv2, P4Switch
from fanin.topologies.errors import NetworkError

_BARE = "bare C loop"
_PLAIN_RATIO, _SUPER_RATIO, _SUPER_PPS = 0.7, 0.4, 2.5e6
_TABLES_RATIO, _BMV2_RATIO = 0.5, 20.0
_WRITES = 20_000  # a second
_FIRST, _CACHED = 3.0, 0.3  # seconds


@dataclass(frozen=True, slots=True)
class SwitchCase:
    """One figure and its baseline, in packets per second unless the name has another unit."""

    name: str
    pps: float
    baseline: str
    baseline_pps: float
    ratio: float


HEADINGS = ("packets/s\nbaseline's", "ratio\ngoal", "", "CPU ns\nbaseline's")


@dataclass(frozen=True, slots=True)
class SwitchOutcome:
    """A case, the ratio that is its goal, and processor nanoseconds per packet of both, if measured."""

    case: SwitchCase
    goal: float
    nanoseconds: float | None = None
    baseline_nanoseconds: float | None = None

    @property
    def is_met(self) -> bool:
        """Return whether the goal is met."""
        return self.case.ratio >= self.goal

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the values below HEADINGS."""
        case, times = self.case, (self.nanoseconds, self.baseline_nanoseconds)
        return (
            f"{case.pps:,.1f}\n{case.baseline_pps:,.1f}",
            f"{case.ratio:.2f}\n{self.goal:g}",
            "met" if self.is_met else "NOT MET",
            "\n".join("" if time is None else f"{time:,.0f}" for time in times),
        )

    @property
    def columns(self) -> dict[str, Any]:
        """Return the case with its rates, its goal and the processor times."""
        return {
            **asdict(self.case),
            "ratio": self.case.ratio,
            "goal": self.goal,
            "is_met": self.is_met,
            "nanoseconds": self.nanoseconds,
            "baseline_nanoseconds": self.baseline_nanoseconds,
        }


@dataclass(frozen=True, slots=True)
class Effort:
    """The scope and the duration of the measurements.

    Attributes:
        shapes: Shapes of aggregation traffic.
        routes: Routing tables.
        rounds: Number of windows.
        seconds: Length of each window.
        writes: Number of entries to write.
    """

    shapes: Sequence[Shape] = tuple(
        Shape(ports, values, superframes)
        for superframes in (False, True)
        for ports in (4, 8)
        for values in (64, 256)
    )
    routes: Sequence[Routes] = ROUTES
    rounds: int = 3
    seconds: float = 0.4
    writes: int = 50_000


def bench(effort: Effort, progress: Callable[[SwitchOutcome], None]) -> tuple[list[SwitchOutcome], list[str]]:
    """Run the benchmark inside a sandbox.

    Returns:
        The outcomes, and what was not run and why.

    Raises:
        BenchError: A sum was wrong, results stopped coming, or a switch or a tool failed.
    """
    outcomes: list[SwitchOutcome] = []
    skipped: list[str] = []
    try:
        with tempfile.TemporaryDirectory() as logs:
            for outcome in _all(effort, Path(logs), skipped):
                outcomes.append(outcome)
                progress(outcome)
    except (NetworkError, PortError, ToolchainError, ControllerError) as error:
        raise SwitchBenchError(str(error)) from error
    return outcomes, skipped


def _all(effort: Effort, logs: Path, skipped: list[str]) -> Iterator[SwitchOutcome]:
    program = load_switch()
    refusal = superframes.refusal()
    if refusal:
        skipped.append(f"superframes: {refusal}")
    for shape in effort.shapes:
        if not (shape.superframes and refusal):
            yield from _aggregation(effort, program, shape)
    yield from _tables(effort)
    yield from _bmv2(effort, logs, skipped, with_superframes=not refusal)
    yield _writes(effort, logs)
    yield from _loading()


def _aggregation(effort: Effort, program: Engine, shape: Shape) -> Iterator[SwitchOutcome]:
    with network.links(shape.ports) as (near, far):
        engine = aggregation.switch(program, shape)
        traffic = aggregation.traffic(shape, far)
        ours = Contender(partial(started, engine, near, offload=shape.superframes), traffic)
        bare = Contender(partial(_bare, near, shape), traffic)
        for contender in (ours, bare):
            with contender.running():
                aggregation.check_sums(shape, traffic, far[-1])  # this port shares payloads with others
        mine, its = compare((ours, bare), effort.rounds, effort.seconds)
    yield _outcome(str(shape), mine, _BARE, its, _SUPER_RATIO if shape.superframes else _PLAIN_RATIO)
    if shape.superframes:
        yield _against_goal(str(shape), "packets a second", mine.pps, _SUPER_PPS, mine.nanoseconds)


@contextmanager
def _bare(interfaces: Sequence[str], shape: Shape) -> Iterator[Received]:
    network.drop(interfaces)
    with native.bare(interfaces, shape.values, shape.superframes) as received:
        yield received


def _tables(effort: Effort) -> Iterator[SwitchOutcome]:
    """Compare every table with the one for which the switch is fastest."""
    with network.links(tables.PORTS) as (near, far):
        contenders = [
            Contender(partial(started, tables.switch(routes), near, offload=True), routes.traffic(far))
            for routes in effort.routes
        ]
        rates = compare(contenders, effort.rounds, effort.seconds)
    names = [str(routes) for routes in effort.routes]
    fastest = max(range(len(rates)), key=lambda i: rates[i].pps)
    for name, rate in zip(names, rates, strict=True):
        yield _outcome(name, rate, names[fastest], rates[fastest], _TABLES_RATIO)


def _bmv2(
    effort: Effort, logs: Path, skipped: list[str], *, with_superframes: bool
) -> Iterator[SwitchOutcome]:
    try:
        command = BMV2.find()
    except ToolMissingError as error:
        skipped.append(str(error))
        return
    for routes in effort.routes:
        with network.links(2 * tables.PORTS) as (near, far):
            network.drop(near)
            ours, its = slice(tables.PORTS), slice(tables.PORTS, None)
            with running(Bmv2(command), near[its], logs / "bmv2.log") as bmv2:
                fill(bmv2, routes.program, TABLE, routes.entries())
                switch = partial(started, tables.switch(routes), near[ours], offload=True)
                contenders = [
                    Contender(partial(delivered, far[its]), routes.traffic(far[its])),
                    Contender(switch, routes.traffic(far[ours])),
                ]
                names = [str(routes)]
                if (
                    with_superframes and routes.kind != "ternary"
                ):  # ternary rules also match protocols other than UDP
                    contenders.append(Contender(switch, routes.traffic(far[ours], superframes=True)))
                    names.append(f"{routes}, superframes")
                theirs, *mine = compare(contenders, effort.rounds, effort.seconds)
        for name, rate in zip(names, mine, strict=True):
            yield _outcome(name, rate, "BMv2", Rate(theirs.pps, None), _BMV2_RATIO)


def _writes(effort: Effort, logs: Path) -> SwitchOutcome:
    """Measure INSERTs over gRPC into a separate switch process."""
    routes = Routes("lpm", effort.writes)
    with (
        network.links(tables.PORTS) as (near, _),
        running(P4Switch(), near, logs / "p4switch.log") as switch,
    ):
        seconds = fill(switch, routes.program, TABLE, routes.entries())
    return _against_goal("table writes over P4Runtime", "entries a second", routes.count / seconds, _WRITES)


def _loading() -> Iterator[SwitchOutcome]:
    with network.links(1) as ([near], _):
        first, cached = loading_seconds(compile_once(PROGRAM).json_text(), near)
    for name, seconds, most in (("first time", first, _FIRST), ("from the cache", cached, _CACHED)):
        yield _against_goal(f"JSON to running switch, {name}", "a second", 1 / seconds, 1 / most)


def _outcome(name: str, mine: Rate, baseline: str, its: Rate, goal: float) -> SwitchOutcome:
    case = SwitchCase(name, mine.pps, baseline, its.pps, mine.pps / its.pps if its.pps else float("inf"))
    return SwitchOutcome(case, goal, mine.nanoseconds, its.nanoseconds)


def _against_goal(
    name: str, unit: str, rate: float, goal: float, nanoseconds: float | None = None
) -> SwitchOutcome:
    """Compare a figure with its goal instead of a baseline."""
    return SwitchOutcome(SwitchCase(f"{name} ({unit})", rate, "goal", goal, rate / goal), 1.0, nanoseconds)


def write(
    outcomes: Sequence[SwitchOutcome], skipped: Sequence[str], load: Sequence[float], folder: Path
) -> Path:
    """Write switch.json into `folder`: cases, goals, processor times, machine, versions and load averages."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "cases": [asdict(outcome.case) for outcome in outcomes],
        "goals": [
            {
                "name": outcome.case.name,
                "baseline": outcome.case.baseline,
                "ratio": outcome.goal,
                "is_met": outcome.is_met,
                "nanoseconds": outcome.nanoseconds,
                "baseline_nanoseconds": outcome.baseline_nanoseconds,
            }
            for outcome in outcomes
        ],
        "not_run": list(skipped),
        "machine": machine(),
        "compiler": compiler_version(),
        "load": {"before": list(load), "after": list(os.getloadavg())},
    }
    path = folder / "switch.json"
    write_json(document, path)
    return path
