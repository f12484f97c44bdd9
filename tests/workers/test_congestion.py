"""The congestion window: RFC 8257 with results for acknowledgements, and progress whatever it holds back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.workers import wire
from fanin.workers.congestion import Gate
from fanin.workers.lease import Lease
from fanin.workers.protocol import Worker
from tests.workers.faulty_network import Faults, Network, exact_sum
from tests.workers.vectors import gradients


class Path:
    """A path of a worker's chunks: results arrive in the order in which the chunks were sent."""

    def __init__(self, places: int, chunks: int = 30_000) -> None:
        self.gate, self.lead = Gate(places), places
        self.accepted = np.zeros(chunks, np.bool_)
        self.sent = self.gate.begin(places).tolist()
        self.answered = 0

    @property
    def size(self) -> float:
        return self.gate.window.size

    def answer(self, count: int, marked: int = 0) -> None:
        """Let this many results arrive, of which some are marked."""
        chunks = np.array(self.sent[self.answered : self.answered + count])
        assert len(chunks) == count
        self.answered += count
        self.accepted[chunks] = True
        self.gate.marked += marked
        self.gate.answer(count)
        through = self.gate.admit(chunks + self.lead, self.accepted, self.lead)
        self.sent += [] if through is None else through.tolist()


def test_without_marks_the_window_stays_at_its_most() -> None:
    path = Path(32)
    for _ in range(320):
        path.answer(1)
    assert path.size == 32


def test_the_first_mark_halves_it_at_once() -> None:
    path = Path(32)
    path.answer(1, marked=1)
    assert path.size == 16


def test_where_few_are_marked_it_loses_little() -> None:
    path = Path(100)
    for _ in range(200):
        path.answer(100)
    path.answer(100, marked=1)
    assert 99 < path.size < 100


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_each_window_without_marks_gives_one_back(batch: int) -> None:
    path = Path(32)
    path.answer(32, marked=1)
    before = path.size
    for more in range(1, 6):
        for _ in range(0, int(path.size), batch):
            path.answer(min(batch, len(path.sent) - path.answered))
        assert path.size == pytest.approx(before + more, abs=0.5)


def test_it_is_never_below_its_least_however_many_are_marked() -> None:
    path = Path(32)
    for _ in range(100):
        path.answer(1, marked=5)
    assert path.size == 1


def test_one_congestion_shrinks_it_once() -> None:
    """RFC 8257, section 3.3: the queue marks whatever was sent before the window shrank."""
    path = Path(64)
    for _ in range(64):
        path.answer(1, marked=1)
    assert path.size == 32
    path.answer(32)
    assert path.size == 32 + 1


def test_congestion_that_lasts_shrinks_it_once_per_window() -> None:
    path = Path(64)
    for size in (32, 16, 8):
        for _ in range(len(path.sent) - path.answered):
            path.answer(1, marked=1)
        assert path.size == size


@given(st.integers(1, 40), st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=200))
def test_after_it_shrank_it_does_not_until_a_later_chunk_has_its_result(
    places: int, batches: list[tuple[int, bool]]
) -> None:
    path, sent_before = Path(places), 0
    for draw, marked in batches:
        count = 1 + draw % (len(path.sent) - path.answered)
        before, sent = path.size, len(path.sent)
        path.answer(count, int(marked))
        if path.size < before:
            assert path.answered > sent_before
            sent_before = sent
    assert path.size >= 1


def sent_by(worker: Worker) -> list[np.ndarray]:
    return [batch.copy() for batch in worker.datagrams_to_send(0.0)]


def results(batch: np.ndarray) -> np.ndarray:
    """Return what a switch makes of these for a job of one worker."""
    made = batch.copy()
    made[:, 0] |= wire.RESULT << 4
    return made


def test_marked_results_let_fewer_chunks_go_and_no_more_than_the_window_are_in_flight() -> None:
    worker = Worker(Lease(1, 0, 1, window=16, values=64))
    worker.start(np.ones(64 * 400, np.float32), 0.0)
    flights, sizes = [sent_by(worker)], []
    while not worker.finished:
        for batch in flights.pop():
            worker.count_marks(len(batch))
            worker.receive(results(batch), 0.0)
        if not worker.finished:
            flights.append(sent_by(worker))
            sizes.append(sum(map(len, flights[-1])))
            assert sizes[-1] <= max(worker.statistics.congestion_window, 1)
    assert sizes[0] == 8
    assert sizes[-1] == 1
    assert worker.statistics.retransmissions == 0
    assert (worker.finish() == 1).all()


def test_the_lowest_chunk_missing_is_never_held() -> None:
    """Without that two workers whose windows are one chunk could wait for each other's."""
    gate, accepted = Gate(8), np.zeros(40, np.bool_)

    def answered(chunks: list[int], ready: list[int], window: int) -> list[int]:
        accepted[chunks] = True
        gate.answer(len(chunks))
        gate.window.size = float(window)
        through = gate.admit(np.array(ready) if ready else None, accepted, 8)
        return [] if through is None else through.tolist()

    assert gate.begin(8).tolist() == [*range(8)]
    assert answered([*range(1, 8)], ready=[*range(9, 16)], window=1) == []
    assert answered([], ready=[], window=2) == [9]
    assert answered([0], ready=[8], window=1) == [
        8
    ]  # beside 9, since another worker may have only 8 in flight
    assert answered([9], ready=[17], window=1) == []


@given(
    st.integers(1, 6),
    st.lists(st.lists(st.integers(0, 2**32), min_size=1, max_size=6), min_size=1, max_size=40),
)
def test_whatever_arrives_nothing_is_sent_twice_or_left_and_something_is_always_in_flight(
    places: int, order: list[list[int]]
) -> None:
    gate, lead, chunks = Gate(places), places, 4 * places
    accepted, sent = np.zeros(chunks, np.bool_), [*gate.begin(lead).tolist()]
    in_flight, step = set(sent), 0
    while not accepted.all():
        draws = order[step % len(order)]
        step += 1
        assert in_flight
        answered = sorted({sorted(in_flight)[draw % len(in_flight)] for draw in draws})
        in_flight -= set(answered)
        accepted[answered] = True
        gate.marked += draws[0] % 3
        gate.answer(len(answered))
        ready = np.array([chunk + lead for chunk in answered if chunk + lead < chunks], np.int64)
        through = gate.admit(ready if len(ready) else None, accepted, lead)
        fresh = [] if through is None else through.tolist()
        assert not set(fresh) & set(sent)
        assert len({chunk < lead for chunk in fresh}) <= 1
        sent += fresh
        in_flight |= set(fresh)
        assert gate.in_flight == len(in_flight)
    assert sorted(sent) == [*range(chunks)]


@pytest.mark.slow
@pytest.mark.few(8)
@pytest.mark.parametrize("racks", [[3], [2, 2]])
@pytest.mark.parametrize("loss", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(5))
def test_workers_whose_windows_differ_finish(racks: list[int], loss: float, seed: int) -> None:
    """Marks are drawn for each worker by itself here, which makes their windows differ more than any network does."""
    faults = Faults(loss=loss, delay=(0.0002, 0.002), marking=0.5)
    network = Network(racks, window=8, faults=faults, seed=seed)
    vectors = gradients(sum(racks), 3000, seed, 0)
    expected = exact_sum(vectors, 64)
    for result in network.all_reduce(vectors, skew=0.01):
        assert result.tobytes() == expected.tobytes()
    assert min(worker.statistics.congestion_window for worker in network.workers) < 8
