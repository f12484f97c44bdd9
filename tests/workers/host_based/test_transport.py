"""The reliable transport over a network that loses, duplicates, reorders and corrupts, in virtual time, by seed."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fanin.workers.collective import CollectiveError, HostBasedAlgorithm, StallError, Transport, WindowScope
from fanin.workers.host_based.algorithms.registry import algorithm_named
from fanin.workers.host_based.congestion_control import Dctcp, DctcpParameters, MakeControl, NoControl
from fanin.workers.host_based.participant import Group, HostBasedWorker
from fanin.workers.host_based.transport import (
    ACK,
    DATA,
    HEADER,
    HEADER_BYTES,
    NAK,
    PAYLOAD,
    Ends,
    StreamCounts,
    open_stream,
    packet_numbers,
)
from fanin.workers.recovery import Recovery
from tests.sizes import sized
from tests.workers.host_based.both_workers import BothWorkers

pytestmark = pytest.mark.slow

TRANSPORTS: list[Transport] = ["selective-repeat", "go-back-n"]
ALL: list[Transport] = [*TRANSPORTS, "tcp"]  # tcp is in Python only, and has a control of its own
ALGORITHMS: list[HostBasedAlgorithm] = ["ring", "halving-doubling", "double-binary-tree", "parameter-server"]
RECOVERY = Recovery(initial_rto=0.02, min_rto=0.004, max_rto=0.2, give_up=60.0)
Bytes = NDArray[np.uint8]
ANY = 1 << 20


@dataclass(frozen=True)
class Faults:
    """Probabilities of each datagram by itself; its delay is drawn between two, in seconds.

    corruption: of the frame; whoever checks it drops it, as a bad checksum has UDP or Ethernet do.
    """

    loss: float = 0.0
    duplication: float = 0.0
    corruption: float = 0.0
    marking: float = 0.0
    delay: tuple[float, float] = (0.001, 0.001)


class Network:
    """Carries datagrams between ends by number and wakes them at their deadlines."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self.faults = faults
        self.random = random.Random(seed)
        self.now = 0.0
        self.sent = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), action))

    def carry(self, batch: Bytes, deliver: Callable[[Bytes, bool], None]) -> None:
        for row in batch:
            self.sent += 1
            datagram = row.reshape(1, -1).copy()
            marked = self.random.random() < self.faults.marking
            for _ in range(1 + (self.random.random() < self.faults.duplication)):
                if self.random.random() < self.faults.loss + self.faults.corruption:
                    continue
                delay = self.random.uniform(*self.faults.delay)
                self.at(self.now + delay, lambda datagram=datagram, marked=marked: deliver(datagram, marked))

    def step(self) -> bool:
        if not self._events:
            return False
        self.now, _, action = heapq.heappop(self._events)
        action()
        return True


class Stream:
    """One stream: `arrived` is what came out at the far end."""

    def __init__(self, transport: Transport, faults: Faults, seed: int = 0, window: int = 8) -> None:
        self.network = Network(faults, seed)
        self.counts = StreamCounts()
        self.sender, _ = open_stream(transport, Ends(0, 1, 7), window, RECOVERY, self.counts)
        _, self.receiver = open_stream(transport, Ends(1, 0, 7), window, RECOVERY, self.counts)
        self.arrived = b""

    def send(self, messages: Sequence[Bytes], limit: float = 60.0) -> bool:
        for message in messages:
            self.sender.write(message)
        while not self.sender.done:
            self.turn()
            deadline = self.sender.deadline()
            self.network.at(max(deadline, self.network.now), lambda: None)
            if not self.network.step() or self.network.now > limit:
                return False
        return True

    def turn(self) -> None:
        for batch in self.sender.datagrams(self.network.now, ANY):
            self.network.carry(batch, self.to_receiver)

    def to_receiver(self, datagram: Bytes, marked: bool) -> None:
        for payloads in self.receiver.accept(
            packet_numbers(datagram), datagram[:, HEADER_BYTES:], int(marked)
        ):
            self.arrived += payloads.tobytes()
        answer = self.receiver.answer()
        assert answer is not None
        self.network.carry(answer, self.to_sender)

    def to_sender(self, datagram: Bytes, _marked: bool) -> None:
        kind, _, _, _, _, number, seen = HEADER.unpack(datagram[0, :HEADER_BYTES].tobytes())
        self.sender.acknowledge(kind, number, seen, datagram[0, HEADER_BYTES:], self.network.now)


def message(size: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


FAULTS = st.builds(
    Faults,
    loss=st.floats(0, 0.3),
    duplication=st.floats(0, 0.3),
    corruption=st.floats(0, 0.1),
    marking=st.sampled_from([0.0, 0.5]),
    delay=st.sampled_from([(0.001, 0.001), (0.001, 0.003), (0.0001, 0.02)]),
)


@pytest.mark.parametrize("transport", ALL)
@settings(max_examples=sized(20, 60))
@given(
    sizes=st.lists(st.integers(1, 5 * PAYLOAD), min_size=1, max_size=12),
    window=st.integers(1, 20),
    faults=FAULTS,
    seed=st.integers(0, 2**32),
)
def test_every_byte_arrives_once_and_in_order(
    transport: Transport, sizes: list[int], window: int, faults: Faults, seed: int
) -> None:
    stream = Stream(transport, faults, seed, window)
    messages = [message(size, i) for i, size in enumerate(sizes)]
    # Four of ten datagrams may be lost, and an acknowledgement, too: a packet needs a handful of timeouts at most.
    assert stream.send(messages, limit=0.2 * 40 * sum(-(-size // PAYLOAD) for size in sizes))
    assert stream.arrived == b"".join(m.tobytes() for m in messages)


@pytest.mark.parametrize("transport", ALL)
def test_without_faults_each_packet_is_sent_once_and_messages_fill_theirs(transport: Transport) -> None:
    stream = Stream(transport, Faults(), window=4)
    assert stream.send([message(10 * PAYLOAD), message(1), message(PAYLOAD + 1)])
    assert stream.network.sent == 2 * (10 + 1 + 2)  # each with an acknowledgement
    assert stream.counts == StreamCounts()
    # By windows of four, a round trip each. TCP's first window is ten.
    assert stream.network.now == pytest.approx(4 * 0.002)


def first_packets_sent(stream: Stream) -> list[int]:
    batches = stream.sender.datagrams(stream.network.now, ANY)
    return [int(number) for batch in batches for number in packet_numbers(batch)]


def lose(stream: Stream, lost: set[int]) -> None:
    """One flight of the window reaches the receiver but for some; its acknowledgements come back."""
    for batch in stream.sender.datagrams(stream.network.now, ANY):
        for row in batch:
            datagram = row.reshape(1, -1)
            if int(packet_numbers(datagram)[0]) not in lost:
                stream.to_receiver(datagram, False)
    while stream.network.step():
        pass


def test_selective_repeat_repeats_what_was_lost_and_nothing_else() -> None:
    stream = Stream("selective-repeat", Faults(), window=8)
    stream.sender.write(message(8 * PAYLOAD))
    lose(stream, {1, 3})
    assert first_packets_sent(stream) == [1, 3]
    assert stream.counts.retransmissions == 2
    assert stream.counts.timeouts == 0


def test_selective_repeat_waits_for_three_later_packets_before_it_repeats_one() -> None:
    stream = Stream("selective-repeat", Faults(), window=4)
    stream.sender.write(message(4 * PAYLOAD))
    lose(stream, {1})
    assert first_packets_sent(stream) == []
    stream.network.now = stream.sender.deadline()
    assert first_packets_sent(stream) == [1]
    assert stream.counts.timeouts == 1


def test_tcp_begins_with_ten_packets_and_doubles_them_each_round_trip() -> None:
    stream = Stream("tcp", Faults(), window=64)
    stream.sender.write(message(200 * PAYLOAD))
    flights = []
    for _ in range(4):
        flights.append(len(first_packets_sent(stream)))
        for number in range(sum(flights[:-1]) + 1, sum(flights) + 1):
            stream.sender.acknowledge(ACK, number, 0, np.zeros(0, np.uint8), stream.network.now)
    assert flights == [10, 20, 40, 64]


def test_tcp_halves_its_window_once_for_the_losses_of_a_flight_and_repeats_within_it() -> None:
    stream = Stream("tcp", Faults(), window=64)
    stream.sender.write(message(200 * PAYLOAD))
    lose(stream, {1, 3, 5})
    # Of ten packets, three are lost and seven have arrived: nothing is in flight, and the window is now five.
    assert first_packets_sent(stream) == [1, 3, 5, 10, 11]
    assert stream.counts.retransmissions == 3
    assert stream.counts.timeouts == 0


def test_tcp_sends_the_last_packet_again_if_nothing_comes_and_learns_what_else_was_lost() -> None:
    stream = Stream("tcp", Faults(), window=64)
    assert stream.send([message(10 * PAYLOAD)])  # measures a round trip
    stream.sender.write(message(10 * PAYLOAD))
    lose(stream, {17, 18, 19})
    probe_at = stream.sender.deadline()
    assert probe_at < stream.network.now + RECOVERY.min_rto
    stream.network.now = probe_at
    lose(stream, set())  # the probe arrives
    assert first_packets_sent(stream) == [17, 18]
    assert stream.counts.timeouts == 0
    assert stream.counts.retransmissions == 3


def test_after_a_timeout_tcp_begins_with_one_packet() -> None:
    stream = Stream("tcp", Faults(), window=64)
    stream.sender.write(message(100 * PAYLOAD))
    lose(stream, {*range(10)})
    stream.network.now = stream.sender.deadline()
    assert first_packets_sent(stream) == [0]
    assert stream.counts.timeouts == 10
    stream.sender.acknowledge(ACK, 1, 0, np.zeros(0, np.uint8), stream.network.now)
    assert first_packets_sent(stream) == [1, 2]


def test_marks_do_not_slow_tcp_down() -> None:
    plain, marked = (Stream("tcp", Faults(marking=share), window=64) for share in (0.0, 1.0))
    for stream in (plain, marked):
        assert stream.send([message(300 * PAYLOAD)])
    assert plain.network.now == marked.network.now


def test_go_back_n_repeats_everything_from_what_was_lost() -> None:
    stream = Stream("go-back-n", Faults(), window=8)
    stream.sender.write(message(8 * PAYLOAD))
    lose(stream, {5})
    assert stream.counts.ignored["early"] == 2
    assert first_packets_sent(stream) == [5, 6, 7]
    # It was asked for once: if it is lost again, only the timeout brings it.
    lose(stream, {5})
    assert first_packets_sent(stream) == []
    stream.network.now = stream.sender.deadline()
    assert first_packets_sent(stream) == [5, 6, 7]


def test_go_back_n_goes_back_once_for_all_copies_of_a_request() -> None:
    """Else a network that duplicates has each copy answered by a window, and copies of that window by more."""
    stream = Stream("go-back-n", Faults(), window=8)
    stream.sender.write(message(8 * PAYLOAD))
    lose(stream, {5})
    copy = Ends(1, 0, 7).header(NAK, 5).reshape(1, -1)
    assert first_packets_sent(stream) == [5, 6, 7]
    stream.to_sender(copy, False)
    assert first_packets_sent(stream) == []


def after_marks() -> Stream:
    """Return a go-back-N stream with all packets marked: 64 are acknowledged, 16 of a smaller window in flight."""
    stream = Stream("go-back-n", Faults(marking=1.0), window=64)
    stream.sender.write(message(1000 * PAYLOAD))
    stream.turn()
    while stream.network.step():
        pass
    assert first_packets_sent(stream) == list(range(64, 80))
    return stream


def answer(stream: Stream, kind: int, number: int, marked: int) -> None:
    stream.to_sender(Ends(1, 0, 7).header(kind, number, marked).reshape(1, -1), False)


def test_go_back_n_repeats_as_many_at_a_time_as_congestion_leaves() -> None:
    stream = after_marks()
    answer(stream, NAK, 64, marked=66)
    assert first_packets_sent(stream) == list(range(64, 72))
    # The rest follows as these are acknowledged, and what is new behind it.
    answer(stream, ACK, 70, marked=72)
    assert first_packets_sent(stream) == list(range(72, 74))
    answer(stream, ACK, 78, marked=72)
    assert first_packets_sent(stream) == list(range(78, 83))
    assert stream.counts.retransmissions == 8 + 2 + 2


def test_go_back_n_repeats_nothing_that_has_arrived_meanwhile() -> None:
    stream = after_marks()
    answer(stream, NAK, 64, marked=66)
    first_packets_sent(stream)
    answer(stream, ACK, 80, marked=66)  # the first was late, not lost
    assert first_packets_sent(stream)[0] == 80


def test_after_a_timeout_go_back_n_repeats_as_many_as_congestion_leaves() -> None:
    stream = after_marks()
    answer(stream, NAK, 64, marked=66)
    first_packets_sent(stream)
    stream.network.now = stream.sender.deadline()
    assert first_packets_sent(stream) == list(range(64, 72))
    assert stream.counts.timeouts == 16


def test_go_back_n_repeats_no_faster_than_congestion_control_allows() -> None:
    class OneAtATime(NoControl):
        def allowance(self, now: float) -> int:
            return int(now >= self.ready_at)

        def sent(self, packets: int, now: float) -> None:
            self.ready_at = now + packets * 1e-3

    counts = StreamCounts()
    sender, _ = open_stream("go-back-n", Ends(0, 1, 7), 8, RECOVERY, counts, OneAtATime)
    sender.write(message(8 * PAYLOAD))

    def sent() -> list[int]:
        now = sender.deadline()
        return [int(number) for batch in sender.datagrams(now, ANY) for number in packet_numbers(batch)]

    sender.datagrams(0.0, ANY)
    assert [sent() for _ in range(3)] == [[1], [2], [3]]
    sender.acknowledge(NAK, 1, 0, np.zeros(0, np.uint8), sender.deadline())
    assert [sent() for _ in range(4)] == [[1], [2], [3], [4]]
    assert counts.retransmissions == 3


def test_where_all_is_marked_and_overtaken_go_back_n_does_not_stand_still() -> None:
    """Each packet out of its place costs a window; it becomes a small one."""
    stream = Stream("go-back-n", Faults(marking=1.0, delay=(0.001, 0.003)), window=256)
    assert stream.send([message(300 * PAYLOAD)])
    assert stream.counts.retransmissions < 10 * 300


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_timeouts_back_off_and_an_answer_ends_that(transport: Transport) -> None:
    stream = Stream(transport, Faults(), window=1)
    stream.sender.write(message(2))
    waits = []
    for _ in range(6):
        assert first_packets_sent(stream) == [0]
        waits.append(stream.sender.deadline() - stream.network.now)
        stream.network.now = stream.sender.deadline()
    assert waits == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.2, 0.2])
    lose(stream, set())
    stream.sender.write(message(2))
    first_packets_sent(stream)
    assert stream.sender.deadline() - stream.network.now == pytest.approx(0.02)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_network_that_carries_few_packets_at_a_time_is_sent_few_after_some_silence(
    transport: Transport,
) -> None:
    """As a switch does that pauses at once, beside a watchdog that takes each pause for a storm (a seed of soak)."""
    stream = Stream(transport, Faults(), window=64)
    stream.sender.write(message(64 * PAYLOAD))
    flights = []
    while not stream.sender.done and len(flights) < 200:
        if stream.sender.outstanding:
            stream.network.now = max(stream.network.now, stream.sender.deadline())
        batches = stream.sender.datagrams(stream.network.now, ANY)
        flights.append(sum(map(len, batches)))
        for datagram in np.concatenate(batches) if flights[-1] <= 8 else []:
            stream.to_receiver(datagram.reshape(1, -1), False)
        while stream.network.step():
            pass
    assert flights[:6] == [64, 64, 32, 16, 8, 56]
    assert stream.sender.done


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_network_that_carries_nothing_is_sent_four_packets_at_a_time_at_last(transport: Transport) -> None:
    """One at a time would not get through a burst of loss that only packets end (two seeds of soak)."""
    stream = Stream(transport, Faults(), window=64)
    stream.sender.write(message(64 * PAYLOAD))
    flights = [first_packets_sent(stream)]
    for _ in range(7):
        stream.network.now = stream.sender.deadline()
        flights.append(first_packets_sent(stream))
    assert [len(flight) for flight in flights] == [64, 64, 32, 16, 8, 4, 4, 4]
    assert flights[-1] == [0, 1, 2, 3]


@pytest.mark.parametrize("transport", ALL)
def test_a_silence_of_any_length_is_only_silence(transport: Transport) -> None:
    """Doubled more than 1,023 times a timeout would be beyond any float."""
    stream = Stream(transport, Faults(), window=1)
    stream.sender.write(message(1))
    for _ in range(1100):
        assert first_packets_sent(stream) == [0]
        stream.network.now = stream.sender.deadline()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_congestion_marks_make_the_window_smaller(transport: Transport) -> None:
    def flights(faults: Faults) -> int:
        stream = Stream(transport, faults, window=32, seed=1)
        assert stream.send([message(320 * PAYLOAD)])
        return round(stream.network.now / 0.002)

    plain = flights(Faults())
    assert plain == 10
    assert flights(Faults(marking=1.0)) > 2 * plain


@pytest.mark.parametrize("transport", ALL)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=4)
        )
    )
)
def test_no_acknowledgement_however_wrong_upsets_a_sender(
    transport: Transport, answers: list[tuple[int, int, int, bytes]]
) -> None:
    stream = Stream(transport, Faults(), window=8)
    stream.sender.write(message(20 * PAYLOAD))
    first_packets_sent(stream)
    for kind, number, marked, bitmap in answers:
        stream.sender.acknowledge(kind, number, marked, np.frombuffer(bitmap, np.uint8), 0.001)
        first_packets_sent(stream)
        assert stream.sender.deadline() >= 0


# -- all-reduces over it


class Cluster:
    """Workers of one group."""

    def __init__(self, groups: Sequence[Group], faults: Faults, seed: int = 0) -> None:
        self.network = Network(faults, seed)
        self.workers = [BothWorkers(group, RECOVERY) for group in groups]

    def all_reduce(self, inputs: Sequence[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
        for worker, x in zip(self.workers, inputs, strict=True):
            worker.start(x, self.network.now)
        for rank in range(len(self.workers)):
            self.wake(rank)
        while not all(worker.finished for worker in self.workers):
            assert self.network.step()
        return [worker.finish() for worker in self.workers]

    def wake(self, rank: int) -> None:
        worker = self.workers[rank]
        for peer, batch, _ in worker.datagrams_to_send(self.network.now):
            self.network.carry(batch, lambda d, marked, peer=peer: self.deliver(peer, d, marked))
        deadline = worker.deadline()
        if deadline is not None:
            self.network.at(max(deadline, self.network.now), lambda: self.expire(rank))

    def expire(self, rank: int) -> None:
        deadline = self.workers[rank].deadline()
        if deadline is not None and deadline <= self.network.now:
            self.wake(rank)

    def deliver(self, rank: int, datagram: Bytes, marked: bool) -> None:
        self.workers[rank].receive(datagram, self.network.now, np.array([marked]))
        self.wake(rank)


def groups(
    count: int,
    algorithm: HostBasedAlgorithm,
    transport: Transport,
    flows: int = 1,
    window_per: WindowScope = "connection",
    make_control: MakeControl = Dctcp,
    payload: int = PAYLOAD,
) -> list[Group]:
    return [
        Group(
            rank,
            count,
            algorithm,
            transport,
            window=8,
            window_per=window_per,
            chunk=512,
            flows=flows,
            make_control=make_control,
            payload=payload,
        )
        for rank in range(count)
    ]


CONTROLS: dict[str, MakeControl] = {
    "none": NoControl,
    "DCTCP": Dctcp,
    "DCTCP from a small window": lambda window: Dctcp(
        window,
        DctcpParameters(
            gain=0.3, initial_alpha=0.1, min_window=1, initial_window=2, ssthresh=5, increase="always"
        ),
    ),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=12)
@given(
    count=st.integers(1, 6),
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=3),
    faults=FAULTS,
    flows=st.integers(1, 3),
    window_per=st.sampled_from(get_args(WindowScope)),
    control=st.sampled_from(sorted(CONTROLS)),
    payload=st.sampled_from([256, 1024, 8948]),
    seed=st.integers(0, 2**32),
)
def test_all_reduces_over_a_faulty_network_are_exact(
    algorithm: HostBasedAlgorithm,
    transport: Transport,
    count: int,
    sizes: list[int],
    faults: Faults,
    flows: int,
    window_per: WindowScope,
    control: str,
    payload: int,
    seed: int,
) -> None:
    cluster = Cluster(
        groups(count, algorithm, transport, flows, window_per, CONTROLS[control], payload), faults, seed
    )
    draw = np.random.default_rng(seed)
    for size in sizes:
        inputs = [draw.standard_normal(size, np.float32) for _ in range(count)]
        expected = algorithm_named(algorithm).float32_sum(inputs).tobytes()
        assert all(result.tobytes() == expected for result in cluster.all_reduce(inputs))


@given(st.lists(st.binary(max_size=60)))
def test_datagrams_of_others_are_ignored(datagrams: list[bytes]) -> None:
    cluster = Cluster(groups(2, "ring", "selective-repeat"), Faults())
    ours = Ends(1, 0, 1).header(ACK).tobytes()  # of another session
    for datagram in [*datagrams, ours]:
        cluster.workers[0].receive(np.frombuffer(datagram, np.uint8).reshape(1, -1), 0.0)
    assert cluster.workers[0].statistics.streams.ignored.total() == len(datagrams) + 1
    inputs = [np.full(700, rank, np.float32) for rank in range(2)]
    assert all((result == 1).all() for result in cluster.all_reduce(inputs))


def test_a_peer_is_sent_equal_shares_by_each_of_several_flows() -> None:
    sent: Counter[tuple[int, int]] = Counter()
    worker = BothWorkers(Group(0, 2, window=64, chunk=512, flows=3), RECOVERY)
    worker.start(np.ones(2 * 9 * 512, np.float32), 0.0)
    for peer, batch, flow in worker.datagrams_to_send(0.0):
        sent[peer, flow] += len(batch)
        assert {HEADER.unpack(datagram[:HEADER_BYTES].tobytes())[1] for datagram in batch} == {flow}
    assert sent == {(1, 0): 6, (1, 1): 6, (1, 2): 6}


@pytest.mark.parametrize(("window_per", "sent"), [("connection", {1: 8, 2: 8, 3: 8}), ("host", {1: 8})])
def test_a_window_limits_each_connection_or_a_whole_host(
    window_per: WindowScope, sent: dict[int, int]
) -> None:
    """A parameter server's only shard, whose sums go to three others."""
    servers = [
        BothWorkers(
            Group(rank, 4, "parameter-server", shards=1, window=8, window_per=window_per, chunk=512), RECOVERY
        )
        for rank in range(4)
    ]
    for server in servers:
        server.start(np.ones(16 * 512, np.float32), 0.0)
    for client in servers[1:]:
        for _, batch, _ in client.datagrams_to_send(0.0):
            servers[0].receive(batch, 0.0)
    counts: Counter[int] = Counter()
    for peer, batch, _ in servers[0].datagrams_to_send(0.0):
        counts[peer] += len(batch) if batch[0, 0] == DATA else 0
    assert +counts == sent


def test_a_flow_that_is_not_ours_is_ignored() -> None:
    worker = BothWorkers(Group(0, 2, flows=2), RECOVERY)
    worker.receive(Ends(1, 0, 0, flow=2).header(ACK).reshape(1, -1), 0.0)
    assert worker.statistics.streams.ignored == {"malformed": 1}


# Where counters of 64 bits end, as signed and as unsigned numbers.
NUMBERS = (
    st.integers(0, 12) | st.sampled_from([2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1]) | st.integers(0, 2**64 - 1)
)


@pytest.mark.parametrize("transport", TRANSPORTS)
@settings(max_examples=sized(60, 1000))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            NUMBERS,
            st.integers(0, 2**32 - 1),
            st.sampled_from([0, 1, 3, 4, 8, PAYLOAD, PAYLOAD + 4]),
        ),
        max_size=12,
    )
)
def test_no_datagrams_however_wrong_upset_a_worker_or_set_c_and_python_apart(
    transport: Transport, sent: list[tuple[int, int, int, int]]
) -> None:
    worker = BothWorkers(Group(0, 2, transport=transport, window=8), RECOVERY)
    worker.start(np.ones(8 * PAYLOAD, np.float32), 0.0)
    for kind, number, last, size in sent:
        header = HEADER.pack(kind, 0, 1, 0, 0, number, last)
        datagram = np.frombuffer(header + b"\x81" * size, np.uint8).reshape(1, -1)
        try:
            worker.receive(datagram, 0.001)
            worker.datagrams_to_send(0.001)
        except CollectiveError:
            return


def test_a_silent_peer_is_named() -> None:
    worker = BothWorkers(groups(3, "ring", "go-back-n")[0], RECOVERY)
    worker.start(np.ones(30, np.float32), 0.0)
    worker.datagrams_to_send(0.0)
    with pytest.raises(
        StallError,
        match=r"ring rank 0 of 3, all-reduce 1: awaiting data from rank 2 and "
        r"acknowledgements from rank 1; nothing new for 60 s",
    ):
        worker.datagrams_to_send(60.0)


@pytest.mark.parametrize("sizes", [(100, 90), (2048, 1024)])
def test_workers_with_arrays_of_different_sizes_are_told(sizes: tuple[int, int]) -> None:
    cluster = Cluster(groups(2, "ring", "selective-repeat"), Faults())
    with pytest.raises(
        CollectiveError,
        match=r"rank [01] of 2: rank [01] has an array of another size, or makes another call",
    ):
        cluster.all_reduce([np.zeros(size, np.float32) for size in sizes])


def test_what_follows_a_call_that_is_refused_is_not_added_to_it() -> None:
    cluster = Cluster(groups(2, "ring", "selective-repeat"), Faults())
    with pytest.raises(TypeError):
        cluster.workers[1].start(np.ones(512), 0.0)  # type: ignore[arg-type]
    with pytest.raises(CollectiveError, match=r"rank [01] is in call [12], and this rank in call [12]"):
        cluster.all_reduce([np.ones(512, np.float32)] * 2)


def test_workers_with_different_algorithms_are_told() -> None:
    cluster = Cluster(
        [Group(rank, 2, algorithm, chunk=512) for rank, algorithm in enumerate(("ring", "halving-doubling"))],
        Faults(),
    )
    with pytest.raises(
        CollectiveError, match=r"rank [01] has an array of another size, or makes another call"
    ):
        cluster.all_reduce([np.ones(2048, np.float32)] * 2)


REFUSED = 0  # in a script: a call with a wrong argument, whose error the script catches
# Sizes in elements that two, three and four workers divide into whole packets, so that only the call tells them apart.
SIZES = (3072, 6144)


@st.composite
def scripts_of_a_group(draw: st.DrawFn) -> list[list[int]]:
    """Return the same script for all workers, except for one, which may have one more call in it, or two in place of
    one.
    """
    script = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=3))
    scripts = [script for _ in range(draw(st.integers(2, 4)))]
    at = draw(st.integers(0, len(script)))
    more = draw(st.lists(st.sampled_from([REFUSED, *SIZES]), max_size=2))
    scripts[draw(st.integers(0, len(scripts) - 1))] = script[:at] + more + script[at + len(more) // 2 :]
    return scripts


class Script:
    """A worker that makes its calls one after the other, each with its own numbers."""

    def __init__(self, worker: HostBasedWorker, calls: Sequence[int]) -> None:
        self.worker = worker
        self.calls = calls
        self.made = 0
        self.sums: list[float] = []

    def proceed(self, now: float) -> None:
        """Begin calls until one has to wait."""
        while True:
            if 0 < self.made != len(self.sums):
                if not self.worker.finished:
                    return
                result = self.worker.finish()
                assert (result == result[0]).all()
                self.sums.append(float(result[0]))
            if self.made == len(self.calls):
                return
            size = self.calls[self.made]
            self.made += 1
            if size == REFUSED:
                with pytest.raises(TypeError):
                    self.worker.start(np.ones(256), now)  # type: ignore[arg-type]
                self.sums.append(0.0)
            else:
                self.worker.start(np.full(size, summand(self.worker.group.rank, self.made), np.float32), now)


def _without_last_refusals(script: list[int]) -> tuple[int, ...]:
    while script and script[-1] == REFUSED:
        script = script[:-1]
    return tuple(script)


def summand(rank: int, call: int) -> float:
    return float(10**call * (rank + 1))


@pytest.mark.few(2)
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=sized(15, 500))
@given(
    scripts=scripts_of_a_group(),
    faults=FAULTS,
    seed=st.integers(0, 2**32),
)
def test_calls_that_do_not_match_give_an_error_that_names_a_rank_and_never_a_wrong_sum(
    algorithm: HostBasedAlgorithm, transport: Transport, scripts: list[list[int]], faults: Faults, seed: int
) -> None:
    cluster = Cluster(groups(len(scripts), algorithm, transport), faults, seed)
    running = [Script(*of) for of in zip(cluster.workers, scripts, strict=True)]
    error = None
    try:
        for rank, script in enumerate(running):
            script.proceed(0.0)
            cluster.wake(rank)
        while any(script.made < len(script.calls) or not script.worker.finished for script in running):
            assert cluster.network.step()
            for rank, script in enumerate(running):
                made = script.made
                script.proceed(cluster.network.now)
                if script.made > made:
                    cluster.wake(rank)
    except CollectiveError as raised:  # a StallError is one
        error = str(raised)
    count = len(scripts)
    for script in running:
        for call, (size, result) in enumerate(zip(script.calls, script.sums, strict=False), start=1):
            assert result == (sum(summand(rank, call) for rank in range(count)) if size else 0.0)
    if len({_without_last_refusals(script) for script in scripts}) == 1:
        assert error is None
    else:
        assert error is not None
        assert "rank" in error


def test_the_next_all_reduce_waits_for_the_one_before() -> None:
    worker = BothWorkers(Group(0, 2), RECOVERY)
    worker.start(np.zeros(4, np.float32), 0.0)
    with pytest.raises(CollectiveError, match="the previous all-reduce has not finished"):
        worker.start(np.zeros(4, np.float32), 0.0)
    with pytest.raises(CollectiveError, match="no all-reduce has finished"):
        worker.finish()


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"rank": 2, "workers": 2}, "rank must be from 0 to 1 with 2 workers, not 2"),
        ({"rank": 0, "workers": 0}, "workers must be from 1 to 65536, not 0"),
        ({"rank": 0, "workers": 2, "flows": 65}, "flows must be from 1 to 64, not 65"),
        ({"rank": 0, "workers": 2, "window": 0}, "window must be at least 1, not 0"),
        (
            {"rank": 0, "workers": 2, "payload": 8952},
            "payload must be a multiple of 4 from 4 to 8948, not 8952",
        ),
    ],
)
def test_a_group_that_cannot_be_is_refused(group: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Group(**group)  # type: ignore[arg-type]
