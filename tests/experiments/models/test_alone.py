"""A flow alone in the network takes the time that is said, and never less."""

from __future__ import annotations

import pytest

from fanin.experiments.models.alone import Alone
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.traffic import requests
from fanin.p4switch.engine.engine import Engine

RACKS = {"spines": 2, "leaves": 2, "hosts_per_leaf": 3, "rate": "100 Gb/s", "uplink_rate": "400 Gb/s"}


def point(size: int, coalescing: float, uplink_rate: str = "400 Gb/s") -> Settings:
    """One flow, long after a job of two workers in the first rack, from the second rack to the first."""
    traffic = {"pattern": "incast", "fan": 1, "size": size, "window": 4096, "begin": 0.001}
    document = {
        "topology": {"leaf_spine": RACKS | {"uplink_rate": uplink_rate}},
        "size": "4 B",
        "workers": 2,
        "algorithm": "ring",
        "coalescing": coalescing,
        "traffic": traffic | {"period": 1, "duration": 1},
    }
    return Settings.model_validate(document).settled


@pytest.mark.slow
@pytest.mark.parametrize("coalescing", [0.0, 2e-6])
@pytest.mark.parametrize("uplink_rate", ["400 Gb/s", "10 Gb/s"])
@pytest.mark.parametrize("size", [1, 1000, 1024, 1025, 10_000, 1_000_000])
def test_a_flow_alone_has_no_slowdown(switch: Engine, size: int, coalescing: float, uplink_rate: str) -> None:
    settings = point(size, coalescing, uplink_rate)
    [(flow,)] = requests(settings)
    traffic = run_virtual(settings, switch).traffic
    assert traffic is not None
    assert traffic.slowdown_p50 == pytest.approx(
        traffic.p50 / Alone(settings).seconds(flow.source, flow.destination, size)
    )
    assert 1 - 1e-9 <= traffic.slowdown_p50 < (1.3 if coalescing else 1.05)
