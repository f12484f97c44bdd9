"""The base of all-reduce algorithms between hosts, which states what their files declare, and terms of their models.

Sources of the models:

- the model, and halving-doubling: Thakur, Rabenseifner, Gropp, "Optimization of collective communication operations in
  MPICH", 2005
- ring, whose steps overlap here: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009
- double binary tree: Sanders, Speck, Träff, 2009
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fanin.workers.host_based.pieces import CHUNK, Schedule, bounds

Vector = NDArray[np.float32]

# Seconds from sending a packet until the receiver handles it: latency(sender, receiver), for two ranks.
Latency = Callable[[int, int], float]

PIECE = 4 * CHUNK  # bytes that a node of a double binary tree forwards at a time

_TURNS = 20  # in which a round trip and the waits in it are found


class Window(NamedTuple):
    """Bytes that may be outstanding between hosts, for each connection or for all connections of a host together.

    Attributes:
        size: The bytes.
        per_host: Whether all connections of a host share them.
        coalescing: Seconds that a host waits for more packets before it looks at the first; a part of the latency.
    """

    size: float
    per_host: bool = False
    coalescing: float = 0.0

    def sending(self, size: float, connection: float, bandwidth: float, latency: float) -> float:
        """Return how long a host takes to send: a window for each round trip, or at the rate of its link.

        Args:
            size: Bytes that it sends.
            connection: Bytes of them on its busiest connection.
            bandwidth: Bytes per second of its link.
            latency: Seconds to the receiver, and of an acknowledgement back.

        Returns:
            Seconds until the last byte has left.
        """
        limited = size if self.per_host else connection
        turns = max(0.0, limited / self.size - 1)
        round_trip = self._round_trip(latency, size / limited - 1)
        return max(size / bandwidth, turns * round_trip + min(limited, self.size) / bandwidth)

    def _round_trip(self, latency: float, others: float) -> float:
        """Return the seconds from a window's packets to their acknowledgement.

        A host looks at the packets of all its connections at once. If packets of another connection have come in the
        last `coalescing` seconds, a packet waits for less than that. The `others` carry as many connections' worth of
        packets, at random moments of a round trip.
        """
        round_trip = 2 * latency
        for _ in range(_TURNS if self.coalescing else 0):
            share = min(1.0, self.coalescing / round_trip)
            waits = round_trip / (others + 1) * (1 - (1 - share) ** (others + 1))
            round_trip = 2 * (latency - self.coalescing + waits)
        return round_trip


NO_LIMIT = Window(inf)


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts of an all-reduce, as an analytical model knows them.

    Attributes:
        workers: Number of workers, two or more.
        latency: Seconds between two ranks.
        bandwidth: Bytes of payload per second on a host's link, each way: its rate without headers.
        shards: Number of shards of the parameter server, each on a worker; None: one on each worker.
        piece: Bytes that a node of the double binary tree forwards at a time.
        stored: Bytes that a rank of a ring receives after a packet before it forwards both.
        window: Limit of outstanding bytes. Queues make round trips longer than they are here.
        acknowledged: Whether the end is when the last packet is acknowledged, instead of when the sum is there.
    """

    workers: int
    latency: Latency
    bandwidth: float
    shards: int | None = None
    piece: int = PIECE
    stored: int = 0
    window: Window = NO_LIMIT
    acknowledged: bool = True

    def sending(self, size: float, connection: float, latency: float) -> float:
        """Return how long a host takes to send on its link; see Window.sending()."""
        return self.window.sending(size, connection, self.bandwidth, latency)


class AllReduce(ABC):
    """An all-reduce algorithm between hosts: its name, its schedule, its order of additions and its analytical model.

    Attributes:
        name: The name in scenarios and options.
        one_peer_at_a_time: Whether a rank sends to its peers one after the other, so that it has one window open.
    """

    name: str
    one_peer_at_a_time: ClassVar[bool] = False

    @abstractmethod
    def schedule(self, rank: int, workers: int, size: int, chunk: int, shards: int | None) -> Schedule:
        """Return what a rank sends and receives to sum an array.

        Args:
            rank: The rank whose schedule is returned.
            workers: Number of workers, from 1.
            size: Elements of the array.
            chunk: Largest size of a piece in elements.
            shards: Number of shards of the parameter server; None: as many as there are workers.
        """

    @abstractmethod
    def float32_sum(self, inputs: Sequence[Vector], shards: int | None = None) -> Vector:
        """Return the sum that every worker gets [elements], bit for bit: float32 is added in the schedule's order.

        Args:
            inputs: Each worker's vector [elements], by rank.
            shards: See schedule().
        """

    @abstractmethod
    def seconds(self, size: int, hosts: Hosts) -> float:
        """Return the seconds of an all-reduce without loss, according to the analytical model.

        Args:
            size: Bytes of each array.
            hosts: The hosts and the network between them.
        """

    @abstractmethod
    def formula(self, workers: int) -> str:
        """Return seconds() as text, for two workers or more, equal latencies, no window and a shard on each worker.

        In the text, n is the number of workers, S the bytes of an array, B the bytes per second, L the latency in
        seconds, and p is PIECE. Python can evaluate it once `·` is replaced with `*`.
        """

    @abstractmethod
    def longest_message(self, size: int, workers: int, shards: int | None) -> int:
        """Return the most bytes of an array of `size` bytes that a worker sends at once to one other worker."""

    def shares(self, workers: int, shards: int | None) -> tuple[Mapping[int, float], ...]:
        """Return the share of the array that each rank sends to each other rank, by rank.

        It follows from the schedule. An algorithm with long schedules can override it.
        """
        size = 2 * workers  # no part is empty
        return tuple(sent(self.schedule(rank, workers, size, CHUNK, shards), size) for rank in range(workers))

    def bytes_each_way(self, workers: int, size: int) -> float:
        """Return the payload that the busiest worker sends, and receives, with a shard on each worker.

        Args:
            workers: Number of workers, two or more.
            size: Bytes of each array.
        """
        return size * max(sum(others.values()) for others in self.shares(workers, None))


def sent(schedule: Schedule, size: int) -> dict[int, float]:
    """Return the share of an array of `size` elements that a schedule sends to each peer."""
    return {
        peer: sum(piece.stop - piece.start for piece in pieces) / size
        for peer, pieces in sorted(schedule.sends.items())
    }


def sum_from_owners(owners: Sequence[int], inputs: Sequence[Vector]) -> Vector:
    """Sum a part for each owner: its own values, then those of the ranks after it, in a circle."""
    total = np.empty_like(inputs[0])
    for owner, (first, last) in zip(owners, pairwise(bounds(len(total), len(owners))), strict=True):
        part = inputs[owner][first:last].copy()
        for offset in range(1, len(inputs)):
            part += inputs[(owner + offset) % len(inputs)][first:last]
        total[first:last] = part
    return total


def float32_error_bound(workers: int, magnitude: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far the sum of float32 numbers, in any order, may be from the exact sum.

    The bound is (n - 1) u / (1 - (n - 1) u) times `magnitude`, with u = 2^-24 (Higham, Accuracy and Stability, 4.2).

    Args:
        workers: Number of summands n.
        magnitude: Sums of the summands' absolute values.

    Returns:
        The bounds, with the shape of `magnitude`.
    """
    errors = (workers - 1) * 2.0**-24
    return magnitude * (errors / (1 - errors))
