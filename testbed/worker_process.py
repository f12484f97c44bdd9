"""A worker's process: it exchanges documents with us, one line each, and is always ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fanin.testbed.mininet_net import MininetNetwork
from fanin.testbed.preloaded import Process, ended

# One thread per worker: workers that all use all cores for linear algebra would only delay one another.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LONGEST_LINE = 1 << 24

# Starts a command on the host of worker `rank`; the rest are options of subprocess.Popen.
Start = Callable[[int, Sequence[str], dict[str, Any]], Process]


def start_on(network: MininetNetwork, hosts: Sequence[str]) -> Start:
    """Return a function that starts workers on these hosts, by rank."""

    def start(rank: int, argv: Sequence[str], options: dict[str, Any]) -> Process:
        return network.host_popen(hosts[rank], argv, **options)

    return start


class WorkerProcess:
    """The process of worker `rank`, started by `argv`. Its standard error is appended to the file `errors`."""

    def __init__(
        self,
        start: Start,
        rank: int,
        argv: Sequence[str],
        errors: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._errors = errors
        self._said: asyncio.StreamReader | None = None
        self._transport: asyncio.ReadTransport | None = None
        with errors.open("ab") as file:
            self._earlier = file.tell()
            options = {
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": file,
                "env": os.environ | _ENVIRONMENT | dict(environment or {}),
            }
            self._process = start(rank, argv, options)

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Return whether it has ended."""
        return self._process.poll() is not None

    def tell(self, document: bytes) -> None:
        """Send a line. A process that has ended does not read it, which `hear` shows."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(document + b"\n")
            self._process.stdin.flush()

    async def hear(self) -> bytes:
        """Return the next line of its output; nothing once it has ended."""
        if self._said is None:
            said = self._said = asyncio.StreamReader(_LONGEST_LINE)
            self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(said), self._process.stdout
            )
        return await self._said.readline()

    async def end(self) -> str:
        """Wait for its end, and return how it ended and the last line of its standard error."""
        status = await ended(self._process)
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        said = self._errors.read_bytes()[self._earlier :].decode(errors="replace")
        last = said.strip().splitlines()[-1:]
        return ": ".join([how, *last])

    def kill(self) -> None:
        """Kill it, if it has not ended."""
        self._process.kill()
        self._process.wait()
        if self._transport is not None:
            self._transport.close()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it has not read everything
                self._process.stdin.close()
