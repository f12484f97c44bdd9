"""Finds out why training is slow."""

from typing import Any

# TODO 1: the faults of runs/1.json to runs/6.json, each of them once: "data loader", "slow worker", "lossy link",
# "slow link", "small window", "noisy neighbour"
ANSWERS = ["", "", "", "", "", ""]


def cause(run: dict[str, Any]) -> str:
    """Return what is wrong with a run: one of the six faults, or "nothing"."""
    # TODO 2: the workers' computing_seconds and loading_seconds
    # TODO 3: lost packets, and links that send more slowly than planned
    # TODO 4: links that are full of what others send, and workers that wait although all links are idle
    return "nothing"
