"""Steps that compute: what overlaps with the backward pass is not waited for, and all wait for the slowest."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fanin.experiments.models.step import ready_shares, step_seconds
from fanin.experiments.results.measured import Measured
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

SHAPE = {"spines": 0, "leaves": 1, "hosts_per_leaf": 2, "rate": "10 Gb/s"}


def settings(step: dict[str, Any] | None, **rest: Any) -> Settings:
    said = {"topology": {"leaf_spine": SHAPE}, "size": "400 kB", "repetitions": 2, "window": 256}
    return Settings.model_validate(said | ({"step": step} if step else {}) | rest).settled


def run(switch: Engine, step: dict[str, Any] | None, **rest: Any) -> Measured:
    measured = run_virtual(settings(step, **rest), switch)
    assert measured.violations == 0
    return measured


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
@pytest.mark.parametrize("backward", ["10 us", "1 ms"])
def test_a_step_takes_the_time_of_the_closed_form(switch: Engine, algorithm: str, backward: str) -> None:
    step = {"forward": "100 us", "backward": backward, "bucket": "100 kB"}
    measured = run(switch, step, algorithm=algorithm)
    alone = run(switch, None, algorithm=algorithm, size="100 kB", repetitions=8).seconds
    table = settings(step).step
    assert table
    shares = ready_shares(100_000, 25_000)
    steps = [step_seconds(table.forward, table.backward, shares, sums) for sums in (alone[:4], alone[4:])]
    expected = sum(steps) / 2
    assert measured.step_seconds == pytest.approx(expected, rel=0.05)
    assert measured.exposed_seconds == pytest.approx(expected - table.forward - table.backward, rel=0.15)


def test_all_wait_for_the_straggler(switch: Engine) -> None:
    step = {"forward": "1 ms", "backward": "1 ms"}
    even = run(switch, step)
    slow = run(switch, step | {"stragglers": [{"host": "h1", "factor": 2}]})
    assert even.step_seconds
    assert slow.step_seconds
    assert slow.step_seconds == pytest.approx(even.step_seconds + 2e-3, rel=0.01)
    assert slow.gpu_idle_share == pytest.approx(1 - 3e-3 / slow.step_seconds, rel=0.01)


def test_variation_is_drawn_by_seed(switch: Engine) -> None:
    step = {"forward": "1 ms", "backward": "1 ms", "variation": 0.3}
    times = [run(switch, step, seed=seed).step_seconds for seed in (1, 1, 2)]
    assert times[0] == times[1] != times[2]


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ({"world": "live"}, "step: is virtual only"),
        ({"lateness": "1 ms"}, "lateness: cannot be combined with step"),
        ({"step": {"stragglers": [{"host": "h9", "factor": 2}]}}, "h9 is not a worker's host"),
    ],
)
def test_what_does_not_fit_is_refused(rest: dict[str, Any], message: str) -> None:
    step = {"forward": "1 ms", "backward": "1 ms"}
    with pytest.raises(ValidationError, match=message):
        settings(step | rest.pop("step", {}), **rest)
