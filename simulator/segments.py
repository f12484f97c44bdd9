"""Runs of equal values."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def segments(values: NDArray[Any]) -> list[slice]:
    """Return the runs of equal values in `values` [m] (not empty)."""
    begins = np.empty(len(values), np.bool_)
    begins[0] = True
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    starts = begins.nonzero()[0].tolist()
    return [slice(*ends) for ends in zip(starts, [*starts[1:], len(values)], strict=True)]
