"""Every operation among workers on the loopback, around a model switch and in a ring."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import pytest

from fanin.workers.collective import CollectiveError
from fanin.workers.communicator import Communicator
from fanin.workers.job.calls import AbortedError
from fanin.workers.job.membership import LeftError
from fanin.workers.values import exact
from tests.workers.loopback import SWITCH, WINDOW, everywhere, job

T = TypeVar("T")
N = 3


@pytest.fixture(scope="module")
def comms() -> Iterator[list[Communicator]]:
    with job(N, at=(SWITCH[0], SWITCH[1] + 1)) as (members, _):
        yield members


def of(rank: int, dtype: str, shape: tuple[int, ...] = (7, 50)) -> Any:
    """Numbers of either sign, the largest of their type among them if it is one of integers."""
    x = np.random.default_rng(rank).integers(-100, 100, shape)
    if np.dtype(dtype).kind in "iu":
        x.flat[0] = np.iinfo(dtype).max if np.dtype(dtype).kind == "i" or dtype != "uint64" else -1
    return x.astype(dtype)


def stacked(dtype: str, shape: tuple[int, ...] = (7, 50)) -> Any:
    return np.stack([of(rank, dtype, shape) for rank in range(N)])


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOATS = ["float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_sums(comms: list[Communicator], dtype: str) -> None:
    with np.errstate(over="ignore"):
        expected = stacked(dtype).sum(axis=0, dtype=dtype)
    for result in everywhere(comms, lambda comm: comm.allreduce(of(comm.rank, dtype))):
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        if dtype in ("float16", "float32"):
            np.testing.assert_allclose(result, expected, atol=1e-3)
        else:
            assert (result == expected).all()


def packets_sent_by(comm: Communicator) -> int:
    """So far, each counted once: on a busy machine some are retransmitted."""
    statistics = comm._place.statistics
    return statistics.datagrams_sent - statistics.retransmissions


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_sums_in_16_bits_have_half_the_packets_and_a_bound_of_their_own(
    comms: list[Communicator], dtype: str
) -> None:
    shape = (40, 1000)
    expected = stacked(dtype, shape).sum(axis=0, dtype="float64")
    for bits, packets in ((32, 157), (16, 79)):
        before = list(map(packets_sent_by, comms))
        results = everywhere(
            comms, lambda comm, bits=bits: comm.allreduce(of(comm.rank, dtype, shape), bits=bits)
        )
        sent = np.subtract(list(map(packets_sent_by, comms)), before)
        assert (sent - WINDOW == packets).all()
        assert all(result.tobytes() == results[0].tobytes() for result in results)
        assert results[0].dtype == dtype
        bound = N**2 / (2**bits - 2) * 128 + np.spacing(np.abs(expected).astype(dtype))
        assert (np.abs(results[0] - expected) <= bound).all()


def test_a_job_says_whether_float16_travels_in_16_bits_and_more_workers_than_its_precision_allows_do_not() -> (
    None
):
    x = np.ones(50_000, np.float16)
    for size, packets in ((4, 98), (5, 196)):
        with job(size, at=(SWITCH[0], SWITCH[1] + 2), half_bits=16) as (members, _):
            assert all((each == size).all() for each in everywhere(members, lambda comm: comm.allreduce(x)))
            assert {packets_sent_by(comm) - WINDOW for comm in members} == {packets}


def test_workers_whose_bits_differ_get_no_sum() -> None:
    def told(comm: Communicator) -> None:
        with pytest.raises(CollectiveError):
            comm.allreduce(np.ones(50_000, np.float32), bits=16 if comm.rank else 32)

    with job(2, timeout=0.5, at=(SWITCH[0], SWITCH[1] + 2)) as (members, _):
        everywhere(members, told)


@pytest.mark.parametrize("dtype", FLOATS)
def test_means(comms: list[Communicator], dtype: str) -> None:
    expected = stacked(dtype).mean(axis=0, dtype="float64")
    for result in everywhere(comms, lambda comm: comm.allreduce(of(comm.rank, dtype), "mean")):
        assert result.dtype == dtype
        np.testing.assert_allclose(result, expected, atol=0.05 if dtype == "float16" else 1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint64", "bool"])
def test_maxima_and_minima(comms: list[Communicator], dtype: str) -> None:
    assert all(
        (result == stacked(dtype).max(axis=0)).all()
        for result in everywhere(comms, lambda comm: comm.allreduce(of(comm.rank, dtype), "max"))
    )
    assert all(
        (result == stacked(dtype).min(axis=0)).all()
        for result in everywhere(comms, lambda comm: comm.allreduce(of(comm.rank, dtype), "min"))
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int16"])
def test_in_place(comms: list[Communicator], dtype: str) -> None:
    def do(comm: Communicator) -> Any:
        x = of(comm.rank, dtype)
        assert comm.allreduce(x, out=x) is x
        return x

    expected = stacked(dtype).sum(axis=0, dtype=dtype)
    for result in everywhere(comms, do):
        np.testing.assert_allclose(result, expected, atol=1e-3)


def test_a_communicator_is_printed_with_its_rank_its_size_and_its_job() -> None:
    with job(1) as ([comm], _):
        assert repr(comm) == "<fanin.Communicator: rank 0 of 1>"
        named = Communicator(comm._place, 1.0, job="train")
        assert str(named) == "<fanin.Communicator: rank 0 of 1, job train>"


def test_a_number_of_numpy_is_an_array_without_axes(comms: list[Communicator]) -> None:
    def do(comm: Communicator) -> tuple[Any, Any]:
        number, (again, whole) = (
            comm.allreduce(np.float32(comm.rank)),
            comm.allreduce([np.float64(1), np.int64(2)]),
        )
        assert number.shape == again.shape == ()
        return float(number), (float(again), int(whole))

    ranks = len(comms)
    assert everywhere(comms, do) == [(sum(range(ranks)), (ranks, 2 * ranks))] * ranks


def test_several_arrays_in_one_call_those_of_a_type_as_one_vector(comms: list[Communicator]) -> None:
    def do(comm: Communicator) -> tuple[list[Any], int]:
        xs = [of(comm.rank, "float32", (3, 4)), of(comm.rank, "int32"), of(comm.rank, "float32", (5,))]
        before = comm._place.statistics.all_reduces
        return comm.allreduce(xs), comm._place.statistics.all_reduces - before

    for results, calls in everywhere(comms, do):
        assert calls == 2
        for result, (dtype, shape) in zip(
            results, [("float32", (3, 4)), ("int32", (7, 50)), ("float32", (5,))], strict=True
        ):
            assert result.dtype == dtype
            np.testing.assert_allclose(result, stacked(dtype, shape).sum(axis=0, dtype=dtype), atol=1e-3)


def test_arrays_that_are_not_contiguous_and_such_without_elements(comms: list[Communicator]) -> None:
    def do(comm: Communicator) -> Any:
        turned = of(comm.rank, "int64").T
        empty = [comm.allreduce(np.empty((0, 3), dtype)).shape for dtype in ("float32", "int32", "float64")]
        assert empty == [(0, 3)] * 3
        assert comm.broadcast(np.empty(0)).shape == (0,)
        assert comm.allgather(np.empty((0, 2))).shape == (N, 0, 2)
        return comm.allreduce(turned)

    assert all((result == stacked("int64").sum(axis=0).T).all() for result in everywhere(comms, do))


@pytest.mark.parametrize("how", ["in place", "elsewhere", "read only", "with gaps", "turned", "two at once"])
def test_what_is_prepared_once_sums_what_is_in_its_arrays_each_time(
    comms: list[Communicator], how: str
) -> None:
    def do(comm: Communicator) -> None:
        memory = np.empty((6, 8), np.float32)
        x = {"with gaps": memory[::2, 0], "turned": memory.T}.get(how, memory)
        out = x if how == "in place" else np.empty(x.shape, np.float32)
        given = x
        if how == "read only":
            given = x.view()
            given.flags.writeable = False
        two = how == "two at once"
        request = comm.allreduce_init([given, given] if two else given, out=[out, out.copy()] if two else out)
        for call in range(3):
            memory[:] = np.arange(48).reshape(6, 8) + 100 * call
            expected = N * x
            results = comm.carry_out(request)
            result = results[0] if two else results
            assert result is out
            np.testing.assert_allclose(out, expected, rtol=1e-6)

    everywhere(comms, do)


def test_arrays_that_follow_each_other_in_one_memory(comms: list[Communicator]) -> None:
    """A prepared call is right for another array in the same place only if that is laid out alike."""

    def do(comm: Communicator) -> None:
        memory, elsewhere = np.empty(300, np.float32), np.empty(300, np.float32)
        seen: list[Any] = [
            memory.reshape(6, 50),
            memory,
            memory[:150],
            memory.reshape(50, 6).T,
            memory[::2],
            memory.view(np.int32),
            memory.reshape(6, 50),
            memory[:0],
        ]
        for x in seen * 2:
            for out in (x, elsewhere.view(x.dtype)[: x.size].reshape(x.shape)):
                memory[:] = elsewhere[:] = 0
                x[...] = 1 + comm.rank
                if not out.flags.c_contiguous:
                    continue
                assert comm.allreduce(x, out=out) is out
                assert (out == 6).all()
                assert np.count_nonzero(memory) == x.size
        memory.flags.writeable = False
        assert (comm.allreduce(memory, out=elsewhere) == N * memory).all()

    everywhere(comms, do)


@pytest.mark.parametrize(
    ("out", "says"),
    [
        (lambda x: x[:150], "must be of float32 and shape"),
        (lambda x: x.reshape(6, 50).T, "must be writable and C-contiguous"),
        (lambda x: np.broadcast_to(x, x.shape), "must be writable"),
    ],
)
def test_what_is_remembered_of_an_array_allows_nothing_wrong_in_its_place(
    out: Callable[[Any], Any], says: str
) -> None:
    with job(1) as ([comm], _):
        memory = np.ones(300, np.float32)
        comm.allreduce(memory, out=memory)
        wrong = out(memory)
        with pytest.raises(ValueError, match=says):
            comm.allreduce(wrong if wrong.ndim == 2 else memory, out=wrong)


@pytest.mark.parametrize("op", ["sum", "max"])
def test_the_result_of_reduce_is_at_the_root_alone(comms: list[Communicator], op: Any) -> None:
    def do(comm: Communicator) -> Any:
        x = of(comm.rank, "int32")
        kept = x.copy()
        result = comm.reduce(x, 1, op, out=x)
        assert comm.rank == 1 or (x == kept).all()
        return result

    first, second, third = everywhere(comms, do)
    assert first is None
    assert third is None
    combine = {"sum": np.add, "max": np.maximum}[op]
    assert (second == combine.reduce(stacked("int32"), axis=0, dtype="int32")).all()


@pytest.mark.parametrize("root", range(N))
def test_a_broadcast_is_the_same_to_the_bit(comms: list[Communicator], root: int) -> None:
    numbers = np.array([np.nan, -0.0, np.inf, 1e-45, 3.0, 1.0], np.float32)
    told = [numbers, np.array([True, False, True]), np.arange(500) - 250]

    def do(comm: Communicator) -> list[bytes]:
        xs = [x.copy() if comm.rank == root else np.zeros_like(x) for x in told]
        assert comm.broadcast(xs, root) is xs
        return [x.tobytes() for x in xs]

    assert everywhere(comms, do) == [[x.tobytes() for x in told]] * N


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "complex128"])
def test_allgather(comms: list[Communicator], dtype: str) -> None:
    for result in everywhere(comms, lambda comm: comm.allgather(of(comm.rank, dtype))):
        assert (result == stacked(dtype)).all()


@pytest.mark.parametrize(
    ("dtype", "op"), [("float32", "sum"), ("int16", "sum"), ("float16", "mean"), ("int64", "max")]
)
def test_reduce_scatter_gives_each_its_part(comms: list[Communicator], dtype: str, op: Any) -> None:
    shape = (2 * N, 300)
    whole = stacked(dtype, shape)
    with np.errstate(over="ignore"):
        expected = whole.sum(axis=0, dtype=dtype) if op == "sum" else getattr(whole, op)(axis=0)
    results = everywhere(comms, lambda comm: comm.reduce_scatter(of(comm.rank, dtype, shape), op))
    assert [result.shape for result in results] == [(2, 300)] * N
    bound = {"float16": 0.05, "float32": 1e-3}.get(dtype, 0)
    np.testing.assert_allclose(np.concatenate(results), expected, atol=bound)


def test_nobody_passes_a_barrier_before_all_have_come(comms: list[Communicator]) -> None:
    come: list[int] = []

    def do(comm: Communicator) -> int:
        come.append(comm.rank)
        comm.barrier()
        return len(come)

    assert everywhere(comms, do) == [N] * N


def test_operations_begun_are_carried_out_in_the_order_of_the_calls() -> None:
    def do(comm: Communicator) -> list[float]:
        x = np.full(1000, comm.rank + 1.0, np.float32)
        first = comm.allreduce(x, out=x, async_op=True)
        second = comm.allreduce(x, "max", out=x, async_op=True)
        third = comm.allreduce(x)  # not begun before the others are done
        assert first.done()
        assert second.done()
        assert first.wait() is second.wait() is x
        return [float(x[0]), float(third[0])]

    with job(2) as (comms, _):
        assert everywhere(comms, do) == [[3.0, 6.0]] * 2


@pytest.mark.parametrize("begin", [True, False])
def test_who_is_called_when_an_operation_has_ended_is_called_before_the_next_one_begins(begin: bool) -> None:
    with job(1) as ([comm], _):
        x, late = np.ones(3, np.float32), []
        begun = comm.allreduce(x, out=x, async_op=True)
        begun.add_done_callback(lambda _: x.fill(5))
        result = comm.allreduce(x, async_op=True).wait() if begin else comm.allreduce(x)
        assert result[0] == 5
        begun.add_done_callback(late.append)
        assert late == [begun]


@pytest.mark.parametrize("async_op", [True, False])
def test_what_is_begun_at_the_end_of_an_operation_is_carried_out_before_the_next(async_op: bool) -> None:
    """The end may come before or after the next one is begun; all workers must do the same."""
    begun = threading.Event()

    def do(comm: Communicator) -> tuple[threading.Thread, float, float]:
        x, found = np.full(1000, comm.rank + 1.0, np.float32), []

        def go_on(_: object) -> None:
            largest = comm.allreduce(x, "max", async_op=async_op)
            found.append((threading.current_thread(), float((largest.wait() if async_op else largest)[0])))

        assert comm.rank == 0 or begun.wait(20)
        first = comm.allreduce(x, out=x, async_op=True)
        if comm.rank:
            first.wait()
        first.add_done_callback(go_on)
        second = comm.allreduce(x, out=x, async_op=True)
        begun.set()
        second.wait()
        [(thread, largest)] = found
        return thread, largest, float(x[0])

    with job(2) as (comms, _):
        (background, *first), (foreground, *second) = everywhere(comms, do)
        assert first == second == [3.0, 6.0]
        assert background.name.startswith("fanin")
        assert not foreground.name.startswith("fanin")


def test_who_waits_for_an_operation_carries_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    by: list[threading.Thread] = []
    with job(1) as ([comm], _):
        add_up = comm._place.sum_in_network

        def noting(*arguments: Any) -> Any:
            by.append(threading.current_thread())
            return add_up(*arguments)

        monkeypatch.setattr(comm._place, "sum_in_network", noting)
        x = np.ones(3, np.float32)
        comm.allreduce(x, async_op=True).wait()
        comm.allreduce(x)
    assert [thread is threading.current_thread() for thread in by] == [False, True]


def test_what_goes_wrong_comes_out_of_wait() -> None:
    with job(1) as ([comm], _):
        begun = comm.allreduce(np.array([np.nan], np.float32), async_op=True)
        with pytest.raises(ValueError, match="element 0 is nan"):
            begun.wait()


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda comm: comm.allreduce([1.0, 2.0]), TypeError, "arrays are numpy's, not float"),
        (lambda comm: comm.allreduce(3), TypeError, "arrays are numpy's, not int"),
        (lambda comm: comm.allreduce(np.ones(2, ">f4")), TypeError, "byte order"),
        (
            lambda comm: comm.allreduce(np.ones(2), "product"),
            ValueError,
            "op must be one of sum, mean, max, min",
        ),
        (lambda comm: comm.allreduce(np.ones(2, int), "mean"), TypeError, "no mean of int64"),
        (lambda comm: comm.allreduce(np.ones(2, bool)), TypeError, "no sum of bool"),
        (
            lambda comm: comm.allreduce(np.ones(2), out=np.ones(3)),
            ValueError,
            "out must be of float64 and shape",
        ),
        (lambda comm: comm.allreduce([np.ones(2)], out=np.ones(2)), ValueError, "a list as long as x"),
        (lambda comm: comm.allreduce(np.ones(2), out=np.ones(4)[::2]), ValueError, "C-contiguous"),
        (lambda comm: comm.reduce(np.ones(2), 3), ValueError, "root must be a rank from 0 to 2, not 3"),
        (lambda comm: comm.broadcast(np.ones(2), -1), ValueError, "root must be a rank from 0 to 2, not -1"),
        (
            lambda comm: comm.broadcast(np.broadcast_to(1, 3), 1),
            ValueError,
            "the root, 1: it must be writable",
        ),
        (lambda comm: comm.broadcast(np.array([{}])), TypeError, "not of object"),
        (lambda comm: comm.allgather(np.array([{}])), TypeError, "not of object"),
        (lambda comm: comm.reduce_scatter(np.ones(4)), ValueError, r"among 3 workers; .* shape \(4,\)"),
        (lambda comm: comm.reduce_scatter(np.ones(())), ValueError, "among 3 workers"),
    ],
)
def test_arguments_are_checked_before_anything_is_sent(
    wrong: Callable[[Communicator], object], error: type[Exception], says: str
) -> None:
    with job(N) as (comms, _):
        with pytest.raises(error, match=says):
            wrong(comms[0])
        assert comms[0]._place.statistics.bytes_sent == 0
        assert comms[0]._reducer._connected is None


@pytest.mark.parametrize(
    ("mine", "yours"),
    [
        (lambda comm, x: comm.allreduce(x), lambda comm, x: comm.allreduce(x, "mean")),
        (lambda comm, x: comm.allreduce(x), lambda comm, x: comm.broadcast(x[:50].view(np.uint8))),
        (lambda comm, x: comm.broadcast(x, 0), lambda comm, x: comm.broadcast(x, 1)),
        (lambda comm, x: comm.allreduce(x.view(np.int32)), lambda comm, x: comm.allreduce(x.view(np.uint32))),
        (lambda comm, x: comm.allreduce(x, "max"), lambda comm, x: comm.allreduce(x, "min")),
        (lambda comm, x: comm.allreduce(x), lambda comm, x: comm.allreduce(x, "max")),  # network, and ring
        (lambda comm, x: comm.allgather(x), lambda comm, x: comm.allgather(x.view(np.int32))),
    ],
)
@pytest.mark.parametrize("before", [0, 2])
def test_calls_that_differ_are_told_and_never_give_a_result(
    mine: Callable[[Communicator, Any], Any], yours: Callable[[Communicator, Any], Any], before: int
) -> None:
    """Also when both have been called before, so that their values are in the first packets."""
    with job(2, timeout=1.0) as (comms, _):
        x = np.ones(100, np.float32)

        def do(comm: Communicator) -> str:
            for each in (mine, yours) * before:
                each(comm, x.copy())
            with pytest.raises(CollectiveError) as told:
                (mine, yours)[comm.rank](comm, x)
            with pytest.raises(AbortedError, match=f"^rank {comm.rank}, this process, failed in call "):
                comm.barrier()
            return str(told.value)

        everywhere(comms, do)


def test_what_differs_is_said() -> None:
    with job(2) as (comms, _):

        def do(comm: Communicator) -> str:
            with pytest.raises(CollectiveError) as told:
                comm.allreduce(np.ones(100, np.float32), ("sum", "mean")[comm.rank])
            return str(told.value)

        assert [
            f"allreduce {op} of 100 float32 here, something else on others" in said
            for op, said in zip(("sum", "mean"), everywhere(comms, do), strict=True)
        ] == [True, True]


def test_who_has_left_is_named_where_a_connection_ends() -> None:
    with job(2) as (comms, gone):

        def do(comm: Communicator) -> None:
            comm.allreduce(np.ones(3))
            if comm.rank:
                gone.append("rank 1 (process 7 on h2)")
                comm.close()
            else:
                with pytest.raises(LeftError, match=r"^rank 1 \(process 7 on h2\) ended: ring rank 0 of 2"):
                    comm.allreduce(np.ones(3))

        everywhere(comms, do)


def test_a_ring_is_not_waited_for_if_somebody_has_left() -> None:
    with job(3) as (comms, gone):
        gone.append("rank 2 (process 7 on h3)")
        for comm in comms[:2]:  # the one listens, the other connects
            with pytest.raises(LeftError, match=r"^rank 2 \(process 7 on h3\) ended while rank [01] waits"):
                comm.allreduce(np.ones(3), "max")


def test_with_more_workers_than_sums_are_exact_for_integers_go_round_the_ring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exact, "MAX_WORKERS", 1)
    with job(2) as (comms, _):

        def do(comm: Communicator) -> tuple[int, list[int]]:
            summed = comm.allreduce(np.array([1, -5]) * (comm.rank + 1))
            return comm._place.statistics.all_reduces, summed.tolist()

        assert everywhere(comms, do) == [(0, [3, -15])] * 2


def test_without_the_ring_no_port_is_opened() -> None:
    with job(1) as ([comm], _):
        comm.allreduce(np.ones(3, np.float32))
        socket.create_server(comm._place.addresses[0]).close()
        assert comm._reducer._connected is None
