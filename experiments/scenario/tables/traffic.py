"""The table `traffic` of a scenario: traffic of hosts outside the job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from fanin.experiments.scenario.tables.table import Priority, Table
from fanin.experiments.workloads.flow_trace import read_flows
from fanin.experiments.workloads.trace import TraceError
from fanin.topologies.units import Bytes, Probability, Seconds
from fanin.workers.collective import Transport

Pattern = Literal["poisson", "on-off", "incast", "permutation", "fan-out", "checkpoint", "read", "trace"]
Sizes = Literal["web-search", "hadoop"]

# The keys that a pattern needs in addition to sizes.
_NEEDED: dict[Pattern, tuple[str, ...]] = {
    "poisson": ("load", "duration"),
    "on-off": ("load", "duration"),
    "incast": ("period", "duration"),
    "permutation": (),
    "fan-out": ("load", "duration", "fan"),
    "checkpoint": ("period", "duration"),
    "read": ("period", "duration"),
    "trace": ("trace",),
}
_ALSO: dict[Pattern, tuple[str, ...]] = {"incast": ("fan",)}
_MAY_BE_LEFT_OUT = ("load", "duration", "period", "fan", "trace")


class Traffic(Table):
    """Traffic that hosts outside the job send to one another during the run, or exchange with its workers."""

    pattern: Annotated[Pattern, Field(description="which hosts send to which, and when")]
    size: Annotated[Bytes | None, Field(gt=0, description="size of each flow; replaces sizes")] = None
    sizes: Annotated[Sizes | None, Field(description="published distribution of flow sizes")] = None
    trace: Annotated[
        Path | None, Field(description="file with the flows, relative to this file; replaces size and sizes")
    ] = None
    load: Annotated[
        Probability | None, Field(description="share of a host's link that flows or answers use")
    ] = None
    fan: Annotated[
        int | None,
        Field(ge=1, description="hosts that send to one host at once; default for incast: all others"),
    ] = None
    begin: Annotated[Seconds, Field(description="time of the first flows")] = 0.0
    period: Annotated[
        Seconds | None, Field(description="time from one incast, checkpoint or read to the next")
    ] = None
    duration: Annotated[Seconds | None, Field(description="time during which flows begin")] = None
    window: Annotated[int, Field(ge=1, le=1 << 14, description="packets that a flow may have in flight")] = (
        256
    )
    transport: Annotated[
        Transport | Literal["job"],
        Field(
            description="transport of the flows; job: that of the job, selective-repeat if it is in-network"
        ),
    ] = "selective-repeat"
    priority: Priority = 0

    @property
    def hosts(self) -> int:
        """Return how many hosts outside the job it needs."""
        return {"trace": 0, "checkpoint": 1, "read": 1}.get(self.pattern, 2)

    def problems(self, hosts: int) -> Iterator[str]:
        """Yield what is wrong with the trace in a network with this number of hosts."""
        if self.trace is None:
            return
        try:
            flows = read_flows(self.trace)
        except TraceError as error:
            yield f"traffic.trace: {error}"
            return
        highest = max((max(flow.source, flow.destination) for flow in flows), default=0)
        if highest >= hosts or any(min(flow.source, flow.destination) < 0 for flow in flows):
            yield f"traffic.trace: {self.trace}: hosts are 0 to {hosts - 1} in this network; the highest is {highest}"

    def _problems(self) -> Iterator[str]:
        if self.trace is not None:
            for name in ("size", "sizes"):
                if getattr(self, name) is not None:
                    yield f"{name}: the flows of a trace have their own sizes; leave it out"
        elif self.pattern != "trace" and (self.size is None) == (self.sizes is None):
            yield "size: give size, such as '1 MB', or sizes, such as 'web-search'"
        if self.period == 0:
            yield f"period: is 0; give the time from one {self.pattern} to the next, such as '1 ms'"
        needed = _NEEDED[self.pattern]
        for name in _MAY_BE_LEFT_OUT:
            given = getattr(self, name) is not None
            if name in needed and not given:
                yield f"{name}: missing; {self.pattern} needs it"
            elif given and name not in (*needed, *_ALSO.get(self.pattern, ())):
                yield f"{name}: has no meaning for {self.pattern}; leave it out"
