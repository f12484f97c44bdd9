"""Conservation laws of what links count: packets, and the bytes in their queues over time."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.simulator.units import SECOND
from fanin.topologies.link import ETHERNET_OVERHEAD, LinkModel, LinkProperties, Pause, Watchdog
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from tests.simulator.one_switch import FEED, OneSwitch
from tests.simulator.two_leaves import (
    EVERYBODY,
    GIGABIT,
    Fabric,
    Frame,
    Outage,
    delays,
    fabrics,
    ports_for,
    stream,
    thresholds,
    traffic,
)
from tests.sizes import sized

pytestmark = pytest.mark.slow

BYTE = 8 * SECOND // GIGABIT
MICROSECOND = SECOND // 10**6
ROOM = 6000  # bytes

packets = st.lists(st.tuples(st.integers(0, 60), st.integers(60, 1514)), min_size=1, max_size=40)


@pytest.mark.parametrize("priorities", [False, True])
@given(sent=packets, looks=st.lists(st.integers(0, 400), min_size=1, max_size=4).map(sorted))
@settings(max_examples=sized(25, 100), deadline=None)
def test_depths_are_those_of_a_queue_that_drains_at_the_link_s_rate(
    priorities: bool, sent: list[tuple[int, int]], looks: list[int]
) -> None:
    """A queue has what is accepted and not yet sent, to the last byte; sizes are taken as fractions here."""
    model = LinkModel(overhead=0, queue_bytes=ROOM)
    switch = OneSwitch([GIGABIT], [model], priorities=priorities)
    network = switch.network
    sent = sorted(sent)
    switch.schedule(
        [time * MICROSECOND for time, _ in sent],
        [np.zeros(length, np.uint8) for _, length in sent],
        [0] * len(sent),
    )
    content, at, area, deepest, accepted = Fraction(0), 0, Fraction(0), Fraction(0), 0

    def drain(until: int) -> None:
        nonlocal content, at, area
        busy = min(Fraction(until - at), content * BYTE)
        area += busy * (content - busy / BYTE / 2)
        content, at = content - busy / BYTE, until

    begin = -1
    for look in looks:
        network.run(limit=(look * MICROSECOND + FEED) / SECOND)
        now = network.now - FEED  # packets that have come to the switch until then are in the queue, or sent
        if now < 0:
            continue
        for time, length in ((t * MICROSECOND, n) for t, n in sent if begin <= t * MICROSECOND < now):
            drain(time)
            if content + length <= ROOM:
                content += length
                accepted += 1
            deepest = max(deepest, content)
        drain(now)
        begin = now
        assert network.links.queue_depths(network.now)[0] == pytest.approx(float(content), abs=1)
        assert network.queue_areas[0] == pytest.approx(float(area / 1000), abs=1 + len(sent) * 1600)
    counts = network.links.counts
    assert counts.longest_queue[0] == pytest.approx(float(deepest), abs=1)
    assert counts.queue_drops[0] == sum(t * MICROSECOND < begin for t, _ in sent) - accepted


def copies(fabric: Fabric) -> int:
    """Return how many packets the switches sent for those that have arrived there."""
    ports = {}
    for link in fabric.network.topology.links:
        for here, there in ((link.a, link.b), (link.b, link.a)):
            ports[f"{there.node} > {here.node}"] = here.port
    return sum(
        len(ports_for(switch, arrival.to, ports[arrival.link]))
        for arrival in fabric.arrivals
        if (switch := arrival.link.split(" > ")[1]).startswith(("leaf", "spine"))
    )


@given(
    traffic,
    fabrics,
    delays,
    st.one_of(st.none(), thresholds),
    st.booleans(),
    st.one_of(st.none(), st.integers(2000, 20_000)),
    st.sampled_from((0.0, 0.2)),
    st.booleans(),
)
@settings(max_examples=sized(40, 200), deadline=None)
def test_what_is_sent_is_delivered_lost_or_dropped_and_the_mean_is_below_the_longest(
    frames: list[Frame],
    topology: Topology,
    delay: float,
    pause: Pause | None,
    priorities: bool,
    room: int | None,
    loss: float,
    down: bool,
) -> None:
    watched = pause and pause.model_copy(
        update={"watchdog": Watchdog(detection_time=2e-5, restoration_time=2e-5)}
    )
    properties = LinkProperties(delay=delay, pause=watched, queue_bytes=room, loss=loss)
    outage = Outage("leaf1", "spine1", 10 * MICROSECOND, 30 * MICROSECOND) if down else None
    fabric = Fabric(frames, properties, topology, priorities=priorities, outage=outage)
    network, counts = fabric.network, fabric.network.links.counts
    assert network.in_flight == 0
    assert (counts.packets == counts.arrived + counts.lost).all()
    assert (network.links.queue_depths(network.now + SECOND) == 0).all()  # what is lost is still sent
    for link, (near, _) in enumerate(network.link_ends):
        sizes = [
            frame.length + ETHERNET_OVERHEAD for frame in frames if near == f"h{frame.sender}"
        ]  # of what the host sends
        if near.startswith("h"):
            assert counts.packets[link] == len(sizes)
            assert counts.longest_queue[link] <= sum(sizes)
        mean = network.queue_areas[link] * 1000 / network.now
        assert mean <= counts.longest_queue[link] + 1
        lanes = 8 if priorities else 1
        if room and not near.startswith("h"):
            assert counts.longest_queue[link] <= lanes * room + 1
    through = np.array([not near.startswith("h") for near, _ in network.link_ends])
    sent = (counts.packets + counts.queue_drops + counts.watchdog_drops)[through].sum()
    assert sent == copies(fabric)


def test_a_paused_link_has_no_more_in_its_queue_than_was_sent_to_it() -> None:
    """Time in a paused queue is not bytes: this host has 200 kB, and waits for longer than that takes to send."""
    frames = stream(1, 3, 200) + stream(4, 3, 200) + stream(2, EVERYBODY, 1)
    fabric = Fabric(
        frames,
        LinkProperties(pause=Pause(xoff_bytes=10_000, xon_bytes=5_000)),
        leaf_spine(1, 2, 2, rate=GIGABIT, uplink_rate=2 * GIGABIT),
    )
    longest = fabric.of_link(fabric.network.links.counts.longest_queue)
    assert 10_000 < longest["h1 > leaf1"] <= 200 * 1024
