"""The order in which stages of a pipeline compute: nothing before what it needs, in the time of the closed form."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.experiments.models.pipeline import Pass, passes
from fanin.experiments.scenario.tables.parallelism import Schedule
from tests.experiments.pipeline import bubble_share

SCHEDULES = st.sampled_from(["1f1b", "gpipe"])
STAGES, MICRO_BATCHES = st.integers(1, 8), st.integers(1, 12)
FORWARD, BACKWARD = 1.0, 2.0


def kept(order: list[Pass]) -> int:
    """Return for how many micro-batches a stage has the activations at once, at most."""
    now = most = 0
    for one in order:
        now += 1 if one.direction == "forward" else -1
        most = max(most, now)
    return most


def makespan(schedule: Schedule, stages: int, micro_batches: int, chunks: int) -> float:
    """Seconds of a step in which nothing has to be sent, each stage waiting for what its next pass needs."""
    left = [deque(passes(schedule, stage, stages, micro_batches, chunks)) for stage in range(stages)]
    free = [0.0] * stages
    ended: dict[tuple[str, int, int], float] = {}  # by direction, place in the model, micro-batch
    while any(left):
        moved = False
        for stage, queue in enumerate(left):
            while queue:
                one = queue[0]
                place = one.chunk * stages + stage
                before = place - 1 if one.direction == "forward" else place + 1
                assert one.received == (before not in (-1, chunks * stages))
                needed = ended.get((one.direction, before, one.micro_batch), None if one.received else 0.0)
                if needed is None:
                    break
                seconds = (FORWARD if one.direction == "forward" else BACKWARD) / chunks
                free[stage] = max(free[stage], needed) + seconds
                ended[one.direction, place, one.micro_batch] = free[stage]
                queue.popleft()
                moved = True
        assert moved, "stages wait for one another"
    return max(free)


def plans() -> st.SearchStrategy[tuple[Schedule, int, int, int]]:
    """A schedule, stages, micro-batches and chunks that go together."""
    interleaved = st.tuples(st.just("1f1b"), st.integers(2, 6), st.integers(1, 4), st.integers(2, 4)).map(
        lambda drawn: (drawn[0], drawn[1], drawn[1] * drawn[2], drawn[3])
    )
    return st.one_of(st.tuples(SCHEDULES, STAGES, MICRO_BATCHES, st.just(1)), interleaved)


@given(plans(), st.data())
def test_each_micro_batch_goes_forward_and_then_backward_once_through_each_chunk(
    plan: tuple[Schedule, int, int, int], data: st.DataObject
) -> None:
    schedule, stages, micro_batches, chunks = plan
    order = passes(schedule, data.draw(st.integers(0, stages - 1)), stages, micro_batches, chunks)
    where = {(one.direction, one.micro_batch, one.chunk): at for at, one in enumerate(order)}
    assert len(order) == len(where) == 2 * micro_batches * chunks
    for number in range(micro_batches):
        for chunk in range(chunks):
            assert where["forward", number, chunk] < where["backward", number, chunk]


@given(plans())
def test_a_step_takes_the_time_of_the_closed_form(plan: tuple[Schedule, int, int, int]) -> None:
    """The bubble of interleaved stages is as many times shorter as these have chunks."""
    schedule, stages, micro_batches, chunks = plan
    seconds = makespan(schedule, stages, micro_batches, chunks)
    assert seconds == pytest.approx((micro_batches + (stages - 1) / chunks) * (FORWARD + BACKWARD))
    computing = micro_batches * (FORWARD + BACKWARD)
    assert 1 - computing / seconds == pytest.approx(bubble_share(stages, micro_batches, chunks))


@given(plans(), st.data())
def test_what_a_stage_sends_is_what_the_next_one_awaits_in_that_order(
    plan: tuple[Schedule, int, int, int], data: st.DataObject
) -> None:
    schedule, stages, micro_batches, chunks = plan
    here = data.draw(st.integers(0, stages - 1))
    order = {stage: passes(schedule, stage, stages, micro_batches, chunks) for stage in range(stages)}
    for direction, step in (("forward", 1), ("backward", -1)):
        there = (here + step) % stages
        moved = step if there != here + step else 0  # of chunks, from one end to the other
        sent = [
            (one.micro_batch, one.chunk + moved)
            for one in order[here]
            if one.direction == direction and one.sent
        ]
        awaited = [
            (one.micro_batch, one.chunk)
            for one in order[there]
            if one.direction == direction and one.received
        ]
        assert sent == awaited


@given(STAGES, MICRO_BATCHES, st.data())
def test_1f1b_keeps_the_activations_of_no_more_micro_batches_than_there_are_stages_to_the_last(
    stages: int, micro_batches: int, data: st.DataObject
) -> None:
    stage = data.draw(st.integers(0, stages - 1))
    assert kept(passes("1f1b", stage, stages, micro_batches)) == min(stages - stage, micro_batches)
    assert kept(passes("gpipe", stage, stages, micro_batches)) == micro_batches
