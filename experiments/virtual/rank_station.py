"""A worker of a model that is cut, in virtual time: what it computes, and its ends of the groups that it is in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.models.pipeline import Pass
from fanin.experiments.results.checking import Errors, Promise
from fanin.experiments.scenario.tables.parallelism import Direction
from fanin.simulator.hosts.stations import Frames, Vector, WorkerStation
from fanin.workers.wire import HEADERS

_SCALES = 16  # calls in a row have different vectors, by powers of two, with which all sums grow exactly
_NOTHING = np.zeros(0, np.float32)


class Scaled(Sequence[Vector]):
    """What a worker puts into each of `count` calls: `base` [elements] times a power of two."""

    def __init__(self, base: Vector, count: int) -> None:
        self._base, self._count = base, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return self._base * np.float32(2.0 ** (index % _SCALES))


class Channel:
    """One worker's end of a group: its calls, one after the other, of which each result is compared as it comes.

    promise: of the first call; None: somebody else compares.
    """

    def __init__(
        self, station: WorkerStation[Any], ports: Sequence[int], promise: Promise | None = None
    ) -> None:
        self.station = station
        self.ports = ports
        self.errors = Errors(0.0, 0.0, 0)
        self._promise = promise
        self._compared = 0

    def call(self, count: int = 1) -> None:
        """Let the next ones begin, once those before have ended."""
        assert self.station.called is not None
        self.station.called += count

    @property
    def idle(self) -> bool:
        """Whether all that were called have ended."""
        return len(self.station.outputs) == self.station.called

    def compare(self) -> None:
        """What has come, and forget it."""
        outputs, promise = self.station.outputs, self._promise
        while promise is not None and self._compared < len(outputs):
            scale = 2.0 ** (self._compared % _SCALES)
            expected = Promise(promise.exact * scale, promise.bound * scale)
            self.errors = Errors.of_all([self.errors, expected.hold([outputs[self._compared]])])
            outputs[self._compared] = _NOTHING
            self._compared += 1


@dataclass(frozen=True, slots=True)
class Ends:
    """A worker's channels; None: it has no such neighbour, or is alone in the group.

    data: of its gradients. sends, receives: by direction; forward to the next stage, and backward to the one before.
    """

    tensor: Channel | None
    data: Channel | None
    sends: Mapping[Direction, Channel | None]
    receives: Mapping[Direction, Channel | None]

    @property
    def there(self) -> list[Channel]:
        """All that it has."""
        every = (self.tensor, *self.sends.values(), *self.receives.values(), self.data)
        return [channel for channel in every if channel is not None]


class RankStation:
    """A Station: a worker that computes `passes` in their order in each of `repetitions` steps, and meanwhile sends.

    seconds: of a pass, by direction, in which its tensor group sums `tensor_calls` times, after equal parts of it.
    filled: how many buckets of gradients each of its layers fills, in the order of the backward pass, [chunks][layers];
    these are summed while it goes on. ended: when it had done each step.
    """

    def __init__(
        self,
        passes: Sequence[Pass],
        seconds: Mapping[Direction, float],
        tensor_calls: int,
        filled: Sequence[Sequence[int]],
        ends: Ends,
        repetitions: int,
    ) -> None:
        self.ended: list[float] = []
        self._channels = ends.there
        self._owner = np.full(1 << 16, -1, np.int8)  # of UDP ports
        for number, channel in enumerate(self._channels):
            self._owner[channel.ports] = number
        self._passes, self._seconds, self._tensor_calls = passes, seconds, tensor_calls
        self._filled = filled
        self._ends = ends
        self._now = 0.0
        self._until: float | None = None  # computing
        self._awaited: Channel | None = None
        self._program: Iterator[float | Channel] | None = self._steps(repetitions)

    def _steps(self, repetitions: int) -> Iterator[float | Channel]:
        """What it does, as far as it must wait: seconds of computing, or a channel whose calls are to end."""
        ends = self._ends
        micro_batches = 1 + max(one.micro_batch for one in self._passes)
        for _ in range(repetitions):
            ready = iter(self._filled)
            for direction, micro_batch, _, received, sent in self._passes:
                if received:
                    yield from self._call(ends.receives[direction])
                last = direction == "backward" and micro_batch == micro_batches - 1
                yield from self._compute(direction, next(ready) if last else [0])
                if sent and (send := ends.sends[direction]):
                    send.call()
            if ends.data:
                yield ends.data
            self.ended.append(self._now)

    def _compute(self, direction: Direction, filled: Sequence[int]) -> Iterator[float | Channel]:
        """A pass. filled: by each equal part of it."""
        parts = self._tensor_calls or len(filled)
        for part in range(1, parts + 1):
            yield self._seconds[direction] / parts
            yield from self._call(self._ends.tensor)
            layer, within = divmod(part * len(filled), parts)
            if self._ends.data and not within:
                self._ends.data.call(filled[layer - 1])

    @staticmethod
    def _call(channel: Channel | None) -> Iterator[Channel]:
        if channel is not None:
            channel.call()
            yield channel

    @property
    def finished(self) -> bool:
        """Whether it has done all, and has been told that others have what it sent."""
        return self._program is None and all(channel.idle for channel in self._channels)

    @property
    def retransmissions(self) -> int:
        """Packets sent again."""
        return sum(channel.station.retransmissions for channel in self._channels)

    @property
    def errors(self) -> Errors:
        """Of all results that came, but for sums of gradients."""
        return Errors.of_all(channel.errors for channel in self._channels)

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Station."""
        owners = self._owner[frames[:, 36].astype(np.int64) << 8 | frames[:, 37]]
        owners[lengths < HEADERS] = -1
        for number, channel in enumerate(self._channels):
            which = owners == number
            if which.any():
                channel.station.receive(frames[which], lengths[which], now)

    def frames_to_send(self, now: float) -> list[Frames]:
        """See Station."""
        self._now = now
        frames: list[Frames] = []
        while True:
            self._go_on()
            for channel in self._channels:
                frames += channel.station.frames_to_send(now)
                channel.compare()
            if not (self._awaited and self._awaited.idle):  # which may have ended by what had come before
                return frames

    def _go_on(self) -> None:
        while self._program is not None:
            if self._until is not None and self._now < self._until:
                return
            if self._awaited is not None and not self._awaited.idle:
                return
            self._until = self._awaited = None
            step = next(self._program, None)
            if step is None:
                self._program = None
            elif isinstance(step, Channel):
                self._awaited = step
            else:
                self._until = self._now + step

    def deadline(self) -> float | None:
        """See Station."""
        deadlines = [channel.station.deadline() for channel in self._channels]
        return min((one for one in (self._until, *deadlines) if one is not None), default=None)
