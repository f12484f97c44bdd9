"""Two hosts with two ranks each: every collective, its order of additions, and what becomes of errors."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from fanin.workers.arguments import Array
from fanin.workers.communicator import Communicator, NonFinite
from fanin.workers.job.environment import JOB
from fanin.workers.job.local_ranks import join_local, place_on_host
from tests.workers.job.operations import OPERATIONS
from tests.workers.live_job import PATIENCE, Do, Grants, Process, network

HOSTS = ["h1", "h2"]
PER_HOST = 2
SIZE = len(HOSTS) * PER_HOST
ALL = range(SIZE)


def initial(
    local: int, non_finite: NonFinite, *, ring: bool, per_host: int = PER_HOST
) -> Callable[[], Communicator]:
    checks = "propagate" if non_finite == "propagate" else "raise"

    def init() -> Communicator:
        place = join_local(len(HOSTS) * per_host, local, per_host, PATIENCE, ring=ring, non_finite=checks)
        return Communicator(place, PATIENCE, non_finite=non_finite)

    return init


def everywhere(
    do: Do,
    meanwhile: Callable[[Sequence[Process], Grants], None] = lambda _, __: None,
    *,
    non_finite: NonFinite = "refuse",
    refuses: bool = False,
    ring: bool = True,
    per_host: int = PER_HOST,
) -> list[list[Any]]:
    """Return what each rank reports in a job of two hosts, by rank."""

    def start(path: Any) -> list[Process]:
        return [
            Process(path, host, do, initial(local, non_finite, ring=ring, per_host=per_host))
            for host in HOSTS
            for local in range(per_host)
        ]

    with network(HOSTS, start, refuses) as (processes, grants, _):
        meanwhile(processes, grants)
        return [process.hear() for process in processes]


def digits(result: Any) -> Any:
    return [each.tolist() for each in result] if isinstance(result, list) else np.asarray(result).tolist()


def everything(comm: Communicator, tell: Callable[[Any], None]) -> None:
    for call in OPERATIONS.values():
        tell(digits(call(comm)))


EXPECTED = {
    "allreduce": [[10.0] * 9000] * SIZE,
    "allreduce of integers": [[10] * 500] * SIZE,
    "allreduce of several": [[[4.0] * 5, [4.0] * 5, [4] * 5]] * SIZE,
    "allreduce by ring": [[4.0] * 9000] * SIZE,
    "allreduce of what is compressed": [[10.0] * 500] * SIZE,
    "reduce": [[10.0] * 500 if rank == 2 else None for rank in ALL],
    "broadcast": [[3] * 500] * SIZE,
    "allgather": [[[rank + 1] * 500 for rank in ALL]] * SIZE,
    "reduce_scatter": [[10] * 150] * SIZE,
    "barrier": [None] * SIZE,
    "in the background": [[4.0] * 9000] * SIZE,
}


@pytest.mark.parametrize("refuses", [False, True], ids=["with a lease", "without a lease"])
def test_every_collective_has_the_result_of_one_rank_on_each_host(refuses: bool) -> None:
    told = everywhere(everything, refuses=refuses)
    for place, what in enumerate(OPERATIONS):
        expected = EXPECTED[what]
        for rank in ALL:
            np.testing.assert_allclose(
                np.hstack(told[rank][place]), np.hstack(expected[rank]), rtol=1e-6, err_msg=what
            ) if expected[rank] is not None else told[rank][place] is None


def test_without_a_ring_the_job_waits_for_its_lease_and_uses_it() -> None:
    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        tell(digits(comm.allreduce(np.full(3, comm.rank, np.float32))))

    assert everywhere(do, ring=False) == [[[6.0] * 3]] * SIZE


def of(rank: int) -> Any:
    return np.random.default_rng(rank).normal(size=3000).astype(np.float32)


def test_all_ranks_have_the_same_bits_and_floats_of_a_host_are_added_in_the_order_of_its_ranks() -> None:
    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        tell(comm.allreduce(of(comm.rank)).tobytes())
        tell(comm.allreduce(of(comm.rank).astype(float)).tobytes())

    told = everywhere(do, per_host=3)
    assert all(each == told[0] for each in told)
    hosts = [(of(first) + of(first + 1)) + of(first + 2) for first in (0, 3)]
    exact = sum(host.astype(float) for host in hosts)
    error = np.abs(np.frombuffer(told[0][0], np.float32) - exact)
    # Of the network with one rank on each host (quantization.py): the exponent of these values is at most 3.
    assert error.max() <= 2 * 2 * 2**3 / (2 * (2**31 - 1)) + np.spacing(np.float32(8)) / 2
    wide = [(of(first).astype(float) + of(first + 1)) + of(first + 2) for first in (0, 3)]
    assert np.array_equal(np.frombuffer(told[0][1]), wide[0] + wide[1])


def test_results_outlive_the_next_call_and_memory_grows() -> None:
    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        results = [comm.allreduce(np.full(size, size, np.float32)) for size in (10, 40_000, 20, 90_000)]
        tell([(each[0], each[-1]) for each in results])

    assert everywhere(do) == [[[(4 * size, 4 * size) for size in (10, 40_000, 20, 90_000)]]] * SIZE


def test_nan_and_infinities_come_out_where_they_went_in_at_whichever_rank() -> None:
    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        x = np.ones(700, np.float32)
        x[comm.rank] = np.inf
        x[300] = np.nan if comm.rank == 3 else 1
        x[500] = 3e38 if comm.rank in (0, 1) else 0  # too large already on the host
        comm.allreduce(x, out=x)
        tell(x)

    expected = np.full(700, 4, np.float32)
    expected[:4], expected[300], expected[500] = np.inf, np.nan, np.inf
    for [x] in everywhere(do, non_finite="propagate"):
        np.testing.assert_array_equal(x, expected)


def test_a_nan_that_is_refused_is_that_of_its_rank() -> None:
    def do(comm: Communicator, _: Callable[[Any], None]) -> None:
        comm.allreduce(
            np.where(np.arange(9) == comm.rank, np.nan if comm.rank == 3 else 1, 1).astype(np.float32)
        )

    told = everywhere(do)
    assert told[3][0].startswith("ValueError: element 3 is nan")
    for [error] in told[:3]:
        assert re.search(
            r"^AbortedError: rank 3 \(process \d+ on h2\) failed in call 1, .* element 3 is nan", error
        )


@pytest.mark.parametrize("fails", [1, 2], ids=["one of two", "a leader"])
def test_an_error_of_one_rank_reaches_all_and_shifts_no_later_sum(fails: int) -> None:
    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        for step in range(4):
            try:
                x: Array = np.full(5, "?" if comm.rank == fails and step == 1 else step)
                tell(digits(comm.allreduce(x)))
            except (RuntimeError, TypeError) as error:
                tell(str(error))

    for rank, told in enumerate(everywhere(do)):
        sums = [each for each in told if isinstance(each, list)]
        assert sums == [[0] * 5, [SIZE] * 5][: len(sums)]
        assert len(sums) < 2
        for error in told[len(sums) + (rank == fails) :]:  # its own first one names no rank
            assert f"rank {fails}" in error
            assert "failed in call 2, allreduce: TypeError: there is no sum of <U1" in error


@pytest.mark.parametrize("dies", [1, 0, 3], ids=["the other one", "the leader", "of the second host"])
def test_all_others_are_told_who_was_killed(dies: int) -> None:
    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        comm.barrier()
        comm.allgather(np.ones(3))
        if comm.rank == dies:
            if not os.fork():  # a child with all of its connections, as a data loader is
                signal.alarm(int(PATIENCE))
                signal.pause()
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                comm.allreduce(np.ones(3, np.float32))
        except RuntimeError as error:
            tell(str(error))

    told = everywhere(do)
    assert told.pop(dies) == []
    for [error] in told:
        assert f"rank {dies} (process " in error
        assert "ended" in error


@pytest.mark.parametrize("differs", [1, 3])
@pytest.mark.parametrize(
    "otherwise",
    [
        lambda comm: comm.allreduce(np.ones(1001, np.float32)),
        lambda comm: comm.allreduce(np.ones(1000, np.float32), "mean"),
        lambda comm: comm.allgather(np.ones(1000, np.float32)),
        lambda comm: comm.barrier(),
    ],
    ids=["another length", "another operation", "by ring", "a barrier"],
)
def test_calls_of_one_host_that_differ_end_in_an_error_that_names_both(
    differs: int, otherwise: Callable[[Communicator], Any]
) -> None:
    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        tell(digits(comm.allreduce(np.ones(1000, np.float32))))
        (otherwise if comm.rank == differs else lambda comm: comm.allreduce(np.ones(1000, np.float32)))(comm)
        tell("a result")

    for first, error in everywhere(do):
        assert first == [4.0] * 1000
        assert "different calls" in error
        assert f"rank {differs}" in error
        assert "allreduce sum of 1,000 float32" in error


def test_a_lease_that_is_lost_lets_the_hosts_continue_by_ring() -> None:
    def do(comm: Communicator, tell: Callable[[Any], None]) -> None:
        x = np.full(9000, comm.rank + 1, np.float32)
        total = np.empty_like(x)
        for _ in range(60):
            comm.allreduce(x, out=total)
            tell((total.min(), total.max()))

    def revoke(_: Sequence[Process], grants: Grants) -> None:
        while not (jobs := grants.jobs()) or jobs[0]["state"] != "in network":
            os.sched_yield()
        grants.revoke(jobs[0]["name"])

    assert everywhere(do, revoke) == [[(10.0, 10.0)] * 60] * SIZE


@pytest.mark.parametrize(("world", "local", "per_host"), [("4", "2", "2"), ("4", "0", "3"), ("4", "0", "0")])
def test_variables_that_contradict_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch, world: str, local: str, per_host: str
) -> None:
    monkeypatch.setenv("LOCAL_RANK", local)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", per_host)
    with pytest.raises(
        ValueError, match=f"WORLD_SIZE is {world}, LOCAL_WORLD_SIZE {per_host} and LOCAL_RANK {local}"
    ):
        place_on_host(int(world))


def test_without_torchruns_variables_there_is_one_rank_on_each_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", JOB):
        monkeypatch.delenv(name, raising=False)
    assert place_on_host(4) == place_on_host(None) == (0, 1)
