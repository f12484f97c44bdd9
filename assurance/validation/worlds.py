"""The same all-reduces live and in virtual time, and what the closed form says: do the two worlds agree?"""

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

TOLERANCE = 0.1
# Which packets are lost differs, and the last ones of an all-reduce cost a timeout.
TOLERANCE_WITH_LOSS = 0.15

# What a packet needs on a live link besides its bits, through a virtual Ethernet pair and a switch in a process; and
# how long a worker's process takes to have its turn. Small against the times compared.
LINK_DELAY, TURN = 50e-6, 50e-6

# Two cores sustain eight workers on such links with ease.
RATE = 20_000_000


@dataclass(frozen=True, slots=True)
class Point:
    """One run, as each world has it."""

    live: Settings
    virtual: Settings


def point(
    spines: int, leaves: int, hosts: int, loss: float = 0.0, elements: int = 200_000, repetitions: int = 5
) -> Point:
    """On a leaf-spine network (hosts on each leaf); the probability of loss is for each packet on each link.

    A frame of many segments comes in one piece, of which virtual time knows nothing: they are few. Where nothing is
    lost, nothing may be sent again because some process has waited long for its turn.
    """
    shape = {"spines": spines, "leaves": leaves, "hosts_per_leaf": hosts, "rate": RATE}
    common = {
        "topology": {"leaf_spine": shape},
        "size": f"{elements} elements",
        "repetitions": repetitions,
        "window": 64,
        "recovery": {"initial_rto": 0.1, "min_rto": 0.01} if loss else {"initial_rto": 1.0, "min_rto": 0.5},
    }
    live = {"world": "live", "links": {"loss": loss}, "segments": 8}
    links = {"loss": loss, "delay": LINK_DELAY, "overhead": 0}
    virtual = {"links": links, "coalescing": TURN}
    return Point(Settings.model_validate(common | live), Settings.model_validate(common | virtual))


POINTS = (
    *(point(0, 1, 2), point(0, 1, 4), point(1, 2, 2), point(0, 1, 8), point(2, 2, 4)),
    *(point(0, 1, 2, loss=0.01), point(1, 2, 2, loss=0.001), point(1, 2, 2, loss=0.01)),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One point in both worlds; the closed form, which knows of no loss, is the virtual one's."""

    point: Point
    live: Measured
    virtual: Measured

    @property
    def deviation(self) -> float:
        """Of virtual time from live time, as a share of the latter."""
        return self.virtual.median / self.live.median - 1

    @property
    def agrees(self) -> bool:
        """Within the tolerance in time; without loss, exactly in packets and bytes."""
        if self.point.live.links.loss:
            return abs(self.deviation) <= TOLERANCE_WITH_LOSS
        live, virtual = (
            (one.packets_per_worker, one.wire_bytes_per_worker) for one in (self.live, self.virtual)
        )
        return live == virtual and abs(self.deviation) <= TOLERANCE

    @property
    def columns(self) -> dict[str, Any]:
        """What summary.json tells of it; all of one all-reduce."""
        settings = self.point.live
        return {
            "topology": settings.network.name,
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
    points: Sequence[Point], program: CompiledProgram, logs: Path, progress: Callable[[Comparison], None]
) -> list[Comparison]:
    """Each point, live and virtual.

    Raises:
        RunError, NetworkError, ControllerError: a live one did not come to its end.
    """
    switch = Engine.load(program.device_config)
    found = []
    for here in points:
        (live,) = run_live([here.live], program, logs, lambda _: lambda *_: None, lambda _: None)
        found.append(Comparison(here, live, run_virtual(here.virtual, switch)))
        progress(found[-1])
    return found


def write(comparisons: Sequence[Comparison], folder: Path) -> None:
    """Rows of results as of any scenario, and summary.json, into `folder`."""
    common = provenance()
    rows = [
        row(settings, measured, **common)
        for one in comparisons
        for settings, measured in ((one.point.live, one.live), (one.point.virtual, one.virtual))
    ]
    write_results(rows, {"name": "validation"}, folder)
    document = {
        "points": [one.columns for one in comparisons],
        "link_bits_per_second": RATE,
        "machine": machine(),
    }
    write_json(document, folder / "summary.json")
