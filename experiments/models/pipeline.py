"""Pipelines of stages: the order in which each stage computes its micro-batches.

Sources:

- GPipe: Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism", 2019
- 1F1B (one forward, one backward), here with a flush at the end of each step: Narayanan et al., "PipeDream: generalized
  pipeline parallelism for DNN training", 2019
- interleaved 1F1B: Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM",
  2021
"""

from __future__ import annotations

from typing import NamedTuple

from fanin.experiments.scenario.tables.parallelism import Direction, Schedule


class Pass(NamedTuple):
    """A pass of a micro-batch through one of a stage's chunks.

    Attributes:
        direction: "forward" or "backward".
        micro_batch: Number of the micro-batch.
        chunk: Number of the chunk in the stage.
        received: Whether its input comes from another stage.
        sent: Whether its output goes to another stage.
    """

    direction: Direction
    micro_batch: int
    chunk: int
    received: bool
    sent: bool


def passes(schedule: Schedule, stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Pass]:
    """Return the passes that a stage computes in a step, in order.

    GPipe does all forward passes first. 1F1B does a backward pass as soon as there is one, and so keeps activations of
    no more micro-batches than there are stages from this one to the last. With several chunks, groups of as many
    micro-batches as there are stages pass through all chunks (interleaved 1F1B).

    Args:
        schedule: "gpipe" or "1f1b".
        stage: Number of the stage.
        stages: Number of stages.
        micro_batches: Micro-batches of a step.
        chunks: Chunks of each stage.
    """
    count = micro_batches * chunks
    if schedule == "gpipe":
        ahead = count
    elif chunks == 1:
        ahead = min(stages - stage - 1, count)
    else:
        ahead = min(2 * (stages - stage - 1) + (chunks - 1) * stages, count)
    order = [_pass("forward", number, stage, stages, chunks) for number in range(ahead)]
    for number in range(count):
        if ahead + number < count:
            order.append(_pass("forward", ahead + number, stage, stages, chunks))
        order.append(_pass("backward", number, stage, stages, chunks))
    return order


def _pass(direction: Direction, number: int, stage: int, stages: int, chunks: int) -> Pass:
    """Return a stage's pass with this number in this direction: rounds of `stages` micro-batches, chunk by chunk."""
    turn, place = divmod(number, stages * chunks)
    chunk, within = divmod(place, stages)
    if direction == "backward":
        chunk = chunks - 1 - chunk
    first, last = (stage, chunk) == (0, 0), (stage, chunk) == (stages - 1, chunks - 1)
    received, sent = (not first, not last) if direction == "forward" else (not last, not first)
    return Pass(direction, turn * stages + within, chunk, received, sent)
