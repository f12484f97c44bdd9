"""A pipeline of stages in closed form: in which order each computes its micro-batches, and how long it idles.

GPipe: Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism", 2019. 1F1B, one
forward, one backward: Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", 2019, here with
a flush at the end of each step.
"""

from __future__ import annotations

from typing import NamedTuple

from experiments.scenario.tables.parallelism import Direction, Schedule


class Pass(NamedTuple):
    """Of a micro-batch through a stage."""

    direction: Direction
    micro_batch: int


def passes(schedule: Schedule, stage: int, stages: int, micro_batches: int) -> list[Pass]:
    """What a stage computes in a step, in its order.

    GPipe has all forward passes first. 1F1B does a backward pass as soon as there is one, and so keeps activations of
    no more micro-batches than there are stages from it to the last one.
    """
    ahead = micro_batches if schedule == "gpipe" else min(stages - stage - 1, micro_batches)
    order = [Pass("forward", number) for number in range(ahead)]
    for number in range(micro_batches):
        if ahead + number < micro_batches:
            order.append(Pass("forward", ahead + number))
        order.append(Pass("backward", number))
    return order


def bubble_share(stages: int, micro_batches: int) -> float:
    """The share of a step in which a stage idles if all take the same time and nothing has to be sent."""
    return (stages - 1) / (micro_batches + stages - 1)
