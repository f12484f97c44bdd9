"""What a running pipeline tells its controller unasked, on a thread of its own: digests and idle table entries."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable

from p4switch.engine.engine import Engine
from p4switch.engine.entries import EntryKey
from p4switch.p4runtime.entities.index import Entities
from p4switch.p4runtime.entities.tables import Table
from p4switch.p4runtime.errors import P4RuntimeError
from p4switch.p4runtime.proto import p4r

SHORTEST_SCAN = 10_000_000  # nanoseconds between two looks at the idle entries

_log = logging.getLogger(__name__)


class Notifier:
    """Waits for digests, and scans tables in which entries have timeouts; sleeps while there is nothing to do."""

    def __init__(
        self, engine: Engine, entities: Entities, send: Callable[[p4r.StreamMessageResponse], None]
    ) -> None:
        self._engine = engine
        self._entities = entities
        self._send = send
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._stopping = False
        self._notified: dict[tuple[int, EntryKey], int] = {}  # when an entry's timer began anew
        entities.on_timeouts = self._wake
        engine.keep_digests(self._event)
        self._thread = threading.Thread(target=self._run, name="p4runtime notifier", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._engine.keep_digests(None)
        self._entities.on_timeouts = None
        self._stopping = True
        self._wake()
        self._thread.join()
        os.close(self._event)

    def _wake(self) -> None:
        os.eventfd_write(self._event, 1)

    def _run(self) -> None:
        while not self._stopping:
            wait = self._wait()
            ready, _, _ = select.select([self._event], [], [], wait)
            if ready:
                os.eventfd_read(self._event)
            try:
                self._digests()
                self._idle()
            except P4RuntimeError as error:
                _log.warning("%s", error)
            except Exception:
                _log.exception("the notifier failed")

    def _wait(self) -> float | None:
        """Seconds to sleep at most; None: until woken."""
        waits = []
        deadline = self._entities.digests.deadline()
        if deadline is not None:
            waits.append(max(0, deadline - time.monotonic_ns()))
        timeouts = [
            ns for table in self._entities.tables.values() for ns in list(table.idle_timeouts.values())
        ]
        if timeouts:
            waits.append(max(SHORTEST_SCAN, min(timeouts) // 4))
        return min(waits) / 1e9 if waits else None

    def _digests(self) -> None:
        lists = self._entities.digests.collect(self._engine.digests(), time.monotonic_ns(), time.time_ns())
        for message in lists:
            self._send(p4r.StreamMessageResponse(digest=message))

    def _idle(self) -> None:
        now = 1000 * self._engine.now()
        for table in self._entities.tables.values():
            if table.idle_timeouts:
                expired = self._expired(table, now)
                if expired:
                    entries = [table.entry_message(key) for key in expired]
                    notification = p4r.IdleTimeoutNotification(table_entry=entries, timestamp=time.time_ns())
                    self._send(p4r.StreamMessageResponse(idle_timeout_notification=notification))

    def _expired(self, table: Table, now: int) -> list[EntryKey]:
        """The entries that have been idle for their timeout, since their last packet or notification."""
        expired = []
        for key, idle in table.idle_times().items():
            timeout = table.idle_timeouts.get(key)
            if timeout is None:
                self._notified.pop((table.id, key), None)
                continue
            began = max(now - idle, self._notified.get((table.id, key), 0))
            if now - began >= timeout:
                self._notified[table.id, key] = now
                expired.append(key)
        return expired
