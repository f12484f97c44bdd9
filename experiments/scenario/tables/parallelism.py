"""The table `parallelism` of a scenario: how a model is cut among workers, and in which order they compute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from fanin.experiments.scenario.tables.step import Straggler
from fanin.experiments.scenario.tables.table import Table
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES, VectorSize
from fanin.topologies.units import Seconds

Schedule = Literal["1f1b", "gpipe"]
Direction = Literal["forward", "backward"]


class Coordinates(NamedTuple):
    """The place of a rank: which part of each layer it has, in which copy of the model, and in which stage."""

    tensor: int
    data: int
    stage: int


class Parallelism(Table):
    """Training steps of a model that is cut into parts of layers (tensor) and stages of layers (pipeline).

    All values are those of the whole model. Each of tensor x pipeline workers has an equal part of it; further workers
    have further copies. Ranks are numbered as in Megatron-LM (Narayanan et al., "Efficient large-scale language model
    training on GPU clusters using Megatron-LM", 2021): first within a tensor group, then over copies, then over stages.
    """

    tensor: Annotated[int, Field(ge=1, description="workers that share each layer")] = 1
    pipeline: Annotated[int, Field(ge=1, description="number of stages, one after another")] = 1
    layers: Annotated[
        int,
        Field(
            ge=1, description="layers of the model; each pass has two all-reduces of a tensor group in each"
        ),
    ] = 1
    micro_batches: Annotated[
        int, Field(ge=1, description="micro-batches of a step, over all copies together")
    ] = 1
    chunks: Annotated[
        int,
        Field(ge=1, description="1f1b: groups of layers of a stage, spread over the model (interleaved)"),
    ] = 1
    schedule: Annotated[Schedule, Field(description="order in which a stage computes micro-batches")] = "1f1b"
    forward: Annotated[
        Seconds, Field(description="forward pass of a micro-batch if one worker had all layers")
    ]
    backward: Annotated[
        Seconds, Field(description="backward pass of a micro-batch if one worker had all layers")
    ]
    activations: Annotated[
        VectorSize | None,
        Field(
            description="size of a micro-batch between two layers, which is sent to the next stage, or summed"
        ),
    ] = None
    bucket: Annotated[
        VectorSize | None,
        Field(description="part of a worker's gradients that is summed as soon as it is ready; default: all"),
    ] = None
    stragglers: Annotated[
        tuple[Straggler, ...], Field(description="workers' hosts that always compute more slowly")
    ] = ()

    @property
    def model(self) -> int:
        """Return how many workers have one copy of the model."""
        return self.tensor * self.pipeline

    def copies(self, workers: int) -> int:
        """Return how many copies of the model there are."""
        return workers // self.model

    def micro_batches_each(self, workers: int) -> int:
        """Return how many micro-batches a copy of the model has in a step."""
        return self.micro_batches // self.copies(workers)

    @property
    def chunk_layers(self) -> int:
        """Return the number of layers in a stage's chunk."""
        return self.layers // (self.pipeline * self.chunks)

    @property
    def bucket_elements(self) -> int | None:
        """Return the number of float32 values in a bucket; None if all gradients of a worker are in one."""
        return None if self.bucket is None else self.bucket // ELEMENT_BYTES

    @property
    def tensor_calls(self) -> int:
        """Return how many all-reduces a tensor group makes in each pass of a micro-batch through a stage's chunk."""
        return 2 * self.chunk_layers if self.tensor > 1 else 0

    def seconds(self, direction: Direction) -> float:
        """Return the time of a pass of a micro-batch through a stage's chunk, for each of its workers."""
        return (self.forward if direction == "forward" else self.backward) / (self.model * self.chunks)

    def coordinates(self, rank: int, workers: int) -> Coordinates:
        """Return the place of a rank among `workers` workers."""
        rest, tensor = divmod(rank, self.tensor)
        stage, data = divmod(rest, self.copies(workers))
        return Coordinates(tensor, data, stage)

    def rank(self, at: Coordinates, workers: int) -> int:
        """Return the rank at this place, as the inverse of coordinates()."""
        return (at.stage * self.copies(workers) + at.data) * self.tensor + at.tensor

    def data_groups(self, workers: int) -> list[list[int]]:
        """Return the groups of ranks that have the same part of the model and sum their gradients, by first rank."""
        copies = range(self.copies(workers))
        return [
            [self.rank(Coordinates(tensor, data, stage), workers) for data in copies]
            for stage in range(self.pipeline)
            for tensor in range(self.tensor)
        ]

    def problems(self, workers: int, elements: int) -> Iterator[str]:
        """Yield what is wrong with this table.

        Args:
            workers: Number of workers.
            elements: Number of values in the model's gradient.
        """
        if workers % self.model:
            yield (
                f"parallelism: tensor x pipeline is {self.model}, which does not divide the {workers} workers; "
                "change one of them"
            )
            return
        if self.micro_batches % self.copies(workers):
            yield (
                f"parallelism.micro_batches: is {self.micro_batches}, must be a multiple of the {self.copies(workers)} "
                "copies of the model, workers / (tensor x pipeline)"
            )
        if self.layers % (self.pipeline * self.chunks):
            what = f"{self.pipeline} stages" + (f" times {self.chunks} chunks" if self.chunks > 1 else "")
            yield f"parallelism.layers: is {self.layers}, must be a multiple of the {what}"
        if self.chunks > 1:
            yield from self._chunk_problems(self.micro_batches_each(workers))
        if elements % self.model:
            yield f"size: must be a multiple of {ELEMENT_BYTES * self.model} bytes, a part of the model for each worker"
        if self.activations is None and self.model > 1:
            yield "parallelism.activations: missing; add the size of a micro-batch between layers, such as '4 MiB'"

    def _chunk_problems(self, each: int) -> Iterator[str]:
        if self.pipeline == 1 or self.schedule != "1f1b":
            yield "parallelism.chunks: need several stages and schedule = '1f1b'; leave it out"
        elif each % self.pipeline:
            yield (
                f"parallelism.micro_batches: are {each} for each copy, must be a multiple of the {self.pipeline} "
                "stages if these have chunks"
            )
