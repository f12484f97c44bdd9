"""Counts of links and workers in virtual time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.results.usage import LinkUse, Phase, QueueSample, WorkerUse
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.outcome import UnfinishedError
from fanin.experiments.virtual.steps import buckets, step_computing
from fanin.experiments.virtual.storage import data_waits
from fanin.simulator import SECOND
from fanin.simulator.fabric import Cluster, Fabric
from fanin.simulator.network import VirtualNetwork

_COUNTS = (
    *("packets", "bytes", "arrived", "busy", "waited", "queue_drops", "marks", "lost"),
    *("pauses", "paused", "storms", "watchdog_drops"),
)


def workers_of(settings: Settings, cluster: Cluster, *, barriers: bool = True) -> list[WorkerUse]:
    """Return the counts of workers in a run where all-reduces follow one that is a barrier (point.py).

    A training step lasts from the end of its barrier to the sum of its last bucket.

    Args:
        settings: The point.
        cluster: The network after the run.
        barriers: Whether there are such barriers.
    """
    per_step, stations = barriers + len(buckets(settings)), cluster.stations
    calls = [
        one.ended[::per_step] if settings.step else one.began[int(barriers) :: per_step] for one in stations
    ]
    ends = [one.ended[per_step - 1 :: per_step] for one in stations]
    # A worker that is stopped before its own call delays those that have called. One that has ended calls less often.
    spans = [
        (min(began), max(ended))
        for began, ended in zip(zip(*calls, strict=False), zip(*ends, strict=False), strict=False)
    ]
    found = []
    for rank, host, station, began, ended in zip(
        cluster.job.ranks, cluster.members, stations, calls, ends, strict=True
    ):
        step: dict[str, Any] = {}
        if settings.step:
            computing = step_computing(settings)[rank]
            step["step_computing_seconds"] = tuple(computing.tolist())
            step["computing_seconds"] = float(computing.sum())
            waited = float(data_waits(station, per_step).sum()) if station.loaded else 0.0
            step["loading_seconds"] = settings.step.loading * settings.repetitions + waited
        else:
            released = station.ended[::per_step]
            step["own_seconds"] = tuple(call - end for call, end in zip(began, released, strict=True))
        step["stopped_seconds"] = math.fsum(
            max(0.0, min(last, fault.end) - max(first, fault.at))
            for first, last in spans
            for fault in settings.faults
            if fault.worker == host and fault.end is not None
        )
        found.append(
            WorkerUse(
                rank=rank,
                host=host,
                began=tuple(began),
                ended=tuple(ended),
                retransmissions=station.retransmissions,
                **step,
            )
        )
    return found


MOST_SAMPLES = 200_000  # in one run


class QueueSampler:
    """A sampler of the queues of a network's links, at multiples of an interval.

    A sample that is due within a window is taken at the window's end, where depths are known.
    """

    def __init__(self, network: VirtualNetwork, interval: float | None) -> None:
        """Begin to sample every `interval` seconds; None: never."""
        self._network = network
        self._found: list[QueueSample] = []
        self._filled: set[int] = set()
        if interval is not None:
            self._interval = max(round(interval * SECOND), 1)
            self._due = 0
            network.before_window = self._sample

    @property
    def samples(self) -> tuple[QueueSample, ...]:
        """Return the samples in the order of time, for queues that are not empty or have just become so."""
        return tuple(self._found)

    def _sample(self, until: int) -> None:
        """Take the samples that are due by `until` (picoseconds), before which nothing more happens."""
        network = self._network
        while self._due <= until:
            time = max(self._due, network.now)
            depths = network.links.queue_depths(time)
            filled = set(depths.nonzero()[0].tolist())
            for link in sorted(filled | self._filled):
                near, far = network.link_ends[link]
                self._found.append(
                    QueueSample(near=near, far=far, seconds=time / SECOND, bytes=int(depths[link]))
                )
            self._filled = filled
            if len(self._found) > MOST_SAMPLES:
                raise UnfinishedError(
                    f"queue_samples: more than {MOST_SAMPLES:,} samples after {time / SECOND:g} s of virtual time; "
                    "set a longer interval"
                )
            # Empty queues stay empty until the window begins.
            self._due = ((time if filled else until) // self._interval + 1) * self._interval


class LinkMeter:
    """A reader of the counts of a fabric's links, phase by phase."""

    def __init__(self, fabric: Fabric, priority: int) -> None:
        """Begin the first phase, before the run.

        Args:
            fabric: The network.
            priority: Priority of the job's packets.
        """
        self._fabric, self._priority = fabric, priority
        self._before = _Reading.of(fabric, priority)

    def end_phase(self, phase: Phase) -> tuple[LinkUse, ...]:
        """Return what each link did since the previous phase, without links that did nothing."""
        before, now = self._before, _Reading.of(self._fabric, self._priority)
        self._before = now
        network = self._fabric.network
        longest = network.links.counts.longest_queue
        seconds = (now.time - before.time) / SECOND
        counts = {name: now.counts[name] - before.counts[name] for name in _COUNTS}
        overtaken, lower = now.overtaken - before.overtaken, now.lower - before.lower
        # Byte-nanoseconds over seconds.
        mean = (now.areas - before.areas) / 1e9 / seconds if seconds else np.zeros(len(longest))
        found = []
        both_ways = [link for link in self._fabric.topology.links for _ in range(2)]
        for i, ((near, far), link) in enumerate(zip(network.link_ends, both_ways, strict=True)):
            own = {name: int(values[i]) for name, values in counts.items()}
            if not (own["packets"] or own["queue_drops"] or own["watchdog_drops"]):
                continue
            busy, paused, waited = (own.pop(name) / SECOND for name in ("busy", "paused", "waited"))
            # Packets that wait in the queue have not arrived yet.
            twice = max(0, own.pop("arrived") + own["lost"] - own["packets"])
            found.append(
                LinkUse(
                    near=near,
                    far=far,
                    phase=phase,
                    seconds=seconds,
                    wire_bytes=own["bytes"] + own["packets"] * link.properties.virtual_overhead,
                    busy_seconds=busy,
                    paused_seconds=paused,
                    waited_seconds=waited,
                    overtaken_seconds=int(overtaken[i]) / SECOND,
                    lower_bytes=int(lower[i]),
                    mean_queue=float(mean[i]),
                    longest_queue=float(longest[i]),
                    duplicated=twice,
                    **own,
                )
            )
        longest[:] = network.links.queue_depths(network.now)  # the next phase begins with the present depths
        return tuple(found)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The counts at a time (picoseconds), by link."""

    time: int
    counts: dict[str, NDArray[np.int64]]
    areas: NDArray[np.int64]
    overtaken: NDArray[np.int64]
    lower: NDArray[np.int64]

    @classmethod
    def of(cls, fabric: Fabric, priority: int) -> Self:
        network = fabric.network
        counts = {name: getattr(network.links.counts, name).copy() for name in _COUNTS}
        # Links count the whole time of a packet when they begin to send it.
        counts["busy"] -= np.maximum(network.links.table["free_at"] - network.now, 0)
        return cls(
            network.now,
            counts,
            network.queue_areas,
            network.overtaken[:, priority : priority + 1].sum(axis=1),
            network.wire_bytes[:, :priority].sum(axis=1),
        )
