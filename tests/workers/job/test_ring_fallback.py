"""Jobs that lose their lease: whatever the moment, all workers get the same sums, and go on by ring."""

from __future__ import annotations

import gc
import os
import queue
import random
import threading
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

from fanin.workers.collective import CollectiveError
from fanin.workers.communicator import Bits, Communicator, NonFinite
from fanin.workers.engines.buffers import Buffers
from fanin.workers.job.calls import Calls
from fanin.workers.job.membership import Member, Outsider
from fanin.workers.job.ring_fallback import LeaseLostError
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.udp import InNetworkConfig
from tests.workers.loopback import SWITCH, WINDOW, everywhere, free_address, free_tcp_addresses, switch

N = 3
WHY = "its lease was revoked"


class Service:
    """The part of a job service for a job that loses its lease; one end for each rank."""

    def __init__(self) -> None:
        self.ends = [End(self) for _ in range(N)]
        self.said: dict[End, Any] = {}
        self._lock = threading.Lock()

    def revoke(self, ranks: range = range(N)) -> None:
        for rank in ranks:
            self.ends[rank].news.put({"revoked": WHY})

    def hear(self, end: End, finished: Any) -> None:
        with self._lock:
            self.said[end] = finished
            if len(self.said) == N:
                for each in self.ends:
                    each.news.put({"carry_on": [self.said[other] for other in self.ends]})


class End:
    """There is nothing to wait for: what there is to hear is found when a timer has expired.

    after: how often a worker looks before it hears the first news."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.news: queue.Queue[Any] = queue.Queue()
        self.after = 0

    def receive(self, timeout: float) -> Any:
        if self.after:
            self.after -= 1
            return None
        try:
            return self.news.get(timeout=timeout) if timeout else self.news.get_nowait()
        except queue.Empty:
            return None

    def send(self, message: Any) -> None:
        if "finished" in message:
            self._service.hear(self, message["finished"])

    def send_or_drop(self, message: Any) -> None:
        """A report, which nobody reads."""

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


@contextmanager
def job(
    deaf: Container[int] = (), *, ring: bool = True, propagate: bool = False
) -> Iterator[tuple[list[Communicator], Service]]:
    here = [free_address() for _ in range(N)]
    addresses = free_tcp_addresses(N)
    service = Service()
    recovery = Recovery(initial_rto=0.05, min_rto=0.01, max_rto=0.1, give_up=20.0)
    with switch(here, deaf=deaf), ExitStack() as members:
        comms = []
        for rank in range(N):
            end: Any = service.ends[rank]
            config = InNetworkConfig(
                Lease(5, rank, N, WINDOW),
                here[rank],
                SWITCH,
                recovery=recovery,
                non_finite="propagate" if propagate else "raise",
            )
            member = Member(config, addresses, end, ring=ring)
            non_finite: NonFinite = "propagate" if propagate else "refuse"
            comms.append(members.enter_context(Communicator(member, 20.0, non_finite=non_finite)))
        yield comms, service


def numbers(rank: int, call: int, size: int = 5000) -> Any:
    return np.random.default_rng(100 * call + rank).standard_normal(size).astype(np.float32)


def check(results: list[Any], call: int, size: int = 5000, bits: Bits | None = None) -> None:
    """All alike to the bit, and a sum."""
    expected = np.sum([numbers(rank, call, size) for rank in range(N)], axis=0, dtype=np.float64)
    np.testing.assert_allclose(results[0], expected, atol=1e-5 if bits is None else 4 * N**2 / 65534 * 8)
    for result in results[1:]:
        assert result.tobytes() == results[0].tobytes()


def test_between_calls_and_it_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    deaf: set[int] = set()
    with job(deaf) as (comms, service):
        check(everywhere(comms, lambda comm: comm.allreduce(numbers(comm.rank, 0))), 0)
        deaf |= {*range(N)}
        service.revoke()
        for call in (1, 2):
            check(everywhere(comms, lambda comm, call=call: comm.allreduce(numbers(comm.rank, call))), call)
        assert [comm._place.statistics.all_reduces for comm in comms] == [1] * N
    assert capsys.readouterr().err == f"fanin: {WHY}; the hosts sum using the ring\n"


def test_all_other_operations_go_on_too() -> None:
    with job(range(N)) as (comms, service):
        service.revoke()

        def do(comm: Communicator) -> list[Any]:
            comm.barrier()
            sent = comm.broadcast(np.array([comm.rank, 300]), root=1)
            exact = comm.allreduce(np.array([1, 2**40, -5]) * (comm.rank + 1))
            half = comm.allreduce(np.full(3, comm.rank, np.float16), "mean")
            nothing = comm.allreduce(np.empty(0, np.float32))
            return [each.tolist() for each in (sent, exact, half, nothing, comm.reduce_scatter(np.ones(3)))]

        assert everywhere(comms, do) == [[[1, 300], [6, 6 * 2**40, -30], [1, 1, 1], [], [3]]] * N


def test_a_call_that_is_refused_shifts_no_sum_by_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if nothing ends the calls after it."""
    monkeypatch.setattr(Calls, "abort", lambda *_: None)
    with job(range(N)) as (comms, service):
        service.revoke()
        everywhere(comms, lambda comm: comm.allreduce(numbers(comm.rank, 0)))

        def do(comm: Communicator) -> None:
            if comm.rank == 1:
                with pytest.raises(ValueError, match="nan"):
                    comm.allreduce(np.full(5000, np.nan, np.float32))
            with pytest.raises(CollectiveError):
                comm.allreduce(numbers(comm.rank, 1))

        everywhere(comms, do)


def test_while_a_worker_has_not_begun_the_call_is_done_again_from_what_was_given() -> None:
    with job() as (comms, service), ThreadPoolExecutor(N) as pool:
        given = [numbers(rank, 0) for rank in range(N)]
        early = [pool.submit(comm.allreduce, x, out=x) for comm, x in zip(comms[:2], given[:2], strict=True)]
        service.revoke()
        # The switch goes on here. Who got the sum first would have no next call in which to hear of this.
        while len(service.said) < len(early):
            os.sched_yield()
        assert not any(each.done() for each in early)
        late = pool.submit(comms[2].allreduce, given[2], out=given[2])
        check([each.result() for each in (*early, late)], 0)


@pytest.mark.parametrize("after", ["a sum in the network", "a maximum by ring", "a larger sum"])
def test_those_who_have_no_result_get_that_of_one_who_has(after: str) -> None:
    """Even if it has gone on to what others are not ready for, and has changed its arrays."""
    deaf: set[int] = set()
    with job(deaf) as (comms, service), ThreadPoolExecutor(N) as pool:
        # Of a length that has been summed before, and within a window: those who hear nothing send all of it.
        check(everywhere(comms, lambda comm: comm.allreduce(numbers(comm.rank, 1, 1000))), 1, 1000)
        deaf |= {1, 2}

        def do(comm: Communicator) -> tuple[Any, Any]:
            x = numbers(comm.rank, 1, 1000)
            comm.allreduce(x, out=x)
            kept = x.copy()
            x[:] = np.nan
            if comm.rank == 0:
                service.revoke()
            if after == "a maximum by ring":
                return kept, comm.allreduce(np.array([comm.rank]), "max")
            size = 50_000 if after == "a larger sum" else 1000
            return kept, comm.allreduce(numbers(comm.rank, 2, size))

        results, later = zip(*pool.map(do, comms), strict=True)
        check(list(results), 1, 1000)
        if after == "a maximum by ring":
            assert [each.tolist() for each in later] == [[2]] * N
        else:
            check(list(later), 2, len(later[0]))


class Lossy:
    """Any port, one time in three."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)

    def __contains__(self, port: object) -> bool:
        return self._draw.random() < 1 / 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_whenever_each_hears_of_it(seed: int) -> None:
    """With losses of results, which have workers look, and be behind; some of the sums are longer than the window."""
    draw = np.random.default_rng(seed)
    calls, sizes = 12, draw.integers(1, 8000, 12).tolist()
    bits: Bits | None = 16 if seed % 2 else None
    with job(Lossy(seed)) as (comms, service):
        after = int(draw.integers(0, 15))
        for end in service.ends:
            end.after = after + int(draw.integers(0, 4))
        service.revoke()

        def do(comm: Communicator) -> list[Any]:
            xs = [numbers(comm.rank, call, sizes[call]) for call in range(calls)]
            return [comm.allreduce(x, out=x if call % 2 else None, bits=bits) for call, x in enumerate(xs)]

        for call, results in enumerate(zip(*everywhere(comms, do), strict=True)):
            check(list(results), call, sizes[call], bits)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_whenever_each_hears_of_it_in_operations_whose_result_not_all_have(seed: int) -> None:
    """Even if those who have theirs change their arrays at once."""
    draw = np.random.default_rng(seed)
    calls, sizes = 12, draw.integers(1, 4000, 12).tolist()
    kinds = [("scatter", "gather", "broadcast", "sum")[int(draw.integers(0, 4))] for _ in range(calls)]

    def do(comm: Communicator) -> list[Any]:
        results = []
        for call, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
            x = numbers(comm.rank, call, N * size).reshape(N, size)
            if kind == "scatter":
                result = comm.reduce_scatter(x)
            elif kind == "gather":
                result = comm.allgather(x)
            elif kind == "broadcast":
                result = comm.broadcast(x, root=call % N).copy()
            else:
                result = comm.allreduce(x)
            results.append(result.copy())
            x[:] = result[:] = np.nan
        return results

    with job(Lossy(seed)) as (comms, service):
        after = int(draw.integers(0, 25))
        for end in service.ends:
            end.after = after + int(draw.integers(0, 4))
        service.revoke()
        of_ranks = everywhere(comms, do)
    for call, (kind, size) in enumerate(zip(kinds, sizes, strict=True)):
        given = np.stack([numbers(rank, call, N * size).reshape(N, size) for rank in range(N)])
        results = [of_rank[call] for of_rank in of_ranks]
        if kind == "scatter":
            np.testing.assert_allclose(np.concatenate(results), given.sum(axis=0, dtype="f8"), atol=1e-5)
        elif kind == "sum":
            np.testing.assert_allclose(results[0], given.sum(axis=0, dtype="f8"), atol=1e-5)
        else:
            expected = given if kind == "gather" else given[call % N]
            assert all(result.tobytes() == expected.tobytes() for result in results)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_not_finite_comes_out_where_it_went_in(seed: int) -> None:
    """At all workers alike. Where one got a long sum from another one, there may be more NaN in the blocks at fault."""
    draw = np.random.default_rng(seed)
    calls, sizes = 12, draw.integers(1, 8000, 12).tolist()

    def given(rank: int, call: int) -> Any:
        x = numbers(rank, call, sizes[call])
        x[(call + 1) * 7919 % len(x)] = [1.0, np.inf, np.nan][rank if call % 3 else 0]
        return x

    with job(Lossy(seed), propagate=True) as (comms, service):
        after = int(draw.integers(0, 15))
        for end in service.ends:
            end.after = after + int(draw.integers(0, 4))
        service.revoke()

        def do(comm: Communicator) -> list[Any]:
            xs = [given(comm.rank, call) for call in range(calls)]
            return [comm.allreduce(x, out=x if call % 2 else None) for call, x in enumerate(xs)]

        for call, results in enumerate(zip(*everywhere(comms, do), strict=True)):
            expected = np.sum([given(rank, call) for rank in range(N)], axis=0)
            assert all(result.tobytes() == results[0].tobytes() for result in results)
            wrong = ~np.isclose(results[0], expected, atol=1e-5, equal_nan=True)
            assert np.isnan(results[0][wrong]).all()
            if sizes[call] <= WINDOW * 256 or not call % 2:
                assert not wrong.any()


class DeafAfter:
    """These ports, once so many packets have reached them."""

    def __init__(self, count: int, ports: Container[int]) -> None:
        self._left = count
        self._ports = ports

    def __contains__(self, port: int) -> bool:
        self._left -= port in self._ports
        return port in self._ports and self._left < 0


BLOCKS = 31
LONG = (BLOCKS - 1) * 256 + 17
PACKETS = BLOCKS + WINDOW  # of one such sum, to each
MOMENTS = [
    *((range(N), after) for after in (0, WINDOW, *range(3 * WINDOW, N * PACKETS, 13))),
    *((range(N), after) for after in range(N * PACKETS - 2, N * PACKETS + 3)),
    *(([2], after) for after in (*range(WINDOW, BLOCKS, 5), BLOCKS - 1, BLOCKS, PACKETS - 1)),
]


@pytest.mark.few(14)
@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("bits", [None, 16])
@pytest.mark.parametrize(("ports", "after"), MOMENTS)
def test_a_long_sum_goes_on_from_what_is_summed_wherever_that_is(
    ports: Container[int], after: int, bits: Bits | None
) -> None:
    """In place at some, and each with another part of it, or all but that one lacks up to the last window."""
    long = 2 * LONG if bits else LONG  # as many blocks
    with job(DeafAfter(after, ports)) as (comms, service), ThreadPoolExecutor(N) as pool:

        def do(comm: Communicator) -> tuple[Any, Any]:
            x = numbers(comm.rank, 0, long)
            result = comm.allreduce(x, out=x if comm.rank else None, bits=bits)
            kept = result.copy()
            result[:] = np.nan
            return kept, comm.allreduce(numbers(comm.rank, 1, long))

        done = [pool.submit(do, comm) for comm in comms]
        service.revoke()
        results, later = zip(*(each.result() for each in done), strict=True)
        check(list(results), 0, long, bits)
        check(list(later), 1, long)


def test_what_is_heard_in_the_last_call_leaves_nothing_open() -> None:
    """A worker that waits for others, in a maximum by ring, hears that the lease is lost; no sum comes any more."""
    with job() as (comms, service), ThreadPoolExecutor(N) as pool:
        early = [pool.submit(comm.allreduce, np.array([comm.rank]), "max") for comm in comms[:2]]
        service.revoke()
        while len(service.said) < 2:
            assert not early[0].done()
        early.append(pool.submit(comms[2].allreduce, np.array([2]), "max"))
        assert [each.result().tolist() for each in early] == [[2]] * N
    gc.collect()  # a socket that is left open fails the test


def test_a_job_that_insists_on_its_lease_fails_without_it() -> None:
    with job(ring=False) as (comms, service):
        service.revoke()
        for comm in comms:
            with pytest.raises(CollectiveError, match=f"the job has lost its lease: {WHY}"):
                comm.allreduce(np.ones(3, np.float32))


def test_a_refused_job_goes_by_ring_from_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    addresses = free_tcp_addresses(2)
    with ExitStack() as members:
        comms = []
        for rank in range(2):
            end: Any = End(Service())
            place = Outsider(rank, addresses, "no lease: leaf1 has 64 of 1,024 slots free", end)
            comms.append(members.enter_context(Communicator(place, 20.0)))
        assert [each.tolist() for each in everywhere(comms, lambda c: c.allreduce(np.ones(2, "f4")))] == [
            [2, 2]
        ] * 2
        with pytest.raises(LeaseLostError):
            place.sum_in_network(Buffers(np.ones(2, np.float32), np.empty(2, np.float32)), "")
    assert capsys.readouterr().err == (
        "fanin: no lease: leaf1 has 64 of 1,024 slots free; the hosts sum using the ring\n"
    )
