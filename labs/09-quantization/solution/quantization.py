"""Quantization: floating-point values as integers that a switch can add."""

import math

BITS = 31  # of a value without its sign
SMALLEST = -126  # the exponent of a block of zeros


def exponent(values: list[float]) -> int:
    """Return the smallest e, at least SMALLEST, such that every value is smaller than 2**e in magnitude.

    Raises:
        ValueError: If a value is infinite or no number.
    """
    if not all(math.isfinite(value) for value in values):
        raise ValueError("a gradient is infinite or no number")
    return max([SMALLEST, *(math.frexp(value)[1] for value in values if value)])


def shift(e: int, workers: int) -> int:
    """Return s: values are multiplied by 2**s, so that the sum of all workers' values fits into 32 bits.

    Args:
        e: The largest exponent of all workers.
        workers: How many there are.
    """
    return BITS - 1 - max(e, SMALLEST) - (workers - 1).bit_length()


def quantize(values: list[float], e: int, workers: int) -> list[int]:
    """Return the integers that are nearest to the values times 2**s."""
    return [round(math.ldexp(value, shift(e, workers))) for value in values]


def dequantize(sums: list[int], e: int, workers: int) -> list[float]:
    """Return what the sums of integers stand for."""
    return [math.ldexp(value, -shift(e, workers)) for value in sums]
