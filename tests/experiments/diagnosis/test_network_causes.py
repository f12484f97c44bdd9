"""The causes in the network: retransmissions for nothing, neighbours, and windows of short messages."""

from __future__ import annotations

from typing import Any

import pytest

from fanin.experiments.diagnosis.diagnose import Diagnosis, diagnose
from fanin.experiments.results.measured import row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

pytestmark = pytest.mark.slow

RACKS = {"leaf_spine": {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "40 Gb/s"}}
OURS = ("h1", "h2", "h5", "h6")
STEP = {"forward": "10 us", "backward": "20 us", "bucket": "62.5 kB"}


def diagnosed(switch: Engine, **given: Any) -> Diagnosis:
    settings = Settings.model_validate({"topology": RACKS} | given).settled
    measured = run_virtual(settings, switch)
    return diagnose(row(settings, measured), measured.usage)


def causes(found: Diagnosis) -> list[str]:
    return [finding.cause for finding in found.findings]


def test_links_that_deliver_packets_late_are_named(switch: Engine) -> None:
    links = {"reordering": 0.2, "displacement": "20 us"}
    found = diagnosed(switch, size="200 kB", algorithm="ring", links=links)
    assert causes(found)[0] == "reordering"
    assert "packet_threshold" in found.findings[0].change


@pytest.mark.parametrize(
    ("algorithm", "duplication"), [("ring", 0.0), ("ring", 0.4), ("halving-doubling", 0.4)]
)
def test_links_that_deliver_packets_twice_are_named(
    switch: Engine, algorithm: str, duplication: float
) -> None:
    """All links carry the copies that those before them have made."""
    found = diagnosed(
        switch, size="400 kB", algorithm=algorithm, hosts=OURS, links={"duplication": duplication}
    )
    assert causes(found) == (["duplicates"] if duplication else [])


def test_a_single_link_that_delivers_packets_twice_is_named(switch: Engine) -> None:
    twice = RACKS | {"overrides": [{"link": ["h6", "leaf2"], "duplication": 0.9}]}
    found = diagnosed(switch, topology=twice, size="400 kB", algorithm="ring", hosts=OURS)
    assert causes(found) == ["duplicates"]
    assert "fix the link leaf2 → h6" in found.findings[0].change


def test_timers_that_end_before_answers_come_are_named(switch: Engine) -> None:
    timers = {"initial_rto": "10 us", "min_rto": "10 us", "granularity": "1 us"}
    found = diagnosed(switch, size="200 kB", links={"delay": "10 us"}, recovery=timers)
    named = [one for one in (*found.findings, *found.minor) if one.cause == "spurious retransmissions"]
    assert "min_rto" in named[0].change


def test_data_that_storage_sends_to_workers_is_a_neighbour(switch: Engine) -> None:
    """It fills the links to the workers, which carry the sums as well."""
    read = {"pattern": "read", "size": "500 kB", "period": "50 us", "duration": "200 us"}
    found = diagnosed(switch, size="250 kB", repetitions=3, hosts=OURS, step=STEP, traffic=read)
    assert "noisy neighbour" in causes(found)


def test_a_worker_that_writes_to_storage_has_a_neighbour_at_its_link(switch: Engine) -> None:
    write = {"pattern": "checkpoint", "size": "500 kB", "period": "50 us", "duration": "200 us"}
    found = diagnosed(switch, size="250 kB", repetitions=3, hosts=OURS, step=STEP, traffic=write)
    assert "noisy neighbour" in causes(found)


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_a_neighbour_of_a_higher_priority_is_named_once(switch: Engine, algorithm: str) -> None:
    traffic = {"pattern": "permutation", "size": "2 MB", "priority": 3}
    given = {"size": "250 kB", "repetitions": 3, "hosts": OURS, "step": STEP, "algorithm": algorithm}
    found = diagnosed(switch, priority=1, traffic=traffic, **given)
    assert "priority inversion" in causes(found)
    assert "noisy neighbour" not in causes(found)


def test_a_window_limits_a_ring_although_it_holds_a_message(switch: Engine) -> None:
    """The next message follows half a round trip later."""
    servers = {"leaves": 1, "spines": 0, "servers_per_leaf": 2, "hosts_per_server": 4, "rate": "40 Gb/s"}
    far = {"topology": {"servers": servers}, "links": {"delay": "10 us"}, "algorithm": "ring"}
    found = diagnosed(switch, size="50 kB", window=6, **far)
    assert causes(found)[0] == "window"
    assert "a window of 6 packets" in found.findings[0].evidence


@pytest.mark.parametrize("transport", ["go-back-n", "tcp"])
def test_paths_for_each_packet_are_not_advised_where_their_order_counts(
    switch: Engine, transport: str
) -> None:
    racks = {"leaf_spine": {"spines": 4, "leaves": 2, "hosts_per_leaf": 4, "rate": "10 Gb/s"}}
    given = {"algorithm": "ring", "placement": "spread", "transport": transport, "paths": "single"}
    found = diagnosed(switch, topology=racks, size="400 kB", **given)
    named = next(finding for finding in found.findings if finding.cause == "collision")
    assert "spray" not in named.change
    assert "flows_per_pair" in named.change


def test_marks_at_queues_of_a_packet_slow_senders_down(switch: Engine) -> None:
    """The window follows each mark at once, and stays small."""
    marking = {"links": {"delay": "5 us", "ecn_bytes": "1.5 kB"}, "congestion": {"gain": 1}}
    found = diagnosed(switch, size="400 kB", algorithm="ring", placement="spread", **marking)
    assert "congestion marks" in causes(found)
    assert "ecn_bytes" in found.findings[0].change


def test_marks_are_named_although_computing_takes_half_of_a_step(switch: Engine) -> None:
    """The time of computing is no reason to doubt what makes the network slow."""
    step = {"forward": "5 ms", "backward": "10 ms", "bucket": "100 kB"}
    given = {"size": "400 kB", "algorithm": "ring", "placement": "spread", "step": step, "repetitions": 3}
    marking = {"links": {"delay": "5 us", "ecn_bytes": "1.5 kB"}, "congestion": {"gain": 1}}
    assert "congestion marks" in causes(diagnosed(switch, **given | marking))
    assert "congestion marks" not in causes(diagnosed(switch, **given | {"links": {"delay": "5 us"}}))


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_a_slow_network_card_is_no_oversubscription(switch: Engine, algorithm: str) -> None:
    """The cards of the other servers are as fast as they are meant to be."""
    servers = {"leaves": 2, "spines": 1, "servers_per_leaf": 1, "hosts_per_server": 2, "rate": "25 Gb/s"}
    servers |= {"nic_rate": "25 Gb/s", "uplink_rate": "25 Gb/s"}
    shape = {"servers": servers, "overrides": [{"link": ["server2", "leaf2"], "rate": "6 Gb/s"}]}
    found = diagnosed(switch, topology=shape, size="460 kB", algorithm=algorithm)
    assert causes(found) == ["slow link"]


def test_marks_are_not_blamed_for_workers_that_are_late(switch: Engine) -> None:
    given = {
        "size": "400 kB",
        "repetitions": 3,
        "links": {"ecn_bytes": "20 kB"},
        "algorithm": "parameter-server",
    }
    assert causes(diagnosed(switch, **given, lateness="0.5 ms")) == ["straggler"]


def test_a_slow_link_delays_packets_that_do_not_wait_for_it(switch: Engine) -> None:
    """In a pipeline, one activation after the other crosses it."""
    cut = {"pipeline": 2, "layers": 2, "micro_batches": 8, "activations": "16 KiB", "bucket": "8 kB"}
    given = {"topology": RACKS, "size": "32 kB", "workers": 4, "repetitions": 1}
    given["parallelism"] = cut | {"forward": "5 us", "backward": "10 us"}
    slow = {"overrides": [{"link": ["h2", "leaf1"], "rate": "1 Gb/s"}]}
    assert "slow link" in causes(diagnosed(switch, **given | {"topology": RACKS | slow}))
    assert "slow link" not in causes(diagnosed(switch, **given))


def test_slow_uplinks_delay_packets_that_do_not_wait_for_them(switch: Engine) -> None:
    """Short messages spread over all uplinks, which are idle for most of the time."""
    shape = {"spines": 4, "leaves": 3, "hosts_per_leaf": 2, "rate": "5 Gb/s", "uplink_rate": "625 Mb/s"}
    given = {"algorithm": "ring", "placement": "spread", "paths": "spray", "payload": 4096, "size": "24 kB"}
    found = diagnosed(switch, topology={"leaf_spine": shape}, **given)
    assert "oversubscription" in causes(found)


@pytest.mark.parametrize(
    ("given", "evidence"),
    [
        ({"links": {"delay": "20 us"}}, "links delay packets for up to 20 us"),
        ({"links": {"jitter": "40 us"}, "size": "100 kB"}, "links delay packets for up to 41 us"),
        ({"coalescing": "200 us"}, "hosts notice them within 200 us"),
        (
            {"topology": RACKS | {"overrides": [{"link": ["leaf2", "h6"], "delay": "50 us"}]}},
            "the link h6 - leaf2 delays packets for up to 50 us",
        ),
    ],
)
@pytest.mark.parametrize("algorithm", ["in-network", "halving-doubling"])
def test_delays_are_named_although_links_send_for_much_of_the_time(
    switch: Engine, algorithm: str, given: dict[str, Any], evidence: str
) -> None:
    found = diagnosed(
        switch, **{"size": "500 kB", "repetitions": 3, "window": 992, "algorithm": algorithm} | given
    )
    assert causes(found) == ["latency"]
    assert evidence in found.findings[0].evidence


def test_usual_delays_of_long_vectors_are_no_cause(switch: Engine) -> None:
    assert causes(diagnosed(switch, size="1 MB", repetitions=3)) == []
