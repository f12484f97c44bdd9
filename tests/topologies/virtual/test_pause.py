"""Priority flow control: nothing is dropped, what waits for a busy port keeps others waiting, and pauses end."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from topologies.link import ETHERNET_OVERHEAD, LinkProperties, Pause
from topologies.model import Topology
from topologies.shapes import leaf_spine
from topologies.virtual import HostModel, VirtualNetwork
from topologies.virtual.links import Transit
from topologies.virtual.packets import PacketStore
from topologies.virtual.pause import PausableLinks, headroom_bytes
from topologies.virtual.units import SECOND

pytestmark = pytest.mark.slow

GIGABIT = 10**9
EVERYBODY = 0
# Two leaves of two hosts each, joined by a spine: h1 and h2, h3 and h4. A leaf's third port goes up.
WAYS = {
    "leaf1": {1: [1], 2: [2], 3: [3], 4: [3], EVERYBODY: [1, 2, 3]},
    "leaf2": {1: [3], 2: [3], 3: [1], 4: [2], EVERYBODY: [1, 2, 3]},
    "spine1": {1: [1], 2: [1], 3: [2], 4: [2], EVERYBODY: [1, 2]},
}


def ports_for(switch: str, destination: int, came_by: int) -> list[int]:
    """Where a switch sends a frame: to one host, or a copy to each but back."""
    return [port for port in WAYS[switch][destination] if port != came_by]


@dataclass
class Departures:
    sources: NDArray[np.uint32]
    ports: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    packets: NDArray[np.uint8]


@dataclass
class Router:
    """A switch that knows where each host is; a frame's first byte says to which it goes."""

    name: str

    def process_batch(
        self,
        ports: NDArray[np.uint32],
        packets: NDArray[np.uint8],
        lengths: NDArray[np.uint32],
        times: NDArray[np.uint64],  # noqa: ARG002 - as a SwitchProgram
    ) -> Departures:
        pairs = [
            (i, out)
            for i, (port, to) in enumerate(zip(ports.tolist(), packets[:, 0].tolist(), strict=True))
            for out in ports_for(self.name, to, port)
        ]
        sources = np.array([i for i, _ in pairs], np.uint32)
        outs = np.array([out for _, out in pairs], np.uint32)
        return Departures(sources, outs, lengths[sources], packets[sources])


class Frame(NamedTuple):
    """To be sent at a time (picoseconds) by one host to another."""

    time: int
    sender: int
    to: int
    length: int


@dataclass
class Sender:
    """Sends its frames at their times."""

    frames: list[Frame]

    def receive(self, frames: NDArray[np.uint8], lengths: NDArray[np.int64], now: float) -> None:
        pass

    def frames_to_send(self, now: float) -> Sequence[NDArray[np.uint8]]:
        due = [frame for frame in self.frames if frame.time / SECOND <= now]
        self.frames = self.frames[len(due) :]
        return [np.array([[frame.to, frame.sender, *[0] * (frame.length - 2)]], np.uint8) for frame in due]

    def deadline(self) -> float | None:
        return self.frames[0].time / SECOND if self.frames else None


class Arrival(NamedTuple):
    """A frame has arrived at the far end of a link."""

    time: int
    link: str
    to: int
    sender: int
    length: int


class Fabric:
    """The two leaves in virtual time, and all that arrives."""

    def __init__(self, frames: list[Frame], links: LinkProperties, topology: Topology) -> None:
        self.arrivals: list[Arrival] = []
        senders = {f"h{i}": Sender(sorted(f for f in frames if f.sender == i)) for i in range(1, 5)}
        self.network = VirtualNetwork(
            topology.with_properties(**dict(links)),
            {name: Router(name) for name in WAYS},
            senders,
            host=HostModel(0.0),
            observer=self._note,
        )
        for name, sender in senders.items():
            if sender.frames:
                self.network.wake(name, sender.frames[0].time / SECOND)
        self.network.run()

    def _note(self, arrived: Transit, store: PacketStore) -> None:
        for link, time, packet in zip(
            arrived.links.tolist(), arrived.times.tolist(), arrived.packets.tolist(), strict=True
        ):
            near, far = self.network.link_ends[link]
            to, sender = store.rows[packet, :2].tolist()
            self.arrivals.append(Arrival(time, f"{near} > {far}", to, sender, int(store.lengths[packet])))

    def of_link(self, counts: NDArray[np.int64]) -> dict[str, int]:
        """A count of each link, by its ends."""
        ends = self.network.link_ends
        return {f"{near} > {far}": int(count) for (near, far), count in zip(ends, counts, strict=True)}

    def last_arrival(self, sender: int) -> int:
        """When the last of a host's frames reached its destination."""
        return max(a.time for a in self.arrivals if a.sender == sender and a.link.endswith(f"h{a.to}"))


def stream(sender: int, to: int, count: int, rate: int = GIGABIT, length: int = 1000) -> list[Frame]:
    """`count` frames at a rate from time 0 on."""
    each = (length + ETHERNET_OVERHEAD) * 8 * SECOND // rate
    return [Frame(i * each, sender, to, length) for i in range(count)]


PAUSE = Pause(xoff_bytes=10_000, xon_bytes=5_000)
# h1 and h4 want all of h3's port; h2 sends to h4, whose port is idle. The links between the switches are not full.
INCAST = stream(1, 3, 200) + stream(4, 3, 200)
VICTIM = stream(2, 4, 150)
ROOMY = leaf_spine(1, 2, 2, rate=GIGABIT, uplink_rate=2 * GIGABIT)


def test_a_flow_to_an_idle_host_waits_behind_one_to_a_busy_host() -> None:
    without = Fabric(INCAST + VICTIM, LinkProperties(), ROOMY)
    paused = Fabric(INCAST + VICTIM, LinkProperties(pause=PAUSE), ROOMY)
    alone = Fabric(VICTIM, LinkProperties(pause=PAUSE), ROOMY)
    assert without.last_arrival(2) < 1.02 * alone.last_arrival(2)
    assert paused.last_arrival(2) > 1.7 * alone.last_arrival(2)
    assert paused.last_arrival(1) == pytest.approx(without.last_arrival(1), rel=0.02), (
        "h3's port is never idle"
    )


def test_congestion_spreads_to_the_hosts_and_not_to_where_nothing_waits() -> None:
    fabric = Fabric(INCAST + VICTIM, LinkProperties(pause=PAUSE), ROOMY)
    counts = fabric.network.links.counts
    pauses, paused = fabric.of_link(counts.pauses), fabric.of_link(counts.paused)
    stopped = {"h4 > leaf2", "spine1 > leaf2", "leaf1 > spine1", "h1 > leaf1", "h2 > leaf1"}
    assert {link for link, count in pauses.items() if count} == stopped
    assert {link for link, time in paused.items() if time} == stopped
    assert fabric.network.faults["pause"] == sum(pauses.values())
    assert fabric.network.store.in_use == 0


def test_a_pause_takes_effect_after_the_delay_and_ends_after_the_delay() -> None:
    """From a link of 1 Gb/s to one of 0.1 Gb/s: when the third frame waits, 10 µs after it came, the host stops."""
    topology = leaf_spine(1, 2, 2, rate=GIGABIT, uplink_rate=GIGABIT // 10)
    model = LinkProperties(delay=10e-6, pause=Pause(xoff_bytes=2 * 1024, xon_bytes=1024))
    fabric = Fabric(stream(1, 3, 10), model, topology)
    each = 1024 * 8 * SECOND // GIGABIT
    delay = 10 * SECOND // 10**6
    came = [a.time for a in fabric.arrivals if a.link == "h1 > leaf1"]
    # The first leaves the leaf at once; the fourth makes three that wait.
    stop = delay + 4 * each + delay
    begun_before = -(-stop // each)
    assert came[:begun_before] == [delay + (i + 1) * each for i in range(begun_before)]
    # One of those leaves in every ten times.
    go = delay + each + (begun_before - 2) * 10 * each + delay
    assert came[begun_before] == go + each + delay


def test_without_thresholds_nothing_pauses() -> None:
    fabric = Fabric(INCAST, LinkProperties(), ROOMY)
    assert not fabric.network.links.counts.pauses.any()


@pytest.mark.parametrize(
    ("xoff", "xon", "complaint"),
    [
        (1000, 1001, r"xon_bytes: is 1001, must be from 0 to xoff_bytes \(1000\)"),
        (1000, -1, "xon_bytes\n.*greater than or equal to 0"),
        (-1, -1, "xoff_bytes\n.*greater than or equal to 0"),
    ],
)
def test_impossible_thresholds_are_refused(xoff: int, xon: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Pause(xoff_bytes=xoff, xon_bytes=xon)


unhurried = settings(max_examples=50)

frames = st.builds(
    Frame,
    time=st.integers(0, 40_000_000),
    sender=st.integers(1, 4),
    to=st.sampled_from((EVERYBODY, 1, 3, 3, 3)),
    length=st.integers(60, 1514),
).filter(lambda frame: frame.sender != frame.to)
traffic = st.lists(frames, min_size=20, max_size=100)
fabrics = st.builds(
    leaf_spine,
    st.just(1),
    st.just(2),
    st.just(2),
    rate=st.sampled_from((GIGABIT, 10 * GIGABIT)),
    uplink_rate=st.sampled_from((GIGABIT, 10 * GIGABIT)),
)
delays = st.integers(200, 5_000).map(lambda nanoseconds: nanoseconds / 1e9)
thresholds = st.tuples(st.integers(0, 6000), st.integers(0, 6000)).map(
    lambda pair: Pause(xoff_bytes=max(pair), xon_bytes=min(pair))
)


@unhurried
@given(traffic=traffic, topology=fabrics, delay=delays, pause=thresholds)
def test_nothing_is_dropped_if_queues_have_headroom(
    traffic: list[Frame], topology: Topology, delay: float, pause: Pause
) -> None:
    model = LinkProperties(delay=delay, pause=pause)
    rates = [link.rate_bits_per_second or 0 for link in topology.links]
    # No queue gets anything from more than two links: a switch sends nothing back.
    room = 2 * (pause.xoff_bytes + headroom_bytes(max(rates), model, 1514))
    fabric = Fabric(traffic, model.model_copy(update={"queue_bytes": room}), topology)
    assert fabric.network.faults["queue drop"] == 0
    delivered = [a for a in fabric.arrivals if a.link.endswith(("h1", "h2", "h3", "h4"))]
    assert len(delivered) == sum(3 if frame.to == EVERYBODY else 1 for frame in traffic)


def test_the_same_queues_drop_without_pauses() -> None:
    model = LinkProperties(delay=2e-6, pause=PAUSE)
    room = 2 * (PAUSE.xoff_bytes + headroom_bytes(2 * GIGABIT, model, 1514))
    lossless = Fabric(INCAST, model.model_copy(update={"queue_bytes": room}), ROOMY)
    lossy = Fabric(INCAST, LinkProperties(delay=2e-6, queue_bytes=room), ROOMY)
    assert lossless.network.faults["queue drop"] == 0
    assert lossy.network.faults["queue drop"] > 50


@unhurried
@given(traffic=traffic, topology=fabrics, delay=delays, queue=st.sampled_from((None, 3000, 10_000)))
def test_thresholds_that_are_never_passed_change_nothing(
    traffic: list[Frame], topology: Topology, delay: float, queue: int | None
) -> None:
    model = LinkProperties(delay=delay, queue_bytes=queue, ecn_bytes=2000)
    never = model.model_copy(update={"pause": Pause(xoff_bytes=10**9, xon_bytes=0)})
    plain, pausable = Fabric(traffic, model, topology), Fabric(traffic, never, topology)
    assert pausable.arrivals == plain.arrivals
    assert pausable.network.faults == plain.network.faults


# -- against single events


@dataclass
class Direction:
    """A direction of a link."""

    near: str
    far: str
    near_port: int
    far_port: int
    byte: int  # picoseconds
    queue: deque[tuple[Frame, Direction | None]] = field(default_factory=deque)
    busy_until: int = 0
    paused: bool = False
    held: int = 0
    told: bool = False


class SingleEvents:
    """The same world, one instant after the other: pauses arrive, frames arrive, frames begin to be sent, switches
    look at what they hold."""

    def __init__(self, topology: Topology, model: LinkProperties) -> None:
        assert model.pause
        self.model, self.pause = model, model.pause
        self.delay = round(model.virtual_delay * SECOND)
        self.directions = [
            Direction(
                near.node, far.node, near.port, far.port, 8 * SECOND // (link.rate_bits_per_second or 0)
            )
            for link in topology.links
            for near, far in ((link.a, link.b), (link.b, link.a))
        ]
        self.at = {(d.near, d.near_port): d for d in self.directions}
        self.arrivals: list[Arrival] = []
        self.drops = self.pauses = 0
        self.events: list[tuple[int, int, int, int, Frame | None]] = []
        self.number = itertools.count()

    def run(self, frames: list[Frame]) -> None:
        for frame in sorted(frames):
            sending = self.directions.index(self.at[f"h{frame.sender}", 0])
            self._later(frame.time, 2, sending, frame)
        while self.events:
            now = self.events[0][0]
            while self.events and self.events[0][0] == now:
                _, kind, link, _, frame = heapq.heappop(self.events)
                direction = self.directions[link]
                if kind == 0:
                    direction.paused = not direction.paused
                    self.pauses += direction.paused
                elif kind == 1:
                    assert frame
                    self._arrive(now, direction, frame)
                elif kind == 2:
                    assert frame
                    direction.queue.append((frame, None))
            for link, direction in enumerate(self.directions):
                if direction.queue and not direction.paused and direction.busy_until <= now:
                    frame, came_by = direction.queue.popleft()
                    direction.busy_until = now + self._wire(frame) * direction.byte
                    if came_by:
                        came_by.held -= self._wire(frame)
                    self._later(direction.busy_until + self.delay, 1, link, frame)
                    self._later(direction.busy_until, 3, link, None)
            for link, direction in enumerate(self.directions):
                passed = direction.held > self.pause.xoff_bytes
                if direction.held <= self.pause.xon_bytes if direction.told else passed:
                    direction.told = not direction.told
                    self._later(now + self.delay, 0, link, None)

    def _arrive(self, now: int, direction: Direction, frame: Frame) -> None:
        name = f"{direction.near} > {direction.far}"
        self.arrivals.append(Arrival(now, name, frame.to, frame.sender, frame.length))
        if direction.far not in WAYS:
            return
        for port in ports_for(direction.far, frame.to, direction.far_port):
            out = self.at[direction.far, port]
            ahead = sum(self._wire(waiting) for waiting, _ in out.queue) * out.byte
            ahead += max(0, out.busy_until - now)
            room = self.model.queue_bytes
            if room is not None and ahead + self._wire(frame) * out.byte > room * out.byte:
                self.drops += 1
                continue
            out.queue.append((frame, direction))
            direction.held += self._wire(frame)

    def _wire(self, frame: Frame) -> int:
        return frame.length + self.model.virtual_overhead

    def _later(self, time: int, kind: int, link: int, frame: Frame | None) -> None:
        heapq.heappush(self.events, (time, kind, link, next(self.number), frame))


@unhurried
@given(
    traffic=traffic,
    topology=fabrics,
    delay=delays,
    pause=thresholds,
    queue=st.sampled_from((None, None, 3000, 8000)),
)
def test_windows_give_the_history_of_single_events(
    traffic: list[Frame], topology: Topology, delay: float, pause: Pause, queue: int | None
) -> None:
    model = LinkProperties(delay=delay, queue_bytes=queue, pause=pause)
    single = SingleEvents(topology, model)
    single.run(traffic)
    fabric = Fabric(traffic, model, topology)
    assert sorted(fabric.arrivals) == sorted(single.arrivals)
    assert fabric.network.faults["queue drop"] == single.drops
    assert fabric.network.faults["pause"] == single.pauses
    assert fabric.network.store.in_use == 0
    assert isinstance(fabric.network.links, PausableLinks)
    assert not fabric.network.links.held.any()
