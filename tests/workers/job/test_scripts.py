"""Random programs of calls: whatever a rank leaves out, repeats, or catches, a result is right or an error names it."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanin.controller.jobs import lifecycle
from fanin.controller.jobs.lifecycle import Jobs, Member, _Job
from fanin.workers.communicator import Communicator
from fanin.workers.job.calls import Calls, RefusedError
from fanin.workers.job.local_ranks import LocalMember
from fanin.workers.protocol import Worker
from tests.sizes import sized
from tests.workers.live_job import PATIENCE, communicators, network
from tests.workers.loopback import everywhere

HOSTS = ["h1", "h2", "h3"]
FAILING = ("NaN", "bad root")
Call = tuple[str, int]  # what, and of how many elements

# How an error begins, by what the rank that it blames has done.
_RANK = r"rank ([0-9])(?:, this process,| \(process [0-9]+ on h[0-9]\))"
FAILED, ENDED, DIFFERS = (
    f"{_RANK} (?:failed in|refused) call",
    f"{_RANK} ended",
    "the workers make different calls",
)

CALLS = st.tuples(
    st.sampled_from(["sum", "sum in the background", "max", "allgather", "broadcast", *FAILING]),
    st.sampled_from([1, 2, 700]),
)


@st.composite
def scripts(draw: st.DrawFn) -> list[list[Call]]:
    """The same calls for each rank, but that one of them leaves one out, repeats one, or turns two round."""
    common = draw(st.lists(CALLS.filter(lambda call: call[0] not in FAILING), min_size=2, max_size=6))
    each = [list(common) for _ in HOSTS]
    for _ in range(draw(st.integers(0, 2))):
        script = each[draw(st.integers(0, len(HOSTS) - 1))]
        at = draw(st.integers(0, len(script) - 1)) if script else 0
        match draw(st.sampled_from(["leave out", "repeat", "turn round", "fail", "other"])):
            case "leave out":
                del script[at : at + 1]
            case "repeat":
                script[at:at] = script[at : at + 1]
            case "turn round":
                script[at : at + 2] = script[at : at + 2][::-1]
            case "fail":
                script[at : at + 1] = [(draw(st.sampled_from(FAILING)), 2)]
            case _:
                script[at : at + 1] = [draw(CALLS)]
    return each


def given_by(rank: int, at: int, size: int) -> Any:
    """Different numbers at each place of each script."""
    return np.full(size, 100 * at + 10**rank, np.float32)


def make_by_numpy(comm: Communicator, at: int, call: Call) -> Any:
    what, size = call
    x = given_by(comm.rank, at, size)
    match what:
        case "sum":
            return comm.allreduce(x)
        case "sum in the background":
            return comm.allreduce(x, async_op=True).wait()
        case "max":
            return comm.allreduce(x, "max")
        case "allgather":
            return comm.allgather(x)
        case "broadcast":
            return comm.broadcast(x, 1)
        case "NaN":
            return comm.allreduce(np.full(size, np.nan, np.float32))
        case _:
            return comm.broadcast(x, 7)


def make_by_torch(comm: Communicator, at: int, call: Call) -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
    import torch.distributed as dist

    from fanin.workers.process_group import ProcessGroup

    what, size = call
    x = torch.from_numpy(given_by(comm.rank, at, size))
    group = ProcessGroup(comm)
    match what:
        case "sum":
            dist.all_reduce(x, group=group)
        case "sum in the background":
            dist.all_reduce(x, group=group, async_op=True).wait()
        case "max":
            dist.all_reduce(x, dist.ReduceOp.MAX, group=group)
        case "allgather":
            gathered = torch.empty(len(HOSTS), size)
            dist.all_gather_single(gathered, x, group=group)
            return gathered.numpy()
        case "broadcast":
            dist.broadcast(x, group_src=1, group=group)
        case "NaN":
            dist.all_reduce(torch.full((size,), torch.nan), group=group)
        case _:
            dist.broadcast(x, group_src=7, group=group)
    return x.numpy()


MAKERS = {"numpy": make_by_numpy, "torch": make_by_torch}
BY = ["numpy", pytest.param("torch", marks=pytest.mark.torch)]


def right(call: Call, places: list[int]) -> Any:
    """Return what this call gives where it is at these places of the ranks' scripts."""
    what, size = call
    xs = np.stack([given_by(rank, at, size) for rank, at in enumerate(places)])
    return {"max": xs.max(axis=0), "allgather": xs, "broadcast": xs[1]}.get(what, xs.sum(axis=0))


def run(comm: Communicator, script: list[Call], make: Callable[[Communicator, int, Call], Any]) -> list[Any]:
    """The result of each call, or its error, which the script catches."""
    found: list[Any] = []
    for at, call in enumerate(script):
        try:
            found.append(make(comm, at, call))
        except Exception as error:
            found.append(error)
    comm.close()
    return found


def check(
    programs: list[list[Call]], by: str = "numpy", patience: float = PATIENCE, per_host: int = 1
) -> None:
    """At each rank results come first, all of them right, and then errors only, each of which names whom it may."""
    hosts = HOSTS[: len(HOSTS) // per_host]
    with (
        network(hosts, lambda _: []) as (_, _, path),
        communicators(path, hosts, timeout=patience, per_host=per_host) as comms,
    ):
        outcomes = everywhere(comms, lambda comm: run(comm, programs[comm.rank], MAKERS[by]))
    alike, culprits = blamed(programs)
    if culprits and per_host > 1:  # the calls of a host are compared before their values are looked at
        culprits[DIFFERS] |= culprits[FAILED]
    if culprits and by == "torch":  # a rank that has refused a tensor may be in its next call, or have ended
        culprits[DIFFERS] |= culprits[FAILED]
        culprits[ENDED] |= culprits[FAILED]
    for script, outcome in zip(programs, outcomes, strict=True):
        failed = [isinstance(each, Exception) for each in outcome]
        assert failed == sorted(failed), "a call after an error"
        # One that the others have finished may end by the error of the next.
        assert failed.count(False) >= min(alike, len(script)) - 1
        for at in range(failed.count(False), len(script)):
            own = (
                isinstance(outcome[at], ValueError | RefusedError)
                and script[at][0] in FAILING
                and at == failed.index(True)
            )
            assert own or blames_one(str(outcome[at]), culprits), outcome[at]
        # No rank has left out a call up to here, so all are at the same place, and have called the same.
        for at in range(failed.count(False)):
            assert all(len(other) > at and _same(other[at], script[at]) for other in programs)
            np.testing.assert_allclose(outcome[at], right(script[at], [at] * len(HOSTS)), rtol=1e-5)


def blamed(programs: list[list[Call]]) -> tuple[int, dict[str, set[int]]]:
    """Return how many calls are alike and right, and the ranks that an error may blame then, by how it begins."""
    for at, calls in enumerate(zip_longest(*programs)):
        waiting: dict[Call, set[int]] = {}
        culprits: dict[str, set[int]] = {FAILED: set(), ENDED: set(), DIFFERS: set()}
        for rank, call in enumerate(calls):
            if call is None:
                culprits[ENDED].add(rank)
            elif call[0] in FAILING:
                culprits[FAILED].add(rank)
            else:
                waiting.setdefault(_plain(call), set()).add(rank)
        if len(waiting) > 1:
            fewest = min(map(len, waiting.values()))
            culprits[DIFFERS] = set().union(*(ranks for ranks in waiting.values() if len(ranks) == fewest))
        if any(culprits.values()):
            return at, culprits
    return len(programs[0]), {}


def blames_one(error: str, culprits: dict[str, set[int]]) -> bool:
    """Return whether an error blames one of them for what it has done."""
    named = set(map(int, re.findall(_RANK, error)))
    return any(re.match(begins, error) and named & who for begins, who in culprits.items())


def _plain(call: Call) -> Call:
    """In the background or not is a rank's own affair."""
    return call[0].removesuffix(" in the background"), call[1]


def _same(one: Call, other: Call) -> bool:
    return _plain(one) == _plain(other)


@pytest.mark.slow
@settings(
    max_examples=sized(25, 1000),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@pytest.mark.parametrize("by", BY)
@given(programs=scripts())
def test_a_result_is_right_or_an_error_names_the_rank(by: str, programs: list[list[Call]]) -> None:
    check(programs, by)


@settings(
    max_examples=sized(15, 500),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(programs=scripts())
def test_ranks_of_one_host_get_right_results_or_an_error_that_names_the_rank(
    programs: list[list[Call]],
) -> None:
    check(programs, per_host=len(HOSTS))


SHIFTED = {
    what: [[("sum", 2)] * 3, [(what, 2), ("sum", 2), ("sum", 2)], [("sum", 2)] * 3] for what in FAILING
}
DIFFERENT = [[("sum", 2)] * 2, [("sum", 2), ("sum", 1)], [("sum", 2)] * 2]


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("what", FAILING)
def test_a_call_that_is_caught_shifts_no_sum(what: str, by: str) -> None:
    check(SHIFTED[what], by)


def compare_nothing(*_: object) -> None:
    """Instead of Jobs.compare()."""


def compare_operations(job: _Job, member: Member) -> dict[str, list[Member]]:
    """Instead of _Job.callers(): leaves shapes and types out."""
    found: dict[str, list[Member]] = {}
    for each in job.there():
        if each.call[0] == member.call[0]:
            found.setdefault(each.call[1].split(" of ")[0], []).append(each)
    return found


def name_the_next(job: _Job, member: Member) -> str:
    """Instead of lifecycle._named()."""
    return f"rank {(job.members.index(member) + 1) % len(job.members)} (process {member.process} on {member.host})"


@pytest.mark.parametrize(
    ("of", "name", "mutant"),
    [
        (Jobs, "compare", compare_nothing),
        (_Job, "callers", compare_operations),
        (lifecycle, "_named", name_the_next),
    ],
)
def test_without_the_comparison_of_reports_the_scripts_find_a_wrong_blame(
    monkeypatch: pytest.MonkeyPatch, of: object, name: str, mutant: Callable[..., Any]
) -> None:
    monkeypatch.setattr(of, name, mutant)
    with pytest.raises(AssertionError):
        check(DIFFERENT, patience=1.5)


def test_without_the_rule_the_scripts_find_a_wrong_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that goes on after an error as if it had made no call: packets carry the numbers of calls."""
    begin = Worker.begin

    def begin_uncounted(worker: Worker, *arguments: Any) -> None:
        try:
            begin(worker, *arguments)
        except ValueError:
            worker._state.progress.calls -= 1
            raise

    def forget(calls: Calls, *_: object) -> None:
        calls.count -= 1

    monkeypatch.setattr(Worker, "begin", begin_uncounted)
    monkeypatch.setattr(Calls, "abort", forget)
    with pytest.raises(AssertionError):
        check(SHIFTED["NaN"])


def test_without_the_comparison_of_a_host_s_calls_the_scripts_find_a_wrong_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A value that one rank gives for a maximum is then added to what the others give for a sum.

    Unless the controller hears of both calls first, which it may on a busy machine: hence several attempts.
    """

    def attempt_several_times() -> None:
        for _ in range(20):
            check([[("sum", 2)] * 2, [("sum", 2), ("max", 2)], [("sum", 2)] * 2], per_host=len(HOSTS))

    monkeypatch.setattr(LocalMember, "_compare", compare_nothing)
    with pytest.raises(AssertionError):
        attempt_several_times()
