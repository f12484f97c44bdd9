"""A published figure and ours beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fanin.native.files import write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A figure of a paper.

    value: as it is published. least, most: where ours must be. form: how ours is shown. why: what makes ours differ.
    """

    what: str
    source: str
    value: str
    least: float
    most: float
    form: str
    why: str

    def beside(self, ours: float) -> Beside:
        """With our figure."""
        return Beside(self, ours)


@dataclass(frozen=True, slots=True)
class Beside:
    """A published figure and ours."""

    published: Published
    ours: float

    @property
    def agrees(self) -> bool:
        """Whether ours is where it must be."""
        return self.published.least <= self.ours <= self.published.most

    @property
    def cells(self) -> tuple[str, ...]:
        """For people."""
        of = self.published
        figures = (format(figure, of.form) for figure in (self.ours, of.least, of.most))
        ours, least, most = figures
        return (of.what, of.value, ours, f"{least} to {most}")


def write(found: Sequence[Beside], folder: Path) -> None:
    """papers.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "figures": [{**asdict(one.published), "ours": one.ours, "agrees": one.agrees} for one in found]
    }
    for figure in document["figures"]:
        del figure["form"]  # how people are shown it
    write_json(document, folder / "papers.json")
