"""Timers of virtual points that say nothing of them: they follow from the paths, and expire for losses only."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fanin.experiments.models.timers import flows_round_trip, longest_round_trip, mistimed, recovery
from fanin.experiments.results.measured import row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

pytestmark = pytest.mark.slow

RACKS = {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "100 Gb/s", "oversubscription": 4}


def point(shape: dict[str, Any] = RACKS, **rest: Any) -> Settings:
    return Settings.model_validate({"topology": {"leaf_spine": shape}, "size": "400 kB"} | rest).settled


def test_a_round_trip_has_each_links_bits_and_delay_the_hosts_notice_and_the_windows_before_it() -> None:
    packet = 8 * (42 + 1038 + 24) / 100e9
    assert longest_round_trip(point(window=64)) == pytest.approx(
        4 * packet + 4 * 1e-6 + 4e-6 + 64 * packet,  # the uplink is as fast as a host's link
        rel=1e-3,
    )


@pytest.mark.parametrize(("algorithm", "packets"), [("in-network", 3), ("ring", 6)])
def test_no_more_packets_wait_than_are_sent_of_a_vector(algorithm: str, packets: int) -> None:
    size = "2560 B"  # three packets, which a ring of eight sends twice, but for an eighth
    wide, narrow, less = (
        longest_round_trip(point(algorithm=algorithm, window=window, size=size))
        for window in (512, packets, packets - 1)
    )
    assert wide == narrow > less


@pytest.mark.parametrize(
    ("algorithm", "placement", "window_per", "windows"),
    [
        ("ring", "packed", "connection", 1),
        ("ring", "spread", "connection", 4),
        ("parameter-server", "packed", "host", 7),
        ("parameter-server", "packed", "connection", 16),
    ],
)
def test_a_queue_holds_a_window_of_each_connection_or_host_that_sends_over_its_link(
    algorithm: str, placement: str, window_per: str, windows: int
) -> None:
    few, many = (
        longest_round_trip(
            point(
                algorithm=algorithm, placement=placement, window=window, window_per=window_per, size="40 MB"
            )
        )
        for window in (100, 200)
    )
    packet = 8 * (42 + 22 + 1024 + 24) / 100e9
    assert many - few == pytest.approx(100 * windows * packet)


@pytest.mark.parametrize(
    "shape", [RACKS, {"spines": 0, "leaves": 1}, {"spines": 0, "leaves": 1, "rate": "10 kb/s"}]
)
def test_timers_are_in_order_whatever_the_links(shape: dict[str, Any]) -> None:
    timers = recovery(point(shape))
    assert 0 < timers.min_rto < timers.initial_rto <= timers.max_rto


@pytest.mark.parametrize("given", [{"initial_rto": 1e-3}, {"min_rto": 5e-5}, {"granularity": 1e-3}])
def test_timers_that_a_scenario_leaves_out_suit_its_paths_all_the_same(given: dict[str, float]) -> None:
    assert recovery(point(recovery=given)) == replace(recovery(point()), **given)


@pytest.mark.parametrize(
    "algorithm", ["in-network", "ring", "halving-doubling", "double-binary-tree", "parameter-server"]
)
@pytest.mark.parametrize("rest", [{"placement": "spread"}, {"coalescing": 0, "window": 16}])
def test_nothing_is_sent_again_where_nothing_is_lost(
    switch: Engine, algorithm: str, rest: dict[str, Any]
) -> None:
    assert run_virtual(point(algorithm=algorithm, size="200 kB", **rest), switch).retransmissions == 0


def test_timers_of_other_traffic_suit_its_own_packets_however_short_the_vector(switch: Engine) -> None:
    """Flows of hosts below one leaf wait for the uplink behind whole windows of each other."""
    shape = {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "10 Gb/s", "oversubscription": 4}
    traffic = {"pattern": "poisson", "sizes": "hadoop", "load": "20%", "duration": "5 ms"}
    settings = point(shape, size="4 kB", workers=2, placement="spread", traffic=traffic)
    run = run_virtual(settings, switch)
    packets = sum(-(-flow.bytes // settings.payload) for flow in run.usage.flows)
    carried = sum(link.packets for link in run.usage.links if link.near.startswith("h"))
    assert carried < 2.2 * packets + 100  # each packet has an acknowledgement, and the job a few


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_timers_of_a_job_allow_for_other_traffic_of_its_own_hosts(switch: Engine, algorithm: str) -> None:
    """Packets of the job wait on their host's link behind a whole window of what the host sends to storage."""
    shape = {"spines": 0, "leaves": 1, "hosts_per_leaf": 4, "rate": "10 Gb/s"}
    traffic = {"pattern": "checkpoint", "size": "1 MB", "period": "5 ms", "duration": "1 ms"}
    settings = point(
        shape, size="4 kB", algorithm=algorithm, workers=2, repetitions=40, traffic=traffic, seed=1
    )
    run = run_virtual(settings, switch)
    assert run.retransmissions == 0
    assert run.traffic is not None
    assert run.traffic.p50 > 100e-6  # both used the links at the same time


def test_a_flow_waits_behind_a_window_of_each_that_shares_its_link() -> None:
    sizes = {("h3", "h7"): 10**6, ("h4", "h7"): 10**6, ("h4", "h8"): 4096}
    few, many = (flows_round_trip(point(), sizes, window) for window in (100, 200))
    packet = 8 * (42 + 22 + 1024 + 24) / 100e9
    assert many - few == pytest.approx(200 * packet)  # the third flow has four packets
    assert few > 204 * packet


def test_a_loss_costs_a_few_round_trips(switch: Engine) -> None:
    """Not the 20 ms of a live worker's shortest timeout."""
    lossy = run_virtual(point(links={"loss": 0.001}), switch)
    whole = run_virtual(point(), switch)
    assert lossy.link_events["lost"] > 0
    assert lossy.median < whole.median + 6 * longest_round_trip(point())


@pytest.mark.parametrize("given", [{}, {"initial_rto": "500 us", "min_rto": "100 us"}])
def test_rows_have_the_timers_and_the_window_that_were_in_effect(
    switch: Engine, given: dict[str, str]
) -> None:
    settings = point(recovery=given, size="4 kB")
    timers = recovery(settings)
    columns = row(settings, run_virtual(settings, switch))
    assert columns["window"] == 512
    assert (columns["delay"], columns["overhead"]) == (1e-6, 24)
    assert columns["uplink_rate"] == 100_000_000_000
    for name in ("initial_rto", "min_rto", "max_rto", "granularity", "give_up", "packet_threshold"):
        assert columns[name] == getattr(timers, name)


def test_with_a_higher_threshold_what_is_only_overtaken_is_not_sent_again(switch: Engine) -> None:
    """Timers follow from the paths all the same."""
    sprayed = {"algorithm": "ring", "paths": "spray", "placement": "spread", "window": 64}
    shape = {"spines": 4, "leaves": 2, "hosts_per_leaf": 4, "rate": "10 Gb/s"}
    strict, patient = (
        point(shape, **sprayed, recovery={"packet_threshold": threshold}) for threshold in (3, 64)
    )
    assert recovery(strict) == replace(recovery(patient), packet_threshold=3)
    rows = [row(settings, run_virtual(settings, switch)) for settings in (strict, patient)]
    assert [columns["packet_threshold"] for columns in rows] == [3, 64]
    assert rows[0]["retransmissions"] > 0 == rows[1]["retransmissions"]


def test_a_timeout_far_above_the_round_trip_is_told_where_packets_are_lost() -> None:
    slow = {"recovery": {"min_rto": "20 ms"}}
    lossy = {"links": {"loss": 0.001}}
    assert "recovery.min_rto: is 20,000 us, but the longest round trip takes 43 us" in (
        mistimed(point(**slow, **lossy)) or ""
    )
    assert mistimed(point(**slow)) is None
    assert mistimed(point(**lossy)) is None
    assert mistimed(point(recovery={"min_rto": "100 us"}, **lossy)) is None
