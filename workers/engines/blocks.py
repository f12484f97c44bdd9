"""The packets of one vector, written and read with numpy, many at once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.workers import wire
from fanin.workers.agreement import DIGITS
from fanin.workers.tensor import ALL_REDUCE, GATHER, SCATTER, Tensor, span
from fanin.workers.values import quantization, scaling


class Blocks:
    """The blocks of one vector, which are summed as the tensor defines.

    Attributes:
        accepted: Whether each chunk's result has arrived, by chunk.
        missed: Blocks whose exponents are not as expected, ascending.
        unquantizable: Number of blocks that cannot be quantized.

    Args:
        tensor: How the vector is divided.
        call: The packets' field `call` (wire.py).
        x: The vector, flat [elements].
        out: Where the sum goes, flat [elements].
        factors: Memory for one number per block [blocks], owned by the caller.
    """

    def __init__(
        self,
        tensor: Tensor,
        call: int,
        x: NDArray[np.float32],
        out: NDArray[np.float32],
        factors: NDArray[np.float64],
    ) -> None:
        self.tensor = tensor
        self._call = call
        self.missed = np.zeros(0, np.int64)
        self.accepted = np.zeros(tensor.most_chunks, np.bool_)
        self._factors = factors
        self._out = out
        self._x_rows = tensor.by_block(x)
        # In a gather, `out` is `x`.
        self._out_rows = self._x_rows if tensor.operation == GATHER else tensor.by_block(out)
        self._apart = not np.may_share_memory(self._out_rows, out)
        self._undecided = np.ones(tensor.blocks, np.bool_)
        # By chunk, for the largest possible number of chunks: the last ones announce values that change no maximum.
        self._e0 = np.full(tensor.most_chunks, quantization.SMALLEST_EXPONENT, np.int8)
        self._e1 = np.zeros(tensor.most_chunks, np.uint8)
        self.unquantizable = 0
        if tensor.operation == GATHER:
            return
        exponents, quantizable = quantization.block_exponents(self._x_rows, tensor.workers, tensor.bits)
        self._e0[: tensor.blocks] = exponents
        self._e1[: tensor.blocks] = np.where(quantizable, 0, wire.NOT_QUANTIZABLE)
        self.unquantizable = int(np.count_nonzero(~quantizable))
        if tensor.operation == SCATTER:
            self._e1[min(tensor.bare, 1) :] |= wire.OF_SCATTER  # all but the agreement

    @property
    def quantizable(self) -> NDArray[np.bool_]:
        """Return which of the blocks can be quantized: [blocks]."""
        return self._e1[: self.tensor.blocks] < wire.NOT_QUANTIZABLE

    @property
    def decided(self) -> bool:
        """Return whether all largest exponents are known, for a tensor that is delayed."""
        return not np.count_nonzero(self._undecided)

    def types(self, chunks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the msg_type of the packets of these chunks [m]."""
        types = np.full(len(chunks), wire.UPDATE)
        carrying = chunks >= self.tensor.bare
        if self.tensor.operation == SCATTER:  # only exponents, so there is nothing to give
            types[~carrying & (chunks > 0)] = wire.TAKE
        if self.tensor.operation != ALL_REDUCE and np.count_nonzero(carrying):
            gives = self.tensor.gives(self._blocks_of(chunks[carrying]))
            types[carrying] = np.where(gives, wire.GIVE, wire.TAKE)
        return types

    def write(self, chunks: NDArray[np.int64], packets: NDArray[np.void]) -> None:
        """Fill in exponents and values of `packets` [m] for these chunks [m], which are all of one type and size."""
        packets["e0"] = self._e0[chunks]
        packets["e1"] = self._e1[chunks]
        packets["call"] = self._calls(chunks)
        if packets.dtype == wire.HEADER:
            return
        if chunks[0] < self.tensor.bare:
            integers = wire.integers(packets, 32)
            integers[:] = 0
            integers[chunks == 0, :DIGITS] = self.tensor.agreement.digits
            return
        rows = span(self._blocks_of(chunks))
        if self.tensor.operation == GATHER:
            packets["values"].view(np.uint32)[:] = self._x_rows[rows].view(np.uint32)
            return
        factors = self._factors[rows] if chunks[0] >= self.tensor.lead else self._expected_factors(rows)
        integers = quantization.quantize(self._x_rows[rows], factors)
        undefined = np.isnan(factors)
        if np.count_nonzero(undefined):
            integers[undefined] = 0
        wire.integers(packets, self.tensor.bits)[:] = integers

    def _calls(self, chunks: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where((chunks == 0) & (self.tensor.bare > 0), wire.NO_CALL, self._call)

    def possible(self, chunks: NDArray[np.int64], packets: NDArray[np.void]) -> NDArray[np.bool_]:
        """Return which of these packets [m] can be the results of these chunks [m].

        They must belong to this call, and their maxima must include what this worker has announced.
        """
        own = self._e1[chunks]
        announced: NDArray[np.bool_] = (packets["e0"] >= self._e0[chunks]) & (packets["e1"] & own == own)
        possible: NDArray[np.bool_] = announced & (packets["call"] == self._calls(chunks))
        return possible

    def read(self, chunks: NDArray[np.int64], packets: NDArray[np.void]) -> int:
        """Store the results of these chunks [m], each exactly once.

        Blocks that some worker cannot quantize get this worker's own values.

        Args:
            chunks: The chunks [m].
            packets: Their packets [m].

        Returns:
            How many packets announce that some worker cannot quantize a block.
        """
        unsummed = 0
        if self.tensor.operation == GATHER:
            carrying = chunks >= self.tensor.bare
            if packets.dtype != wire.HEADER and np.count_nonzero(carrying):
                rows = span(self._blocks_of(chunks[carrying]))
                self._out_rows[rows] = packets["values"][carrying].view(np.float32)
            return unsummed
        announcing = chunks < self.tensor.blocks
        carrying = chunks >= self.tensor.lead
        if np.count_nonzero(announcing):
            quantizable = packets["e1"][announcing] < wire.NOT_QUANTIZABLE
            unsummed = len(quantizable) - int(np.count_nonzero(quantizable))
            fits = self._learn(chunks[announcing], packets["e0"][announcing], quantizable)
            carrying[announcing] |= fits
        if np.count_nonzero(carrying) < len(chunks):
            chunks, packets = chunks[carrying], packets[carrying]
        if len(chunks):
            rows = span(self._blocks_of(chunks))
            factors = self._factors[rows]
            if packets.dtype == wire.HEADER:  # the sums of these blocks are for others
                unquantizable = self._blocks_of(chunks[np.isnan(factors)])
                self._out_rows[unquantizable] = self._x_rows[unquantizable]
                return unsummed
            integers = wire.integers(packets, self.tensor.bits)
            if self.tensor.operation == SCATTER:
                integers = self._with_own(integers, rows, factors)
            if np.count_nonzero(left_out := np.isnan(factors)):
                values = np.empty_like(self._out_rows[rows])
                quantization.dequantize(integers, factors, values)
                self._out_rows[rows] = np.where(left_out[:, np.newaxis], self._x_rows[rows], values)
                return unsummed
            values = self._out_rows[rows]
            quantization.dequantize(integers, factors, values)
            if not isinstance(rows, slice):  # a copy
                self._out_rows[rows] = values
        return unsummed

    def _with_own(
        self, integers: NDArray[Any], rows: slice | NDArray[np.int64], factors: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return sums of the others' integers and of this worker's own, which were not sent."""
        own = quantization.quantize(self._x_rows[rows], np.where(np.isnan(factors), 0, factors))
        sums: NDArray[np.float64] = integers + own
        return sums

    def _learn(
        self, blocks: NDArray[np.int64], largest: NDArray[np.int8], quantizable: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Store the largest exponents of these blocks, and return for which of them the packets' sums are valid."""
        fits = np.zeros(len(blocks), np.bool_)
        used = largest
        if self.tensor.expected is not None:
            expected = self.tensor.expected[blocks]
            self.tensor.expected[blocks] = scaling.expect(largest)
            if self.tensor.delayed:
                fits = scaling.fits(expected, largest) & quantizable
                used = np.where(fits, expected, largest)
                self._undecided[blocks] = False
                self.missed = np.union1d(self.missed, blocks[~fits])
        scales = quantization.scales(used, self.tensor.workers, self.tensor.bits)
        self._factors[blocks] = np.where(quantizable, scales, np.nan)
        return fits

    def _expected_factors(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the expected factors; NaN for blocks that are already known to differ from the expectation."""
        assert self.tensor.expected is not None
        factors = quantization.scales(self.tensor.expected[rows], self.tensor.workers, self.tensor.bits)
        factors[(self._e1[rows] >= wire.NOT_QUANTIZABLE) | (self._e0[rows] > self.tensor.expected[rows])] = (
            np.nan
        )
        return factors

    def _blocks_of(self, chunks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the blocks whose values these chunks carry: all chunks are among the first B, or none is."""
        if self.tensor.operation == GATHER:
            return chunks - 1
        if not self.tensor.delayed:
            return chunks - self.tensor.lead
        return (
            chunks
            if not len(chunks) or chunks[0] < self.tensor.lead
            else self.missed[chunks - self.tensor.lead]
        )

    def complete(self) -> None:
        """Complete the caller's array after every result has been read."""
        if self._apart:
            self._out[:] = self.tensor.by_element(self._out_rows)

    def put_out(self) -> NDArray[np.bool_]:
        """Move the sums read so far into the caller's array, and return which blocks have one: [blocks]."""
        lead, tensor = self.tensor.lead, self.tensor
        summed = self.accepted[lead : lead + tensor.blocks].copy()
        if self._apart:
            np.copyto(self._out, tensor.by_element(self._out_rows), where=tensor.of_blocks(summed))
        return summed

    def let_go(self) -> None:
        """Drop the references to the caller's arrays."""
        del self._x_rows, self._out_rows, self._out
