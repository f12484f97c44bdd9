"""The analytical model of a training step of a model that is cut into parts of layers and stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isnan, nan

from fanin.experiments.models.prediction import predicted_seconds
from fanin.experiments.models.step import bucket_slices, filled_buckets, summed_after
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.parallelism import Coordinates
from fanin.experiments.scenario.tables.step import slowness
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES


def predicted_step_seconds(settings: Settings, window: int) -> float | None:
    """Return the predicted seconds of a step; None if predicted_seconds() cannot predict what the step sends.

    The first micro-batch goes forward through all stages, and the last one backward. Meanwhile the slowest stage
    computes the others, and then gradients are summed (Huang et al., "GPipe", 2019, with the time of sending added).
    GPipe hides all other sends. With 1F1B, a stage with n - 1 stages behind it has at most n micro-batches under way,
    so it takes in another no sooner than an n-th of the time after which one comes back. With chunks, the first
    micro-batch passes all stages as often as there are chunks, and sends are hidden if they take less than a pass
    through a chunk. Each stage sums its buckets of gradients one after another, each once the last micro-batch has come
    back through its layers; the stage that is ready last ends the step. The time that the first group of each kind
    takes alone stands for all groups.

    Args:
        settings: The point.
        window: Packets in flight.
    """
    cut, members = settings.parallelism, settings.members
    assert cut is not None
    workers, activations = len(members), cut.activations or 0
    between_hosts = settings.model_copy(update={"algorithm": "ring"})
    send = settings.model_copy(update={"algorithm": "ring", "collective": "broadcast"})
    first = [members[cut.rank(Coordinates(0, 0, stage), workers)] for stage in range(cut.pipeline)]

    sums = cut.tensor_calls * _alone(between_hosts, activations, window, members[: cut.tensor])
    slow, width = slowness(cut.stragglers, members), workers // cut.pipeline
    slowest = [max(slow[begin : begin + width]) for begin in range(0, workers, width)]
    forward = [sums + cut.seconds("forward") * factor for factor in slowest]
    backward = [sums + cut.seconds("backward") * factor for factor in slowest]
    stages = [sum(both) for both in zip(forward, backward, strict=True)]
    sends = [_alone(send, activations, window, pair) for pair in pairwise(first)]
    once = sum(sends)
    turns, turn, round_trip = cut.chunks * cut.micro_batches_each(workers), max(stages), 0.0
    if cut.chunks > 1:
        back = _alone(send, activations, window, [first[-1], first[0]])
        round_trip = max(sum(backward) + once + back, cut.pipeline * max(backward))
        once += (cut.chunks - 1) * (once + back)
    elif cut.schedule == "1f1b":
        there_and_back = (
            (sum(stages[at:]) + 2 * sum(sends[at:])) / (len(stages) - at) for at in range(len(stages))
        )
        turn = max(turn, *there_and_back)
    ended = sum(stages) + 2 * once + (turns - 1) * turn  # of the first stage's last pass
    buckets = _bucket_seconds(settings, window)
    if isnan(ended + sum(buckets)):
        return None
    seconds = 0.0
    for stage, one in enumerate(backward):
        last = (ended - chunk * round_trip for chunk in reversed(range(cut.chunks)))
        seconds = max(seconds, summed_after(_ready(settings, last, one), buckets))
        ended -= one + (sends[stage] if stage < len(sends) else 0.0)
    return seconds


def _ready(settings: Settings, ended: Iterable[float], backward: float) -> list[float]:
    """Return when each bucket of a stage is ready.

    Args:
        settings: The point.
        ended: When the last pass through each chunk has ended, in seconds.
        backward: Seconds of such a pass.
    """
    cut = settings.parallelism
    assert cut is not None
    assert settings.elements is not None
    layers = cut.chunk_layers
    filled = filled_buckets(settings.elements // cut.model, cut.bucket_elements, cut.chunks * layers)
    done = (end - backward * (1 - layer / layers) for end in ended for layer in range(1, layers + 1))
    return [time for time, count in zip(done, filled, strict=True) for _ in range(count)]


def _bucket_seconds(settings: Settings, window: int) -> list[float]:
    """Return the time that the sum of each bucket takes alone."""
    cut, members = settings.parallelism, settings.members
    assert cut is not None
    assert settings.elements is not None
    group = [members[rank] for rank in cut.data_groups(len(members))[0]]
    sizes = [
        ELEMENT_BYTES * (part.stop - part.start)
        for part in bucket_slices(settings.elements // cut.model, cut.bucket_elements)
    ]
    # A sum knows what exponents to expect from the previous sum of the same length.
    several = settings.model_copy(update={"repetitions": settings.repetitions * len(sizes)})
    alone = {size: _alone(several, size, window, group) for size in set(sizes)}
    return [alone[size] for size in sizes]


def _alone(settings: Settings, size: int, window: int, members: Sequence[str]) -> float:
    """Return the seconds of a collective of these hosts; NaN if unknown."""
    if len(members) == 1:
        return 0.0
    seconds = predicted_seconds(settings, size, window, members)
    return nan if seconds is None else seconds
