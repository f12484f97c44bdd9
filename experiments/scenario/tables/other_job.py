"""The table `other_job` of a scenario: another job on the same switches."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fanin.controller.tree import SLOTS
from fanin.experiments.scenario.tables.table import AlgorithmName, Priority, Table
from fanin.experiments.scenario.tables.units import VectorSize


class OtherJob(Table):
    """A job on the hosts outside the measured one, from the beginning of the run on, or several such jobs."""

    algorithm: Annotated[AlgorithmName, Field(description="its all-reduce algorithm")] = "in-network"
    jobs: Annotated[
        int, Field(ge=1, le=15, description="number of such jobs, which divide these hosts among them")
    ] = 1
    size: Annotated[VectorSize, Field(description="size of the float32 vector of each of its workers")]
    repetitions: Annotated[
        int, Field(ge=0, description="number of its all-reduces, one after another; 0: no other job")
    ] = 1
    priority: Priority = 0
    window: Annotated[
        int | None,
        Field(ge=1, le=SLOTS, description="packets in flight; default: as in the measured job"),
    ] = None
