"""Counters of a port as in interface statistics (RFC 2863), over all pipelines that have run."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.engine.library import LinkStatistics
from fanin.p4switch.engine.links import Direction


@dataclass(frozen=True, slots=True)
class PortCounters:
    """Packets and bytes (octets) of a port. Losses on an emulated link or for lack of memory count as discards."""

    in_octets: int = 0
    in_pkts: int = 0
    in_multicast_pkts: int = 0
    in_broadcast_pkts: int = 0
    in_discards: int = 0
    out_octets: int = 0
    out_pkts: int = 0
    out_multicast_pkts: int = 0
    out_broadcast_pkts: int = 0
    out_discards: int = 0

    @property
    def in_unicast_pkts(self) -> int:
        """Return the unicast packets received."""
        return self.in_pkts - self.in_multicast_pkts - self.in_broadcast_pkts

    @property
    def out_unicast_pkts(self) -> int:
        """Return the unicast packets sent."""
        return self.out_pkts - self.out_multicast_pkts - self.out_broadcast_pkts

    def __add__(self, other: PortCounters) -> PortCounters:
        return PortCounters(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def port_counters(engine: Engine) -> dict[int, PortCounters]:
    """Return the counters of each live port of an engine, since its ports were opened."""
    return {
        port: PortCounters(
            in_octets=seen.received_bytes,
            in_pkts=seen.received,
            in_multicast_pkts=seen.received_multicast,
            in_broadcast_pkts=seen.received_broadcast,
            in_discards=seen.missed + _lost(engine.link_statistics(port, Direction.INGRESS)),
            out_octets=seen.sent_bytes,
            out_pkts=seen.sent,
            out_multicast_pkts=seen.sent_multicast,
            out_broadcast_pkts=seen.sent_broadcast,
            out_discards=seen.dropped + _lost(engine.link_statistics(port, Direction.EGRESS)),
        )
        for port, seen in engine.port_statistics().items()
    }


def _lost(link: LinkStatistics | None) -> int:
    if link is None:
        return 0
    return int(link.lost + link.burst_lost + link.queue_dropped + link.memory_dropped)
