"""Two leaves of two hosts each and a spine, in virtual time: frames are sent at given times, arrivals are noted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from fanin.simulator import HostModel, VirtualNetwork
from fanin.simulator.links import PRECEDENCE, Packets, Transit
from fanin.simulator.units import SECOND
from fanin.topologies.link import ETHERNET_OVERHEAD, LinkProperties, Pause
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine

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
class Router:
    """A switch that knows where each host is; a frame's first byte says to which it goes."""

    name: str

    def process(self, port: int, packet: bytes, now: int) -> list[tuple[int, bytes]]:  # noqa: ARG002
        return [(out, packet) for out in ports_for(self.name, packet[0], port)]


class Frame(NamedTuple):
    """To be sent at a time (picoseconds) by one host to another."""

    time: int
    sender: int
    to: int
    length: int
    priority: int = 0

    def as_bytes(self) -> NDArray[np.uint8]:
        """IPv4 of this priority, as far as links look at it."""
        row = np.zeros(self.length, np.uint8)
        row[[0, 1, 12, 15]] = self.to, self.sender, 8, self.priority << PRECEDENCE
        return row


@dataclass
class Sender:
    """Sends its frames at their times."""

    frames: list[Frame]

    def receive(self, frames: NDArray[np.uint8], lengths: NDArray[np.int64], now: float) -> None:
        pass

    def frames_to_send(self, now: float) -> Sequence[NDArray[np.uint8]]:
        due = [frame for frame in self.frames if frame.time / SECOND <= now]
        self.frames = self.frames[len(due) :]
        return [frame.as_bytes()[np.newaxis] for frame in due]

    def deadline(self) -> float | None:
        return self.frames[0].time / SECOND if self.frames else None


class Outage(NamedTuple):
    """A link between two nodes is down, from one time to another (picoseconds)."""

    one: str
    other: str
    begin: int
    end: int


class Arrival(NamedTuple):
    """A frame has arrived at the far end of a link."""

    time: int
    link: str
    to: int
    sender: int
    length: int


class Fabric:
    """The two leaves in virtual time, and all that arrives."""

    def __init__(
        self,
        frames: list[Frame],
        links: LinkProperties,
        topology: Topology,
        *,
        priorities: bool = False,
        outage: Outage | None = None,
    ) -> None:
        self.arrivals: list[Arrival] = []
        senders = {f"h{i}": Sender(sorted(f for f in frames if f.sender == i)) for i in range(1, 5)}
        self.network = VirtualNetwork(
            topology.with_properties(**dict(links)),
            {name: Router(name) for name in WAYS},
            senders,
            host=HostModel(0.0),
            observer=self._note,
            priorities=priorities,
        )
        for name, sender in senders.items():
            if sender.frames:
                self.network.wake(name, sender.frames[0].time / SECOND)
        if outage:
            self.network.cut(outage.one, outage.other, outage.begin / SECOND, outage.end / SECOND)
        self.network.run()

    def _note(self, arrived: Transit, store: Packets) -> None:
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


frames = st.builds(
    Frame,
    time=st.integers(0, 40_000_000),
    sender=st.integers(1, 4),
    to=st.sampled_from((EVERYBODY, 1, 3, 3, 3)),
    length=st.integers(60, 1514),
    priority=st.sampled_from((0, 0, 3, 7)),
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
