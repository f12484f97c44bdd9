"""A host in soak: its worker, the remaining worker of an earlier grant, and a stranger's packets."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.soak.strangers import Flips
from fanin.simulator.hosts.stations import Frames, ServerStation, WorkerStation
from fanin.simulator.segments import segments
from fanin.workers.collective import CollectiveError
from fanin.workers.congestion import ECN_CONGESTED
from fanin.workers.protocol import Worker

_ECN = 15  # byte of a frame: in IPv4's header


class ExtraTraffic(Protocol):
    """Additional traffic of a host."""

    def out_of(self, batches: list[Frames]) -> list[Frames]:
        """Return frames to send in addition to these, which the worker sends: frames [m, length] each."""

    def into(self, frames: Frames) -> list[Frames]:
        """Return frames to receive in addition to these, which arrive for the worker: frames [m, length]."""


class SoakHost:
    """A Station with additional traffic.

    Args:
        station: Station of the worker.
        extra: Its additional traffic.
        earlier: Host of an earlier grant, which continues.
        until: When the earlier one stops, in seconds.
        flips: Flipped bits at the ends of its link.

    Attributes:
        error: The error with which the worker has failed, or None.
        sent: Frames sent, additional ones included.
        marked: Frames that arrived with a congestion mark.
        narrowed: How often an in-network worker's window became smaller.
    """

    def __init__(
        self,
        station: WorkerStation[Any],
        extra: ExtraTraffic | None,
        earlier: SoakHost | None = None,
        until: float = 0.0,
        flips: Flips | None = None,
    ) -> None:
        self.station = station
        self._flips = flips
        self.error: CollectiveError | None = None
        self.marked = self.narrowed = self.sent = 0
        self._stopped = False
        self._extra = extra
        self._earlier = earlier
        self._until = until

    @property
    def done(self) -> bool:
        """Return whether all sums are complete, or no more will be."""
        return self.station.finished or self.error is not None

    def stop(self) -> None:
        """Stop the worker, which has learned that its lease is lost: it no longer sends or receives with it."""
        self._stopped = True

    @property
    def _works(self) -> bool:
        return self.error is None and not self._stopped

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Station."""
        if self._earlier:
            self._earlier.receive(frames, lengths, now)
        window = self._window
        for part in segments(lengths):
            batch = frames[part, : int(lengths[part.start])]
            batch = self._flips.into(batch) if self._flips else batch
            self.marked += int(np.count_nonzero(batch[:, _ECN : _ECN + 1] & ECN_CONGESTED == ECN_CONGESTED))
            forged = self._extra.into(batch) if self._extra else []
            for one in (*forged, batch):
                if self._works:
                    try:
                        self.station.receive(one, np.full(len(one), one.shape[1]), now)
                    except CollectiveError as error:
                        self.error = error
        self.narrowed += self._window < window

    @property
    def _window(self) -> float:
        worker = self.station.worker
        return worker.statistics.congestion_window if isinstance(worker, Worker) else 0.0

    def frames_to_send(self, now: float) -> list[Frames]:
        """See Station."""
        if self._earlier and now >= self._until:
            self._earlier = None
        sent = self._earlier.frames_to_send(now) if self._earlier else []
        if self._works:
            try:
                own = self.station.frames_to_send(now)
            except CollectiveError as error:
                self.error = error
            else:
                if self._flips:
                    self._flips.out_of(own)
                sent = [*sent, *(self._extra.out_of(own) if self._extra else ()), *own]
        self.sent += sum(map(len, sent))
        return sent

    def deadline(self) -> float | None:
        """See Station."""
        times = [self._earlier.deadline()] if self._earlier else []
        if self._works:
            times.append(self.station.deadline())
        known = [time for time in times if time is not None]
        return min(known) if known else None


class SoakServer:
    """A Station with the server of a job.

    Attributes:
        sent: Frames sent.
    """

    def __init__(self, station: ServerStation, sent: int) -> None:
        self.sent = sent
        self._station = station

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Station."""
        self._station.receive(frames, lengths, now)

    def frames_to_send(self, now: float) -> list[Frames]:
        """See Station."""
        batches = self._station.frames_to_send(now)
        self.sent += sum(map(len, batches))
        return batches

    def deadline(self) -> float | None:
        """See Station."""
        return self._station.deadline()
