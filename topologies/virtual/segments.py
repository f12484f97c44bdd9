"""Runs of equal values."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def segment_starts(values: NDArray[Any]) -> NDArray[np.int64]:
    """Where each run of equal values in `values` [m] (not empty) begins: [runs]."""
    return np.concatenate([_ZERO, np.flatnonzero(values[1:] != values[:-1]) + 1])


def segments(values: NDArray[Any]) -> list[slice]:
    """The runs of equal values in `values` [m] (not empty)."""
    starts = segment_starts(values).tolist()
    return [slice(*ends) for ends in zip(starts, [*starts[1:], len(values)], strict=True)]


_ZERO = np.zeros(1, np.int64)
