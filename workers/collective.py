"""What every all-reduce offers, in-network or not, and the errors that all of them raise."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Algorithm = Literal["in-network", "ring", "halving-doubling", "double-binary-tree", "parameter-server"]
HostBasedAlgorithm = Literal["ring", "halving-doubling", "double-binary-tree", "parameter-server"]
Transport = Literal["selective-repeat", "go-back-n"]
WindowScope = Literal[
    "connection", "host"
]  # what a window limits: each stream, or all streams of a host together
Operation = Literal["all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all"]  # MPI's names

_FLOAT32 = np.dtype(np.float32)  # compared with twice as fast as its type

Batch_co = TypeVar("Batch_co", covariant=True)
_Number = TypeVar("_Number", bound=np.generic)


class CollectiveError(RuntimeError):
    """An all-reduce did not do what was asked; the text says which worker waited for what."""


class StallError(CollectiveError):
    """Nothing new arrived for longer than the limit. The collective is unusable afterwards."""


@dataclass(slots=True)
class Statistics:
    """Running totals of one worker since its collective was made; bytes are payload of UDP or TCP."""

    all_reduces: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    retransmissions: int = 0


class Closing:
    """What holds sockets and ports, and releases them at the end of a `with`."""

    def __enter__(self) -> Self:
        """Nothing: they are open since it was made."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release them."""
        self.close()

    def close(self) -> None:
        """Release them. May be called twice."""
        raise NotImplementedError


class Collective(Protocol):
    """One worker's end of a group that adds up arrays."""

    @property
    def statistics(self) -> Statistics:
        """Totals so far."""

    def all_reduce(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Sum of `x` over all workers, of its shape, written into `out` where given (`out` may be `x`).

        Every worker calls it with arrays of the same size, in the same order.

        Raises:
            TypeError: `x` is no array of float32. ValueError: it cannot be summed, or `out` does not fit it.
            CollectiveError: no sum.
        """

    def close(self) -> None:
        """Release sockets and ports. May be called twice."""


class Participant(Protocol[Batch_co]):
    """One worker's end without sockets or clock: the same on UDP and in virtual time. `now`: seconds.

    Batch: datagrams to send together, [m, size] to the switch, or with the rank of the peer they are for.
    """

    @property
    def statistics(self) -> Statistics:
        """Totals so far."""

    @property
    def finished(self) -> bool:
        """Whether the all-reduce begun last is done."""

    def start(self, x: NDArray[np.float32], now: float, out: NDArray[np.float32] | None = None) -> None:
        """Begin to sum `x` over all workers, into `out` where given, of its shape; neither may change before finish().

        Raises:
            TypeError, ValueError: `x` is not float32 or cannot be summed, or `out` does not fit it; nothing was sent,
                and the worker can go on.
            CollectiveError: the all-reduce before has not finished.
        """

    def receive(self, datagrams: NDArray[np.uint8], now: float) -> None:
        """Take a batch [m, size] of datagrams that have arrived."""

    def datagrams_to_send(self, now: float) -> Sequence[Batch_co]:
        """What to send now, in its order.

        Raises:
            StallError: nothing new has arrived for too long.
        """

    def deadline(self) -> float | None:
        """When to call datagrams_to_send() again if nothing arrives before; None: no need."""

    def finish(self) -> NDArray[np.float32]:
        """The sum, once finished, of the shape of `x`.

        Raises:
            CollectiveError: no all-reduce has finished.
        """


def flat(
    x: NDArray[np.float32], out: NDArray[np.float32] | None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """`x`, of any shape, in one dimension, and where its result goes: `out`, in one dimension, or a new array.

    Raises:
        TypeError: `x` is no array of float32. ValueError: `out` does not fit it.
    """
    if not isinstance(x, np.ndarray) or x.dtype != _FLOAT32:
        what = f"an array of {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise TypeError(
            f"all-reduce adds arrays of float32, not {what}; convert it with numpy.asarray(x, numpy.float32)"
        )
    if out is None:
        out = np.empty(x.size, np.float32)
    else:
        flags = out.flags
        if out.dtype != _FLOAT32 or out.shape != x.shape or not flags.c_contiguous or not flags.writeable:
            raise ValueError(
                f"out must be a writable, C-contiguous float32 array of shape {x.shape}, "
                f"not {out.dtype} of shape {out.shape}"
            )
    return raveled(x), raveled(out)


def raveled(x: NDArray[_Number]) -> NDArray[_Number]:
    """In one dimension: its own memory, where that has no gaps."""
    return x if x.ndim == 1 else x.reshape(-1)
