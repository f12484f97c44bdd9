"""A published figure together with ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fanin.native.files import write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A figure of a paper.

    Attributes:
        what: What it is.
        source: Where it was published.
        value: The figure as published.
        least: Least acceptable value of ours.
        most: Greatest acceptable value of ours.
        form: Format of ours.
        why: Why ours differs.
    """

    what: str
    source: str
    value: str
    least: float
    most: float
    form: str
    why: str

    def compared_with(self, ours: float) -> PaperComparison:
        """Return it together with our figure."""
        return PaperComparison(self, ours)


@dataclass(frozen=True, slots=True)
class PaperComparison:
    """A published figure and ours."""

    published: Published
    ours: float

    @property
    def agrees(self) -> bool:
        """Return whether ours is in the acceptable range."""
        return self.published.least <= self.ours <= self.published.most

    @property
    def columns(self) -> dict[str, Any]:
        """Return the entry of papers.json."""
        published = asdict(self.published)
        del published["form"]  # only for tables
        return {**published, "ours": self.ours, "agrees": self.agrees}

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cells of a table row."""
        of = self.published
        figures = (format(figure, of.form) for figure in (self.ours, of.least, of.most))
        ours, least, most = figures
        return (of.what, of.value, ours, f"{least} to {most}")


def write(found: Sequence[PaperComparison], folder: Path) -> None:
    """Write papers.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"figures": [one.columns for one in found]}
    write_json(document, folder / "papers.json")
