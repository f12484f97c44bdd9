"""The base of all tables in a scenario file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticKnownError

from fanin.workers.collective import Algorithm
from fanin.workers.host_based.algorithms.registry import algorithm_names


def known_algorithm(name: str) -> str:
    """Return the name of an algorithm, which may have been registered after this module was imported."""
    if name not in (names := algorithm_names()):
        *others, last = map(repr, names)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}"})
    return name


AlgorithmName = Annotated[
    Algorithm,
    AfterValidator(known_algorithm),
    WithJsonSchema({"enum": [*algorithm_names()], "type": "string"}),
]

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
