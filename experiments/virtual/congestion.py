"""Congestion control of the senders of a host, as a scenario says."""

from __future__ import annotations

from functools import partial

from experiments.scenario.tables.congestion import Congestion
from experiments.virtual.hosts.stations import HEADERS
from topologies.model import Topology
from workers.host_based.congestion_control import Dcqcn, Dctcp, MakeControl, NoControl
from workers.host_based.transport import HEADER_BYTES, PAYLOAD

_PACKET_BITS = 8 * (HEADERS + HEADER_BYTES + PAYLOAD)


def control_of(congestion: Congestion, topology: Topology, host: str) -> MakeControl:
    """Of a sender on `host`, which for DCQCN needs a link with a rate."""
    if congestion.control == "dctcp":
        return partial(Dctcp, parameters=congestion.dctcp)
    if congestion.control == "none":
        return NoControl
    rate = topology.links_of(host)[0].rate_bits_per_second
    assert rate is not None
    parameters = congestion.dcqcn(rate)
    assert parameters is not None
    return partial(Dcqcn, parameters=parameters, rate=rate, packet_bits=_PACKET_BITS)
