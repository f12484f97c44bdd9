"""Exact sums of integers in the network: as limbs of 16 bits, each carried by a float32.

Sums come back from the switches as float32 within the bound of quantization.py. They are exact after rounding to the
next integer if the error is less than 1/2. With limbs up to 65535, a block's exponent is at most 16, and with delayed
scaling at most 18. With n workers, f is therefore at least (2^31 - 1) / (n 2^18). Before it is rounded to float32, the
error of a sum is at most

    n / (2 f) * (1 + 2^-19) <= n^2 2^-14 (1 + 2^-18)

which is 1/4 for 64 workers. Their sums are below 64 * 2^16 = 2^22, where float32 rounds by at most 1/8: 3/8 in total.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_WORKERS = 64  # sums of more workers may not be exact


def limbs(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return the limbs [k * elements] of integers [elements] of any type, the lowest first; k = 1, 2 or 4."""
    if values.itemsize == 1:
        return values.view(np.uint8).astype(np.float32)
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return little.view("<u2").astype(np.float32)


def integers(sums: NDArray[np.float32], out: NDArray[Any]) -> None:
    """Convert sums of limbs [k * elements] into integers modulo 2^bits, as numpy adds, in `out` [elements]."""
    parts = np.rint(sums).astype(np.uint64).reshape(-1, max(out.itemsize // 2, 1))
    total = parts[:, 0].copy()
    for place in range(1, parts.shape[1]):
        total += parts[:, place] << np.uint64(16 * place)
    out[:] = total.astype(f"u{out.itemsize}").view(out.dtype)
