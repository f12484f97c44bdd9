"""Rough estimates of the time and packets that the points of a scenario take, before they run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import nan

from fanin.experiments.models.packets import full_frame, full_payload
from fanin.experiments.models.paths import Paths
from fanin.experiments.models.prediction import predicted_seconds
from fanin.experiments.models.timers import virtual_window
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.parallelism import Parallelism
from fanin.experiments.scenario.targets import target

# Packets carried over a link in a second, on a machine that has not finished any point yet.
HOPS_PER_SECOND = 150_000.0
VIRTUAL_START, LIVE_START = 1.0, 5.0  # seconds that a point takes in addition


def hops_per_second(finished: Iterable[Row]) -> float:
    """Return how many packet hops this machine simulates in a second, from rows of finished virtual points."""
    rows = [row for row in finished if row["error"] is None and row.get("packet_hops")]
    seconds = sum(max(row["run_seconds"] - VIRTUAL_START, 0.1 * row["run_seconds"]) for row in rows)
    return sum(row["packet_hops"] for row in rows) / seconds if rows else HOPS_PER_SECOND


def point_seconds(settings: Settings, speed: float) -> float:
    """Estimate the elapsed time of one point in seconds; NaN for a training, and for live links without a rate.

    Args:
        settings: The point.
        speed: Packet hops in a second, from hops_per_second().
    """
    if settings.world == "virtual":
        return VIRTUAL_START + packet_hops(settings) / speed
    if settings.size is None:
        return nan
    window = target(settings.switch).pace_of(settings).window
    once = predicted_seconds(settings, settings.size, window)
    return nan if once is None else LIVE_START + settings.repetitions * once


def packet_hops(settings: Settings) -> float:
    """Return the number of packets that cross all links of a virtual point when none is lost."""
    settings = settings.as_vectors
    assert settings.size is not None
    workers, cut = len(settings.members), settings.parallelism
    model = (
        cut.model if cut else 1
    )  # workers that share a copy of the model; each sums its part with the other copies
    copies, size = workers // model, settings.size // model
    packets = -(-size // settings.trees // full_payload(settings))
    paths = Paths(settings, full_frame(settings))
    activations = _activation_hops(settings, cut) if cut else 0.0
    if settings.algorithm == "in-network":
        packets += min(virtual_window(settings), packets)
        gradients = 2.0 * packets * paths.tree_links if copies > 1 else 0.0
        return (gradients + activations) * settings.repetitions
    # In an all-reduce each worker sends its vector twice, in other operations once, without its own part. There are few
    # acknowledgements.
    times = 2 if settings.collective == "all-reduce" else 1
    gathered = settings.compression.gathered(size, workers)
    whole = times * packets if gathered is None else gathered / full_payload(settings)
    sent = (copies - 1) / copies * whole
    return (sent * workers * paths.mean_links + activations) * settings.repetitions


def _activation_hops(settings: Settings, cut: Parallelism) -> float:
    """Return the packet hops of the activations in a step, as if all went to the next rank.

    Each send takes a few packets and is acknowledged.
    """
    packets = 1 + -(-(cut.activations or 0) // settings.payload)
    sends = 2 * (cut.pipeline * cut.chunks - 1) * cut.tensor
    all_reduces = 2 * cut.pipeline * cut.chunks * cut.tensor_calls * 2 * (cut.tensor - 1)
    neighbours = Paths(settings.model_copy(update={"algorithm": "ring"}), full_frame(settings))
    return packets * (sends + all_reduces) * cut.micro_batches * neighbours.mean_links


def wall_seconds(points: Sequence[float], jobs: int) -> float:
    """Return the elapsed time of points that take these seconds each, if `jobs` of them run at a time."""
    return max(sum(points) / jobs, max(points, default=0.0))
