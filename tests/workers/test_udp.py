"""The protocol on real sockets: loopback workers around a model switch, with segmentation offload and without."""

import errno
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.workers import wire
from fanin.workers.collective import CollectiveError, StallError
from fanin.workers.congestion import ECN_CAPABLE, ECN_CONGESTED
from fanin.workers.engines import native
from fanin.workers.engines.engine import Engine
from fanin.workers.engines.native import NativeEngine
from fanin.workers.engines.reference import NumpyEngine
from fanin.workers.lease import Lease
from fanin.workers.protocol import LeaseExhaustedError, MismatchError, SaturationError, Worker
from fanin.workers.recovery import Recovery
from fanin.workers.udp import InNetworkAllReduce, InNetworkConfig, UdpSocket
from tests.workers.faulty_network import exact_sum
from tests.workers.loopback import SWITCH, WINDOW, free_address, switch

SO_NO_CHECK = 11  # asm-generic/socket.h


def sum_on_all(
    workers: list[tuple[str, int]], arrays: list[NDArray[np.float32]], *, offload: bool, values: int = 256
) -> tuple[list[NDArray[np.float32]], list[InNetworkAllReduce]]:
    def run(rank: int) -> tuple[NDArray[np.float32], InNetworkAllReduce]:
        lease = Lease(id=5, rank=rank, workers=len(workers), window=WINDOW, values=values)
        config = InNetworkConfig(
            lease,
            workers[rank],
            SWITCH,
            segments=10,
            offload=offload,
            recovery=Recovery(initial_rto=0.2, min_rto=0.05),
        )
        with InNetworkAllReduce(config) as collective:
            collective.all_reduce(arrays[rank])
            return collective.all_reduce(arrays[rank]), collective

    with ThreadPoolExecutor(len(workers)) as pool:
        results, collectives = zip(*pool.map(run, range(len(workers))), strict=True)
    return list(results), list(collectives)


@pytest.mark.usefixtures("passes")
def test_where_the_kernel_refuses_to_segment_nothing_is_lost() -> None:
    """It does for sockets without checksums that do not say so."""
    here = free_address()
    patient = Recovery(initial_rto=10, min_rto=10, max_rto=10)  # longer than a busy machine delays anybody
    lease = Lease(id=5, rank=0, workers=1, window=WINDOW)
    config = InNetworkConfig(lease, here, SWITCH, segments=10, recovery=patient)
    array = np.arange(10_000, dtype=np.float32)
    with switch([here]), InNetworkAllReduce(config) as collective:
        with socket.socket(fileno=os.dup(collective.socket.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        result = collective.all_reduce(array)
    np.testing.assert_array_equal(result, exact_sum([array], values=256))
    assert not collective.socket.offload
    assert collective.statistics.retransmissions == 0


@pytest.mark.usefixtures("passes")
def test_without_checksums_each_datagram_goes_alone() -> None:
    here = free_address()
    lease = Lease(id=5, rank=0, workers=1, window=WINDOW)
    array = np.arange(10_000, dtype=np.float32)
    with (
        switch([here]),
        InNetworkAllReduce(InNetworkConfig(lease, here, SWITCH, checksums=False)) as collective,
    ):
        assert not collective.socket.offload
        with socket.socket(fileno=os.dup(collective.socket.fileno())) as same:
            assert same.getsockopt(socket.SOL_SOCKET, SO_NO_CHECK) == 1
        np.testing.assert_array_equal(collective.all_reduce(array), exact_sum([array], values=256))


@pytest.mark.slow
@pytest.mark.parametrize("offload", [True, False])
@pytest.mark.parametrize("drop_every", [0, 50])
def test_sums_over_sockets_are_exact(passes: str, offload: bool, drop_every: int) -> None:
    workers = [free_address() for _ in range(3)]
    random = np.random.default_rng(1)
    arrays = [random.standard_normal((100, 173)).astype(np.float32) for _ in workers]
    expected = exact_sum(arrays, values=256)
    with switch(workers, drop_every):
        results, collectives = sum_on_all(workers, arrays, offload=offload)
    exact = np.sum(np.array(arrays, np.float64), axis=0)
    for result, collective in zip(results, collectives, strict=True):
        np.testing.assert_array_equal(result, expected)
        assert (np.abs(result - exact) <= collective.worker.error_bound().reshape(exact.shape)).all()
        assert collective.statistics.all_reduces == 2
        assert (collective.statistics.retransmissions > 0) or not drop_every
        assert isinstance(collective.worker._engine, NativeEngine) == (passes == "C")
        received = collective.statistics.datagrams_received
        assert received == collective.statistics.accepted + collective.statistics.ignored.total()
        assert collective.statistics.bytes_received > 4 * arrays[0].size * 2


def connected_pair(segments: int = 10, offload: bool = True) -> tuple[UdpSocket, UdpSocket]:
    here, there = free_address(), free_address()
    return (
        UdpSocket(here, there, segments=segments, offload=offload),
        UdpSocket(there, here, segments=segments, offload=offload),
    )


def collect(receiver: UdpSocket, count: int) -> list[bytes]:
    rows: list[bytes] = []
    while len(rows) < count:
        batches = receiver.receive(5.0)
        assert batches, f"{len(rows)} of {count} datagrams arrived"
        rows += [row.tobytes() for batch in batches for row in batch]
    return rows


@pytest.mark.parametrize("sender_offloads", [True, False])
@pytest.mark.parametrize("receiver_offloads", [True, False])
def test_batches_arrive_datagram_by_datagram_in_order(sender_offloads: bool, receiver_offloads: bool) -> None:
    here, there = free_address(), free_address()
    sender = UdpSocket(here, there, segments=10, offload=sender_offloads)
    receiver = UdpSocket(there, here, segments=10, offload=receiver_offloads)
    batches = [
        np.random.default_rng(size).integers(0, 256, (count, size), np.uint8)
        for count, size in ((25, 270), (1, 1038), (25, 1038), (3, 270))
    ]
    try:
        for batch in batches:
            sender.send(batch)
        assert collect(receiver, 54) == [row.tobytes() for batch in batches for row in batch]
    finally:
        sender.close()
        receiver.close()


def test_a_device_without_offload_is_sent_to_datagram_by_datagram(monkeypatch: pytest.MonkeyPatch) -> None:
    sender, receiver = connected_pair()
    refused = 0

    def without_offload(self: UdpSocket, message: NDArray[np.uint8]) -> None:
        nonlocal refused
        if message.ndim == 2:  # a whole batch at once
            refused += 1
            raise OSError(errno.EIO, "no checksum offload")
        self._socket.send(message.data)

    monkeypatch.setattr(UdpSocket, "_send", without_offload)
    batch = np.arange(5 * 270, dtype=np.uint8).reshape(5, 270)
    try:
        sender.send(batch)
        sender.send(batch)
        assert collect(receiver, 10) == [row.tobytes() for row in batch] * 2
    finally:
        sender.close()
        receiver.close()
    assert refused == 1
    assert not sender.offload


def test_a_datagram_larger_than_the_mtu_is_an_error_that_names_the_fix(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Narrow:
        def send(self, message: memoryview) -> int:
            raise OSError(errno.EMSGSIZE if message.ndim == 1 else errno.EINVAL, "as the kernel says it")

        def setsockopt(self, *arguments: int) -> None:
            pass

    sender, receiver = connected_pair()
    whole = sender._socket
    monkeypatch.setattr(sender, "_socket", Narrow())
    with pytest.raises(OSError, match="1038 bytes does not fit the network device's MTU: raise it to 1066"):
        sender.send(np.zeros((3, 1038), np.uint8))
    whole.close()
    receiver.close()


def test_where_little_has_arrived_patience_takes_what_comes_next_in_the_same_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sender, receiver = connected_pair()
    waits = []

    def more(seconds: float) -> None:
        waits.append(seconds)
        sender.send(np.ones((2, 270), np.uint8))

    monkeypatch.setattr(time, "sleep", more)
    try:
        sender.send(np.zeros((1, 270), np.uint8))
        (batch,) = receiver.receive(5.0, patience=0.25)
        assert list(batch[:, 0]) == [0, 1, 1]
        sender.send(np.zeros((20, 1038), np.uint8))
        receiver.receive(5.0, patience=0.25)
    finally:
        sender.close()
        receiver.close()
    assert waits == [0.25]  # 20 KB were enough


@pytest.mark.slow
@pytest.mark.parametrize(("patience", "answers"), [(0.001, [2 * 1038]), (0.0, [1038, 1038])])
def test_with_patience_c_answers_two_results_together_and_without_one_by_one(
    patience: float, answers: list[int]
) -> None:
    if native.library() is None:
        pytest.skip("no C compiler")
    here, there = connected_pair()
    here.link.shortest_patience, here.link.longest_patience = 0.0001, patience
    worker = Worker(Lease(id=5, rank=0, workers=1, window=2), engine=NativeEngine)
    worker._state.timers.rtt.sample(1.0, 1.0)
    worker.start(np.ones(512, np.float32), time.monotonic())
    (announced,) = worker.datagrams_to_send(time.monotonic())
    results = announced.copy()
    results[:, 0] = wire.kind(wire.RESULT, 64)
    try:
        there.send(results[:1])
        there.send(results[1:])
        while worker.statistics.accepted < 2:
            worker.exchange(here)
        assert [len(there._socket.recv(1 << 16)) for _ in answers] == answers
    finally:
        here.close()
        there.close()
    assert worker.statistics.datagrams_sent == 2 + 2


def answered_worker(make: type[Engine], there: UdpSocket, began: float) -> Worker:
    """All that it has sent, at `began` (seconds), has been answered; the results wait in the socket."""
    if make is NativeEngine and native.library() is None:
        pytest.skip("no C compiler")
    worker = Worker(Lease(id=5, rank=0, workers=1, window=2), engine=make)
    worker.start(np.ones(1024, np.float32), began)
    (announced,) = worker.datagrams_to_send(began)
    results = announced.copy()
    results[:, 0] = wire.kind(wire.RESULT, 64)
    there.send(results)
    return worker


@pytest.mark.parametrize("make", [NumpyEngine, NativeEngine])
def test_who_was_kept_from_running_looks_at_what_has_come_before_sending_again(make: type[Engine]) -> None:
    here, there = connected_pair()
    now = time.monotonic()
    worker = answered_worker(make, there, began=now - 5)  # long after all timers
    worker.exchange(here, now)
    assert worker.statistics.accepted == 2
    worker.datagrams_to_send(here.link.looked)
    assert worker.statistics.retransmissions == 0
    here.close()
    there.close()


@pytest.mark.parametrize("make", [NumpyEngine, NativeEngine])
@pytest.mark.parametrize("offload", [True, False])
@pytest.mark.parametrize(("ecn", "window"), [(ECN_CAPABLE, 2), (ECN_CONGESTED, 1)])
def test_marks_on_what_a_socket_receives_make_the_window_smaller(
    make: type[Engine], offload: bool, ecn: int, window: int
) -> None:
    here, there = connected_pair(offload=offload)
    there._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ecn)
    now = time.monotonic()
    worker = answered_worker(make, there, began=now)
    worker.exchange(here, now)
    while worker.statistics.accepted < 2:
        worker.exchange(here, time.monotonic())
    assert worker.statistics.congestion_window == window
    here.close()
    there.close()


def test_a_socket_sends_what_may_be_marked() -> None:
    here, there = connected_pair()
    assert here._socket.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == ECN_CAPABLE
    here.close()
    there.close()


def test_nothing_to_receive_is_an_empty_list_after_the_timeout() -> None:
    here, there = connected_pair()
    assert here.receive(0.0) == []
    assert here.receive(0.001) == []
    here.close()
    there.close()


@pytest.mark.usefixtures("passes")
def test_a_switch_that_is_not_there_yet_is_waited_for() -> None:
    """ICMP port unreachable counts as loss."""
    workers = [free_address()]
    x = np.arange(300, dtype=np.float32)
    lease = Lease(id=5, rank=0, workers=1, window=WINDOW)
    with (
        InNetworkAllReduce(InNetworkConfig(lease, workers[0], SWITCH)) as collective,
        ThreadPoolExecutor(1) as pool,
    ):
        started = threading.Event()
        send = collective.socket.send

        def first_send(datagrams: NDArray[np.uint8]) -> None:
            send(datagrams)
            started.set()

        collective.socket.send = first_send  # type: ignore[method-assign]
        result = pool.submit(collective.all_reduce, x)
        assert started.wait(10)
        with switch(workers):
            np.testing.assert_array_equal(result.result(), exact_sum([x], values=256))
    assert collective.statistics.retransmissions > 0


@pytest.mark.usefixtures("passes")
def test_a_switch_that_is_never_there_ends_it_after_give_up_with_what_the_socket_said() -> None:
    config = InNetworkConfig(
        Lease(id=5, rank=0, workers=1, window=WINDOW),
        free_address(),
        SWITCH,
        recovery=Recovery(initial_rto=0.02, min_rto=0.01, give_up=0.1),
    )
    with (
        InNetworkAllReduce(config) as collective,
        pytest.raises(StallError, match=r"nothing new .*; the socket last said: Connection refused$"),
    ):
        collective.all_reduce(np.ones(300, np.float32))


@pytest.mark.parametrize("error", [errno.EPERM, errno.ENOBUFS, errno.ENETDOWN, errno.EHOSTUNREACH])
def test_what_this_host_does_not_send_for_a_while_counts_as_loss(
    monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    class Refusing:
        def send(self, _message: memoryview) -> int:
            raise OSError(error, os.strerror(error))

    sender, receiver = connected_pair(offload=False)
    whole = sender._socket
    monkeypatch.setattr(sender, "_socket", Refusing())
    sender.send(np.zeros((3, 1038), np.uint8))
    assert sender.last_loss == os.strerror(error)
    whole.close()
    receiver.close()


def test_a_port_that_is_taken_is_named() -> None:
    here, there = free_address(), free_address()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(here)
        with pytest.raises(OSError, match=f"UDP socket from .*{here[1]}.*: Address already in use"):
            UdpSocket(here, there, segments=1, offload=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"remote": ("10.0.0.1", 4791)}, "must be from 0xbee0 to 0xbeef, not 0x12b7"),
        ({"segments": 64}, "segments must be from 1 to 63, not 64"),
        ({"segments": 0}, "segments must be from 1 to 63, not 0"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InNetworkConfig(
            **{"lease": Lease(5, 0, 1, 4), "local": ("10.0.0.2", 4000), "remote": SWITCH, **settings}
        )


@pytest.mark.usefixtures("passes")
def test_news_end_a_wait_for_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no timer does, here."""
    monkeypatch.setattr("fanin.workers.udp._LOOK", 1000.0)
    here = free_address()
    recovery = Recovery(initial_rto=500.0, max_rto=1000.0, give_up=1000.0)
    config = InNetworkConfig(Lease(id=5, rank=0, workers=2, window=WINDOW), here, SWITCH, recovery=recovery)
    said, news = socket.socketpair()

    class Told(InNetworkAllReduce):
        def _send(self) -> None:
            super()._send()
            raise StallError(news.recv(100).decode())

    with said, news, Told(config) as alone, ThreadPoolExecutor(1) as pool:
        alone.socket.notice(news.fileno())
        waits = pool.submit(alone.all_reduce, np.ones(1000, np.float32))
        while not alone.statistics.datagrams_sent:
            pass
        said.send(b"the others have left")
        with pytest.raises(StallError, match="the others have left"):
            waits.result()


@contextmanager
def mirror(saturated: list[bool | None]) -> Iterator[InNetworkAllReduce]:
    """A worker that is alone, so that its packets are their own sums; with the flag if the last of the list says so.

    If that is None the next is lost, and a signal comes in its place.
    """
    here = free_address()
    wake, stop = socket.socketpair()

    def answer(udp: socket.socket) -> None:
        while wake not in select.select([udp, wake], [], [])[0]:
            update, source = udp.recvfrom(2048)
            if saturated[-1] is None:
                saturated.append(False)
                os.kill(os.getpid(), signal.SIGUSR1)
                continue
            kind = wire.kind(wire.RESULT, 256 if len(update) > 1024 else 64) | wire.SATURATED * saturated[-1]
            udp.sendto(bytes([kind]) + update[1:], source)

    lease = Lease(id=5, rank=0, workers=1, window=WINDOW, last_chunk=30)
    with wake, stop, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, ThreadPoolExecutor(1) as pool:
        udp.bind(SWITCH)
        done = pool.submit(answer, udp)
        try:
            with InNetworkAllReduce(InNetworkConfig(lease, here, SWITCH)) as collective:
                yield collective
        finally:
            stop.send(b".")
        done.result()


def test_all_of_an_all_reduce_like_one_before_is_done_at_once_in_c(monkeypatch: pytest.MonkeyPatch) -> None:
    if native.library() is None:
        pytest.skip("no C compiler")
    x = np.arange(1000, dtype=np.float32)
    with mirror([False]) as collective:
        collective.all_reduce(x)
        for step in ("begin", "exchange", "finish"):
            monkeypatch.delattr(Worker, step)
        total = collective.all_reduce(x)
        assert collective.worker.finished
        assert (np.abs(total - x) <= collective.worker.error_bound()).all()
        assert collective.statistics.all_reduces == 2


@pytest.mark.usefixtures("passes")
def test_what_cannot_be_quantized_is_refused_after_vectors_like_it_and_the_next_is_summed() -> None:
    x = np.ones(1000, np.float32)
    with mirror([False]) as collective:
        collective.all_reduce(x)
        before = collective.worker.error_bound()
        with pytest.raises(ValueError, match="element 999 is nan"):
            collective.all_reduce(np.append(x[1:], np.float32("nan")))
        np.testing.assert_array_equal(collective.worker.error_bound(), before)
        np.testing.assert_array_equal(collective.all_reduce(x), x)
        assert collective.statistics.all_reduces == 2


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("seen", [0, 1])
@pytest.mark.parametrize(
    "wrong",
    [
        {"x": np.ones(100)},
        {"x": np.ones(100, np.float32), "out": np.empty(99, np.float32)},
        {"x": np.full(100, np.nan, np.float32)},
    ],
    ids=["another type", "a place of another shape", "NaN"],
)
def test_what_follows_a_call_that_is_refused_is_not_added_to_it(wrong: Any, seen: int) -> None:
    """It was: 210 came for 30, without an error, where a script caught the TypeError and went on."""
    workers = [free_address(), free_address()]

    def run(rank: int) -> None:
        lease = Lease(id=5, rank=rank, workers=2, window=WINDOW)
        recovery = Recovery(initial_rto=0.2, min_rto=0.05, give_up=1.0)
        with InNetworkAllReduce(
            InNetworkConfig(lease, workers[rank], SWITCH, recovery=recovery)
        ) as collective:
            for _ in range(seen):
                collective.all_reduce(np.ones(100, np.float32))
            if rank == 1:
                with pytest.raises((TypeError, ValueError)):
                    collective.all_reduce(**wrong)
            with pytest.raises(StallError if seen else MismatchError):
                collective.all_reduce(np.full(100, [10, 200][rank], np.float32))

    with switch(workers), ThreadPoolExecutor(2) as pool:
        list(pool.map(run, range(2)))


@pytest.mark.usefixtures("passes")
def test_a_lease_ends_for_vectors_like_those_before_too() -> None:
    """Four chunks for exponents and four for values, then four, and each time four more might be needed."""
    x = np.ones(1000, np.float32)
    with mirror([False]) as collective:
        for _ in range(5):
            collective.all_reduce(x)
        with pytest.raises(LeaseExhaustedError, match="lease 5 has 7 of its 31 chunk numbers left"):
            collective.all_reduce(x)


@pytest.mark.usefixtures("passes")
def test_a_saturated_sum_like_one_before_is_an_error_and_the_next_is_not() -> None:
    x, saturated = np.ones(1000, np.float32), list[bool | None]([False])
    with mirror(saturated) as collective:
        collective.all_reduce(x)
        saturated.append(True)
        with pytest.raises(SaturationError, match="4 results of all-reduce 2 saturated"):
            collective.all_reduce(x)
        saturated.append(False)
        np.testing.assert_array_equal(collective.all_reduce(x), x)


@pytest.mark.usefixtures("passes")
def test_an_error_of_the_socket_ends_an_all_reduce_like_one_before_and_another_cannot_begin() -> None:
    x = np.ones(1000, np.float32)
    with mirror([False]) as collective:
        collective.all_reduce(x)
        collective.socket.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            collective.all_reduce(x)
        with pytest.raises(
            CollectiveError, match=r"has not finished: rank 0 of 1, .* 4 of 4 results missing"
        ):
            collective.all_reduce(x)


@pytest.mark.usefixtures("passes")
def test_who_is_interrupted_in_an_all_reduce_like_one_before_can_say_what_it_waits_for() -> None:
    saturated: list[bool | None] = [False]
    with mirror(saturated) as collective:
        for elements in (1000, 10):
            collective.all_reduce(np.ones(elements, np.float32))
        saturated.append(None)
        before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
        try:
            with pytest.raises(KeyboardInterrupt):
                collective.all_reduce(np.ones(1000, np.float32))
        finally:
            signal.signal(signal.SIGUSR1, before)
        waiting = collective.worker.outstanding(time.monotonic())
        assert waiting
        assert (waiting.elements, waiting.total) == (1000, 4)
