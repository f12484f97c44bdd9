"""A worker in Python and one in C that do the same, compared at each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import CollectiveError
from fanin.workers.host_based.engine import CompiledWorker
from fanin.workers.host_based.participant import Group, HostBasedStatistics, HostBasedWorker, Outgoing
from fanin.workers.recovery import Recovery


class BothWorkers(HostBasedWorker):
    """A HostBasedWorker that lets one in C do everything, too, and compares all that it returns, sends and raises."""

    def __init__(self, group: Group, recovery: Recovery | None = None) -> None:
        super().__init__(group, recovery)
        self._in_c = CompiledWorker(group, recovery)

    def start(self, x: NDArray[np.float32], now: float, out: NDArray[np.float32] | None = None) -> None:
        """See Participant."""
        x = x.copy()
        _same(lambda: super(BothWorkers, self).start(x, now, out), lambda: self._in_c.start(x, now))

    def receive(
        self, datagrams: NDArray[np.uint8], now: float, marked: NDArray[np.bool_] | None = None
    ) -> None:
        """See HostBasedWorker."""
        _same(
            lambda: super(BothWorkers, self).receive(datagrams, now, marked),
            lambda: self._in_c.receive(datagrams, now, marked),
        )
        self._compare(now)

    def datagrams_to_send(self, now: float) -> list[Outgoing]:
        """See HostBasedWorker."""
        sent = _same(
            lambda: super(BothWorkers, self).datagrams_to_send(now),
            lambda: self._in_c.datagrams_to_send(now),
            lambda batches: [(peer, flow, rows.shape, rows.tobytes()) for peer, rows, flow in batches],
        )
        self._compare(now)
        return sent

    def finish(self) -> NDArray[np.float32]:
        """See Participant."""
        return _same(super().finish, self._in_c.finish, lambda result: result.tobytes())

    def _compare(self, now: float) -> None:
        assert (self.finished, self.summed_at) == (self._in_c.finished, self._in_c.summed_at)
        assert self.deadline() == self._in_c.deadline()
        assert self.outstanding(now) == self._in_c.outstanding(now)
        assert _totals(self.statistics) == _totals(self._in_c.statistics)


def _totals(statistics: HostBasedStatistics) -> dict[str, Any]:
    """Return all counts; a reason that was counted 0 times is left out."""
    streams = asdict(statistics.streams) | {"ignored": +statistics.streams.ignored}
    return asdict(statistics) | {"streams": streams}


def _same(ours: Callable[[], Any], in_c: Callable[[], Any], of: Callable[[Any], Any] = lambda x: x) -> Any:
    """Return or raise what both return or raise."""
    results: list[Any] = []
    for act in (ours, in_c):
        try:
            results.append(act())
        except (CollectiveError, TypeError) as error:
            results.append(error)
    found, other = results
    if isinstance(found, Exception):
        assert (type(found), str(found)) == (type(other), str(other))
        raise found
    assert not isinstance(other, Exception), other
    assert of(found) == of(other)
    return found
