"""Links in virtual time: their constants and counts, in the memory that loop/ works on.

A packet waits in the queue at its link's near end, is sent at the link's rate, and arrives after the delay. Faults are
drawn independently for each packet: a draw is a hash of seed, link, packet and purpose (SplitMix64: Steele, Lea, Flood,
OOPSLA'14), so no draw shifts another.

Links with priorities or pauses have a queue for each priority. The queue of the highest priority that has a packet and
is not paused sends first; a packet being sent is finished. Each queue has the link's `queue_bytes` and ECN thresholds
to itself. A paused queue begins no packet, wherever its packets go, and is soon counted against links further up. With
a watchdog, a switch's queue that has been paused for detection_time with something to send is in a storm. It then drops
its packets and those that join it, or sends them anyway, or only counts the storm, until its pauses have been over for
restoration_time.

Pauses are those of priority flow control (IEEE 802.1Qbb). A switch counts, by link and priority, the bytes that arrived
there and wait in its queues, each copy of a packet separately. When they exceed the link's threshold, it sends a pause
frame back. The frame takes the link's delay, overtakes waiting packets and is lost only with the link. When a link goes
down, its pauses end (in 802.1Qbb they expire); when it is up again, the switch repeats which priorities must wait.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.units import NEVER, SECOND
from fanin.topologies.link import LinkModel

PRIORITIES = 8
PRECEDENCE = 5  # lowest bit of the precedence in IPv4's second byte: class selectors of RFC 2474
ACTIONS = ("drop", "forward", "alert")  # of watchdogs
_ALERT = ACTIONS.index("alert")
_UNLIMITED = NEVER // 4
_GOLDEN, _MIX_1, _MIX_2 = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


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


COUNTS = tuple(each.name for each in fields(LinkCounts))
# The struct `link` of loop/loop.h: constants, state, counts.
LINK = np.dtype(
    [
        *((name, np.int64) for name in ("byte_time", "overhead", "delay", "room", "mark", "always_mark")),
        *((name, np.int64) for name in ("down_from", "down_until", "xoff", "xon")),
        *((name, np.int64) for name in ("detection", "restoration", "action")),
        ("key", np.uint64),
        *((name, np.float64) for name in ("mark_probability", "loss", "corruption", "duplication")),
        *((name, np.float64) for name in ("reordering", "displacement", "jitter")),
        *((name, np.float64) for name in ("burst_begin", "burst_end", "burst_loss")),
        *((name, np.int64) for name in ("faulty", "bursts", "near_node", "far_node", "far_port")),
        *((name, np.int64) for name in ("free_at", "last_arrival", "numbered", "in_burst", "joined")),
        *((name, np.int64) for name in ("acts_at", "queued_bytes", *COUNTS)),
    ]
)


@dataclass(frozen=True, slots=True)
class Transit:
    """Packets on links. Each array is [packets].

    Attributes:
        links: Number of the link.
        times: Time of arrival, in picoseconds.
        packets: Number of the packet.
    """

    links: NDArray[np.int64]
    times: NDArray[np.int64]
    packets: NDArray[np.int64]

    def take(self, which: NDArray[np.int64] | NDArray[np.bool_] | slice) -> Transit:
        """Select packets by their indices, a mask [packets] or a slice."""
        return Transit(self.links[which], self.times[which], self.packets[which])


@dataclass(frozen=True, slots=True)
class Packets:
    """Packets as an observer sees them, by number: rows, uint8 [packets, room], and lengths, int64 [packets]."""

    rows: NDArray[np.uint8]
    lengths: NDArray[np.int64]


class Links:
    """All directions of all links.

    Args:
        rates: Rate of each direction in bits/s; None is unlimited.
        models: Link model of each direction.
        from_host: Whether a host sends at the near end of each direction. Its queue has no limit and no watchdog.
        seed: Seed of the faults.
        loops: Delays of the loopback ports, in seconds.

    Attributes:
        memory: The struct `link` of each direction, then of each loopback port, LINK [links + loopback ports].
        table: The part of it without loopback ports, LINK [links].
        counts: Views of the counts in it.
    """

    def __init__(
        self,
        rates: Sequence[int | None],
        models: Sequence[LinkModel],
        from_host: Sequence[bool],
        seed: int,
        loops: Sequence[float] = (),
    ) -> None:
        self.memory = np.zeros(len(models) + len(loops), LINK)
        self.memory["delay"][len(models) :] = [round(delay * SECOND) for delay in loops]
        self.table = table = self.memory[: len(models)]
        self.counts = LinkCounts(*(table[name] for name in COUNTS))
        # A byte's time in units of 2^-20 ps: rates that do not divide 8e12 are exact to a millionth.
        table["byte_time"] = [0 if rate is None else round(8 * SECOND * 2**20 / rate) for rate in rates]
        table["overhead"] = [model.virtual_overhead for model in models]
        table["delay"] = [round(model.virtual_delay * SECOND) for model in models]
        table["room"] = self._queue_times(
            [None if host else model.queue_bytes for host, model in zip(from_host, models, strict=True)]
        )
        begin, always, probability = zip(*(model.ecn_range for model in models), strict=True)
        table["mark"], table["always_mark"] = self._queue_times(begin), self._queue_times(always)
        table["mark_probability"] = probability
        table["down_from"] = table["down_until"] = NEVER
        pauses = [model.pause for model in models]
        table["xoff"] = [pause.xoff_bytes if pause else NEVER for pause in pauses]
        table["xon"] = [pause.xon_bytes if pause else NEVER for pause in pauses]
        dogs = [
            None if host or pause is None else pause.watchdog
            for host, pause in zip(from_host, pauses, strict=True)
        ]
        table["detection"] = [round(dog.detection_time * SECOND) if dog else NEVER for dog in dogs]
        table["restoration"] = [round(dog.restoration_time * SECOND) if dog else NEVER for dog in dogs]
        table["action"] = [ACTIONS.index(dog.action) if dog else _ALERT for dog in dogs]
        table["key"] = _stream_keys(seed, len(models))
        for name in ("loss", "corruption", "duplication", "reordering"):
            table[name] = [getattr(model, name) for model in models]
        table["displacement"] = [model.displacement * SECOND for model in models]
        table["jitter"] = [model.jitter * SECOND for model in models]
        bursts = [model.burst for model in models]
        table["bursts"] = [burst is not None for burst in bursts]
        for name in ("begin", "end", "loss"):
            table[f"burst_{name}"] = [getattr(burst, name) if burst else 0.0 for burst in bursts]
        table["faulty"] = [
            bool(m.loss or m.burst or m.corruption or m.duplication or m.reordering) for m in models
        ]

    def _queue_times(self, limits: Sequence[int | None]) -> list[int]:
        """Return how long sending the limits, in bytes, takes."""
        return [
            _UNLIMITED if limit is None else min(limit * int(byte) >> 20, _UNLIMITED)
            for limit, byte in zip(limits, self.table["byte_time"], strict=True)
        ]

    @property
    def lookahead(self) -> int:
        """Return the least number of picoseconds before anything sent now arrives."""
        return int(self.memory["delay"].min())

    def cut(self, links: Sequence[int], begin: int, end: int) -> None:
        """Lose everything on these links between two times. A link can have one such period at a time."""
        self.table["down_from"][links], self.table["down_until"][links] = begin, end

    def queue_depths(self, now: int) -> NDArray[np.int64]:
        """Return the bytes in each link's queue at `now` (picoseconds), the end of the last window or later: [links].

        Nothing may have happened since that window.
        """
        left = np.maximum(self.table["free_at"] - now, 0)
        return np.asarray(self.table["queued_bytes"] + self._sent_in(left), np.int64)

    def queue_areas(self, now: int) -> NDArray[np.int64]:
        """Return the time integral up to `now` of the packets that links have begun to send, in byte-nanoseconds."""
        left = np.maximum(self.table["free_at"] - now, 0)
        return np.asarray(self.counts.queue_area - self._sent_in(left) * left // 2000, np.int64)

    def _sent_in(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bytes that each link sends in so many picoseconds; 0 without a rate, where sending takes none."""
        byte_times = self.table["byte_time"]
        sent = np.where(byte_times > 0, times * 2.0**20 / np.maximum(byte_times, 1), 0)
        return np.asarray(sent, np.int64)


def headroom_bytes(rate: int, model: LinkModel, longest_frame: int) -> int:
    """Return the bytes that may still arrive after the far end of a link has exceeded its pause threshold.

    If each queue of a switch has room for the sum of this and xoff_bytes over the links to the switch, none overflows.

    Args:
        rate: Rate of the link in bits/s.
        model: Its link model.
        longest_frame: Bytes of the longest frame.
    """
    on_its_way = (2 * model.virtual_delay + model.jitter) * rate / 8
    return math.ceil(on_its_way) + 2 * (longest_frame + model.virtual_overhead)


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    return z ^ (z >> np.uint64(31))


def _stream_keys(seed: int, streams: int) -> NDArray[np.uint64]:
    """Return a key for each of `streams` independent streams of draws, uint64 [streams]."""
    start = _mix(np.array([seed % 2**64], np.uint64) + _GOLDEN)
    return _mix(start ^ _mix(np.arange(1, streams + 1, dtype=np.uint64) * _GOLDEN))
