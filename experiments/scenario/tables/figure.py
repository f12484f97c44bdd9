"""The table `plot` of a scenario, whose keys are also options of `fanin plot`: what a figure of results shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from fanin.experiments.scenario.styles import Kind, Spread, Style
from fanin.experiments.scenario.tables.table import Table

_NUMBER = r"\d+(\.\d+)?"
_SIZE = rf"^{_NUMBER}x{_NUMBER}$"
_LARGEST = 100.0  # inches


def _inches(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not re.match(_SIZE, value):
        raise ValueError("write the width and the height in inches, such as '3.4x2.4'")
    width, height = map(float, value.split("x"))
    if not (0 < width <= _LARGEST and 0 < height <= _LARGEST):
        raise ValueError(f"must be above 0 and up to {_LARGEST:g} inches each way")
    return width, height


def _texts(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    lists = {name: wanted if isinstance(wanted, list | tuple) else [wanted] for name, wanted in value.items()}
    return {name: tuple(map(str, wanted)) for name, wanted in lists.items()}


_VALUE = {"type": ["string", "number", "boolean"]}
Inches = Annotated[
    tuple[float, float], BeforeValidator(_inches), WithJsonSchema({"type": "string", "pattern": _SIZE})
]
Where = Annotated[
    dict[str, tuple[str, ...]],
    BeforeValidator(_texts),
    WithJsonSchema(
        {"type": "object", "additionalProperties": {"anyOf": [_VALUE, {"type": "array", "items": _VALUE}]}}
    ),
]


class Plot(Table):
    """A figure of the results: columns of their rows against one another."""

    kind: Annotated[
        Kind,
        Field(
            description="lines (bars if the values of x are words), boxes, or cumulative distributions of x"
        ),
    ] = "lines"
    x: Annotated[str, Field(description="the column on the horizontal axis")]
    y: Annotated[str | None, Field(description="the column on the vertical axis; cdf has none")] = None
    by: Annotated[
        tuple[str, ...], Field(description="columns; a line for each combination of their values")
    ] = ()
    where: Annotated[Where, Field(description="only rows with these values")] = Field(default_factory=dict)
    log: Annotated[tuple[Literal["x", "y"], ...], Field(description="axes with a logarithmic scale")] = ()
    spread: Annotated[
        Spread,
        Field(
            description="shaded areas and error bars: all values, the middle half, or a confidence interval of "
            "the median"
        ),
    ] = "minmax"
    closed_form: Annotated[
        bool, Field(description="also draw closed_form_seconds, the prediction of the analytical model")
    ] = False
    order: Annotated[tuple[str, ...], Field(description="lines, or words on x, that come first")] = ()
    labels: Annotated[dict[str, str], Field(description="other names for lines, or for words on x")] = Field(
        default_factory=dict
    )
    title: Annotated[str | None, Field(description="title above the figure")] = None
    style: Annotated[Style, Field(description="sized for a page, for one of two columns, or for a slide")] = (
        "page"
    )
    size: Annotated[
        Inches | None, Field(description="inches, such as 3.4x2.4; default: the size of the style")
    ] = None

    def _problems(self) -> Iterator[str]:
        if self.kind == "cdf" and self.y:
            yield "y: a cdf shows the distribution of x; leave y out"
        if self.kind != "cdf" and not self.y:
            yield "y: missing; add it"
        if (linear := {"cdf": "y", "box": "x"}.get(self.kind)) in self.log:
            yield f"log: {linear} cannot be logarithmic in a figure of kind {self.kind}; leave it out"
        if self.kind != "lines" and "spread" in self.model_fields_set:
            yield f"spread: a figure of kind {self.kind} shows all values; leave it out"

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns that the figure needs."""
        return *dict.fromkeys((self.x, self.measured)), *self.by, *self.where

    @property
    def measured(self) -> str:
        """Return the column whose values are drawn."""
        return self.y or self.x
