"""Links in virtual time: rate, queue, delay and faults, computed for all links at once.

A packet waits in the queue at its link's near end, is sent at the link's rate, and arrives after the delay. Faults are
drawn independently for each packet (draws.py).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fanin.simulator import draws
from fanin.simulator.corruption import flip_bits
from fanin.simulator.packets import Packets, PacketStore
from fanin.simulator.segments import segment_starts, segments
from fanin.simulator.units import NEVER, SECOND
from fanin.topologies.link import LinkModel

_UNLIMITED = NEVER // 4
(
    _LOSS,
    _CORRUPTION,
    _DUPLICATION,
    _REORDERING,
    _LATER,
    _COPY_LATER,
    _BURST,
    _BURST_LOSS,
    _JITTER,
    _BIT,
    _MARK,
) = range(11)
_FAULTS = range(8)
_HEADERS = 34  # bytes of the Ethernet and IPv4 headers


@dataclass(slots=True)
class LinkCounts:
    """Counts for each link, all [links]. Times are in picoseconds.

    A queue holds, on the wire, the packets that wait and the rest of the packet being sent.

    Attributes:
        packets: Packets sent.
        bytes: Bytes sent, in frames.
        arrived: Packets that arrived.
        busy: How long the link was sending.
        waited: Total time that packets waited in its queue.
        queue_area: Time integral of the bytes in its queue, in byte-nanoseconds. A packet is added when it begins to be
            sent.
        longest_queue: Largest number of bytes in its queue.
        queue_drops: Packets that found no room in the queue.
        lost: Packets lost on the link, in bursts or otherwise.
        marks: Congestion marks.
        pauses: How often a priority was paused.
        paused: How long, summed over priorities.
        storms: How often the watchdog decided that a pause would not end.
        watchdog_drops: Packets that the watchdog dropped.
        faults: Faults of the whole network, by kind.
    """

    packets: NDArray[np.int64]
    bytes: NDArray[np.int64]
    arrived: NDArray[np.int64]
    busy: NDArray[np.int64]
    waited: NDArray[np.int64]
    queue_area: NDArray[np.int64]
    longest_queue: NDArray[np.int64]
    queue_drops: NDArray[np.int64]
    lost: NDArray[np.int64]
    marks: NDArray[np.int64]
    pauses: NDArray[np.int64]
    paused: NDArray[np.int64]
    storms: NDArray[np.int64]
    watchdog_drops: NDArray[np.int64]
    faults: Counter[str] = field(default_factory=Counter, kw_only=True)

    @classmethod
    def of(cls, count: int, **counts: NDArray[np.int64]) -> "LinkCounts":
        """Return counts for `count` links, all 0 except for the arrays that are given."""
        names = (one.name for one in fields(cls) if one.name != "faults")
        every: dict[str, Any] = {name: np.zeros(count, np.int64) for name in names} | counts
        return cls(**every)


@dataclass(frozen=True, slots=True)
class Transit:
    """Packets on links. Each array is [packets].

    Attributes:
        links: Number of the link.
        times: Time of sending or of arrival, in picoseconds.
        packets: Number of the packet.
    """

    links: NDArray[np.int64]
    times: NDArray[np.int64]
    packets: NDArray[np.int64]

    def take(self, which: NDArray[np.int64] | NDArray[np.bool_] | slice) -> "Transit":
        """Select packets by their indices, a mask [packets] or a slice."""
        return Transit(self.links[which], self.times[which], self.packets[which])

    @staticmethod
    def joined(parts: Sequence["Transit"]) -> "Transit":
        """Concatenate the parts."""
        if len(parts) == 1:
            return parts[0]
        return Transit(
            np.concatenate([part.links for part in parts]),
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.packets for part in parts]),
        )


NOTHING = Transit(*(np.zeros(0, np.int64) for _ in range(3)))


class Journal(Protocol):
    """A record of what becomes of each packet on links. Times are in picoseconds."""

    def sent(self, sent: Transit, begins: NDArray[np.int64], ends: NDArray[np.int64], store: Packets) -> None:
        """Note packets that leave their queues; `sent` has the times at which they joined them.

        Args:
            sent: The packets.
            begins: When the first bit of each is sent, [packets].
            ends: When the last bit of each has been sent, [packets].
            store: What the packets hold.
        """
        ...

    def lost(self, lost: Transit, reason: str, store: Packets) -> None:
        """Note packets that will not arrive; their times are those of their loss."""
        ...

    def copied(self, originals: NDArray[np.int64], copies: NDArray[np.int64]) -> None:
        """Note that a link duplicates packets; both arguments have their numbers, [packets]."""
        ...


def fifo_start_times(
    links: NDArray[np.int64],
    times: NDArray[np.int64],
    durations: NDArray[np.int64],
    floors: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Return when packets begin to be sent, each after the one before on its link has been sent.

    Packet i of a link begins at b(i) = max(a(i), b(i-1) + s(i-1)): with S(i), the sum of all s before i, b(i) - S(i) is
    a running maximum of a(i) - S(i).

    Args:
        links: Link of each packet, sorted and not empty, [packets].
        times: When each packet joins the queue, a(i), [packets].
        durations: How long each takes to be sent, s(i), [packets].
        floors: Earliest start on each link, [links].
    """
    first = segment_starts(links)
    segment = np.zeros(len(links), np.int64)
    segment[first[1:]] = 1
    segment = np.cumsum(segment)

    base = int(times.min())
    before = np.cumsum(durations) - durations
    before -= before[first][segment]
    arrivals = times - base
    arrivals[first] = np.maximum(arrivals[first], floors[links[first]] - base)
    slack = arrivals - before
    # Segments are lifted above one another, so that one running maximum serves them all.
    lift = segment * (int(slack.max()) - int(slack.min()) + 1)
    return np.maximum.accumulate(slack + lift) - lift + before + base


def _numbers(so_far: NDArray[np.int64], links: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number the packets of each link, counting on from `so_far` [links]; `links` is sorted."""
    counts = np.bincount(links, minlength=len(so_far))
    firsts = np.cumsum(counts) - counts
    numbers = np.arange(len(links)) + (so_far - firsts)[links]
    so_far += counts
    return numbers


class Links:
    """All directions of all links.

    Args:
        rates: Rate of each direction in bits/s; None is unlimited.
        models: Link model of each direction.
        from_host: Whether a host sends at the near end of each direction.
        store: Holds the packets.
        seed: Seed of the faults.

    Attributes:
        down_from: When each direction goes down; packets on it until down_until are lost.
        down_until: When each direction comes up again.
    """

    def __init__(
        self,
        rates: Sequence[int | None],
        models: Sequence[LinkModel],
        from_host: Sequence[bool],
        store: PacketStore,
        seed: int,
    ) -> None:
        count = len(rates)
        self._store = store
        # A byte's time in units of 2^-20 ps: rates that do not divide 8e12 are exact to a millionth.
        self._byte_time = np.array(
            [0 if r is None else round(8 * SECOND * 2**20 / r) for r in rates], np.int64
        )
        self._overhead = np.array([model.virtual_overhead for model in models], np.int64)
        self._delay = np.array([round(model.virtual_delay * SECOND) for model in models], np.int64)
        self._room = self._queue_times(
            [None if h else m.queue_bytes for h, m in zip(from_host, models, strict=True)]
        )
        begin, always, probability = zip(*(model.ecn_range for model in models), strict=True)
        self._mark, self._always_mark = self._queue_times(begin), self._queue_times(always)
        self._mark_probability = np.array(probability)
        self._marking = any(limit is not None for limit in begin)
        self._drawing_marks = begin != always
        self._joined = np.zeros(count, np.int64)  # numbers the packets of each queue
        self.free_at = np.zeros(count, np.int64)  # when each will have finished its current packet
        self.queued_bytes = np.zeros(count, np.int64)  # bytes in its queue, not yet begun
        self._sent = np.zeros(count, np.int64)  # numbers the packets of each link
        self._keys = draws.stream_keys(seed, count)
        self._loss = np.array([model.loss for model in models])
        self._corruption = np.array([model.corruption for model in models])
        self._duplication = np.array([model.duplication for model in models])
        self._reordering = np.array([model.reordering for model in models])
        self._displacement = np.array([model.displacement * SECOND for model in models])
        self._bursts = {i: model.burst for i, model in enumerate(models) if model.burst}
        self._in_burst = dict.fromkeys(self._bursts, False)
        self._faulty = any(m.loss or m.burst or m.corruption or m.duplication or m.reordering for m in models)
        self._jitter = np.array([model.jitter * SECOND for model in models])
        self._jittering = any(model.jitter for model in models)
        self._last_arrival = np.zeros(count, np.int64)
        self.down_from, self.down_until = np.full(count, NEVER), np.full(count, NEVER)
        self._cut = False
        self.counts = LinkCounts.of(count)
        self.journal: Journal | None = None

    @property
    def lookahead(self) -> int:
        """Return the least number of picoseconds before anything sent now arrives."""
        return int(self._delay.min())

    @property
    def next_time(self) -> int:
        """Return the earliest time at which a link may act by itself, without a packet to send."""
        return NEVER

    def constants(self) -> dict[str, NDArray[Any]]:
        """Return the constant properties of each link, by their names in loop/loop.h."""
        bursts = [self._bursts.get(link) for link in range(len(self._keys))]
        rates = np.array([self._loss, self._corruption, self._duplication, self._reordering])
        bursting = np.array([burst is not None for burst in bursts])
        return {
            "byte_time": self._byte_time,
            "overhead": self._overhead,
            "delay": self._delay,
            "room": self._room,
            "mark": self._mark,
            "always_mark": self._always_mark,
            "mark_probability": self._mark_probability,
            "key": self._keys,
            "loss": self._loss,
            "corruption": self._corruption,
            "duplication": self._duplication,
            "reordering": self._reordering,
            "displacement": self._displacement,
            "jitter": self._jitter,
            "down_from": self.down_from,
            "down_until": self.down_until,
            "bursts": bursting,
            "burst_begin": np.array([burst.begin if burst else 0.0 for burst in bursts]),
            "burst_end": np.array([burst.end if burst else 0.0 for burst in bursts]),
            "burst_loss": np.array([burst.loss if burst else 0.0 for burst in bursts]),
            "faulty": rates.any(axis=0) | bursting,
        }

    def _queue_times(self, limits: Sequence[int | None]) -> NDArray[np.int64]:
        """Return how long sending the limits, in bytes, takes."""
        times = [
            _UNLIMITED if limit is None else min(limit * int(byte) >> 20, _UNLIMITED)
            for limit, byte in zip(limits, self._byte_time, strict=True)
        ]
        return np.array(times, np.int64)

    def cut(self, links: Sequence[int], begin: int, end: int) -> None:
        """Lose everything on these links between two times. A link can have one such period at a time."""
        self.down_from[links], self.down_until[links] = begin, end
        self._cut = True

    def send(self, sent: Transit, end: int) -> Transit:  # noqa: ARG002 - links that can be paused need it
        """Put packets on their links, none earlier than any on that link before.

        Args:
            sent: Packets and when they are sent.
            end: End of the window in which they are sent, in picoseconds.

        Returns:
            The packets that arrive, and when.
        """
        if not len(sent.times):
            return sent
        sent = sent.take(np.lexsort((sent.times, sent.links)))
        return self._carry(*self._queue(sent))

    def _carry(self, sent: Transit, ends: NDArray[np.int64]) -> Transit:
        """Return what arrives of packets whose sending finishes at `ends`, in the order of links, then times."""
        if not len(ends):
            return sent
        lengths = self._store.lengths[sent.packets]
        count = len(self._sent)
        durations = self._durations(sent)
        np.add.at(self.counts.busy, sent.links, durations)
        self.counts.packets += np.bincount(sent.links, minlength=count)
        self.counts.bytes += np.bincount(sent.links, lengths, minlength=count).astype(np.int64)
        if self.journal:
            self.journal.sent(sent, ends - durations, ends, self._store)
        arriving = Transit(sent.links, ends + self._delay[sent.links], sent.packets)
        if self._cut:
            arriving = self._lose_where_cut(arriving, ends - durations)
            if not len(arriving.links):
                return arriving
        if self._faulty or self._jittering:
            numbers = _numbers(self._sent, arriving.links)
            if self._jittering:
                arriving = self._jitter_in_order(arriving, numbers)
            if self._faulty:
                arriving = self._disturb(arriving, numbers)
        self.counts.arrived += np.bincount(arriving.links, minlength=count)
        return arriving

    # -- queues ----------------------------------------------------------------------------------------------

    def _queue(self, sent: Transit) -> tuple[Transit, NDArray[np.int64]]:
        """Queue packets and send them one after another; `sent` is in the order of links, then times.

        Returns:
            The packets that found room, and when their sending finished.
        """
        links, times = sent.links, sent.times
        durations = self._durations(sent)
        begins = fifo_start_times(links, times, durations, self.free_at)
        waits = begins - times

        crowded = waits + durations > self._room[links]
        if np.count_nonzero(crowded):
            kept = np.ones(len(links), np.bool_)
            for part in segments(links):
                if np.count_nonzero(crowded[part]):
                    self._tail_drop(part, times, durations, links, begins, kept)
            self._drop(sent.take(~kept))
            sent, begins, durations = sent.take(kept), begins[kept], durations[kept]
            waits = begins - sent.times
        if self._marking:
            self._mark_congestion(sent, waits)
        self._note_waits(sent, waits)
        self._note_depths(sent.links, self._sent_in(sent.links, waits) + self._sizes(sent))
        ends = begins + durations
        # Assigned in order, so that a link's last packet decides.
        self.free_at[sent.links] = ends
        return sent, ends

    def _durations(self, sent: Transit) -> NDArray[np.int64]:
        return (self._sizes(sent) * self._byte_time[sent.links]) >> 20

    def _sizes(self, sent: Transit) -> NDArray[np.int64]:
        """Return the bytes on the wire."""
        return np.asarray(self._store.lengths[sent.packets] + self._overhead[sent.links], np.int64)

    def _sent_in(self, links: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bytes that links send in so many picoseconds; 0 without a rate, where sending takes no time."""
        byte_times = np.maximum(self._byte_time[links], 1)
        return np.where(self._byte_time[links] > 0, times * 2.0**20 / byte_times, 0).astype(np.int64)

    def _tail_drop(
        self,
        which: slice,
        times: NDArray[np.int64],
        durations: NDArray[np.int64],
        links: NDArray[np.int64],
        begins: NDArray[np.int64],
        kept: NDArray[np.bool_],
    ) -> None:
        """Decide one by one which packets of one link find room, and write `begins` and `kept`."""
        link = int(links[which.start])
        free_at, room = int(self.free_at[link]), int(self._room[link])
        for i in range(which.start, which.stop):
            begin, duration = max(int(times[i]), free_at), int(durations[i])
            kept[i] = begin - int(times[i]) + duration <= room
            if kept[i]:
                begins[i] = begin
                free_at = begin + duration

    def _note_waits(self, sent: Transit, waits: NDArray[np.int64]) -> None:
        """Count how long packets have waited in the queues of their links."""
        np.add.at(self.counts.waited, sent.links, waits)
        # While a packet is being sent, half of it is still in the queue, on average.
        times = waits + self._durations(sent) // 2
        np.add.at(self.counts.queue_area, sent.links, self._sizes(sent) * times // 1000)

    def _note_depths(self, links: NDArray[np.int64], depths: NDArray[np.int64]) -> None:
        """Count the bytes in queues, each with a packet that has just joined."""
        np.maximum.at(self.counts.longest_queue, links, depths)

    def queue_depths(self, now: int) -> NDArray[np.int64]:
        """Return the bytes in each link's queue at `now` (picoseconds), the end of the last window or later: [links].

        Nothing may have happened since that window.
        """
        left = np.maximum(self.free_at - now, 0)
        return self.queued_bytes + self._sent_in(np.arange(len(left)), left)

    def queue_areas(self, now: int) -> NDArray[np.int64]:
        """Return the time integral of each queue up to `now`, in byte-nanoseconds: [links]."""
        left = np.maximum(self.free_at - now, 0)
        to_come = self._sent_in(np.arange(len(left)), left) * left // 2000
        return self.counts.queue_area - to_come

    def _drop(self, dropped: Transit) -> None:
        self.counts.faults["queue drop"] += len(dropped.packets)
        np.add.at(self.counts.queue_drops, dropped.links, 1)
        self._discard(dropped, "queue drop")

    def _discard(self, lost: Transit, reason: str) -> None:
        """Free packets that will not arrive."""
        if self.journal and len(lost.packets):
            self.journal.lost(lost, reason, self._store)
        self._store.free(lost.packets)

    def _mark_congestion(self, joining: Transit, ahead: NDArray[np.int64]) -> None:
        """Mark packets that join queues, sorted by link, behind what takes `ahead` to be sent.

        A packet that finds too much ahead gets CE if it is IPv4 and ECN-capable (RFC 3168, section 5).
        """
        crowded = joining.take(self._too_much(joining.links, ahead))
        rows, packets = self._store.rows, crowded.packets
        capable = (rows[packets, 12] == 0x08) & (rows[packets, 13] == 0) & (rows[packets, 15] & 3 != 0)
        capable &= (rows[packets, 15] & 3 != 3) & (self._store.lengths[packets] >= _HEADERS)
        marked = packets[capable]
        checksums = rows[marked, 24].astype(np.int64) << 8 | rows[marked, 25]
        added = 3 - (rows[marked, 15] & 3).astype(np.int64)
        # RFC 1624: the checksum of a header in which a 16-bit word has grown by `added`.
        checksums = (~checksums & 0xFFFF) + added
        checksums = ~((checksums & 0xFFFF) + (checksums >> 16)) & 0xFFFF
        rows[marked, 15] |= 3
        rows[marked, 24], rows[marked, 25] = checksums >> 8, checksums & 0xFF
        self.counts.faults["ECN mark"] += len(marked)
        np.add.at(self.counts.marks, crowded.links[capable], 1)

    def _too_much(self, links: NDArray[np.int64], ahead: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each packet is to be marked."""
        beyond = ahead - self._mark[links]
        if not self._drawing_marks:
            return beyond > 0
        drawn = draws.uniform(self._keys[links], _numbers(self._joined, links), [_MARK])[0]
        span = np.maximum(self._always_mark[links] - self._mark[links], 1)
        likely = drawn < self._mark_probability[links] * beyond / span
        likely |= ahead > self._always_mark[links]
        return np.asarray(likely & (beyond > 0), np.bool_)

    # -- faults ----------------------------------------------------------------------------------------------

    def _lose_where_cut(self, arriving: Transit, begins: NDArray[np.int64]) -> Transit:
        """Lose packets on links that are down; `begins` is when each began to be sent."""
        links = arriving.links
        lost = (arriving.times > self.down_from[links]) & (begins < self.down_until[links])
        self.counts.faults["loss"] += int(np.count_nonzero(lost))
        self.counts.lost += np.bincount(links[lost], minlength=len(self._sent))
        self._discard(arriving.take(lost), "link down")
        return arriving.take(~lost)

    def _jitter_in_order(self, arriving: Transit, numbers: NDArray[np.int64]) -> Transit:
        links = arriving.links
        drawn = draws.uniform(self._keys[links], numbers, [_JITTER])[0]
        times = arriving.times + (drawn * self._jitter[links]).astype(np.int64)
        times = fifo_start_times(links, times, np.zeros(len(links), np.int64), self._last_arrival)
        self._last_arrival[links] = times
        return Transit(links, times, arriving.packets)

    def _disturb(self, arriving: Transit, numbers: NDArray[np.int64]) -> Transit:
        links = arriving.links
        faults = self.counts.faults

        drawn = draws.uniform(self._keys[links], numbers, _FAULTS)
        lost = drawn[_LOSS] < self._loss[links]
        faults["loss"] += int(np.count_nonzero(lost))
        self._discard(arriving.take(lost), "loss")
        if self._bursts:
            in_burst = self._burst_loss(links, drawn) & ~lost
            faults["burst loss"] += int(np.count_nonzero(in_burst))
            self._discard(arriving.take(in_burst), "burst loss")
            lost |= in_burst
        self.counts.lost += np.bincount(links[lost], minlength=len(self._sent))
        kept = ~lost
        corrupted = (kept & (drawn[_CORRUPTION] < self._corruption[links])).nonzero()[0]
        late = (kept & (drawn[_REORDERING] < self._reordering[links])).nonzero()[0]
        copied = (kept & (drawn[_DUPLICATION] < self._duplication[links])).nonzero()[0]
        faults["corruption"] += len(corrupted)
        faults["reordering"] += len(late)
        faults["duplication"] += len(copied)

        store, displacement = self._store, self._displacement
        if len(corrupted):
            self._corrupt(arriving.take(corrupted), numbers[corrupted])
        if len(late):
            later = (drawn[_LATER, late] * displacement[links[late]]).astype(np.int64)
            arriving.times[late] += later
        if not len(copied):
            return arriving.take(kept)
        originals = arriving.packets[copied]
        later = (drawn[_COPY_LATER, copied] * displacement[links[copied]]).astype(np.int64)
        numbers_of_copies = store.add(store.rows[originals], store.lengths[originals])
        if self.journal:
            self.journal.copied(originals, numbers_of_copies)
        copies = Transit(links[copied], arriving.times[copied] + later, numbers_of_copies)
        return Transit.joined([arriving.take(kept), copies])

    def _corrupt(self, frames: Transit, numbers: NDArray[np.int64]) -> None:
        """Flip a bit in each frame."""
        store, which = self._store, frames.packets
        drawn = draws.uniform(self._keys[frames.links], numbers, [_BIT])[0]
        store.rows[which] = flip_bits(store.rows[which], store.lengths[which], drawn)

    def _burst_loss(self, links: NDArray[np.int64], drawn: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which packets, sorted by link, are lost in bursts."""
        lost = np.zeros(len(links), np.bool_)
        for part in segments(links):
            link = int(links[part.start])
            burst = self._bursts.get(link)
            if burst is None:
                continue
            bad = self._in_burst[link]
            for i, step in enumerate(drawn[_BURST, part].tolist(), start=part.start):
                bad = step >= burst.end if bad else step < burst.begin
                lost[i] = bad and drawn[_BURST_LOSS, i] < burst.loss
            self._in_burst[link] = bad
        return lost
