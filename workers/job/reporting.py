"""The reports of a running worker to the job service, so that a hanging worker is noticed by its silence."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from fanin.workers.udp import SocketWorker

_SECONDS = 1.0  # between reports
_RANGES = 64  # ranges of chunks in a report, which keep it far smaller than a socket buffer


class Reporter:
    """The reports of one worker.

    Args:
        worker: The worker.
        send_or_drop: Sends a message, or drops it instead of waiting.
    """

    def __init__(self, worker: SocketWorker, send_or_drop: Callable[[Mapping[str, Any]], None]) -> None:
        self._worker = worker
        self._send_or_drop = send_or_drop
        self._next = 0.0
        self._told_of_waiting = False

    def look(self, now: float) -> None:
        """Report if it is time to, or if an all-reduce that was reported as waiting has ended."""
        if now >= self._next or (self._told_of_waiting and self._worker.finished):
            self._next = now + _SECONDS
            report = self._report(now)
            self._told_of_waiting = report["waiting"] is not None
            self._send_or_drop({"report": report})

    def _report(self, now: float) -> dict[str, Any]:
        statistics, waiting = self._worker.statistics, self._worker.outstanding(now)
        told = {each.name: getattr(statistics, each.name) for each in fields(statistics)}
        if waiting is None:
            return told | {"waiting": None}
        awaited = {each.name: getattr(waiting, each.name) for each in fields(waiting) if each.name != "lease"}
        return told | {"waiting": awaited | {"chunks": waiting.chunks[:_RANGES]}}
