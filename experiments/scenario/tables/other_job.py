"""The table `other_job` of a scenario: who else all-reduces on the same switches."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fanin.controller.tree import SLOTS
from fanin.experiments.scenario.tables.table import Priority, Table
from fanin.experiments.scenario.tables.units import VectorSize
from fanin.workers.collective import Algorithm


class OtherJob(Table):
    """A job on the hosts that do not take part in the one that is measured, from the beginning on."""

    algorithm: Algorithm = "in-network"
    size: Annotated[VectorSize, Field(description="of each of its workers' vectors of float32")]
    repetitions: Annotated[
        int, Field(ge=0, description="its all-reduces, one after the other; 0: there is no other job")
    ] = 1
    priority: Priority = 0
    window: Annotated[
        int | None,
        Field(ge=1, le=SLOTS, description="packets in flight from one to another; left out, as the job's"),
    ] = None
