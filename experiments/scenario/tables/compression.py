"""The table `compression` of a scenario: how workers compress their vectors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.topologies.units import Probability
from fanin.workers.values.compression import Compressor, Rounded, TopK

_DENSITY = 0.01


class Compression(Table):
    """Compression of vectors: instead of a ring all-reduce, workers gather all compressed vectors and add them up."""

    kind: Annotated[
        Literal["none", "top-k", "8-bit", "4-bit"],
        Field(
            description="top-k: the largest values and their indices; others: integers, a scale for 256 of them"
        ),
    ] = "none"
    density: Annotated[
        Probability | None, Field(gt=0, description="top-k: share of values that are sent; default: 1%")
    ] = None

    @property
    def compressor(self) -> Compressor | None:
        """Return the compressor; None if vectors are not compressed."""
        match self.kind:
            case "top-k":
                return TopK(_DENSITY if self.density is None else self.density)
            case "8-bit":
                return Rounded(8)
            case "4-bit":
                return Rounded(4)
            case "none":
                return None

    def gathered(self, size: int, workers: int) -> int | None:
        """Return the bytes of all workers' compressed vectors; None if vectors are not compressed.

        Args:
            size: Bytes of each vector before compression.
            workers: Number of workers.
        """
        compressor = self.compressor
        return None if compressor is None else workers * compressor.size(size // ELEMENT_BYTES)
