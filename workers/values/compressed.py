"""Arrays of a communicator's call that travel between hosts as one compressed vector."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fanin.workers.arguments import Array, Operation, flattened, split
from fanin.workers.values.compression import Compression, ErrorFeedback, Rounded, TopK, sum_of, to_gather

_TYPES = (np.dtype(np.float32), np.dtype(np.float16))


class Compressed:
    """Arrays of float32 and float16 that are to be added up.

    They are compressed once, when the call is carried out. If workers repeat the call because another worker has ended,
    the compressed vector is used again: it already includes what was left out before.

    Args:
        compression: How to compress.
        xs: The arrays.
        op: The operation, "sum" or "mean".

    Raises:
        TypeError: If `compression` is not a compression, or an array has another type.
        ValueError: If `op` is another operation.
    """

    def __init__(self, compression: Compression, xs: Sequence[Array], op: Operation) -> None:
        if not isinstance(compression, TopK | Rounded | ErrorFeedback):
            raise TypeError(
                f"compression is a TopK, Rounded or ErrorFeedback of workers, not {compression!r} of "
                f"{type(compression).__name__}"
            )
        if op not in ("sum", "mean"):
            raise ValueError(f"compression is of sums and means, not of op={op!r}; leave one of them out")
        for x in xs:
            if x.dtype not in _TYPES:
                raise TypeError(
                    f"compression is of float32 and float16, not of {x.dtype}; convert the array with astype(), or "
                    "leave compression out"
                )
        self._compression, self._xs, self._op = compression, xs, op
        self._sizes = [x.size for x in xs]
        self._packed: NDArray[np.uint8] | None = None

    def to_gather(self, rank: int, workers: int) -> NDArray[np.uint8]:
        """Return the array that all workers gather, with this worker's part filled in.

        Args:
            rank: This worker's number.
            workers: Number of workers.

        Raises:
            ValueError: If there are values that cannot be compressed.
        """
        if self._packed is None:
            parts = [flattened(x).astype(np.float32, copy=False) for x in self._xs]
            self._packed = self._compression.packed(np.concatenate([np.zeros(0, np.float32), *parts]))
        return to_gather(self._packed, rank, workers)

    def results(self, gathered: NDArray[np.uint8], workers: int, outs: Sequence[Array | None]) -> list[Array]:
        """Return the result for each array.

        Args:
            gathered: The compressed vectors of all workers.
            workers: Number of workers.
            outs: Where each result goes; None for a new array.
        """
        total = sum_of(self._compression, gathered, workers, sum(self._sizes))
        if self._op == "mean":
            total /= workers
        results = [
            np.empty(x.shape, x.dtype) if out is None else out for x, out in zip(self._xs, outs, strict=True)
        ]
        with np.errstate(over="ignore"):  # beyond float16: an infinity
            for result, part in zip(results, split(total, self._sizes), strict=True):
                result[...] = part.reshape(result.shape)
        return results
