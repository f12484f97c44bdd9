"""An all-reduce algorithm that fanin does not have, and its registration: sums pass along a chain of ranks and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fanin.workers.host_based.algorithms import registry
from fanin.workers.host_based.algorithms.all_reduce import AllReduce, Hosts, Vector
from fanin.workers.host_based.pieces import Plan, Schedule, cut


class Chain(AllReduce):
    """Each rank adds what the next one has summed, down to rank 0, which sends the sum up again."""

    name = "chain"

    def schedule(self, rank: int, workers: int, size: int, chunk: int, shards: int | None) -> Schedule:
        plan = Plan()
        for i, span in enumerate(cut(0, size, chunk)):
            summed = None
            if rank + 1 < workers:
                plan.receive(rank + 1, (i,), span, reduce=True)
                summed = rank + 1, (i,)
            if rank:
                plan.send(rank - 1, (i,), span, summed)
                plan.receive(rank - 1, (i,), span, summed, reduce=False)
                summed = rank - 1, (i,)
            if rank + 1 < workers:
                plan.send(rank + 1, (i,), span, summed)
        return plan.schedule()

    def float32_sum(self, inputs: Sequence[Vector], shards: int | None = None) -> Vector:
        *others, total = inputs
        for x in reversed(others):
            total = x + total
        return total

    def seconds(self, size: int, hosts: Hosts) -> float:
        latencies = [hosts.latency(rank, rank + 1) for rank in range(hosts.workers - 1)]
        busiest = size if hosts.workers == 2 else 2 * size  # a rank in the middle sends sums both ways
        return 2 * sum(latencies) + hosts.sending(busiest, size, max(latencies))

    def formula(self, workers: int) -> str:
        return "2·(n-1)·L + S/B" if workers == 2 else "2·(n-1)·L + 2·S/B"

    def longest_message(self, size: int, workers: int, shards: int | None) -> int:
        return size


@contextmanager
def registered() -> Iterator[str]:
    """Register the chain, give its name, and remove it at the end."""
    registry.register(Chain())
    try:
        yield Chain.name
    finally:
        del registry.ALGORITHMS[Chain.name]
