"""All-reduces of compressed vectors on the loopback, over TCP and over UDP, a thread for each rank."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.workers.collective import Collective, CollectiveError, Transport
from fanin.workers.host_based.participant import Group
from fanin.workers.host_based.tcp import TcpAllReduce, TcpConfig
from fanin.workers.host_based.udp import UdpAllReduce, UdpGroupConfig
from fanin.workers.recovery import Recovery
from fanin.workers.values.compression import (
    Compression,
    Compressor,
    ErrorFeedback,
    Rounded,
    TopK,
    decompressed,
)
from tests.workers.loopback import free_tcp_addresses, free_udp_addresses

WORKERS = 3
TRANSPORTS: list[Transport | Literal["tcp"]] = ["tcp", "selective-repeat", "go-back-n"]
ALL = pytest.mark.parametrize("transport", TRANSPORTS)


def sums_of(
    transport: Transport | Literal["tcp"],
    vectors: Sequence[np.ndarray],
    compressors: Sequence[Compression],
    rounds: int = 1,
    give_up: float = 5.0,
) -> list[list[np.ndarray]]:
    """Return what each rank gets in each round; the last one written where its vector is, and first here."""
    addresses = (free_tcp_addresses if transport == "tcp" else free_udp_addresses)(WORKERS)

    def member(rank: int) -> TcpAllReduce | UdpAllReduce:
        call = compressors[rank]
        if transport == "tcp":
            return TcpAllReduce(TcpConfig(rank, addresses, call=call, connect_timeout=20.0, give_up=5.0))
        group = Group(rank, WORKERS, transport=transport, window=64, calls=(call,))
        return UdpAllReduce(UdpGroupConfig(group, addresses, recovery=Recovery(give_up=give_up)))

    def work(rank: int) -> list[np.ndarray]:
        group: Collective
        with member(rank) as group:
            x = vectors[rank]
            found = [group.all_reduce(x).copy() for _ in range(rounds - 1)]
            in_place = x.copy()
            assert np.may_share_memory(group.all_reduce(in_place, in_place), in_place)
            assert group.statistics.all_reduces == rounds
            return [in_place, *found]

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(work, range(WORKERS)))


@pytest.mark.slow
@ALL
@pytest.mark.parametrize("compressor", [TopK(0.1), Rounded(8), Rounded(4)], ids=str)
@pytest.mark.parametrize("shape", [(1,), (20, 30), (100_000,)])
def test_everybody_gets_the_sum_of_what_everybody_sends(
    transport: Transport | Literal["tcp"], compressor: Compressor, shape: tuple[int]
) -> None:
    rng = np.random.default_rng(3)
    vectors = [rng.standard_normal(shape, dtype=np.float32) for _ in range(WORKERS)]
    wanted = np.zeros(shape, np.float32)
    for x in vectors:
        wanted += decompressed(compressor, x.reshape(-1)).reshape(shape)
    for of_rank in sums_of(transport, vectors, [compressor] * WORKERS, rounds=2):
        for found in of_rank:
            np.testing.assert_array_equal(found, wanted)


@ALL
def test_workers_whose_compressors_send_different_sizes_find_out(
    transport: Transport | Literal["tcp"],
) -> None:
    vectors = [np.ones(1000, np.float32)] * WORKERS
    with pytest.raises(CollectiveError):
        sums_of(transport, vectors, [Rounded(8), Rounded(8), TopK(0.2)], give_up=0.5)


def test_over_tcp_workers_that_compress_differently_find_out_though_the_sizes_are_alike() -> None:
    vectors = [np.ones(1000, np.float32)] * WORKERS
    sizes = {compressor.size(1000) for compressor in (Rounded(8), TopK(0.127))}
    assert len(sizes) == 1
    with pytest.raises(CollectiveError):
        sums_of("tcp", vectors, [Rounded(8), Rounded(8), TopK(0.127)])


@ALL
def test_what_cannot_be_compressed_is_refused_before_anything_is_sent(
    transport: Transport | Literal["tcp"],
) -> None:
    x = np.ones(100, np.float32)
    x[3] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        sums_of(transport, [x] * WORKERS, [Rounded(8)] * WORKERS)


@pytest.mark.parametrize(
    "config",
    [
        partial(Group, 0, 3, "halving-doubling", calls=("all-reduce", TopK(0.1))),
        partial(TcpConfig, 0, (("127.0.0.1", 1),), "halving-doubling", call=TopK(0.1)),
    ],
    ids=["udp", "tcp"],
)
def test_other_algorithms_than_a_ring_have_none(config: partial[object]) -> None:
    with pytest.raises(ValueError, match=r"TopK.* gathers round a ring: algorithm must be 'ring', not 'halv"):
        config()


@ALL
def test_with_feedback_each_worker_compresses_each_gradient_once(
    transport: Transport | Literal["tcp"], monkeypatch: pytest.MonkeyPatch
) -> None:
    compressed: list[int] = []
    pack = TopK.packed

    def packed(self: TopK, x: NDArray[np.float32]) -> NDArray[np.uint8]:
        compressed.append(x.size)
        return pack(self, x)

    rng = np.random.default_rng(6)
    vectors = [rng.standard_normal(1000, dtype=np.float32) for _ in range(WORKERS)]
    alone = [ErrorFeedback(TopK(0.1)) for _ in range(WORKERS)]
    wanted = []
    for _ in range(4):
        wanted.append(np.zeros(1000, np.float32))
        for feedback, x in zip(alone, vectors, strict=True):
            feedback.add(feedback.packed(x), wanted[-1])
    monkeypatch.setattr(TopK, "packed", packed)
    found = sums_of(transport, vectors, [ErrorFeedback(TopK(0.1)) for _ in range(WORKERS)], rounds=4)
    assert compressed == [1000] * WORKERS * 4
    for last, *before in found:
        np.testing.assert_array_equal([*before, last], wanted)
