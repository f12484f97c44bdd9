"""Options that several benchmarks have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from fanin.options import vector_sizes
from fanin.topologies.units import BYTES, quantity_text

_LARGEST_SIZE = 10**9  # bytes

Sizes = Annotated[list[str], typer.Option(help="Sizes of the vectors; may be repeated", metavar="SIZE,…")]

AsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each measurement")]


def sizes_in_bytes(texts: Sequence[str]) -> list[int]:
    """Return sizes in bytes, the smallest first."""
    sizes = sorted(vector_sizes(texts))
    if sizes[-1] > _LARGEST_SIZE:
        raise typer.BadParameter(
            f"{quantity_text(sizes[-1], BYTES)}: the largest size is {quantity_text(_LARGEST_SIZE, BYTES)}",
            param_hint="--sizes",
        )
    return sizes
