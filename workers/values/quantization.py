"""Block floating point: float32 values as integers whose sum over the workers cannot overflow.

Each block (a packet's values) has an exponent e with 2^e > max|x|; the switch keeps the largest, e_max. Each worker
then sends q = rint(x * f) with f = (2^(b - 1) - 1) / (n * 2^e_max) for n workers and integers of b bits, 32 or 16. It
reads a sum S as S * (1 / f). If a vector's exponents were expected (scaling.py), an exponent up to 2 larger may replace
e_max.

A result y, stored as float32, differs from the exact sum of the inputs by at most

    |y - sum(x)| <= n / (2 f) * (1 + 2^-19) + ulp(y) / 2

The first term is the n roundings: with 16 bits, n^2 / 65534 of 2^e_max. Its factor 2^-19 covers the float64 arithmetic
of quantize and dequantize. That is three roundings of a number below 2^31: of x f, of 1 / f and of S (1 / f), which
takes half as long as S / f. The second term is the rounding of y to float32. A sum beyond float32 becomes an infinity.
See SwitchML (NSDI'21), section 3.7.
"""

import numpy as np
from numpy.typing import NDArray

LARGEST_SUMS = {32: 2**31 - 1, 16: 2**15 - 1}  # by the bits of an integer
# The range of the packet's signed byte. Smaller blocks use the smallest exponent, at which float32 loses nothing.
SMALLEST_EXPONENT = -128
LARGEST_EXPONENT = 127
MAX_WORKERS = {32: 1 << 16, 16: 1 << 8}  # by the bits: with more, the bound exceeds a worker's largest value

# Bits of the significands of the types of 16 bits, with the leading one.
FLOAT16, BFLOAT16 = 11, 8

# Blocks processed together: 64 KiB with 256 values each, which stay in the cache.
_SLAB = 64


def block_exponents(
    blocks: NDArray[np.float32], workers: int, bits: int = 32
) -> tuple[NDArray[np.int8], NDArray[np.bool_]]:
    """Return the exponent of each row, and whether the row can be quantized at all.

    A row cannot be quantized if it holds a NaN, an infinity or a magnitude of 2^127 and more; its exponent is then the
    smallest.

    Args:
        blocks: The rows [m, values].
        workers: Number of workers.
        bits: Bits of an integer.

    Returns:
        The exponents [m], and which rows can be quantized [m].
    """
    peaks = np.empty(len(blocks))
    magnitudes = np.empty((min(_SLAB, len(blocks)), blocks.shape[1]), np.float32)
    for start in range(0, len(blocks), _SLAB):
        slab = blocks[start : start + _SLAB]
        np.abs(slab, out=magnitudes[: len(slab)]).max(axis=1, out=peaks[start : start + _SLAB])
    quantizable = np.isfinite(peaks)
    mantissas, exponents = np.frexp(np.where(quantizable, peaks, 0.0))
    # rint may round up by half a step: n values just below 2^e could then sum to 2^31. A margin of n/2 steps
    # excludes that. With 32 bits and up to 256 workers float32 provides the margin, since its largest number below 2^e
    # is 2^e (1 - 2^-24).
    exponents += mantissas > 1 - workers / 2**bits
    quantizable &= exponents <= LARGEST_EXPONENT
    exponents[(peaks == 0) | ~quantizable] = SMALLEST_EXPONENT
    return np.maximum(exponents, SMALLEST_EXPONENT).astype(np.int8), quantizable


def first_unquantizable(
    blocks: NDArray[np.float32], quantizable: NDArray[np.bool_]
) -> tuple[np.intp, np.intp]:
    """Return the index of the value that makes the first bad block unquantizable: its largest magnitude, or first NaN.

    Args:
        blocks: The values [blocks, values].
        quantizable: Which blocks can be quantized [blocks].
    """
    block = np.argmin(quantizable)
    return block, np.argmax(np.abs(blocks[block]))


def scales(exponents: NDArray[np.int8], workers: int, bits: int = 32) -> NDArray[np.float64]:
    """Return the factor f of each block [blocks], from the largest exponent among the workers [blocks]."""
    return np.ldexp(LARGEST_SUMS[bits] / workers, -exponents.astype(np.int32))


def quantize(blocks: NDArray[np.float32], factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rint(x f) for each row of `blocks` [m, values], as float64 integers that fit the bits."""
    # In float32 the product's own rounding error would exceed that of rint.
    products = np.multiply(blocks, factors[:, np.newaxis], dtype=np.float64)
    return np.rint(products, out=products)


def dequantize(
    sums: NDArray[np.int32] | NDArray[np.int16] | NDArray[np.float64],
    factors: NDArray[np.float64],
    out: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Compute S (1 / f) for each row of integer sums, and return `out`.

    Args:
        sums: The sums [m, values], integers of any type and byte order.
        factors: The factor f of each row [m].
        out: Where the values go [m, values].
    """
    with np.errstate(over="ignore"):  # beyond float32: an infinity, as a float32 sum would give
        return np.multiply(sums, 1 / factors[:, np.newaxis], out=out, dtype=np.float64, casting="unsafe")


def workers_as_exact(precision: int) -> int:
    """Return how many workers' sums in integers of 16 bits are as exact as the type of the result.

    Let all values of a block be up to 2^e. The bound of n workers is then n^2 / 65534 of 2^e, and four times that with
    expected exponents (scaling.py). A sum near n 2^e is rounded by up to n 2^e / 2^(p + 1) in a type with p bits. So
    the first is not larger than the second for up to 2^(13 - p) workers: 32 with bfloat16, and 4 with float16.

    Args:
        precision: Bits p of the type's significand.
    """
    return 1 << max(13 - precision, 0)


def error_bound(
    factors: NDArray[np.float64], workers: int, values: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return the bound above for each result; NaN where the result is not finite.

    Args:
        factors: The factor f of each row [m].
        workers: Number of workers.
        values: The results [m, values].

    Returns:
        The bounds [m, values].
    """
    roundings = workers / (2 * factors) * (1 + 2**-19)
    # The largest float32's own spacing would reach beyond float32; the number before it has the same.
    magnitudes = np.minimum(np.abs(values), np.nextafter(np.finfo(np.float32).max, np.float32(0)))
    half_ulps = np.spacing(magnitudes).astype(np.float64) / 2
    return np.where(np.isfinite(values), half_ulps + roundings[:, np.newaxis], np.nan)
