"""A worker that keeps a packet in each slot in flight: order, timeouts, duplicates and the end of an all-reduce."""

from __future__ import annotations

import numpy as np
import pytest

from fanin.workers.collective import CollectiveError, StallError
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import Chunks, Datagrams, SlottedWorker, Vector

WINDOW, ELEMENTS = 3, 2
RECOVERY = Recovery(initial_rto=1.0, min_rto=1.0, give_up=5.0)


class Plain(SlottedWorker):
    """Sends chunk numbers and the values themselves."""

    def load(self, x: Vector) -> None:
        self.x = x

    def updates(self, chunks: Chunks, rows: Chunks) -> Datagrams:
        return np.column_stack([chunks, self.x[rows]]).astype(np.uint8)

    def results(self, datagrams: Datagrams) -> tuple[Chunks, Vector]:
        numbers = datagrams[:, 0].astype(np.int64)
        return np.where(numbers < 200, numbers, -1), datagrams[:, 1:].astype(np.float32)


def worker(**changes: int) -> Plain:
    return Plain(Lease(1, 0, 2, WINDOW, **changes), RECOVERY, ELEMENTS)


def sent(one: Plain, now: float) -> list[int]:
    return [int(number) for batch in one.datagrams_to_send(now) for number in batch[:, 0]]


def answer(one: Plain, now: float, *chunks: int) -> None:
    one.receive(np.array([[chunk, chunk, 7] for chunk in chunks], np.uint8), now)


def test_a_chunk_is_sent_once_its_slot_has_its_result() -> None:
    one = worker()
    one.start(np.zeros(14, np.float32), 0.0)
    assert sent(one, 0.0) == [0, 1, 2]
    answer(one, 0.1, 1)
    assert sent(one, 0.1) == [4]
    answer(one, 0.2, 0)
    assert sent(one, 0.2) == [3]
    answer(one, 0.3, 4, 2, 3)
    assert sent(one, 0.3) == [5, 6]
    answer(one, 0.4, 6, 5)
    assert one.finished
    assert one.finish().tolist() == [0, 7, 1, 7, 2, 7, 3, 7, 4, 7, 5, 7, 6, 7]
    assert one.deadline() is None


def test_a_slot_without_its_result_holds_no_other_slot_back() -> None:
    one = worker()
    one.start(np.zeros(18, np.float32), 0.0)
    assert sent(one, 0.0) == [0, 1, 2]
    for first in (1, 4):
        answer(one, 0.1, first, first + 1)
        assert sent(one, 0.1) == [first + 3, first + 4]
    answer(one, 0.2, 7, 8)
    assert sent(one, 0.2) == []  # only slot 0 has more, and chunk 0 is missing
    answer(one, 0.3, 0)
    assert sent(one, 0.3) == [3]


def test_each_packet_has_a_fixed_timeout_of_its_own() -> None:
    one = worker()
    one.start(np.zeros(8, np.float32), 0.0)
    sent(one, 0.0)
    answer(one, 0.5, 0)
    assert sent(one, 0.5) == [3]
    assert one.deadline() == 1.0
    assert sent(one, 1.0) == [1, 2]
    assert one.deadline() == 1.5
    assert one.statistics.retransmissions == 2


def test_duplicates_and_strange_packets_change_nothing() -> None:
    one = worker()
    one.start(np.zeros(4, np.float32), 0.0)
    sent(one, 0.0)
    answer(one, 0.1, 0, 0, 2, 201)
    answer(one, 0.1, 0)
    assert one.statistics.ignored == {"duplicate": 3, "malformed": 1}
    assert not one.finished
    answer(one, 0.1, 1)
    assert one.finish().tolist() == [0, 7, 1, 7]


def test_the_next_all_reduce_continues_the_numbers_until_the_lease_has_none() -> None:
    one = worker(last_chunk=2)
    one.start(np.zeros(4, np.float32), 0.0)
    with pytest.raises(CollectiveError, match="not finished"):
        one.start(np.zeros(1, np.float32), 0.0)
    sent(one, 0.0)
    answer(one, 0.1, 0, 1)
    one.finish()
    out = np.zeros(1, np.float32)
    one.start(np.ones(1, np.float32), 0.2, out)
    assert sent(one, 0.2) == [2]
    answer(one, 0.3, 2)
    assert one.finish() is out
    assert out.tolist() == [2]
    with pytest.raises(CollectiveError, match="0 chunk numbers left and this all-reduce needs 1"):
        one.start(np.ones(1, np.float32), 0.4)


def test_an_empty_vector_needs_no_packet() -> None:
    one = worker()
    one.start(np.zeros((0, 3), np.float32), 0.0)
    assert one.finished
    assert one.finish().shape == (0, 3)


def test_a_silence_ends_it() -> None:
    one = worker()
    one.start(np.zeros(2, np.float32), 0.0)
    sent(one, 0.0)
    with pytest.raises(StallError, match="rank 0 of 2, lease 1: 1 results missing, the first of chunk 0"):
        one.datagrams_to_send(5.0)
