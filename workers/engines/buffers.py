"""The memory of a vector to be summed, and of its sum."""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

_byte = ctypes.c_byte


class Buffers(ctypes.Structure):
    """Input `x` and output `out` of one worker's sum: flat float32 arrays [elements], which may be the same.

    They can be summed any number of times, each time with the current values of `x`. If `x` has gaps, a copy made at
    the start is summed instead. The structure is laid out for native.c, which works in the same memory.

    Attributes:
        bits: Bits of the integers that travel, 32 or 16; None: those of the worker's lease.
    """

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("_x", "_out", "_kept")),
        ("elements", ctypes.c_int64),
    )
    elements: int

    def __init__(self, x: NDArray[np.float32], out: NDArray[np.float32], bits: int | None = None) -> None:
        flags = x.flags
        if not (flags.c_contiguous and flags.aligned):
            x = np.require(x, requirements=["C", "A"])
        at = _where(x)
        super().__init__(at, at if out is x else _where(out), None, len(x))
        self.x = x
        self.out = out
        self.bits = bits
        self.kept: NDArray[np.float32] | None = None

    def keep(self, memory: NDArray[np.float32]) -> None:
        """Compute the sum in `memory` [elements], where it stays; it is copied into `out` only once it is complete."""
        if memory is not self.kept:
            self.kept = memory
            self._kept = address(memory)


def address(array: NDArray[Any]) -> int:
    """Return an array's address; faster than `array.ctypes`.

    Raises:
        TypeError: If the array has gaps or cannot be written to.
        ValueError: If the array is empty.
    """
    return ctypes.addressof(_byte.from_buffer(array))  # type: ignore[arg-type]


def _where(array: NDArray[Any]) -> int:
    """Return the address of any contiguous array."""
    try:
        return address(array)
    except (TypeError, ValueError):
        return int(array.ctypes.data)
