"""Notifications from a running pipeline to its controllers, on a separate thread: digests and idle table entries."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import EntryKey
from fanin.p4switch.p4runtime.controllers import Controllers
from fanin.p4switch.p4runtime.entities.digests import Digests
from fanin.p4switch.p4runtime.entities.registry import Entities
from fanin.p4switch.p4runtime.entities.table_entries import TableEntries
from fanin.p4switch.p4runtime.errors import P4RuntimeError
from fanin.p4switch.p4runtime.proto import p4r

SHORTEST_SCAN = 10_000_000  # nanoseconds between two scans for idle entries

_log = logging.getLogger(__name__)


class Notifier:
    """Thread that sends digests and notifications of idle entries, and sleeps while there is nothing to do."""

    def __init__(self, engine: Engine, entities: Entities, controllers: Controllers) -> None:
        self._engine = engine
        self._digests, self._entries = entities.of(Digests), entities.of(TableEntries)
        self._controllers = controllers
        self._wakeup = entities.wakeup
        self._stopping = False
        self._notified: dict[tuple[int, EntryKey], int] = {}  # when an entry's timer was last restarted
        engine.keep_digests(self._wakeup.event)
        self._thread = threading.Thread(target=self._run, name="p4runtime notifier", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._engine.keep_digests(None)
        self._stopping = True
        self._wakeup.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._wakeup.wait(self._longest_sleep())
            try:
                self._send_digests()
                self._send_idle()
            except P4RuntimeError as error:
                _log.warning("%s", error)
            except Exception:
                _log.exception("the notifier failed")

    def _longest_sleep(self) -> float | None:
        """Return the seconds to sleep; None means until woken."""
        waits = []
        deadline = self._digests.deadline()
        if deadline is not None:
            waits.append(max(0, deadline - time.monotonic_ns()))
        timeouts = [ns for by_key in self._entries.timeouts().values() for ns in by_key.values()]
        if timeouts:
            waits.append(max(SHORTEST_SCAN, min(timeouts) // 4))
        return min(waits) / 1e9 if waits else None

    def _send_digests(self) -> None:
        for message in self._digests.collect(self._engine.digests(), time.monotonic_ns(), time.time_ns()):
            self._controllers.send(p4r.StreamMessageResponse(digest=message))

    def _send_idle(self) -> None:
        now = 1000 * self._engine.now()
        for table_id, timeouts in self._entries.timeouts().items():
            expired = self._expired(table_id, timeouts, now)
            if expired:
                entries = [self._entries.idle_entry(table_id, key) for key in expired]
                notification = p4r.IdleTimeoutNotification(table_entry=entries, timestamp=time.time_ns())
                self._controllers.send(p4r.StreamMessageResponse(idle_timeout_notification=notification))

    def _expired(self, table_id: int, timeouts: Mapping[EntryKey, int], now: int) -> list[EntryKey]:
        """Return the entries that have been idle for their timeout, since their last packet or notification."""
        expired = []
        for key, idle in self._entries.idle_times(table_id).items():
            timeout = timeouts.get(key)
            if timeout is None:
                self._notified.pop((table_id, key), None)
                continue
            began = max(now - idle, self._notified.get((table_id, key), 0))
            if now - began >= timeout:
                self._notified[table_id, key] = now
                expired.append(key)
        return expired
