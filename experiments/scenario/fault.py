"""The table `fault` of a scenario: what fails while its job runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from experiments.scenario.table import Table
from topologies.model import Topology
from topologies.units import Seconds

FaultKind = Literal["none", "switch-restart", "link-down", "worker-stall", "worker-death"]


class Fault(Table):
    """Something that fails once; what follows is in docs/faults.md, and the same as on a live network."""

    kind: FaultKind
    node: Annotated[str, Field(description="the switch, the worker's host, or one end of the link")]
    far_node: Annotated[str | None, Field(description="of link-down, the other end of the link")] = None
    at: Annotated[Seconds, Field(description="from the beginning of the run on")]
    duration: Annotated[
        Seconds | None, Field(gt=0, description="of worker-stall; of link-down, left out, for good")
    ] = None
    notice: Annotated[
        Seconds, Field(description="until the controller, or who waits for the worker, has found it")
    ] = 0.25

    def misplaced(self, network: Topology, members: tuple[str, ...]) -> Iterator[str]:
        """What is wrong with it in this network, whose hosts `members` are the workers."""
        switches = [switch.name for switch in network.switches]
        if self.kind in ("worker-stall", "worker-death"):
            if self.node not in members:
                yield f"fault.node: {self.node!r} is no worker's host; those are {', '.join(members)}"
        elif self.kind in ("switch-restart", "link-down") and self.node not in switches:
            yield f"fault.node: no switch is called {self.node!r}; there are {', '.join(switches)}"
        elif self.kind == "link-down" and self.far_node not in switches:
            yield f"fault.far_node: no switch is called {self.far_node!r}; there are {', '.join(switches)}"
        elif self.kind == "link-down" and self.far_node not in network.neighbours(self.node).values():
            yield f"fault.far_node: no link joins {self.node} and {self.far_node}"

    def _problems(self) -> Iterator[str]:
        if self.kind == "link-down" and self.far_node is None:
            yield "far_node: missing; link-down needs both ends of the link"
        if self.kind == "worker-stall" and self.duration is None:
            yield "duration: missing; worker-stall needs it"
        if self.kind in ("switch-restart", "worker-stall", "worker-death") and self.far_node is not None:
            yield f"far_node: is of link-down; leave it out beside kind = {self.kind!r}"
        if self.kind in ("switch-restart", "worker-death") and self.duration is not None:
            yield f"duration: has no meaning for {self.kind}; leave it out"
