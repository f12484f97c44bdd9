"""Random programs of calls: whatever a rank leaves out, repeats, or catches, a result is right or there is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanin.workers.communicator import Communicator
from fanin.workers.job.calls import Calls
from fanin.workers.protocol import Worker
from tests.sizes import sized
from tests.workers.live_job import communicators, network
from tests.workers.loopback import everywhere

HOSTS = ["h1", "h2", "h3"]
FAILING = ("NaN", "bad root")
Call = tuple[str, int]  # what, and of how many elements

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


def make(comm: Communicator, at: int, call: Call) -> Any:
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


def right(call: Call, places: list[int]) -> Any:
    """What this call gives where it is at these places of the ranks' scripts."""
    what, size = call
    xs = np.stack([given_by(rank, at, size) for rank, at in enumerate(places)])
    return {"max": xs.max(axis=0), "allgather": xs, "broadcast": xs[1]}.get(what, xs.sum(axis=0))


def run(comm: Communicator, script: list[Call]) -> list[Any]:
    """The result of each call, or its error, which the script catches."""
    found: list[Any] = []
    for at, call in enumerate(script):
        try:
            found.append(make(comm, at, call))
        except Exception as error:
            found.append(error)
    comm.close()
    return found


def check(path: Path, programs: list[list[Call]]) -> None:
    """At each rank results come first, all of them right, and then errors only, which name a rank."""
    with communicators(path, HOSTS) as comms:
        outcomes = everywhere(comms, lambda comm: run(comm, programs[comm.rank]))
    for script, outcome in zip(programs, outcomes, strict=True):
        failed = [isinstance(each, Exception) for each in outcome]
        assert failed == sorted(failed), "a call after an error"
        for each in outcome[failed.index(True) + 1 :] if True in failed else []:
            assert "rank " in str(each)
        # No rank has left out a call up to here, so all are at the same place, and have called the same.
        for at in range(failed.count(False)):
            assert all(len(other) > at and _same(other[at], script[at]) for other in programs)
            np.testing.assert_allclose(outcome[at], right(script[at], [at] * len(HOSTS)), rtol=1e-5)


def _same(one: Call, other: Call) -> bool:
    """In the background or not is a rank's own affair."""
    return (one[0].removesuffix(" in the background"), one[1]) == (
        other[0].removesuffix(" in the background"),
        other[1],
    )


@pytest.fixture
def path() -> Iterator[Path]:
    with network(HOSTS, lambda _: []) as (_, _, path):
        yield path


@settings(
    max_examples=sized(25, 1000),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(programs=scripts())
def test_a_result_is_right_or_an_error_names_a_rank(path: Path, programs: list[list[Call]]) -> None:
    check(path, programs)


SHIFTED = [[("sum", 2)] * 3, [("NaN", 2), ("sum", 2), ("sum", 2)], [("sum", 2)] * 3]


def test_a_call_that_is_caught_shifts_no_sum(path: Path) -> None:
    check(path, SHIFTED)


def test_without_the_rule_the_scripts_find_a_wrong_sum(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        check(path, SHIFTED)
