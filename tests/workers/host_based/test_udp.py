"""All-reduces between hosts over UDP on the loopback, a thread for each rank."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.workers.collective import CollectiveError, HostBasedAlgorithm, StallError, Transport
from fanin.workers.host_based.algorithms.registry import algorithm_named
from fanin.workers.host_based.participant import Group
from fanin.workers.host_based.udp import UdpAllReduce, UdpGroupConfig
from fanin.workers.recovery import Recovery
from tests.workers.loopback import free_udp_addresses

T = TypeVar("T")

CASES: list[tuple[HostBasedAlgorithm, Transport]] = [
    ("ring", "selective-repeat"),
    ("ring", "go-back-n"),
    ("halving-doubling", "selective-repeat"),
    ("double-binary-tree", "go-back-n"),
    ("parameter-server", "selective-repeat"),
]


def on_every_rank(
    count: int,
    algorithm: HostBasedAlgorithm,
    transport: Transport,
    do: Callable[[UdpAllReduce], T],
    flows: int = 1,
) -> list[T]:
    addresses = free_udp_addresses(count * flows)[:count]

    def run(rank: int) -> T:
        group = Group(rank, count, algorithm, transport, window=64, flows=flows)
        with UdpAllReduce(UdpGroupConfig(group, addresses, recovery=Recovery(give_up=20.0))) as collective:
            return do(collective)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@pytest.mark.parametrize(("algorithm", "transport"), CASES)
def test_every_rank_gets_the_same_sum_in_the_order_of_the_algorithm(
    algorithm: HostBasedAlgorithm, transport: Transport
) -> None:
    draw = np.random.default_rng(0)
    arrays = [[draw.standard_normal(size, np.float32) for _ in range(3)] for size in (1, 100_000, 777)]

    def sums(collective: UdpAllReduce) -> list[NDArray[np.float32]]:
        return [collective.all_reduce(of[collective.config.group.rank]) for of in arrays]

    results = on_every_rank(3, algorithm, transport, sums)
    for index, of in enumerate(arrays):
        expected = algorithm_named(algorithm).float32_sum(of).tobytes()
        assert all(result[index].tobytes() == expected for result in results)


def test_several_flows_between_two_ranks_carry_one_sum() -> None:
    x = np.arange(100_000, dtype=np.float32)
    results = on_every_rank(3, "ring", "selective-repeat", lambda one: one.all_reduce(x), flows=4)
    assert all((result == 3 * x).all() for result in results)


def test_what_follows_a_call_that_is_refused_is_not_added_to_it() -> None:
    # A rank that has seen the difference sends nothing again: what it sent has to find the socket of the other one.
    both_open = Barrier(2)

    def do(collective: UdpAllReduce) -> None:
        both_open.wait()
        if collective.config.group.rank == 1:
            with pytest.raises(TypeError):
                collective.all_reduce(np.ones(512))  # type: ignore[arg-type]
        with pytest.raises(CollectiveError, match=r"rank [01] is in call [12], and this rank in call [12]"):
            collective.all_reduce(np.ones(512, np.float32))

    on_every_rank(2, "ring", "selective-repeat", do)


def test_a_silent_peer_is_named() -> None:
    group = Group(0, 2)
    config = UdpGroupConfig(group, free_udp_addresses(2), recovery=Recovery(give_up=0.1))
    with (
        UdpAllReduce(config) as collective,
        pytest.raises(StallError, match="awaiting data from rank 1 and acknowledgements from rank 1"),
    ):
        collective.all_reduce(np.ones(5, np.float32))


def test_every_worker_needs_an_address() -> None:
    with pytest.raises(ValueError, match="an address for each of 3 workers, not 1"):
        UdpGroupConfig(Group(0, 3), (("127.0.0.1", 1),))
