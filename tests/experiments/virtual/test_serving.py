"""Requests that workers answer, in virtual time: their times, queues, connections and Little's law."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from fanin.experiments.results.measured import Row, row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.serving import _requests
from fanin.p4switch.engine.engine import Engine

DELAY, COALESCING = 5e-6, 4e-6
SHAPE = {"spines": 0, "leaves": 1, "hosts_per_leaf": 3, "rate": "100 Gb/s"}
SERVING = {"load": 0.4, "service_time": "200 us", "answer": "2 kB", "duration": "60 ms"}


def settings(serving: dict[str, Any] | None = None, **rest: Any) -> Settings:
    said: dict[str, Any] = {
        "topology": {"leaf_spine": SHAPE},
        "links": {"delay": DELAY},
        "coalescing": COALESCING,
        "workers": 2,
        "serving": SERVING | (serving or {}),
    }
    return Settings.model_validate(said | rest).settled


def run(switch: Engine, serving: dict[str, Any] | None = None, **rest: Any) -> Row:
    point = settings(serving, **rest)
    return row(point, run_virtual(point, switch))


def test_a_request_takes_the_service_and_a_round_trip_when_nothing_waits(switch: Engine) -> None:
    found = run(switch, {"service": "constant", "load": 0.01, "duration": "1.5 s"})
    trip = 2 * (2 * DELAY + COALESCING)
    assert found["min_seconds"] == pytest.approx(200e-6 + trip, rel=0.01)
    assert found["median_seconds"] == pytest.approx(200e-6 + trip, rel=0.01)
    assert found["predicted_p99_seconds"] is None
    assert found["gpu_idle_share"] == pytest.approx(0.99, abs=0.003)


@pytest.mark.parametrize("fan_out", [1, 2])
def test_each_request_takes_what_its_queues_make_of_it(fan_out: int, switch: Engine) -> None:
    """Lindley's recursion gives the waits: a question waits for what was left of the one before it.

    A host notices packets up to `coalescing` earlier if others have come just before.
    """
    point = settings({"fan_out": fan_out})
    assert point.serving
    found = row(point, run_virtual(point, switch))
    trip = 2 * (2 * DELAY + COALESCING)
    idle_from: defaultdict[str, float] = defaultdict(float)
    began, ended = [], []
    for request in _requests(point, point.serving):
        arrival, ends = request.start + trip / 2, []
        for question in request.questions:
            idle_from[question.server] = max(arrival, idle_from[question.server]) + question.seconds
            ends.append(idle_from[question.server] + trip / 2)
        began.append(request.start)
        ended.append(max(ends))
    counted = np.array(began) >= 0.1 * point.serving.duration
    times = np.subtract(ended, began)[counted]
    assert found["seconds"] == pytest.approx(times, abs=3 * COALESCING)
    assert found["p99_seconds"] == pytest.approx(np.percentile(times, 99), abs=3 * COALESCING)
    # Little's law, but for requests that are there at the beginning and at the end of what is counted.
    little = found["requests_per_second"] * found["mean_request_seconds"]
    assert found["requests_in_progress"] == pytest.approx(little, rel=0.02)


def test_each_new_connection_costs_its_round_trips(switch: Engine) -> None:
    """The same requests arrive, so only the connections differ; an answer of 16 packets needs another round trip."""
    small, large = ({"answer": size, "duration": "30 ms"} for size in ("2 kB", "16 kB"))
    congestion = {"initial_window": 10}
    trip = 2 * (2 * DELAY + COALESCING)
    for keys, rounds in ((small, 2), (large, 3)):
        reused, new = (
            run(switch, {**keys, "connections": kind}, congestion=congestion) for kind in ("reused", "new")
        )
        costs = np.subtract(new["seconds"], reused["seconds"])
        assert np.median(costs) == pytest.approx(rounds * trip, rel=0.03)
        assert new["predicted_p50_seconds"] - reused["predicted_p50_seconds"] == pytest.approx(
            rounds * trip, rel=0.03
        )


def test_several_slots_wait_less(switch: Engine) -> None:
    """Four slots of a quarter of the speed: they are as busy, but a question rarely finds none free."""
    one = run(switch)
    four = run(switch, {"slots": 4, "service_time": "800 us"})
    assert four["queued_seconds"] < 0.6 * one["queued_seconds"]
    assert four["median_seconds"] > one["median_seconds"]


@pytest.mark.parametrize("transport", ["selective-repeat", "go-back-n"])
def test_every_request_is_answered_in_spite_of_loss(transport: str, switch: Engine) -> None:
    found = run(
        switch,
        {"transport": transport, "connections": "new", "duration": "30 ms"},
        links={"delay": DELAY, "loss": 0.02},
    )
    assert found["retransmissions"] > 0
    assert np.isfinite(found["seconds"]).all()


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"serving": SERVING | {"fan_out": 3}}, "serving.fan_out: is 3, more than the 2 workers"),
        ({"workers": 3}, "serving: needs a host that is not a worker"),
        ({"serving": SERVING | {"duration": "1 ms"}}, "for 50 requests"),
        ({"size": "4 MB"}, "size: give size, such as '4 MB', or one of the tables"),
        ({"world": "live"}, "serving: is virtual only"),
    ],
)
def test_what_does_not_fit_is_explained(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(**keys)
    assert problem in str(refused.value)
