"""A process that is the controller of a running network, or waits to become it.

Messages are pickled, each after its length: both ends are the same program.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.controller.tree import Tree
from fanin.testbed.preloaded import Process, ended, start
from fanin.testbed.switch_processes import memory_limit_hint
from fanin.topologies.model import Topology

_LENGTH = struct.Struct("=I")
_ANSWER_SECONDS = 120.0  # longer than a controller waits for any answer of a switch
_LEAVE_SECONDS = 5.0
BEAT_SECONDS = 1.0  # between two heartbeats, which are None instead of an answer
_SILENT_SECONDS = 10.0  # a process without a heartbeat for so long counts as not running


@dataclass(frozen=True, slots=True)
class Setup:
    """Configuration of a controller.

    Attributes:
        topology: The network.
        p4info: P4Info of the program, serialized.
        device_config: The compiled program.
        ledger: File of the numbers that leases have used.
        patience: Factor by which time limits are stretched.
        planner: File of a user's planner, or None.
        log: Log file; see fanin.testbed.monitoring.logs.
        in_force: Leases in force. None means that the switches have no program yet.
        election_id: P4Runtime election id.
        standby: Whether it is a backup with this election id until it gets another setup.
    """

    topology: Topology
    p4info: bytes
    device_config: bytes
    ledger: Path
    patience: float
    planner: Path | None
    log: Path | None = None
    in_force: tuple[Tree, ...] | None = None
    election_id: int = 0
    standby: bool = False


class ControllerSubprocess:
    """A controller process, created by `start`. `patience` stretches its time limits."""

    def __init__(
        self,
        process: Process,
        asked: asyncio.StreamWriter,
        answers: asyncio.StreamReader,
        pipe: asyncio.BaseTransport,
        patience: float,
    ) -> None:
        self._process = process
        self._asked = asked
        self._answers = answers
        self._pipe = pipe
        self._patience = patience
        self._silence: float | None = None
        self._ended_for = ""

    @classmethod
    async def start(cls, patience: float) -> ControllerSubprocess:
        """Start a process that waits for its setup.

        Raises:
            OSError: It cannot be started.
        """
        starting = asyncio.ensure_future(cls._start(patience))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread cannot be stopped, and nothing else would end the process that it starts.
            with suppress(OSError):
                await (await starting).kill()
            raise

    @classmethod
    async def _start(cls, patience: float) -> ControllerSubprocess:
        process = await asyncio.to_thread(
            start,
            (sys.executable, "-P", "-m", "fanin.testbed.control.controller_main"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "GRPC_VERBOSITY": "NONE"},  # its C core prints between our own messages
        )
        loop, answers = asyncio.get_running_loop(), asyncio.StreamReader()
        pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(answers), process.stdout)
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), process.stdin
        )
        return cls(process, asyncio.StreamWriter(transport, protocol, None, loop), answers, pipe, patience)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def end_if_silent(self) -> None:
        """End the process, from now on, when it is silent during a request. It must have answered once before."""
        self._silence = _SILENT_SECONDS * self._patience

    async def ask(self, message: object) -> Any:
        """Return the answer to a setup or a call.

        Raises:
            ControllerError: This is the answer.
            TimeoutError: The process does not answer.
            OSError: The process has ended.
            IncompleteReadError: The process has ended.
        """
        self._asked.write(packed(message))
        async with asyncio.timeout(_ANSWER_SECONDS * self._patience) as in_all:
            try:
                done, answer = await self._answer()
            except TimeoutError:
                if in_all.expired():
                    raise
                self._ended_for = f"has given no sign of life for {self._silence:g} s, and was ended"
                await self.kill()
                raise asyncio.IncompleteReadError(b"", None) from None
        if not done:
            raise answer
        return answer

    async def _answer(self) -> Any:
        async with asyncio.timeout(self._silence):
            await self._asked.drain()
        message = None
        while message is None:
            async with asyncio.timeout(self._silence):
                message = await read(self._answers)
        return message

    async def ended(self) -> None:
        """Wait until the process has ended."""
        await ended(self._process)

    async def how_it_ended(self) -> str:
        """Return how the process has ended, and end it if it has not."""
        if self._ended_for:
            return self._ended_for
        try:
            async with asyncio.timeout(1.0):
                status = await ended(self._process)
        except TimeoutError:
            await self.kill()
            return f"has not answered for {_ANSWER_SECONDS * self._patience:g} s, and was ended"
        self._hang_up()
        how = f"status {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
        return f"has ended with {how}{memory_limit_hint()}"

    async def kill(self) -> None:
        """Kill the process."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await ended(self._process)
        self._hang_up()

    def _hang_up(self) -> None:
        if not self._asked.is_closing():
            self._asked.transport.abort()  # also discards what it has not read
        self._pipe.close()

    async def close(self) -> None:
        """Let the process leave the switches, and end it."""
        self._asked.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS * self._patience):
                await ended(self._process)
        await self.kill()


def packed(message: object) -> bytes:
    """Return a message as `read` expects it."""
    content = pickle.dumps(message)
    return _LENGTH.pack(len(content)) + content


async def read(source: asyncio.StreamReader) -> Any:
    """Return the next message.

    Raises:
        IncompleteReadError: The other end is gone.
    """
    (length,) = _LENGTH.unpack(await source.readexactly(_LENGTH.size))
    return pickle.loads(await source.readexactly(length))
