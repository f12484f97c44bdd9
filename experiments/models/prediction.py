"""The time of a point according to the analytical model of its algorithm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fanin.experiments.models.circuits import changes
from fanin.experiments.models.closed_forms import collective, in_network
from fanin.experiments.models.flows import NoFlowError, carried
from fanin.experiments.models.packets import full_frame, full_payload, in_network_frame
from fanin.experiments.models.paths import Delays, Paths, shares
from fanin.experiments.models.step import step_parts, step_seconds
from fanin.experiments.models.timers import virtual_window
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.step import Step
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.workers import wire
from fanin.workers.host_based.algorithms.all_reduce import NO_LIMIT, PIECE, Hosts, Window
from fanin.workers.host_based.algorithms.registry import algorithm_named
from fanin.workers.tensor import runs


def predicted_seconds(
    settings: Settings,
    size: int,
    window: int,
    members: Sequence[str] | None = None,
    *,
    acknowledged: bool = True,
    delays: Delays = "fixed",
) -> float | None:
    """Predict the seconds of an all-reduce from headers, the links on the path, and how late hosts notice packets.

    In the network, the slowest link of the tree sets the rate, as each link carries every packet once; between hosts,
    their own links do, or the network cards of their server. The model knows no loss, no other links that several hosts
    share, and no processor time.

    Args:
        settings: The point.
        size: Bytes of a vector.
        window: Packets in flight.
        members: The hosts by rank; None: all workers.
        acknowledged: Whether an all-reduce between hosts ends when its last packet is acknowledged, instead of when the
            sum is there.
        delays: See Paths.

    Returns:
        Seconds; None if links are unlimited, or those of hosts differ in an all-reduce between hosts.
    """
    if settings.host_link.rate_bits_per_second is None:
        return None
    members = members or settings.members
    part = -(-size // settings.trees)  # along each tree
    payload, frame, piece = full_payload(settings), full_frame(settings), PIECE
    between_hosts = settings.algorithm != "in-network"
    if between_hosts and settings.collective == "all-reduce" and settings.compression.kind == "none":
        # Where all messages are shorter than a full packet, a packet takes less time on each link.
        longest = max(ELEMENT_BYTES, longest_message(settings, size, len(members)))
        piece = min(piece, longest)
        unused = max(0, payload - longest)
        payload, frame = payload - unused, frame - unused
    paths = Paths(settings, frame, members=members, delays=delays)
    if between_hosts:
        if len({settings.network.links_of(name)[0].rate_bits_per_second for name in members}) > 1:
            return None
        workers, bandwidth = len(members), payload / paths.packet_seconds(settings.host_link)
        limit = NO_LIMIT
        if settings.world != "live" or settings.transport != "tcp":  # the kernel sets TCP's window
            per_host = settings.window_per == "host"
            bytes_ahead = window * payload * (1 if per_host else settings.flows_per_pair)
            limit = Window(bytes_ahead, per_host, paths.notice)
        if (gathered := settings.compression.gathered(size, workers)) is not None:
            return collective("all-gather", workers, gathered, paths.latency, bandwidth, limit)
        at_cards = _server_card_seconds(settings, size, members, paths)
        if settings.collective != "all-reduce":
            alone = collective(settings.collective, workers, size, paths.latency, bandwidth, limit)
            return max(alone, at_cards)
        if workers == 1:
            return 0.0
        hosts = Hosts(
            workers,
            paths.latency,
            bandwidth,
            settings.shards,
            piece,
            stored=max(0, piece - payload),
            window=limit,
            acknowledged=acknowledged,
        )
        dark = 0.0
        if (reconfiguration := settings.topology.reconfiguration) is not None:
            if (changed := changes(settings.algorithm, workers, settings.shards)) is None:
                return None
            dark = changed * reconfiguration
        return max(algorithm_named(settings.algorithm).seconds(size, hosts), at_cards) + dark
    if settings.collective != "all-reduce":
        return _exchange_seconds(settings, size, window, paths)
    packets, ahead = -(-part // payload), 0.0
    # A vector that fits into the window uses the exponents that the previous one suggests (workers/values/scaling.py).
    announced = packets > window or not (settings.training or settings.repetitions > 1)
    if settings.implementation.ours and announced:
        ahead = Paths(settings, in_network_frame(min(wire.SIZES)), members=members).shared(window, packets)
    bandwidth = payload / paths.shared(1, 1)
    return in_network(packets * payload, paths.round_trip, bandwidth, window * payload, ahead)


def longest_message(settings: Settings, size: int, workers: int) -> int:
    """Return the most bytes that a worker sends at once to one other worker, or to the switches.

    Args:
        settings: The point.
        size: Bytes of a vector.
        workers: The number of workers.
    """
    if settings.algorithm == "in-network":
        return size
    return algorithm_named(settings.algorithm).longest_message(size, workers, settings.shards)


def _exchange_seconds(settings: Settings, size: int, window: int, paths: Paths) -> float:
    """Predict the seconds of a gather or scatter in the network (docs/reference/protocol.md).

    The first packets of a scatter, which announce exponents, have no values. A last round trip tells that all workers
    have their parts.

    Args:
        settings: The point.
        size: Bytes of a vector.
        window: Packets in flight.
        paths: The paths of a full packet.
    """
    payload, workers = full_payload(settings), len(settings.members)
    parts = 1 if settings.collective == "broadcast" else workers
    of_part, ahead = -(-size // parts // payload), 0.0
    packets = parts * of_part
    empty = Paths(settings, in_network_frame(0))
    if settings.collective == "reduce-scatter" and (packets > window or settings.repetitions == 1):
        ahead = empty.shared(window, packets)
    seconds = paths.exchanged(packets, parts, runs(of_part, parts, window)[0], empty)
    moved = in_network(
        packets * payload, paths.round_trip, packets * payload / seconds, window * payload, ahead
    )
    return moved + paths.round_trip


def _server_card_seconds(settings: Settings, size: int, members: Sequence[str], paths: Paths) -> float:
    """Return how long a collective between hosts keeps the network cards of a server busy; 0 if hosts have their own.

    The cards of a server are taken to carry the same.

    Args:
        settings: The point.
        size: Bytes of a vector.
        members: The hosts by rank.
        paths: The paths of a full packet.
    """
    network = settings.network
    servers = [switch.name for switch in network.switches if switch.role == "server"]
    if not servers:
        return 0.0
    leaves = [network.host(name).leaf for name in members]
    hosts = {host.name for host in network.hosts}
    # Vectors that leave and enter each server.
    out: defaultdict[str, float] = defaultdict(float)
    into: defaultdict[str, float] = defaultdict(float)
    for rank, others in enumerate(
        shares(settings.algorithm, len(members), settings.shards, settings.collective)
    ):
        for peer, share in others.items():
            if leaves[peer] != leaves[rank]:
                out[leaves[rank]] += share
                into[leaves[peer]] += share
    busiest = 0.0
    for server in servers:
        above = [node for node in network.neighbours(server).values() if node not in hosts]
        cards = [paths.packet_seconds(network.link_between(server, node)) for node in above]
        if cards:
            busiest = max(busiest, max(out[server], into[server]) * max(cards) / len(cards))
    return busiest * size / full_payload(settings)


def predicted_call_seconds(settings: Settings) -> float | None:
    """Predict the seconds of a call in virtual time: of a bucket if a training step has several, else of the vector.

    It is that of predicted_seconds(), but at least as long as the busiest link between switches needs. An all-reduce
    between hosts may share it among several of them.

    Returns:
        Seconds; None if predicted_seconds() cannot predict them.
    """
    settings = settings.as_vectors
    size, step = settings.size, settings.step
    assert size is not None
    largest = 0 if step is None else max((one.size for one in step.buckets), default=step.bucket or 0)
    if 0 < largest < size:
        # A sum knows what exponents to expect from the previous sum of the same length.
        size, settings = largest, settings.model_copy(update={"repetitions": settings.repetitions + 1})
    seconds = predicted_seconds(settings, size, virtual_window(settings))
    return None if seconds is None else max(seconds, _busiest_link_seconds(settings, size))


def _busiest_link_seconds(settings: Settings, size: int) -> float:
    """Return how long an all-reduce between hosts keeps the busiest port of a switch busy; 0 if that is unknown.

    Args:
        settings: The point.
        size: Bytes of a vector.
    """
    if settings.collective != "all-reduce" or settings.compression.kind != "none":
        return 0.0
    try:
        found = list(carried(settings))
    except NoFlowError:
        return 0.0
    ranks = {host: rank for rank, host in enumerate(settings.members)}
    sent = shares(settings.algorithm, len(ranks), settings.shards)
    packets, paths = size / full_payload(settings), Paths(settings, full_frame(settings))
    busy: defaultdict[tuple[str, str], float] = defaultdict(float)  # shares of a vector
    for flow, links in found:
        share = sent[ranks[flow.source.name]][ranks[flow.destination.name]] / settings.flows_per_pair
        for way, part in links.items():
            busy[way] += share * part
    return max(
        share * packets * paths.packet_seconds(settings.network.link_between(*way))
        for way, share in busy.items()
    )


def predicted_training_step(
    settings: Settings,
    window: int,
    step: Step | None = None,
    slowness: float = 1.0,
    busiest: float = 0.0,
    *,
    delays: Delays = "fixed",
) -> float | None:
    """Predict the seconds of a training step, without the time in which workers wait for data.

    Args:
        settings: The point, which has a table step.
        window: Packets in flight.
        step: The table to use instead, such as one with other buckets; None: that of the point.
        slowness: Factor by which the slowest worker computes longer than in the table.
        busiest: Seconds for which the busiest link sends for a whole gradient, if that is known. A sum takes at least
            its part of them.
        delays: See Paths.

    Returns:
        Seconds; None if predicted_seconds() cannot predict the sums.
    """
    step, elements = step or settings.step, settings.elements
    assert step is not None
    assert elements is not None
    slices, shares = step_parts(step, elements)
    parts = [ELEMENT_BYTES * (part.stop - part.start) for part in slices]
    # A sum knows what exponents to expect from the previous sum of the same length.
    several = settings.model_copy(update={"repetitions": settings.repetitions * len(parts)})
    alone = {size: predicted_seconds(several, size, window, delays=delays) for size in set(parts)}
    per_byte = busiest / sum(parts)
    sums = [max(seconds, per_byte * part) for part in parts if (seconds := alone[part]) is not None]
    if len(sums) < len(parts):
        return None
    return step_seconds(slowness * step.forward, slowness * step.backward, shares, sums)
