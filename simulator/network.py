"""Event loop: switches that run a compiled program and hosts that run protocol objects, joined by links.

Time advances in windows as long as the shortest delay of a link. What a node does within a window can reach another
only after the window (Chandy and Misra's lookahead), so each window is computed node by node and link by link. The
history is the one that single events in the order of (time, link, order of sending) would produce. It depends only on
the topology, the models and the seed.

Windows, links and switches are the C in loop/. Python runs the stations, except for what they leave to C. If C can
do all the work of a run, several cores can share it, each with a part of the network (parts.py).
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_bool, c_void_p
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.compiled import (
    AT_LIMIT,
    EVENT,
    FAULTS,
    HEADER_BYTES,
    NO_THREADS,
    NOTE,
    PROGRAM_ROOM,
    CallbackProgram,
    CardInC,
    CompiledProgram,
    PythonProgram,
    StationInC,
    library,
)
from fanin.simulator.deadlock import DeadlockError, Waiting, describe
from fanin.simulator.links import PRIORITIES, Links, Packets, Transit
from fanin.simulator.parts import divide
from fanin.simulator.processor import Processor
from fanin.simulator.units import NEVER, SECOND, not_before
from fanin.topologies.model import LOOPBACK_IN, LOOPBACK_OUT, Topology

_LOOK = SECOND // 1000  # how often links are checked for deadlocks
_CACHE_LINE = 64
# Of VirtualNetwork. So many packets take about 30 us; threads that wait for one another take 10 to 20 us.
WORTH = 100
LONGEST_FRAME = 1514  # Ethernet, without its frame check sequence
# `watched` of run(), if the condition can only come true when a host wakes in Python.
ON_WAKES = np.ones(1, np.int64)

SwitchProgram = CompiledProgram | PythonProgram


class Station(Protocol):
    """A protocol on a host, in Ethernet frames, without sockets or clock. Times are in seconds."""

    def receive(self, frames: NDArray[np.uint8], lengths: NDArray[np.int64], now: float) -> None:
        """Take frames that have arrived: rows [m, room], of which the first `lengths` bytes count."""
        ...

    def frames_to_send(self, now: float) -> Sequence[NDArray[np.uint8]]:
        """Return batches [m, length] of frames to send now, in order."""
        ...

    def deadline(self) -> float | None:
        """Return when to call frames_to_send() again if nothing arrives before; None if that is not needed."""
        ...


class CompiledStation(Protocol):
    """A Station that may leave its packets to C."""

    @property
    def compiled(self) -> StationInC | CardInC | None:
        """Return what C needs to know, or None if everything is done in Python."""

    def taken(self, now: float) -> None:
        """Continue after C has received everything that arrived by `now` (seconds).

        What is called next is begin() if C has the network card, and otherwise frames_to_send() and deadline().
        """

    def begin(self, now: float) -> None:
        """Begin what is due at `now` (seconds); C sends what it makes the worker send."""

    @property
    def begins_at(self) -> float | None:
        """Return when to call begin() again, in seconds; None if that is unknown."""


@dataclass(frozen=True, slots=True)
class HostModel:
    """The delays of a host.

    Attributes:
        coalescing: Seconds after which it notices what has arrived, from the first packet on. Network cards moderate
            interrupts so, and batch packets that arrive close together.
        packet_time: Seconds of its processor for each packet that it sends or receives (processor.py).
        with_packet_time: Names of the hosts where packets take this time; elsewhere, network cards do the work.
    """

    coalescing: float = 4e-6
    packet_time: float = 0.0
    with_packet_time: frozenset[str] = frozenset()


DEFAULT_HOST = HostModel()

Observer = Callable[[Transit, Packets], None]
Journal = Callable[[NDArray[np.void]], None]


class VirtualNetwork:
    """A `topology` with a program for each switch and a station for each participating host, by name.

    Args:
        topology: The network.
        switches: Program of each switch.
        stations: Station of each host that takes part.
        host: How hosts notice what arrives.
        seed: Seed of the links' faults.
        longest_frame: Bytes of the longest frame.
        observer: Called with everything that arrives, in order.
        priorities: Whether the ports of hosts and switches have a queue for each IPv4 precedence.
        loopback: Seconds after which what a switch sends to its port LOOPBACK_OUT comes back by its port LOOPBACK_IN.
            Nothing is lost or counted there. None: switches have no such ports.
        cores: How many cores may share the work. The results are the same for any number.
        worth: How many packets have to arrive in each part of the network in a window, on average over 16 windows, for
            several cores to share the next windows. With fewer, they would wait for one another longer than they work.

    Attributes:
        now: The end of the last window, in picoseconds.
        before_window: Called with the begin of each window, in picoseconds.

    Raises:
        ToolchainError: The loop cannot be compiled.
        ValueError: longest_frame is more than a program accepts.
    """

    def __init__(
        self,
        topology: Topology,
        switches: Mapping[str, SwitchProgram],
        stations: Mapping[str, Station],
        *,
        host: HostModel = DEFAULT_HOST,
        seed: int = 0,
        longest_frame: int = LONGEST_FRAME,
        observer: Observer | None = None,
        priorities: bool = False,
        loopback: float | None = None,
        cores: int = 1,
        worth: int = WORTH,
    ) -> None:
        self.topology = topology
        self.now = 0
        self._wakes_in_python = 0
        self._obstacle_met: str | None = None
        self.before_window: Callable[[int], None] | None = None
        self._cores = cores
        self._observer = observer
        self._journal: Journal | None = None
        self._look_at = _LOOK
        self._width = -(-longest_frame // _CACHE_LINE) * _CACHE_LINE
        if self._width > PROGRAM_ROOM:
            raise ValueError(
                f"longest_frame: {self._width} bytes; a switch program accepts at most {PROGRAM_ROOM}"
            )
        self._switch_index = {switch.name: i for i, switch in enumerate(topology.switches)}
        self._host_index = {host.name: i for i, host in enumerate(topology.hosts)}
        self._packet_seconds = [
            host.packet_time if one.name in host.with_packet_time else 0.0 for one in topology.hosts
        ]
        self._stations: list[Station | CardInC | None] = [None] * len(topology.hosts)
        self._programs: list[SwitchProgram | None] = [None] * len(topology.switches)
        self._callbacks: list[CallbackProgram] = []  # those among the programs, which note errors
        self._in_c: list[StationInC | CardInC | None] = [None] * len(topology.hosts)
        self._structs: list[ctypes.Structure | None] = [None] * len(topology.hosts)  # kept from being freed
        self._replaced: list[CardInC] = []  # whose packets may still wait for the card
        self._in_python: set[int] = set()  # hosts that leave nothing to C
        self._stalls: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._open(round(host.coalescing * SECOND), seed, priorities, loopback, cores, worth)
        for name, program in switches.items():
            self.replace_switch(name, program)
        for name, station in stations.items():
            self._set_station(self._host_index[name], station)

    def _open(
        self, coalescing: int, seed: int, priorities: bool, loopback: float | None, cores: int, worth: int
    ) -> None:
        """Make the links and the loop."""
        topology, switches = self.topology, len(self._programs)
        nodes = self._switch_index | {name: switches + i for name, i in self._host_index.items()}
        ends = [pair for link in topology.links for pair in ((link.a, link.b), (link.b, link.a))]
        models = [link.properties for link in topology.links for _ in range(2)]
        rates = [link.rate_bits_per_second for link in topology.links for _ in range(2)]
        self.link_ends = [(near.node, far.node) for near, far in ends]
        looped = [] if loopback is None else [switch.name for switch in topology.switches]
        self.links = Links(
            rates, models, [near.port == 0 for near, _ in ends], seed, [loopback or 0.0] * len(looped)
        )
        table = self.links.memory
        table["near_node"] = [nodes[name] for name in (*(near.node for near, _ in ends), *looped)]
        table["far_node"] = [nodes[name] for name in (*(far.node for _, far in ends), *looped)]
        table["far_port"] = [*(far.port for _, far in ends), *[LOOPBACK_IN] * len(looped)]
        leaving = [(near.node, near.port) for near, _ in ends] + [(name, LOOPBACK_OUT) for name in looped]
        # The link that leaves a node at a port, or -1. The last column is -1 for all nodes.
        shape = len(nodes), 2 + max((port for _, port in leaving), default=0)
        link_at = np.full(shape, -1, np.int32)
        for i, (name, port) in enumerate(leaving):
            link_at[nodes[name], port] = i
        self._priorities = PRIORITIES if priorities else int(any(model.pause for model in models))
        self._window = self.links.lookahead
        self._wakes = np.full(len(self._stations), NEVER)
        parts = divide(topology, 1 if self._observer else cores)
        self._parts = parts.count
        self._faults = np.zeros((parts.count, len(FAULTS)), np.int64)  # by part
        part_of = np.array([*parts.switches, *parts.hosts], np.uint32)
        first_hosts = np.array(parts.first_hosts, np.uint32)
        self._c = library()
        self._loop = self._c.loop_open(
            *(switches, len(self._stations), shape[1], link_at.ctypes.data),
            *(self._width, table.ctypes.data, len(ends), self._priorities),
            *(self._wakes.ctypes.data, self._faults.ctypes.data, self._window, coalescing),
            *(parts.count, worth, part_of.ctypes.data, first_hosts.ctypes.data),
        )
        if not self._loop:
            raise MemoryError(f"no memory for the network {topology.name}")
        weakref.finalize(self, self._c.loop_close, self._loop)

    # -- what callers do -------------------------------------------------------------------------------------

    def wake(self, host: str, at: float) -> None:
        """Let the host's station check for something to send at a time (seconds)."""
        self._c.loop_wake(self._loop, self._host_index[host], max(self.now, not_before(at)))

    def stall(self, host: str, begin: float, end: float) -> None:
        """Stop the host from `begin` to `end` (seconds). What arrives waits."""
        index = self._host_index[host]
        self._stalls[index].append((round(begin * SECOND), round(end * SECOND)))
        self._stalls[index].sort()  # so that a wake-up skips overlapping ones
        stalls = np.array(self._stalls[index], np.int64)
        self._c.loop_set_stalls(self._loop, index, stalls.ctypes.data, len(stalls))
        self._check()

    def cut(self, one: str, other: str, begin: float, end: float) -> None:
        """Take the link between two nodes down from `begin` to `end` (seconds), and lose what is on it.

        Call this before anything joins the link's queues that would be on it then. A link can have one such period at a
        time.
        """
        both = [number for number, ends in enumerate(self.link_ends) if {*ends} == {one, other}]
        self.links.cut(both, not_before(begin), not_before(end))

    def replace_switch(self, name: str, program: SwitchProgram) -> None:
        """Run another program, or the same with a fresh state, in that switch from now on.

        Raises:
            TypeError: It is not a program.
        """
        index = self._switch_index[name]
        if not isinstance(program, CompiledProgram):
            if not isinstance(program, PythonProgram):
                raise TypeError(f"{type(program).__name__} is not a switch program: it has no process()")
            program = CallbackProgram(program)
        self._c.loop_set_program(self._loop, index, program.run_function, program.base)
        self._programs[index] = program
        self._callbacks = [one for one in self._programs if isinstance(one, CallbackProgram)]

    def packet_seconds(self, host: str) -> float:
        """Return the seconds of a host's processor for each packet; 0 where the network card does the work."""
        return self._packet_seconds[self._host_index[host]]

    def replace_station(self, host: str, station: Station | CardInC, at: float) -> None:
        """Run another station, or a worker in C, on that host from now on. It has received nothing so far."""
        self._set_station(self._host_index[host], station)
        self.wake(host, at)

    def remove_station(self, host: str) -> None:
        """Let the host do nothing from now on. What arrives there is lost."""
        index = self._host_index[host]
        self._c.loop_remove_station(self._loop, index)
        self._stations[index] = self._in_c[index] = self._structs[index] = None
        self._in_python.discard(index)

    def _set_station(self, index: int, station: Station | CardInC) -> None:
        if not isinstance(station, CardInC) and (seconds := self._packet_seconds[index]):
            station = Processor(station, seconds)
        found: StationInC | CardInC | None = (
            station if isinstance(station, CardInC) else getattr(station, "compiled", None)
        )
        if isinstance(found, StationInC) and HEADER_BYTES + max(found.headers) > self._width:
            raise ValueError(
                f"a datagram of {max(found.headers)} bytes does not fit the network's longest frame, {self._width}"
            )
        struct = found.as_struct() if found else None
        set_it = self._c.loop_set_card if isinstance(found, CardInC) else self._c.loop_set_station
        set_it(self._loop, index, ctypes.addressof(struct) if struct else None)
        if isinstance(before := self._in_c[index], CardInC) and isinstance(found, CardInC):
            self._replaced.append(before)
        self._stations[index], self._in_c[index], self._structs[index] = station, found, struct
        self._in_python.discard(index)
        if not struct:
            self._in_python.add(index)

    def record(self, journal: Journal) -> None:
        """Call `journal` after each window with what becomes of each packet on links, NOTE [packets], by link in order.

        A note has the times in picoseconds, the link, the length, the index in FATES, whether the link itself has made
        the packet as a copy, and the first bytes. A packet that is lost on the link has the time at which it would have
        arrived; one that its queue drops has only one time.
        """
        self._journal = journal
        self._c.loop_record(self._loop)

    def run(
        self,
        until: Callable[[], bool] | None = None,
        limit: float = math.inf,
        *,
        watched: NDArray[np.int64] | None = None,
    ) -> bool:
        """Run until a condition, tested after each window, holds.

        Args:
            until: The condition. None: run until `limit`, or until nothing more happens.
            limit: When to stop, in seconds.
            watched: A number in an array [1]. If given, the condition can only come true when the number becomes 0 or
                when a host wakes in Python, and need not be tested after other windows.

        Returns:
            True if the condition holds. False if `limit` is reached, or nothing more will happen.

        Raises:
            DeadlockError: Some links will never send again, because of pauses.
        """
        end = NEVER if limit == math.inf else round(limit * SECOND)
        if until is None:
            watched = ON_WAKES
        if self._observer or self._journal or self.before_window or self._callbacks:
            watched = None
        threads = self._cores > 1
        if threads and (obstacle := self._obstacle(every_window=watched is None)):
            self._obstacle_met = self._obstacle_met or obstacle
            threads = False
        while not (until and until()):
            more = self._run_window(end) if watched is None else self._run_windows(end, watched, threads)
            if not more:
                self._look_for_deadlock()
                return False
            if self.now >= self._look_at:
                self._look_for_deadlock()
                self._look_at = self.now + _LOOK
        return True

    def _obstacle(self, *, every_window: bool) -> str | None:
        """Return why several cores cannot share the work now, or None if they can.

        Args:
            every_window: Whether Python has something to do after each window.
        """
        if self._observer or self._journal:
            return "every packet is recorded"
        if self.before_window:
            return "queues are sampled"
        if self._callbacks:
            return "Python runs the program of a switch"
        if every_window:
            return "Python decides after each window whether to continue"
        if self._in_python:
            return f"Python handles what arrives at {self.topology.hosts[min(self._in_python)].name}"
        if self._parts == 1:
            return "all hosts have the same leaf"
        return None

    def _look_for_deadlock(self) -> None:
        if self._priorities and (circle := self._waiting().circle()):
            raise DeadlockError(describe(circle, self.link_ends, self._priorities))

    def _waiting(self) -> Waiting:
        """Return which queues wait for which others now."""
        count, queued = self._c.loop_queued(self._loop, None, 0), np.zeros((0, 3), np.int64)
        if count:
            queued = np.empty((count, 3), np.int64)
            self._c.loop_queued(self._loop, queued.ctypes.data, count)
        stopped = np.zeros(len(self.link_ends) * self._priorities, np.bool_)
        self._c.loop_stopped(self._loop, stopped.ctypes.data)
        return Waiting.of(stopped, np.repeat(self.links.table["xon"], self._priorities), queued)

    # -- what has happened -----------------------------------------------------------------------------------

    @property
    def faults(self) -> Counter[str]:
        """Return what has happened to packets so far, by kind.

        "no link" counts frames that a switch sent to a port without a link. "pause" counts how often a link was paused,
        and "storm" how often a watchdog decided that a pause would not end.
        """
        counts = self.links.counts
        of_links = {"pause": counts.pauses, "storm": counts.storms, "watchdog drop": counts.watchdog_drops}
        faults = Counter(dict(zip(FAULTS.values(), self._faults.sum(axis=0).tolist(), strict=True)))
        return faults + Counter({kind: int(count.sum()) for kind, count in of_links.items()})

    @property
    def overtaken(self) -> NDArray[np.int64]:
        """Return how long packets waited while others of a higher priority were sent.

        In picoseconds, [links, priorities], or [links, 0] if links have no queues by priority.
        """
        return self._counts_of_lanes()[0]

    @property
    def wire_bytes(self) -> NDArray[np.int64]:
        """Return the bytes that links have sent of each priority.

        [links, priorities], or [links, 0] if links have no queues by priority.
        """
        return self._counts_of_lanes()[1]

    def _counts_of_lanes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        overtaken, sent = (np.zeros((len(self.link_ends), self._priorities), np.int64) for _ in range(2))
        self._c.loop_count_lanes(self._loop, overtaken.ctypes.data, sent.ctypes.data)
        return overtaken, sent

    @property
    def queue_areas(self) -> NDArray[np.int64]:
        """Return the time integral of the bytes in each link's queue until now, in byte-nanoseconds: [links]."""
        waiting = np.zeros(len(self.link_ends), np.int64)
        self._c.loop_waiting_areas(self._loop, self.now, waiting.ctypes.data)
        return self.links.queue_areas(self.now) + waiting

    @property
    def in_flight(self) -> int:
        """Return the number of packets that have been sent and not been processed."""
        return int(self._c.loop_in_use(self._loop))

    @property
    def wakes(self) -> int:
        """Return how often hosts have woken."""
        return self._wakes_in_python + int(self._c.loop_turns(self._loop))

    @property
    def barriers(self) -> int:
        """Return how often cores have waited for one another: once in each window that several have shared."""
        return int(self._c.loop_rounds(self._loop))

    @property
    def one_core_because(self) -> str | None:
        """Return why run() has used one core although there may be several; None if it has not."""
        if self._cores > 1 and not self._obstacle_met and not self.barriers:
            return "too few packets arrive at a time"
        return self._obstacle_met

    @property
    def hops(self) -> int:
        """Return the number of packets that have arrived at the far end of a link."""
        return int(self.links.counts.arrived.sum())

    # -- a window --------------------------------------------------------------------------------------------

    def _run_window(self, limit: int) -> bool:
        """Run the next window; return False if it begins at `limit` or later."""
        begin = int(self._c.loop_next_time(self._loop))
        if begin >= limit:
            return False
        if self.before_window:
            self.before_window(begin)
        end, events = begin + self._window, c_void_p()
        count = self._c.loop_collect(self._loop, begin, ctypes.byref(events))
        if self._observer and count:
            self._show(events, count, self._observer)
        self._c.loop_deliver(self._loop)
        taken = c_bool()
        self._run_hosts(self._c.loop_next_host(self._loop, end, ctypes.byref(taken)), end, taken)
        if self._journal:
            for part in range(self._parts):
                if count := self._c.loop_take_notes(self._loop, part, ctypes.byref(events)):
                    assert events.value
                    notes = ctypes.string_at(events.value, count * NOTE.itemsize)
                    self._journal(np.frombuffer(notes, NOTE))
        self._check()
        return True

    def _run_windows(self, limit: int, watched: NDArray[np.int64], threads: bool) -> bool:
        """Run windows until the number at `watched` is 0, a host needs Python or links have to be looked at.

        Args:
            limit: When to stop, in picoseconds.
            watched: The number [1].
            threads: Whether each part runs on a thread.

        Returns:
            False if the next window begins at `limit` or later.
        """
        taken = c_bool()
        before = self._loop, limit, self._look_at, watched.ctypes.data
        host = self._c.loop_run(*before, threads, ctypes.byref(taken))
        if host == NO_THREADS:
            self._obstacle_met = self._obstacle_met or f"the system refuses {self._parts} threads"
            host = self._c.loop_run(*before, False, ctypes.byref(taken))
        self.now = max(self.now, self._c.loop_ended(self._loop))
        if host >= 0:
            self._run_hosts(host, self._c.loop_window_end(self._loop), taken)
        self._check()
        return bool(host != AT_LIMIT)

    def _run_hosts(self, host: int, end: int, taken: c_bool) -> None:
        """Run the hosts that need Python, from `host` on (-1: none), and end the window."""
        while host >= 0:
            self._run_station(host, taken=taken.value)
            host = self._c.loop_next_host(self._loop, end, ctypes.byref(taken))
        self._c.loop_end(self._loop, end)
        self.now = end

    def _show(self, events: c_void_p, count: int, observer: Observer) -> None:
        assert events.value
        seen = np.frombuffer(ctypes.string_at(events.value, count * EVENT.itemsize), EVENT)
        packets = self._room(np.zeros, count)
        self._c.loop_read(self._loop, events, count, *_addresses(packets), self._width)
        arrived = Transit(seen["link"].astype(np.int64), seen["time"], np.arange(count))
        observer(arrived.take(arrived.links < len(self.link_ends)), packets)

    def _room(self, make: Callable[..., NDArray[np.uint8]], count: int) -> Packets:
        return Packets(make((count, self._width), np.uint8), np.empty(count, np.int64))

    def _run_station(self, host: int, *, taken: bool) -> None:
        """Run one wake-up of a host's station. If `taken`, C has already handled what arrived."""
        station = self._stations[host]
        assert station
        assert not isinstance(station, CardInC)
        self._wakes_in_python += 1
        now = int(self._wakes[host])
        seconds = now / SECOND
        if taken:
            compiled = cast("CompiledStation", station)
            if isinstance(card := self._in_c[host], CardInC):
                card.check(seconds)
                compiled.taken(seconds)
                compiled.begin(seconds)
                self._c.loop_continue(self._loop, host, now, _timer(compiled.begins_at, now))
                return
            compiled.taken(seconds)
        elif count := self._c.loop_waiting(self._loop, host, now):
            packets = self._room(np.empty, count)
            self._c.loop_take(self._loop, host, count, *_addresses(packets), self._width)
            station.receive(packets.rows, packets.lengths, seconds)
        for frames in station.frames_to_send(seconds):
            if frames.shape[1] > self._width:
                raise self._too_long(frames.shape[1])
            sent = np.ascontiguousarray(frames)
            self._c.loop_send(self._loop, host, sent.ctypes.data, *sent.shape, now)
        self._c.loop_set_timer(self._loop, host, _timer(station.deadline(), now))

    def _too_long(self, length: int) -> ValueError:
        return ValueError(f"a frame of {length} bytes does not fit the network's longest, {self._width}")

    def _check(self) -> None:
        for program in self._callbacks:
            if program.error:
                raise program.error
        if length := self._c.loop_too_long_sent(self._loop):
            raise self._too_long(length)
        if self._c.loop_failed(self._loop):
            raise MemoryError(f"no memory for the packets of {self.topology.name}")
        if longest := self._c.loop_too_long(self._loop):
            raise ValueError(
                f"a packet of {longest} bytes left a switch; this network carries at most {self._width}"
            )


MakeNetwork = Callable[..., VirtualNetwork]  # with the arguments of VirtualNetwork


def _timer(deadline: float | None, now: int) -> int:
    """Return when a host has to wake, in picoseconds: after `now`, and not before a deadline in seconds."""
    return NEVER if deadline is None else max(now + 1, not_before(deadline))


def _addresses(packets: Packets) -> tuple[int, int]:
    return packets.rows.ctypes.data, packets.lengths.ctypes.data
