"""The worker's side of the aggregation protocol, without sockets or clock.

The caller passes in the datagrams that arrived and the time. The worker returns the datagrams to send and the next
deadline. The same object runs on a UDP socket (udp.py) and in virtual time.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fanin.workers import collective, wire
from fanin.workers.collective import CollectiveError, Participant, Server, StallError, Statistics
from fanin.workers.engines.buffers import Buffers
from fanin.workers.engines.engine import (
    BARE,
    CARRYING,
    LEADING,
    NONE,
    NOT_BEGUN,
    PARTS,
    REASONS,
    SUMMED,
    Engine,
    Socket,
    State,
)
from fanin.workers.engines.native import fastest
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.tensor import Partition, Tensor, span
from fanin.workers.values import quantization, scaling

_NO_ELEMENTS = np.zeros(0, np.int64)


class SaturationError(CollectiveError):
    """Saturation of sums at the limits of int32, which cannot happen if all workers quantize in the same way."""


class MismatchError(CollectiveError):
    """A disagreement between workers: vectors of different lengths, or different leases; nothing was summed."""


class LeaseExhaustedError(CollectiveError):
    """The exhaustion of a lease's chunk numbers: ask the controller for a new lease."""


@dataclass(slots=True)
class InNetworkStatistics(Statistics):
    """Running totals of one worker; times in seconds.

    Attributes:
        datagrams_sent: Datagrams sent, including retransmissions.
        datagrams_received: Datagrams received, including ignored ones.
        accepted: Results accepted.
        timeouts: Retransmissions caused by a timer, not by answers to packets sent later.
        saturated: Accepted results that carried the flag `saturated`.
        ignored: Datagrams that were not an awaited result, by reason: malformed (size, type or slot), other lease,
            duplicate, unknown chunk (never sent), impossible. A result is impossible if its largest exponent is below
            the worker's own, or if it belongs to another all-reduce.
        smoothed_rtt: Smoothed round-trip time. None before the first measurement.
        rto: Current retransmission timeout.
        congestion_window: Chunks that may be in flight now.
    """

    datagrams_sent: int = 0
    datagrams_received: int = 0
    accepted: int = 0
    timeouts: int = 0
    saturated: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    smoothed_rtt: float | None = None
    rto: float = 0.0
    congestion_window: float = 0.0


@dataclass(frozen=True, slots=True)
class Outstanding:
    """The results that a worker waits for at one moment; times in seconds before that moment.

    Attributes:
        lease: The worker's lease.
        all_reduce: Number of the all-reduce in the lease, from 1.
        elements: Length of the vector.
        announcing: Whether the first missing chunk carries no values, only exponents.
        accepted: Results received.
        total: Chunks of the all-reduce.
        chunks: Ranges of missing chunk numbers of the lease, both ends included.
        sent: Smallest and largest number of times that one of these chunks was sent.
        waiting: Time since the first of these chunks was first sent.
        silent: Time since a new result arrived.
    """

    lease: Lease
    all_reduce: int
    elements: int
    announcing: bool
    accepted: int
    total: int
    chunks: tuple[tuple[int, int], ...]
    sent: tuple[int, int]
    waiting: float
    silent: float

    def __str__(self) -> str:
        """Return a sentence that names the worker, what it waits for, and since when."""
        lease = self.lease
        count = self.total - self.accepted
        shown = ", ".join(
            f"{first}-{last} (slots {self._slot(first)}-{self._slot(last)})"
            if last > first
            else f"{first} (slot {self._slot(first)})"
            for first, last in self.chunks[:8]
        )
        more = f" and {len(self.chunks) - 8} more ranges" if len(self.chunks) > 8 else ""
        least, most = self.sent
        times = f"{most} times" if least == most else f"{least} to {most} times"
        hint = (
            "; no result has arrived at all: either another worker is missing, or it called with a vector of "
            "another length or for another purpose (then the switches count drops with the reason MISMATCH)"
        )
        return (
            f"rank {lease.rank} of {lease.workers}, lease {lease.id}, all-reduce {self.all_reduce} "
            f"({self.elements} elements): "
            f"{count} of {self.total} results missing, awaiting "
            f"{'exponents' if self.announcing else 'sums'} of chunks {shown}{more}, each sent {times}, "
            f"the first {self.waiting:.3g} s ago; nothing new for {self.silent:.3g} s{'' if self.accepted else hint}"
        )

    def _slot(self, chunk: int) -> int:
        return self.lease.first_slot + chunk % self.lease.window


def not_finite(index: int, value: np.float32) -> str:
    """Return the error message for an element that cannot be summed.

    Args:
        index: The element's index in the flat vector.
        value: The element.
    """
    return (
        f"element {index} is {value}: sums need finite numbers below 2^127 in magnitude. Clip or scale the input, or "
        "choose non_finite='propagate', which passes NaN and infinities on"
    )


class Worker:
    """The protocol of one worker in one lease: any number of all-reduces, one after the other.

    Call start(). Then, until `finished`, send what datagrams_to_send() returns, pass arriving datagrams to receive(),
    and call datagrams_to_send() again at deadline() at the latest. Then call finish(). `now` is a time in seconds on
    any clock that never goes back.

    Args:
        lease: The worker's lease.
        recovery: Settings of loss recovery. None uses the defaults.
        non_finite: "raise" refuses vectors with a NaN, an infinity or a magnitude of 2^127 and more. "propagate"
            accepts them. If any worker has such a value in a block, no worker gets a sum of that block (see
            `unsummed`).
        on_saturation: "raise" lets finish() raise SaturationError, after which the lease can still be used. "count"
            only counts.
        growth: Bytes by which a switch can lengthen a packet, which limits those of gathers and scatters. None: enough
            for all.
        deterministic: Whether a sum depends on nothing but its vectors. If not, the exponents of earlier ones scale it
            (scaling.py), which saves a round trip.
        engine: Makes the engine that processes packets. The default is the fastest available.
    """

    def __init__(
        self,
        lease: Lease,
        recovery: Recovery | None = None,
        *,
        non_finite: Literal["raise", "propagate"] = "raise",
        on_saturation: Literal["raise", "count"] = "raise",
        deterministic: bool = False,
        growth: int | None = None,
        engine: Callable[[State], Engine] = fastest,
    ) -> None:
        self.lease = lease
        self._state = State(lease, recovery or Recovery())
        self._engine = engine(self._state)
        self._statistics = InNetworkStatistics()
        self._propagate = non_finite == "propagate"
        self._on_saturation = on_saturation
        self._expects = not deterministic
        self._growth = growth

        self._tensor: Tensor | None = None
        # By length, call, bits and partition; only tensors that expect exponents.
        self._tensors: dict[tuple[int, str, int, Partition | None], Tensor] = {}
        self._output = np.zeros(0, np.float32)  # flat
        self._result: NDArray[np.float32] | None = None
        self._to_send: list[NDArray[np.int64]] = []
        self._saturated_before = 0

    @property
    def statistics(self) -> InNetworkStatistics:
        """Return the totals so far."""
        statistics, totals, timers = self._statistics, self._state.totals, self._state.timers
        statistics.datagrams_received, statistics.bytes_received = totals.received, totals.received_bytes
        statistics.datagrams_sent, statistics.bytes_sent = totals.sent, totals.sent_bytes
        statistics.accepted, statistics.saturated = totals.accepted, totals.saturated
        ignored = zip(REASONS, totals.ignored, strict=True)
        statistics.ignored = Counter({reason: count for reason, count in ignored if count})
        statistics.smoothed_rtt, statistics.rto = timers.rtt.smoothed, timers.rtt.rto
        statistics.timeouts = timers.timeouts
        statistics.congestion_window = self._state.gate.window.size
        return statistics

    @property
    def spent(self) -> dict[str, float]:
        """Return the seconds spent so far in each part of exchange().

        For receive and send this is time in the kernel. The dict is empty unless the C engine does the work.
        """
        spent = dict(zip(PARTS, self._state.totals.spent, strict=True))
        return spent if any(spent.values()) else {}

    # -- one all-reduce --------------------------------------------------------------------------------------

    def start(
        self,
        x: NDArray[np.float32],
        now: float,
        out: NDArray[np.float32] | None = None,
        call: str = "",
        partition: Partition | None = None,
    ) -> None:
        """Begin to sum `x` over the workers.

        Neither `x` nor `out` may change before finish().

        Args:
            x: The vector, float32, of any shape.
            now: The time in seconds.
            out: Where the sum goes; may be `x`. None allocates a new array.
            call: The purpose of the all-reduce, in any words. Workers whose `call` differs are not summed together.
            partition: See begin().

        Raises:
            TypeError: If `x` is not an array of float32. Nothing was sent and the worker stays usable.
            ValueError: If `x` cannot be summed or `out` does not fit. Nothing was sent and the worker stays usable.
            CollectiveError: If the previous all-reduce has not finished.
            LeaseExhaustedError: If the lease has too few chunk numbers left; ask for a new lease.
        """
        self.begin(self.checked(x, out), now, call, partition)
        self._result = self._output.reshape(x.shape) if out is None else out

    def checked(self, x: NDArray[np.float32], out: NDArray[np.float32] | None) -> Buffers:
        """Check the arrays of a call, and return them flat, as begin() and repeat() take them.

        Raises:
            TypeError: See flat() (collective.py). The call has used up its number: see begin().
            ValueError: Likewise.
        """
        try:
            return Buffers(*collective.flat(x, out))
        except (TypeError, ValueError):
            self._state.progress.calls += 1
            raise

    def begin(self, buffers: Buffers, now: float, call: str, partition: Partition | None = None) -> None:
        """Begin an all-reduce like start(), with arrays that checked() has returned.

        Args:
            buffers: Input and output.
            now: The time in seconds.
            call: The purpose of the all-reduce; see start().
            partition: The parts of the vector, of which each has one owner; `call` must say which. A gather takes any
                32 bits for a number, and `out` must be `x`. A scatter writes the sums of this worker's part into `out`,
                which must not be `x`, and nothing else but blocks that have no sum. None: every worker gets all sums.
        """
        lease, progress = self.lease, self._state.progress
        # A refused call uses up its number, too: otherwise the next call here would be summed with the others' current
        # one.
        progress.calls += 1
        if progress.missing:
            raise CollectiveError(f"the previous all-reduce has not finished: {self.outstanding(now)}")
        before = self._tensor, self._output, self._result
        if not (elements := buffers.elements):
            self._tensor, self._output, self._result = None, buffers.out, buffers.out
            self._to_send = []
            return
        gathers = partition is not None and partition.operation == "gather"
        bits = 32 if gathers else buffers.bits or lease.bits
        key = elements, call, bits, partition
        tensor = self._tensors.get(key) or self._make_tensor(*key)
        first_chunk = max(lease.first_chunk, progress.first_chunk + progress.chunks)
        left = lease.last_chunk + 1 - first_chunk
        if tensor.most_chunks > left:
            raise LeaseExhaustedError(
                f"lease {lease.id} has {left} of its {lease.last_chunk + 1 - lease.first_chunk} chunk numbers left and "
                f"this all-reduce may need {tensor.most_chunks}: ask for a new lease"
            )
        self._tensor, self._output, self._result = tensor, buffers.out, buffers.out
        progress.latest = now
        ready = self._engine.begin(tensor, buffers, first_chunk, self._propagate)
        if not progress.chunks:
            self._tensor, self._output, self._result = before
            place = quantization.first_unquantizable(tensor.by_block(buffers.x), self._engine.quantizable)
            index = int(tensor.by_block(np.arange(elements))[place])
            raise ValueError(not_finite(index, buffers.x[index]))
        self._to_send = [ready]

    def repeat(self, socket: Socket, buffers: Buffers, call: str) -> int:
        """Run begin(), exchange() and finish() in one step, which is faster, for a vector like an earlier one.

        Returns:
            How far the all-reduce has come; see Engine.repeat().

        Raises:
            OSError: See exchange(). The all-reduce has begun.
        """
        tensor = self._tensors.get((buffers.elements, call, buffers.bits or self.lease.bits, None))
        if tensor is None:
            return NOT_BEGUN
        before = self._tensor, self._output, self._result
        # Set before the call, not after: Ctrl-C may interrupt it at any moment.
        self._tensor, self._output, self._result = tensor, buffers.out, buffers.out
        stage = self._engine.repeat(socket, tensor, buffers, self._propagate)
        if stage == SUMMED:
            self._result = None
            self._statistics.all_reduces += 1
        elif stage == NOT_BEGUN:
            self._tensor, self._output, self._result = before
        elif stage < 0:
            socket.check(-stage, self._state.carrying.itemsize)
        return stage

    def _make_tensor(self, elements: int, call: str, bits: int, partition: Partition | None) -> Tensor:
        lease, number = self.lease, self._state.progress.calls
        return Tensor(
            elements,
            call,
            number,
            workers=lease.workers,
            values=lease.block(bits) if partition is None else self.exchange_block * 32 // bits,
            window=lease.window,
            expects=self._expects,
            partition=partition,
        )

    @property
    def exchange_block(self) -> int:
        """Return how many words of 32 bits are a block of a gather or scatter.

        A switch answers a packet without values with one that has them: it may have to lengthen the packet.
        """
        most = self.lease.block(32)
        return most if self._growth is None or 4 * most <= self._growth else min(wire.SIZES)

    @property
    def finished(self) -> bool:
        """Return whether every result of the last all-reduce has arrived."""
        return self._state.progress.missing == 0

    def finish(self, *, unsummed: Literal["NaN", "own"] = "NaN") -> NDArray[np.float32]:
        """Return the sum, once finished, with the shape of `x`.

        Args:
            unsummed: What elements without a sum contain: NaN, or this worker's own values.

        Raises:
            SaturationError: If the sum is wrong because integers were cut off at their limits.
            CollectiveError: If no all-reduce has finished.
        """
        if self._result is None or not self.finished:
            raise CollectiveError("no all-reduce has finished")
        result, self._result = self._result, None
        if self._tensor:
            if unsummed == "NaN":
                self._output[self.unsummed] = np.nan
            self._engine.finish()
            if self._tensor.finish():
                tensor = self._tensor
                self._tensors[tensor.elements, tensor.call, tensor.bits, tensor.partition] = tensor
                if len(self._tensors) > scaling.MAX_CACHED_LENGTHS:
                    del self._tensors[next(iter(self._tensors))]
        self._statistics.all_reduces += 1
        before, self._saturated_before = self._saturated_before, self._state.totals.saturated
        saturated = self._saturated_before - before
        if saturated and self._on_saturation == "raise":
            raise SaturationError(
                f"rank {self.lease.rank}, lease {self.lease.id}: {saturated} results of all-reduce "
                f"{self._statistics.all_reduces} saturated; do all workers count {self.lease.workers} workers?"
            )
        return result

    def error_bound(self) -> NDArray[np.float64]:
        """Return a bound of |result - exact sum| for each element of the last result, flat [elements].

        See quantization.py.
        """
        if not self._tensor:
            return np.zeros(0)
        return self._tensor.error_bound(self._engine.factors[: self._tensor.blocks], self._output)

    @property
    def summed(self) -> NDArray[np.bool_]:
        """Return which blocks have their sum in the output so far [blocks], if there are more blocks than slots."""
        summed = self._engine.summed
        return summed & ~np.isnan(self._engine.factors[: len(summed)])

    @property
    def unsummed(self) -> NDArray[np.int64]:
        """Return the indices of elements of the last result that have no sum, ascending.

        An element has no sum if some worker cannot quantize its block.
        """
        if not self._tensor or not self._state.progress.unsummed:
            return _NO_ELEMENTS
        left_out = np.isnan(self._engine.factors[: self._tensor.blocks])
        return np.flatnonzero(self._tensor.of_blocks(left_out))

    # -- sending ---------------------------------------------------------------------------------------------

    def datagrams_to_send(self, now: float) -> list[NDArray[np.uint8]]:
        """Return batches [m, size] of datagrams to send now: new chunks, and chunks whose timer has expired.

        The arrays are the worker's own memory: send or copy them before the next call of any method.

        Raises:
            StallError: If nothing new has arrived for `give_up` seconds.
            MismatchError: If the workers do not agree.
        """
        progress, timers, totals = self._state.progress, self._state.timers, self._state.totals
        if progress.disagree:
            assert self._tensor
            lease, all_reduce = self.lease, self._statistics.all_reduces + 1
            raise MismatchError(
                f"rank {lease.rank} of {lease.workers}, lease {lease.id}, all-reduce {all_reduce}: the workers do not "
                f"agree: {self._tensor.agreement.explain(np.array(progress.sums))}"
            )
        packed = [batch for chunks in self._to_send for batch in self._engine.pack(chunks, now)]
        self._to_send = []
        batches = [wire.as_datagrams(batch) for batch in packed]
        if progress.missing and now >= self._give_up_at:
            raise StallError(str(self.outstanding(now)))
        batches += [wire.as_datagrams(packets) for packets in self._retransmit(timers.expired(now))]
        for batch in batches:
            totals.sent += len(batch)
            totals.sent_bytes += batch.size
        return batches

    def deadline(self) -> float | None:
        """Return when to call datagrams_to_send() again if nothing arrives before; None if there is no need."""
        if self.finished:
            return None
        if self._to_send:
            return self._state.progress.latest
        return min(self._state.timers.earliest(), self._give_up_at)

    @property
    def _give_up_at(self) -> float:
        return self._state.progress.latest + self._state.recovery.give_up

    def _retransmit(self, places: NDArray[np.int64]) -> list[NDArray[np.void]]:
        """Return the packets to retransmit, grouped by size, in the order of their chunks."""
        if not len(places):
            return []
        assert self._tensor
        self._statistics.retransmissions += len(places)
        state = self._state
        chunks = state.awaited[places] - state.progress.first_chunk
        places = places[np.argsort(chunks)]
        kept_in = state.kept_in[places]
        parts = ((state.packets[each], places[kept_in == each]) for each in (LEADING, CARRYING, BARE))
        return [packets[span(part)] for packets, part in parts if len(part)]

    # -- receiving -------------------------------------------------------------------------------------------

    def count_marks(self, count: int) -> None:
        """Record that `count` of the datagrams passed to the next receive() carried a congestion mark."""
        self._state.gate.marked += count

    def receive(self, datagrams: NDArray[np.uint8], now: float) -> None:
        """Process a batch [m, size] of datagrams. Datagrams that are not awaited results are only counted."""
        ready = self._engine.receive(datagrams, now)
        if ready is not None:
            self._to_send.append(ready)

    def exchange(self, socket: Socket, until: float = math.inf) -> None:
        """Send, receive and answer on a socket until a timer may have expired, all results are there, or `until`.

        It replaces datagrams_to_send() and receive(), and is faster. It leaves retransmissions to datagrams_to_send().
        """
        ready, self._to_send = self._to_send, []
        self._engine.exchange(socket, ready, min(until, self._give_up_at))

    @property
    def turn(self) -> tuple[int, int, float] | None:
        """Return the addresses of C's turn function and of its worker (see Engine.turn), and `give_up`.

        The function does the work of receive(), datagrams_to_send() and deadline(). What it leaves over is for the
        latter two. None if there is no such function.
        """
        found = self._engine.turn if type(self) is Worker else None
        return (*found, self._state.recovery.give_up) if found else None

    # -- explaining ------------------------------------------------------------------------------------------

    def outstanding(self, now: float) -> Outstanding | None:
        """Return what the worker waits for; None if it waits for no result."""
        state = self._state
        places = np.flatnonzero(state.awaited != NONE)
        if not len(places):
            return None
        assert self._tensor
        numbers = np.sort(state.awaited[places])
        ends = np.flatnonzero(np.diff(numbers, append=numbers[-1] + 2) != 1)
        starts = np.concatenate([[0], ends[:-1] + 1])
        times = state.timers.times_sent[places]
        return Outstanding(
            lease=self.lease,
            all_reduce=self._statistics.all_reduces + 1,
            elements=self._tensor.elements,
            announcing=bool(numbers[0] - state.progress.first_chunk < self._tensor.bare),
            accepted=state.progress.chunks - state.progress.missing,
            total=state.progress.chunks,
            chunks=tuple((int(numbers[a]), int(numbers[b])) for a, b in zip(starts, ends, strict=True)),
            sent=(int(times.min()), int(times.max())),
            waiting=now - float(state.timers.first_sent[places].min()),
            silent=now - state.progress.latest,
        )


AnyWorker: TypeAlias = Participant[NDArray[np.uint8]]
MakeWorker: TypeAlias = Callable[[Lease, Recovery], AnyWorker]
MakeServer: TypeAlias = Callable[[Lease, Recovery], Server]
