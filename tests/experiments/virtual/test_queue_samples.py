"""Queue depths over time: within what links count of their queues, and without an effect on the run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from fanin.experiments.results.measured import Measured
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual import usage
from fanin.experiments.virtual.outcome import UnfinishedError
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from tests.experiments.virtual.cut_models import point

# In one process of pytest-xdist: what one test has run, others look at.
pytestmark = pytest.mark.slow

INCAST = {
    "topology": {"leaf_spine": {"spines": 0, "leaves": 1, "hosts_per_leaf": 4, "rate": "10 Gb/s"}},
    "algorithm": "parameter-server",
    "shards": 1,
    "size": "1 MB",
    "window": 64,
}


INTERVAL = 3e-6  # seconds: out of step with network cards, which give their links packets every 4 us


def _point(**changes: Any) -> Settings:
    return Settings.model_validate(INCAST | changes).settled


@pytest.fixture(scope="module")
def run(switch: Engine) -> Callable[..., Measured]:
    """`run(name)`: one of POINTS, once with each interval, since a run has one outcome in virtual time."""

    @cache
    def measured(name: str, interval: float | None) -> Measured:
        return run_virtual(POINTS[name].model_copy(update={"queue_samples": interval}), switch)

    return lambda name, interval=INTERVAL: measured(name, interval)


def _usage(found: Measured) -> Usage:
    assert found.usage is not None
    return found.usage


POINTS = {
    "one queue": _point(queue_samples=INTERVAL),
    "by priority": _point(queue_samples=INTERVAL, priority=1),
    "a model that is cut": point(
        {"tensor": 2, "pipeline": 2, "micro_batches": 4, "forward": "20 us", "backward": "40 us"},
        queue_samples=INTERVAL,
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", POINTS)
def test_samples_keep_what_links_count(run: Callable[..., Measured], name: str) -> None:
    found = _usage(run(name))
    areas: dict[tuple[str, str], float] = defaultdict(float)
    longest: dict[tuple[str, str], int] = defaultdict(int)
    for sample in found.queues:
        link = sample.near, sample.far
        areas[link] += sample.bytes * INTERVAL
        longest[link] = max(longest[link], sample.bytes)
    assert max(longest.values()) > 0
    for link in found.links:
        assert link.mean_queue is not None
        assert link.longest_queue is not None
        assert link.seconds is not None
        name = link.near, link.far
        assert longest[name] <= link.longest_queue
        whole = link.mean_queue * link.seconds
        assert areas[name] == pytest.approx(whole, rel=0.05, abs=link.longest_queue * 10 * INTERVAL)


def test_a_queue_has_a_sample_of_0_once_it_is_found_empty(run: Callable[..., Measured]) -> None:
    found = _usage(run("one queue"))
    depths: dict[tuple[str, str], list[int]] = defaultdict(list)
    for sample in found.queues:
        depths[sample.near, sample.far].append(sample.bytes)
    assert len(depths) > 4
    for link in depths.values():
        assert link[0] > 0
        assert link[-1] == 0
        assert (0, 0) not in pairwise(link)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", POINTS)
def test_sampling_changes_nothing_else(run: Callable[..., Measured], name: str) -> None:
    without, sampled = run(name, None), run(name)
    assert not _usage(without).queues
    assert without.seconds == sampled.seconds
    assert without.packet_hops == sampled.packet_hops
    assert _usage(without).links == _usage(sampled).links
    assert _usage(without).workers == _usage(sampled).workers


@pytest.mark.parametrize("name", POINTS)
def test_too_many_samples_are_refused(switch: Engine, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_SAMPLES", 10)
    with pytest.raises(
        UnfinishedError, match=r"queue_samples: more than 10 samples .* set a longer interval"
    ):
        run_virtual(POINTS[name], switch)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"world": "live", "queue_samples": "1 us"}, "queue_samples: is virtual only"),
        ({"queue_samples": 0}, "greater than 0"),
    ],
)
def test_settings_that_have_no_samples_are_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        _point(**changes)
