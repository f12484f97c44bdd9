"""Traffic beside a job: who sends, how much, and what of it a row tells."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fanin.experiments.results.measured import FlowTimes, row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.traffic import completed, mean_size, requests
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.flows import FinishedFlow

pytestmark = pytest.mark.slow

RACKS = {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "10 Gb/s"}
PATTERNS: list[dict[str, Any]] = [
    {"pattern": "poisson", "sizes": "web-search", "load": 0.5, "duration": "5 ms"},
    {"pattern": "poisson", "size": "20 kB", "load": 0.5, "duration": "500 us"},
    {"pattern": "on-off", "size": "20 kB", "load": 0.5, "duration": "500 us"},
    {"pattern": "incast", "size": "20 kB", "period": "100 us", "duration": "500 us", "begin": "3 us"},
    {"pattern": "incast", "size": "20 kB", "period": "100 us", "duration": "500 us", "fan": 2},
    {"pattern": "permutation", "size": "100 kB"},
    {"pattern": "fan-out", "size": "5 kB", "load": 0.5, "duration": "500 us", "fan": 3},
]


def point(traffic: dict[str, Any] | None, **rest: Any) -> Settings:
    document = {
        "topology": {"leaf_spine": RACKS},
        "size": "256 kB",
        "workers": 4,
        "placement": "spread",
    } | rest
    return Settings.model_validate(document | ({"traffic": traffic} if traffic else {})).settled


@pytest.mark.parametrize("traffic", PATTERNS)
def test_only_hosts_beside_the_job_send_and_to_one_another(traffic: dict[str, Any]) -> None:
    settings = point(traffic)
    beside = {host.name for host in settings.network.hosts} - set(settings.members)
    wanted = requests(settings)
    assert wanted
    for request in wanted:
        assert len({flow.start for flow in request}) == 1
        for flow in request:
            assert {flow.source, flow.destination} <= beside
            assert flow.source != flow.destination
            assert flow.size >= 1
            assert flow.start >= settings.traffic.begin  # type: ignore[union-attr]
    assert wanted == requests(settings) == requests(settings.model_copy(update={"size": 4}))
    if traffic["pattern"] != "incast" or "fan" in traffic:
        assert any(wanted != requests(settings.model_copy(update={"seed": seed})) for seed in range(2, 9))


@pytest.mark.parametrize("pattern", ["checkpoint", "read"])
def test_workers_write_to_storage_and_read_from_it_each_with_one_of_the_hosts_in_turn(pattern: str) -> None:
    traffic = {"pattern": pattern, "size": "20 kB", "period": "100 us", "duration": "200 us"}
    settings = point(traffic, workers=6)
    beside = [host.name for host in settings.network.hosts if host.name not in settings.members]
    flows = [flow for (flow,) in requests(settings)]
    assert Counter(flow.start for flow in flows) == {0.0: 6, 1e-4: 6}
    ways = [
        (flow.source, flow.destination) if pattern == "checkpoint" else (flow.destination, flow.source)
        for flow in flows[:6]
    ]
    assert [worker for worker, _ in ways] == list(settings.members)
    assert Counter(storage for _, storage in ways) == dict.fromkeys(beside, 3)


def test_one_host_that_is_not_a_worker_is_enough_storage(switch: Engine) -> None:
    traffic = {"pattern": "checkpoint", "size": "200 kB", "period": "1 ms", "duration": "1 ms"}
    alone, busy = (run_virtual(point(one, workers=7), switch) for one in (None, traffic))
    assert busy.violations == 0
    assert busy.traffic is not None
    assert busy.traffic.count == 7
    assert busy.median > 1.05 * alone.median
    with pytest.raises(ValidationError, match="traffic: needs a host that is not a worker, and there are 0"):
        point(traffic, workers=8)


def test_without_traffic_nothing_is_sent() -> None:
    assert requests(point(None)) == requests(point(PATTERNS[1] | {"load": 0})) == []


@given(st.integers(0, 1000))
def test_a_permutation_sends_one_flow_from_each_host_and_one_to_each(seed: int) -> None:
    flows = [flow for (flow,) in requests(point(PATTERNS[5], seed=seed))]
    assert set(Counter(flow.source for flow in flows).values()) == {1}
    assert set(Counter(flow.destination for flow in flows).values()) == {1}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "traffic",
    [
        {"pattern": "poisson", "sizes": "hadoop", "load": 0.4},
        {"pattern": "on-off", "size": "20 kB", "load": 0.4},
        {"pattern": "fan-out", "size": "20 kB", "load": 0.4, "fan": 3},
    ],
)
def test_links_are_loaded_as_is_wanted(traffic: dict[str, Any]) -> None:
    flows = [flow for request in requests(point(traffic | {"duration": "2 s"})) for flow in request]
    share = 8 * sum(flow.size for flow in flows) / (4 * 10e9 * 2)
    assert share == pytest.approx(0.4, rel=0.1)


def test_published_sizes_have_their_means() -> None:
    """Web search: about 1.6 MB, as DCTCP's and later papers say."""
    traffic = point(PATTERNS[0]).traffic
    assert traffic is not None
    assert mean_size(traffic) == pytest.approx(1.7e6, rel=0.1)


def test_a_request_is_complete_with_its_last_answer() -> None:
    wanted = requests(point(PATTERNS[6]))[:2]
    flows = [flow for request in wanted for flow in request]
    finished = [
        FinishedFlow(source=f.source, destination=f.destination, size=f.size, start=f.start, seconds=float(i))
        for i, f in enumerate(flows)
    ]
    assert [(one.size, one.seconds) for one in completed(wanted, finished)] == [(15_000, 2.0), (15_000, 5.0)]


def test_links_count_all_packets_of_the_run_and_those_of_the_job_by_themselves(switch: Engine) -> None:
    """Ten flows of 100 kB each go on for long after a job of 4 kB."""
    flows = {"pattern": "incast", "size": "100 kB", "period": "100 us", "duration": "1 ms"}
    rest = {"size": "4 kB", "topology": {"leaf_spine": RACKS}, "links": {"queue_bytes": "1 MB"}}
    settings = point(flows, **rest)
    measured, alone = run_virtual(settings, switch), run_virtual(point(None, **rest), switch)
    assert measured.usage is not None
    assert measured.traffic is not None
    job, after = (
        [link for link in measured.usage.links if link.phase == phase] for phase in ("job", "after")
    )
    assert sum(link.packets for link in (*job, *after)) == measured.packet_hops
    assert sum(link.packets for link in after) > 10 * sum(link.packets for link in job)
    delivered = sum(link.bytes for link in (*job, *after) if link.far not in ("leaf1", "leaf2", "spine1"))
    assert delivered > sum(flow.size for request in requests(settings) for flow in request)
    assert measured.wire_bytes_per_worker == pytest.approx(alone.wire_bytes_per_worker, rel=0.2)
    assert measured.link_events["queue_drops"] == sum(link.queue_drops or 0 for link in (*job, *after))
    for link in (*job, *after):
        assert link.busy_seconds <= link.seconds * (1 + 1e-9)  # type: ignore[operator]
        assert 0 <= link.mean_queue <= link.longest_queue + 1  # type: ignore[operator]
        if link.near.startswith(("leaf", "spine")):
            assert link.longest_queue <= 10**6  # type: ignore[operator]


def test_percentiles_are_times_that_occurred() -> None:
    seconds = [float(i) for i in range(1, 1001)]
    assert FlowTimes.of([10] * 1000, seconds, seconds) == FlowTimes(
        1000, 10_000, 500.5, 500.0, 990.0, 999.0, 500.0, 990.0
    )
    assert FlowTimes.of([], [], []) == FlowTimes()


@pytest.mark.few(4)
@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
@pytest.mark.parametrize("traffic", PATTERNS[1:])
def test_a_job_beside_traffic_is_right_and_slower(
    switch: Engine, algorithm: str, traffic: dict[str, Any]
) -> None:
    alone, beside = point(None, algorithm=algorithm), point(traffic, algorithm=algorithm)
    bare, measured = run_virtual(alone, switch), run_virtual(beside, switch)
    assert measured.violations == 0
    assert measured.median >= bare.median
    columns = row(beside, measured)
    assert columns["traffic_flows"] == len(requests(beside))
    sizes = [flow.size for request in requests(beside) for flow in request]
    assert columns["traffic_bytes"] == sum(sizes)
    assert columns["traffic_p50_seconds"] <= columns["traffic_p99_seconds"] <= columns["traffic_p999_seconds"]
    assert 1 <= columns["traffic_p50_slowdown"] <= columns["traffic_p99_slowdown"]
    # What others send is not counted as the job's.
    assert measured.wire_bytes_per_worker < 1.5 * bare.wire_bytes_per_worker
    assert row(alone, bare)["traffic_flows"] == 0


@pytest.mark.parametrize(
    ("traffic", "rest", "words"),
    [
        ({"pattern": "poisson", "load": 0.1, "duration": 1}, {}, "traffic.size: give size"),
        (
            {"pattern": "poisson", "size": "1 kB", "duration": 1},
            {},
            "traffic.load: missing; poisson needs it",
        ),
        (
            {"pattern": "permutation", "size": "1 kB", "fan": 2},
            {},
            "traffic.fan: has no meaning for permutation",
        ),
        (PATTERNS[3] | {"period": 0}, {}, "traffic.period: is 0"),
        (PATTERNS[5], {"workers": 7}, "traffic: needs two hosts that are not workers, and there are 1"),
        (PATTERNS[5], {"world": "live"}, "traffic: is virtual only"),
        (
            PATTERNS[1],
            {"topology": {"leaf_spine": {**RACKS, "rate": None}}},
            "traffic.load: is a share of the hosts' links, which have no rate",
        ),
    ],
)
def test_traffic_that_cannot_be_is_refused(traffic: dict[str, Any], rest: dict[str, Any], words: str) -> None:
    from fanin.experiments.scenario.file import _all

    with pytest.raises(ValidationError) as error:
        point(traffic, **rest)
    assert any(line.startswith(words) for line in _all(error.value, Settings))
