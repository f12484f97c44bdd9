"""The table `failures` of a scenario: a training of many days that fails and continues from its last checkpoint."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.topologies.units import Duration


class Failures(Table):
    """A long training, whose steps and checkpoints take as long as those that the run has simulated."""

    mtbf: Annotated[Duration, Field(gt=0, description="mean time between two failures of the whole job")]
    shape: Annotated[
        float,
        Field(
            ge=0.2,
            le=5,
            description="shape of the times between failures (Weibull); 1: exponential; below 1: in clusters",
        ),
    ] = 1.0
    interval: Annotated[
        Duration, Field(gt=0, description="time that the job trains from one checkpoint to the next")
    ]
    writing: Annotated[
        Literal["blocking", "background"],
        Field(description="training waits while a checkpoint is written, or continues"),
    ] = "blocking"
    copy_time: Annotated[
        Duration,
        Field(ge=0, description="background: time for which training waits for the copy that is written"),
    ] = 0.0
    restart: Annotated[
        Duration, Field(ge=0, description="time from a failure until the job trains again")
    ] = 0.0
    duration: Annotated[Duration, Field(gt=0, description="length of a training")]
    trainings: Annotated[int, Field(ge=1, description="number of trainings, each with other failures")] = 10
