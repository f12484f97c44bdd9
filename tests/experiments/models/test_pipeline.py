"""The order in which stages of a pipeline compute: nothing before what it needs, in the time of the closed form."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.models.pipeline import Pass, bubble_share, passes
from experiments.scenario.tables.parallelism import Schedule

SCHEDULES = st.sampled_from(["1f1b", "gpipe"])
STAGES, MICRO_BATCHES = st.integers(1, 8), st.integers(1, 12)
FORWARD, BACKWARD = 1.0, 2.0


def kept(order: list[Pass]) -> int:
    """Of how many micro-batches a stage has the activations at once, at most."""
    now = most = 0
    for one in order:
        now += 1 if one.direction == "forward" else -1
        most = max(most, now)
    return most


def makespan(schedule: Schedule, stages: int, micro_batches: int) -> float:
    """Seconds of a step in which nothing has to be sent, each stage waiting for what its next pass needs."""
    left = [deque(passes(schedule, stage, stages, micro_batches)) for stage in range(stages)]
    free = [0.0] * stages
    ended: dict[tuple[int, Pass], float] = {}
    while any(left):
        moved = False
        for stage, queue in enumerate(left):
            while queue:
                one = queue[0]
                neighbour = stage - 1 if one.direction == "forward" else stage + 1
                needed = ended.get((neighbour, one), 0.0 if neighbour in (-1, stages) else None)
                if needed is None:
                    break
                seconds = FORWARD if one.direction == "forward" else BACKWARD
                free[stage] = ended[stage, queue.popleft()] = max(free[stage], needed) + seconds
                moved = True
        assert moved, "stages wait for one another"
    return max(free)


@given(SCHEDULES, STAGES, MICRO_BATCHES, st.data())
def test_each_micro_batch_goes_forward_and_then_backward_once(
    schedule: Schedule, stages: int, micro_batches: int, data: st.DataObject
) -> None:
    order = passes(schedule, data.draw(st.integers(0, stages - 1)), stages, micro_batches)
    for direction in ("forward", "backward"):
        numbers = [one.micro_batch for one in order if one.direction == direction]
        assert numbers == list(range(micro_batches))
    for number in range(micro_batches):
        assert order.index(Pass("forward", number)) < order.index(Pass("backward", number))


@given(SCHEDULES, STAGES, MICRO_BATCHES)
def test_a_step_takes_the_time_of_the_closed_form(
    schedule: Schedule, stages: int, micro_batches: int
) -> None:
    seconds = makespan(schedule, stages, micro_batches)
    assert seconds == (micro_batches + stages - 1) * (FORWARD + BACKWARD)
    computing = micro_batches * (FORWARD + BACKWARD)
    assert 1 - computing / seconds == pytest.approx(bubble_share(stages, micro_batches))


@given(STAGES, MICRO_BATCHES, st.data())
def test_1f1b_keeps_the_activations_of_no_more_micro_batches_than_there_are_stages_to_the_last(
    stages: int, micro_batches: int, data: st.DataObject
) -> None:
    stage = data.draw(st.integers(0, stages - 1))
    assert kept(passes("1f1b", stage, stages, micro_batches)) == min(stages - stage, micro_batches)
    assert kept(passes("gpipe", stage, stages, micro_batches)) == micro_batches
