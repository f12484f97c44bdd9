"""A recording has the calls and packets of a run as its results have them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.recording import PacketRecording, RecordingError, record
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import VirtualNetwork
from fanin.simulator.fabric import Cluster, load_switch
from fanin.simulator.units import SECOND

SCENARIO = Path(__file__).parents[3] / "scenarios/in-network-and-ring.toml"


def point(*changes: str) -> Settings:
    (found,) = load_scenario(SCENARIO, changes).points
    return found


@pytest.fixture(scope="module")
def program() -> Engine:
    return load_switch()


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_calls_take_as_long_as_in_the_results(program: Engine, algorithm: str) -> None:
    settings = point(f"algorithm={algorithm}", "repetitions=3")
    recording = record("one", settings, program)
    measured = run_virtual(settings, program)
    for repetition, seconds in enumerate(measured.seconds):
        calls = [call for call in recording.calls if (call.repetition, call.bucket) == (repetition, 1)]
        assert [call.rank for call in calls] == [0, 1, 2, 3]
        assert {call.size for call in calls} == {settings.size}
        assert max(call.end for call in calls) - max(call.begin for call in calls) == pytest.approx(seconds)
    barriers = [call for call in recording.calls if call.bucket == 0]
    assert {call.size for call in barriers} == {4}
    assert len(recording.calls) == 2 * len(barriers)


def test_buckets_of_a_step_are_calls(program: Engine) -> None:
    changes = "algorithm=in-network", "step_forward=10 us", "step_backward=20 us", "step_bucket=8 kB"
    recording = record("step", point(*changes), program)
    sizes = {(call.bucket, call.size) for call in recording.calls if call.repetition == 1}
    assert sizes == {(0, 4), (1, 8000), (2, 8000)}


def network_of(program: Engine, *changes: str) -> tuple[PacketRecording, VirtualNetwork]:
    """Return a recording, and the network after the same run without one."""
    settings = point(*changes)
    seen: list[Cluster] = []
    run_virtual(settings, program, seen.append)
    return record("one", settings, program), seen[0].network


FAULTS = (
    ("algorithm=in-network", "loss=0.03", "duplication=0.05", "reordering=0.1", "displacement=2 us"),
    ("algorithm=ring", "loss=0.03", "jitter=2 us"),
    ("algorithm=parameter-server", "size=32 kB", "queue_bytes=10 kB"),
    ("algorithm=in-network", "burst_begin=0.02", "burst_end=0.4", "burst_loss=1"),
    ("algorithm=parameter-server", "size=32 kB", "xoff_bytes=5 kB", "xon_bytes=4 kB"),
)


@pytest.mark.slow
@pytest.mark.parametrize("changes", FAULTS)
def test_packets_are_sent_lost_and_dropped_as_links_count_them(
    program: Engine, changes: tuple[str, ...]
) -> None:
    """Notes and counts are made in different places of the loop."""
    recording, network = network_of(program, *changes)
    counts = network.links.counts
    sent = Counter(one.link for one in recording.flights if one.lost != "queue drop" and one.again != "copy")
    on_their_way = Counter(dict(enumerate(counts.packets.tolist()))) - sent  # at the end of the run
    assert sum(on_their_way.values()) <= 8
    for reasons, expected in (({"loss", "burst loss"}, counts.lost), ({"queue drop"}, counts.queue_drops)):
        found = Counter(one.link for one in recording.flights if one.lost in reasons)
        assert [found[link] for link in range(len(expected))] == expected.tolist()
    copies = sum(one.again == "copy" for one in recording.flights)
    assert network.faults["duplication"] - 2 <= copies <= network.faults["duplication"]
    waited = np.zeros(len(counts.waited))
    for one in recording.flights:
        assert one.joined <= one.begin <= one.sent <= one.end
        waited[one.link] += one.begin - one.joined if one.again != "copy" else 0
    assert waited == pytest.approx(counts.waited / SECOND, rel=0.02, abs=2e-6)


def test_what_is_lost_is_sent_again(program: Engine) -> None:
    recording, _ = network_of(program, "algorithm=in-network", "loss=0.03")
    first_hops = [
        one for one in recording.flights if one.kind == "values" and one.sender in recording.workers
    ]
    lost = [one for one in first_hops if one.lost]
    assert lost
    for one in lost:
        again = [each for each in first_hops if (each.sender, each.number) == (one.sender, one.number)]
        assert [each.again for each in again if each.begin > one.begin][:1] == ["retransmission"]
    assert run_virtual(point("algorithm=in-network", "loss=0.03"), program).retransmissions == sum(
        one.again == "retransmission" for one in first_hops
    )


def test_a_cell_fills_child_by_child_and_the_root_has_the_result(program: Engine) -> None:
    recording = record("one", point("algorithm=in-network"), program).last_all_reduce()
    children = {one.switch: one.children for one in recording.aggregators}
    assert children == {"leaf1": ("h1", "h2"), "leaf2": ("h3", "h4"), "spine1": ("leaf1", "leaf2")}
    chunks = {one.number for one in recording.flights}
    assert len(chunks) == 16
    for chunk in chunks:
        for switch in children:
            states = [
                (one.seen.bit_count(), one.done)
                for one in recording.changes
                if (one.switch, one.chunk) == (switch, chunk)
            ]
            below_the_root = switch != "spine1"
            assert states == [(1, False), (2, not below_the_root), *([(2, True)] if below_the_root else [])]


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_the_last_all_reduce_begins_at_0_and_has_all_its_packets(program: Engine, algorithm: str) -> None:
    recording = record("one", point(f"algorithm={algorithm}"), program)
    last = recording.last_all_reduce()
    assert last.seconds == pytest.approx(run_virtual(point(f"algorithm={algorithm}"), program).seconds[-1])
    assert [call.repetition for call in last.calls] == [1] * 4
    assert max(call.begin for call in last.calls) == 0
    arrived = [one for one in recording.flights if one.end <= recording.calls[-1].end]
    assert len(last.flights) < len(arrived)
    assert 0.8 * last.seconds < last.flights[-1].end <= last.seconds  # then its host notices it


def test_flows_of_others_have_a_kind_of_their_own(program: Engine) -> None:
    flows = "traffic_pattern=poisson", "traffic_size=4 kB", "traffic_load=20%", "traffic_duration=50 us"
    traffic = "workers=2", "placement=spread", *flows
    recording = record("one", point("algorithm=in-network", *traffic), program)
    others = {one.stream.split(",")[0] for one in recording.flights if one.kind == "other traffic"}
    assert others
    assert {one.kind for one in recording.flights} == {"values", "sums", "other traffic"}
    assert not any(set(stream.split(" → ")) & {*recording.workers} for stream in others)


def test_a_ring_uses_no_cells(program: Engine) -> None:
    recording = record("one", point("algorithm=ring"), program)
    assert recording.changes == ()
    assert recording.aggregators == ()


def test_a_live_network_is_not_recorded(program: Engine) -> None:
    with pytest.raises(RecordingError, match="--set world=virtual"):
        record("live", point("world=live", "algorithm=in-network"), program)
