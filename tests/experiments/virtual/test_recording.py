"""A recording has the calls and packets of a run as its results have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.recording import RecordingError, record
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch

SCENARIO = Path(__file__).parents[3] / "scenarios/in-network-and-ring.toml"


def point(*changes: str) -> Settings:
    (found,) = load_scenario(SCENARIO, changes).points
    return found


@pytest.fixture(scope="module")
def program() -> Engine:
    return load_switch()


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_calls_take_as_long_as_in_the_results(program: Engine, algorithm: str) -> None:
    settings = point(f"algorithm={algorithm}", "repetitions=3")
    recording = record("one", settings, program)
    measured = run_virtual(settings, program)
    for repetition, seconds in enumerate(measured.seconds):
        calls = [call for call in recording.calls if (call.repetition, call.bucket) == (repetition, 1)]
        assert [call.rank for call in calls] == [0, 1, 2, 3]
        assert {call.size for call in calls} == {settings.size}
        assert max(call.end for call in calls) - max(call.begin for call in calls) == pytest.approx(seconds)
    barriers = [call for call in recording.calls if call.bucket == 0]
    assert {call.size for call in barriers} == {4}
    assert len(recording.calls) == 2 * len(barriers)


def test_buckets_of_a_step_are_calls(program: Engine) -> None:
    changes = "algorithm=in-network", "step_forward=10 us", "step_backward=20 us", "step_bucket=8 kB"
    recording = record("step", point(*changes), program)
    sizes = {(call.bucket, call.size) for call in recording.calls if call.repetition == 1}
    assert sizes == {(0, 4), (1, 8000), (2, 8000)}


def test_a_live_network_is_not_recorded(program: Engine) -> None:
    with pytest.raises(RecordingError, match="--set world=virtual"):
        record("live", point("world=live", "algorithm=in-network"), program)
