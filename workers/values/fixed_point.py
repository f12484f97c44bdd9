"""Fixed-point integers with one factor that never changes, as in SwitchML (Sapio et al., NSDI 2021).

Protocols of papers use them (protocols/switchml, protocols/omnireduce); fanin's own has quantization.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

LARGEST = 16.0  # |x| that can be sent


def scale(workers: int) -> float:
    """Return the factor of the integers: even if all workers send LARGEST, the sum fits into 31 bits."""
    return float((2**31 - 1 - workers) / (workers * LARGEST))


def integers(x: Vector, workers: int) -> NDArray[np.int32]:
    """Return the integers of `x`, in its shape.

    Raises:
        ValueError: If a magnitude is above LARGEST, or a NaN.
    """
    if not (np.abs(x) <= LARGEST).all():
        raise ValueError(f"the fixed factor sends magnitudes up to {LARGEST:g}: clip or scale the input")
    return np.rint(x.astype(np.float64) * scale(workers)).astype(np.int32)


def draw_vector(draw: np.random.Generator, elements: int) -> Vector:
    """Draw a worker's vector, [elements], within what the fixed factor can send."""
    return np.clip(draw.standard_normal(elements, dtype=np.float32), -LARGEST, LARGEST)


def sum_bound(inputs: Sequence[Vector], _values: int = 0, _window: int = 0) -> NDArray[np.float64]:
    """Return the bound [elements]: half a step for each worker, and the rounding of the result to float32.

    Its parameters are those of a protocol's error_bound().
    """
    magnitude = np.abs(sum(x.astype(np.float64) for x in inputs))
    return len(inputs) * 0.5 / scale(len(inputs)) + magnitude * 2.0**-23
