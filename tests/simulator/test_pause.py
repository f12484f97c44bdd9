"""Priority flow control: nothing is dropped, what waits for a busy port keeps others waiting, and pauses end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.simulator.links import headroom_bytes
from fanin.simulator.units import SECOND
from fanin.topologies.link import LinkProperties, Pause
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from tests.simulator.two_leaves import (
    EVERYBODY,
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
    assert fabric.network.in_flight == 0


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


def test_a_pause_frame_does_not_cross_a_link_that_is_down_and_is_said_again_when_it_is_up() -> None:
    """As above, but that the link goes down while the frame is on it: the host stops a delay after it is up."""
    topology = leaf_spine(1, 2, 2, rate=GIGABIT, uplink_rate=GIGABIT // 10)
    model = LinkProperties(delay=10e-6, pause=Pause(xoff_bytes=2 * 1024, xon_bytes=1024))
    each, delay = 1024 * 8 * SECOND // GIGABIT, 10 * SECOND // 10**6
    stop = delay + 4 * each + delay
    outage = Outage("h1", "leaf1", stop - delay // 2, stop + delay // 2)
    fabric = Fabric(stream(1, 3, 20), model, topology, outage=outage)
    came = [a.time for a in fabric.arrivals if a.link == "h1 > leaf1"]
    begun = range(0, outage.end + delay, each)
    arrived = [at + each + delay for at in begun if at >= outage.end or at + each + delay <= outage.begin]
    assert came[: len(arrived)] == arrived
    assert came[len(arrived)] > arrived[-1] + each, "here it waits"
    assert len(came) + fabric.network.faults["loss"] == 20


def test_a_pause_ends_where_its_link_goes_down() -> None:
    """The packets that waited for h3's port, a link before it, are lost."""
    begin, end = SECOND // 1000, SECOND // 1000 + 10 * SECOND // 10**6
    outage = Outage("spine1", "leaf2", begin, end)
    fabric = Fabric(INCAST, LinkProperties(delay=1e-6, pause=PAUSE), ROOMY, outage=outage)
    whole = Fabric(INCAST, LinkProperties(delay=1e-6, pause=PAUSE), ROOMY)
    came = [a.time for a in fabric.arrivals if a.link == "spine1 > leaf2"]
    paused, before = (fabric.of_link(one.network.links.counts.paused) for one in (fabric, whole))
    assert not [time for time in came if begin < time <= end]
    assert fabric.network.faults["loss"] > 0
    assert paused["spine1 > leaf2"] < before["spine1 > leaf2"]
    assert fabric.network.in_flight == 0


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


unhurried = settings(max_examples=sized(16, 50))


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
