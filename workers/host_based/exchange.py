"""The data that hosts exchange in one call: the caller's array, or the compressed arrays of all workers."""

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import HostBasedAlgorithm, Operation, flat
from fanin.workers.host_based.algorithms.registry import algorithm_named
from fanin.workers.values.compression import Compression, sum_of, to_gather

Call = Operation | Compression  # with a compression: an all-reduce of each worker's compressed array


class Exchange:
    """One worker's part in one call, independent of the transport.

    Attributes:
        operation: The operation whose schedule is carried out.
        array: The array whose parts are sent, and where received data go.
        source: The array that is sent; `array`, unless it must not be overwritten by received data.

    Raises:
        TypeError: See Collective.
        ValueError: See Collective.
    """

    def __init__(
        self,
        call: Call,
        x: NDArray[np.float32],
        out: NDArray[np.float32] | None,
        rank: int,
        workers: int,
    ) -> None:
        vector, self._flat = flat(x, out)
        self._shape, self._workers = x.shape, workers
        self._compression: Compression | None = None
        self.operation: Operation
        if not isinstance(call, str):
            self.operation, self._compression = "all-gather", call
            self.array = to_gather(call.packed(vector), rank, workers).view(np.float32)
        else:
            self.operation, self.array = call, self._flat
            if not np.may_share_memory(self.array, vector) or self.array.ctypes.data != vector.ctypes.data:
                np.copyto(self.array, vector)
        self.source = self.array.copy() if call == "all-to-all" else self.array

    def finish(self) -> NDArray[np.float32]:
        """Return the result of the call, once the schedule has been carried out."""
        if self._compression is not None:
            gathered = self.array.view(np.uint8)
            self._flat[:] = sum_of(self._compression, gathered, self._workers, self._flat.size)
        return self._flat.reshape(self._shape)


def check_call(call: Call, algorithm: HostBasedAlgorithm) -> None:
    """Check that there is an algorithm of this name, and that it can carry a call.

    Raises:
        ValueError: If there is none, or the call compresses and the algorithm is not a ring.
    """
    algorithm_named(algorithm)
    if not isinstance(call, str) and algorithm != "ring":
        raise ValueError(f"{call} gathers round a ring: algorithm must be 'ring', not {algorithm!r}")
