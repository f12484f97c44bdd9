"""Functions that tests call in processes of their own."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(status: int) -> None:
    os._exit(status)


class Gate:
    """Where calls of `pass_through` wait in a folder, and say that they have begun and ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("events", "open"):
            os.mkfifo(folder / name)
        # For both directions, so that opening does not wait for the other end.
        self._events = os.fdopen(os.open(folder / "events", os.O_RDWR))
        self._open = os.open(folder / "open", os.O_RDWR)
        self.running: set[int] = set()
        self.most = 0

    def hear(self) -> int:
        """The process that begins or ends next."""
        process = int(self._events.readline())
        self.running ^= {process}
        self.most = max(self.most, len(self.running))
        return process

    def let_through(self, count: int) -> None:
        os.write(self._open, b"x" * count)

    def close(self) -> None:
        self._events.close()
        os.close(self._open)


def pass_through(folder: Path) -> int:
    """The process, when the gate lets it through."""
    with (folder / "events").open("w") as events, (folder / "open").open("rb", buffering=0) as gate:
        print(os.getpid(), file=events, flush=True)
        gate.read(1)
        print(os.getpid(), file=events, flush=True)
    return os.getpid()
