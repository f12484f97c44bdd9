"""Interfaces of every all-reduce, in-network or between hosts, and the errors that they raise."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fanin.native.python_file import DeliberateError

# Names of all-reduce algorithms: "in-network" or one between hosts, and one between hosts alone. They are not Literals,
# because algorithms register themselves (host_based/algorithms/registry.py).
Algorithm: TypeAlias = str
HostBasedAlgorithm: TypeAlias = str
Transport = Literal["selective-repeat", "go-back-n", "tcp"]
# What a window limits: each stream, or all streams of a host together.
WindowScope = Literal["connection", "host"]
Operation = Literal["all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all"]  # MPI's names

_FLOAT32 = np.dtype(np.float32)  # comparing with a dtype is twice as fast as with the type

Batch_co = TypeVar("Batch_co", covariant=True)
_Number = TypeVar("_Number", bound=np.generic)


class CollectiveError(DeliberateError):
    """A failed all-reduce; the text explains which worker waited for what."""


class StallError(CollectiveError):
    """A wait in which nothing new arrived for longer than the limit. The collective is unusable afterwards."""


@dataclass(slots=True)
class Statistics:
    """Running totals of one worker since its collective was created; bytes are payload of UDP or TCP."""

    all_reduces: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    retransmissions: int = 0


class Closing:
    """An object that holds sockets and ports, and releases them at the end of a `with`."""

    def __enter__(self) -> Self:
        """Return the object; its sockets have been open since it was created."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release sockets and ports."""
        self.close()

    def close(self) -> None:
        """Release sockets and ports. May be called twice."""
        raise NotImplementedError


class Collective(Protocol):
    """One worker's end of a group that adds up arrays."""

    @property
    def statistics(self) -> Statistics:
        """Return the totals so far."""

    def all_reduce(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Return the sum of `x` over all workers.

        Every worker calls it with arrays of the same size, in the same order.

        Args:
            x: The array to sum, float32, of any shape.
            out: Where the sum is written; may be `x`. None allocates a new array.

        Returns:
            The sum, with the shape of `x`.

        Raises:
            TypeError: If `x` is not an array of float32.
            ValueError: If `x` cannot be summed, or `out` does not fit it.
            CollectiveError: If there is no sum.
        """

    def close(self) -> None:
        """Release sockets and ports. May be called twice."""


class HostRing(Protocol):
    """One worker's end of a ring between hosts, over which flat arrays of any type are reduced and gathered in place.

    In all methods `call` describes the purpose in words that must be the same at all workers.
    """

    def all_reduce(self, array: NDArray[Any], combine: np.ufunc, call: str) -> None:
        """Combine the arrays of all ranks element by element."""

    def reduce_scatter(self, array: NDArray[Any], combine: np.ufunc, call: str) -> None:
        """Compute this rank's part of all_reduce(); the rest of the array does not matter."""

    def all_gather(self, array: NDArray[Any], call: str) -> None:
        """Copy each rank's part of the array to all ranks."""

    def close(self) -> None:
        """Close the connections."""


class Participant(Protocol[Batch_co]):
    """One worker's end without sockets or clock: the same on UDP and in virtual time. `now` is in seconds.

    A batch holds datagrams to send together, [m, size]: to the switch, or with the rank of the peer that gets them.
    """

    @property
    def statistics(self) -> Statistics:
        """Return the totals so far."""

    @property
    def finished(self) -> bool:
        """Return whether the last all-reduce is done."""

    def start(self, x: NDArray[np.float32], now: float, out: NDArray[np.float32] | None = None) -> None:
        """Begin to sum `x` over all workers.

        Neither `x` nor `out` may change before finish().

        Args:
            x: The array to sum, float32, of any shape.
            now: The time in seconds.
            out: Where the sum is written, of the shape of `x`. None allocates a new array.

        Raises:
            TypeError: If `x` is not an array of float32. Nothing was sent and the worker stays usable.
            ValueError: If `x` cannot be summed or `out` does not fit it. Nothing was sent and the worker stays usable.
            CollectiveError: If the previous all-reduce has not finished.
        """

    def receive(self, datagrams: NDArray[np.uint8], now: float) -> None:
        """Process a batch [m, size] of datagrams that have arrived."""

    def datagrams_to_send(self, now: float) -> Sequence[Batch_co]:
        """Return what to send now, in order.

        Raises:
            StallError: If nothing new has arrived for too long.
        """

    def deadline(self) -> float | None:
        """Return when to call datagrams_to_send() again if nothing arrives before; None if there is no need."""

    def finish(self) -> NDArray[np.float32]:
        """Return the sum, once finished, with the shape of `x`.

        Raises:
            CollectiveError: If no all-reduce has finished.
        """


class Server(Protocol):
    """A protocol's parameter server, on a host of its own, without sockets or clock. `now` is in seconds.

    It is the parent of the root of a job's tree, and has the same packets as workers. It runs as long as the lease.
    """

    def receive(self, datagrams: NDArray[np.uint8], now: float) -> None:
        """Process a batch [m, size] of datagrams that have arrived."""

    def datagrams_to_send(self, now: float) -> Sequence[NDArray[np.uint8]]:
        """Return what to send to the root now, in order."""

    def deadline(self) -> float | None:
        """Return when to call datagrams_to_send() again if nothing arrives before; None if there is no need."""


class Marked(Protocol):
    """A participant or server whose packets are ECN-capable, and who learns of congestion marks."""

    def count_marks(self, count: int) -> None:
        """Record that `count` of the datagrams passed to the next receive() carried a congestion mark."""


def marked(end: object) -> Marked | None:
    """Return `end` if it is Marked, else None."""
    return cast(Marked, end) if hasattr(end, "count_marks") else None


def flat(
    x: NDArray[np.float32], out: NDArray[np.float32] | None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Check `x` and `out`, and return them in one dimension.

    Args:
        x: The array to sum, of any shape.
        out: Where the result goes. None allocates a new array.

    Returns:
        Flat views of `x` and of the array for the result.

    Raises:
        TypeError: If `x` is not an array of float32.
        ValueError: If `out` does not fit `x`.
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
    """Return `x` in one dimension: a view of its own memory if that has no gaps."""
    return x if x.ndim == 1 else x.reshape(-1)
