"""Where a vector is in memory that is summed, and where its sum goes."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

_byte = ctypes.c_byte


class Buffers(ctypes.Structure):
    """One worker's: `x`, and `out` for the sum, flat [elements] float32 both, which may be one.

    They can be summed any number of times: what is in `x` then. But a copy is summed if `x` has gaps. Laid out for
    native.c, which works in the same memory.
    """

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("_x", "_out", "_kept")),
        ("elements", ctypes.c_int64),
    )
    elements: int

    def __init__(self, x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        flags = x.flags
        if not (flags.c_contiguous and flags.aligned):
            x = np.require(x, requirements=["C", "A"])
        at = _where(x)
        super().__init__(at, at if out is x else _where(out), None, len(x))
        self.x = x
        self.out = out
        self.kept: NDArray[np.float32] | None = None

    def keep(self, memory: NDArray[np.float32]) -> None:
        """Make the sum in `memory` [elements], where it stays; into `out` it comes only once all of it is there."""
        if memory is not self.kept:
            self.kept = memory
            self._kept = address(memory)


def address(array: NDArray[Any]) -> int:
    """Where an array is in memory; `array.ctypes` takes longer to say it.

    Raises:
        TypeError: it has gaps, or cannot be written to. ValueError: it is empty.
    """
    return ctypes.addressof(_byte.from_buffer(array))  # type: ignore[arg-type]


def _where(array: NDArray[Any]) -> int:
    """Where any contiguous array is."""
    try:
        return address(array)
    except (TypeError, ValueError):
        return int(array.ctypes.data)
