"""The same all-reduces live and in virtual time, with the analytical model: do live and virtual time agree?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.experiments.live.run import run_live
from fanin.experiments.results.files import write_results
from fanin.experiments.results.measured import Measured, row
from fanin.experiments.results.provenance import machine, provenance
from fanin.experiments.scenario.compilers import CompiledProgram
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.native.files import write_json
from fanin.p4switch.engine.engine import Engine
from fanin.workers.collective import Algorithm

TOLERANCE = 0.05

# Delay of a packet on a live link in addition to its bits, through a virtual Ethernet pair and a switch process; and
# the time until a worker's process is scheduled. Both are small against the times compared.
LINK_DELAY, TURN = 50e-6, 50e-6

# Two cores can easily run eight workers on such links, so the links decide the times.
RATE, FASTER = 20_000_000, 50_000_000


@dataclass(frozen=True, slots=True)
class Point:
    """One run, with its live and its virtual settings."""

    live: Settings
    virtual: Settings


def point(
    spines: int,
    leaves: int,
    hosts: int,
    loss: float = 0.0,
    elements: int = 200_000,
    repetitions: int = 5,
    algorithm: Algorithm = "in-network",
    rate: int = RATE,
) -> Point:
    """Return a point on a leaf-spine network.

    Virtual time does not model that a frame of many segments arrives in one piece, so there are few segments. Without
    loss, nothing may be retransmitted because a process was not scheduled for long.

    Args:
        spines: Number of spines.
        leaves: Number of leaves.
        hosts: Hosts on each leaf.
        loss: Probability of loss for each packet on each link.
        elements: Elements of the vector.
        repetitions: Number of all-reduces.
        algorithm: Algorithm of the all-reduce.
        rate: Rate of the links in bits/s.
    """
    shape = {"spines": spines, "leaves": leaves, "hosts_per_leaf": hosts, "rate": rate}
    common = {
        "topology": {"leaf_spine": shape},
        "algorithm": algorithm,
        "transport": None if algorithm == "in-network" else "selective-repeat",  # virtual time has no TCP
        "size": f"{elements} elements",
        "repetitions": repetitions,
        "window": 64,
        "recovery": {"initial_rto": 0.1, "min_rto": 0.01} if loss else {"initial_rto": 1.0, "min_rto": 0.5},
    }
    live = {"world": "live", "links": {"loss": loss}, "segments": 8 if algorithm == "in-network" else 1}
    links = {"loss": loss, "delay": LINK_DELAY, "overhead": 0}
    virtual = {"links": links, "coalescing": TURN}
    return Point(Settings.model_validate(common | live), Settings.model_validate(common | virtual))


POINTS = (
    *(point(0, 1, 2), point(0, 1, 4), point(1, 2, 2), point(0, 1, 8), point(2, 2, 4)),
    *(point(0, 1, 2, loss=0.01), point(1, 2, 2, loss=0.001), point(1, 2, 2, loss=0.01, repetitions=20)),
    *(point(0, 1, 4, elements=50_000), point(0, 1, 4, elements=800_000, repetitions=3)),
    point(1, 2, 2, elements=500_000, rate=FASTER),
    *(point(2, 2, 2, algorithm="ring"), point(0, 1, 4, algorithm="ring"), point(1, 2, 2, algorithm="ring")),
    point(0, 1, 4, algorithm="ring", elements=500_000, rate=FASTER),
    point(0, 1, 4, algorithm="ring", elements=50_000),
    *(point(0, 1, 4, algorithm="halving-doubling"), point(0, 1, 4, algorithm="double-binary-tree")),
    *(point(0, 1, 8, algorithm="ring"), point(2, 2, 2, algorithm="halving-doubling")),
)


@dataclass(frozen=True, slots=True)
class WorldComparison:
    """One point live and in virtual time. The analytical model, which ignores loss, is the virtual one's."""

    point: Point
    live: Measured
    virtual: Measured

    @property
    def deviation(self) -> float:
        """Return the deviation of virtual time from live time, as a share of the latter."""
        return self.virtual.median / self.live.median - 1

    @property
    def agrees(self) -> bool:
        """Return whether times agree within the tolerance and, in-network without loss, packets and bytes exactly.

        Between hosts, the number of acknowledgements depends on how many packets a process receives at once.
        """
        settings = self.point.live
        live, virtual = (
            (one.packets_per_worker, one.wire_bytes_per_worker) for one in (self.live, self.virtual)
        )
        comparable = settings.algorithm == "in-network" and not settings.links.loss
        return abs(self.deviation) <= TOLERANCE and (live == virtual or not comparable)

    @property
    def columns(self) -> dict[str, Any]:
        """Return the entry of summary.json, per all-reduce."""
        settings = self.point.live
        return {
            "topology": settings.network.name,
            "algorithm": settings.algorithm,
            "rate": settings.network.slowest_rate,
            "workers": len(settings.members),
            "loss": settings.links.loss,
            "elements": settings.elements,
            "live": _columns(self.live),
            "virtual": _columns(self.virtual),
            "closed_form": self.virtual.closed_form_seconds,
            "deviation": self.deviation,
            "agrees": self.agrees,
        }


def _columns(measured: Measured) -> dict[str, float]:
    return {
        "seconds": measured.median,
        "wire_packets": measured.packets_per_worker,
        "wire_bytes": measured.wire_bytes_per_worker,
        "retransmissions": measured.retransmissions / len(measured.seconds),
    }


def compare(
    points: Sequence[Point], program: CompiledProgram, logs: Path, progress: Callable[[WorldComparison], None]
) -> list[WorldComparison]:
    """Run each point live and in virtual time.

    Raises:
        RunError: A live run failed.
        NetworkError: A live network failed.
        ControllerError: Its controller failed.
    """
    switch = Engine.load(program.device_config)
    found = []
    for here in points:
        (live,) = run_live([here.live], program, logs, lambda _: lambda *_: None, lambda _: None)
        found.append(WorldComparison(here, live, run_virtual(here.virtual, switch)))
        progress(found[-1])
    return found


def write(comparisons: Sequence[WorldComparison], folder: Path) -> None:
    """Write result rows as for any scenario, and summary.json, into `folder`."""
    common = provenance()
    rows = [
        row(settings, measured, **common)
        for one in comparisons
        for settings, measured in ((one.point.live, one.live), (one.point.virtual, one.virtual))
    ]
    write_results(rows, {"name": "validation"}, folder)
    document = {
        "points": [one.columns for one in comparisons],
        "machine": machine(),
    }
    write_json(document, folder / "summary.json")
