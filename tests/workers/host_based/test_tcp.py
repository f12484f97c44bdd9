"""All-reduces between hosts over TCP on the loopback, a thread for each rank."""

import socket
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fanin.workers.collective import CollectiveError, HostBasedAlgorithm, StallError
from fanin.workers.host_based.algorithms.all_reduce import float32_error_bound
from fanin.workers.host_based.algorithms.registry import algorithm_named
from fanin.workers.host_based.pieces import bounds
from fanin.workers.host_based.tcp import TcpAllReduce, TcpConfig, TcpRing
from tests.workers.loopback import free_tcp_addresses

ALGORITHMS: list[HostBasedAlgorithm] = ["ring", "halving-doubling", "double-binary-tree", "parameter-server"]

# What a rank sees whose peer has found out first.
HUNG_UP = r"closed the connection|reset|Broken"

T = TypeVar("T")


def on_every_rank(
    count: int,
    do: Callable[[TcpAllReduce], T],
    algorithm: HostBasedAlgorithm = "ring",
    shards: int | None = None,
    give_up: float = 20.0,
) -> list[T]:
    addresses = free_tcp_addresses(count)

    def run(rank: int) -> T:
        config = TcpConfig(rank, addresses, algorithm, shards, connect_timeout=20.0, give_up=give_up)
        with TcpAllReduce(config) as group:
            return do(group)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def inputs(count: int, size: int, seed: int = 0) -> list[NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(size).astype(np.float32) * 10**rank for rank in range(count)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=10)
@given(st.integers(1, 5), st.lists(st.integers(0, 5000), min_size=1, max_size=3), st.data())
def test_every_rank_gets_the_same_sum_in_the_order_of_the_algorithm(
    algorithm: HostBasedAlgorithm, count: int, sizes: list[int], data: st.DataObject
) -> None:
    shards = data.draw(st.none() | st.integers(1, count)) if algorithm == "parameter-server" else None
    arrays = [inputs(count, size) for size in sizes]

    def sums(group: TcpAllReduce) -> list[NDArray[np.float32]]:
        return [group.all_reduce(of[group.config.rank]) for of in arrays]

    results = on_every_rank(count, sums, algorithm, shards)
    for size_index, of in enumerate(arrays):
        expected = algorithm_named(algorithm).float32_sum(of, shards).tobytes()
        assert all(result[size_index].tobytes() == expected for result in results)


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_arrays_larger_than_all_socket_buffers(algorithm: HostBasedAlgorithm) -> None:
    arrays = inputs(3, 3_000_001)
    results = on_every_rank(3, lambda group: group.all_reduce(arrays[group.config.rank]), algorithm)
    expected = algorithm_named(algorithm).float32_sum(arrays)
    assert all((result == expected).all() for result in results)


def test_the_error_is_within_the_promised_bound_of_the_exact_sum() -> None:
    arrays = inputs(4, 10_000)
    exact = np.sum(np.array(arrays, np.float64), axis=0)
    magnitude = np.sum(np.abs(np.array(arrays, np.float64)), axis=0)

    def within(ring: TcpAllReduce) -> bool:
        error = np.abs(ring.all_reduce(arrays[ring.config.rank]) - exact)
        return bool((error <= float32_error_bound(4, magnitude)).all())

    assert all(on_every_rank(4, within))


def test_the_result_may_replace_the_input_and_keeps_its_shape() -> None:
    def in_place(ring: TcpAllReduce) -> NDArray[np.float32]:
        x = np.full((3, 7), ring.config.rank + 1, np.float32)
        assert ring.all_reduce(x, out=x) is not None
        return x

    assert all((x == 3).all() for x in on_every_rank(2, in_place))


def test_each_rank_sends_and_receives_2_times_n_minus_1_over_n_of_the_array() -> None:
    def bytes_of(ring: TcpAllReduce) -> tuple[int, int, int]:
        ring.all_reduce(np.zeros(4000, np.float32))
        return ring.statistics.all_reduces, ring.statistics.bytes_sent, ring.statistics.bytes_received

    header = 24
    assert on_every_rank(4, bytes_of) == [(1, 24000 + header, 24000 + header)] * 4


def test_ranks_that_sum_arrays_of_different_sizes_are_told() -> None:
    def unequal(ring: TcpAllReduce) -> None:
        with pytest.raises(CollectiveError, match=r"another size|closed the connection|reset|Broken"):
            ring.all_reduce(np.zeros(10 + ring.config.rank, np.float32))
        with pytest.raises(CollectiveError, match=r"is closed"):
            ring.all_reduce(np.zeros(10, np.float32))

    on_every_rank(2, unequal)


def test_a_stall_says_who_waits_for_whom() -> None:
    gone = threading.Event()

    def stall(ring: TcpAllReduce) -> None:
        if ring.config.rank == 0:
            try:
                with pytest.raises(
                    StallError, match=r"ring rank 0 of 2: no byte moved .* all-reduce 1: awaiting rank 1"
                ):
                    ring.all_reduce(np.zeros(10, np.float32))
            finally:
                gone.set()
        else:
            gone.wait()

    on_every_rank(2, stall, give_up=0.05)


def test_peers_that_never_come_up_are_named() -> None:
    addresses = free_tcp_addresses(3)
    with pytest.raises(CollectiveError, match=f"rank 0 does not answer at 127.0.0.1:{addresses[0][1]}"):
        TcpAllReduce(TcpConfig(2, addresses, connect_timeout=0.05))
    with pytest.raises(CollectiveError, match=r"ranks 1, 2 did not connect within 0\.05 s"):
        TcpAllReduce(TcpConfig(0, addresses, connect_timeout=0.05))


def test_a_stranger_at_the_door_is_not_taken_for_the_peer() -> None:
    addresses = free_tcp_addresses(2)
    with ThreadPoolExecutor(1) as pool:
        group = pool.submit(TcpAllReduce, TcpConfig(0, addresses, connect_timeout=20.0))
        while True:
            try:
                stranger = socket.create_connection(addresses[0])
                break
            except ConnectionRefusedError:
                continue
        with stranger:
            stranger.sendall(struct.pack("!4sII", b"sum1", 2, 3))
            with pytest.raises(CollectiveError, match=r"127.0.0.1 connected and is not rank 1 of 2"):
                group.result()


def test_what_follows_a_call_that_is_refused_is_not_added_to_it() -> None:
    def do(group: TcpAllReduce) -> None:
        if group.config.rank == 1:
            with pytest.raises(TypeError):
                group.all_reduce(np.ones(10))  # type: ignore[arg-type]
        with pytest.raises(
            CollectiveError, match=rf"rank . is in call \d, and this rank in call \d|{HUNG_UP}"
        ):
            group.all_reduce(np.ones(10, np.float32))

    on_every_rank(2, do)


def test_a_rank_outside_the_addresses_is_refused() -> None:
    with pytest.raises(ValueError, match="rank must be from 0 to 0, one for each address, not 1"):
        TcpConfig(1, (("127.0.0.1", 1),))


def on_a_ring(
    count: int, do: Callable[[TcpRing], T], numbers: Sequence[Callable[[], int]] | None = None
) -> list[T]:
    addresses = free_tcp_addresses(count)

    def run(rank: int) -> T:
        config = TcpConfig(rank, addresses, connect_timeout=20.0, give_up=20.0)
        with TcpRing(config, number=numbers[rank] if numbers else None) as ring:
            return do(ring)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(0, 3000), st.sampled_from(["u1", "i2", "f4", "i8"]))
def test_a_ring_reduces_scatters_and_gathers(count: int, size: int, dtype: str) -> None:
    random = np.random.default_rng(size)
    arrays = [random.integers(0, 100, size).astype(dtype) for _ in range(count)]
    edges = bounds(size, count)

    def do(ring: TcpRing) -> None:
        rank = ring.config.rank
        mine = slice(edges[rank], edges[rank + 1])
        largest = arrays[rank].copy()
        ring.all_reduce(largest, np.maximum, "max")
        assert (largest == np.max(arrays, axis=0)).all()
        summed = arrays[rank].copy()
        ring.reduce_scatter(summed, np.add, "sum")
        assert (summed[mine] == np.sum(arrays, axis=0, dtype=dtype)[mine]).all()
        gathered = np.zeros(size, dtype)
        gathered[mine] = arrays[0][mine]
        ring.all_gather(gathered, "gather")
        assert (gathered == arrays[0]).all()

    on_a_ring(count, do)


def test_a_ring_takes_arrays_larger_than_all_socket_buffers() -> None:
    whole = np.arange(3 * 500_000)

    def do(ring: TcpRing) -> None:
        mine = whole * (ring.config.rank + 1)
        ring.reduce_scatter(mine, np.add, "sum")
        ring.all_gather(mine, "gather")
        assert (mine == 6 * whole).all()

    on_a_ring(3, do)


def test_calls_for_different_things_are_told_apart() -> None:
    def do(ring: TcpRing) -> None:
        with pytest.raises(CollectiveError, match=rf"makes another call|{HUNG_UP}"):
            ring.all_reduce(np.ones(10), np.add, f"sum {ring.config.rank}")

    on_a_ring(2, do)


def test_bytes_of_another_call_are_not_taken_for_those_of_this_one() -> None:
    def do(ring: TcpRing) -> None:
        with pytest.raises(
            CollectiveError, match=rf"rank . is in call \d, and this rank in call \d|{HUNG_UP}"
        ):
            ring.all_reduce(np.ones(10), np.add, "sum")

    on_a_ring(2, do, [lambda: 3, lambda: 4])


@pytest.mark.parametrize("difference", ["type", "elements", "operation"])
def test_calls_of_as_many_bytes_are_told_apart(difference: str) -> None:
    def do(ring: TcpRing) -> None:
        other = ring.config.rank == 1
        array: NDArray[np.generic] = np.ones(10, np.float64)
        if other and difference == "type":
            array = np.ones(10, np.int64)
        if other and difference == "elements":
            array = np.ones(20, np.float32)
        combine = np.maximum if other and difference == "operation" else np.add
        with pytest.raises(CollectiveError, match=rf"makes another call|{HUNG_UP}"):
            ring.all_reduce(array, combine, "sum")

    on_a_ring(2, do)


def test_each_half_of_a_ring_moves_n_minus_1_over_n_of_the_array() -> None:
    def do(ring: TcpRing) -> list[int]:
        array = np.zeros(1000)
        ring.reduce_scatter(array, np.add, "sum")
        half = ring.statistics.bytes_sent
        ring.all_gather(array, "gather")
        return [half, ring.statistics.bytes_sent]

    header = 24
    assert on_a_ring(4, do) == [[6000 + header, 12000 + 2 * header]] * 4
