"""The table `step` of a scenario: what a worker computes between two gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.experiments.scenario.tables.units import VectorSize
from fanin.topologies.units import Seconds


class Straggler(Table):
    """A host that always computes more slowly."""

    host: Annotated[str, Field(description="name of the host")]
    factor: Annotated[float, Field(gt=0, description="factor of its computing times")]


def slowness(stragglers: Iterable[Straggler], hosts: Iterable[str]) -> list[float]:
    """Return the factor by which each host takes longer to compute."""
    factors = {one.host: one.factor for one in stragglers}
    return [factors.get(host, 1.0) for host in hosts]


class Step(Table):
    """A training step: a forward pass, then a backward pass that makes the gradient ready bucket by bucket."""

    forward: Annotated[Seconds, Field(description="time of the forward pass")]
    backward: Annotated[Seconds, Field(description="time of the backward pass")]
    loading: Annotated[
        Seconds, Field(description="time for which a worker waits for its data before the forward pass")
    ] = 0.0
    bucket: Annotated[
        VectorSize | None,
        Field(description="part of the gradient that is summed as soon as it is ready; default: all"),
    ] = None
    variation: Annotated[
        float, Field(ge=0, description="sigma of each worker's lognormal factor for a step, with median 1")
    ] = 0.0
    stragglers: Annotated[
        tuple[Straggler, ...], Field(description="workers' hosts that always compute more slowly")
    ] = ()
