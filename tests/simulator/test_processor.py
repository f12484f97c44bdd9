"""A host's processor that handles packets one after another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.simulator.processor import BUDGET, Processor


class Recorder:
    """A station that notes when it receives, and answers each packet."""

    def __init__(self) -> None:
        self.received: list[tuple[float, int]] = []
        self._answers = 0

    def receive(self, frames: NDArray[np.uint8], lengths: NDArray[np.int64], now: float) -> None:
        assert len(frames) == len(lengths)
        self.received.append((now, len(frames)))
        self._answers += len(frames)

    def frames_to_send(self, _now: float) -> Sequence[NDArray[np.uint8]]:
        count, self._answers = self._answers, 0
        return [np.zeros((count, 64), np.uint8)] if count else []

    def deadline(self) -> float | None:
        return None


def sent_by(processor: Processor, packets: int) -> list[tuple[float, int]]:
    """When how many packets leave, if `packets` arrive at 0."""
    processor.receive(np.zeros((packets, 64), np.uint8), np.full(packets, 64), 0.0)
    now, found = 0.0, []
    while True:
        found += [(now, len(frames)) for frames in processor.frames_to_send(now)]
        if (deadline := processor.deadline()) is None:
            return found
        assert deadline > now
        now = deadline


def test_a_packet_and_its_answer_take_its_time_each() -> None:
    recorder = Recorder()
    assert sent_by(Processor(recorder, 2.0), 1) == [(4.0, 1)]
    assert recorder.received == [(2.0, 1)]


def test_others_have_their_turn_after_a_budget() -> None:
    recorder, packets = Recorder(), 2 * BUDGET + 1
    answered = sent_by(Processor(recorder, 1.0), packets)
    assert [time for time, _ in recorder.received] == [BUDGET, 2 * BUDGET, packets]
    assert sum(count for _, count in answered) == packets
    assert answered[-1][0] == pytest.approx(2 * packets)
