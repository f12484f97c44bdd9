"""How vectors are added up, whatever their type: through the switches, and round a ring where these cannot.

The ring's TCP connections between the hosts are made when it is needed first.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fanin.workers.arguments import Array, Operation, flattened, split
from fanin.workers.collective import raveled
from fanin.workers.engines.buffers import Buffers
from fanin.workers.host_based.tcp import TcpConfig, TcpRing
from fanin.workers.job.calls import Calls
from fanin.workers.job.membership import LeftError
from fanin.workers.job.ring_fallback import LeaseLostError
from fanin.workers.protocol import not_finite
from fanin.workers.values import exact
from fanin.workers.values.compressed import Compressed

COMBINE = {"sum": np.add, "mean": np.add, "max": np.maximum, "min": np.minimum}

_FLOAT32 = np.dtype(np.float32)


class Membership(Protocol):
    """One's part in a job, as workers.join() gives it."""

    @property
    def rank(self) -> int:
        """This worker's number."""

    @property
    def workers(self) -> int:
        """How many there are."""

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Where each rank may listen."""

    def sum(self, buffers: Buffers, call: str) -> None:
        """The sum over all workers, but for elements that are `unsummed`; see Worker.start() for `call`.

        Raises:
            LeaseLostError: at all of them from the same call on: the ring is to do it.
        """

    @property
    def unsummed(self) -> NDArray[np.int64]:
        """Which elements of the last sum have this worker's own values instead, at all of them alike: ascending."""

    @property
    def calls(self) -> Calls:
        """This worker's."""

    def left(self, timeout: float = 0.0) -> list[str]:
        """Which others have ended."""

    def close(self) -> None:
        """Leave."""


class Reducer:
    """Of one worker in a job. Every worker makes the same calls in the same order; `what`: what they must call alike.

    timeout: seconds after which others are no longer waited for. propagate: NaN and infinities are summed as any
    float32; if not, a worker that has one gets a ValueError.
    """

    def __init__(self, place: Membership, timeout: float, *, propagate: bool = False) -> None:
        self._place = place
        self._timeout = timeout
        self._propagate = propagate
        self._connected: TcpRing | None = None
        self._by_ring = False

    def renew(self) -> None:
        """There is another group: it may have a lease, and its connections are new."""
        self.close()
        self._by_ring = False

    def close(self) -> None:
        """Hang up."""
        if self._connected is not None:
            self._connected.close()
            self._connected = None

    def ring(self) -> TcpRing:
        """Of all workers."""
        if self._connected is None:
            config = TcpConfig(
                self._place.rank, self._place.addresses, connect_timeout=self._timeout, give_up=self._timeout
            )
            self._connected = TcpRing(
                config, self._check_others, self._check_others, lambda: self._place.calls.count
            )
        return self._connected

    def _check_others(self) -> None:
        if left := self._place.left():
            raise LeftError(f"{left[0]} ended while rank {self._place.rank} waits for the ring")

    def reduce(
        self, xs: Sequence[Array], op: Operation, what: str, outs: Sequence[Array | None]
    ) -> list[Array]:
        """Each array, into its place in `outs` or a new one. Those of one type are one vector."""
        if len(xs) == 1:
            return [self._reduce(xs[0], op, outs[0], what)]
        results = [
            np.empty(x.shape, x.dtype) if out is None else out for x, out in zip(xs, outs, strict=True)
        ]
        places: defaultdict[np.dtype[Any], list[int]] = defaultdict(list)
        for place, x in enumerate(xs):
            places[x.dtype].append(place)
        for dtype, same in places.items():
            # Vectors of one call may be of one length; what is expected of their exponents is each one's own.
            call = what if len(places) == 1 else f"{what}: {dtype}"
            if len(same) == 1:
                self._reduce(xs[same[0]], op, results[same[0]], call)
                continue
            packed = np.concatenate([flattened(xs[place]) for place in same])
            self._reduce(packed, op, packed, call)
            for place, part in zip(same, split(packed, [xs[place].size for place in same]), strict=True):
                results[place].reshape(-1)[:] = part
        return results

    def prepared(
        self, xs: Sequence[Array], op: Operation, what: str, outs: Sequence[Array | None]
    ) -> Callable[[Sequence[Array | None]], list[Array]]:
        """reduce() into what it is given. A sum of one float32 vector into `outs` has less to do each time."""
        reduce = partial(self.reduce, xs, op, what)
        x, out = xs[0], outs[0]
        if len(xs) > 1 or op != "sum" or x.dtype != _FLOAT32 or out is None or not x.flags.carray:
            return reduce
        buffers, results = Buffers(raveled(x), raveled(out)), [out]

        def attempt(into: Sequence[Array | None]) -> list[Array]:
            if into is not outs:
                return reduce(into)
            self.sum(buffers, what)
            return results

        return attempt

    def reduce_compressed(self, vector: Compressed, what: str, outs: Sequence[Array | None]) -> list[Array]:
        """As reduce()."""
        gathered = vector.to_gather(self._place.rank, self._place.workers)
        if gathered.size:
            self.ring().all_gather(gathered, what)
        return vector.results(gathered, self._place.workers, outs)

    def _reduce(self, x: Array, op: Operation, out: Array | None, what: str) -> Array:
        """An array into `out`, of its type and shape and without gaps, or a new one."""
        if out is None:
            out = np.empty(x.shape, x.dtype)
        if op in ("max", "min"):
            self._reduce_by_ring(x, op, out, what)
        elif x.dtype == _FLOAT32:
            self.sum(Buffers(raveled(x), raveled(out)), what)
        elif x.dtype.kind in "iu" and not self._too_many:
            limbs = exact.limbs(flattened(x))
            self.sum(Buffers(limbs, limbs), what)
            exact.integers(limbs, raveled(out))
        elif x.dtype.kind in "iu" or x.itemsize > 4:
            self._reduce_by_ring(x, op, out, what)
        else:
            wide = flattened(x).astype(np.float32)
            self.sum(Buffers(wide, wide), what)
            if op == "mean":
                wide /= self._place.workers
            with np.errstate(over="ignore"):  # beyond float16: an infinity
                raveled(out)[:] = wide
            return out
        if op == "mean":
            out /= self._place.workers
        return out

    def _reduce_by_ring(self, x: Array, op: Operation, out: Array, what: str) -> None:
        np.copyto(out, x)
        self.ring().all_reduce(out.reshape(-1), COMBINE[op], what)

    def sum(self, buffers: Buffers, what: str) -> None:
        """In the network, or round the ring from where no worker has a lease."""
        if not self._by_ring:
            try:
                self._place.sum(buffers, what)
                if len(unsummed := self._place.unsummed):
                    self._sum_as_float(buffers.out, unsummed, what)
                return
            except LeaseLostError as lost:
                self._by_ring = True
                if self._place.rank == 0:
                    print(f"fanin: {lost}; the hosts add up by ring", file=sys.stderr)
                if under_way := lost.under_way:
                    under_way.go_on(self.ring(), self._place.rank, self._place.workers, what)
                    return
        if not self._propagate and not np.isfinite(buffers.x).all():
            index = int(np.argmin(np.isfinite(buffers.x)))
            raise ValueError(not_finite(index, buffers.x[index]))
        np.copyto(buffers.out, buffers.x)
        if buffers.elements:
            with np.errstate(over="ignore", invalid="ignore"):
                self.ring().all_reduce(buffers.out, np.add, what)

    def _sum_as_float(self, out: NDArray[np.float32], elements: NDArray[np.int64], what: str) -> None:
        """Those that the switches cannot add up, round the ring, with what IEEE 754 gives for NaN and infinities."""
        values = out[elements]
        with np.errstate(over="ignore", invalid="ignore"):
            self.ring().all_reduce(values, np.add, f"{what}: blocks that are not finite")
        out[elements] = values

    def broadcast(self, sent: NDArray[np.uint8] | None, size: int, what: str) -> NDArray[np.uint8]:
        """The bytes that the root sends, and the others do not."""
        words = np.zeros(-(-size // 2), np.uint16)
        if sent is not None:
            words.view(np.uint8)[:size] = sent
        if self._too_many:
            self.ring().all_reduce(words, np.add, what)
        else:
            limbs = exact.limbs(words)
            self.sum(Buffers(limbs, limbs), what)
            exact.integers(limbs, words)
        return words.view(np.uint8)[:size]

    @property
    def _too_many(self) -> bool:
        """Workers for exact sums in the network."""
        return self._place.workers > exact.MAX_WORKERS
