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
    """Where a rank is: which part of each layer it has, of which copy of the model, in which stage."""

    tensor: int
    data: int
    stage: int


class Parallelism(Table):
    """Training steps of a model that is cut into parts of layers (tensor) and stages of layers (pipeline).

    What is said is of the whole model; each of tensor x pipeline workers has an equal part of it, and the rest are
    further copies of it. Ranks are as Megatron-LM has them (Narayanan et al., "Efficient large-scale language model
    training on GPU clusters using Megatron-LM", 2021): first those of a tensor group, then the copies, then the stages.
    """

    tensor: Annotated[int, Field(ge=1, description="workers that share each layer")] = 1
    pipeline: Annotated[int, Field(ge=1, description="stages, one after the other")] = 1
    layers: Annotated[
        int, Field(ge=1, description="of the model; a tensor group all-reduces twice in each, in each pass")
    ] = 1
    micro_batches: Annotated[int, Field(ge=1, description="of a step, of all copies together")] = 1
    chunks: Annotated[
        int,
        Field(ge=1, description="of layers that a stage has, by 1f1b, spread over the model (interleaved)"),
    ] = 1
    schedule: Annotated[Schedule, Field(description="in which order a stage computes them")] = "1f1b"
    forward: Annotated[Seconds, Field(description="seconds of a micro-batch, if one worker had all layers")]
    backward: Annotated[Seconds, Field(description="the same of its backward pass")]
    activations: Annotated[
        VectorSize | None,
        Field(description="of a micro-batch between two layers: sent to the next stage, and all-reduced"),
    ] = None
    bucket: Annotated[
        VectorSize | None,
        Field(
            description="of a worker's gradients, summed as soon as its layers' are ready; left out, all of them"
        ),
    ] = None
    stragglers: tuple[Straggler, ...] = ()

    @property
    def model(self) -> int:
        """Workers that have one copy of the model."""
        return self.tensor * self.pipeline

    def copies(self, workers: int) -> int:
        """Of the model."""
        return workers // self.model

    def micro_batches_each(self, workers: int) -> int:
        """Of a copy, in a step."""
        return self.micro_batches // self.copies(workers)

    @property
    def chunk_layers(self) -> int:
        """Of a stage's chunk."""
        return self.layers // (self.pipeline * self.chunks)

    @property
    def bucket_elements(self) -> int | None:
        """float32 values in a bucket; None: all that a worker has."""
        return None if self.bucket is None else self.bucket // ELEMENT_BYTES

    @property
    def tensor_calls(self) -> int:
        """All-reduces of a tensor group in each pass of a micro-batch through a stage's chunk."""
        return 2 * self.chunk_layers if self.tensor > 1 else 0

    def seconds(self, direction: Direction) -> float:
        """Of a pass of a micro-batch through a stage's chunk, for each of its workers."""
        return (self.forward if direction == "forward" else self.backward) / (self.model * self.chunks)

    def coordinates(self, rank: int, workers: int) -> Coordinates:
        """Of one of so many workers."""
        rest, tensor = divmod(rank, self.tensor)
        stage, data = divmod(rest, self.copies(workers))
        return Coordinates(tensor, data, stage)

    def rank(self, at: Coordinates, workers: int) -> int:
        """The inverse of coordinates()."""
        return (at.stage * self.copies(workers) + at.data) * self.tensor + at.tensor

    def data_groups(self, workers: int) -> list[list[int]]:
        """The ranks that have the same part of the model, and sum their gradients; by first rank."""
        copies = range(self.copies(workers))
        return [
            [self.rank(Coordinates(tensor, data, stage), workers) for data in copies]
            for stage in range(self.pipeline)
            for tensor in range(self.tensor)
        ]

    def problems(self, workers: int, elements: int) -> Iterator[str]:
        """What is wrong with it for so many workers, and values of its gradient."""
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
            yield "parallelism.activations: missing; add what goes from layer to layer of a micro-batch, as '4 MiB'"

    def _chunk_problems(self, each: int) -> Iterator[str]:
        if self.pipeline == 1 or self.schedule != "1f1b":
            yield "parallelism.chunks: are of several stages by schedule = '1f1b'; leave it out"
        elif each % self.pipeline:
            yield (
                f"parallelism.micro_batches: are {each} for each copy, must be a multiple of the {self.pipeline} "
                "stages where these have chunks"
            )
