"""The worker's side of the aggregation protocol, without sockets or clock.

The caller passes in what arrived and the time, and takes out what to send and when to come back. The same
object runs on a UDP socket (udp.py) and in virtual time.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fanin.workers import collective, wire
from fanin.workers.collective import CollectiveError, Participant, StallError, Statistics
from fanin.workers.engines.buffers import Buffers
from fanin.workers.engines.engine import NONE, NOT_BEGUN, PARTS, REASONS, SUMMED, Engine, Socket, State
from fanin.workers.engines.native import fastest
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.tensor import Tensor, span
from fanin.workers.values import quantization, scaling

_NO_ELEMENTS = np.zeros(0, np.int64)


class SaturationError(CollectiveError):
    """Sums met the limits of int32, which workers that quantize alike cannot cause."""


class MismatchError(CollectiveError):
    """The workers did not all call with a vector of one length, or hold different leases; nothing was summed."""


class LeaseExhaustedError(CollectiveError):
    """The lease's chunk numbers are used up: ask the controller for a new lease."""


@dataclass(slots=True)
class InNetworkStatistics(Statistics):
    """Running totals of one worker; times in seconds.

    ignored: datagrams that were no result awaited, by reason: malformed (size, type or slot), other lease,
    duplicate, unknown chunk (never sent), impossible (its largest exponent is below the worker's own, or it is of
    another all-reduce). saturated: results accepted that carried the flag.
    timeouts: how many of the retransmissions a timer caused, and not answers to packets sent later.
    congestion_window: chunks that may be in flight now.
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
    """The results that a worker waits for at one moment; times in seconds before it.

    chunks: ranges of chunk numbers of the lease, both ends included. sent: least and most often that one
    was sent.
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
        """Which worker waits for what, since when."""
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
            "; no result has come at all: either another worker is not there, or it called with a vector of "
            "another length or for something else (then the switches count drops of the reason MISMATCH)"
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
    """Say that the element at this index cannot be summed."""
    return (
        f"element {index} is {value}: sums need finite numbers below 2^127 in magnitude. Clip or scale the input, or "
        "choose non_finite='propagate', which passes NaN and infinities on"
    )


class Worker:
    """One worker in one lease: any number of all-reduces, one after the other.

    start(); then, until `finished`, send what datagrams_to_send() returns, hand what arrives to receive(),
    and call datagrams_to_send() again at deadline() at the latest; then finish(). `now`: seconds on any
    clock that never goes back.

    non_finite: "raise", or "propagate" to take blocks in which this worker has a NaN, an infinity or a magnitude of
    2^127 and more. Where some worker has one, no worker has a sum of the block (see `unsummed`). on_saturation: "raise"
    SaturationError from finish(), the lease staying usable, or only "count". engine: what does the work on packets, the
    fastest here.
    """

    def __init__(
        self,
        lease: Lease,
        recovery: Recovery | None = None,
        *,
        non_finite: Literal["raise", "propagate"] = "raise",
        on_saturation: Literal["raise", "count"] = "raise",
        engine: Callable[[State], Engine] = fastest,
    ) -> None:
        self.lease = lease
        self._state = State(lease, recovery or Recovery())
        self._engine = engine(self._state)
        self._statistics = InNetworkStatistics()
        self._propagate = non_finite == "propagate"
        self._on_saturation = on_saturation

        self._tensor: Tensor | None = None
        self._tensors: dict[
            tuple[int, str], Tensor
        ] = {}  # by length and call: those that know what to expect
        self._output = np.zeros(0, np.float32)  # flat
        self._result: NDArray[np.float32] | None = None
        self._to_send: list[NDArray[np.int64]] = []
        self._saturated_before = 0

    @property
    def statistics(self) -> InNetworkStatistics:
        """Totals so far."""
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
        """Seconds in each part of exchange() so far (of receive and send, the kernel's), if C does it; else {}."""
        spent = dict(zip(PARTS, self._state.totals.spent, strict=True))
        return spent if any(spent.values()) else {}

    # -- one all-reduce --------------------------------------------------------------------------------------

    def start(
        self, x: NDArray[np.float32], now: float, out: NDArray[np.float32] | None = None, call: str = ""
    ) -> None:
        """Begin to sum `x` (float32, any shape) over the workers, into `out` where given (which may be `x`).

        Neither may change before finish(). call: what for, in any words: workers with other ones are not summed with.

        Raises:
            TypeError, ValueError: nothing was sent and the worker can go on; see Participant.
            CollectiveError: the all-reduce before has not finished. LeaseExhaustedError: ask for a new lease.
        """
        self.begin(self.checked(x, out), now, call)
        self._result = self._output.reshape(x.shape) if out is None else out

    def checked(self, x: NDArray[np.float32], out: NDArray[np.float32] | None) -> Buffers:
        """Return what begin() and sum() take of a call's arrays.

        Raises:
            TypeError, ValueError: see flat() (collective.py). The call has its number: see begin().
        """
        try:
            return Buffers(*collective.flat(x, out))
        except (TypeError, ValueError):
            self._state.progress.calls += 1
            raise

    def begin(self, buffers: Buffers, now: float, call: str) -> None:
        """As start(), of what checked() has returned."""
        lease, progress = self.lease, self._state.progress
        # A call that is refused has its number all the same: what follows it here must not meet what others still do.
        progress.calls += 1
        if progress.missing:
            raise CollectiveError(f"the all-reduce before has not finished: {self.outstanding(now)}")
        before = self._tensor, self._output, self._result
        if not (elements := buffers.elements):
            self._tensor, self._output, self._result = None, buffers.out, buffers.out
            self._to_send = []
            return
        tensor = self._tensors.get((elements, call)) or self._make_tensor(elements, call)
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
            index = quantization.first_unquantizable(buffers.x, lease.values, self._engine.quantizable)
            raise ValueError(not_finite(index, buffers.x[index]))
        self._to_send = [ready]

    def sum(self, socket: Socket, buffers: Buffers, call: str) -> int:
        """begin(), exchange() and finish(), faster, of a vector like one before. How far it has come, see Engine.sum().

        Raises:
            OSError: see exchange(). It has begun.
        """
        tensor = self._tensors.get((buffers.elements, call))
        if tensor is None:
            return NOT_BEGUN
        before = self._tensor, self._output, self._result
        # Not afterwards, for Ctrl-C may end it at any moment.
        self._tensor, self._output, self._result = tensor, buffers.out, buffers.out
        stage = self._engine.sum(socket, tensor, buffers, self._propagate)
        if stage == SUMMED:
            self._result = None
            self._statistics.all_reduces += 1
        elif stage == NOT_BEGUN:
            self._tensor, self._output, self._result = before
        elif stage < 0:
            socket.check(-stage, self._state.carrying.itemsize)
        return stage

    def _make_tensor(self, elements: int, call: str) -> Tensor:
        lease, number = self.lease, self._state.progress.calls
        return Tensor(elements, call, number, workers=lease.workers, values=lease.values, window=lease.window)

    @property
    def finished(self) -> bool:
        """Whether every result of the all-reduce begun last is there."""
        return self._state.progress.missing == 0

    def finish(self, *, unsummed: Literal["NaN", "own"] = "NaN") -> NDArray[np.float32]:
        """The sum, once finished, of the shape of `x`.

        Args:
            unsummed: What the elements have that have no sum: NaN, or this worker's own values.

        Raises:
            SaturationError: it is wrong, integers were cut off at their limits.
            CollectiveError: no all-reduce has finished.
        """
        if self._result is None or not self.finished:
            raise CollectiveError("no all-reduce has finished")
        result, self._result = self._result, None
        if self._tensor:
            if unsummed == "NaN":
                self._output[self.unsummed] = np.nan
            self._engine.finish()
            if self._tensor.finish():
                self._tensors[self._tensor.elements, self._tensor.call] = self._tensor
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
        """Bound of |result - exact sum| for each element of the last result, flat [elements] (see quantization.py)."""
        if not self._tensor:
            return np.zeros(0)
        return self._tensor.error_bound(self._engine.factors[: self._tensor.blocks], self._output)

    @property
    def summed(self) -> NDArray[np.bool_]:
        """Of which blocks the sum is in its place by now, if there are more than places: [blocks]."""
        summed = self._engine.summed
        return summed & ~np.isnan(self._engine.factors[: len(summed)])

    @property
    def unsummed(self) -> NDArray[np.int64]:
        """Which elements of the last result have no sum, since some worker cannot quantize their block: ascending."""
        if not self._tensor or not self._state.progress.unsummed:
            return _NO_ELEMENTS
        values = self.lease.values
        blocks = np.flatnonzero(np.isnan(self._engine.factors[: self._tensor.blocks]))
        elements = (blocks[:, np.newaxis] * values + np.arange(values)).reshape(-1)
        return elements[elements < self._tensor.elements]

    # -- sending ---------------------------------------------------------------------------------------------

    def datagrams_to_send(self, now: float) -> list[NDArray[np.uint8]]:
        """Batches [m, size] of datagrams to send now: new chunks, and those whose timer has expired.

        The arrays are the worker's own memory: send or copy them before the next call of any method.

        Raises:
            StallError: nothing new has arrived for `give_up` seconds. MismatchError: the workers do not agree.
        """
        progress, timers, totals = self._state.progress, self._state.timers, self._state.totals
        if progress.disagree:
            assert self._tensor
            lease, all_reduce = self.lease, self._statistics.all_reduces + 1
            raise MismatchError(
                f"rank {lease.rank} of {lease.workers}, lease {lease.id}, all-reduce {all_reduce}: the workers do not "
                f"agree: {self._tensor.agreement.explain(np.array(progress.sums))}"
            )
        batches = [wire.as_datagrams(self._engine.pack(chunks, now)) for chunks in self._to_send]
        self._to_send = []
        if progress.missing and now >= self._give_up_at:
            raise StallError(str(self.outstanding(now)))
        batches += [wire.as_datagrams(packets) for packets in self._repeat(timers.expired(now))]
        for batch in batches:
            totals.sent += len(batch)
            totals.sent_bytes += batch.size
        return batches

    def deadline(self) -> float | None:
        """When to call datagrams_to_send() again if nothing arrives before; None: no need."""
        if self.finished:
            return None
        if self._to_send:
            return self._state.progress.latest
        return min(self._state.timers.earliest(), self._give_up_at)

    @property
    def _give_up_at(self) -> float:
        return self._state.progress.latest + self._state.recovery.give_up

    def _repeat(self, places: NDArray[np.int64]) -> list[NDArray[np.void]]:
        """The packets to send again, by size, in the order of their chunks."""
        if not len(places):
            return []
        assert self._tensor
        self._statistics.retransmissions += len(places)
        state = self._state
        chunks = state.awaited[places] - state.progress.first_chunk
        order = np.argsort(chunks)
        split = int(np.searchsorted(chunks[order], self._tensor.bare))
        parts = ((state.leading, places[order[:split]]), (state.carrying, places[order[split:]]))
        return [packets[span(part)] for packets, part in parts if len(part)]

    # -- receiving -------------------------------------------------------------------------------------------

    def count_marks(self, count: int) -> None:
        """So many of the datagrams that receive() is given next came with a congestion mark."""
        self._state.gate.marked += count

    def receive(self, datagrams: NDArray[np.uint8], now: float) -> None:
        """Take a batch [m, size] of datagrams. What is not a result awaited is counted and otherwise ignored."""
        ready = self._engine.receive(datagrams, now)
        if ready is not None:
            self._to_send.append(ready)

    def exchange(self, socket: Socket, until: float = math.inf) -> None:
        """Send, receive and answer on a socket until a timer may have expired, all results are there, or `until`.

        In place of datagrams_to_send() and receive(), and faster; what timers ask for is left to the former.
        """
        ready, self._to_send = self._to_send, []
        self._engine.exchange(socket, ready, min(until, self._give_up_at))

    @property
    def turn(self) -> tuple[int, int, float] | None:
        """What does receive(), datagrams_to_send() and deadline() in C, see Engine.turn, and `give_up`; None: nothing.

        What it leaves over is for the latter two.
        """
        found = self._engine.turn if type(self) is Worker else None
        return (*found, self._state.recovery.give_up) if found else None

    # -- explaining ------------------------------------------------------------------------------------------

    def outstanding(self, now: float) -> Outstanding | None:
        """What the worker waits for; None when it waits for nothing."""
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
