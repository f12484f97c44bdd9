"""The table `training` of a scenario: a training instead of all-reduces of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.experiments.training.digits import CLASSES, PIXELS, TRAINING_IMAGES
from fanin.topologies.units import Probability, Seconds


class Training(Table):
    """Training of a small network on handwritten digits, with all-reduced gradients."""

    epochs: Annotated[int, Field(ge=1, description="number of passes over the training set")] = 12
    batch: Annotated[int, Field(ge=1, description="samples in a step, of all workers together")] = 256
    hidden: Annotated[int, Field(ge=1, description="neurons of the hidden layer")] = 2048
    learning_rate: Annotated[
        float, Field(gt=0, description="factor of the reduced gradient in a step; momentum is 0.9")
    ] = 0.05
    local_steps: Annotated[
        int,
        Field(ge=1, description="virtual: steps that each worker makes alone before all models are averaged"),
    ] = 1
    compute_time: Annotated[
        Seconds, Field(description="virtual: time for which a worker computes in a step")
    ] = 0.0
    stalls: Annotated[
        Probability, Field(description="virtual: share of the steps in which a worker stalls, drawn by seed")
    ] = 0.0
    stall_time: Annotated[
        Seconds,
        Field(description="virtual: length of a stall; drawn between half of it and twice as long"),
    ] = 0.0
    split: Annotated[
        Literal["random", "by-label"],
        Field(
            description="virtual: how workers share the images; by-label: each has those of a few digits only"
        ),
    ] = "random"
    target: Annotated[
        Probability, Field(description="accuracy on the test images; target_seconds is the time to reach it")
    ] = 0.95

    @property
    def vector_bytes(self) -> int:
        """Return the bytes of all parameters of the model."""
        return ELEMENT_BYTES * (PIXELS * self.hidden + self.hidden + self.hidden * CLASSES + CLASSES)

    def rounds(self, workers: int) -> int:
        """Return how often all models are averaged."""
        return self.epochs * self.steps_in_epoch(workers) // self.local_steps

    def steps_in_epoch(self, workers: int) -> int:
        """Return the steps that each worker makes in a pass over its own images; 0 if it has too few."""
        return TRAINING_IMAGES // workers // max(1, self.batch // workers)

    def problems(self, workers: int) -> Iterator[str]:
        """Yield what does not fit so many workers, in virtual time."""
        if self.batch < workers:
            yield f"training.batch: is {self.batch}, must be at least the {workers} workers, a sample for each"
        elif self.stalls and not self.stall_time:
            yield "training.stalls: workers stall for no time; set training.stall_time, such as '40 ms'"
        elif not self.rounds(workers):
            steps = self.epochs * self.steps_in_epoch(workers)
            yield f"training.local_steps: is {self.local_steps}, more than the {steps} steps of the training"
