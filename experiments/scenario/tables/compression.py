"""The table `compression` of a scenario: what workers send of their vectors."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fanin.experiments.scenario.tables.table import Table
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.topologies.units import Probability
from fanin.workers.values.compression import Compressor, Rounded, TopK

_DENSITY = 0.01


class Compression(Table):
    """Vectors are compressed, gathered by all and added up by each, in the place of an all-reduce round a ring."""

    kind: Annotated[
        Literal["none", "top-k", "8-bit", "4-bit"],
        Field(description="the largest values with their places, or all as integers with a scale for 256"),
    ] = "none"
    density: Annotated[
        Probability | None, Field(gt=0, description="of top-k, the share of values sent; left out, 1%")
    ] = None

    @property
    def compressor(self) -> Compressor | None:
        """What does it."""
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
        """Bytes of all workers' vectors, each of `size` bytes, once they are compressed; None: they are not."""
        compressor = self.compressor
        return None if compressor is None else workers * compressor.size(size // ELEMENT_BYTES)
