"""Quantization: floating-point values as integers that a switch can add."""

BITS = 31  # of a value without its sign
SMALLEST = -126  # the exponent of a block of zeros


def exponent(values: list[float]) -> int:
    """Return the smallest e, at least SMALLEST, such that every value is smaller than 2**e in magnitude.

    Raises:
        ValueError: If a value is infinite or no number.
    """
    return SMALLEST  # TODO 1


def shift(e: int, workers: int) -> int:
    """Return s: values are multiplied by 2**s, so that the sum of all workers' values fits into 32 bits.

    Args:
        e: The largest exponent of all workers.
        workers: How many there are.
    """
    return 0  # TODO 2


def quantize(values: list[float], e: int, workers: int) -> list[int]:
    """Return the integers that are nearest to the values times 2**s."""
    return [int(value) for value in values]  # TODO 3


def dequantize(sums: list[int], e: int, workers: int) -> list[float]:
    """Return what the sums of integers stand for."""
    return [float(value) for value in sums]  # TODO 4
