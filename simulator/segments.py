"""Runs of equal values."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def segment_starts(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return where each run of equal values in `values` [m] (not empty) begins: [runs]."""
    begins = np.empty(len(values), np.bool_)
    begins[0] = True
    np.not_equal(values[1:], values[:-1], out=begins[1:])
    return begins.nonzero()[0]


def segments(values: NDArray[Any]) -> list[slice]:
    """Return the runs of equal values in `values` [m] (not empty)."""
    starts = segment_starts(values).tolist()
    return [slice(*ends) for ends in zip(starts, [*starts[1:], len(values)], strict=True)]
