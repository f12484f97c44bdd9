"""A value that theory derives, together with that of virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fanin.native.files import write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """One value, by a theory and in virtual time.

    Attributes:
        what: What it is.
        theory: The value by the theory; not 0.
        virtual: The value in virtual time.
        form: Format of both.
        lowest: Lowest allowed error, as a share of the theory's value.
        highest: Highest allowed error.
    """

    what: str
    theory: float
    virtual: float
    form: str
    lowest: float
    highest: float

    @property
    def error(self) -> float:
        """Return the difference of virtual time, as a share of the theory's value."""
        return self.virtual / self.theory - 1

    @property
    def agrees(self) -> bool:
        """Return whether the error is within its limits."""
        return self.lowest <= self.error <= self.highest

    @property
    def columns(self) -> dict[str, Any]:
        """Return the entry of theory.json."""
        columns = asdict(self)
        del columns["form"]  # only for tables
        return {**columns, "error": self.error, "agrees": self.agrees}

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cells of a table row."""
        values = (format(value, self.form) for value in (self.theory, self.virtual))
        limits = f"{self.lowest:.0%} to {self.highest:.0%}"
        return (self.what, *values, f"{self.error:+.1%}", limits)


def write(found: Sequence[Derived], folder: Path) -> None:
    """Write theory.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json({"values": [one.columns for one in found]}, folder / "theory.json")
