"""Gradients of a model that is cut, summed in buckets while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from fanin.experiments.models.step import bucket_slices, filled_buckets
from fanin.experiments.results.measured import Measured
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual import parallelism
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from tests.experiments.virtual.cut_models import cuts, run
from tests.sizes import sized

CUT = {"layers": 8, "micro_batches": 4, "forward": "100 us", "backward": "200 us", "activations": "16 KiB"}
SHAPE = {
    "leaf_spine": {"spines": 1, "leaves": 2, "hosts_per_leaf": 2, "rate": "25 Gb/s", "uplink_rate": "50 Gb/s"}
}


def small(switch: Engine, cut: dict[str, Any], **rest: Any) -> Measured:
    return run(switch, CUT | cut, **{"topology": SHAPE, "size": "640 kB", "window": 128} | rest)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_one_stage_with_one_micro_batch_is_a_step_with_buckets(switch: Engine, algorithm: str) -> None:
    """But that a step there begins with a barrier, and its vector with what it lets expect."""
    rest = {"topology": SHAPE, "algorithm": algorithm, "size": "640 kB", "window": 128, "repetitions": 2}
    whole = {"forward": "100 us", "backward": "200 us", "bucket": "80 kB"}
    expected = run_virtual(Settings.model_validate(rest | {"step": whole}).settled, switch)
    measured = small(switch, {"bucket": "80 kB"}, **rest)
    assert measured.step_seconds == pytest.approx(expected.step_seconds, rel=0.03)
    assert measured.exposed_seconds == pytest.approx(expected.exposed_seconds, rel=0.15)


@pytest.mark.parametrize("bucket", ["640 kB", "320 kB", "80 kB"])
def test_the_times_of_workers_are_those_of_whole_steps(switch: Engine, bucket: str) -> None:
    """However many buckets they have; and the time for which data is waited for is neither computing nor exposed."""
    step = {"forward": "100 us", "backward": "200 us", "bucket": bucket, "loading": "50 us"}
    said = {"topology": SHAPE, "size": "640 kB", "window": 128, "repetitions": 3, "step": step}
    measured = run_virtual(Settings.model_validate(said).settled, switch)
    assert measured.usage
    assert measured.step_seconds
    for worker in measured.usage.workers:
        assert (len(worker.began), len(worker.ended)) == (3, 3)
        assert all(ended > began + 350e-6 for began, ended in zip(worker.began, worker.ended, strict=True))
        assert worker.computing_seconds == pytest.approx(3 * 300e-6)
        assert worker.loading_seconds == pytest.approx(3 * 50e-6)
    assert measured.usage.seconds == pytest.approx(3 * measured.step_seconds, rel=0.02)
    assert measured.exposed_seconds == pytest.approx(measured.step_seconds - 350e-6)


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("cut", [{}, {"tensor": 2}, {"pipeline": 2}, {"pipeline": 2, "chunks": 2}])
def test_less_of_a_step_is_exposed(switch: Engine, cut: dict[str, Any]) -> None:
    after, during = (
        small(switch, cut | {"bucket": bucket}, algorithm="in-network") for bucket in (None, "80 kB")
    )
    assert during.exposed_seconds
    assert after.exposed_seconds
    assert during.exposed_seconds < after.exposed_seconds - 20e-6


@pytest.mark.slow
def test_no_bucket_is_summed_before_the_last_layer_that_it_is_of(switch: Engine) -> None:
    """One bucket of half a layer more than a half has to wait for that layer."""
    half, more = (small(switch, {"bucket": bucket, "layers": 2}) for bucket in ("320 kB", "324 kB"))
    assert half.step_seconds
    assert more.step_seconds
    assert half.step_seconds < more.step_seconds - 40e-6


def after_the_last_layer(elements: int, bucket: int | None, layers: int) -> list[int]:
    return [0] * (layers - 1) + [len(bucket_slices(elements, bucket))]


@pytest.mark.few(0)
@pytest.mark.slow
@settings(max_examples=sized(4, 12), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=cuts(fewest_copies=2))
def test_a_step_takes_no_longer_than_if_its_buckets_waited_for_the_last_layer(
    switch: Engine, monkeypatch: pytest.MonkeyPatch, drawn: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    """But for what is sent to the next stage meanwhile, which gradients on the same links make later."""
    cut, rest = drawn
    seconds: dict[Callable[..., list[int]], float] = {}
    for filled in (filled_buckets, after_the_last_layer):
        monkeypatch.setattr(parallelism, "filled_buckets", filled)
        measured = run(switch, cut, **rest | {"repetitions": 1, "window": 64})
        assert measured.step_seconds
        seconds[filled] = measured.step_seconds
    assert seconds[filled_buckets] <= seconds[after_the_last_layer] * 1.05
