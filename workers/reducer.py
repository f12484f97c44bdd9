"""Reductions of vectors of any type: in the switches, or round a ring where the switches cannot.

The TCP connections of the ring are opened when they are first needed.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fanin.workers.arguments import Array, Operation, flattened, split
from fanin.workers.collective import HostRing, raveled
from fanin.workers.engines.buffers import Buffers
from fanin.workers.host_based.tcp import TcpConfig, TcpRing
from fanin.workers.job.calls import Calls
from fanin.workers.job.local_ranks import LocalMember, LocalRing
from fanin.workers.job.membership import LeftError
from fanin.workers.job.ring_fallback import LeaseLostError
from fanin.workers.protocol import not_finite
from fanin.workers.tensor import NOBODY, Partition
from fanin.workers.udp import InNetworkAllReduce
from fanin.workers.values import exact, quantization
from fanin.workers.values.compressed import Compressed

COMBINE = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}

_FLOAT32 = np.dtype(np.float32)


class Membership(Protocol):
    """One worker's membership in a job, as workers.join() returns it."""

    @property
    def rank(self) -> int:
        """Return this worker's number."""

    @property
    def workers(self) -> int:
        """Return the number of workers."""

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Return where each rank may listen, by rank."""

    def sum_in_network(self, buffers: Buffers, call: str) -> None:
        """Sum over all workers, except for elements that are `unsummed`.

        Args:
            buffers: Input and output.
            call: See Worker.start().

        Raises:
            LeaseLostError: If the ring has to do the sum. It is raised at all workers from the same call on.
        """

    @property
    def unsummed(self) -> NDArray[np.int64]:
        """Return the indices of elements of the last sum that hold this worker's own values instead, ascending.

        They are the same at all workers.
        """

    @property
    def exact(self) -> bool:
        """Return whether the network sums whole numbers below 2^24 exactly (workers/values/exact.py)."""

    @property
    def calls(self) -> Calls:
        """Return this worker's calls."""

    def left(self, timeout: float = 0.0) -> list[str]:
        """Return which other workers have ended, after waiting `timeout` seconds for news."""

    def close(self) -> None:
        """Leave the job."""


def plain_sum(
    xs: Sequence[Array], op: Operation, outs: Sequence[Array | None], bits: int | None
) -> Buffers | None:
    """Return the memory of reduce(xs, op, …, outs, bits) if it is nothing but a sum() of a vector; otherwise None."""
    x, out = xs[0], outs[0]
    if len(xs) > 1 or op != "sum" or x.dtype != _FLOAT32 or out is None or not x.flags.carray:
        return None
    return Buffers(raveled(x), raveled(out), bits)


class Reducer:
    """The reductions of one worker in a job. Every worker makes the same calls in the same order.

    In all methods `what` describes the call in words that must be the same at all workers.

    Args:
        place: The worker's membership.
        timeout: Seconds to wait for other workers.
        propagate: Whether NaN and infinities are summed as in any float32 sum. If not, a worker that has one gets a
            ValueError.
        half_bits: See fanin.init().
    """

    def __init__(
        self, place: Membership, timeout: float, *, propagate: bool = False, half_bits: int = 32
    ) -> None:
        self._place = place
        self._half_bits = half_bits
        self._timeout = timeout
        self._propagate = propagate
        self._connected: HostRing | None = None
        self._by_ring = False

    def renew(self) -> None:
        """Start over with a new group, which may have a lease and has new connections."""
        self.close()
        self._by_ring = False

    def close(self) -> None:
        """Close the connections."""
        if self._connected is not None:
            self._connected.close()
            self._connected = None

    def ring(self) -> HostRing:
        """Return the ring of all workers, connected when it is first needed."""
        if self._connected is None:
            place = self._place
            self._connected = (
                LocalRing(place, partial(self._connect, place.place))
                if isinstance(place, LocalMember)
                else self._connect(place)
            )
        return self._connected

    def _connect(self, place: Membership) -> TcpRing:
        """Connect the ring of the workers that have the addresses of `place`."""
        config = TcpConfig(place.rank, place.addresses, connect_timeout=self._timeout, give_up=self._timeout)
        return TcpRing(config, self._check_others, self._check_others, lambda: place.calls.count)

    def _check_others(self) -> None:
        if left := self._place.left():
            raise LeftError(f"{left[0]} ended while rank {self._place.rank} waits for the ring")

    def reduce(
        self,
        xs: Sequence[Array],
        op: Operation,
        what: str,
        outs: Sequence[Array | None],
        bits: int | None = None,
    ) -> list[Array]:
        """Reduce each array; arrays of one type travel as one vector.

        Args:
            xs: The arrays.
            op: The reduction operation.
            what: The call, in words.
            outs: Where each result goes; None for a new array.
            bits: Bits of the integers as which float32 and float16 travel in the network. None: bits_of_half() for
                float16, 32 for float32.

        Returns:
            The results, in order.
        """
        if len(xs) == 1:
            return [self._reduce(xs[0], op, outs[0], what, bits)]
        results = [
            np.empty(x.shape, x.dtype) if out is None else out for x, out in zip(xs, outs, strict=True)
        ]
        places: defaultdict[np.dtype[Any], list[int]] = defaultdict(list)
        for place, x in enumerate(xs):
            places[x.dtype].append(place)
        for dtype, same in places.items():
            # Vectors of one call may have the same length, but the expected exponents of each are its own.
            call = what if len(places) == 1 else f"{what}: {dtype}"
            if len(same) == 1:
                self._reduce(xs[same[0]], op, results[same[0]], call, bits)
                continue
            packed = np.concatenate([flattened(xs[place]) for place in same])
            self._reduce(packed, op, packed, call, bits)
            for place, part in zip(same, split(packed, [xs[place].size for place in same]), strict=True):
                results[place].reshape(-1)[:] = part
        return results

    def reduce_compressed(self, vector: Compressed, what: str, outs: Sequence[Array | None]) -> list[Array]:
        """Reduce the arrays of a compressed vector; see reduce()."""
        gathered = vector.to_gather(self._place.rank, self._place.workers)
        if gathered.size:
            self.ring().all_gather(gathered, what)
        return vector.results(gathered, self._place.workers, outs)

    def _reduce(self, x: Array, op: Operation, out: Array | None, what: str, bits: int | None) -> Array:
        """Reduce one array into `out`, which has its type and shape and no gaps, or into a new array."""
        if out is None:
            out = np.empty(x.shape, x.dtype)
        if op in ("max", "min"):
            self._reduce_by_ring(x, op, out, what)
        elif x.dtype == _FLOAT32:
            self.sum(Buffers(raveled(x), raveled(out), bits), what)
        elif x.dtype.kind in "iu" and not self._inexact:
            limbs = exact.limbs(flattened(x))
            self.sum(Buffers(limbs, limbs), what)
            exact.integers(limbs, raveled(out))
        elif x.dtype.kind in "iu" or x.itemsize > 4:
            self._reduce_by_ring(x, op, out, what)
        else:
            wide = flattened(x).astype(np.float32)
            self.sum(Buffers(wide, wide, bits or self.bits_of_half(quantization.FLOAT16)), what)
            if op == "mean":
                wide /= self._place.workers
            with np.errstate(over="ignore"):  # beyond float16: an infinity
                raveled(out)[:] = wide
            return out
        if op == "mean":
            out /= self._place.workers
        return out

    def bits_of_half(self, precision: int) -> int:
        """Return the bits of the integers as which a type of 16 bits travels; see fanin.init().

        Args:
            precision: Bits of the type's significand.
        """
        allowed = self._place.workers <= quantization.workers_as_exact(precision)
        return self._half_bits if allowed else 32

    def _reduce_by_ring(self, x: Array, op: Operation, out: Array, what: str) -> None:
        np.copyto(out, x)
        self.ring().all_reduce(out.reshape(-1), COMBINE[op], what)

    def sum(self, buffers: Buffers, what: str) -> None:
        """Sum in the network, or round the ring once no worker has a lease."""
        if not self._by_ring:
            try:
                self._place.sum_in_network(buffers, self._numbered(what))
                if len(unsummed := self._place.unsummed):
                    self._sum_as_float(buffers.out, unsummed, what)
                return
            except LeaseLostError as lost:
                self._continue_by_ring(lost)
                if under_way := lost.under_way:
                    under_way.complete(self.ring(), self._place.rank, self._place.workers, what)
                    return
        self._check_finite(buffers.x)
        np.copyto(buffers.out, buffers.x)
        if buffers.elements:
            with np.errstate(over="ignore", invalid="ignore"):
                self.ring().all_reduce(buffers.out, np.add, what)

    def all_gather(self, part: NDArray[np.uint8], what: str) -> NDArray[np.uint8]:
        """Return the bytes of all workers, by rank: [workers, bytes]."""
        rank, workers, size = self._place.rank, self._place.workers, part.size
        if self._exchanger is not None:
            words = np.zeros((workers, -(-size // 4)), np.float32)
            whole = words.view(np.uint8)
            whole[rank, :size] = part
            if self._exchange(raveled(words), raveled(words), Partition("gather", workers, rank), what):
                return whole[:, :size]
        gathered = np.empty((workers, size), np.uint8)
        gathered[rank] = part
        self.ring().all_gather(raveled(gathered), what)
        return gathered

    def reduce_scatter(self, x: Array, op: Operation, what: str) -> Array:
        """Return this worker's part of the reduction of `x`, flat.

        Args:
            x: The array, whose elements can be divided among the workers.
            op: The reduction operation; a mean is not divided yet.
            what: The call, in words.

        Returns:
            The part, float32 if `x` is float16.
        """
        rank, workers = self._place.rank, self._place.workers
        parts = flattened(x).reshape(workers, -1)
        if x.dtype == np.float16:
            parts = parts.astype(np.float32)
        if op in ("sum", "mean") and parts.dtype == _FLOAT32:
            bits = self.bits_of_half(quantization.FLOAT16) if x.dtype == np.float16 else 32
            if (summed := self._scatter(parts, bits, what)) is not None:
                return summed
            self._check_finite(raveled(parts))
        if parts is x or np.may_share_memory(parts, x):
            parts = parts.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            self.ring().reduce_scatter(raveled(parts), COMBINE[op], what)
        part: Array = parts[rank]
        return part

    def _scatter(self, parts: NDArray[np.float32], bits: int, what: str) -> NDArray[np.float32] | None:
        """Return this worker's part of the sum of `parts` [workers, elements]; None if the ring has to do it."""
        if self._exchanger is None:
            return None
        rank, workers = self._place.rank, self._place.workers
        # Only a part of this memory is ever used.
        sums = np.empty(parts.shape, np.float32)
        if not self._exchange(raveled(parts), raveled(sums), Partition("scatter", workers, rank), what, bits):
            return None
        part: NDArray[np.float32] = sums[rank].copy()
        return part

    @property
    def _exchanger(self) -> InNetworkAllReduce | None:
        """Return the membership if it gathers and scatters in the network; None if the ring has to."""
        place = self._place
        if self._by_ring or not isinstance(place, InNetworkAllReduce) or not place.exact:
            return None
        return place

    def _exchange(
        self,
        x: NDArray[np.float32],
        out: NDArray[np.float32],
        own: Partition,
        what: str,
        bits: int = 32,
    ) -> bool:
        """Gather or scatter in the network. If it returns False, the ring has to do it."""
        exchanger = self._exchanger
        assert exchanger
        try:
            exchanger.exchange_in_network(Buffers(x, out, bits), own, self._numbered(what))
        except LeaseLostError as lost:
            self._continue_by_ring(lost)
            return False
        if len(unsummed := exchanger.unsummed):
            self._sum_as_float(out, unsummed, what)
        return True

    def _numbered(self, what: str) -> str:
        """Return the call's text for the switches, which tells calls of the same text before and after a refusal apart.

        Hosts need no such text: they compare the numbers of calls.
        """
        refused = self._place.calls.refused
        return f"{what}, {refused} refused before" if refused else what

    def _continue_by_ring(self, lost: LeaseLostError) -> None:
        self._by_ring = True
        if self._place.rank == 0:
            print(f"fanin: {lost}; the hosts sum using the ring", file=sys.stderr)

    def _check_finite(self, x: NDArray[np.float32]) -> None:
        if not self._propagate and not np.isfinite(x).all():
            index = int(np.argmin(np.isfinite(x)))
            raise ValueError(not_finite(index, x[index]))

    def _sum_as_float(self, out: NDArray[np.float32], elements: NDArray[np.int64], what: str) -> None:
        """Sum elements that the switches cannot add up, round the ring, with IEEE 754's NaN and infinities."""
        values = out[elements]
        with np.errstate(over="ignore", invalid="ignore"):
            self.ring().all_reduce(values, np.add, f"{what}: blocks that are not finite")
        out[elements] = values

    def broadcast(self, sent: NDArray[np.uint8] | None, size: int, what: str) -> NDArray[np.uint8]:
        """Return the bytes that the root sends.

        Args:
            sent: The bytes at the root; None at the other workers.
            size: Number of bytes.
            what: The call, in words.
        """
        words = np.zeros(2 * -(-size // 4), np.uint16)
        if sent is not None:
            words.view(np.uint8)[:size] = sent
        if self._exchanger is not None and size:
            numbers = words.view(np.float32)
            root = Partition("gather", 1, NOBODY if sent is None else 0)
            if self._exchange(numbers, numbers, root, what):
                return words.view(np.uint8)[:size]
            if sent is None:  # something may have arrived
                words[:] = 0
        if self._inexact or self._by_ring:
            self.ring().all_reduce(words, np.add, what)
        else:
            limbs = exact.limbs(words)
            self.sum(Buffers(limbs, limbs), what)
            exact.integers(limbs, words)
        return words.view(np.uint8)[:size]

    @property
    def _inexact(self) -> bool:
        """Return whether there are too many workers for exact sums in the network, or its protocol has none."""
        return self._place.workers > exact.MAX_WORKERS or not self._place.exact
