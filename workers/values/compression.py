"""Compression of gradients: what a worker sends in the place of its vector of float32, and what becomes of the rest.

Sums of compressed vectors are not compressed, so each worker gets those of all others and adds them up itself: an
all-gather in the place of an all-reduce.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]

BLOCK = 256  # values that share a scale
_WORD = 4  # bytes, of which all that is sent is a multiple


@dataclass(frozen=True, slots=True)
class TopK:
    """The largest `density` (0 to 1) of all values, with their places: Aji and Heafield, "Sparse communication for
    distributed gradient descent", 2017.

    Raises:
        ValueError: there is no such share.
    """

    density: float

    def __post_init__(self) -> None:
        if not 0 < self.density <= 1:
            raise ValueError(f"density must be more than 0 and at most 1, all values, not {self.density}")

    def _count(self, elements: int) -> int:
        return min(math.ceil(self.density * elements), elements)

    def size(self, elements: int) -> int:
        """Bytes that are sent of so many values, a multiple of 4."""
        return 2 * _WORD * self._count(elements)

    def packed(self, x: Vector) -> NDArray[np.uint8]:
        """What is sent of `x` [elements], uint8 [size(elements)]: the places as uint32, in order, then the values."""
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

    Evenly spaced as in QSGD (Alistarh and others, 2017), but rounded to the nearest, not at random: wrong by half a
    scale at most, always alike, which ErrorFeedback makes good.

    Raises:
        ValueError: they have another number of bits.
    """

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in (8, 4):
            raise ValueError(f"bits must be 8 or 4, not {self.bits}")

    def size(self, elements: int) -> int:
        """See TopK."""
        return _WORD * (-(-elements // BLOCK)) + self._codes(elements)

    def _codes(self, elements: int) -> int:
        return _WORD * (-(-elements * self.bits // (8 * _WORD)))

    def packed(self, x: Vector) -> NDArray[np.uint8]:
        """See TopK: scales as float32, then integers; of 4 bits, the first of two is in the lower half.

        Raises:
            ValueError: a value is not finite.
        """
        most = 2 ** (self.bits - 1) - 1
        blocks = np.pad(x, (0, -x.size % BLOCK)).reshape(-1, BLOCK)
        scales = np.max(np.abs(blocks), axis=1, initial=0) / np.float32(most)
        if not np.isfinite(scales).all():
            raise ValueError("there is a value that is not finite, and so none to which others could be held")
        scales = np.minimum(scales, np.nextafter(np.finfo(np.float32).max / np.float32(most), np.float32(0)))
        normal = scales >= np.finfo(np.float32).tiny  # by smaller ones quotients may overflow: they are zeros
        scales = np.where(normal, scales, np.float32(0))
        codes = np.rint(blocks / np.where(normal, scales, np.float32(1))[:, np.newaxis])
        octets: NDArray[np.uint8] = codes.astype(np.int8).reshape(-1).view(np.uint8)
        if self.bits == 4:
            octets = (octets[0::2] & np.uint8(0xF)) | (octets[1::2] << np.uint8(4))
        return np.concatenate([scales.view(np.uint8), octets[: self._codes(x.size)]])

    def add(self, packed: NDArray[np.uint8], total: Vector) -> None:
        """See TopK."""
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
    """What others get of a vector [elements] of which this is sent."""
    total = np.zeros(elements, np.float32)
    compressor.add(packed, total)
    return total


def decompressed(compressor: Compressor, x: Vector) -> Vector:
    """What others get of `x` [elements]."""
    return unpacked(compressor, compressor.packed(x), x.size)


class ErrorFeedback:
    """A compressor of one worker's gradients, each of which takes what was left out of those before along:
    Karimireddy and others, "Error feedback fixes SignSGD and other gradient compression schemes", 2019.

    Each vector that is summed again and again needs one of its own.
    """

    def __init__(self, compressor: Compressor) -> None:
        self._compressor = compressor
        self._left: Vector | None = None

    def __repr__(self) -> str:
        """Alike at all workers, which compare it."""
        return f"ErrorFeedback({self._compressor!r})"

    def size(self, elements: int) -> int:
        """See TopK."""
        return self._compressor.size(elements)

    def carried(self, gradient: Vector) -> Vector:
        """`gradient` [elements] with what was left out before: what packed() compresses.

        Raises:
            ValueError: those before had another size.
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
        """See TopK, and carried(). What is left out now goes with the next."""
        x = self.carried(gradient)
        packed = self._compressor.packed(x)
        self._left = x - unpacked(self._compressor, packed, x.size)
        return packed

    def add(self, packed: NDArray[np.uint8], total: Vector) -> None:
        """See TopK."""
        self._compressor.add(packed, total)


Compression = Compressor | ErrorFeedback


def to_gather(packed: NDArray[np.uint8], rank: int, workers: int) -> NDArray[np.uint8]:
    """What an all-gather begins with: room for what all workers send, of which that of `rank` is there."""
    gathered = np.zeros((workers, packed.size), np.uint8)
    gathered[rank] = packed
    return gathered.reshape(-1)


def sum_of(compression: Compression, gathered: NDArray[np.uint8], workers: int, elements: int) -> Vector:
    """The sum of what it ends with, [elements], added in the order of ranks: the same for all."""
    total = np.zeros(elements, np.float32)
    for packed in gathered.reshape(workers, -1):
        compression.add(packed, total)
    return total
