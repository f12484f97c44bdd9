"""The table `storage` of a scenario: a job that reads its data from file servers, and writes checkpoints to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import Field

from fanin.experiments.scenario.tables.table import Priority, Table
from fanin.topologies.units import Bytes
from fanin.workers.collective import Transport


class Storage(Table):
    """File servers, which are the last hosts without workers, and what each worker reads and writes there."""

    servers: Annotated[int, Field(ge=1, description="file servers, which share the workers evenly")] = 1
    batch: Annotated[
        Bytes, Field(description="what each worker reads for each step, which waits for it; 0: nothing")
    ] = 0
    prefetch: Annotated[
        int,
        Field(
            ge=0, le=64, description="batches that a worker asks for before it needs them; 0: when it does"
        ),
    ] = 1
    checkpoint: Annotated[
        Bytes,
        Field(
            description="what each worker writes for a checkpoint, while it continues the training; 0: nothing"
        ),
    ] = 0
    every: Annotated[int, Field(ge=1, description="steps from one checkpoint to the next")] = 1
    writers: Annotated[
        int | None,
        Field(ge=1, description="workers that write to a server at the same time; default: all"),
    ] = None
    window: Annotated[
        int, Field(ge=1, le=1 << 14, description="packets that a connection may have in flight")
    ] = 256
    transport: Annotated[Transport, Field(description="transport of the connections")] = "selective-repeat"
    priority: Priority = 0

    @property
    def settled(self) -> Self:
        """Return this table without values that have no effect."""
        fields = type(self).model_fields
        unused = [] if self.batch else ["prefetch"]
        unused += [] if self.checkpoint else ["every", "writers"]
        return self.model_copy(update={name: fields[name].default for name in unused})

    def workers_of_a_server(self, workers: int) -> int:
        """Return the number of workers of the server that has the most."""
        return -(-workers // self.servers)

    def _problems(self) -> Iterator[str]:
        if not self.batch and not self.checkpoint:
            yield "batch: give batch, such as '1 MB', or checkpoint, or both"
