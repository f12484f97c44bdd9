"""A pipeline of stages: in which order each computes its micro-batches.

GPipe: Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism", 2019. 1F1B, one
forward, one backward: Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", 2019, here with
a flush at the end of each step; interleaved: Narayanan et al., "Efficient large-scale language model training on GPU
clusters using Megatron-LM", 2021.
"""

from __future__ import annotations

from typing import NamedTuple

from fanin.experiments.scenario.tables.parallelism import Direction, Schedule


class Pass(NamedTuple):
    """Of a micro-batch through one of a stage's chunks.

    received: whether what it needs comes from another stage. sent: whether another needs what comes out.
    """

    direction: Direction
    micro_batch: int
    chunk: int
    received: bool
    sent: bool


def passes(schedule: Schedule, stage: int, stages: int, micro_batches: int, chunks: int = 1) -> list[Pass]:
    """What a stage computes in a step, in its order.

    GPipe has all forward passes first. 1F1B does a backward pass as soon as there is one, and so keeps activations of
    no more micro-batches than there are stages from it to the last one. With several chunks, so many groups of layers
    as there are stages follow one another round all of them, by as many micro-batches at a time (interleaved 1F1B).
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
    """A stage's pass with this number in this direction: rounds of `stages` micro-batches, chunk by chunk."""
    turn, place = divmod(number, stages * chunks)
    chunk, within = divmod(place, stages)
    if direction == "backward":
        chunk = chunks - 1 - chunk
    first, last = (stage, chunk) == (0, 0), (stage, chunk) == (stages - 1, chunks - 1)
    received, sent = (not first, not last) if direction == "forward" else (not last, not first)
    return Pass(direction, turn * stages + within, chunk, received, sent)
