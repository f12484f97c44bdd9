"""The table `training` of a scenario: a training instead of all-reduces of vectors."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table


class Training(Table):
    """Training of a small network on handwritten digits, with all-reduced gradients."""

    epochs: Annotated[int, Field(ge=1, description="number of passes over the training set")] = 12
    batch: Annotated[int, Field(ge=1, description="samples in a step, of all workers together")] = 256
    hidden: Annotated[int, Field(ge=1, description="neurons of the hidden layer")] = 2048
    learning_rate: Annotated[
        float, Field(gt=0, description="factor of the reduced gradient in a step; momentum is 0.9")
    ] = 0.05
