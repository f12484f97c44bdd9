"""The table `faults` of a scenario: what fails, and when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from experiments.scenario.tables.table import Table
from topologies.model import Topology, TopologyError
from topologies.units import Seconds
from workers.job.waiting import SLOW_SECONDS

_LOOK = 0.25  # seconds between two looks of a live network at links, switches and workers
_ASKED = 2.0  # seconds that workers have to say where they are


class Fault(Table):
    """A link that goes down, a switch that restarts, or a worker that ends or is stopped; of these one."""

    at: Annotated[Seconds, Field(description="from the beginning of the run on")]
    link: Annotated[tuple[str, str] | None, Field(description="the names of its two ends")] = None
    switch: Annotated[
        str | None, Field(description="that restarts, with nothing in tables and registers")
    ] = None
    worker: Annotated[str | None, Field(description="by its host")] = None
    duration: Annotated[
        Seconds | None,
        Field(
            gt=0, description="until it is back; left out, the link is down for good, the worker has ended"
        ),
    ] = None
    detection: Annotated[
        Seconds | None, Field(description="until it is found; left out, 250 ms, of a stopped worker 7 s")
    ] = None

    @property
    def end(self) -> float | None:
        """When it is over; None: never, or at once."""
        return None if self.duration is None else self.at + self.duration

    @property
    def delay(self) -> float:
        """Seconds after which it is found."""
        if self.detection is not None:
            return self.detection
        return SLOW_SECONDS + _ASKED if self.worker and self.duration else _LOOK

    def _problems(self) -> Iterator[str]:
        given = [name for name in ("link", "switch", "worker") if getattr(self, name) is not None]
        if len(given) != 1:
            yield f"link: give one of link, switch and worker, not {' and '.join(given) or 'none'}"
        if self.switch and self.duration:
            yield "duration: a switch is there again at once, its tables after detection; leave it out"


def fault_problems(faults: Sequence[Fault], network: Topology, members: Sequence[str]) -> Iterator[str]:
    """What is wrong with faults on this network, with workers on the hosts `members`."""
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
            yield f"{key}.worker: {fault.worker!r} is no worker's host; those are {', '.join(members)}"
    for link in {frozenset(fault.link) for fault in faults if fault.link}:
        periods = sorted(
            (f.at, f.end or float("inf")) for f in faults if f.link and frozenset(f.link) == link
        )
        if any(second[0] <= first[1] for first, second in pairwise(periods)):
            yield f"faults: the link {' '.join(sorted(link))} is down twice at a time; make it one"
    ends = Counter(fault.worker for fault in faults if fault.worker and not fault.duration)
    for host, count in ends.items():
        if count > 1:
            yield f"faults: the worker on {host} ends {count} times; leave it at one"
