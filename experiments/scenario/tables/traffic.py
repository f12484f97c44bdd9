"""Traffic beside a job: a table of scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from fanin.experiments.scenario.tables.table import Priority, Table
from fanin.topologies.units import Bytes, Probability, Seconds
from fanin.workers.collective import Transport

Pattern = Literal["poisson", "on-off", "incast", "permutation", "fan-out", "checkpoint", "read"]
Sizes = Literal["web-search", "hadoop"]

# What a pattern has to be told besides sizes.
_NEEDED: dict[Pattern, tuple[str, ...]] = {
    "poisson": ("load", "duration"),
    "on-off": ("load", "duration"),
    "incast": ("period", "duration"),
    "permutation": (),
    "fan-out": ("load", "duration", "fan"),
    "checkpoint": ("period", "duration"),
    "read": ("period", "duration"),
}
_ALSO: dict[Pattern, tuple[str, ...]] = {"incast": ("fan",)}
_MAY_BE_LEFT_OUT = ("load", "duration", "period", "fan")


class Traffic(Table):
    """What the hosts that do not take part in the job send to one another meanwhile, or exchange with its workers."""

    pattern: Pattern
    size: Annotated[Bytes | None, Field(gt=0, description="of each flow, in the place of sizes")] = None
    sizes: Annotated[Sizes | None, Field(description="of flows, drawn from a published distribution")] = None
    load: Annotated[
        Probability | None, Field(description="share of a host's link, of what is sent or answered")
    ] = None
    fan: Annotated[
        int | None, Field(ge=1, description="hosts that send to one at once; left out of incast, all others")
    ] = None
    begin: Annotated[Seconds, Field(description="of the first flows")] = 0.0
    period: Annotated[
        Seconds | None, Field(description="from one incast, checkpoint or read to the next")
    ] = None
    duration: Annotated[Seconds | None, Field(description="for which flows begin")] = None
    window: Annotated[int, Field(ge=1, le=1 << 14, description="packets in flight of a flow")] = 256
    transport: Transport = "selective-repeat"
    priority: Priority = 0

    @property
    def hosts(self) -> int:
        """How many that are not workers it needs."""
        return 1 if self.pattern in ("checkpoint", "read") else 2

    def _problems(self) -> Iterator[str]:
        if (self.size is None) == (self.sizes is None):
            yield "size: give size, as '1 MB', or sizes, as 'web-search'"
        if self.period == 0:
            yield f"period: is 0; give the time from one {self.pattern} to the next, as '1 ms'"
        needed = _NEEDED[self.pattern]
        for name in _MAY_BE_LEFT_OUT:
            given = getattr(self, name) is not None
            if name in needed and not given:
                yield f"{name}: missing; {self.pattern} needs it"
            elif given and name not in (*needed, *_ALSO.get(self.pattern, ())):
                yield f"{name}: has no meaning for {self.pattern}; leave it out"
