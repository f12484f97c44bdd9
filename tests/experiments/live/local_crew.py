"""Worker processes on this host, on the loopback."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any


class Crew:
    """Starts workers on this host and remembers them."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, _rank: int, argv: Sequence[str], options: dict[str, Any]) -> subprocess.Popen[bytes]:
        self.processes.append(subprocess.Popen(argv, **options))
        return self.processes[-1]
