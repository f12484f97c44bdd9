"""The table `step` of a scenario: what a worker computes between two gradients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.experiments.scenario.tables.units import VectorSize
from fanin.topologies.units import Probability, Seconds


class Straggler(Table):
    """A host that always computes more slowly."""

    host: Annotated[str, Field(description="name of the host")]
    factor: Annotated[float, Field(gt=0, description="factor of its computing times")]


def slowness(stragglers: Iterable[Straggler], hosts: Iterable[str]) -> list[float]:
    """Return the factor by which each host takes longer to compute."""
    factors = {one.host: one.factor for one in stragglers}
    return [factors.get(host, 1.0) for host in hosts]


class ReadyBucket(Table):
    """A part of the gradient, in the order in which these become ready."""

    size: Annotated[VectorSize, Field(description="size of the part")]
    ready: Annotated[
        Probability, Field(description="share of the backward pass after which the part is complete")
    ]


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
    buckets: Annotated[
        tuple[ReadyBucket, ...], Field(description="the parts one by one, instead of bucket")
    ] = ()
    variation: Annotated[
        float, Field(ge=0, description="sigma of each worker's lognormal factor for a step, with median 1")
    ] = 0.0
    stragglers: Annotated[
        tuple[Straggler, ...], Field(description="workers' hosts that always compute more slowly")
    ] = ()

    def _problems(self) -> Iterator[str]:
        if self.buckets and self.bucket is not None:
            yield "bucket: cannot be combined with buckets; leave out one of them"
        if any(before.ready > after.ready for before, after in pairwise(self.buckets)):
            yield "buckets: are not in the order in which they become ready; sort them by ready"
