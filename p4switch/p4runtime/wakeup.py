"""An event that one thread sleeps for, and that others, or the engine, set."""

from __future__ import annotations

import os
import select
import weakref


class WakeUp:
    """`event` is its eventfd, which the engine writes to."""

    def __init__(self) -> None:
        self.event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self.event).atexit = False

    def set(self) -> None:
        """Wakes the thread that waits, or the next one to do so."""
        os.eventfd_write(self.event, 1)

    def wait(self, seconds: float | None) -> None:
        """Returns once it has been set since the last time, or after so many seconds."""
        ready, _, _ = select.select([self.event], [], [], seconds)
        if ready:
            os.eventfd_read(self.event)
