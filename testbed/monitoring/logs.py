"""The log of a running network: lines of JSON from the controller, the job service, and workers that wait."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from fanin.testbed.monitoring.snapshot import JobView
from fanin.testbed.monitoring.waiting import waited_for, waiters

# Fields of a record besides its text, given by logging's `extra`.
_FIELDS = ("job", "lease", "hosts", "host", "pid", "switch", "all_reduce", "chunks", "slots", "waited_for")

_logger = logging.getLogger(__name__)
_logger.addHandler(logging.NullHandler())  # no output unless a program adds a handler


class JsonLines(logging.Formatter):
    """Formats a record as a line of JSON: time (UTC), level, logger, message, and those of our fields that it has."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        told = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told | {name: vars(record)[name] for name in _FIELDS if name in vars(record)})


@contextmanager
def logging_to(file: Path) -> Iterator[None]:
    """Append what is logged at INFO and above to `file`, inside the context.

    Raises:
        OSError: The file cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(file)
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("fanin")  # parent of all our loggers
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        handler.close()


class Stalls:
    """Logs when a worker begins to wait, and when it continues."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, float, str], int] = {}  # all-reduce, by job, its start, and host

    def look(self, jobs: Iterable[JobView], now: float) -> None:
        """Log what has changed in `jobs` at `now`, in seconds of the Unix epoch."""
        found: dict[tuple[str, float, str], int] = {}
        for job in jobs:
            missing = [job.named(worker) for worker in waited_for(job, now)]
            for worker in waiters(job, now):
                assert worker.report is not None
                waiting = worker.report.waiting
                assert waiting is not None
                key = (job.name, job.since, worker.host)
                found[key] = waiting.all_reduce
                if self._waiting.get(key) == waiting.all_reduce:
                    continue
                _logger.warning(
                    "%s waits for %d of %d chunks, nothing new for %.1f s",
                    worker.host,
                    waiting.total - waiting.accepted,
                    waiting.total,
                    waiting.silent,
                    extra={
                        "job": job.name,
                        "lease": job.lease,
                        "host": worker.host,
                        "pid": worker.process,
                        "all_reduce": waiting.all_reduce,
                        "chunks": waiting.chunks,
                        "waited_for": missing,
                    },
                )
        for name, _, host in self._waiting.keys() - found.keys():
            _logger.info("%s no longer waits", host, extra={"job": name, "host": host})
        self._waiting = found
