"""The sessions of pages: one process for each, in a sandbox, which lives as long as its page is open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fanin.classroom.confine import COMPLAINT, Confinement, files_of_fanin
from fanin.native.cache import cache_directory
from fanin.testbed.patience import setting

LONGEST_ANSWER = 16 << 20  # bytes
SECONDS = 60.0  # in which a request must be answered
_FIRST_USER = 500  # the grader's sandboxes, which may run at the same time, have smaller numbers
_CPU_SECONDS = 900  # of one session's process; after that the next request starts another
_COMPILED = "/compiled"
_WORKER = (sys.executable, "-P", "-m", "fanin.browser.playground.worker")
# Of a program that shows all parts of fanin that a session compiles: the switch, and its traces.
_SMALLEST = """#include <core.p4>
#include <v1model.p4>
struct none {}
parser p(packet_in b, out none h, inout none m, inout standard_metadata_t s) { state start { transition accept; } }
control c(inout none h, inout none m) { apply {} }
control i(inout none h, inout none m, inout standard_metadata_t s) { apply {} }
control d(packet_out b, in none h) { apply {} }
V1Switch(p(), c(), i(), i(), c(), d()) main;
"""


class BusyError(Exception):
    """All sessions are taken."""


@dataclass(slots=True)
class Sessions:
    """The sessions of one server.

    Attributes:
        most: How many there may be at the same time.
        confined: Whether their processes are in sandboxes. Without, they may do what the user may.
        seconds: Seconds in which a request must be answered.
        memory_bytes: Limit of the addresses of each process of a session.
    """

    most: int
    confined: bool
    seconds: float = SECONDS
    memory_bytes: int = 3 << 30
    _free: list[int] = field(default_factory=list)
    _compiled: Path = Path()

    @contextlib.asynccontextmanager
    async def prepared(self) -> AsyncIterator[None]:
        """Compile what all sessions need, and keep it while they run.

        Raises:
            CacheError: The cache folder cannot be used.
        """
        self._free = list(range(self.most))
        with tempfile.TemporaryDirectory(prefix="fanin-play-") as made:
            files = {"files": {"smallest.p4": _SMALLEST}, "main": "smallest.p4"}
            request = {"do": "run", **files, "scenario": {"packets": [{"port": 1, "hex": ""}]}}
            # In a session of its own: after Ctrl-C, Python would print where it was interrupted.
            compiling = await asyncio.create_subprocess_exec(
                *_WORKER,
                made,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                await compiling.communicate(json.dumps(request).encode() + b"\n")
            finally:
                if compiling.returncode is None:
                    os.killpg(compiling.pid, signal.SIGKILL)
                    await compiling.wait()
            self._compiled = Path(made, "compiled")
            self._compiled.mkdir()
            for library in cache_directory().glob("runtime-*.so"):
                shutil.copy(library, self._compiled)
            for each in (Path(made), self._compiled, *self._compiled.iterdir()):
                each.chmod(0o755)  # for the users of the sandboxes, who see only this folder
            yield

    @contextlib.asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Take a session, and end its process afterwards.

        Raises:
            BusyError: All are taken.
        """
        if not self._free:
            raise BusyError(f"{self.most} pages are open, and no more may be: close one, or use --sessions")
        number = self._free.pop()
        try:
            with tempfile.TemporaryDirectory(prefix="fanin-play-") as place:
                session = Session(self, number, Path(place))
                try:
                    yield session
                finally:
                    await session.end()
        finally:
            self._free.append(number)

    def command(self, number: int, place: Path) -> tuple[list[str], dict[str, str]]:
        """Return the command of a session's process, and its environment."""
        if not self.confined:
            own = {"XDG_CACHE_HOME": str(place), "TMPDIR": str(place)}
            return [*_WORKER, str(place / "program"), str(self._compiled)], {**os.environ, **own}
        root = place / "root"
        root.mkdir(exist_ok=True)
        box = Confinement(
            root=str(root),
            shown=files_of_fanin(),
            mounted={_COMPILED: str(self._compiled)},
            masked=[],
            user=_FIRST_USER + number,
            disk_bytes=128 << 20,
            memory_bytes=self.memory_bytes,
            processes=64,
            cpu_seconds=_CPU_SECONDS,
        )
        return box.command(*_WORKER, "/tmp/program", _COMPILED), dict(os.environ)


class Session:
    """One page's process. It is started when it is asked, and again when it has ended."""

    def __init__(self, sessions: Sessions, number: int, place: Path) -> None:
        self._sessions = sessions
        self._number = number
        self._place = place
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, request: str) -> str:
        """Send a request, a line of JSON, and return the answer. Whatever goes wrong is an answer, too."""
        try:
            line = json.dumps(json.loads(request)).encode() + b"\n"
        except (ValueError, RecursionError):
            return json.dumps({"error": "this is no request"})
        try:
            async with asyncio.timeout(self._sessions.seconds * setting()):
                return await self._answer(line)
        except TimeoutError:
            problem = f"stopped: this took longer than {self._sessions.seconds:g} s"
        except (OSError, ValueError, EOFError):
            said = (self._place / "complaint").read_text(errors="replace")
            problem = (
                said.strip()
                if said.startswith(COMPLAINT)
                else "stopped: it reached a limit of memory or time"
            )
        await self.end()
        return json.dumps({"error": problem})

    async def _answer(self, line: bytes) -> str:
        if self._process is None:
            command, environment = self._sessions.command(self._number, self._place)
            with (self._place / "complaint").open("wb") as complaint:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=complaint,
                    env=environment,
                    start_new_session=True,
                    limit=LONGEST_ANSWER + 1,
                )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        await self._process.stdin.drain()
        answered = await self._process.stdout.readline()
        if not answered.endswith(b"\n"):
            raise EOFError
        return answered.decode()

    async def end(self) -> None:
        """End the process, and with it the sandbox."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            self._process = None
