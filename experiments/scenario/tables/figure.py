"""What a figure of results shows: a scenario's table `plot`, and by the same names the options of `fanin plot`."""

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
        raise ValueError("write the width and the height in inches, as '3.4x2.4'")
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
    """A figure of the results: their columns against one another."""

    kind: Annotated[
        Kind, Field(description="lines, or bars where x is words; boxes; cumulative distributions of x")
    ] = "lines"
    x: Annotated[str, Field(description="the column across")]
    y: Annotated[str | None, Field(description="the column up; cdf has none")] = None
    by: Annotated[tuple[str, ...], Field(description="a line for each of their values")] = ()
    where: Annotated[Where, Field(description="only rows with these values")] = Field(default_factory=dict)
    log: Annotated[tuple[Literal["x", "y"], ...], Field(description="axes with a logarithmic scale")] = ()
    spread: Annotated[
        Spread, Field(description="what shades and error bars show: all, the middle half, or of the median")
    ] = "minmax"
    closed_form: Annotated[bool, Field(description="what closed_form_seconds says, beside")] = False
    order: Annotated[tuple[str, ...], Field(description="lines, or words across, that come first")] = ()
    labels: Annotated[dict[str, str], Field(description="other names for lines, or for words across")] = (
        Field(default_factory=dict)
    )
    title: str | None = None
    style: Annotated[Style, Field(description="for a page, one of its two columns, or a slide")] = "page"
    size: Annotated[Inches | None, Field(description="inches, as 3.4x2.4; left out, the style's")] = None

    def _problems(self) -> Iterator[str]:
        if self.kind == "cdf" and self.y:
            yield "y: a cdf has x only, whose distribution it shows; leave y out"
        if self.kind != "cdf" and not self.y:
            yield "y: missing; add it"
        if (linear := {"cdf": "y", "box": "x"}.get(self.kind)) in self.log:
            yield f"log: {linear} of a figure of kind {self.kind} has no logarithmic scale; leave it out"
        if self.kind != "lines" and "spread" in self.model_fields_set:
            yield f"spread: a figure of kind {self.kind} shows all there is; leave it out"

    @property
    def columns(self) -> tuple[str, ...]:
        """All that it takes from the rows."""
        return *dict.fromkeys((self.x, self.measured)), *self.by, *self.where

    @property
    def measured(self) -> str:
        """The column whose values are drawn."""
        return self.y or self.x
