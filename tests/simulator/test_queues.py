"""Queues by priority, pauses of one of them, and the watchdog; all as in a model that takes each instant by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fanin.simulator.units import SECOND
from fanin.topologies.link import ETHERNET_OVERHEAD, LinkModel, LinkProperties, Pause, Watchdog
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from tests.simulator.one_switch import OneSwitch
from tests.simulator.single_events import SingleEvents
from tests.simulator.two_leaves import (
    GIGABIT,
    Fabric,
    Frame,
    Outage,
    delays,
    fabrics,
    stream,
    thresholds,
    traffic,
)
from tests.sizes import sized

pytestmark = pytest.mark.slow

FRAME = 1000  # bytes
BYTE = 8 * SECOND // GIGABIT
EACH = (FRAME + ETHERNET_OVERHEAD) * BYTE
DELAY = 1_000_000  # picoseconds, where none is given
PAUSE = Pause(xoff_bytes=10_000, xon_bytes=5_000)
ROOMY = leaf_spine(1, 2, 2, rate=GIGABIT, uplink_rate=2 * GIGABIT)

unhurried = settings(max_examples=sized(16, 50))


class OneLink:
    """A link of 1 Gb/s from a switch, with a queue for each priority."""

    def __init__(self, model: LinkModel, *, priorities: bool = True) -> None:
        self._switch = OneSwitch([GIGABIT], [model], priorities=priorities)
        self.network = self._switch.network

    def send(self, frames: list[Frame]) -> list[tuple[int, int]]:
        """Return which frame (its `to`) arrives, and when."""
        return self.send_bytes([frame.time for frame in frames], [frame.as_bytes() for frame in frames])

    def send_bytes(self, times: list[int], frames: list[NDArray[np.uint8]]) -> list[tuple[int, int]]:
        arrived = self._switch.send(times, frames)
        return list(zip(arrived.rows[:, 0].tolist(), arrived.times.tolist(), strict=True))


def frame(time: int, number: int, priority: int) -> Frame:
    return Frame(time, 0, number, FRAME, priority)


def test_the_highest_priority_goes_first_and_interrupts_nothing() -> None:
    sent = [frame(0, 1, 0), frame(0, 2, 0), frame(10, 3, 1), frame(20, 4, 7)]
    arrived = OneLink(LinkModel()).send(sent)
    assert arrived == [(number, EACH * (i + 1) + DELAY) for i, number in enumerate((1, 4, 3, 2))]


def test_without_priorities_all_packets_are_alike() -> None:
    sent = [frame(0, 1, 0), frame(0, 2, 0), frame(10, 3, 1), frame(20, 4, 7)]
    assert [who for who, _ in OneLink(LinkModel(pause=PAUSE), priorities=False).send(sent)] == [1, 2, 3, 4]


def test_what_is_not_ipv4_is_of_the_lowest_priority() -> None:
    link = OneLink(LinkModel())
    other = frame(0, 1, 7).as_bytes()
    other[12] = 0x86
    # Behind one that is being sent.
    frames = [frame(0, 4, 0).as_bytes(), other, frame(0, 2, 0).as_bytes(), frame(0, 3, 1).as_bytes()]
    assert [who for who, _ in link.send_bytes([0, 1, 1, 1], frames)] == [4, 3, 1, 2]


def test_each_priority_has_a_queue_of_the_whole_length() -> None:
    link = OneLink(LinkModel(queue_bytes=3 * (FRAME + ETHERNET_OVERHEAD)))
    sent = [frame(0, 10 * priority + i, priority) for priority in (0, 5) for i in range(5)]
    arrived = [who for who, _ in link.send(sent)]
    assert arrived == [50, 51, 52, 0, 1, 2]
    assert link.network.links.counts.queue_drops[0] == 4


def test_it_is_known_for_how_long_a_priority_waited_for_higher_ones() -> None:
    """Not for its like, not for what was being sent when it came, and only as long as some of it is there."""
    link = OneLink(LinkModel())
    link.send([frame(0, 1, 3), frame(0, 2, 3), frame(10, 3, 1), frame(20, 4, 7), frame(4 * EACH, 5, 7)])
    overtaken = {priority: time for priority, time in enumerate(link.network.overtaken[0].tolist()) if time}
    assert overtaken == {1: 2 * EACH, 3: EACH}
    packets = link.network.wire_bytes[0] / (FRAME + ETHERNET_OVERHEAD)
    assert packets.tolist() == [0, 1, 0, 2, 0, 0, 0, 2]


def test_a_low_priority_waits_for_later_windows_behind_a_high_one() -> None:
    link = OneLink(LinkModel())
    arrived = link.send([frame(0, 1, 0), frame(0, 2, 0), frame(EACH // 2, 3, 2)])
    assert [who for who, _ in arrived] == [1, 3, 2]


def with_priority(frames: list[Frame], priority: int) -> list[Frame]:
    return [one._replace(priority=priority) for one in frames]


def test_a_paused_priority_stops_no_other() -> None:
    """An incast of one priority pauses h1's and h2's links; h2's frames of another do not notice."""
    incast = with_priority(stream(1, 3, 200) + stream(4, 3, 200), 1)
    model = LinkProperties(pause=PAUSE)
    victim = with_priority(stream(2, 4, 150), 2)
    alone = Fabric(victim, model, ROOMY, priorities=True)
    beside = Fabric(incast + victim, model, ROOMY, priorities=True)
    same = Fabric(incast + with_priority(victim, 1), model, ROOMY, priorities=True)
    assert beside.network.faults["pause"] > 0
    assert beside.last_arrival(2) < 1.03 * alone.last_arrival(2)
    assert same.last_arrival(2) > 1.7 * alone.last_arrival(2)


def storm(action: str, **changes: float) -> Fabric:
    """h1 and h4 send to h3, whose link is slow; leaf1's queue to the spine is paused for longer than 20 us."""
    watchdog = Watchdog.model_validate(
        {"detection_time": 20e-6, "restoration_time": 100e-6, "action": action} | changes
    )
    pause = PAUSE.model_copy(update={"watchdog": watchdog})
    return Fabric(stream(1, 3, 100) + stream(4, 3, 100), LinkProperties(pause=pause), ROOMY)


def test_a_watchdog_drops_what_waits_behind_a_long_pause() -> None:
    fabric = storm("drop")
    faults = fabric.network.faults
    counts = fabric.network.links.counts
    came = sum(arrival.link.endswith("h3") for arrival in fabric.arrivals)
    assert faults["storm"] == counts.storms.sum() > 0
    assert faults["watchdog drop"] == counts.watchdog_drops.sum() == 200 - came > 0
    assert not faults["queue drop"]
    hosts = [near.startswith("h") for near, _ in fabric.network.link_ends]
    assert not counts.storms[hosts].any(), "it is of switches"


def test_a_watchdog_that_forwards_drops_nothing() -> None:
    fabric = storm("forward")
    assert fabric.network.faults["storm"] > 0
    assert not fabric.network.faults["watchdog drop"]
    assert sum(arrival.link.endswith("h3") for arrival in fabric.arrivals) == 200


def test_a_watchdog_that_only_alerts_counts() -> None:
    quiet, alert = storm("drop", detection_time=1.0), storm("alert")
    assert alert.network.faults["storm"] > 0
    assert alert.arrivals == quiet.arrivals


def test_a_patient_watchdog_does_nothing() -> None:
    fabric = storm("drop", detection_time=1.0)
    assert fabric.network.faults["pause"] > 0
    assert not fabric.network.faults["storm"]


microseconds = st.integers(0, 60).map(lambda number: number / 1e6)
watchdogs = st.builds(
    Watchdog,
    detection_time=microseconds,
    restoration_time=microseconds,
    action=st.sampled_from(("drop", "forward", "alert")),
)
outages = st.builds(
    lambda link, begin, length: Outage(*link, begin, begin + length),
    st.sampled_from((("leaf1", "spine1"), ("spine1", "leaf2"), ("h4", "leaf2"), ("h1", "leaf1"))),
    st.integers(5_000_000, 150_000_000),
    st.integers(1, 100_000_000),
)


@unhurried
@given(
    traffic=traffic,
    topology=fabrics,
    delay=delays,
    pause=thresholds,
    queue=st.sampled_from((None, None, 3000, 8000)),
    watchdog=st.none() | watchdogs,
    priorities=st.booleans(),
    outage=st.none() | outages,
)
def test_windows_give_the_history_of_single_events(
    traffic: list[Frame],
    topology: Topology,
    delay: float,
    pause: Pause,
    queue: int | None,
    watchdog: Watchdog | None,
    priorities: bool,
    outage: Outage | None,
) -> None:
    pause = pause.model_copy(update={"watchdog": watchdog})
    model = LinkProperties(delay=delay, queue_bytes=queue, pause=pause)
    single = SingleEvents(topology, model, priorities=priorities, outage=outage)
    single.run(traffic)
    fabric = Fabric(traffic, model, topology, priorities=priorities, outage=outage)
    assert sorted(fabric.arrivals) == sorted(single.arrivals)
    faults = fabric.network.faults
    assert faults["queue drop"] == single.drops
    assert faults["loss"] == single.lost
    assert faults["pause"] == single.pauses
    assert (faults["storm"], faults["watchdog drop"]) == (single.storms, single.given_up)
    assert fabric.network.in_flight == 0
