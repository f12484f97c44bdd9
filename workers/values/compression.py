"""Compression of gradients: what a worker sends instead of its vector of float32, and what happens to the rest.

Sums of compressed vectors are not compressed, so each worker receives the vectors of all others and adds them up
itself: an all-gather instead of an all-reduce.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

BLOCK = 256  # values that share a scale
_WORD = 4  # bytes; all sizes sent are multiples


@dataclass(frozen=True, slots=True)
class TopK:
    """The values with the largest magnitudes, with their positions.

    See Aji and Heafield, "Sparse communication for distributed gradient descent", 2017.

    Attributes:
        density: Share of all values that is sent, more than 0 and at most 1.

    Raises:
        ValueError: If `density` is out of range.
    """

    density: float

    def __post_init__(self) -> None:
        if not 0 < self.density <= 1:
            raise ValueError(f"density must be more than 0 and at most 1, all values, not {self.density}")

    def _count(self, elements: int) -> int:
        return min(math.ceil(self.density * elements), elements)

    def size(self, elements: int) -> int:
        """Return how many bytes are sent for this many values, a multiple of 4."""
        return 2 * _WORD * self._count(elements)

    def packed(self, x: Vector) -> NDArray[np.uint8]:
        """Return what is sent for `x` [elements], uint8 [size(elements)].

        It holds the positions as uint32, in order, then the values.
        """
        left_out = x.size - self._count(x.size)
        places = np.sort(np.argpartition(np.abs(x), left_out)[left_out:]) if x.size else np.zeros(0, np.intp)
        return np.concatenate([places.astype(np.uint32).view(np.uint8), x[places].view(np.uint8)])

    def add(self, packed: NDArray[np.uint8], total: Vector) -> None:
        """Add what was sent to `total` [elements]."""
        places, values = np.split(packed, 2)
        total[places.view(np.uint32)] += values.view(np.float32)


@dataclass(frozen=True, slots=True)
class Rounded:
    """All values, as integers of `bits` (8 or 4) times a scale for each block of 256.

    The integers are evenly spaced as in QSGD (Alistarh and others, 2017), but rounded to the nearest, not at random.
    The error is at most half a scale and always the same, and ErrorFeedback compensates for it.

    Attributes:
        bits: Bits of an integer, 8 or 4.

    Raises:
        ValueError: If `bits` is another number.
    """

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in (8, 4):
            raise ValueError(f"bits must be 8 or 4, not {self.bits}")

    def size(self, elements: int) -> int:
        """Return how many bytes are sent for this many values, a multiple of 4."""
        return _WORD * (-(-elements // BLOCK)) + self._codes(elements)

    def _codes(self, elements: int) -> int:
        return _WORD * (-(-elements * self.bits // (8 * _WORD)))

    def packed(self, x: Vector) -> NDArray[np.uint8]:
        """Return what is sent for `x` [elements]: scales as float32, then integers.

        Of two 4-bit integers in a byte, the first is in the lower half.

        Raises:
            ValueError: If a value is not finite.
        """
        most = 2 ** (self.bits - 1) - 1
        blocks = np.pad(x, (0, -x.size % BLOCK)).reshape(-1, BLOCK)
        scales = np.max(np.abs(blocks), axis=1, initial=0) / np.float32(most)
        if not np.isfinite(scales).all():
            raise ValueError("cannot compress a value that is not finite, since its block has no scale")
        scales = np.minimum(scales, np.nextafter(np.finfo(np.float32).max / np.float32(most), np.float32(0)))
        # Smaller scales are replaced by zeros, since dividing by them may overflow.
        normal = scales >= np.finfo(np.float32).tiny
        scales = np.where(normal, scales, np.float32(0))
        codes = np.rint(blocks / np.where(normal, scales, np.float32(1))[:, np.newaxis])
        octets: NDArray[np.uint8] = codes.astype(np.int8).reshape(-1).view(np.uint8)
        if self.bits == 4:
            octets = (octets[0::2] & np.uint8(0xF)) | (octets[1::2] << np.uint8(4))
        return np.concatenate([scales.view(np.uint8), octets[: self._codes(x.size)]])

    def add(self, packed: NDArray[np.uint8], total: Vector) -> None:
        """Add what was sent to `total` [elements]."""
        blocks = -(-total.size // BLOCK)
        scales, octets = np.split(packed, [_WORD * blocks])
        codes = octets.view(np.int8)
        if self.bits == 4:
            # A shift to the right copies the sign.
            codes = np.stack([codes << 4 >> 4, codes >> 4], axis=1).reshape(-1)
        each = np.repeat(scales.view(np.float32), BLOCK)[: total.size]
        total += codes[: total.size] * each


Compressor = TopK | Rounded


def unpacked(compressor: Compressor, packed: NDArray[np.uint8], elements: int) -> Vector:
    """Return the vector [elements] that other workers get from a packed one."""
    total = np.zeros(elements, np.float32)
    compressor.add(packed, total)
    return total


def decompressed(compressor: Compressor, x: Vector) -> Vector:
    """Return the vector that other workers get if `x` [elements] is sent."""
    return unpacked(compressor, compressor.packed(x), x.size)


class ErrorFeedback:
    """A compressor of one worker's gradients that adds what was left out of earlier gradients to each new one.

    See Karimireddy and others, "Error feedback fixes SignSGD and other gradient compression schemes", 2019. Each vector
    that is summed repeatedly needs its own ErrorFeedback.
    """

    def __init__(self, compressor: Compressor) -> None:
        self._compressor = compressor
        self._left: Vector | None = None

    def __repr__(self) -> str:
        """Return a text that is the same at all workers, which compare it."""
        return f"ErrorFeedback({self._compressor!r})"

    def size(self, elements: int) -> int:
        """Return how many bytes are sent for this many values, a multiple of 4."""
        return self._compressor.size(elements)

    def carried(self, gradient: Vector) -> Vector:
        """Return `gradient` [elements] plus what was left out before: the input of the compressor.

        Raises:
            ValueError: If earlier gradients had another size.
        """
        if self._left is None:
            return gradient
        if gradient.size != self._left.size:
            raise ValueError(
                f"what was left out is of {self._left.size} elements, and not {gradient.size}; "
                "give each vector an ErrorFeedback of its own"
            )
        return gradient + self._left

    def packed(self, gradient: Vector) -> NDArray[np.uint8]:
        """Return what is sent for carried(gradient), and keep what is left out for the next gradient."""
        x = self.carried(gradient)
        packed = self._compressor.packed(x)
        self._left = x - unpacked(self._compressor, packed, x.size)
        return packed

    def add(self, packed: NDArray[np.uint8], total: Vector) -> None:
        """Add what was sent to `total` [elements]."""
        self._compressor.add(packed, total)


Compression = Compressor | ErrorFeedback


def to_gather(packed: NDArray[np.uint8], rank: int, workers: int) -> NDArray[np.uint8]:
    """Return the input of an all-gather: room for what all workers send, with the part of `rank` filled in."""
    gathered = np.zeros((workers, packed.size), np.uint8)
    gathered[rank] = packed
    return gathered.reshape(-1)


def sum_of(compression: Compression, gathered: NDArray[np.uint8], workers: int, elements: int) -> Vector:
    """Return the sum of what was gathered, [elements], added in the order of ranks: the same at all workers."""
    total = np.zeros(elements, np.float32)
    for packed in gathered.reshape(workers, -1):
        compression.add(packed, total)
    return total
