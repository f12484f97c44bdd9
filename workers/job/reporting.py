"""What a worker tells the job service of itself while it runs, so that a worker that hangs is known by its silence."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from fanin.workers.protocol import Worker

_SECONDS = 1.0  # between reports
_RANGES = 64  # of chunks: a report stays far below what a socket takes at once


class Reporter:
    """Of `worker`. mention: sends a message, or drops it rather than wait."""

    def __init__(self, worker: Worker, mention: Callable[[Mapping[str, Any]], None]) -> None:
        self._worker = worker
        self._mention = mention
        self._next = 0.0
        self._told_of_waiting = False

    def look(self, now: float) -> None:
        """Report if it is time to, or if an all-reduce has ended of which it was said that it waits."""
        if now >= self._next or (self._told_of_waiting and self._worker.finished):
            self._next = now + _SECONDS
            report = self._report(now)
            self._told_of_waiting = report["waiting"] is not None
            self._mention({"report": report})

    def _report(self, now: float) -> dict[str, Any]:
        statistics, waiting = self._worker.statistics, self._worker.outstanding(now)
        told = {each.name: getattr(statistics, each.name) for each in fields(statistics)}
        if waiting is None:
            return told | {"waiting": None}
        awaited = {each.name: getattr(waiting, each.name) for each in fields(waiting) if each.name != "lease"}
        return told | {"waiting": awaited | {"chunks": waiting.chunks[:_RANGES]}}
