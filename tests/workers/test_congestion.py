"""The congestion window: RFC 8257 with results for acknowledgements, and progress whatever it holds back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.workers import wire
from fanin.workers.congestion import CongestionWindow, Gate
from fanin.workers.lease import Lease
from fanin.workers.protocol import Worker
from tests.workers.faulty_network import Faults, Network, exact_sum
from tests.workers.vectors import gradients


def test_without_marks_the_window_stays_at_its_most() -> None:
    window = CongestionWindow(1, 32)
    for _ in range(10):
        window.end_round(32, 0)
    assert window.size == 32


def test_the_first_marks_halve_it() -> None:
    window = CongestionWindow(1, 32)
    window.end_round(32, 32)
    assert window.size == 16


def test_where_few_are_marked_it_loses_little() -> None:
    window = CongestionWindow(1, 100)
    for _ in range(200):
        window.end_round(10, 0)
    assert window.size == 100
    window.end_round(10, 1)
    assert 99 < window.size < 100


def test_each_round_without_marks_gives_one_back() -> None:
    window = CongestionWindow(1, 32)
    window.end_round(32, 1)
    before = window.size
    window.end_round(16, 0)
    assert window.size == before + 1


def test_it_is_never_below_its_least_however_many_are_marked() -> None:
    window = CongestionWindow(1, 32)
    for _ in range(100):
        window.end_round(1, 5)
    assert window.size == 1


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
        gate.window.size, gate.round = float(window), 100
        accepted[chunks] = True
        gate.answer(len(chunks))
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
