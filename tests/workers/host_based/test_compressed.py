"""All-reduces of compressed vectors over TCP on the loopback, a thread for each rank."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.workers.host_based.test_tcp import free_addresses
from workers.collective import CollectiveError
from workers.compression import Compressor, Rounded, TopK, decompressed
from workers.host_based.compressed import CompressedAllReduce
from workers.host_based.tcp import TcpConfig

WORKERS = 3


def sums_of(
    vectors: list[np.ndarray], compressors: list[Compressor], rounds: int = 1
) -> list[list[np.ndarray]]:
    """What each rank gets in each round."""
    addresses = free_addresses(WORKERS)

    def work(rank: int) -> list[np.ndarray]:
        group = CompressedAllReduce(TcpConfig(rank, addresses, give_up=5.0), compressors[rank])
        with group:
            found = [group.all_reduce(vectors[rank]).copy() for _ in range(rounds)]
            assert group.statistics.all_reduces == rounds
            return found

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(work, range(WORKERS)))


@pytest.mark.parametrize("compressor", [TopK(0.1), Rounded(8), Rounded(4)], ids=str)
@pytest.mark.parametrize("shape", [(1,), (20, 30), (100_000,)])
def test_everybody_gets_the_sum_of_what_everybody_sends(compressor: Compressor, shape: tuple[int]) -> None:
    rng = np.random.default_rng(3)
    vectors = [rng.standard_normal(shape, dtype=np.float32) for _ in range(WORKERS)]
    wanted = np.zeros(shape, np.float32)
    for x in vectors:
        wanted += decompressed(compressor, x.reshape(-1)).reshape(shape)
    for of_rank in sums_of(vectors, [compressor] * WORKERS, rounds=2):
        for found in of_rank:
            np.testing.assert_array_equal(found, wanted)


def test_workers_that_compress_differently_find_out() -> None:
    vectors = [np.ones(1000, np.float32)] * WORKERS
    with pytest.raises(CollectiveError):
        sums_of(vectors, [Rounded(8), Rounded(8), TopK(0.129)])
