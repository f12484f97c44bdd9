"""The table `training` of a scenario: what is trained in the place of summing vectors."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table


class Training(Table):
    """Training a small network on handwritten digits, its gradients all-reduced."""

    epochs: Annotated[int, Field(ge=1)] = 12
    batch: Annotated[int, Field(ge=1)] = 256
    hidden: Annotated[int, Field(ge=1)] = 2048
