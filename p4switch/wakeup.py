"""An event that one thread waits for, and that other threads or the engine set."""

from __future__ import annotations

import os
import select
import weakref


class WakeUp:
    """Wake-up signal for a thread; `event` is its eventfd, which the engine writes to."""

    def __init__(self) -> None:
        self.event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(self, os.close, self.event).atexit = False

    def set(self) -> None:
        """Wake the thread that waits, or the next one to do so."""
        os.eventfd_write(self.event, 1)

    def wait(self, seconds: float | None) -> None:
        """Wait until it is set, or for so many seconds. None waits indefinitely."""
        ready, _, _ = select.select([self.event], [], [], seconds)
        if ready:
            os.eventfd_read(self.event)
