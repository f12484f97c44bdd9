"""A worker's process: told and telling documents, a line each, and ended whatever happens."""

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

# One thread a worker: linear algebra on all cores in each of them would only make them wait for one another.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LONGEST_LINE = 1 << 24

# Starts a command where worker `rank` lives; the rest are options of subprocess.Popen.
Start = Callable[[int, Sequence[str], dict[str, Any]], Process]


def start_on(network: MininetNetwork, hosts: Sequence[str]) -> Start:
    """Workers live on these hosts, by rank."""

    def start(rank: int, argv: Sequence[str], options: dict[str, Any]) -> Process:
        return network.host_popen(hosts[rank], argv, **options)

    return start


class WorkerProcess:
    """The process of worker `rank`, which `argv` starts; its standard error is added to the file `errors`."""

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
        """Its number."""
        return self._process.pid

    def tell(self, document: bytes) -> None:
        """A line; one that has ended does not take it, which `hear` tells."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(document + b"\n")
            self._process.stdin.flush()

    async def hear(self) -> bytes:
        """The next line that it says; nothing once it has ended."""
        if self._said is None:
            said = self._said = asyncio.StreamReader(_LONGEST_LINE)
            self._transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(said), self._process.stdout
            )
        return await self._said.readline()

    async def end(self) -> str:
        """How it has ended, once it has, and the last line of its standard error."""
        status = await ended(self._process)
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        said = self._errors.read_bytes()[self._earlier :].decode(errors="replace")
        last = said.strip().splitlines()[-1:]
        return ": ".join([how, *last])

    def kill(self) -> None:
        """End it, if it has not."""
        self._process.kill()
        self._process.wait()
        if self._transport is not None:
            self._transport.close()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # of what it has not read
                self._process.stdin.close()
