"""Priority flow control (IEEE 802.1Qbb) of one lossless priority: links that the switch at their far end can pause.

A switch counts what came by each link and waits in its queues, each copy of a packet by itself. When that passes the
link's threshold, a pause frame goes back: it takes the link's delay, overtakes what waits there and is never lost. The
near end then finishes the packet that it is sending and begins no other: its whole queue waits, wherever its packets
go, and is soon counted against links further up. Nothing of that is modelled beyond these rules.

A pause takes effect no earlier than in the next window, so within a window it is known when each link is open. But a
queue is known only that far: here, unlike in Links, packets wait for the window in which they begin to be sent.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from topologies.link import LinkModel
from topologies.virtual.links import NOTHING, Links, Transit, fifo_start_times
from topologies.virtual.packets import NO_LINK, PacketStore
from topologies.virtual.segments import segment_starts
from topologies.virtual.units import NEVER


def headroom_bytes(rate: int, model: LinkModel, longest_frame: int) -> int:
    """What may still come by a link of `rate` (bits/s) after its far end has passed the threshold for stopping it.

    If each queue of a switch has room for the sum of this and xoff_bytes over the links to it, none overflows.
    """
    on_its_way = (2 * model.virtual_delay + model.jitter) * rate / 8
    return math.ceil(on_its_way) + 2 * (longest_frame + model.virtual_overhead)


class PausableLinks(Links):
    """See Links. The store's `came_by` tells where the packets in a switch's queues came from."""

    def __init__(
        self,
        rates: Sequence[int | None],
        models: Sequence[LinkModel],
        from_host: Sequence[bool],
        store: PacketStore,
        seed: int,
    ) -> None:
        super().__init__(rates, models, from_host, store, seed)
        count = len(rates)
        self._xoff = np.array([m.pause.xoff_bytes if m.pause else NEVER for m in models])
        self._xon = np.array([m.pause.xon_bytes if m.pause else NEVER for m in models])
        self._limited = any(m.queue_bytes is not None or m.ecn_bytes is not None for m in models)
        self.held = np.zeros(count, np.int64)  # bytes that came by each link and wait in the switch
        self._told = np.zeros(count, np.bool_)  # what the far end said last: to wait
        self._paused = np.zeros(count, np.bool_)  # what the near end knows
        self._paused_at = np.zeros(count, np.int64)
        # Pause frames on their way, by the link that they stop or let go, and when they get there. Of one link they
        # say the one and the other by turns.
        self._signals = NOTHING
        self._waiting = NOTHING  # in the order of links, then as they came
        self._next = NEVER

    @property
    def next_time(self) -> int:
        """See Links."""
        return self._next

    def send(self, sent: Transit, end: int) -> Transit:
        """See Links."""
        queue = Transit.joined([self._waiting, sent.take(np.argsort(sent.times, kind="stable"))])
        order = np.argsort(queue.links, kind="stable")
        queue, new = queue.take(order), order >= len(self._waiting.links)
        openings = self._openings(end)
        durations = self._durations(queue)
        while True:
            begins = self._begins(queue, durations, openings)
            ahead = self._ahead(queue, durations, begins, end)
            crowded = np.flatnonzero(new & (ahead + durations > self._room[queue.links]))
            if not len(crowded):
                break
            # Only the first of each link: without it there may be room for the next.
            dropped = crowded[segment_starts(queue.links[crowded])]
            self._drop(queue.take(dropped))
            kept = np.ones(len(new), np.bool_)
            kept[dropped] = False
            queue, new, durations = queue.take(kept), new[kept], durations[kept]
        if self._marking:
            self._mark_congestion(queue.take(new), ahead[new])
        begun = begins < end
        leaving, ends = queue.take(begun), begins[begun] + durations[begun]
        self._note_waits(leaving.links, begins[begun] - leaving.times)
        self._free_at[leaving.links] = ends  # in their order, so that a link's last packet stays
        self._count(queue.take(new), Transit(leaving.links, begins[begun], leaving.packets))
        self._waiting = queue.take(~begun)
        self._next = self._earliest(end)
        return self._carry(leaving, ends)

    def _openings(self, end: int) -> NDArray[np.int64]:
        """When links are open before `end`, [periods, 2, links]: from and until; `end`, `end` is no time at all.

        Pause frames that arrive until then are taken in.
        """
        due = self._signals.times < end
        if not due.any():
            borders = np.full((1, 2, len(self._paused)), end)
            borders[0, 0, ~self._paused] = 0
            return borders
        signals, self._signals = self._signals.take(due), self._signals.take(~due)
        signals = signals.take(np.lexsort((signals.times, signals.links)))
        links, times = signals.links, signals.times
        counts = np.bincount(links, minlength=len(self._paused))
        place = np.arange(len(links)) - (np.cumsum(counts) - counts)[links]
        borders = np.full((2 * (int(counts.max()) // 2 + 1), len(counts)), end)
        borders[0, ~self._paused] = 0
        borders[place + ~self._paused[links], links] = times

        stops = self._paused[links] ^ (place % 2 == 0)
        since = np.where(place > 0, np.roll(times, 1), self._paused_at[links])
        np.add.at(self.counts.paused, links[~stops], (times - since)[~stops])
        self.counts.pauses += np.bincount(links[stops], minlength=len(counts))
        self._paused_at[links] = times
        self._paused ^= counts % 2 == 1
        return borders.reshape(-1, 2, len(counts))

    def _begins(
        self, queue: Transit, durations: NDArray[np.int64], openings: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """When packets begin to be sent; NEVER: not in this window."""
        begins = np.full(len(durations), NEVER)
        free_at = self._free_at.copy()
        rest = np.arange(len(durations))
        for opens, closes in openings:
            if not len(rest):
                break
            links = queue.links[rest]
            begin = fifo_start_times(links, queue.times[rest], durations[rest], np.maximum(opens, free_at))
            going = begin < closes[links]
            begins[rest[going]] = begin[going]
            free_at[links[going]] = begin[going] + durations[rest[going]]
            rest = rest[~going]
        return begins

    def _ahead(
        self, queue: Transit, durations: NDArray[np.int64], begins: NDArray[np.int64], end: int
    ) -> NDArray[np.int64]:
        """How long it takes to send what waits or is being sent when a packet joins its queue."""
        if not (self._limited and len(durations)):  # nobody asks
            return np.zeros_like(durations)
        starts = segment_starts(queue.links)
        segment = np.zeros(len(durations), np.int64)
        segment[starts[1:]] = 1
        segment = np.cumsum(segment)
        # Segments are lifted above one another, so that one search serves them all.
        base = min(int(queue.times.min()), int(begins.min()))
        lift = segment * (end - base + 1) - base
        begun = np.searchsorted(np.minimum(begins, end) + lift, queue.times + lift, "right")
        begun = np.minimum(begun, np.arange(len(durations)))
        before = np.cumsum(durations) - durations
        last = np.where(begun > starts[segment], begins[begun - 1] + durations[begun - 1], 0)
        busy_until = np.maximum(last, self._free_at[queue.links])
        return before - before[begun] + np.maximum(busy_until - queue.times, 0)

    def _count(self, joining: Transit, leaving: Transit) -> None:
        """Packets join queues and leave them: count, and say so where a threshold is passed."""
        changes = Transit.joined([joining, leaving])
        size = self._store.lengths[changes.packets] + self._overhead[changes.links]
        size[len(joining.packets) :] *= -1
        links, times = self._store.came_by[changes.packets], changes.times
        order = np.lexsort((times, links))
        order = order[links[order] != NO_LINK]
        if not len(order):
            return
        links, times, size = links[order], times[order], size[order]
        # What happens at one instant counts as one change.
        differs = np.ones(len(links), np.bool_)
        differs[1:] = (links[1:] != links[:-1]) | (times[1:] != times[:-1])
        starts = differs.nonzero()[0]
        links, times, change = links[starts], times[starts], np.add.reduceat(size, starts)
        first = segment_starts(links)
        change[first] += self.held[links[first]]
        held = np.cumsum(change)
        lengths = np.diff(first, append=len(links))
        held -= np.repeat(held[first] - change[first], lengths)

        # Between the thresholds it stays as it was.
        told = np.where(held > self._xoff[links], 1, np.where(held <= self._xon[links], 0, -1))
        decided = np.maximum.accumulate(np.where(told >= 0, np.arange(len(told)), -1))
        told = np.where(decided >= np.repeat(first, lengths), told[decided], self._told[links])
        was = np.empty_like(told)
        was[1:] = told[:-1]
        was[first] = self._told[links[first]]
        self.held[links], self._told[links] = held, told == 1  # in their order, so that the last stays
        turns = np.flatnonzero(told != was)
        signals = Transit(links[turns], times[turns] + self._delay[links[turns]], links[turns])
        self._signals = Transit.joined([self._signals, signals])

    def _earliest(self, end: int) -> int:
        """The earliest time at which a pause frame arrives or one of those that wait may begin to be sent."""
        earliest = int(self._signals.times.min(initial=NEVER))
        links = self._waiting.links
        open_links = links[~self._paused[links]]
        return min(earliest, int(np.maximum(self._free_at[open_links], end).min(initial=NEVER)))
