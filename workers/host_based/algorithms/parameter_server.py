"""All-reduce with a parameter server, whose shards are on the workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from fanin.workers.host_based.algorithms.all_reduce import AllReduce, Hosts, Vector, sum_from_owners
from fanin.workers.host_based.pieces import Plan, Schedule, bounds, cut


class ParameterServer(AllReduce):
    """Servers that each sum one shard and send the sum to all ranks.

    A server adds the ranks in the order server, server + 1, ... in a circle. See Li et al., "Scaling distributed
    machine learning with the parameter server", OSDI 2014.
    """

    name = "parameter-server"

    def schedule(self, rank: int, workers: int, size: int, chunk: int, shards: int | None = None) -> Schedule:
        """Return a schedule in which values go to the servers and sums come back."""
        plan = Plan()
        owners = servers(workers, shards)
        parts = list(zip(owners, pairwise(bounds(size, len(owners))), strict=True))
        # Each rank starts with another server.
        for server, (first, last) in sorted(parts, key=lambda part: (part[0] - rank) % workers):
            for i, span in enumerate(cut(first, last, chunk)):
                up, down = (0, i), (1, i)
                if server != rank:
                    plan.send(server, up, span)
                    plan.receive(server, down, span, reduce=False)
                    continue
                summed = None
                others = [(rank + offset) % workers for offset in range(1, workers)]
                for other in others:
                    plan.receive(other, up, span, summed, reduce=True)
                    summed = other, up
                for other in others:
                    plan.send(other, down, span, summed)
        return plan.schedule()

    def float32_sum(self, inputs: Sequence[Vector], shards: int | None = None) -> Vector:
        """Return the sum, in which each server owns a shard."""
        return sum_from_owners(servers(len(inputs), shards), inputs)

    def seconds(self, size: int, hosts: Hosts) -> float:
        """Return the seconds until the sums of all shards are back, and acknowledged.

        A server's link carries its own shard for all other workers, and the other shards for its own worker. A single
        server has nothing to send until the first piece of all others has come.
        """
        workers, ranks = hosts.workers, servers(hosts.workers, hosts.shards)
        furthest = max(
            hosts.latency(rank, server) for server in ranks for rank in range(workers) if rank != server
        )
        busiest = max(1.0, (workers + len(ranks) - 2) / len(ranks)) * size
        connection = min(2, len(ranks)) / len(ranks) * size  # between servers, each with a shard
        idle = (workers - 1) * min(hosts.piece, size) / hosts.bandwidth if len(ranks) == 1 else 0.0
        latencies = 3 if hosts.acknowledged else 2
        return latencies * furthest + idle + hosts.sending(busiest, connection, furthest)

    def formula(self, workers: int) -> str:
        """Return the formula for as many shards as workers."""
        return "3·L + 2·(n-1)/n·S/B"

    def longest_message(self, size: int, workers: int, shards: int | None) -> int:
        """Return the bytes of a shard."""
        return size // (shards or workers)

    def shares(self, workers: int, shards: int | None) -> tuple[Mapping[int, float], ...]:
        """Return the shares from the shards: the schedules of a thousand workers have a million pairs."""
        some = set(servers(workers, shards))
        share = 1 / len(some)
        return tuple(
            {
                peer: share * ((peer in some) + (rank in some))
                for peer in (range(workers) if rank in some else some)
                if peer != rank
            }
            for rank in range(workers)
        )

    def bytes_each_way(self, workers: int, size: int) -> float:
        """Return what a worker with a shard sends: its values to all others, and its sum to all others."""
        return 2 * (workers - 1) / workers * size


def servers(workers: int, shards: int | None) -> list[int]:
    """Return the ranks that sum a shard each, spread evenly.

    Raises:
        ValueError: If there are fewer workers than shards, or no shard.
    """
    shards = workers if shards is None else shards
    if not 1 <= shards <= workers:
        raise ValueError(f"shards must be from 1 to {workers}, the number of workers, not {shards}")
    return bounds(workers, shards)[:-1]
