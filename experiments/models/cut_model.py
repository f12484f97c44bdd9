"""What the closed form says of a training step of a model that is cut into parts of layers and stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isnan, nan

from experiments.models.prediction import predicted_seconds
from experiments.scenario.settings import Settings
from experiments.scenario.tables.parallelism import Coordinates
from experiments.scenario.tables.step import slowness


def predicted_step_seconds(settings: Settings, window: int) -> float | None:
    """Seconds of a step with `window` packets in flight; None: of what it sends predicted_seconds() says nothing.

    The first micro-batch goes forward through all stages and the last one backward, meanwhile the slowest stage
    computes the others, and then gradients are summed (Huang et al., "GPipe", 2019, with the time of what is sent).
    GPipe hides all other sends. By 1F1B a stage with n - 1 behind it has n micro-batches on their way at most, so
    it takes in another no sooner than an n-th of the time after which one comes back. With chunks the first micro-batch
    goes round all stages as often, and sends must take less than a pass through a chunk to be hidden. What the first
    group of each kind takes alone counts for all.
    """
    cut, members = settings.parallelism, settings.members
    assert cut is not None
    assert settings.size is not None
    workers, activations = len(members), cut.activations or 0
    between_hosts = settings.model_copy(update={"algorithm": "ring"})
    send = settings.model_copy(update={"algorithm": "ring", "collective": "broadcast"})
    first = [members[cut.rank(Coordinates(0, 0, stage), workers)] for stage in range(cut.pipeline)]
    group = [members[rank] for rank in cut.data_groups(workers)[0]]

    sums = 2 * cut.tensor_calls * _alone(between_hosts, activations, window, members[: cut.tensor])
    computing, width = cut.seconds("forward") + cut.seconds("backward"), workers // cut.pipeline
    slow = slowness(cut.stragglers, members)
    stages = [sums + computing * max(slow[begin : begin + width]) for begin in range(0, workers, width)]
    sends = [_alone(send, activations, window, pair) for pair in pairwise(first)]
    turns, turn = cut.chunks * cut.micro_batches_each(workers), max(stages)
    if cut.chunks > 1:
        sends += (cut.chunks - 1) * [*sends, _alone(send, activations, window, [first[-1], first[0]])]
    elif cut.schedule == "1f1b":
        there_and_back = (
            (sum(stages[at:]) + 2 * sum(sends[at:])) / (len(stages) - at) for at in range(len(stages))
        )
        turn = max(turn, *there_and_back)
    gradients = _alone(settings, settings.size // cut.model, window, group)
    seconds = sum(stages) + 2 * sum(sends) + (turns - 1) * turn + gradients
    return None if isnan(seconds) else seconds


def _alone(settings: Settings, size: int, window: int, members: Sequence[str]) -> float:
    """Seconds of a collective of these hosts; NaN: unknown."""
    if len(members) == 1:
        return 0.0
    seconds = predicted_seconds(settings, size, window, members)
    return nan if seconds is None else seconds
