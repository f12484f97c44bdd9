"""The worker's side of the aggregation protocol, without sockets or clock.

The caller passes in what arrived and the time, and takes out what to send and when to come back. The same
object runs on a UDP socket (udp.py) and in virtual time.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from workers import collective, quantization, scaling, wire
from workers.agreement import DIGITS
from workers.collective import CollectiveError, StallError, Statistics
from workers.recovery import Recovery, Timers
from workers.tensor import NumpyTensor, Tensor, span

_NONE = -1  # no chunk


class SaturationError(CollectiveError):
    """Sums met the limits of int32, which workers that quantize alike cannot cause."""


class MismatchError(CollectiveError):
    """The workers did not all call with a vector of one length, or hold different leases; nothing was summed."""


class LeaseExhaustedError(CollectiveError):
    """The lease's chunk numbers are used up: ask the controller for a new lease."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A job's right to slots and chunk numbers, as the controller granted it to one of its workers.

    id: 1 to 255. slots: first_slot to first_slot + window - 1. values: integers in a packet, 64 or 256. Its chunks have
    numbers from first_chunk to last_chunk: a lease is used by one set of workers once, since what they sent under these
    numbers may still be on the way, or in the switches.
    """

    id: int
    rank: int
    workers: int
    window: int
    first_slot: int = 0
    values: int = 256
    first_chunk: int = 0
    last_chunk: int = wire.CHUNKS - 1

    def __post_init__(self) -> None:
        if not 0 < self.id < wire.LEASES:
            raise ValueError(f"lease id must be from 1 to {wire.LEASES - 1}, not {self.id}")
        if not 0 < self.workers <= quantization.MAX_WORKERS:
            raise ValueError(f"workers must be from 1 to {quantization.MAX_WORKERS}, not {self.workers}")
        if not 0 <= self.rank < self.workers:
            raise ValueError(
                f"rank must be from 0 to {self.workers - 1} with {self.workers} workers, not {self.rank}"
            )
        if self.window < 1 or self.first_slot < 0 or self.first_slot + self.window > wire.SLOTS:
            raise ValueError(
                f"window must be at least 1 and its slots within 0 to {wire.SLOTS - 1}, "
                f"not {self.window} from slot {self.first_slot}"
            )
        if self.values not in wire.SIZES:
            raise ValueError(f"values must be one of {list(wire.SIZES)}, not {self.values}")
        if not 0 <= self.first_chunk <= self.last_chunk < wire.CHUNKS:
            raise ValueError(
                f"chunk numbers must be within 0 to {wire.CHUNKS - 1}, not from {self.first_chunk} to {self.last_chunk}"
            )


@dataclass(slots=True)
class InNetworkStatistics(Statistics):
    """Running totals of one worker; times in seconds.

    ignored: datagrams that were no result awaited, by reason: malformed (size, type or slot), other lease,
    duplicate, unknown chunk (never sent), impossible (its largest exponent is below the worker's own, or it is of
    another all-reduce). saturated: results accepted that carried the flag.
    timeouts: how many of the retransmissions a timer caused, and not answers to packets sent later.
    """

    datagrams_sent: int = 0
    datagrams_received: int = 0
    accepted: int = 0
    timeouts: int = 0
    saturated: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    smoothed_rtt: float | None = None
    rto: float = 0.0


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
            "another length (then the switches count drops of the reason MISMATCH)"
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


class Worker:
    """One worker in one lease: any number of all-reduces, one after the other.

    start(); then, until `finished`, send what datagrams_to_send() returns, hand what arrives to receive(),
    and call datagrams_to_send() again at deadline() at the latest; then finish(). `now`: seconds on any
    clock that never goes back.

    non_finite: "raise", or "propagate" to sum a block in which some worker has a NaN, an infinity or a
    magnitude of 2^127 and more to NaN. on_saturation: "raise" SaturationError from finish(), the lease
    staying usable, or only "count".
    """

    def __init__(
        self,
        lease: Lease,
        recovery: Recovery | None = None,
        *,
        non_finite: Literal["raise", "propagate"] = "raise",
        on_saturation: Literal["raise", "count"] = "raise",
    ) -> None:
        self.lease = lease
        self._recovery = recovery or Recovery()
        self._timers = Timers(lease.window, self._recovery)
        self._statistics = InNetworkStatistics()
        self._non_finite = non_finite
        self._on_saturation = on_saturation

        # The packet last sent from each place of the window (chunk mod W), as sent: a retransmission
        # repeats it byte for byte. Chunks without values go in packets of the smaller size.
        self._carrying = self._window_of_packets(lease.values)
        smallest = min(wire.SIZES)
        self._leading = self._carrying if lease.values == smallest else self._window_of_packets(smallest)
        # By place: the chunk whose result is awaited, and what else must be in it.
        self._awaited = np.full(lease.window, _NONE, np.int64)
        self._kinds = np.zeros(lease.window, np.uint8)
        self._pool_indices = np.zeros(lease.window, np.int64)
        self._copies = np.zeros(lease.window, np.int64)  # scratch of receive()
        self._places = np.arange(lease.window)

        self._tensor: Tensor | None = None
        self._tensors: dict[int, Tensor] = {}  # by length: those that know what to expect
        self._cached = 0  # how many that have been so far
        self._output = np.zeros(0, np.float32)  # flat
        self._result: NDArray[np.float32] | None = None
        self._first_chunk = 0  # of this all-reduce, in the lease's numbering
        self._next_chunk = lease.first_chunk
        self._remaining = 0
        self._to_send: list[NDArray[np.int64]] = []
        self._progress = 0.0  # when something new arrived last
        self._saturated_before = 0
        self._disagreement: NDArray[np.int64] | None = None  # the sums that tell of it

    @property
    def statistics(self) -> InNetworkStatistics:
        """Totals so far."""
        statistics, timers = self._statistics, self._timers
        statistics.smoothed_rtt, statistics.rto = timers.rtt.smoothed, timers.rtt.rto
        statistics.timeouts = timers.timeouts
        return statistics

    def _window_of_packets(self, values: int) -> NDArray[np.void]:
        packets = np.zeros(self.lease.window, wire.packet_dtype(values))
        packets["kind"] = wire.kind(wire.UPDATE, values)
        packets["lease"] = self.lease.id
        return packets

    # -- one all-reduce --------------------------------------------------------------------------------------

    def start(self, x: NDArray[np.float32], now: float, out: NDArray[np.float32] | None = None) -> None:
        """Begin to sum `x` (float32, any shape) over the workers, into `out` where given (which may be `x`).

        Neither may change before finish(). ValueError, TypeError: nothing was sent and the worker can go on.
        """
        if self._remaining:
            raise CollectiveError(f"the all-reduce before has not finished: {self.outstanding(now)}")
        flat = collective.flat_input(x)
        result = collective.flat_output(x, out)
        self._first_chunk = self._next_chunk
        self._tensor = tensor = self._admit(flat, result) if flat.size else None
        if tensor:
            self._expect_results(tensor.chunks)
            self._to_send = [self._places[: tensor.lead]]
        self._output = result
        self._result = result.reshape(x.shape) if out is None else out
        self._progress = now

    def _admit(self, x: NDArray[np.float32], out: NDArray[np.float32]) -> Tensor:
        lease = self.lease
        tensor = self._tensors.get(len(x)) or self._make_tensor(len(x))
        left = lease.last_chunk + 1 - self._next_chunk
        if tensor.most_chunks > left:
            raise LeaseExhaustedError(
                f"lease {lease.id} has {left} of its {lease.last_chunk + 1 - lease.first_chunk} chunk numbers left and "
                f"this all-reduce may need {tensor.most_chunks}: ask for a new lease"
            )
        if tensor.begin(x, out) and self._non_finite == "raise":
            index = quantization.first_unquantizable(x, lease.values, tensor.quantizable)
            raise ValueError(
                f"element {index} is {x[index]}: sums need finite numbers below 2^127 in magnitude. "
                "Clip or scale the input, or choose non_finite='propagate' to get NaN for its whole block"
            )
        return tensor

    def _make_tensor(self, elements: int) -> Tensor:
        lease = self.lease
        return NumpyTensor(elements, workers=lease.workers, values=lease.values, window=lease.window)

    @property
    def finished(self) -> bool:
        """Whether every result of the all-reduce begun last is there."""
        return self._remaining == 0

    def finish(self) -> NDArray[np.float32]:
        """The sum, once finished. SaturationError: it is wrong, integers were cut off at their limits."""
        if self._result is None or self._remaining:
            raise CollectiveError("no all-reduce has finished")
        result, self._result = self._result, None
        if self._tensor:
            self._finish(self._tensor)
        self._statistics.all_reduces += 1
        before, self._saturated_before = self._saturated_before, self._saturated
        saturated = self._saturated_before - before
        if saturated and self._on_saturation == "raise":
            raise SaturationError(
                f"rank {self.lease.rank}, lease {self.lease.id}: {saturated} results of all-reduce "
                f"{self._statistics.all_reduces} saturated; do all workers count {self.lease.workers} workers?"
            )
        return result

    def _finish(self, tensor: Tensor) -> None:
        # All workers number the lengths alike; of those remembered together no two have the same tag.
        if tensor.finish(tag=1 + self._cached % scaling.MAX_CACHED_LENGTHS):
            self._cached += 1
            self._tensors[tensor.elements] = tensor
            if len(self._tensors) > scaling.MAX_CACHED_LENGTHS:
                del self._tensors[next(iter(self._tensors))]

    def error_bound(self) -> NDArray[np.float64]:
        """Bound of |result - exact sum| for each element of the last result, flat (see quantization.py)."""
        return self._tensor.error_bound(self._output) if self._tensor else np.zeros(0)

    @property
    def _saturated(self) -> int:
        return self._statistics.saturated

    # -- sending ---------------------------------------------------------------------------------------------

    def datagrams_to_send(self, now: float) -> list[NDArray[np.uint8]]:
        """Batches [m, size] of datagrams to send now: new chunks, and those whose timer has expired.

        The arrays are the worker's own memory: send or copy them before the next call of any method.
        StallError: nothing new has arrived for `give_up` seconds. MismatchError: the workers do not agree.
        """
        if self._disagreement is not None:
            assert self._tensor
            lease, all_reduce = self.lease, self._statistics.all_reduces + 1
            raise MismatchError(
                f"rank {lease.rank} of {lease.workers}, lease {lease.id}, all-reduce {all_reduce}: the workers do not "
                f"agree: {self._tensor.agreement.explain(self._disagreement)}"
            )
        batches = [wire.as_datagrams(self._pack(chunks, now)) for chunks in self._to_send]
        self._to_send = []
        if self._remaining and now >= self._progress + self._recovery.give_up:
            raise StallError(str(self.outstanding(now)))
        batches += [wire.as_datagrams(packets) for packets in self._repeat(self._timers.expired(now))]
        for batch in batches:
            self._statistics.datagrams_sent += len(batch)
            self._statistics.bytes_sent += batch.size
        return batches

    def deadline(self) -> float | None:
        """When to call datagrams_to_send() again if nothing arrives before; None: no need."""
        if not self._remaining:
            return None
        if self._to_send:
            return self._progress
        return min(self._timers.earliest(), self._progress + self._recovery.give_up)

    def _pack(self, chunks: NDArray[np.int64], now: float) -> NDArray[np.void]:
        """Packets of chunks sent for the first time, numbered within the all-reduce."""
        assert isinstance(self._tensor, NumpyTensor)
        numbers = chunks + self._first_chunk
        places = span(numbers % self.lease.window)
        packets = self._leading if chunks[0] < self._tensor.bare else self._carrying
        batch = packets[places]
        batch["tsi"] = numbers
        batch["pool_index"] = pool_indices = wire.pool_index(
            numbers, self.lease.first_slot, self.lease.window
        )
        self._tensor.write(chunks, batch)
        if not isinstance(places, slice):
            packets[places] = batch

        self._awaited[places] = numbers
        self._kinds[places] = wire.kind(wire.RESULT, packets["values"].shape[1])
        self._pool_indices[places] = pool_indices
        patient, measure = chunks[0] < self._tensor.lead, chunks[0] >= self._tensor.bare
        self._timers.start(places, now, patient=bool(patient), measure=bool(measure))
        return batch

    def _repeat(self, places: NDArray[np.int64]) -> list[NDArray[np.void]]:
        """The packets to send again, by size, in the order of their chunks."""
        if not len(places):
            return []
        assert self._tensor
        self._statistics.retransmissions += len(places)
        chunks = self._awaited[places] - self._first_chunk
        order = np.argsort(chunks)
        split = int(np.searchsorted(chunks[order], self._tensor.bare))
        parts = ((self._leading, places[order[:split]]), (self._carrying, places[order[split:]]))
        return [packets[span(part)] for packets, part in parts if len(part)]

    # -- receiving -------------------------------------------------------------------------------------------

    def receive(self, datagrams: NDArray[np.uint8], now: float) -> None:
        """Take a batch [m, size] of datagrams. What is not a result awaited is counted and otherwise ignored."""
        statistics = self._statistics
        count, size = datagrams.shape
        statistics.datagrams_received += count
        statistics.bytes_received += datagrams.size
        if size not in wire.VALUES:
            statistics.ignored["malformed"] += count
            return
        self._take(datagrams, now)

    def _take(self, datagrams: NDArray[np.uint8], now: float) -> None:
        """Take over the results of chunks awaited among these packets, and queue what may be sent then."""
        count, size = datagrams.shape
        packets = wire.as_packets(datagrams)
        numbers = packets["tsi"].astype(np.int64)
        places = numbers % self.lease.window
        chunks = numbers - self._first_chunk
        kinds = packets["kind"] & np.uint8(0xFF ^ wire.SATURATED)
        awaited = self._awaited[places] == numbers
        fits = awaited & (kinds == self._kinds[places]) & (packets["lease"] == self.lease.id)
        fits &= packets["pool_index"] == self._pool_indices[places]
        possible = fits & self._possible(chunks, packets, fits)
        # Of copies within the batch the first counts: it is the last to write its index.
        indices = np.arange(count)
        self._copies[places[possible][::-1]] = indices[possible][::-1]
        fresh = possible & (self._copies[places] == indices)
        if np.count_nonzero(fresh) < count:
            results = kinds == wire.kind(wire.RESULT, wire.VALUES[size])
            # The first reason that applies.
            reasons = (
                ("malformed", ~results),
                ("other lease", packets["lease"] != self.lease.id),
                ("unknown chunk", ~(awaited | self._answered(chunks))),
                ("malformed", awaited & ~fits),
                ("impossible", awaited & ~possible),
            )
            self._count_ignored(~fresh, reasons)
        fresh[fresh] = self._agreed(chunks[fresh], packets["values"][fresh, :DIGITS])
        if np.count_nonzero(fresh) < count:
            packets, places, chunks = packets[fresh], places[fresh], chunks[fresh]
            if not len(chunks):
                return

        self._timers.stop(places, now)
        self._awaited[places] = _NONE
        self._statistics.saturated += int(np.count_nonzero(packets["kind"] & wire.SATURATED))
        self._statistics.accepted += len(chunks)
        self._remaining -= len(chunks)
        self._progress = now
        assert isinstance(self._tensor, NumpyTensor)
        self._tensor.accepted[chunks] = True
        self._tensor.read(chunks, packets)
        self._release(chunks)

    def _possible(
        self, chunks: NDArray[np.int64], packets: NDArray[np.void], fits: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Which of the packets that fit can be results of their chunks."""
        possible = np.zeros(len(chunks), np.bool_)
        if isinstance(self._tensor, NumpyTensor) and np.count_nonzero(fits):
            possible[fits] = self._tensor.possible(chunks[fits], packets["e0"][fits], packets["e1"][fits])
        return possible

    def _answered(self, chunks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these chunks are of an all-reduce before this one, or of this one with their result there."""
        answered = chunks < 0
        if isinstance(self._tensor, NumpyTensor):
            ours = (chunks >= 0) & (chunks < self._tensor.chunks)
            answered[ours] |= self._tensor.accepted[chunks[ours]]
        return answered

    def _count_ignored(
        self, ignored: NDArray[np.bool_], reasons: tuple[tuple[str, NDArray[np.bool_]], ...]
    ) -> None:
        """Give each datagram that is ignored the first reason that applies; the rest are duplicates."""
        rest = ignored.copy()
        for reason, applies in (*reasons, ("duplicate", ignored)):
            if count := int(np.count_nonzero(rest & applies)):
                self._statistics.ignored[reason] += count
            rest &= ~applies

    def _agreed(self, chunks: NDArray[np.int64], digits: NDArray[np.int32]) -> NDArray[np.bool_]:
        """False for the first chunk's result where it tells that the workers do not agree, which is kept."""
        agreed = np.ones(len(chunks), np.bool_)
        if self._tensor and self._tensor.bare:
            first = chunks == 0
            agreed[first] = holds = self._tensor.agreement.holds(digits[first].astype(np.int64))
            if not holds.all():
                self._disagreement = digits[first & ~agreed][0].astype(np.int64)
        return agreed

    def _release(self, chunks: NDArray[np.int64]) -> None:
        """Queue the chunks that may be sent now that these results are there.

        Chunk i needs the exponent that chunk i - B announced, and its slot, which chunk i - W had.
        """
        assert isinstance(self._tensor, NumpyTensor)
        lead, window = self._tensor.lead, self.lease.window
        ready = chunks + lead
        if lead < window:
            ready = np.unique(np.concatenate([ready, chunks + window]))
        ready = ready[ready < self._tensor.chunks]
        if lead < window:
            before = np.where(ready < window, ready - lead, ready - window)
            accepted = self._tensor.accepted
            ready = ready[accepted[ready - lead] & accepted[before]]
        if self._tensor.delayed:
            ready = self._tensor.repeat_missed()
            self._expect_results(len(ready))
        if len(ready):
            self._to_send.append(ready)

    def _expect_results(self, chunks: int) -> None:
        """So many chunks more are to be summed."""
        self._next_chunk += chunks
        self._remaining += chunks

    # -- explaining ------------------------------------------------------------------------------------------

    def outstanding(self, now: float) -> Outstanding | None:
        """What the worker waits for; None when it waits for nothing."""
        places = np.flatnonzero(self._awaited != _NONE)
        if not len(places):
            return None
        assert self._tensor
        numbers = np.sort(self._awaited[places])
        ends = np.flatnonzero(np.diff(numbers, append=numbers[-1] + 2) != 1)
        starts = np.concatenate([[0], ends[:-1] + 1])
        times = self._timers.times_sent[places]
        return Outstanding(
            lease=self.lease,
            all_reduce=self._statistics.all_reduces + 1,
            elements=self._tensor.elements,
            announcing=bool(numbers[0] - self._first_chunk < self._tensor.bare),
            accepted=self._tensor.chunks - self._remaining,
            total=self._tensor.chunks,
            chunks=tuple((int(numbers[a]), int(numbers[b])) for a, b in zip(starts, ends, strict=True)),
            sent=(int(times.min()), int(times.max())),
            waiting=now - float(self._timers.first_sent[places].min()),
            silent=now - self._progress,
        )
