"""A worker that sums parts of its vectors along several trees at once, with a lease and a UDP port for each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.hosts.stations import Frames, SwitchPort, SwitchWorker, Vector
from fanin.simulator.segments import segments
from fanin.workers.collective import flat
from fanin.workers.protocol import InNetworkStatistics
from fanin.workers.wire import HEADERS


class SplitWorker:
    """Several Participants, each of which sums a part of every vector. Some parts of a short vector are empty."""

    def __init__(self, workers: Sequence[SwitchWorker]) -> None:
        self._workers = workers
        self._result: Vector | None = None

    @property
    def statistics(self) -> InNetworkStatistics:
        """Return the sums over all participants; the congestion window is their mean."""
        parts = [worker.statistics for worker in self._workers]
        windows = [one.congestion_window for one in parts if isinstance(one, InNetworkStatistics)]
        return InNetworkStatistics(
            all_reduces=parts[0].all_reduces,
            bytes_sent=sum(one.bytes_sent for one in parts),
            bytes_received=sum(one.bytes_received for one in parts),
            retransmissions=sum(one.retransmissions for one in parts),
            congestion_window=float(np.mean(windows)) if windows else 0.0,
        )

    @property
    def finished(self) -> bool:
        """See Participant."""
        return all(worker.finished for worker in self._workers)

    def start(self, x: Vector, now: float, out: Vector | None = None) -> None:
        """See Participant."""
        vector, result = flat(x, out)
        count = len(self._workers)
        parts = zip(np.array_split(vector, count), np.array_split(result, count), strict=True)
        for worker, (part, into) in zip(self._workers, parts, strict=True):
            worker.start(part, now, into)
        self._result = result.reshape(x.shape) if out is None else out

    def deadline(self) -> float | None:
        """See Participant."""
        deadlines = (worker.deadline() for worker in self._workers)
        return min((one for one in deadlines if one is not None), default=None)

    def finish(self) -> Vector:
        """See Participant."""
        for worker in self._workers:
            worker.finish()
        assert self._result is not None
        result, self._result = self._result, None
        return result


class SplitPort:
    """Several ports as one Port. The UDP port decides which of them receives a frame."""

    def __init__(self, ports: Sequence[SwitchPort[SwitchWorker]]) -> None:
        self.participant = SplitWorker([port.participant for port in ports])
        self.compiled = None  # see Port
        self._strangers = 0  # frames for none of the ports
        self._ports = ports

    @property
    def not_ours(self) -> int:
        """See Port."""
        return self._strangers + sum(port.not_ours for port in self._ports)

    @property
    def ready_at(self) -> float | None:
        """See Port."""
        return min((port.ready_at for port in self._ports if port.ready_at is not None), default=None)

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Port."""
        self._strangers += len(frames)
        for part in segments(lengths):
            if lengths[part.start] < HEADERS:
                continue
            to = frames[part, 36].astype(np.int64) << 8 | frames[part, 37]
            for port in self._ports:
                own = to == port.udp_port
                if count := int(np.count_nonzero(own)):
                    self._strangers -= count
                    port.receive(frames[part][own], lengths[part][own], now)

    def frames_to_send(self, now: float) -> list[Frames]:
        """See Port."""
        return list(chain.from_iterable(port.frames_to_send(now) for port in self._ports))
