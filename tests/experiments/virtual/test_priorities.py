"""Priorities of the job and of what is beside it: whose packets links send first, and whose wait."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fanin.experiments.results.measured import row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

RACKS = {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "10 Gb/s", "uplink_rate": "15 Gb/s"}
TRAFFIC = {"pattern": "permutation", "size": "1 MB"}


def point(**changes: Any) -> Settings:
    document = {"topology": {"leaf_spine": RACKS}, "size": "400 kB", "workers": 4, "placement": "spread"}
    return Settings.model_validate(document | changes).settled


def times(switch: Engine, **changes: Any) -> tuple[float, float]:
    """Return the time of an all-reduce, and that of the longest of the other flows."""
    settings = point(**changes)
    measured = run_virtual(settings, switch)
    assert row(settings, measured)["violations"] == 0
    assert measured.traffic is not None
    assert measured.traffic.p999 is not None
    return measured.seconds[0], measured.traffic.p999


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
@pytest.mark.slow
def test_who_has_the_higher_priority_is_faster(switch: Engine, algorithm: str) -> None:
    alike, first, last = (
        times(switch, algorithm=algorithm, priority=own, traffic=TRAFFIC | {"priority": others})
        for own, others in ((0, 0), (5, 1), (1, 5))
    )
    assert first[0] < alike[0] < last[0]
    assert first[1] > last[1]


@pytest.mark.slow
def test_all_of_one_priority_are_as_without(switch: Engine) -> None:
    assert times(switch, traffic=TRAFFIC) == times(switch, priority=3, traffic=TRAFFIC | {"priority": 3})


@pytest.mark.slow
def test_another_job_waits_for_the_first(switch: Engine) -> None:
    def seconds(own: int, others: int) -> tuple[float, float]:
        settings = point(
            topology={"leaf_spine": RACKS | {"uplink_rate": "10 Gb/s"}},
            priority=own,
            other_job={"size": "400 kB", "priority": others},
            window=256,
        )
        measured = run_virtual(settings, switch)
        assert measured.other_job_seconds is not None
        return measured.seconds[0], measured.other_job_seconds

    (own, other), (own_alike, other_alike) = seconds(1, 0), seconds(0, 0)
    assert own < own_alike
    assert other >= other_alike


def test_they_are_of_virtual_time() -> None:
    live = {"world": "live", "topology": {"leaf_spine": {"leaves": 1, "spines": 0, "hosts_per_leaf": 2}}}
    with pytest.raises(
        ValidationError, match=r"priority: is virtual only; leave it out, or set world = 'virtual'"
    ):
        point(**live, workers=2, priority=1)


@pytest.mark.parametrize("priority", [-1, 8])
def test_there_are_eight(priority: int) -> None:
    with pytest.raises(ValidationError, match=r"traffic\.priority"):
        point(traffic=TRAFFIC | {"priority": priority})
