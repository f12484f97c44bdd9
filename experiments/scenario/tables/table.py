"""The base of all tables in a scenario file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Priority = Annotated[
    int, Field(ge=0, le=7, description="virtual: priority of its packets at links, 7 is the highest")
]


class Table(BaseModel):
    """A table of a scenario file, immutable and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if problems := list(self._problems()):
            raise ValueError("\n".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        """Yield what is wrong with keys together; each line begins with a key and explains how to fix it."""
        return iter(())
