"""Finds out why training is slow."""

from statistics import median_low
from typing import Any

# The faults of runs/1.json to runs/6.json.
ANSWERS = ["slow link", "data loader", "noisy neighbour", "slow worker", "small window", "lossy link"]


def cause(run: dict[str, Any]) -> str:
    """Return what is wrong with a run: one of the six faults, or "nothing"."""
    seconds, workers, links = run["seconds"], run["workers"], run["links"]
    loading = max(worker["loading_seconds"] for worker in workers)
    if loading > 0.2 * seconds:
        return "data loader"
    computing = [worker["computing_seconds"] for worker in workers]
    if max(computing) > 1.4 * median_low(computing):
        return "slow worker"
    if any(link["lost"] > 0.01 * link["packets"] for link in links):
        return "lossy link"
    for link in links:
        used = link["busy_seconds"] > 0.01 * seconds
        if used and 8 * link["bytes"] / link["busy_seconds"] < 0.7 * link["planned_rate"]:
            return "slow link"
    # Of hosts' own links, only those of the workers matter to the workers.
    shared = [link for link in links if not (is_host(link["near"]) or is_host(link["far"]))]
    full = any(link["busy_seconds"] > 0.6 * seconds for link in shared)
    if full and foreign_bytes(run) > sum(link["bytes"] for link in links) / 10:
        return "noisy neighbour"
    if seconds - loading - max(computing) > 0.6 * seconds:
        return "small window"
    return "nothing"


def foreign_bytes(run: dict[str, Any]) -> int:
    """Return the bytes that hosts have sent on which no worker of this training runs."""
    ours = {worker["host"] for worker in run["workers"]}
    return sum(link["bytes"] for link in run["links"] if is_host(link["near"]) and link["near"] not in ours)


def is_host(name: str) -> bool:
    """Return whether a node is a host; the others are switches."""
    return name.startswith("h")
