"""The analytical model of an all-reduce over circuits: how often they change, and what rate costs as much as packets.

A host's data leaves over one circuit at a time. All hosts are taken to change theirs together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from fanin.workers.collective import HostBasedAlgorithm
from fanin.workers.host_based.algorithms.registry import algorithm_named

_SIZE = 1 << 12  # elements of which every rank sends some


@lru_cache
def changes(algorithm: HostBasedAlgorithm, workers: int, shards: int | None = None) -> int | None:
    """Return how often the busiest rank's circuit changes in an all-reduce that follows another one.

    None means that a rank sends to several others at the same time, so the order of its circuits is not known.
    """
    most = 0
    named = algorithm_named(algorithm)
    for rank in range(workers):
        plan = named.schedule(rank, workers, _SIZE, _SIZE, shards)
        peers = [peer for peer, pieces in plan.sends.items() for _ in pieces]
        if len(set(peers)) < 2:
            continue
        if not named.one_peer_at_a_time:
            return None
        # Halving goes through the peers in order, and doubling back.
        order = [*plan.sends, *reversed(plan.sends)]
        most = max(most, sum(one != next_one for one, next_one in pairwise([order[-1], *order])))
    return most


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of parts, in any unit; those of the first three are for a rate of one.

    The defaults are assumptions.

    Attributes:
        card: A network card.
        transceiver: A transceiver at an end of a fibre.
        port: A port of a packet switch.
        circuit_port: A port of an optical switch, whatever the rate.
    """

    card: float = 4.0
    transceiver: float = 1.0
    port: float = 1.0
    circuit_port: float = 5.0


def fat_tree_price(tiers: int, rate: float, prices: Prices = Prices()) -> float:
    """Return the price of a host's share of a fat tree that carries all that hosts can send.

    A host's link is a fibre with a transceiver at each end. Each further tier has as many links as there are hosts.
    """
    links = tiers
    ports = 2 * tiers - 1
    return rate * (prices.card + 2 * links * prices.transceiver + ports * prices.port)


def circuit_rate(price: float, prices: Prices = Prices()) -> float:
    """Return the rate that a host has for its price with an optical switch, which needs no transceivers of its own."""
    return (price - prices.circuit_port) / (prices.card + prices.transceiver)
