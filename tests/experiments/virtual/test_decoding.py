"""A model that generates text in virtual time: what a token takes, by the rounds of each algorithm."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fanin.experiments.results.measured import Row, row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.decoding import Decoding
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

DELAY, COALESCING = 2e-6, 1e-6
SHAPE = {"spines": 0, "leaves": 1, "hosts_per_leaf": 8, "rate": "400 Gb/s", "properties": {"delay": DELAY}}
DECODING = {"model": "llama-3-8b", "layers": 1, "memory_rate": "2 TB/s", "launch": "3 us"}


def settings(decoding: dict[str, Any] | None = None, **rest: Any) -> Settings:
    said = {
        "topology": {"leaf_spine": SHAPE},
        "decoding": DECODING | (decoding or {}),
        "coalescing": COALESCING,
    }
    return Settings.model_validate(said | rest).settled


def run(switch: Engine, decoding: dict[str, Any] | None = None, **rest: Any) -> Row:
    point = settings(decoding, **rest)
    measured = run_virtual(point, switch)
    assert measured.violations == 0
    return row(point, measured)


@pytest.mark.parametrize(
    ("algorithm", "latencies"), [("in-network", 1), ("parameter-server", 2), ("ring", 2 * 7)]
)
def test_a_token_takes_its_computing_and_the_latencies_of_64_sums(
    algorithm: str, latencies: int, switch: Engine
) -> None:
    """They are known to 3 %: the few packets of a sum take 0.2 us of a latency of 5 us."""
    found = run(switch, algorithm=algorithm)
    weights = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 4096 * 128_256
    computing = 2 * weights / 8 / 2e12
    latency = 2 * DELAY + COALESCING
    assert found["step_seconds"] == pytest.approx(computing + 64 * (3e-6 + latencies * latency), rel=0.03)
    assert found["exposed_seconds"] == pytest.approx(found["step_seconds"] - computing)
    assert found["gpu_idle_share"] == pytest.approx(found["exposed_seconds"] / found["step_seconds"])
    assert found["tokens_per_second"] == pytest.approx(1 / found["step_seconds"])
    assert found["predicted_tokens_per_second"] == pytest.approx(found["tokens_per_second"], rel=0.02)


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_one_block_stands_for_all(algorithm: str, switch: Engine) -> None:
    one, three = (run(switch, {"layers": layers}, algorithm=algorithm) for layers in (1, 3))
    assert len(three["seconds"]) == 1 + 2 * 3  # the first is not counted
    assert one["step_seconds"] == pytest.approx(three["step_seconds"], rel=1e-4)


def test_what_a_worker_reads_between_two_sums() -> None:
    def seconds(**keys: Any) -> float:
        return Decoding.model_validate(
            {"model": "llama-3-70b", "memory_rate": "2 TB/s", **keys}
        ).compute_seconds(8)

    alone = seconds()
    assert seconds(sequences=64) == alone  # the weights are read once for all
    assert seconds(dtype="fp8") == pytest.approx(alone / 2)
    # 2 x 1,024 values of two bytes in each of 80 blocks.
    assert seconds(context=1000) == pytest.approx(alone + 1000 * 327_680 / 8 / 2e12 / 160)
    assert seconds(sequences=8, context=1000) == pytest.approx(alone + 8000 * 327_680 / 8 / 2e12 / 160)
    # With many sequences, operations take longer than reading.
    assert seconds(sequences=4096) == pytest.approx(4096 * 2 * 69.5e9 / 989e12 / 8 / 160, rel=1e-3)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            {"decoding": DECODING | {"model": "mixtral-8x7b"}},
            "model: mixtral-8x7b has experts; choose gpt-3-175b, llama-3-8b, llama-3-70b",
        ),
        (
            {"decoding": DECODING | {"model": "resnet-50"}},
            "model: resnet-50 generates no text; choose",
        ),
        (
            {"size": "4 MB"},
            "size: give size, such as '4 MB', or one of the tables training, decoding, serving and arrivals",
        ),
        ({"repetitions": 3}, "repetitions: cannot be combined with decoding"),
        ({"world": "live"}, "decoding: is virtual only"),
    ],
)
def test_what_does_not_fit_is_explained(keys: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(**keys)
    assert problem in str(refused.value)
