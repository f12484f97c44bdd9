"""All-reduces of a communicator that are compressed, among workers on the loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fanin.workers.collective import CollectiveError
from fanin.workers.communicator import Communicator
from fanin.workers.values.compressed import Compressed
from fanin.workers.values.compression import (
    Compression,
    Compressor,
    ErrorFeedback,
    Rounded,
    TopK,
    Vector,
    decompressed,
)
from tests.workers.loopback import SWITCH, everywhere, job

N = 3
ALL = pytest.mark.parametrize("compressor", [TopK(0.1), Rounded(8), Rounded(4)], ids=str)


@pytest.fixture(scope="module")
def comms() -> Iterator[list[Communicator]]:
    with job(N, at=(SWITCH[0], SWITCH[1] + 3)) as (members, _):
        yield members


def gradient(rank: int, *shape: int) -> Vector:
    return np.random.default_rng(rank).standard_normal(shape, dtype=np.float32)


def summed(compressor: Compressor, vectors: list[Vector]) -> Vector:
    total = np.zeros_like(vectors[0])
    for x in vectors:
        total += decompressed(compressor, x.reshape(-1)).reshape(x.shape)
    return total


@ALL
@pytest.mark.parametrize("shape", [(1,), (300, 40)])
def test_all_get_the_sum_and_the_mean_of_what_all_send_and_only_that_is_sent(
    comms: list[Communicator], compressor: Compressor, shape: tuple[int, ...]
) -> None:
    def do(comm: Communicator) -> tuple[Vector, Vector, int]:
        x = gradient(comm.rank, *shape)
        total = comm.allreduce(x, compression=compressor)
        np.testing.assert_array_equal(x, gradient(comm.rank, *shape))
        assert comm._reducer._connected is not None
        before = comm._reducer._connected.statistics.bytes_sent
        mean = comm.allreduce(x, "mean", compression=compressor, out=x)
        assert mean is x
        return total, mean, comm._reducer._connected.statistics.bytes_sent - before

    wanted = summed(compressor, [gradient(rank, *shape) for rank in range(N)])
    for total, mean, sent in everywhere(comms, do):
        np.testing.assert_array_equal(total, wanted)
        np.testing.assert_array_equal(mean, wanted / np.float32(N))
        assert sent == (N - 1) * compressor.size(wanted.size) + 24  # a header


@ALL
def test_several_arrays_are_one_vector_and_come_back_in_their_types(
    comms: list[Communicator], compressor: Compressor
) -> None:
    def arrays(rank: int) -> list[Any]:
        return [
            gradient(rank, 20, 30),
            gradient(rank, 70).astype(np.float16),
            gradient(rank, 8, 6).T,
            np.zeros((0, 3), np.float16),
        ]

    def vector(rank: int) -> Vector:
        return np.concatenate([x.reshape(-1).astype(np.float32) for x in arrays(rank)])

    wanted = summed(compressor, [vector(rank) for rank in range(N)])
    for results in everywhere(comms, lambda comm: comm.allreduce(arrays(comm.rank), compression=compressor)):
        ends = np.cumsum([x.size for x in arrays(0)])[:-1]
        for result, part, like in zip(results, np.split(wanted, ends), arrays(0), strict=True):
            assert (result.dtype, result.shape) == (like.dtype, like.shape)
            np.testing.assert_array_equal(result, part.reshape(like.shape).astype(like.dtype))


@ALL
def test_arrays_without_elements(comms: list[Communicator], compressor: Compressor) -> None:
    def do(comm: Communicator) -> Any:
        none: list[Any] = []
        assert comm.allreduce(none, compression=compressor) == none
        return comm.allreduce(np.zeros((0, 3), np.float32), compression=compressor).shape

    assert everywhere(comms, do) == [(0, 3)] * N


@ALL
def test_what_is_left_out_goes_with_the_next_though_none_is_waited_for(
    comms: list[Communicator], compressor: Compressor
) -> None:
    def do(comm: Communicator) -> list[Vector]:
        feedback, x = ErrorFeedback(compressor), gradient(comm.rank, 500)
        begun = [comm.allreduce(x, compression=feedback, async_op=True) for _ in range(5)]
        return [each.wait() for each in begun]

    alone = [ErrorFeedback(compressor) for _ in range(N)]
    wanted = []
    for _ in range(5):
        wanted.append(np.zeros(500, np.float32))
        for rank, feedback in enumerate(alone):
            feedback.add(feedback.packed(gradient(rank, 500)), wanted[-1])
    for found in everywhere(comms, do):
        np.testing.assert_array_equal(found, wanted)


def test_what_is_compressed_is_read_when_the_calls_before_are_done(comms: list[Communicator]) -> None:
    def do(comm: Communicator) -> list[float]:
        x = np.full(300, comm.rank + 1, np.float32)
        comm.allreduce(x, out=x, async_op=True)
        comm.allreduce(x, out=x, compression=Rounded(8), async_op=True).wait()
        return [float(x.min()), float(x.max())]

    for found in everywhere(comms, do):
        assert found == pytest.approx([18.0, 18.0])


def test_what_is_done_again_by_other_workers_is_compressed_once() -> None:
    feedback, x = ErrorFeedback(TopK(0.1)), gradient(0, 500)
    vector = Compressed(feedback, [x], "sum")
    size = feedback.size(500)
    first, again = vector.to_gather(1, 3), vector.to_gather(0, 2)
    np.testing.assert_array_equal(first[size : 2 * size], again[:size])
    np.testing.assert_array_equal(feedback.carried(x), x + x - decompressed(TopK(0.1), x))


def test_more_than_float16_holds_is_an_infinity(comms: list[Communicator]) -> None:
    x = np.full(3, 60_000, np.float16)
    for found in everywhere(comms, lambda comm: comm.allreduce(x, compression=TopK(1.0))):
        assert np.isposinf(found).all()


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (
            lambda comm: comm.allreduce(np.ones(2, int), compression=TopK(0.1)),
            TypeError,
            "compression is of float32 and float16, not of int64; convert",
        ),
        (
            lambda comm: comm.allreduce([np.ones(2, np.float32), np.ones(2)], compression=TopK(0.1)),
            TypeError,
            "not of float64",
        ),
        (
            lambda comm: comm.allreduce(np.ones(2, np.float32), "max", compression=Rounded(8)),
            ValueError,
            "compression is of sums and means, not of op='max'",
        ),
        (
            lambda comm: comm.allreduce(np.ones(2, np.float32), "min", compression=Rounded(8)),
            ValueError,
            "not of op='min'",
        ),
        (
            lambda comm: comm.allreduce(np.ones(2, np.float32), compression="8-bit"),
            TypeError,
            "compression is a TopK, Rounded or ErrorFeedback of workers, not '8-bit' of str",
        ),
        (
            lambda comm: comm.allreduce(np.full(2, np.nan, np.float32), compression=Rounded(8)),
            ValueError,
            "not finite",
        ),
        (lambda _: TopK(0), ValueError, "density must be more than 0 and at most 1, all values, not 0"),
        (lambda _: TopK(10), ValueError, "not 10"),
        (lambda _: Rounded(16), ValueError, "bits must be 8 or 4, not 16"),
    ],
)
def test_what_cannot_be_compressed_is_refused_before_anything_is_sent(
    wrong: Callable[[Communicator], object], error: type[Exception], says: str
) -> None:
    with job(2) as (comms, _):
        with pytest.raises(error, match=says):
            wrong(comms[0])
        assert comms[0]._reducer._connected is None


def test_in_a_job_that_needs_the_network_nothing_is_compressed() -> None:
    """Since the hosts would add it up."""
    with job(2) as (comms, _):
        required = Communicator(comms[0]._place, 1.0, "required")
        with pytest.raises(ValueError, match="leave out compression, or in_network='required'"):
            required.allreduce(np.ones(3, np.float32), compression=Rounded(8))


@pytest.mark.parametrize(
    "others",
    [
        None,
        Rounded(4),
        TopK(0.127),
        ErrorFeedback(Rounded(8)),
    ],  # of which two send as many bytes as the first
    ids=str,
)
def test_workers_that_compress_differently_are_told(others: Compression | None) -> None:
    with job(2, timeout=1.0) as (comms, _):

        def do(comm: Communicator) -> None:
            compression = others if comm.rank else Rounded(8)
            with pytest.raises(CollectiveError):
                comm.allreduce(np.ones(1000, np.float32), compression=compression)

        everywhere(comms, do)
