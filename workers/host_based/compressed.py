"""All-reduce of compressed vectors over TCP: an all-gather round a ring, after which each adds up all of them."""

import numpy as np
from numpy.typing import NDArray

from workers.collective import Closing, Statistics, flat_input, flat_output
from workers.compression import Compressor, sum_of, to_gather
from workers.host_based.tcp import TcpConfig, TcpRing


class CompressedAllReduce(Closing):
    """A Collective whose sums are of what `compressor` leaves of each worker's vector.

    Raises:
        CollectiveError, OSError: see TcpGroup.
    """

    def __init__(self, config: TcpConfig, compressor: Compressor) -> None:
        self._ring = TcpRing(config)
        self._compressor = compressor

    @property
    def statistics(self) -> Statistics:
        """Totals so far."""
        return self._ring.statistics

    def all_reduce(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """See Collective, and for errors TcpGroup.run()."""
        flat = flat_input(x)
        result = flat_output(x, out)
        config = self._ring.config
        workers = len(config.addresses)
        gathered = to_gather(self._compressor, flat, config.rank, workers)
        self._ring.all_gather(gathered, f"{self._compressor}, {flat.size} values")
        result[:] = sum_of(self._compressor, gathered, workers, flat.size)
        return result.reshape(x.shape)

    def close(self) -> None:
        """Close all connections."""
        self._ring.close()
