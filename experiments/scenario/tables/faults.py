"""The table `faults` of a scenario: what fails, and when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.topologies.model import Topology, TopologyError
from fanin.topologies.units import Seconds
from fanin.workers.job.calls import SLOW_SECONDS

_LOOK = 0.25  # seconds between two checks of links, switches and workers in a live network
_KINDS = ("link", "switch", "worker", "controller")
_ASKED = 2.0  # seconds within which workers must report their progress


class Fault(Table):
    """A link that goes down, a switch that restarts, a worker that ends or is stopped, or a controller that ends."""

    at: Annotated[Seconds, Field(description="time since the beginning of the run")]
    link: Annotated[tuple[str, str] | None, Field(description="the names of its two ends")] = None
    switch: Annotated[
        str | None, Field(description="a switch that restarts with empty tables and registers")
    ] = None
    worker: Annotated[str | None, Field(description="the host of a worker that ends or is stopped")] = None
    controller: Annotated[
        Literal[True] | None,
        Field(description="the controller ends; it detects other faults when it is back"),
    ] = None
    duration: Annotated[
        Seconds | None,
        Field(
            gt=0,
            description="time until it is back; default: link or controller stay away, the worker has ended",
        ),
    ] = None
    detection: Annotated[
        Seconds | None,
        Field(description="time until it is detected; default: 250 ms, for a stopped worker 7 s"),
    ] = None

    @property
    def end(self) -> float | None:
        """Return when the fault is over; None if it never is, or immediately."""
        return None if self.duration is None else self.at + self.duration

    @property
    def delay(self) -> float:
        """Return the seconds until it is detected if the controller is running."""
        if self.detection is not None:
            return self.detection
        return SLOW_SECONDS + _ASKED if self.worker and self.duration else _LOOK

    def _problems(self) -> Iterator[str]:
        given = [name for name in _KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            yield f"link: give one of {', '.join(_KINDS)}, not {' and '.join(given) or 'none'}"
        if self.switch and self.duration:
            yield "duration: a switch is back immediately, and its tables after detection; leave it out"
        if self.controller and self.detection is not None:
            yield "detection: the controller is back after duration; leave it out"


def fault_problems(faults: Sequence[Fault], network: Topology, members: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with faults on this network, with workers on the hosts `members`."""
    for number, fault in enumerate(faults):
        key = f"faults[{number}]"
        if fault.link:
            try:
                network.link_between(*fault.link)
            except TopologyError as error:
                yield f"{key}.link: {error}"
        if fault.switch and fault.switch not in {switch.name for switch in network.switches}:
            names = ", ".join(switch.name for switch in network.switches)
            yield f"{key}.switch: no switch is called {fault.switch!r}; there are {names}"
        if fault.worker and fault.worker not in members:
            yield f"{key}.worker: {fault.worker!r} is not a worker's host; those are {', '.join(members)}"
    for link in {frozenset(fault.link) for fault in faults if fault.link}:
        if _twice_at_a_time([f for f in faults if f.link and frozenset(f.link) == link]):
            yield f"faults: the link {' '.join(sorted(link))} is down twice at the same time; merge these faults"
    if _twice_at_a_time([fault for fault in faults if fault.controller]):
        yield "faults: the controller is gone twice at the same time; merge these faults"
    ends = Counter(fault.worker for fault in faults if fault.worker and not fault.duration)
    for host, count in ends.items():
        if count > 1:
            yield f"faults: the worker on {host} ends {count} times; keep one of them"


def _twice_at_a_time(faults: Sequence[Fault]) -> bool:
    periods = sorted((fault.at, fault.end or math.inf) for fault in faults)
    return any(second[0] <= first[1] for first, second in pairwise(periods))
