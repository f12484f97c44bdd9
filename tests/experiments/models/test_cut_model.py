"""The closed form of a step of a model that is cut, beside what the protocols take in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from fanin.experiments.models.cut_model import predicted_step_seconds
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from tests.sizes import sized

CUT = {"layers": 8, "micro_batches": 16, "forward": "200 us", "backward": "400 us", "activations": "16 KiB"}


def point(cut: dict[str, Any], **rest: Any) -> Settings:
    shape = {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "25 Gb/s", "uplink_rate": "100 Gb/s"}
    said = {"topology": {"leaf_spine": shape}, "size": "1 MB", "window": 128, "parallelism": CUT | cut}
    return Settings.model_validate(said | rest).settled


@pytest.mark.few(5)
@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ring", "in-network"][: sized(1, 2)])
@pytest.mark.parametrize(
    ("cut", "off"),
    [
        ({}, 0.05),
        ({"pipeline": 2}, 0.05),
        ({"pipeline": 8}, 0.05),
        ({"pipeline": 8, "schedule": "gpipe"}, 0.05),
        ({"pipeline": 4, "chunks": 2}, 0.05),
        ({"pipeline": 8, "chunks": 4, "layers": 32, "forward": "2 ms", "backward": "4 ms"}, 0.05),
        ({"pipeline": 4, "micro_batches": 32, "stragglers": [{"host": "h3", "factor": 2.0}]}, 0.05),
        # Of a short all-reduce the closed form counts acknowledgements, for which the next one does not wait.
        ({"tensor": 4, "layers": 4, "micro_batches": 8}, 0.15),
        ({"tensor": 2, "pipeline": 2, "layers": 4}, 0.15),
    ],
)
def test_a_step_takes_about_as_long(switch: Engine, algorithm: str, cut: dict[str, Any], off: float) -> None:
    settings = point(cut, algorithm=algorithm)
    measured = run_virtual(settings, switch)
    assert measured.closed_form_seconds == pytest.approx(measured.seconds[0], rel=off)


@pytest.mark.few(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "cut", "off"),
    [
        ("in-network", {"bucket": "50 kB"}, 0.05),
        ("ring", {"bucket": "500 kB"}, 0.05),
        ("ring", {"bucket": "50 kB"}, 0.05),
        ("in-network", {"pipeline": 2, "bucket": "20 kB"}, 0.1),
        ("ring", {"pipeline": 4, "bucket": "100 kB"}, 0.05),
        ("ring", {"bucket": "50 kB", "stragglers": [{"host": "h3", "factor": 2.0}]}, 0.05),
        ("in-network", {"pipeline": 2, "chunks": 4, "bucket": "100 kB"}, 0.05),
        ("ring", {"pipeline": 2, "chunks": 4, "bucket": "100 kB"}, 0.05),
        ("in-network", {"tensor": 2, "bucket": "100 kB"}, 0.15),
        ("ring", {"tensor": 2, "pipeline": 2, "bucket": "100 kB"}, 0.15),
    ],
)
def test_gradients_in_buckets_are_summed_meanwhile(
    switch: Engine, algorithm: str, cut: dict[str, Any], off: float
) -> None:
    settings = point({"micro_batches": 8} | cut, algorithm=algorithm)
    measured = run_virtual(settings, switch)
    assert measured.violations == 0
    assert measured.closed_form_seconds == pytest.approx(measured.seconds[0], rel=off)


def test_by_1f1b_sends_cost_more_than_by_gpipe() -> None:
    by = {
        schedule: predicted_step_seconds(point({"pipeline": 8, "schedule": schedule}, algorithm="ring"), 128)
        for schedule in ("1f1b", "gpipe")
    }
    assert by["gpipe"]
    assert by["1f1b"] > 1.1 * by["gpipe"]


def test_of_hosts_links_that_are_not_alike_nothing_is_known() -> None:
    slow = point(
        {},
        algorithm="ring",
        topology={
            "leaf_spine": {"rate": "25 Gb/s"},
            "overrides": [{"link": ["h1", "leaf1"], "rate": "1 Gb/s"}],
        },
    )
    assert predicted_step_seconds(slow, 128) is None
