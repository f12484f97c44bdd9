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
        ("double-binary-tree", {"links": FAULTS}),
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
