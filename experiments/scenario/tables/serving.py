"""The table `serving` of a scenario: requests of front ends, which the workers answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.topologies.units import Bytes, Probability, Seconds
from fanin.workers.collective import Transport

_FEWEST = 50  # requests of which percentiles say something


class Serving(Table):
    """Requests for inference: each asks several workers, the servers, and waits for the last answer.

    Hosts that are not workers are front ends, each with Poisson arrivals.
    """

    duration: Annotated[Seconds, Field(gt=0, description="time during which requests come")]
    fan_out: Annotated[
        int, Field(ge=1, description="workers that a request asks, drawn for each request")
    ] = 1
    load: Annotated[
        Probability, Field(gt=0, lt=1, description="share of the time for which a worker computes")
    ]
    request: Annotated[Bytes, Field(gt=0, description="size of a request to one worker")] = 1000
    answer: Annotated[Bytes, Field(gt=0, description="size of an answer")] = 16_000
    service_time: Annotated[
        Seconds, Field(gt=0, description="mean time for which a worker computes an answer")
    ]
    service: Annotated[Literal["exponential", "constant"], Field(description="distribution of that time")] = (
        "exponential"
    )
    slots: Annotated[int, Field(ge=1, description="answers that a worker computes at once; others wait")] = 1
    connections: Annotated[
        Literal["reused", "new"], Field(description="connections stay open, or each question has its own")
    ] = "reused"
    handshakes: Annotated[
        int, Field(ge=0, description="round trips that open a connection: one for TCP, one more for TLS 1.3")
    ] = 2
    window: Annotated[
        int, Field(ge=1, le=1 << 14, description="packets that a connection may have in flight")
    ] = 64
    transport: Annotated[Transport, Field(description="transport of the connections")] = "selective-repeat"

    @property
    def vector_bytes(self) -> int:
        """Return the bytes of an answer, in whole values."""
        return -(-self.answer // ELEMENT_BYTES) * ELEMENT_BYTES

    def requests_per_second(self, workers: int) -> float:
        """Return the mean number of requests in a second, for all front ends together."""
        return self.load * self.slots * workers / (self.fan_out * self.service_time)

    def problems(self, workers: int) -> Iterator[str]:
        """Yield what does not fit so many workers."""
        if self.fan_out > workers:
            yield f"serving.fan_out: is {self.fan_out}, more than the {workers} workers; reduce it"
        elif (expected := self.duration * self.requests_per_second(workers)) < _FEWEST:
            yield (
                f"serving.duration: is {self.duration:g} s, in which {expected:.0f} requests come; make it at least "
                f"{_FEWEST / self.requests_per_second(workers):.2g} s, for {_FEWEST} requests"
            )
