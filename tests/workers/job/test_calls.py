"""Whatever a call raises at one worker ends the calls of all, which are told; so no sum is of different calls."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fanin.workers import communicator as communicating
from fanin.workers.collective import CollectiveError
from fanin.workers.communicator import Communicator, Request
from fanin.workers.job import calls as calling
from fanin.workers.job.calls import AbortedError, Calls, RefusedError
from fanin.workers.values.compression import TopK
from tests.workers.live_job import Grants, communicators, network
from tests.workers.loopback import everywhere, job

HOSTS = ["h1", "h2", "h3"]


@pytest.fixture
def service() -> Iterator[tuple[Path, Grants]]:
    with network(HOSTS, lambda _: []) as (_, grants, path):
        yield path, grants


def broken(comm: Communicator, error: BaseException) -> object:
    """An operation in the middle of which this happens."""

    def attempt(_: object) -> Any:
        raise error

    return comm.carry_out(Request("allreduce", True, attempt, [None], lambda _: None))


ERRORS: dict[str, tuple[Callable[[Communicator], object], type[BaseException], str]] = {
    "NaN": (
        lambda comm: comm.allreduce(np.array([1, np.nan], np.float32)),
        ValueError,
        "allreduce sum of 2 float32: ValueError: element 1 is nan",
    ),
    "bad argument": (
        lambda comm: comm.broadcast(np.ones(3), 7),
        ValueError,
        "broadcast: ValueError: root must",
    ),
    "Ctrl-C": (
        lambda comm: broken(comm, KeyboardInterrupt()),
        KeyboardInterrupt,
        "allreduce: KeyboardInterrupt",
    ),
    "no memory": (
        lambda comm: broken(comm, MemoryError("nothing left")),
        MemoryError,
        "allreduce: MemoryError: nothing left",
    ),
    "not prepared": (
        lambda comm: comm.allreduce_init(np.ones(3, bool)),
        TypeError,
        "allreduce_init: TypeError: there is no sum of bool",
    ),
    "in the background": (
        lambda comm: comm.allreduce(np.array([np.inf], np.float32), async_op=True).wait(),
        ValueError,
        "allreduce sum of 1 float32: ValueError: element 0 is inf",
    ),
}

WAITS: dict[str, Callable[[Communicator], object]] = {
    "in the network": lambda comm: comm.allreduce(np.full(2, comm.rank + 1, np.float32)),
    "in a long sum": lambda comm: comm.allreduce(np.full(20_000, comm.rank + 1, np.float32)),
    "for a connection": lambda comm: comm.allgather(np.ones(3)),
    "in the background": lambda comm: comm.allreduce(np.ones(2, np.float32), async_op=True).wait(),
    "prepared": lambda comm: comm.carry_out(comm.allreduce_init(np.ones(2, np.float32))),
    "for what is compressed": lambda comm: comm.allreduce(np.ones(9, np.float32), compression=TopK(1.0)),
}


def test_a_call_while_another_thread_is_in_one_ends_the_job(service: tuple[Path, Grants]) -> None:
    path, _ = service
    with communicators(path, HOSTS) as comms:
        first, *others = comms
        errors: list[CollectiveError] = []

        def meanwhile() -> None:
            with pytest.raises(CollectiveError) as error:
                first.allreduce(np.ones(2, np.float32))
            errors.append(error.value)

        def attempt(_: object) -> Any:
            thread = threading.Thread(target=meanwhile)
            thread.start()
            thread.join()
            return []

        first.carry_out(Request("nothing", False, attempt, [], lambda _: None))
        assert str(errors[0]) == "another thread is in a call: make calls from one thread at a time"
        for comm in others:
            with pytest.raises(AbortedError, match=r"rank 0 .* another thread is in a call"):
                comm.allreduce(np.ones(2, np.float32))


def sum_at_all(comm: Communicator, finished: threading.Barrier) -> None:
    """A call that ends at all workers before one of them goes on: an error then cannot end it at another."""
    assert (comm.allreduce(np.ones(2, np.float32)) == len(HOSTS)).all()
    finished.wait()


def end(comm: Communicator, wait: Callable[[Communicator], object]) -> list[str]:
    """Return the errors of a call that the others leave out, and of two after it."""
    told = []
    for call in (wait, wait, lambda comm: comm.barrier()):
        with pytest.raises(AbortedError) as error:
            call(comm)
        told.append(str(error.value))
    return told


@pytest.mark.few(12)
@pytest.mark.parametrize("failure", ERRORS)
@pytest.mark.parametrize("wait", WAITS)
def test_an_error_at_one_worker_ends_the_calls_of_all(
    service: tuple[Path, Grants], failure: str, wait: str
) -> None:
    fail, error, says = ERRORS[failure]
    finished = threading.Barrier(len(HOSTS))

    def do(comm: Communicator) -> list[str]:
        comm.allgather(np.ones(2))
        sum_at_all(comm, finished)
        if comm.rank == 1:
            with pytest.raises(error):
                fail(comm)
        return end(comm, WAITS[wait])

    with communicators(service[0], HOSTS) as comms:
        said = everywhere(comms, do)
    for rank, told in enumerate(said):
        who = "this process," if rank == 1 else r"\(process [0-9]+ on h2\)"
        assert len(set(told)) == 1
        assert re.match(rf"rank 1,? {who} failed in call 3, {re.escape(says)}", told[0]), told[0]


@pytest.mark.parametrize("how", ["by ring", "while it changes to the ring"])
def test_an_error_is_passed_on_where_there_is_no_lease(how: str) -> None:
    finished = threading.Barrier(len(HOSTS))
    with network(HOSTS, lambda _: [], refuses=how == "by ring") as (_, grants, path):

        def do(comm: Communicator) -> list[str]:
            sum_at_all(comm, finished)
            if comm.rank == 1:
                if how != "by ring":
                    grants.revoke("job-1")
                with pytest.raises(ValueError, match="root must be"):
                    comm.reduce(np.ones(1, np.float32), 5)
            return end(comm, WAITS["in the network"])

        with communicators(path, HOSTS) as comms:
            said = everywhere(comms, do)
    assert all("failed in call 2, reduce: ValueError" in told for of_rank in said for told in of_rank)


@pytest.mark.parametrize("refuses", [False, True], ids=["with a lease", "by ring"])
def test_an_error_is_passed_on_by_a_worker_that_ends_at_once(refuses: bool) -> None:
    def do(comm: Communicator) -> list[str]:
        if comm.rank == 1:
            with pytest.raises(ValueError, match="root must be"):
                comm.reduce(np.ones(1, np.float32), 5)
            comm.close()
            return []
        return end(comm, WAITS["in the network"])

    with network(HOSTS, lambda _: [], refuses=refuses) as (_, _, path), communicators(path, HOSTS) as comms:
        first, _, third = everywhere(comms, do)
    assert all("failed in call 1, reduce: ValueError" in told for told in first + third)


def test_a_job_that_goes_on_without_workers_does_so_after_an_error(
    service: tuple[Path, Grants], capfd: pytest.CaptureFixture[str]
) -> None:
    """The worker at which it was leaves the group."""

    def do(comm: Communicator) -> list[float]:
        x = np.full(2, 10.0**comm.rank, np.float32)
        sums = [float(comm.allreduce(x)[0])]
        if comm.rank == 1:
            with pytest.raises(ValueError, match="is nan"):
                comm.allreduce(np.full(2, np.nan, np.float32))
            end(comm, WAITS["in the network"])
            return sums
        return [*sums, float(comm.allreduce(x)[0]), float(comm.allgather(x)[1, 0])]

    with communicators(service[0], HOSTS, least=2) as comms:
        first, second, third = everywhere(comms, do)
    assert first == third == pytest.approx([111.0, 101.0, 100.0])
    assert second == pytest.approx([111.0])
    assert re.search(
        r"fanin: rank 1 \(process [0-9]+ on h2\) failed in call 2, allreduce sum of 2 float32: ValueError: .*; 2 of 3 "
        "workers continue",
        capfd.readouterr().err,
    )


@pytest.mark.parametrize("failure", ERRORS)
def test_no_sum_is_wrong_where_no_service_passes_an_error_on(failure: str) -> None:
    fail, error, _ = ERRORS[failure]

    def do(comm: Communicator) -> None:
        x = np.full(2, comm.rank + 1, np.float32)
        assert (comm.allreduce(x) == 3).all()
        if comm.rank:
            with pytest.raises(error):
                fail(comm)
            end(comm, WAITS["in the network"])
        else:
            for step in range(3):
                with pytest.raises(CollectiveError):
                    comm.allreduce(x * 10 * step)

    with job(2, timeout=0.5) as (comms, _):
        everywhere(comms, do)


def test_ctrl_c_while_an_operation_is_waited_for_ends_the_calls() -> None:
    """Its arrays may be written to then, while it goes on."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    with job(2, timeout=0.5) as (comms, _):
        handle = comms[0].allreduce(np.ones(2, np.float32), async_op=True)
        handle._future.result = interrupt  # type: ignore[method-assign,assignment]
        with pytest.raises(KeyboardInterrupt):
            handle.wait()
        with pytest.raises(AbortedError, match=r"rank 0, this process, failed in call .*: KeyboardInterrupt"):
            comms[0].barrier()


def test_a_worker_without_a_communicator_makes_no_call_after_an_error(service: tuple[Path, Grants]) -> None:
    finished = threading.Barrier(len(HOSTS))

    def do(comm: Communicator) -> None:
        member: Any = comm._place
        assert (member.all_reduce(np.ones(2, np.float32)) == 3).all()
        finished.wait()
        if comm.rank == 1:
            with pytest.raises(ValueError, match="is nan"):
                member.all_reduce(np.full(2, np.nan, np.float32))
        with pytest.raises(
            AbortedError, match=r"rank 1.* failed in call 2, all-reduce of 2 float32: ValueError"
        ):
            member.all_reduce(np.ones(2, np.float32))

    with communicators(service[0], HOSTS) as comms:
        everywhere(comms, do)


def public_calls(of: type) -> list[str]:
    """The calls that a class has for its users: its functions, except those that are no calls of all workers."""
    return sorted(
        name
        for name, value in vars(of).items()
        if inspect.isfunction(value) and name[0] != "_" and name not in ("close", "join_group", "refuse")
    )


def test_every_call_of_a_communicator_ends_the_calls_if_it_fails() -> None:
    names = public_calls(Communicator)
    assert {"allreduce", "allreduce_init", "barrier", "broadcast", "carry_out", "regroup"} <= set(names)
    for name in names:
        with job(1) as ([comm], _):
            with pytest.raises(TypeError):
                getattr(comm, name)(nothing="that it takes")
            with pytest.raises(AbortedError, match=f"failed in call 1, {name}: TypeError"):
                getattr(comm, name)()


# -- calls that differ ---------------------------------------------------------------------------------------

DIFFERENT: dict[str, tuple[Callable[[Communicator], object], Callable[[Communicator], object], str, str]] = {
    "shapes": (
        lambda comm: comm.allreduce(np.ones(1000, np.float32)),
        lambda comm: comm.allreduce(np.ones(1001, np.float32)),
        "allreduce sum of 1,000 float32",
        "allreduce sum of 1,001 float32",
    ),
    "types": (
        lambda comm: comm.allreduce(np.ones(10, np.int32)),
        lambda comm: comm.allreduce(np.ones(10, np.uint32)),
        "allreduce sum of 10 int32",
        "allreduce sum of 10 uint32",
    ),
    "operations": (
        lambda comm: comm.allreduce(np.ones((2, 5), np.float32)),
        lambda comm: comm.reduce(np.ones((2, 5), np.float32)),
        "allreduce sum of float32 (2, 5)",
        "reduce sum to 0 of float32 (2, 5)",
    ),
    "roots": (
        lambda comm: comm.broadcast(np.ones(5)),
        lambda comm: comm.broadcast(np.ones(5), 1),
        "broadcast from 0 of 5 float64",
        "broadcast from 1 of 5 float64",
    ),
    "ways": (
        lambda comm: comm.broadcast(np.ones(5)),
        lambda comm: comm.allgather(np.ones(5)),
        "broadcast from 0 of 5 float64",
        "allgather of 5 float64",
    ),
    "ways, turned": (
        lambda comm: comm.allgather(np.ones(5)),
        lambda comm: comm.barrier(),
        "allgather of 5 float64",
        "barrier",
    ),
    "round the ring": (
        lambda comm: comm.allgather(np.ones(5)),
        lambda comm: comm.allgather(np.ones(6)),
        "allgather of 5 float64",
        "allgather of 6 float64",
    ),
    "what is empty": (
        lambda comm: comm.allreduce(np.ones(5, np.float32)),
        lambda comm: (comm.allreduce(np.ones(0, np.float32)), comm.barrier()),
        "allreduce sum of 5 float32",
        "barrier",
    ),
}


@pytest.mark.few(12)
@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("what", DIFFERENT)
@pytest.mark.parametrize("least", [None, 2])
def test_all_are_told_who_calls_something_else(
    service: tuple[Path, Grants], what: str, before: int, least: int | None
) -> None:
    ours, theirs, we, they = DIFFERENT[what]

    def do(comm: Communicator) -> str:
        for each in (ours, theirs) * before:
            each(comm)
        with pytest.raises(CollectiveError) as error:
            (theirs if comm.rank == 1 else ours)(comm)
        with pytest.raises(AbortedError):
            comm.barrier()
        return str(error.value)

    with communicators(service[0], HOSTS, least) as comms:
        said = everywhere(comms, do)
    assert len(set(said)) == 1
    assert re.fullmatch(
        rf"the workers make different calls\. rank 1 \(process [0-9]+ on h2\): {re.escape(they)}; "
        rf"the others: {re.escape(we)}",
        said[0],
    ), said[0]


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("least", [None, 2])
def test_all_are_told_who_refuses_a_call_that_the_others_make(
    service: tuple[Path, Grants], least: int | None, background: bool
) -> None:
    def do(comm: Communicator) -> str:
        comm.allreduce(np.ones(3, np.float32), async_op=background)
        if comm.rank == 1:
            comm.refuse(RefusedError("it is too small"), "allgather")
        with pytest.raises(AbortedError) as error:
            comm.allgather(np.ones(3, np.float32))
        return str(error.value)

    with communicators(service[0], HOSTS, least) as comms:
        said = everywhere(comms, do)
    refused = r"rank 1 \(process [0-9]+ on h2\) refused call 2, allgather: RefusedError: it is too small"
    assert all(re.fullmatch(refused, each) for each in said), said


def test_a_call_that_all_refuse_is_followed_by_others(service: tuple[Path, Grants]) -> None:
    def do(comm: Communicator) -> float:
        for _ in range(2):
            comm.refuse(RefusedError(f"{comm.rank}"), "allgather")
            comm.barrier()
        return float(comm.allreduce(np.ones(1, np.float32))[0])

    with communicators(service[0], HOSTS) as comms:
        assert everywhere(comms, do) == [len(HOSTS)] * len(HOSTS)


class Clock:
    """A replacement of the module `time`, whose clock moves only when a test moves it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (calling, communicating):
        monkeypatch.setattr(module, "time", found)
    return found


def timed(rate: float, seconds: float, clock: Clock, calls: Calls) -> None:
    """Make so many calls a second, each of which takes half of its time."""
    for _ in range(int(rate * seconds)):
        clock.now += 0.5 / rate
        calls.begin("sum")
        clock.now += 0.5 / rate
        calls.end()


def test_the_times_of_calls_are_sent_once_a_second(clock: Clock) -> None:
    said: list[Any] = []
    calls = Calls(said.append, 0, send_or_drop=said.append)
    timed(8, 3, clock, calls)
    sent = [message["times"]["calls"] for message in said]
    assert [len(each) for each in sent] == [8, 8, 8]
    assert sent[1][0] == {
        "number": 9,
        "what": "sum",
        "submitted": 1e9 + 1.0625,
        "waited": 1e9 + 1.0625,
        "began": 1e9 + 1.0625,
        "ended": 1e9 + 1.125,
    }


def test_a_call_that_needs_no_others_has_no_number_and_no_times(clock: Clock) -> None:
    said: list[Any] = []
    calls = Calls(said.append, 0, send_or_drop=said.append)
    for needs_others in (True, False):
        calls.begin("sum", needs_others=needs_others)
        clock.now += 1.0
        calls.end()
    assert [len(message["times"]["calls"]) for message in said] == [1, 0]


def test_workers_that_make_many_calls_send_the_times_of_the_same_few(clock: Clock) -> None:
    """Though each measures its own rate, and sends at another moment."""
    kept = []
    for rate in (900, 1100, 5000):
        said: list[Any] = []
        timed(rate, 60, clock, calls := Calls(said.append, 0, send_or_drop=said.append))
        assert calls.count == 60 * rate
        assert max(len(message["times"]["calls"]) for message in said) <= 128
        kept.append({call["number"] for message in said[2:] for call in message["times"]["calls"]})
    few, many, least = kept
    both = range(2000, 50_000)
    assert {n for n in many if n in both} <= {n for n in few if n in both}
    assert {n for n in least if n in both} <= {n for n in many if n in both}
    assert len({n for n in least if n in both}) > 200


def test_the_times_say_when_a_program_made_a_call_and_waited_for_it() -> None:
    """In the background: it made it before it began, and waited after that."""

    def work(comm: Communicator) -> list[dict[str, Any]]:
        said: list[Any] = []
        comm.calls._send_or_drop = said.append
        comm.calls._sent = inf  # nothing is sent before the last call, however long the others take
        handles = [comm.allreduce(np.ones(20_000, np.float32), async_op=True) for _ in range(3)]
        handles[-1].wait()
        comm.calls._sent = 0.0
        comm.barrier()
        [message] = said
        return list(message["times"]["calls"])

    with job(2) as (comms, _):
        for calls in everywhere(comms, work):
            *sums, barrier = calls
            assert [call["number"] for call in calls] == [1, 2, 3, 4]
            assert all(call["submitted"] <= call["began"] <= call["ended"] for call in calls)
            assert sums[2]["submitted"] <= sums[0]["ended"] <= sums[1]["began"]
            assert sums[2]["submitted"] <= sums[2]["waited"] <= sums[2]["ended"]
            assert barrier["submitted"] == barrier["waited"] == barrier["began"]
