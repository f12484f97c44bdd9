"""NaN and infinities in sums: they come out where they went in, at all workers, however far the lease goes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fanin.workers.communicator import Communicator
from fanin.workers.lease import Lease
from tests.workers.loopback import WINDOW, everywhere, job

N = 3
VALUES = Lease(5, 0, N, WINDOW).values  # in a block
SIZES = [1, VALUES, 700, VALUES * WINDOW, VALUES * WINDOW + 1, 9000]  # of one block to several windows


def of(rank: int, size: int) -> Any:
    """Numbers, among them what no switch can sum, alone in a block, several in one, and at either end."""
    rng = np.random.default_rng(rank)
    x = rng.standard_normal(size).astype(np.float32)
    odd = [np.nan, np.inf, -np.inf, 3e38, -2e38]
    places = rng.integers(0, size, max(size // 400, 1))
    x[places] = rng.choice(odd, len(places))
    if rank == 0:
        x[0] = np.inf
    if rank == 1:
        x[-1] = np.nan
    return x


def check(results: list[Any], size: int) -> None:
    stacked = np.stack([of(rank, size) for rank in range(N)])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = stacked.sum(axis=0, dtype=np.float32)
    assert not np.isfinite(expected[[0, -1]]).any()
    for result in results:
        assert result.tobytes() == results[0].tobytes()
        np.testing.assert_allclose(result, expected, atol=1e-5, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.few(20)
@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("how", ["new", "out", "in place", "list", "in the background"])
def test_they_come_out_where_they_went_in(size: int, how: str) -> None:
    """Also of a vector like one before, whose exponents are expected."""

    def do(comm: Communicator) -> list[Any]:
        results = []
        for _ in range(3):
            x = of(comm.rank, size)
            if how == "in place":
                results.append(comm.allreduce(x, out=x))
            elif how == "out":
                results.append(comm.allreduce(x, out=np.empty_like(x)))
            elif how == "list":
                results.append(np.concatenate(comm.allreduce([x[: size // 2], x[size // 2 :]])))
            elif how == "in the background":
                results.append(comm.allreduce(x, async_op=True).wait())
            else:
                results.append(comm.allreduce(x))
        return results

    with job(N, non_finite="propagate") as (comms, _):
        for results in zip(*everywhere(comms, do), strict=True):
            check(list(results), size)


def test_a_mean_and_float16_have_them_too() -> None:
    def do(comm: Communicator) -> list[Any]:
        x = np.array([1, np.inf if comm.rank else 2, np.nan if comm.rank == 2 else 3], np.float32)
        return [comm.allreduce(x, "mean"), comm.allreduce(x.astype(np.float16))]

    with job(N, non_finite="propagate") as (comms, _):
        for mean, total in everywhere(comms, do):
            np.testing.assert_allclose(mean, [1, np.inf, np.nan])
            np.testing.assert_allclose(total, [3, np.inf, np.nan])


def test_where_one_worker_refuses_them_those_of_others_reach_it() -> None:
    """Which has none of its own."""

    def do(comm: Communicator) -> Any:
        return comm.allreduce(np.array([1, np.inf if comm.rank else 2], np.float32))

    with job(2, non_finite="propagate") as (comms, _):
        comms[0]._place.worker._propagate = False
        for result in everywhere(comms, do):
            np.testing.assert_allclose(result, [2, np.inf])


def test_a_block_is_summed_by_hosts_only_where_there_is_one() -> None:
    def do(comm: Communicator) -> Any:
        x = np.ones(5000, np.float32)
        for _ in range(3):
            comm.allreduce(x.copy())
        assert comm._reducer._connected is None
        x[70] = np.inf
        comm.allreduce(x)
        ring = comm._reducer._connected
        assert ring is not None
        return ring.statistics.bytes_sent

    with job(2, non_finite="propagate") as (comms, _):
        assert all(sent < 2 * 4 * VALUES for sent in everywhere(comms, do))


def test_without_a_lease_they_are_refused_as_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with job(1) as ([comm], _):
        monkeypatch.setattr(comm._reducer, "_by_ring", True)
        with pytest.raises(ValueError, match=r"element 1 is nan.*non_finite='propagate'"):
            comm.allreduce(np.array([1, np.nan], np.float32))
