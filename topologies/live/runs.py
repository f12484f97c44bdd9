"""What runs of fanin there are on this machine: a folder for each, which says whether it still lives.

A folder is made by the supervisor of a sandbox, is named after it, and is removed when it ends, or, if it was
killed, by the next run. The first process inside is named there, and all others inherit its path: so what is left can
be told from other people's.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "FANIN_RUN"  # in the environment of every process of a run: its folder
_PREFIX = "fanin-run-"
_FIRST = "first"  # in a folder: who the first process inside is, as it is known outside


@dataclass(frozen=True, slots=True)
class Run:
    """A run by its folder, fanin-run-NAMESPACE-PID-START: the supervisor's process and its start in clock ticks."""

    folder: Path

    @property
    def supervisor(self) -> int:
        """The process outside of the sandbox."""
        return int(self.folder.name.split("-")[-2])

    @property
    def alive(self) -> bool:
        """Whether its supervisor is still there; another process may have got its number."""
        return _name(self.supervisor) == self.folder.name

    @property
    def age(self) -> float:
        """Seconds since its supervisor has started."""
        started = int(self.folder.name.split("-")[-1]) / os.sysconf("SC_CLK_TCK")
        return float(Path("/proc/uptime").read_text().split()[0]) - started

    @property
    def processes(self) -> list[int]:
        """The ids of the processes inside, as this user may see them."""
        entry = f"{VARIABLE}={self.folder}".encode()
        try:
            first = (self.folder / _FIRST).read_text()
        except OSError:
            first = ""
        found = []
        for process in all_processes():
            with suppress(OSError):
                inherited = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                if entry in inherited or _identity(process) == first:
                    found.append(process)
        return found

    @property
    def process_ids(self) -> dict[int, int]:
        """Those of its processes that are in the sandbox: their ids outside by those inside."""
        found = {}
        for process in self.processes:
            with suppress(OSError):
                for line in Path(f"/proc/{process}/status").read_text().splitlines():
                    if line.startswith("NSpid:") and len(line.split()) == 3:
                        found[int(line.split()[2])] = process
        return found

    def process(self, inner: int) -> int | None:
        """The process that has the number `inner` in the sandbox, by its number outside."""
        return self.process_ids.get(inner)

    def set_first(self) -> None:
        """This process is the first one inside; it still has the /proc of outside."""
        identity = _identity(int(Path("/proc/self").readlink().name))
        assert identity is not None
        (self.folder / _FIRST).write_text(identity)

    def remove(self) -> None:
        """Ends its processes, if there are any left, and deletes its folder."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def create() -> Run:
    """A folder for a run of which this process is the supervisor; those of dead runs are removed."""
    for run in all_runs():
        if not run.alive:
            run.remove()
    name = _name(os.getpid())
    assert name is not None
    folder = Path(tempfile.gettempdir(), name)
    folder.mkdir(mode=0o700)
    return Run(folder)


def scratch() -> Path | None:
    """Where the files of the run go that this process belongs to; None outside of any."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None


def all_runs() -> list[Run]:
    """This user's runs in this namespace of processes, the dead ones as well."""
    mine = Path(tempfile.gettempdir()).glob(f"{_PREFIX}{_namespace()}-*-*")
    return [Run(path) for path in sorted(_own(mine))]


def all_processes() -> list[int]:
    """The ids of this user's processes."""
    return [int(path.name) for path in _own(Path("/proc").glob("[0-9]*"))]


def command_line(process: int) -> tuple[str, ...]:
    """What a process was started as; empty if it has ended."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().rstrip(b"\0")
    except OSError:
        return ()
    return tuple(words.decode(errors="replace").split("\0")) if words else ()


def _own(paths: Iterator[Path]) -> Iterator[Path]:
    for path in paths:
        with suppress(OSError):
            if path.stat().st_uid == os.getuid():
                yield path


def _name(process: int) -> str | None:
    """What the folder of a run with this supervisor is called; None if there is no such process."""
    identity = _identity(process)
    return f"{_PREFIX}{_namespace()}-{identity}" if identity else None


def _identity(process: int) -> str | None:
    """Its number and its start in clock ticks, since another may get the number; None if there is no such process."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    return f"{process}-{stat.rpartition(')')[2].split()[19]}"


def _namespace() -> int:
    """Process ids mean nothing in another one, and folders may be shared with it."""
    return Path("/proc/self/ns/pid").stat().st_ino
