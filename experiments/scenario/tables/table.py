"""What all tables of a scenario file have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Priority = Annotated[
    int, Field(ge=0, le=7, description="of its packets, 7 the highest; links then send it first, virtual")
]


class Table(BaseModel):
    """A table of a scenario file: its keys and no others, once and for all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if problems := list(self._problems()):
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        """What is wrong with keys together, each a line that begins with one of them and says the fix."""
        return iter(())
