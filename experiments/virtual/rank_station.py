"""A worker in virtual time that computes and belongs to several groups: its channels to them, and its passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.models.pipeline import Pass
from fanin.experiments.models.timers import recovery
from fanin.experiments.results.checking import Errors, Promise
from fanin.experiments.results.measured import Measured, mean_window
from fanin.experiments.results.usage import Usage, WorkerUse
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.parallelism import Direction
from fanin.experiments.virtual.outcome import (
    LIMIT,
    UnfinishedError,
    make_fabric,
    network_figures,
    worker_figures,
)
from fanin.experiments.virtual.steps import computing_figures
from fanin.experiments.virtual.usage import LinkMeter, QueueSampler
from fanin.native.python_file import telling
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Fabric
from fanin.simulator.hosts.stations import Frames, Vector, WorkerStation
from fanin.simulator.network import ON_WAKES, MakeNetwork
from fanin.workers.protocol import InNetworkStatistics
from fanin.workers.wire import HEADERS

_SCALES = 16  # successive calls scale their vectors by different powers of two, which scale sums exactly
_NOTHING = np.zeros(0, np.float32)


class Scaled(Sequence[Vector]):
    """The vectors that a worker puts into each of `count` calls: `base` [elements] times a power of two."""

    def __init__(self, base: Vector, count: int) -> None:
        self._base, self._count = base, count

    @staticmethod
    def factor(index: int) -> float:
        """Return the factor of the vector of a call."""
        return float(2.0 ** (index % _SCALES))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        return self._base * np.float32(self.factor(index))


class Channel:
    """One worker's end of a group: its calls, one after another, whose results are compared as they arrive.

    Args:
        station: The worker's station.
        ports: The UDP ports at which it receives.
        promise: Returns the expected result of a call, by its number; None: the results are compared elsewhere.
        rank: The worker's rank in the group.
    """

    def __init__(
        self,
        station: WorkerStation[Any],
        ports: Sequence[int],
        promise: Callable[[int], Promise] | None = None,
        rank: int = 0,
    ) -> None:
        self.station = station
        self.ports = ports
        self.errors = Errors()
        self._promise, self._rank = promise, rank
        self._compared = 0

    def call(self, count: int = 1) -> None:
        """Let the next calls begin once the previous ones have ended."""
        assert self.station.called is not None
        self.station.called += count

    @property
    def idle(self) -> bool:
        """Return whether all calls have ended."""
        return len(self.station.outputs) == self.station.called

    def compare(self) -> None:
        """Compare the results that have arrived, and drop them."""
        outputs, promise = self.station.outputs, self._promise
        while promise is not None and self._compared < len(outputs):
            errors = promise(self._compared).hold([outputs[self._compared]], self._rank)
            self.errors = Errors.of_all([self.errors, errors])
            outputs[self._compared] = _NOTHING
            self._compared += 1


@dataclass(frozen=True, slots=True)
class Ends:
    """A worker's channels; None means that it has no such neighbour, or is alone in the group.

    Attributes:
        tensor: To its tensor group.
        data: To the workers that sum the same gradients.
        sends: By direction: forward to the next stage, backward to the previous one.
        receives: By direction: forward from the previous stage, backward from the next one.
    """

    tensor: Channel | None
    data: Channel | None
    sends: Mapping[Direction, Channel | None]
    receives: Mapping[Direction, Channel | None]

    @property
    def there(self) -> list[Channel]:
        """Return all channels that exist."""
        every = (self.tensor, *self.sends.values(), *self.receives.values(), self.data)
        return [channel for channel in every if channel is not None]


class ChannelStation(ABC):
    """A Station with several channels, whose worker decides what to compute and what to call.

    Args:
        channels: Its channels.

    Attributes:
        ended: Seconds when each step has ended.
    """

    def __init__(self, channels: Sequence[Channel]) -> None:
        self.ended: list[float] = []
        self._channels = channels
        self._owner = np.full(1 << 16, -1, np.int16)  # the channel of each UDP port
        for number, channel in enumerate(channels):
            self._owner[channel.ports] = number
        self._now = 0.0

    @abstractmethod
    def _go_on(self) -> None:
        """Do what can be done now: compute, and call."""

    @abstractmethod
    def _may_go_on(self) -> bool:
        """Return whether _go_on() has something to do now."""

    @property
    @abstractmethod
    def _next_time(self) -> float | None:
        """Return when the worker has finished what it computes; None if it computes nothing."""

    @property
    @abstractmethod
    def _done(self) -> bool:
        """Return whether the worker has nothing left to do."""

    @property
    def finished(self) -> bool:
        """Return whether the worker has done everything, and others have acknowledged what it sent."""
        return self._done and all(channel.idle for channel in self._channels)

    @property
    def retransmissions(self) -> int:
        """Return the packets that it retransmitted."""
        return sum(channel.station.retransmissions for channel in self._channels)

    @property
    def errors(self) -> Errors:
        """Return the errors of all results that its channels have compared."""
        return Errors.of_all(channel.errors for channel in self._channels)

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """Take frames that have arrived; see Station."""
        owners = self._owner[frames[:, 36].astype(np.int64) << 8 | frames[:, 37]]
        owners[lengths < HEADERS] = -1
        for number, channel in enumerate(self._channels):
            which = owners == number
            if which.any():
                channel.station.receive(frames[which], lengths[which], now)

    def frames_to_send(self, now: float) -> list[Frames]:
        """Return the frames to send now; see Station."""
        self._now = now
        frames: list[Frames] = []
        while True:
            self._go_on()
            for channel in self._channels:
                frames += channel.station.frames_to_send(now)
                channel.compare()
            if not self._may_go_on():  # packets that came earlier may have ended a call
                return frames

    def deadline(self) -> float | None:
        """Return when to act next; see Station."""
        deadlines = [channel.station.deadline() for channel in self._channels]
        return min((one for one in (self._next_time, *deadlines) if one is not None), default=None)


class RankStation(ChannelStation):
    """A Station whose worker computes passes in their order in each step, and sends and receives in between.

    Args:
        passes: The passes of a step.
        seconds: Seconds of a pass, by direction.
        tensor_calls: Number of sums of its tensor group in a pass, after equal parts of it.
        filled: How many buckets of gradients each of its layers fills, in the order of the backward pass,
            [chunks][layers]. They are summed while the pass continues.
        ends: Its channels.
        repetitions: Number of steps.

    Attributes:
        ended: When it finished each step, in seconds.
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
        super().__init__(ends.there)
        self._passes, self._seconds, self._tensor_calls = passes, seconds, tensor_calls
        self._filled = filled
        self._ends = ends
        self._until: float | None = None  # when it has finished computing
        self._awaited: Channel | None = None
        self._program: Iterator[float | Channel] | None = self._steps(repetitions)

    def _steps(self, repetitions: int) -> Iterator[float | Channel]:
        """Yield everything for which the worker must wait: seconds of computing, or a channel whose calls must end."""
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
        """Do a pass.

        Args:
            direction: Its direction.
            filled: How many buckets each equal part of it fills.
        """
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
    def _done(self) -> bool:
        return self._program is None

    @property
    def _next_time(self) -> float | None:
        return self._until

    def _may_go_on(self) -> bool:
        return self._awaited is not None and self._awaited.idle

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


class Ranks(Protocol):
    """The ranks of a training on a fabric, with a station on each host.

    Attributes:
        stations: The stations, by rank.
        computing: Seconds for which each rank computes, [ranks, steps].
        window: Packets that a worker may have in flight.
    """

    @property
    def stations(self) -> Sequence[ChannelStation]: ...  # noqa: D102
    @property
    def computing(self) -> NDArray[np.float64]: ...  # noqa: D102
    @property
    def window(self) -> int: ...  # noqa: D102

    def errors(self) -> Iterator[Errors]:
        """Yield the errors of all results."""
        ...


def run_ranks(
    settings: Settings,
    switch: Engine,
    make_network: MakeNetwork,
    make: Callable[[Fabric], Ranks],
) -> Measured:
    """Run ranks on a fabric until all have done their steps, and check all results.

    Args:
        settings: The point.
        switch: The program of its switches.
        make_network: Builds the network, with the arguments of VirtualNetwork.
        make: Starts the jobs of the ranks on the fabric, and returns the ranks.

    Raises:
        CollectiveError: If a worker gives up.
        UnfinishedError: If the run does not end.
        DeadlockError: If links pause one another in a circle.
        ControllerError: If the controller fails.
        PythonFileError: If the user's worker or controller fails.
    """
    assert settings.elements is not None
    with telling(settings.implementation.worker):
        fabric = make_fabric(settings, switch, make_network)
        ranks = make(fabric)
        for host, station in zip(settings.members, ranks.stations, strict=True):
            fabric.network.replace_station(host, station, 0.0)
        meter = LinkMeter(fabric, settings.priority)
        sampler = QueueSampler(fabric.network, settings.queue_samples)
        unfinished = list(ranks.stations)

        def all_finished() -> bool:
            while unfinished and unfinished[-1].finished:
                unfinished.pop()
            return not unfinished

        if not fabric.network.run(all_finished, LIMIT, watched=ON_WAKES):
            raise UnfinishedError(f"not finished after {LIMIT:g} s of virtual time")

    ended = np.array([station.ended for station in ranks.stations])
    began = np.append(0.0, ended.max(axis=0)[:-1])
    seconds = ended.max(axis=0) - began
    errors = Errors.of_all(ranks.errors())
    workers = [
        WorkerUse(
            rank=rank,
            host=host,
            began=tuple(began.tolist()),
            ended=tuple(station.ended),
            retransmissions=station.retransmissions,
            computing_seconds=float(ranks.computing[rank].sum()),
        )
        for rank, (host, station) in enumerate(zip(settings.members, ranks.stations, strict=True))
    ]
    statistics = [station.worker.statistics for job in fabric.jobs for station in job.stations]
    return Measured(
        seconds=tuple(seconds.tolist()),
        elements=settings.elements,
        retransmissions=sum(station.retransmissions for station in ranks.stations),
        closed_form_seconds=None,
        window=ranks.window,
        recovery=recovery(settings),
        congestion_window=mean_window(
            [one.congestion_window for one in statistics if isinstance(one, InNetworkStatistics)]
        ),
        wait_seconds=float(seconds.mean() - ranks.computing.mean()),
        usage=Usage(meter.end_phase("job"), tuple(workers), sampler.samples),
        workers_left=len(workers),
        **errors.columns,
        **worker_figures(settings, fabric),
        **network_figures(fabric),
        # Ranks do not begin their steps together, so the slowest one is that of all steps.
        **computing_figures(seconds, ranks.computing.mean(axis=1, keepdims=True)),
    )
