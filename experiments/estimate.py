"""Rough estimates of the time and packets that the points of a scenario take, before they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import log2, nan
from typing import Any

import numpy as np

from fanin.controller.routes import Routes
from fanin.experiments.models.packets import full_frame, full_payload
from fanin.experiments.models.paths import Paths
from fanin.experiments.models.prediction import predicted_seconds
from fanin.experiments.models.timers import virtual_window
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.parallelism import Parallelism
from fanin.experiments.scenario.targets import target
from fanin.experiments.training.digits import TRAINING_IMAGES
from fanin.experiments.virtual.traffic import requests

# Packets carried over a link in a second, on a machine that has not finished any point yet.
HOPS_PER_SECOND = 600_000.0
VIRTUAL_START, LIVE_START = 1.0, 5.0  # seconds that a point takes in addition
# How many times as long a hop takes if each packet wakes a host, which is Python, by itself. Measured: 50,000
# to 120,000 hops in a second of processor time, and 300,000 to 1,000,000 where hosts receive many packets at a time.
_AWAKENED = 7.0
# The same between hosts whose workers and network cards are C: no switch adds up values. Measured: 0.3 to 0.6.
_BETWEEN_HOSTS = 0.5
# How many times as long a hop takes with workers of a protocol, which are Python too, except for fanin's. Measured with
# vectors of 8 MB. A protocol of the user's counts as the slowest of the others but thc, whose workers compute most.
_OF_PROTOCOL = {
    "fanin": 1.0,
    "atp": 1.4,
    "esa": 1.4,
    "omnireduce": 1.4,
    "switchml": 1.9,
    "majority": 4.0,
    "thc": 30.0,
}
_OTHER_PROTOCOL = 2.6
# What a worker does for a call however small, as a number of hops: its own, one in Python, and that of a training.
_CALL, _PYTHON_CALL, _TRAINING_CALL = 60.0, 150.0, 500.0
# Floating-point operations of a training that take as long as a hop, and how often they are done: the training in one
# process is computed as well.
_FLOP_OF_HOP, _TRAININGS = 2_500.0, 2
_FLOP_OF_SAMPLE = 6  # for each parameter: forward and backward
# Factor by which elapsed times may differ from estimates, on a machine that does nothing else.
UNCERTAINTY = 3.0
_PAIRS = 64  # pairs of hosts by which the distance of two hosts is estimated


def hops_per_second(finished: Iterable[Row]) -> float:
    """Return how many packet hops this machine simulates in a second, from rows of finished virtual points.

    Hops between hosts in Python count as several.
    """
    rows = [row for row in finished if row["error"] is None and row.get("packet_hops")]
    seconds = sum(max(row["run_seconds"] - VIRTUAL_START, 0.1 * row["run_seconds"]) for row in rows)
    points = [Settings.model_validate_json(row["settings"]) for row in rows]
    hops = sum(work(point, row["packet_hops"]) for point, row in zip(points, rows, strict=True))
    return hops / seconds if rows else HOPS_PER_SECOND


def work(settings: Settings, hops: float) -> float:
    """Return what a virtual point has to do, as a number of hops whose packets arrive many at a time.

    Args:
        settings: The point.
        hops: Its packet hops.
    """
    vectors = settings.as_vectors
    calls = len(settings.members) * vectors.repetitions * _buckets(vectors)
    if (training := settings.training) is not None:
        samples = training.epochs * TRAINING_IMAGES
        parameters = vectors.elements or 0
        flop = _TRAININGS * _FLOP_OF_SAMPLE * parameters * samples
        return hops * effort(settings) + calls * _TRAINING_CALL + flop / _FLOP_OF_HOP
    if settings.serving is not None or settings.arrivals is not None:
        return hops * effort(settings)
    if (cut := settings.parallelism) is not None:
        calls += 2 * round(_messages(cut) * settings.repetitions)
    return hops * effort(settings) + calls * (_CALL if _in_c(settings) else _PYTHON_CALL)


def effort(settings: Settings) -> float:
    """Return the time that a hop of a virtual point takes, in multiples of one whose packets arrive many at a time.

    TCP, servers, stages of a cut model and the workers of most protocols are Python. So is a host with other traffic.
    """
    in_network = settings.algorithm == "in-network"
    protocol = _OF_PROTOCOL.get(settings.protocol, _OTHER_PROTOCOL) if in_network else 1.0
    if (
        "tcp" in (settings.transport, settings.traffic_transport)
        or settings.serving is not None
        or settings.servers
    ):
        return _AWAKENED * protocol
    if not _needs_python(settings):
        return 1.0 if in_network else _BETWEEN_HOSTS
    alone = _per_packet(settings)
    return (1 + (_AWAKENED - 1) * 2 * alone / (1 + alone)) * protocol


def _in_c(settings: Settings) -> bool:
    """Return whether workers are C."""
    if settings.algorithm != "in-network":
        return True
    return settings.implementation.ours and settings.collective == "all-reduce"


def _needs_python(settings: Settings) -> bool:
    """Return whether Python carries the packets of some workers: their hosts do more than all-reduces."""
    traffic = settings.traffic is not None and settings.traffic.pattern in ("checkpoint", "trace")
    replay = settings.workload is not None and bool(settings.workload.trace)
    more = settings.parallelism, settings.storage, settings.topology.reconfiguration
    return traffic or replay or not _in_c(settings) or any(one is not None for one in more)


def _per_packet(settings: Settings) -> float:
    """Return how many acknowledgements a packet between hosts has on average, and how often it wakes its host.

    A host notices, and acknowledges, all packets together that arrive within `coalescing`.
    """
    rate = settings.host_link.rate_bits_per_second
    if rate is None:
        return 0.0
    apart = 8 * full_frame(settings) / rate
    return min(1.0, apart / settings.coalescing) if settings.coalescing else 1.0


def point_seconds(settings: Settings, speed: float) -> float:
    """Estimate the elapsed time of one point in seconds; NaN for a training, and for live links without a rate.

    Args:
        settings: The point.
        speed: Packet hops in a second, from hops_per_second().
    """
    if settings.world == "virtual":
        return VIRTUAL_START + work(settings, packet_hops(settings)) / speed
    if settings.size is None:
        return nan
    window = target(settings.switch).pace_of(settings).window
    once = predicted_seconds(settings, settings.size, window)
    return nan if once is None else LIVE_START + settings.repetitions * once


def packet_hops(settings: Settings) -> float:
    """Return the packets that cross all links of a virtual point, with those that are retransmitted."""
    lost = float(np.mean([link.properties.mean_loss for link in settings.network.links]))
    return _packet_hops(settings) * (1 + lost * _resent(settings)) + sum(_other_hops(settings)) * (
        1 + 2 * lost
    )


def _resent(settings: Settings) -> float:
    """Return how many packets are retransmitted for one that a link has lost.

    With go-back-n, these are all of a window on the path, which has two links or more.
    """
    if settings.algorithm == "in-network" or settings.transport != "go-back-n":
        return 2.0
    return 2.0 * (settings.window or settings.VIRTUAL_WINDOW)


def _other_hops(settings: Settings) -> Iterator[float]:
    """Yield the packet hops of what a point has next to the calls of its job."""
    if settings.traffic is not None:
        sizes = [flow.size for request in requests(settings) for flow in request]
        yield _message_hops(settings, sizes)
    if (other := settings.other_job) is not None and other.repetitions:
        part = len(settings.bystanders) // other.jobs
        for job in range(other.jobs):
            hosts = settings.bystanders[job * part : (job + 1) * part]
            like = {"algorithm": other.algorithm, "size": other.size, "repetitions": other.repetitions}
            yield _packet_hops(_of_hosts(settings, hosts, other_job=None, workers=part, **like))
    if (storage := settings.storage) is not None:
        reads = [storage.batch] * settings.repetitions if storage.batch else []
        writes = [storage.checkpoint] * (settings.repetitions // storage.every) if storage.checkpoint else []
        yield len(settings.members) * _message_hops(settings, [*reads, *writes])


def _of_hosts(settings: Settings, hosts: Sequence[str], **changes: Any) -> Settings:
    """Return settings whose workers are these hosts, with other changes."""
    return settings.model_copy(update=changes | {"hosts": tuple(hosts)})


def _message_hops(settings: Settings, sizes: Sequence[float]) -> float:
    """Return the packet hops of messages of these bytes between two hosts that are drawn."""
    packets = np.ceil(np.array(sizes) / settings.payload)
    acknowledged = np.maximum(packets * _per_packet(settings), 1)  # at least the last one
    return float(np.sum(packets + acknowledged)) * _distance(settings)


def _distance(settings: Settings) -> float:
    """Return the mean number of links between two hosts."""
    network, routes = settings.network, Routes(settings.network)
    hosts = [host.leaf for host in network.hosts]
    draw = np.random.default_rng(0)
    found = []
    for _ in range(_PAIRS):
        here, there = (hosts[one] for one in draw.choice(len(hosts), 2, replace=False))
        links = 2
        while here != there:
            here, links = routes.next_hops(here, there)[0], links + 1
        found.append(links)
    return float(np.mean(found))


def _call_hops(settings: Settings) -> float | None:
    """Return the packet hops of a point whose calls are those of a table or a trace; None if it sums vectors."""
    if (serving := settings.serving) is not None:
        asked = serving.duration * serving.requests_per_second(len(settings.members)) * serving.fan_out
        greetings = serving.handshakes if serving.connections == "new" else 0
        sizes = [serving.request, serving.answer, *[1] * greetings]
        return asked * _message_hops(settings, sizes)
    if (arrivals := settings.arrivals) is not None:
        return sum(
            _packet_hops(
                _of_hosts(
                    settings,
                    settings.members[: job.workers],
                    arrivals=None,
                    algorithm=job.algorithm or settings.algorithm,
                    size=job.size,
                    repetitions=job.rounds,
                )
            )
            for job in arrivals.jobs
        )
    return None


def _packet_hops(settings: Settings) -> float:
    """Return the packet hops of a point's own job."""
    if (hops := _call_hops(settings)) is not None:
        return hops
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
        # Ahead of the values, in each sum or only in the first, whose exponents the others expect (scaling.py).
        ahead = min(virtual_window(settings), packets) if settings.implementation.ours else 0
        sums = packets * settings.repetitions + ahead * (1 if ahead == packets else settings.repetitions)
        barriers = 1 if settings.collective == "all-reduce" and not cut else 0
        sums += barriers * settings.repetitions
        gradients = 2.0 * sums * paths.tree_links if copies > 1 else 0.0
        return gradients + activations * settings.repetitions
    # In an all-reduce each worker sends its vector twice, in other operations once, without its own part.
    times = 2 if settings.collective == "all-reduce" else 1
    gathered = settings.compression.gathered(size, workers)
    whole = times * packets if gathered is None else gathered / full_payload(settings)
    messages = _MESSAGES.get(settings.algorithm, _few_messages)(copies) * times / 2 * _buckets(settings)
    sent = max((copies - 1) / copies * whole, messages if copies > 1 else 0.0)
    sent = max(sent * (1 + _per_packet(settings)), sent + messages)
    barrier = 4.0 * (workers - 1) if settings.collective == "all-reduce" and not cut else 0.0
    return ((sent * workers + barrier) * paths.mean_links + activations) * settings.repetitions


def _buckets(settings: Settings) -> int:
    """Return in how many sums the gradients of a step are summed; 1 if there are no steps."""
    assert settings.size is not None
    table = settings.step or settings.parallelism
    if table is None:
        return 1
    if settings.step is not None and settings.step.buckets:
        return len(settings.step.buckets)
    copies = settings.parallelism.model if settings.parallelism else 1
    return max(1, -(-settings.size // copies // table.bucket)) if table.bucket else 1


def _activation_hops(settings: Settings, cut: Parallelism) -> float:
    """Return the packet hops of the activations in a step, as if all went to the next rank.

    Each send takes a few packets and is acknowledged.
    """
    packets: float = -(-(cut.activations or 0) // settings.payload)
    packets += max(1.0, packets * _per_packet(settings))
    neighbours = Paths(settings.model_copy(update={"algorithm": "ring"}), full_frame(settings))
    return packets * _messages(cut) * neighbours.mean_links


def _messages(cut: Parallelism) -> int:
    """Return how many messages with activations a step has."""
    sends = 2 * (cut.pipeline * cut.chunks - 1) * cut.tensor
    all_reduces = 2 * cut.pipeline * cut.chunks * cut.tensor_calls * 2 * (cut.tensor - 1)
    return (sends + all_reduces) * cut.micro_batches


def _few_messages(workers: int) -> float:
    """Return the messages of a worker that exchanges halves: two for each doubling of the workers."""
    return 2 * log2(workers)


# The messages of a worker in an all-reduce, each of which takes a packet at least.
_MESSAGES: Mapping[str, Callable[[int], float]] = {
    "ring": lambda workers: 2.0 * (workers - 1),
    "parameter-server": lambda workers: 2.0 * (workers - 1),
}


def wall_seconds(points: Sequence[float], jobs: int) -> float:
    """Return the elapsed time of points that take these seconds each, if `jobs` of them run at a time."""
    return max(sum(points) / jobs, max(points, default=0.0))
