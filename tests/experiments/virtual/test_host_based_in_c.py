"""Runs in which every host-based worker is one in Python and one in C, compared at each step."""

from __future__ import annotations

from typing import Any

import pytest

from fanin.experiments.results.measured import row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import fabric
from fanin.workers.host_based.engine import CompiledWorker, fastest
from fanin.workers.host_based.participant import Group, HostBasedWorker
from fanin.workers.recovery import Recovery
from tests.workers.host_based.both_workers import BothWorkers

RACKS = {"spines": 2, "leaves": 2, "hosts_per_leaf": 3, "rate": "10 Gb/s", "uplink_rate": "10 Gb/s"}
FAULTS = {
    "loss": 0.01,
    "corruption": 0.01,
    "duplication": 0.01,
    "reordering": 0.05,
    "jitter": "2 us",
    "displacement": "20 us",
}
MARKS = {"queue_bytes": "60 kB", "ecn_bytes": "10 kB"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "rest"),
    [
        ("ring", {"links": FAULTS, "placement": "spread"}),
        ("ring", {"links": FAULTS | MARKS, "transport": "go-back-n", "flows_per_pair": 2}),
        ("halving-doubling", {"links": MARKS, "paths": "spray", "recovery": {"packet_threshold": 20}}),
        ("double-binary-tree", {"links": FAULTS, "payload": 4096}),
        ("parameter-server", {"links": MARKS, "window_per": "host", "congestion": {"control": "none"}}),
    ],
)
def test_a_run_in_c_is_the_run_in_python(
    switch: Engine, monkeypatch: pytest.MonkeyPatch, algorithm: str, rest: dict[str, Any]
) -> None:
    document = {"topology": {"leaf_spine": RACKS}, "size": "30 kB", "window": 32, "repetitions": 2}
    settings = Settings.model_validate(document | {"algorithm": algorithm} | rest).settled
    in_c = row(settings, run_virtual(settings, switch))
    assert in_c["violations"] == 0
    monkeypatch.setattr(fabric, "fastest", BothWorkers)
    assert row(settings, run_virtual(settings, switch)) == in_c


def test_what_c_does_not_know_is_done_in_python() -> None:
    class Other:
        window, ready_at = 8, 0.0

    assert type(fastest(Group(0, 2), Recovery())) is CompiledWorker
    other: Any = Other
    assert type(fastest(Group(0, 2, make_control=lambda _: other()), Recovery())) is HostBasedWorker


@pytest.mark.slow
def test_jumbo_packets_carry_the_same_in_fewer_and_larger_packets(switch: Engine) -> None:
    """32 kB for each worker, in pieces of at most 16 KiB; links without a limit of packets in flight."""
    found = {}
    for payload in (1024, 4096, 8192):
        settings = Settings.model_validate(
            {"topology": {"leaf_spine": RACKS}, "size": "192 KiB", "algorithm": "ring", "payload": payload}
        )
        found[payload] = row(settings, run_virtual(settings, switch))
        assert found[payload]["violations"] == 0
        # Five sixths of the vector twice, to the next rank and from the one before, and their acknowledgements.
        data = 2 * 2 * 5 * 32 * 1024
        packets = data // payload
        assert data + 64 * packets < found[payload]["wire_bytes_per_worker"] < data + 128 * packets + 5000
        assert found[payload]["payload"] == payload
    times = {payload: one["closed_form_seconds"] / one["median_seconds"] for payload, one in found.items()}
    assert all(0.7 < time < 1.1 for time in times.values())


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ({"payload": 9000}, r"payload\n  Input should be less than or equal to 8948"),
        ({"payload": 4097}, r"payload\n  Input should be a multiple of 4"),
        (
            {"payload": 4096, "world": "live"},
            r"payload: is virtual only; leave it out, or set world = 'virtual'",
        ),
    ],
)
def test_a_payload_that_cannot_be_is_refused(rest: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings.model_validate(
            {"topology": {"leaf_spine": RACKS}, "size": "1 MB", "algorithm": "ring"} | rest
        )
