"""Links with queues by priority, which the far end can pause, and a watchdog over pauses.

The queue of the highest priority that has a packet and is not paused sends first; a packet being sent is finished. Each
queue has the link's `queue_bytes` and ECN thresholds to itself. A paused queue begins no packet, wherever its packets
go, and is soon counted against links further up. With a watchdog, a switch's queue that has been paused for
detection_time with something to send is in a storm. It then drops its packets and those that join it, or sends them
anyway, or only counts the storm, until its pauses have been over for restoration_time.

Links knows at once when a packet will be sent. Here that depends on later packets, and on pauses, which take effect no
earlier than in the window after the one in which they are sent. So packets wait for the window in which they begin.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.deadlock import Waiting
from fanin.simulator.links import Links, Transit
from fanin.simulator.packets import NO_LINK, PacketStore
from fanin.simulator.pause import Held
from fanin.simulator.units import NEVER, SECOND
from fanin.topologies.link import LinkModel

PRIORITIES = 8
ACTIONS = ("drop", "forward", "alert")  # of watchdogs
_DROP, _, _ALERT = range(3)
PRECEDENCE = 5  # lowest bit of the precedence in IPv4's second byte: class selectors of RFC 2474
_TYPE, _TOS = slice(12, 14), 15

Rows = list[tuple[int, ...]]


@dataclass(slots=True)
class _Queue:
    """Packets that wait for a link in one priority.

    Attributes:
        waiting: For each packet when it joined, its number, its bytes on the wire, and how long it takes to be sent.
        backlog: How long all of them take.
        busy_until: When its last packet will have been sent.
        since: When it was last paused, released, or found to be in a storm.
        storming: Whether the watchdog's action is in force.
        overtaken: How long packets of a higher priority were sent that began while some of these could have.
        sent: Bytes on the wire.
    """

    lane: int
    waiting: deque[tuple[int, int, int, int]] = field(default_factory=deque)
    backlog: int = 0
    busy_until: int = 0
    paused: bool = False
    paused_at: int = 0
    since: int = 0
    storming: bool = False
    overtaken: int = 0
    sent: int = 0


class QueuedLinks(Links):
    """Links with queues by priority; see Links. The store's `came_by` gives the origin of packets in a switch's queues.

    A lane is a priority of a link: link · priorities + priority. With several priorities, IPv4's precedence decides;
    packets that are not IPv4 have priority 0.

    Args:
        rates: See Links.
        models: See Links.
        from_host: See Links.
        store: See Links.
        seed: See Links.
        priorities: Number of queues of each link.
    """

    def __init__(
        self,
        rates: Sequence[int | None],
        models: Sequence[LinkModel],
        from_host: Sequence[bool],
        store: PacketStore,
        seed: int,
        priorities: int = 1,
    ) -> None:
        super().__init__(rates, models, from_host, store, seed)
        self.priorities = priorities
        self.held = Held(models, priorities)
        lanes = [_Queue(lane) for lane in range(len(models) * priorities)]
        self._lanes = lanes
        self._queues = [  # the highest priority first
            lanes[link * priorities : (link + 1) * priorities][::-1] for link in range(len(models))
        ]
        self._pausing = any(model.pause for model in models)
        watchdogs = [
            None if host or not model.pause else model.pause.watchdog
            for host, model in zip(from_host, models, strict=True)
        ]
        self._detection = [round(dog.detection_time * SECOND) if dog else NEVER for dog in watchdogs]
        self._restoration = [round(dog.restoration_time * SECOND) if dog else NEVER for dog in watchdogs]
        self._action = [ACTIONS.index(dog.action) if dog else _ALERT for dog in watchdogs]
        self._next = np.full(len(models), NEVER)  # when each link acts by itself
        # A heap of pause frames in flight: when, for which lane, and whether it must wait.
        self._signals: list[tuple[int, int, bool]] = []
        self._ended = 0  # end of the last window
        self._joined_now: Rows = []  # this window's: link, time, packet, backlog ahead
        self._sent_now: Rows = []  # link, time of joining, packet, time of beginning
        self._dropped_now: Rows = []  # link, time, packet
        self._given_up_now: Rows = []  # link, time, packet: what the watchdog drops
        self._changes: Rows = []  # changes of what lanes hold: lane, time, bytes

    @property
    def next_time(self) -> int:
        """See Links."""
        outages = (self.down_from, self.down_until) if self._cut else ()
        comes = [int(times.min(where=times >= self._ended, initial=NEVER)) for times in outages]
        return min(int(self._next.min()), self._signals[0][0] if self._signals else NEVER, *comes)

    def constants(self) -> dict[str, NDArray[Any]]:
        """See Links."""
        first = slice(None, None, self.priorities)  # all priorities of a link have the same thresholds
        return {
            **super().constants(),
            "xoff": self.held.xoff[first],
            "xon": self.held.xon[first],
            "detection": np.array(self._detection),
            "restoration": np.array(self._restoration),
            "action": np.array(self._action),
        }

    @property
    def overtaken(self) -> NDArray[np.int64]:
        """Return how long each lane's packets waited while higher ones were sent: picoseconds [links, priorities]."""
        every = [queue.overtaken for queue in self._lanes]
        return np.array(every, np.int64).reshape(-1, self.priorities)

    @property
    def wire_bytes(self) -> NDArray[np.int64]:
        """Return the bytes that each lane has sent, [links, priorities]."""
        return np.array([queue.sent for queue in self._lanes], np.int64).reshape(-1, self.priorities)

    def queue_areas(self, now: int) -> NDArray[np.int64]:
        """Return the time integrals, with packets that wait; see Links."""
        areas = super().queue_areas(now)
        for queue in self._lanes:
            areas[queue.lane // self.priorities] += sum(
                size * (now - joined) // 1000 for joined, _, size, _ in queue.waiting
            )
        return areas

    def send(self, sent: Transit, end: int) -> Transit:
        """See Links."""
        due = set(np.flatnonzero(self._next < end).tolist())
        arrivals = self._arrivals(sent, end)
        for link, group in groupby(arrivals, key=itemgetter(0)):
            due.add(link)
            for _, time, kind, *what in group:
                self._advance(link, time)
                if kind:
                    self._join(link, time, *what)
                else:
                    self._turn(self._lanes[what[0]], link, time, wait=bool(what[1]))
        for link in sorted(due):
            self._advance(link, end)
            self._next[link] = self._soonest(link)[0]
        self._ended = end
        return self._settle()

    def waiting(self) -> Waiting:
        """Return which lanes wait for which others now, for deadlock.py."""
        queued = [
            (came, queue.lane, size)
            for queue in self._lanes
            for _, packet, size, _ in queue.waiting
            if (came := self._came(packet, queue)) is not None
        ]
        stopped = np.array([self._stands(queue) for queue in self._lanes])
        rows = np.array(queued, np.int64).reshape(-1, 3)
        return Waiting.of(stopped & self.held.told, self.held.xon, rows)

    # -- a window --------------------------------------------------------------------------------------------

    def _arrivals(self, sent: Transit, end: int) -> Iterator[tuple[int, ...]]:
        """Return pause frames (kind 0) and packets (kind 1) by link, those of each link in the order of time.

        A link that goes down releases its queues, as a pause frame does.
        """
        signals = []
        while self._signals and self._signals[0][0] < end:
            time, lane, wait = heapq.heappop(self._signals)
            link = lane // self.priorities
            if time < self.down_from[link] or time - self._delay[link] >= self.down_until[link]:
                signals.append((link, time, 0, lane, int(wait)))
        for lane, time in self._lanes_at(self.down_from, end):
            signals.append((lane // self.priorities, time, 0, lane, 0))
        self._changes += [(lane, time, 0) for lane, time in self._lanes_at(self.down_until, end)]
        lengths = self._store.lengths[sent.packets] + self._overhead[sent.links]
        durations = self._durations(sent)
        columns = sent.links, sent.times, sent.packets, self._priorities(sent.packets), lengths, durations
        packets = [
            (link, time, 1, *rest) for link, time, *rest in zip(*(c.tolist() for c in columns), strict=True)
        ]
        yield from sorted([*signals, *packets], key=itemgetter(0, 1, 2))

    def _lanes_at(self, times: NDArray[np.int64], end: int) -> Iterator[tuple[int, int]]:
        """Return the lanes of links for which one of `times` [links] is in this window, and that time."""
        for link in np.flatnonzero((times >= self._ended) & (times < end)).tolist() if self._cut else ():
            for lane in range(link * self.priorities, (link + 1) * self.priorities):
                yield lane, int(times[link])

    def _priorities(self, packets: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.priorities == 1:
            return np.zeros(len(packets), np.int64)
        rows = self._store.rows[packets]
        ipv4 = (rows[:, _TYPE] == (0x08, 0x00)).all(axis=1) & (self._store.lengths[packets] > _TOS)
        return np.where(ipv4, rows[:, _TOS] >> PRECEDENCE, 0).astype(np.int64)

    def _settle(self) -> Transit:
        """Apply to the packets, all at once, what happened in this window."""
        rows_and_widths = (
            (self._joined_now, 4),
            (self._sent_now, 4),
            (self._dropped_now, 3),
            (self._given_up_now, 3),
        )
        joined, sent, dropped, given_up = (
            np.array(rows, np.int64).reshape(-1, width) for rows, width in rows_and_widths
        )
        lanes, times, change = np.array(self._changes, np.int64).reshape(-1, 3).T
        self._joined_now, self._sent_now, self._dropped_now, self._given_up_now = [], [], [], []
        self._changes = []
        if self._marking and len(joined):
            self._mark_congestion(Transit(*joined.T[:3]), joined[:, 3])
        told, said, wait = self.held.count(lanes, times, change)
        arriving = said + self._delay[told // self.priorities]
        for signal in zip(arriving.tolist(), told.tolist(), wait.tolist(), strict=True):
            heapq.heappush(self._signals, signal)
        if len(dropped):
            self._drop(Transit(*dropped.T))
        self._discard(Transit(*given_up.T), "watchdog drop")
        sent = sent[np.argsort(sent[:, 0], kind="stable")]
        leaving = Transit(sent[:, 0], sent[:, 1], sent[:, 2])
        self._note_waits(leaving, sent[:, 3] - sent[:, 1])
        return self._carry(leaving, sent[:, 3] + self._durations(leaving))

    # -- a link ----------------------------------------------------------------------------------------------

    def _advance(self, link: int, until: int) -> None:
        """Do everything that a link does by itself before `until`."""
        while True:
            now, queue = self._soonest(link)
            if now >= until:
                return
            assert queue
            if queue.paused and not queue.storming:
                self._give_up(link, queue, now)
            elif queue.storming and now == self._restored_at(link, queue):
                queue.storming = False
            else:
                self._begin(link, queue, now)

    def _soonest(self, link: int) -> tuple[int, _Queue | None]:
        """Return when a link next does something by itself (NEVER if it will not), and with which queue."""
        soonest, found = NEVER, None
        for queue in self._queues[link]:
            if queue.waiting or queue.storming:
                due = self._due(link, queue)
                if due < soonest:
                    soonest, found = due, queue
        return soonest, found

    def _due(self, link: int, queue: _Queue) -> int:
        if queue.paused and not queue.storming:
            return min(max(queue.since, queue.waiting[0][0]) + self._detection[link], NEVER)
        restored = self._restored_at(link, queue) if queue.storming else NEVER
        if not queue.waiting or (queue.paused and self._action[link] == _ALERT):
            return restored
        return min(restored, max(int(self.free_at[link]), queue.since, queue.waiting[0][0]))

    def _restored_at(self, link: int, queue: _Queue) -> int:
        return NEVER if queue.paused else queue.since + self._restoration[link]

    def _turn(self, queue: _Queue, link: int, time: int, *, wait: bool) -> None:
        """Take a pause frame. It may repeat what is known already."""
        if queue.paused == wait:
            return
        queue.paused = wait
        if queue.paused:
            self.counts.pauses[link] += 1
            queue.paused_at = time
        else:
            self.counts.paused[link] += time - queue.paused_at
        queue.since = time

    def _join(self, link: int, time: int, packet: int, priority: int, size: int, duration: int) -> None:
        queue = self._lanes[link * self.priorities + priority]
        if queue.storming and self._action[link] == _DROP:
            self._drop_by_watchdog(link, time, packet)
            return
        ahead = queue.backlog + max(queue.busy_until - time, 0)
        if ahead + duration > self._room[link]:
            self._dropped_now.append((link, time, packet))
            return
        left = max(int(self.free_at[link]) - time, 0)
        depth = int(left * 2.0**20 / max(int(self._byte_time[link]), 1)) + int(self.queued_bytes[link]) + size
        self.counts.longest_queue[link] = max(self.counts.longest_queue[link], depth)
        self.queued_bytes[link] += size
        self._joined_now.append((link, time, packet, ahead))
        queue.waiting.append((time, packet, size, duration))
        queue.backlog += duration
        self._change(queue, time, packet, size)

    def _begin(self, link: int, queue: _Queue, now: int) -> None:
        joined, packet, size, duration = queue.waiting.popleft()
        for lower in self._queues[link][self.priorities - queue.lane % self.priorities :]:
            if lower.waiting and not (lower.paused and not lower.storming) and self._due(link, lower) <= now:
                lower.overtaken += duration
        queue.backlog -= duration
        queue.busy_until = now + duration
        queue.sent += size
        self.queued_bytes[link] -= size
        self.free_at[link] = now + duration
        self._sent_now.append((link, joined, packet, now))
        self._change(queue, now, packet, -size)

    def _give_up(self, link: int, queue: _Queue, now: int) -> None:
        """Let the watchdog decide that the pause will not end."""
        queue.storming, queue.since = True, now
        self.counts.storms[link] += 1
        if self._action[link] != _DROP:
            return
        for joined, packet, size, _ in queue.waiting:
            self.queued_bytes[link] -= size
            self.counts.queue_area[link] += size * (now - joined) // 1000
            self._change(queue, now, packet, -size)
            self._drop_by_watchdog(link, now, packet)
        queue.waiting.clear()
        queue.backlog = 0

    def _drop_by_watchdog(self, link: int, time: int, packet: int) -> None:
        self._given_up_now.append((link, time, packet))
        self.counts.watchdog_drops[link] += 1

    def _change(self, queue: _Queue, time: int, packet: int, size: int) -> None:
        came = self._came(packet, queue) if self._pausing else None
        if came is not None:
            self._changes.append((came, time, size))

    def _came(self, packet: int, queue: _Queue) -> int | None:
        """Return the lane on which a packet in a queue reached the switch; None if a host has sent it."""
        link = int(self._store.came_by[packet])
        return None if link == NO_LINK else link * self.priorities + queue.lane % self.priorities

    def _stands(self, queue: _Queue) -> bool:
        """Return whether only the far end can release a queue."""
        return queue.paused and self._action[queue.lane // self.priorities] == _ALERT
