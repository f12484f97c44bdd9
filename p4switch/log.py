"""The switch's log in the format of BMv2's: lines about packets, and the messages of the program."""

from __future__ import annotations

import logging
import select
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fanin.native.text import counted
from fanin.p4switch.wakeup import WakeUp

if TYPE_CHECKING:
    from fanin.p4switch.engine.engine import Engine

LOGGER = "bmv2"  # its records are lines of the log as they are
_PAUSE = 0.1  # seconds between two reads of messages

_log = logging.getLogger(LOGGER)
_log.setLevel(logging.INFO)  # whoever writes a line about a packet has looked at BMv2's level


def write_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Log lines as BMv2 does, each with the first letter of its level (T, D, I, W or E) and its text."""
    now = time.time()
    clock = f"{time.strftime('%H:%M:%S', time.localtime(now))}.{int(now % 1 * 1000):03}"
    thread = threading.get_native_id()
    wanted = "E" if not _log.isEnabledFor(logging.INFO) else "TDIWE"
    text = "\n".join(
        f"[{clock}] [bmv2] [{level}] [thread {thread}] {text}" for level, text in lines if level in wanted
    )
    if text:
        _log.error("%s", text)


class MessageLog:
    """Log of what log_msg(), failed assertions and limits report in the engine that it follows."""

    def __init__(self) -> None:
        self._wakeup = WakeUp()
        self._lock = threading.Lock()
        self._engine: Engine | None = None

    def follow(self, engine: Engine) -> None:
        """Log the messages of this engine from now on, after the last ones of the engine before."""
        with self._lock:
            if self._engine is not None:
                self._write(self._engine)
                self._engine.wake_for_messages(None)
            self._engine = engine
            engine.wake_for_messages(self._wakeup.event)

    def write(self) -> None:
        """Log the messages since the last call."""
        with self._lock:
            if self._engine is not None:
                self._write(self._engine)

    def write_until(self, ended: int) -> None:
        """Log messages until the file descriptor `ended` can be read."""
        while True:
            ready, _, _ = select.select([ended, self._wakeup.event], [], [])
            if ended in ready:
                return
            self._wakeup.wait(0)
            self.write()
            # A program may have a message for each packet: the switch keeps what comes meanwhile, up to a limit.
            if select.select([ended], [], [], _PAUSE)[0]:
                return

    @staticmethod
    def _write(engine: Engine) -> None:
        messages, lost = engine.messages()
        lines = [(message.level[0].upper(), message.text) for message in messages]
        if lost:
            there = counted(lost, "message") + (" was" if lost == 1 else " were")
            lines.append(("E", f"{there} left out: the program reports more than can be written"))
        write_lines(lines)
