"""Placement: on which hosts a job's workers run, in the order of their ranks."""

from __future__ import annotations

import random
from itertools import chain, zip_longest
from typing import Literal, assert_never

from fanin.topologies.model import Topology

Placement = Literal["packed", "spread", "random"]


def place(topology: Topology, placement: Placement, workers: int, seed: int) -> tuple[str, ...]:
    """Return the hosts of `workers` workers.

    Args:
        topology: The network.
        placement: "packed" fills one rack after another, "spread" takes a host from each rack in turn, "random" draws
            hosts.
        workers: Number of workers.
        seed: Seed of the random placement.
    """
    match placement:
        case "packed":
            hosts = [host for leaf in topology.leaves for host in topology.hosts_of(leaf.name)]
        case "spread":
            racks = [topology.hosts_of(leaf.name) for leaf in topology.leaves]
            hosts = [host for host in chain.from_iterable(zip_longest(*racks)) if host is not None]
        case "random":
            hosts = random.Random(seed).sample(topology.ranked_hosts, len(topology.hosts))
        case _:
            assert_never(placement)
    return tuple(host.name for host in hosts[:workers])
