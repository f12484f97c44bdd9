"""How long the stages of a pipeline idle, in closed form."""

from __future__ import annotations


def bubble_share(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Return the share of a step in which a stage idles if all take the same time and nothing has to be sent."""
    return (stages - 1) / (chunks * micro_batches + stages - 1)
