"""Counts of links and workers of a live network, from the switches' counters and the workers' recordings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fanin.controller.connection import Count
from fanin.controller.telemetry import SwitchCounts
from fanin.experiments.results.recording import Recording
from fanin.experiments.results.usage import LinkUse, Usage, WorkerUse
from fanin.topologies.model import Endpoint, Link, Topology


def usage_of(
    topology: Topology,
    counts: Mapping[str, SwitchCounts],
    members: Sequence[str],
    recordings: Sequence[Recording],
    retransmissions: Sequence[int],
) -> Usage:
    """Return the counts of one run.

    Args:
        topology: The network.
        counts: The counters of each switch.
        members: Hosts by rank.
        recordings: Recordings by rank.
        retransmissions: Retransmissions by rank.
    """
    ways = [way for link in topology.links for way in ((link, link.a, link.b), (link, link.b, link.a))]
    return Usage(
        tuple(found for way in ways if (found := _link(counts, *way)).packets),
        tuple(
            WorkerUse(
                rank=rank,
                host=host,
                began=tuple(recording.starts.tolist()),
                ended=tuple(recording.ends.tolist()),
                retransmissions=again,
            )
            for rank, (host, recording, again) in enumerate(
                zip(members, recordings, retransmissions, strict=True)
            )
        ),
    )


def _link(counts: Mapping[str, SwitchCounts], link: Link, near: Endpoint, far: Endpoint) -> LinkUse:
    """Return the counts of one direction of a link, which is busy for its bytes at its rate.

    They come from the switch that sends, or from the one that receives if a host sends.
    """
    here = counts[near.node].ports[near.port] if near.node in counts else None
    there = counts[far.node].ports[far.port] if far.node in counts else None
    passed = here.sent if here else there.received if there else Count()
    on_the_wire = passed.bytes + (link.properties.overhead or 0) * passed.packets
    rate = link.rate_bits_per_second
    return LinkUse(
        near=near.node,
        far=far.node,
        packets=passed.packets,
        bytes=passed.bytes,
        wire_bytes=on_the_wire,
        busy_seconds=8 * on_the_wire / rate if rate else 0.0,
        lost=(here.lost_out.packets if here else 0) + (there.lost_in.packets if there else 0),
    )
