"""Worker processes on this host, on the loopback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fanin.testbed.preloaded import Process
from tests.preloading import start


class LocalWorkerGroup:
    """Starts workers on this host and remembers them."""

    def __init__(self) -> None:
        self.processes: list[Process] = []

    def start(self, _rank: int, argv: Sequence[str], options: dict[str, Any]) -> Process:
        self.processes.append(start(argv, **options))
        return self.processes[-1]
