"""Event loop: switches that run a compiled program and hosts that run protocol objects, joined by links.

Time advances in windows as long as the shortest delay of a link. What a node does within a window can reach another
only after the window (Chandy and Misra's lookahead), so each window is computed node by node and link by link in
batches. The history is the one that single events in the order of (time, link, order of sending) would produce. It
depends only on the topology, the models and the seed.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.deadlock import DeadlockError, Waiting, describe
from fanin.simulator.links import NOTHING, Links, Transit
from fanin.simulator.packets import Packets, PacketStore
from fanin.simulator.queues import PRIORITIES, QueuedLinks
from fanin.simulator.segments import segments
from fanin.simulator.units import MICROSECOND, NEVER, SECOND, not_before
from fanin.topologies.model import Topology

_LOOK = SECOND // 1000  # how often links are checked for deadlocks
LONGEST_FRAME = 1514  # Ethernet, without its frame check sequence


class Departures(Protocol):
    """Packets that left a switch, in order.

    Attributes:
        sources: Which packet of the batch caused each, [count].
        ports: Port of each, [count].
        lengths: Bytes of each, [count].
        packets: The packets, [count, room].
    """

    @property
    def sources(self) -> NDArray[np.uint32]: ...  # noqa: D102
    @property
    def ports(self) -> NDArray[np.uint32]: ...  # noqa: D102
    @property
    def lengths(self) -> NDArray[np.uint32]: ...  # noqa: D102
    @property
    def packets(self) -> NDArray[np.uint8]: ...  # noqa: D102


class SwitchProgram(Protocol):
    """A program in a switch, such as an engine of p4switch."""

    def process_batch(
        self,
        ports: NDArray[np.uint32],
        packets: NDArray[np.uint8],
        lengths: NDArray[np.uint32],
        times: NDArray[np.uint64],
    ) -> Departures:
        """Process packets [m, room] in order; `ports`, `lengths` (bytes) and `times` (microseconds) are [m]."""
        ...


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


@dataclass(frozen=True, slots=True)
class HostModel:
    """The delay with which a host notices arrivals: `coalescing` seconds after the first of them.

    Source: the interrupt moderation of network cards, which batches packets that arrive close together.
    """

    coalescing: float = 4e-6


DEFAULT_HOST = HostModel()

Observer = Callable[[Transit, Packets], None]


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

    Attributes:
        faults: What the links did, by kind. "no link" counts frames that a switch sent to a port without a link.
            "pause" counts how often a link was paused, and "storm" how often a watchdog decided that a pause would not
            end.
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
    ) -> None:
        self.topology = topology
        self.store = PacketStore(longest_frame)
        self.now = 0  # picoseconds: the end of the last window
        self._observer = observer
        self._switches = [switches[switch.name] for switch in topology.switches]
        self._switch_index = {switch.name: i for i, switch in enumerate(topology.switches)}
        self._host_index = {host.name: i for i, host in enumerate(topology.hosts)}
        self._stations: list[Station | None] = [stations.get(host.name) for host in topology.hosts]
        self._coalescing = round(host.coalescing * SECOND)

        nodes = self._switch_index | {n: len(self._switches) + i for n, i in self._host_index.items()}
        ends = [pair for link in topology.links for pair in ((link.a, link.b), (link.b, link.a))]
        models = [link.properties for link in topology.links for _ in range(2)]
        rates = [link.rate_bits_per_second for link in topology.links for _ in range(2)]
        from_host = [near.port == 0 for near, _ in ends]
        arguments = rates, models, from_host, self.store, seed
        self._priorities = PRIORITIES if priorities else int(any(model.pause for model in models))
        self.links = QueuedLinks(*arguments, self._priorities) if self._priorities else Links(*arguments)
        self.link_ends = [(near.node, far.node) for near, far in ends]
        self._far_node = np.array([nodes[far.node] for _, far in ends])
        self._far_port = np.array([far.port for _, far in ends], np.uint32)
        # The link that leaves a node at a port, or -1. The last column is -1 for all nodes.
        self._link_at = np.full((len(nodes), 2 + max((near.port for near, _ in ends), default=0)), -1)
        for i, (near, _) in enumerate(ends):
            self._link_at[nodes[near.node], near.port] = i
        self._host_links = self._link_at[len(self._switches) :, 0]

        self._window = self.links.lookahead
        # Packets in flight, by the window in which they arrive.
        self._arriving: defaultdict[int, list[Transit]] = defaultdict(list)
        self._windows: list[int] = []  # a heap of the keys of _arriving
        self._inboxes: list[Transit | None] = [None] * len(self._stations)
        self._timers = np.full(len(self._stations), NEVER)
        self._wakes = np.full(len(self._stations), NEVER)
        self._stalls: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._sending: list[Transit] = []
        self._look_at = _LOOK
        self.no_link = 0
        self.wakes = 0  # wake-ups of hosts so far
        self.before_window: Callable[[int], None] | None = None  # called with its begin (picoseconds)
        self._open()

    def _open(self) -> None:
        """Prepare a subclass; called at the end of __init__."""

    # -- what callers do -------------------------------------------------------------------------------------

    def wake(self, host: str, at: float) -> None:
        """Let the host's station check for something to send at a time (seconds)."""
        index = self._host_index[host]
        self._timers[index] = max(self.now, not_before(at))
        self._set_wake(index)

    def stall(self, host: str, begin: float, end: float) -> None:
        """Stop the host from `begin` to `end` (seconds). What arrives waits."""
        stalls = self._stalls[self._host_index[host]]
        stalls.append((round(begin * SECOND), round(end * SECOND)))
        stalls.sort()  # so that _set_wake skips overlapping ones

    def cut(self, one: str, other: str, begin: float, end: float) -> None:
        """Take the link between two nodes down from `begin` to `end` (seconds), and lose what is on it.

        Call this before anything joins the link's queues that would be on it then. A link can have one such period at a
        time.
        """
        both = [number for number, ends in enumerate(self.link_ends) if {*ends} == {one, other}]
        self.links.cut(both, not_before(begin), not_before(end))

    def replace_switch(self, name: str, program: SwitchProgram) -> None:
        """Run another program, or the same with a fresh state, in that switch from now on."""
        self._switches[self._switch_index[name]] = program

    def replace_station(self, host: str, station: Station, at: float) -> None:
        """Run another station on that host from now on. It has received nothing so far."""
        index = self._host_index[host]
        inbox = self._inboxes[index]
        if inbox is not None:
            self.store.free(inbox.packets)
            self._inboxes[index] = None
        self._stations[index] = station
        self.wake(host, at)

    def run(self, until: Callable[[], bool] = lambda: False, limit: float = math.inf) -> bool:
        """Run until a condition, tested after each window, holds.

        Returns:
            True if the condition holds. False if `limit` (seconds) is reached, or nothing more will happen.

        Raises:
            DeadlockError: Some links will never send again, because of pauses.
        """
        end = NEVER if limit == math.inf else round(limit * SECOND)
        while not until():
            begin = self._next_window()
            if begin >= end:
                self._look_for_deadlock()
                return False
            if self.before_window:
                self.before_window(begin)
            self._run_window(begin)
            if self.now >= self._look_at:
                self._look_for_deadlock()
                self._look_at = self.now + _LOOK
        return True

    def _look_for_deadlock(self) -> None:
        if self._priorities and (circle := self._waiting().circle()):
            raise DeadlockError(describe(circle, self.link_ends, self._priorities))

    def _waiting(self) -> Waiting:
        assert isinstance(self.links, QueuedLinks)
        return self.links.waiting()

    @property
    def faults(self) -> Counter[str]:
        """Return what has happened to packets so far, by kind; see the class."""
        counts = self.links.counts
        return counts.faults + Counter({"no link": self.no_link}) + self._pause_faults

    @property
    def _pause_faults(self) -> Counter[str]:
        counts = self.links.counts
        of_links = {"pause": counts.pauses, "storm": counts.storms, "watchdog drop": counts.watchdog_drops}
        return Counter({kind: int(count.sum()) for kind, count in of_links.items()})

    @property
    def overtaken(self) -> NDArray[np.int64]:
        """Return how long packets waited while others of a higher priority were sent.

        In picoseconds, [links, priorities], or [links, 0] if links have no queues by priority.
        """
        links = self.links
        return (
            links.overtaken
            if isinstance(links, QueuedLinks)
            else np.zeros((len(self.link_ends), 0), np.int64)
        )

    @property
    def wire_bytes(self) -> NDArray[np.int64]:
        """Return the bytes that links have sent of each priority.

        [links, priorities], or [links, 0] if links have no queues by priority.
        """
        links = self.links
        return (
            links.wire_bytes
            if isinstance(links, QueuedLinks)
            else np.zeros((len(self.link_ends), 0), np.int64)
        )

    @property
    def queue_areas(self) -> NDArray[np.int64]:
        """Return the time integral of the bytes in each link's queue until now, in byte-nanoseconds: [links]."""
        return self.links.queue_areas(self.now)

    @property
    def in_flight(self) -> int:
        """Return the number of packets that have been sent and not been processed."""
        return self.store.in_use

    @property
    def hops(self) -> int:
        """Return the number of packets that have arrived at the far end of a link."""
        return int(self.links.counts.arrived.sum())

    # -- a window --------------------------------------------------------------------------------------------

    def _next_window(self) -> int:
        due = min(int(self._wakes.min(initial=NEVER)), self.links.next_time)
        begin = due if due == NEVER else due // self._window * self._window
        return min(begin, self._windows[0] * self._window) if self._windows else begin

    def _run_window(self, begin: int) -> None:
        end = begin + self._window
        if self._windows and self._windows[0] * self._window == begin:
            number = heapq.heappop(self._windows)
            self._deliver(Transit.joined(self._arriving.pop(number)))
        for host in (self._wakes < end).nonzero()[0].tolist():
            self._run_host(host, end)
        if self._sending or self.links.next_time < end:
            sent, self._sending = Transit.joined(self._sending or [NOTHING]), []
            self._schedule(self.links.send(sent, end))
        self.now = end

    def _schedule(self, arriving: Transit) -> None:
        """File what arrives under the windows in which it does."""
        if not len(arriving.times):
            return
        windows = arriving.times // self._window
        order = np.argsort(windows, kind="stable")
        arriving, windows = arriving.take(order), windows[order]
        for part in segments(windows):
            number = int(windows[part.start])
            if number not in self._arriving:
                heapq.heappush(self._windows, number)
            self._arriving[number].append(arriving.take(part))

    def _deliver(self, arrived: Transit) -> None:
        """Deliver what arrives in this window, to each node in the order of (time, link)."""
        nodes = self._far_node[arrived.links]
        order = np.lexsort((arrived.links, arrived.times, nodes))
        arrived, nodes = arrived.take(order), nodes[order]
        if self._observer:
            self._observer(arrived, self.store)
        for part in segments(nodes):
            node = int(nodes[part.start])
            if node < len(self._switches):
                self._run_switch(node, arrived.take(part))
            else:
                self._take_in(node - len(self._switches), arrived.take(part))

    def _run_switch(self, node: int, arrived: Transit) -> None:
        packets, store = arrived.packets, self.store
        departed = self._switches[node].process_batch(
            self._far_port[arrived.links],
            store.rows[packets],
            store.lengths[packets].astype(np.uint32),
            (arrived.times // MICROSECOND).astype(np.uint64),
        )
        store.free(packets)
        if not len(departed.ports):
            return
        links = self._link_at[node, np.minimum(departed.ports, self._link_at.shape[1] - 1)]
        sources, lengths, rows = departed.sources, departed.lengths.astype(np.int64), departed.packets
        known = links >= 0
        if not known.all():
            self.no_link += int(np.count_nonzero(~known))
            links, sources, lengths, rows = links[known], sources[known], lengths[known], rows[known]
        sent = store.add(rows, lengths, arrived.links[sources])
        self._sending.append(Transit(links, arrived.times[sources], sent))

    # -- hosts -----------------------------------------------------------------------------------------------

    def _take_in(self, host: int, arrived: Transit) -> None:
        if self._stations[host] is None:
            self.store.free(arrived.packets)
            return
        inbox = self._inboxes[host]
        self._inboxes[host] = arrived if inbox is None else Transit.joined([inbox, arrived])
        if inbox is None:
            self._set_wake(host)

    def _run_host(self, host: int, end: int) -> None:
        station = self._stations[host]
        if station is None:
            self._wakes[host] = NEVER
            return
        while (now := int(self._wakes[host])) < end:
            self.wakes += 1
            seconds = now / SECOND
            inbox = self._inboxes[host]
            if inbox is not None and (count := int(np.searchsorted(inbox.times, now, "right"))):
                packets = inbox.packets[:count]
                station.receive(self.store.rows[packets], self.store.lengths[packets], seconds)
                self.store.free(packets)
                rest = inbox.take(slice(count, None))
                self._inboxes[host] = rest if len(rest.times) else None
            for frames in station.frames_to_send(seconds):
                sent = self.store.add(frames, frames.shape[1])
                link = int(self._host_links[host])
                self._sending.append(Transit(np.full(len(sent), link), np.full(len(sent), now), sent))
            deadline = station.deadline()
            self._timers[host] = NEVER if deadline is None else max(now + 1, not_before(deadline))
            self._set_wake(host)

    def _set_wake(self, host: int) -> None:
        inbox = self._inboxes[host]
        wake = int(self._timers[host])
        if inbox is not None:
            wake = min(wake, int(inbox.times[0]) + self._coalescing)
        for begin, end in self._stalls.get(host, ()):
            if begin <= wake < end:
                wake = end
        self._wakes[host] = wake
