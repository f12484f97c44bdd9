"""Schedules executed on a perfect network in memory: exact sums in a known order, and the bytes that theory gives."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fanin.workers.collective import HostBasedAlgorithm, Operation
from fanin.workers.host_based.algorithms.all_reduce import float32_error_bound
from fanin.workers.host_based.algorithms.double_binary_tree import neighbours
from fanin.workers.host_based.algorithms.parameter_server import servers
from fanin.workers.host_based.algorithms.registry import algorithm_named
from fanin.workers.host_based.pieces import bounds
from fanin.workers.host_based.schedules import ScheduleProgress, schedule
from tests.sizes import sized

ALGORITHMS: list[HostBasedAlgorithm] = ["ring", "halving-doubling", "double-binary-tree", "parameter-server"]
Vector = NDArray[np.float32]


class Network:
    """Ranks in memory; `sent` counts elements by (from, to)."""

    def __init__(
        self,
        algorithm: HostBasedAlgorithm,
        inputs: Sequence[Vector],
        chunk: int,
        shards: int | None = None,
        order: Sequence[int] | None = None,
        operation: Operation = "all-reduce",
    ) -> None:
        count, size = len(inputs), len(inputs[0])
        self.arrays = [x.copy() for x in inputs]
        self.sources = [x.copy() for x in inputs] if operation == "all-to-all" else self.arrays
        self.progress = [
            ScheduleProgress(
                schedule(algorithm, rank, count, size, chunk=chunk, shards=shards, operation=operation)
            )
            for rank in range(count)
        ]
        self.streams: dict[tuple[int, int], deque[Vector]] = {}
        self.sent: Counter[tuple[int, int]] = Counter()
        order = order or range(count)
        while sum(self.turn(rank) for rank in order):
            pass

    def turn(self, rank: int) -> bool:
        """Send and take in all that may be now; whether there was anything."""
        progress, array = self.progress[rank], self.arrays[rank]
        moved = False
        for peer in progress.sending:
            while (piece := progress.next_send(peer)) is not None:
                assert piece.stop > piece.start
                part = self.sources[rank][piece.start : piece.stop].copy()
                self.streams.setdefault((rank, peer), deque()).append(part)
                self.sent[rank, peer] += piece.stop - piece.start
                moved = True
        for peer in progress.awaiting:
            stream = self.streams.get((peer, rank), ())
            while stream and (piece := progress.receiving(peer)) is not None:
                if piece.reduce:
                    array[piece.start : piece.stop] += stream.popleft()  # type: ignore[union-attr]
                else:
                    array[piece.start : piece.stop] = stream.popleft()  # type: ignore[union-attr]
                progress.received(peer)
                moved = True
        return moved

    @property
    def finished(self) -> bool:
        """Return whether everything was sent and dealt with."""
        idle = not any(self.streams.values())
        return idle and not any(progress.sending or progress.awaiting for progress in self.progress)

    def sent_by(self, rank: int) -> int:
        return sum(count for (source, _), count in self.sent.items() if source == rank)

    def received_by(self, rank: int) -> int:
        return sum(count for (_, destination), count in self.sent.items() if destination == rank)


def inputs(workers: int, size: int, seed: int = 0) -> list[Vector]:
    draw = np.random.default_rng(seed)
    return [
        draw.standard_normal(size, np.float32) * np.float32(10.0 ** (rank % 5)) for rank in range(workers)
    ]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=sized(20, 60))
@given(data=st.data(), workers=st.integers(1, 17), size=st.integers(0, 400), chunk=st.integers(1, 100))
def test_every_rank_gets_the_sum_in_the_order_promised(
    algorithm: HostBasedAlgorithm, data: st.DataObject, workers: int, size: int, chunk: int
) -> None:
    shards = data.draw(st.none() | st.integers(1, workers)) if algorithm == "parameter-server" else None
    order = data.draw(st.permutations(range(workers)))
    vectors = inputs(workers, size)
    network = Network(algorithm, vectors, chunk, shards, order)
    assert network.finished
    expected = algorithm_named(algorithm).float32_sum(vectors, shards)
    for array in network.arrays:
        assert array.tobytes() == expected.tobytes()
    exact = np.sum(np.array(vectors, np.float64), axis=0)
    magnitude = np.sum(np.abs(np.array(vectors, np.float64)), axis=0)
    assert (np.abs(expected - exact) <= float32_error_bound(workers, magnitude)).all()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=sized(13, 40))
@given(workers=st.integers(1, 17), size=st.integers(0, 400), chunk=st.integers(1, 100))
def test_all_ranks_together_send_2_times_n_minus_1_arrays(
    algorithm: HostBasedAlgorithm, workers: int, size: int, chunk: int
) -> None:
    network = Network(algorithm, inputs(workers, size), chunk)
    assert network.sent.total() == 2 * (workers - 1) * size


@pytest.mark.parametrize("algorithm", ["ring", "parameter-server"])
@settings(max_examples=sized(13, 40))
@given(workers=st.integers(1, 17), part=st.integers(0, 20), chunk=st.integers(1, 100))
def test_ring_and_full_sharding_give_every_rank_2_times_n_minus_1_nths(
    algorithm: HostBasedAlgorithm, workers: int, part: int, chunk: int
) -> None:
    network = Network(algorithm, inputs(workers, part * workers), chunk)
    for rank in range(workers):
        assert network.sent_by(rank) == network.received_by(rank) == 2 * (workers - 1) * part


@settings(max_examples=sized(13, 40))
@given(levels=st.integers(0, 4), part=st.integers(0, 20), chunk=st.integers(1, 100))
def test_halving_doubling_gives_every_rank_2_times_n_minus_1_nths(levels: int, part: int, chunk: int) -> None:
    workers = 1 << levels
    network = Network("halving-doubling", inputs(workers, part * workers), chunk)
    for rank in range(workers):
        assert network.sent_by(rank) == network.received_by(rank) == 2 * (workers - 1) * part
    peers = {peer for rank, peer in network.sent if rank == 0}
    assert peers <= {1 << level for level in range(levels)}


@settings(max_examples=sized(13, 40))
@given(workers=st.integers(1, 17), half=st.integers(0, 200), chunk=st.integers(1, 100))
def test_no_rank_of_the_double_tree_sends_or_receives_more_than_two_and_a_half_arrays(
    workers: int, half: int, chunk: int
) -> None:
    network = Network("double-binary-tree", inputs(workers, 2 * half), chunk)
    for rank in range(workers):
        # Two arrays, and half of one more for the one rank that may have children in both trees.
        both = all(neighbours(tree, rank, workers)[1] for tree in (0, 1))
        most = 2 * half * (2 + both / 2)
        assert network.sent_by(rank) <= most
        assert network.received_by(rank) <= most


@settings(max_examples=sized(13, 40))
@given(workers=st.integers(1, 64))
def test_at_most_one_rank_has_children_in_both_trees_and_no_path_is_longer_than_its_logarithm(
    workers: int,
) -> None:
    inner = [[bool(neighbours(tree, rank, workers)[1]) for rank in range(workers)] for tree in (0, 1)]
    assert sum(both for both in map(all, zip(*inner, strict=True))) <= 1
    for tree in (0, 1):
        for rank in range(workers):
            steps, above = 0, neighbours(tree, rank, workers)[0]
            while above is not None:
                assert len(neighbours(tree, above, workers)[1]) <= 2
                above = neighbours(tree, above, workers)[0]
                steps += 1
            assert steps <= workers.bit_length()


@settings(max_examples=sized(13, 40))
@given(
    workers=st.integers(1, 17), shards=st.integers(1, 17), part=st.integers(0, 20), chunk=st.integers(1, 100)
)
def test_a_server_receives_its_shard_from_all_the_others(
    workers: int, shards: int, part: int, chunk: int
) -> None:
    shards = min(shards, workers)
    size = part * shards
    network = Network("parameter-server", inputs(workers, size), chunk, shards)
    for rank in range(workers):
        serving = rank in servers(workers, shards)
        own = part * serving
        assert network.sent_by(rank) == network.received_by(rank) == size - own + own * (workers - 1)


@pytest.mark.parametrize("operation", ["reduce-scatter", "all-gather", "broadcast", "all-to-all"])
@settings(max_examples=sized(13, 40))
@given(data=st.data(), workers=st.integers(1, 9), part=st.integers(0, 40), chunk=st.integers(1, 30))
def test_other_operations_leave_each_rank_with_what_mpi_says_and_send_no_more_than_it_takes(
    operation: Operation, data: st.DataObject, workers: int, part: int, chunk: int
) -> None:
    size = workers * part if operation == "all-to-all" else data.draw(st.integers(0, workers * part))
    vectors = inputs(workers, size)
    order = data.draw(st.permutations(range(workers)))
    network = Network("ring", vectors, chunk, order=order, operation=operation)
    assert network.finished
    edges = bounds(size, workers)
    segments = [slice(edges[rank], edges[rank + 1]) for rank in range(workers)]
    total = np.sum(np.array(vectors, np.float64), axis=0)
    for rank, array in enumerate(network.arrays):
        own = segments[rank]
        if operation == "reduce-scatter":
            magnitude = np.sum(np.abs(np.array(vectors, np.float64)), axis=0)
            assert (np.abs(array - total)[own] <= float32_error_bound(workers, magnitude)[own]).all()
        elif operation == "all-gather":
            assert all((array[s] == vectors[owner][s]).all() for owner, s in enumerate(segments))
        elif operation == "broadcast":
            assert (array == vectors[0]).all()
        else:
            assert all((array[s] == vectors[owner][own]).all() for owner, s in enumerate(segments))
    assert sum(network.sent.values()) == (workers - 1) * size


def test_more_shards_than_workers_are_refused() -> None:
    with pytest.raises(ValueError, match="shards must be from 1 to 4, the number of workers, not 5"):
        schedule("parameter-server", 0, 4, 100, shards=5)


def test_a_long_array_passes_through_the_ring_in_pieces() -> None:
    progress = ScheduleProgress(schedule("ring", 0, 2, 40, chunk=4))
    assert [progress.next_send(1) for _ in range(6)][4:] == [(16, 20, -1, 0, False), None]
    progress.received(1)
    following = progress.next_send(1)
    assert following is not None
    assert (following.start, following.stop) == (20, 24)
    assert progress.next_send(1) is None


def test_what_has_come_of_a_piece_may_go_on_before_the_rest() -> None:
    progress = ScheduleProgress(schedule("ring", 0, 2, 40, chunk=20))
    assert progress.next_send(1) == (0, 20, -1, 0, False)
    assert progress.next_send(1) is None
    sent = []
    for elements in (3, 0, 16):
        progress.advanced(1, elements)
        sent.append(progress.next_send(1))
    progress.received(1)
    sent.append(progress.next_send(1))
    assert [(piece.start, piece.stop) if piece else None for piece in sent] == [
        (20, 23),
        None,
        (23, 39),
        (39, 40),
    ]
    assert progress.sending == []
