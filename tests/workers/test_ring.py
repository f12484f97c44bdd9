"""Ring all-reduce on the loopback, a thread for each rank."""

import itertools
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from workers.collective import CollectiveError, StallError
from workers.ring import RingAllReduce, RingConfig, _Receiver, error_bound

T = TypeVar("T")


def free_addresses(count: int) -> tuple[tuple[str, int], ...]:
    """Loopback addresses with ports that nobody has now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = tuple(listener.getsockname() for listener in sockets)
    for listener in sockets:
        listener.close()
    return addresses


def on_every_rank(count: int, do: Callable[[RingAllReduce], T], give_up: float = 20.0) -> list[T]:
    addresses = free_addresses(count)

    def run(rank: int) -> T:
        with RingAllReduce(RingConfig(rank, addresses, connect_timeout=20.0, give_up=give_up)) as ring:
            return do(ring)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def inputs(count: int, size: int, seed: int = 0) -> list[NDArray[np.float32]]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(size).astype(np.float32) * 10**rank for rank in range(count)]


def sum_in_ring_order(arrays: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Segment s: ranks s, s + 1, ... round the ring, in float32."""
    count, size = len(arrays), arrays[0].size
    total = np.empty(size, np.float32)
    for segment in range(count):
        part = slice(size * segment // count, size * (segment + 1) // count)
        total[part] = arrays[segment][part]
        for step in range(1, count):
            total[part] += arrays[(segment + step) % count][part]
    return total


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 5), st.lists(st.integers(0, 5000), min_size=1, max_size=3))
def test_every_rank_gets_the_same_sum_in_the_order_of_the_ring(count: int, sizes: list[int]) -> None:
    arrays = [inputs(count, size) for size in sizes]
    results = on_every_rank(count, lambda ring: [ring.all_reduce(of[ring.config.rank]) for of in arrays])
    for size_index, of in enumerate(arrays):
        expected = sum_in_ring_order(of).tobytes()
        assert all(result[size_index].tobytes() == expected for result in results)


def test_arrays_larger_than_all_socket_buffers() -> None:
    arrays = inputs(3, 3_000_001)
    results = on_every_rank(3, lambda ring: ring.all_reduce(arrays[ring.config.rank]))
    expected = sum_in_ring_order(arrays)
    assert all((result == expected).all() for result in results)


class Dribble:
    """A connection from which a few bytes come at a time, wherever elements end."""

    def __init__(self, data: bytes, pieces: list[int]) -> None:
        self.data = data
        self.pieces = itertools.cycle(pieces)

    def recv(self, size: int) -> bytes:
        count = min(size, next(self.pieces))
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def recv_into(self, buffer: memoryview) -> int:
        taken = self.recv(len(buffer))
        buffer[: len(taken)] = taken
        return len(taken)


@given(st.lists(st.integers(1, 11), min_size=1), st.integers(0, 30), st.integers(1, 30))
def test_elements_may_arrive_in_pieces(pieces: list[int], first: int, second: int) -> None:
    added, kept = np.arange(first, dtype=np.float32), np.zeros(second, np.float32)
    stream = b"head" + np.full(first, 0.5, np.float32).tobytes() + np.full(second, 7, np.float32).tobytes()
    receiver = _Receiver(b"head", [added, kept], scratch=np.empty(4, np.float32))
    connection = Dribble(stream, pieces)
    while not receiver.done:
        assert receiver.move(connection) > 0  # type: ignore[arg-type]
    assert list(added) == [i + 0.5 for i in range(first)]
    assert list(kept) == [7] * second
    assert receiver.passed == 4 * (first + second)


def test_the_error_is_within_the_promised_bound_of_the_exact_sum() -> None:
    arrays = inputs(4, 10_000)
    exact = np.sum(np.array(arrays, np.float64), axis=0)
    magnitude = np.sum(np.abs(np.array(arrays, np.float64)), axis=0)

    def within(ring: RingAllReduce) -> bool:
        error = np.abs(ring.all_reduce(arrays[ring.config.rank]) - exact)
        return bool((error <= error_bound(4, magnitude)).all())

    assert all(on_every_rank(4, within))


def test_the_result_may_replace_the_input_and_keeps_its_shape() -> None:
    def in_place(ring: RingAllReduce) -> NDArray[np.float32]:
        x = np.full((3, 7), ring.config.rank + 1, np.float32)
        assert ring.all_reduce(x, out=x) is not None
        return x

    assert all((x == 3).all() for x in on_every_rank(2, in_place))


def test_each_rank_sends_and_receives_2_times_n_minus_1_over_n_of_the_array() -> None:
    def bytes_of(ring: RingAllReduce) -> tuple[int, int, int]:
        ring.all_reduce(np.zeros(4000, np.float32))
        return ring.statistics.all_reduces, ring.statistics.bytes_sent, ring.statistics.bytes_received

    header = 16
    assert on_every_rank(4, bytes_of) == [(1, 24000 + header, 24000 + header)] * 4


def test_ranks_that_sum_arrays_of_different_sizes_are_told() -> None:
    def unequal(ring: RingAllReduce) -> None:
        with pytest.raises(CollectiveError, match=r"another size|closed the connection|reset|Broken"):
            ring.all_reduce(np.zeros(10 + ring.config.rank, np.float32))
        with pytest.raises(CollectiveError, match=r"is closed"):
            ring.all_reduce(np.zeros(10, np.float32))

    on_every_rank(2, unequal)


def test_a_stall_says_who_waits_for_whom() -> None:
    gone = threading.Event()

    def stall(ring: RingAllReduce) -> None:
        if ring.config.rank == 0:
            try:
                with pytest.raises(
                    StallError, match=r"ring rank 0 of 2: no byte moved .* 0 of \d+ from rank 1"
                ):
                    ring.all_reduce(np.zeros(10, np.float32))
            finally:
                gone.set()
        else:
            gone.wait()

    on_every_rank(2, stall, give_up=0.05)


def test_a_neighbour_that_never_comes_up_is_named() -> None:
    addresses = free_addresses(2)
    with pytest.raises(CollectiveError, match=f"rank 1 does not answer at 127.0.0.1:{addresses[1][1]}"):
        RingAllReduce(RingConfig(0, addresses, connect_timeout=0.05))


def test_a_stranger_at_the_door_is_not_taken_for_the_neighbour() -> None:
    addresses = free_addresses(2)
    with socket.create_server(addresses[1]), ThreadPoolExecutor(1) as pool:
        ring = pool.submit(RingAllReduce, RingConfig(0, addresses, connect_timeout=20.0))
        while True:
            try:
                stranger = socket.create_connection(addresses[0])
                break
            except ConnectionRefusedError:
                continue
        with stranger:
            stranger.sendall(struct.pack("!4sII", b"ring", 2, 3))
            with pytest.raises(CollectiveError, match=r"127.0.0.1 connected and is not rank 1 of 2"):
                ring.result()


def test_a_rank_outside_the_addresses_is_refused() -> None:
    with pytest.raises(ValueError, match="rank must be from 0 to 0, one for each address, not 1"):
        RingConfig(1, (("127.0.0.1", 1),))
