"""Deadlocks of priority flow control: found where there are some, named, and only there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from fanin.simulator import SECOND, HostModel, VirtualNetwork
from fanin.simulator.deadlock import DeadlockError, Waiting, describe
from fanin.topologies.link import LinkProperties, Pause, Watchdog
from fanin.topologies.override import Override, override
from fanin.topologies.shapes import leaf_spine
from tests.simulator.two_leaves import Frame, Sender, stream

pytestmark = pytest.mark.slow

GIGABIT = 10**9


def circle(stopped: list[bool], queued: list[tuple[int, int, int]], xon: int = 1000) -> list[int]:
    rows = np.array(queued, np.int64).reshape(-1, 3)
    return Waiting.of(np.array(stopped), np.full(len(stopped), xon), rows).circle()


def test_lanes_that_wait_for_one_another_are_a_circle() -> None:
    assert circle([True] * 3, [(0, 1, 1001), (1, 2, 1001), (2, 0, 1001)]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("stopped", "last"),
    [([True, True, False], 1001), ([True] * 3, 1000)],
    ids=["one goes on", "one will be let go"],
)
def test_one_of_them_that_goes_on_lets_go_all(stopped: list[bool], last: int) -> None:
    assert circle(stopped, [(0, 1, 2000), (1, 2, 2000), (2, 0, last)]) == []


def test_who_only_waits_for_a_circle_is_no_part_of_it() -> None:
    queued = [(0, 1, 2000), (1, 2, 2000), (2, 1, 2000)]
    assert circle([True] * 3, queued) == [1, 2]


def test_what_waits_in_several_queues_counts_as_far_as_these_stand_still() -> None:
    assert circle([True] * 2, [(0, 1, 900), (0, 1, 200), (1, 0, 2000)]) == [0, 1]
    assert circle([True, True, False], [(0, 1, 900), (0, 2, 200), (1, 0, 2000)]) == []


def test_words_name_each_link_in_its_order() -> None:
    ends = [("a", "b"), ("b", "c"), ("c", "a")]
    assert describe([0, 1, 2], ends, 1).endswith("so none will ever send again: a → b, b → c, c → a")
    assert "of priority 3:" in describe([11, 19], ends, 8)
    assert describe([0] * 10, ends, 1).endswith(" and 2 more")


RING = [
    "leaf1",
    "spine1",
    "leaf2",
    "spine2",
    "leaf3",
    "spine3",
]  # round which everything goes, and back to leaf1


@dataclass
class Clockwise:
    """A switch of the ring: frames to its own hosts by these ports, all others go on."""

    own: dict[int, int]
    onwards: int

    def process(self, port: int, packet: bytes, now: int) -> list[tuple[int, bytes]]:  # noqa: ARG002
        return [(self.own.get(packet[0], self.onwards), packet)]


def ring(pause: Pause) -> VirtualNetwork:
    """Three leaves in a ring, each of whose two hosts sends to the leaf after the next one."""
    down = [
        Override(link=(f"leaf{leaf}", f"spine{spine}"), down=True) for leaf, spine in ((1, 2), (2, 3), (3, 1))
    ]
    topology = override(leaf_spine(3, 3, 2, rate=GIGABIT, properties=LinkProperties(pause=pause)), down)
    topology = topology.with_properties(pause=pause)
    programs = {}
    for name, after in zip(RING, [*RING[1:], RING[0]], strict=True):
        own = {host.rank + 1: topology.port_towards(name, host.name) for host in topology.hosts_of(name)}
        programs[name] = Clockwise(own, topology.port_towards(name, after))
    stations = {}
    for rank in range(6):
        frames: list[Frame] = stream(rank + 1, (rank + 4) % 6 + 1, 200)
        stations[f"h{rank + 1}"] = Sender(frames)
    network = VirtualNetwork(topology, programs, stations, host=HostModel(0.0))
    for name in stations:
        network.wake(name, 0.0)
    return network


def test_a_ring_whose_links_pause_stands_still_and_says_so() -> None:
    network = ring(Pause(xoff_bytes=10_000, xon_bytes=5_000))
    with pytest.raises(DeadlockError) as error:
        network.run()
    for near, far in zip(RING, [*RING[1:], RING[0]], strict=True):
        assert f"{near} → {far}" in str(error.value)
    assert "h1" not in str(error.value), "hosts wait for it, and are no part of it"


@pytest.mark.parametrize("action", ["drop", "forward"])
def test_a_watchdog_lets_it_go_on(action: str) -> None:
    watchdog = Watchdog.model_validate(
        {"detection_time": 100e-6, "restoration_time": 100e-6, "action": action}
    )
    network = ring(Pause(xoff_bytes=10_000, xon_bytes=5_000, watchdog=watchdog))
    assert not network.run()
    assert network.in_flight == 0
    assert network.faults["storm"] > 0
    assert (network.faults["watchdog drop"] > 0) == (action == "drop")


def test_without_pauses_it_does_not_stand_still() -> None:
    network = ring(Pause(xoff_bytes=10**9, xon_bytes=0))
    assert not network.run()
    assert network.in_flight == 0
    assert network.now < SECOND
