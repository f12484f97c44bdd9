"""The chunks of an all-reduce, and what each of them carries.

Let B = min(window, blocks). Chunk i carries the values of block i - B and announces the exponent of block i. The values
of a block are therefore sent when the largest exponent of that block is known. The first B chunks carry no values, and
the last B announce nothing.

A vector of at most as many blocks as the window has slots, and as long as one summed before, skips the first round
trip. Chunk i then announces the exponent of block i and carries its values, scaled for the exponent expected
(scaling.py). All workers have the same expectations, and see the same largest exponents. If an exponent differs from
the expected one, the sum of that block does not count. Once all exponents are known, chunk B + j carries the j-th such
block, scaled correctly.

In a Partition every part has an owner. A scatter sums like an all-reduce, but only the owner gets a block's sum: it
sends no values for the block and adds its own to what arrives, and all others only send. A gather copies the owner's
block to all others, as it is: there is nothing to scale, so chunk i carries block i - 1, and chunk 0 the agreement.

Blocks are numbered in the order in which they travel. If the parts followed one another, the links of only one owner
would be busy at a time, so a run of a few blocks of each part travels in turn.
"""

import ctypes
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fanin.workers import wire
from fanin.workers.agreement import Agreement
from fanin.workers.values import quantization


def span(indices: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return consecutive indices [m] as a slice, others unchanged: a slice gives a view instead of a copy."""
    first, count = int(indices[0]), len(indices)
    if count == 1 or np.count_nonzero(indices[1:] - indices[:-1] == 1) == count - 1:
        return slice(first, first + count)
    return indices


ALL_REDUCE, GATHER, SCATTER = range(3)
LONGEST_RUN = 32  # so many blocks fit into half a superframe; shorter runs cost more processor time

_Number = TypeVar("_Number", bound=np.generic)


def runs(blocks: int, parts: int, window: int) -> tuple[int, int]:
    """Return how many blocks of a part travel in its first turn, and in each later one but the last.

    Some links idle during the first turn of one part, and others during the last turn of one. So these two are shorter,
    and share what is left over.

    Args:
        blocks: Blocks of a part.
        parts: Number of parts.
        window: Packets in flight.
    """
    run = max(1, min(LONGEST_RUN, window // parts))
    return ((blocks - 1) % run + 2) // 2, run


NOBODY = -1  # the part of a worker that owns none


@dataclass(frozen=True, slots=True)
class Partition:
    """A vector of equal parts, each of which has an owner.

    Attributes:
        operation: "gather" copies each part from its owner to all others; "scatter" brings the sum of each part to its
            owner.
        parts: Number of parts.
        own: The part that this worker owns, or NOBODY.
    """

    operation: Literal["gather", "scatter"]
    parts: int
    own: int


class Tensor(ctypes.Structure):
    """The blocks of vectors of `elements` (at least one) float32 numbers, which are summed one after the other.

    The structure is laid out for native.c.

    Attributes:
        values: Elements of a block.
        bits: Bits of the integers that travel, 32 or 16.
        call: The purpose of the all-reduces, in words that must be the same at all workers.
        expected: Expected exponents by block. None if there are more blocks than the window has slots, or if no
            exponents are to be expected.
        delayed: Whether the first chunks carry values, scaled for the expected exponents.
        signature: A hash of everything that must be the same at all workers. Every packet carries it, added to the
            number of the call.
        most_chunks: Number of chunks of a vector if no exponent is as expected.
        operation: ALL_REDUCE, GATHER or SCATTER.
        parts: See Partition; 1 in an all-reduce.
        own: See Partition.
        part: Elements of a part.
        run: How many blocks of a part travel before some of the next part do.
        first_run: The same, when each part has its first turn.
    """

    _fields_ = (
        ("_expected", ctypes.c_void_p),
        ("_agreement", ctypes.c_void_p),
        ("delayed", ctypes.c_int64),
        ("signature", ctypes.c_int64),
        ("most_chunks", ctypes.c_int64),
        ("values", ctypes.c_int64),
        ("bits", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ("operation", "parts", "own", "part", "run", "first_run")),
    )
    delayed: int
    signature: int
    most_chunks: int
    values: int
    bits: int
    operation: int
    parts: int
    own: int
    part: int
    run: int
    first_run: int

    def __init__(
        self,
        elements: int,
        call: str = "",
        number: int = 0,
        *,
        workers: int,
        values: int,
        window: int,
        expects: bool = True,
        partition: Partition | None = None,
    ) -> None:
        super().__init__()
        self.partition = partition
        self.parts = 1
        if partition:
            self.operation = GATHER if partition.operation == "gather" else SCATTER
            self.parts, self.own = partition.parts, partition.own
        if elements % self.parts:
            raise ValueError(f"{elements} elements cannot be divided into {self.parts} equal parts")
        self.elements = elements
        self.call = call
        self.workers = workers
        self.values = values
        self.bits = wire.BITS[values]
        self.window = window
        self.part = elements // self.parts
        of_part = -(-self.part // values)
        self.blocks = self.parts * of_part
        self.first_run, self.run = runs(of_part, self.parts, window)
        gathers = self.operation == GATHER
        self.lead = min(window, self.blocks + gathers)
        self.most_chunks = self.blocks + (1 if gathers else self.lead)
        expects = expects and not gathers and self.blocks == self.lead
        self.expected = np.zeros(self.blocks, np.int8) if expects else None
        self.agreement = Agreement(elements, call, number, workers=workers, values=values, window=window)
        self._expected = None if self.expected is None else self.expected.ctypes.data
        self._agreement = self.agreement.digits.ctypes.data
        self._sign()

    def _sign(self) -> None:
        alike = (
            *(self.call, self.elements, self.workers, self.values, self.window),
            *(self.operation, self.parts, bool(self.delayed)),
        )
        self.signature = int.from_bytes(sha256(repr(alike).encode()).digest()[:4])

    @property
    def bare(self) -> int:
        """Return how many chunks carry none of the vector's values: the first B, one in a gather, or none."""
        if self.operation == GATHER:
            return 1
        return 0 if self.delayed else self.lead

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        """Return where in memory each block is [blocks], counted in blocks from the first part on."""
        in_memory = np.arange(self.blocks).reshape(self.parts, -1)
        ends = range(self.first_run, in_memory.shape[1], self.run)
        return np.concatenate([turn.reshape(-1) for turn in np.split(in_memory, ends, axis=1)])

    def by_block(self, vector: NDArray[_Number]) -> NDArray[_Number]:
        """Return a vector [elements] as blocks [blocks, values], with zeros after each part; if possible a view."""
        parts, padding = vector.reshape(self.parts, self.part), -self.part % self.values
        blocks = (np.pad(parts, ((0, 0), (0, padding))) if padding else parts).reshape(-1, self.values)
        return blocks if self.parts == 1 else blocks[self._rows]

    def by_element(self, blocks: NDArray[_Number]) -> NDArray[_Number]:
        """Return the vector [elements] of which by_block() makes these blocks [blocks, values]."""
        in_memory = blocks
        if self.parts > 1:
            in_memory = np.empty_like(blocks)
            in_memory[self._rows] = blocks
        return in_memory.reshape(self.parts, -1)[:, : self.part].reshape(-1)

    def of_blocks(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which elements [elements] are in the chosen blocks [blocks]."""
        return self.by_element(np.repeat(chosen[:, np.newaxis], self.values, axis=1))

    def gives(self, blocks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for which of these blocks of a Partition this worker sends values, and so gets none."""
        owns: NDArray[np.bool_] = self._rows[blocks] // (self.blocks // self.parts) == self.own
        return owns if self.operation == GATHER else ~owns

    @property
    def least_chunks(self) -> int:
        """Return how many chunks the next vector has if all exponents are as expected."""
        return self.blocks + self.bare

    def finish(self) -> bool:
        """Expect the next vector to be like this one, whose chunks have all been read.

        Returns:
            Whether this call switched `delayed` on.
        """
        if self.delayed or self.expected is None:
            return False
        self.delayed = True
        self._sign()
        return True

    def error_bound(self, factors: NDArray[np.float64], total: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the bound that quantization guarantees for each element of the last summed vector.

        Args:
            factors: The factor of each block [blocks].
            total: The sum [elements].

        Returns:
            The bounds [elements].
        """
        return self.by_element(quantization.error_bound(factors, self.workers, self.by_block(total)))
