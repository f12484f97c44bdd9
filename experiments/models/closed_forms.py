"""How long an all-reduce takes without loss, by algorithm, from latency and bandwidth alone.

Sources: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005, for the
model and for ring and halving-doubling; Sanders, Speck, Träff, 2009, for the double binary tree; SwitchML (NSDI'21),
section 3, for in-network.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log2
from typing import assert_never

from workers.collective import Algorithm
from workers.host_based.schedules import CHUNK


@dataclass(frozen=True, slots=True)
class Fabric:
    """What the formulas know of a network.

    latency: seconds from a host's sending to another host's dealing with it (in-network: a round trip by way of the
    root of the tree), beside the time that the bytes take. bandwidth: bytes of payload a second on a host's link, each
    way: its rate, less headers.
    """

    latency: float
    bandwidth: float


def closed_form(
    algorithm: Algorithm,
    workers: int,
    size: int,
    fabric: Fabric,
    *,
    shards: int | None = None,
    window: float = inf,
    ahead: float = 0.0,
    piece: int = 4 * CHUNK,
) -> float:
    """Seconds for arrays of `size` bytes.

    shards: of the parameter server, on workers (None: on all). window: bytes outstanding, in-network; ahead: seconds
    that a window of packets without values, which goes first, is on a host's link. piece: bytes, of the double binary
    tree.
    """
    latency, seconds = fabric.latency, size / fabric.bandwidth
    if workers == 1 and algorithm != "in-network":
        return 0.0
    match algorithm:
        case "ring":
            return 2 * (workers - 1) * latency + 2 * (workers - 1) / workers * seconds
        case "halving-doubling":
            levels = workers.bit_length() - 1
            cores = 1 << levels
            time = 2 * levels * latency + 2 * (cores - 1) / cores * seconds
            # The others fold their array into a neighbour's first, and get the sum at the end. In pieces, so that
            # the halving has begun, and the doubling has not ended, meanwhile: what a neighbour's link carries.
            return time if cores == workers else time + 2 * latency + 2 * seconds
        case "double-binary-tree":
            # A node hands on whole pieces.
            return 2 * log2(workers) * (latency + piece / fabric.bandwidth) + 2 * seconds
        case "parameter-server":
            # A server's link carries its shard for all others, and those of the other servers for its own worker.
            servers = workers if shards is None else shards
            return 2 * latency + max(1.0, (workers + servers - 2) / servers) * seconds
        case "in-network":
            turns = max(1.0, size / window) + (ahead > 0)
            return max(latency + ahead + seconds, turns * latency)
    assert_never(algorithm)
