"""The event loop: nodes act in the order of time, nothing is forgotten, and a seed has one history."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fanin.simulator import History, HostModel, VirtualNetwork
from fanin.simulator.units import SECOND
from fanin.topologies.link import PLAIN, LinkProperties
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine


@dataclass
class Flood:
    """A switch that sends each packet out of every other of its ports, and notes what it saw."""

    ports: int
    seen: list[tuple[int, int, int]] = field(default_factory=list)  # time, port, first byte

    def process(self, port: int, packet: bytes, now: int) -> list[tuple[int, bytes]]:
        self.seen.append((now, port, packet[0]))
        return [(out, packet) for out in range(1, self.ports + 1) if out != port]


@dataclass
class Talker:
    """Sends one frame, beginning with `mark`, at each of `times`; notes what it receives and when."""

    mark: int
    times: list[float] = field(default_factory=list)
    heard: list[tuple[float, int]] = field(default_factory=list)

    def receive(self, frames: NDArray[np.uint8], lengths: NDArray[np.int64], now: float) -> None:
        assert (lengths == 100).all()
        self.heard += [(now, int(mark)) for mark in frames[:, 0]]

    def frames_to_send(self, now: float) -> Sequence[NDArray[np.uint8]]:
        due = [time for time in self.times if time <= now]
        self.times = self.times[len(due) :]
        return [np.full((1, 100), self.mark, np.uint8) for _ in due]

    def deadline(self) -> float | None:
        return self.times[0] if self.times else None


class World:
    """One leaf with a talker on each of three hosts."""

    def __init__(
        self, times: dict[int, list[float]], *, ports: int = 3, links: LinkProperties = PLAIN, seed: int = 1
    ) -> None:
        self.topology: Topology = leaf_spine(0, 1, 3, properties=links)
        self.switch = Flood(ports)
        self.talkers = {f"h{i}": Talker(i, times.get(i, [])) for i in (1, 2, 3)}
        self.history = History()
        self.network = VirtualNetwork(
            self.topology,
            {"leaf1": self.switch},
            self.talkers,
            host=HostModel(coalescing=2e-6),
            seed=seed,
            observer=self.history,
        )
        for name, talker in self.talkers.items():
            if talker.times:
                self.network.wake(name, talker.times[0])


def test_a_window_in_which_all_is_sent_to_ports_without_a_link() -> None:
    network = VirtualNetwork(leaf_spine(0, 1, 1), {"leaf1": Flood(2)}, {"h1": Talker(1, [0.0])})
    network.wake("h1", 0.0)
    network.run()
    assert network.faults == {"no link": 1}


def test_a_frame_crosses_the_switch_and_is_noticed_after_the_host_s_coalescing() -> None:
    world = World({1: [0.0]}, links=LinkProperties(delay=1e-6))
    world.network.run()
    assert world.talkers["h2"].heard == [(pytest.approx(4e-6), 1)]
    assert world.talkers["h3"].heard == [(pytest.approx(4e-6), 1)]
    assert world.talkers["h1"].heard == []
    assert world.network.hops == 3


def test_a_switch_sees_packets_in_the_order_of_time() -> None:
    times = {i: [k * 1e-7 * (4 - i) for k in range(50)] for i in (1, 2, 3)}
    world = World(times)
    world.network.run()
    assert len(world.switch.seen) == 150
    assert [time for time, _, _ in world.switch.seen] == sorted(time for time, _, _ in world.switch.seen)


def test_nothing_is_left_when_nothing_happens_any_more() -> None:
    world = World({1: [0.0, 1e-5], 2: [3e-6]}, links=LinkProperties(loss=0.2, duplication=0.3))
    assert not world.network.run()
    assert world.network.in_flight == 0


def test_run_ends_when_the_condition_holds_or_the_limit_is_reached() -> None:
    world = World({1: [0.0, 1e-3]})
    assert world.network.run(lambda: bool(world.talkers["h2"].heard), limit=1.0)
    assert not world.network.run(limit=9e-4)
    assert len(world.talkers["h2"].heard) == 1
    world.network.run()
    assert len(world.talkers["h2"].heard) == 2


def test_a_stalled_host_neither_sends_nor_receives() -> None:
    world = World({1: [0.0], 2: [1e-5]})
    world.network.stall("h2", 0.0, 1e-3)
    world.network.run()
    assert world.talkers["h2"].heard == [(1e-3, 1)]
    assert world.talkers["h1"].heard[0][0] > 1e-3


def test_nothing_crosses_a_link_that_is_down_in_either_direction() -> None:
    world = World({1: [0.0, 1e-4, 3e-4], 2: [1e-4]})
    world.network.cut("leaf1", "h2", 5e-5, 2e-4)
    world.network.run()
    assert [round(time, 5) for time, _ in world.talkers["h2"].heard] == [0, 3e-4]
    assert [round(time, 5) for time, mark in world.talkers["h3"].heard if mark == 1] == [0, 1e-4, 3e-4]
    assert not [mark for _, mark in world.talkers["h3"].heard if mark == 2]
    assert world.network.faults["loss"] == 2


def test_what_goes_to_a_port_without_a_link_is_counted() -> None:
    world = World({1: [0.0]}, ports=5)
    world.network.run()
    assert world.network.faults["no link"] == 2
    assert world.network.in_flight == 0


def test_a_host_without_a_station_ignores_what_arrives() -> None:
    topology = leaf_spine(0, 1, 3)
    network = VirtualNetwork(topology, {"leaf1": Flood(3)}, {"h1": Talker(1, [0.0])})
    network.wake("h1", 0.0)
    network.run()
    assert network.in_flight == 0
    assert network.hops == 3


def test_a_seed_has_one_history_and_another_seed_another() -> None:
    def digest(seed: int) -> str:
        times = {i: [k * 1e-6 for k in range(100)] for i in (1, 2, 3)}
        links = LinkProperties(loss=0.1, duplication=0.1, reordering=0.2, displacement=1e-5)
        world = World(times, links=links, seed=seed)
        world.network.run()
        return world.history.digest

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


def test_a_restarted_switch_and_a_replaced_station_take_over() -> None:
    world = World({1: [0.0, 1e-3]})
    world.network.run(limit=5e-4)
    world.network.replace_switch("leaf1", Flood(2))
    late = Talker(2)
    world.network.replace_station("h2", late, 6e-4)
    world.network.run()
    assert len(late.heard) == 1
    assert len(world.talkers["h3"].heard) == 1


def test_an_error_of_a_program_ends_the_run() -> None:
    world = World({1: [0.0]})
    world.network.replace_switch("leaf1", Flood("no number"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="can only concatenate str"):
        world.network.run()


# -- against single events


@dataclass
class SingleEvents:
    """The same world with a heap of single events in the order of (time, link, order of sending)."""

    rate: int
    delays: tuple[int, int, int]  # of each host's link, picoseconds
    coalescing: int
    seen: list[tuple[int, int]] = field(default_factory=list)  # by the switch: time, host
    heard: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: {1: [], 2: [], 3: []})

    def run(self, sending: list[tuple[int, int]]) -> None:
        """Each (time, host): a frame."""
        duration = 124 * 8 * SECOND // self.rate
        free_at = [0] * 6  # the links, as topologies number them: host to switch, switch to host, …
        events: list[tuple[int, int, int, int]] = []  # arrivals: time, link, number, mark
        number = itertools.count()
        looks: dict[int, int] = {}

        def send(time: int, link: int, mark: int) -> None:
            free_at[link] = max(time, free_at[link]) + duration
            heapq.heappush(events, (free_at[link] + self.delays[link // 2], link, next(number), mark))

        for time, host in sorted(sending):
            send(time, 2 * (host - 1), host)
        while events:
            time, link, _, mark = heapq.heappop(events)
            host = link // 2 + 1
            if link % 2 == 0:
                self.seen.append((time // 10**6, mark))
                for other in {1, 2, 3} - {host}:
                    send(time, 2 * other - 1, mark)
            else:
                if time > looks.get(host, -1):
                    # A host that wakes to send looks, too.
                    sends = [at for at, sender in sending if sender == host and at >= time]
                    looks[host] = min([time + self.coalescing, *sends])
                self.heard[host].append((looks[host], mark))


sendings = st.lists(st.tuples(st.integers(0, 10**8), st.integers(1, 3)), min_size=1, max_size=60, unique=True)
delays = st.integers(10**6, 5 * 10**6)


@given(sending=sendings, of_links=st.tuples(delays, delays, delays), rate=st.sampled_from((10**9, 10**11)))
def test_windows_give_the_history_of_single_events(
    sending: list[tuple[int, int]], of_links: tuple[int, int, int], rate: int
) -> None:
    single = SingleEvents(rate, of_links, coalescing=2_000_000)
    single.run(sending)

    topology = leaf_spine(0, 1, 3, rate=rate)
    links = [
        link.model_copy(update={"properties": LinkProperties(delay=delay / SECOND)})
        for link, delay in zip(topology.links, of_links, strict=True)
    ]
    topology = topology.model_copy(update={"links": tuple(links)})
    switch = Flood(3)
    talkers = {
        f"h{i}": Talker(i, sorted(time / SECOND for time, host in sending if host == i)) for i in (1, 2, 3)
    }
    network = VirtualNetwork(topology, {"leaf1": switch}, talkers, host=HostModel(2e-6))
    for name, talker in talkers.items():
        if talker.times:
            network.wake(name, talker.times[0])
    network.run()
    assert [(time, mark) for time, _, mark in switch.seen] == single.seen
    for i in (1, 2, 3):
        heard = [(round(time * SECOND), mark) for time, mark in talkers[f"h{i}"].heard]
        assert heard == single.heard[i]
