"""The runs of fanin on this machine: each has a folder, which shows whether the run is alive.

The folder is named after the supervisor of the sandbox. It is removed when the run ends; if all that could do so was
killed, by the next run. It names the first process inside, and all others inherit its path. So leftovers can
be distinguished from other users' processes.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fanin.native.trust import replaceable

VARIABLE = "FANIN_RUN"  # in the environment of every process of a run: its folder
_PREFIX = "fanin-run-"
_NAME = re.compile(_PREFIX + r"([0-9]+)-([0-9]+)-([0-9]+)")  # namespace, process, start in clock ticks
_FIRST = "first"  # file in a folder: the first process inside, as it is known outside
_ADVICE = "set TMPDIR to a folder of yours"
_END_SECONDS = 5.0  # for killed processes to end
_LOOK_SECONDS = 0.005


class RunError(Exception):
    """There is no folder for a run. The message explains why and what to do."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run and its folder, fanin-run-NAMESPACE-PID-START: the supervisor's process and its start in clock ticks."""

    folder: Path

    @property
    def supervisor(self) -> int:
        """Return the id of the process outside of the sandbox."""
        return int(self.folder.name.split("-")[-2])

    @property
    def alive(self) -> bool:
        """Return whether its supervisor is still running; another process may have got its number."""
        return _name(self.supervisor) == self.folder.name

    @property
    def age(self) -> float:
        """Return the seconds since its supervisor has started."""
        started = int(self.folder.name.split("-")[-1]) / os.sysconf("SC_CLK_TCK")
        return float(Path("/proc/uptime").read_text().split()[0]) - started

    @property
    def processes(self) -> list[int]:
        """Return the ids of the processes inside, as this user sees them."""
        first = self.read(_FIRST)
        inside = {process for process in all_processes() if first and _identity(process) == first}
        return sorted(inside.union(with_variables({VARIABLE: str(self.folder)})))

    @property
    def process_ids(self) -> dict[int, int]:
        """Return the ids outside of its processes in the sandbox, by their ids inside."""
        found = {}
        for process in self.processes:
            with _if_ours():
                for line in Path(f"/proc/{process}/status").read_text().splitlines():
                    if line.startswith("NSpid:") and len(line.split()) == 3:
                        found[int(line.split()[2])] = process
        return found

    def process(self, inner: int) -> int | None:
        """Return the id outside of the process with the number `inner` in the sandbox."""
        return self.process_ids.get(inner)

    def read(self, name: str) -> str | None:
        """Return the text of a file in the folder; None if there is no such file of this user's.

        Folder and file are opened without following symbolic links, and examined only after that: the folder lies among
        those of other users.
        """
        with _if_ours(), _opened(self.folder) as folder:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(file) as stream:
                found = os.fstat(file)
                if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid():
                    return stream.read()
        return None

    def set_first(self) -> None:
        """Record this process as the first one inside. It still has the /proc of outside."""
        identity = _identity(int(Path("/proc/self").readlink().name))
        assert identity is not None
        (self.folder / _FIRST).write_text(identity)

    def remove(self) -> None:
        """End its processes, if any are left, and delete its folder."""
        end(lambda: self.processes)  # until they have ended, they may put more files into the folder
        shutil.rmtree(self.folder, ignore_errors=True)


def supervised_by(process: int) -> Run:
    """Return the run with this supervisor, whose folder may not exist yet.

    Raises:
        RunError: There is no temporary folder.
    """
    name = _name(process)
    assert name is not None
    with _explaining():
        return Run(Path(tempfile.gettempdir(), name))


def create(supervisor: int | None = None) -> Run:
    """Make the folder of a run, and remove those of dead runs.

    Args:
        supervisor: The process that supervises the run. None is this process.

    Raises:
        RunError: The temporary folder is full or cannot be written to, or other users could replace what is in it.
    """
    with _explaining():
        for dead in all_runs():
            if not dead.alive:
                dead.remove()
        run = supervised_by(supervisor or os.getpid())
        if how := replaceable(run.folder):
            where = run.folder.parent
            raise RunError(f"{where}: other users may replace the files of a run: {how}; {_ADVICE}")
        run.folder.mkdir(mode=0o700)
    return run


@contextmanager
def _explaining() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise RunError(f"no folder for the files of a run: {where}{error.strerror}; {_ADVICE}") from None


def scratch() -> Path | None:
    """Return the folder for the files of this process's run; None outside of any run."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None


def all_runs() -> list[Run]:
    """Return this user's runs in this namespace of processes, dead ones included."""
    found = []
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}{_namespace()}-*")):
        if _NAME.fullmatch(path.name):
            with _if_ours(), _opened(path):
                found.append(Run(path))
    return found


def all_processes() -> list[int]:
    """Return the ids of this user's processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with _if_ours():
            if path.stat().st_uid == os.getuid():
                found.append(int(path.name))
    return found


def with_variables(variables: Mapping[str, str]) -> list[int]:
    """Return the ids of this user's processes that were started with these environment variables."""
    entries = {f"{name}={value}".encode() for name, value in variables.items()}
    found = []
    for process in all_processes():
        with _if_ours():
            if entries <= {*Path(f"/proc/{process}/environ").read_bytes().split(b"\0")}:
                found.append(process)
    return found


def end(processes: Callable[[], Sequence[int]]) -> None:
    """Kill the processes that a function finds, until it finds none."""
    limit = time.monotonic() + _END_SECONDS
    while (left := processes()) and time.monotonic() < limit:
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_LOOK_SECONDS)


def command_line(process: int) -> tuple[str, ...]:
    """Return the command line of a process; empty if it has ended."""
    with _if_ours():
        if words := Path(f"/proc/{process}/cmdline").read_bytes().rstrip(b"\0"):
            return tuple(words.decode(errors="replace").split("\0"))
    return ()


@contextmanager
def _if_ours() -> Iterator[None]:
    """Skip what is gone or belongs to others.

    Raises:
        OSError: This process lacks the resources to look, which proves nothing about what it looks at.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """Open a folder that only this user can write to, and yield its descriptor.

    Raises:
        OSError: The folder is another user's, writable by others, or a symbolic link.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{folder} is not this user's alone")
        yield descriptor
    finally:
        os.close(descriptor)


def _name(process: int) -> str | None:
    """Return the name of the folder of a run with this supervisor; None if there is no such process."""
    identity = _identity(process)
    return f"{_PREFIX}{_namespace()}-{identity}" if identity else None


def _identity(process: int) -> str | None:
    """Return the number of a process and its start in clock ticks, since numbers are reused; None if it has ended.

    Raises:
        OSError: It cannot be determined.
    """
    with _if_ours():
        state, *others = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        if state not in "ZX":  # ended, and perhaps never reaped
            return f"{process}-{others[18]}"
    return None


def _namespace() -> int:
    """Return this namespace of processes. Ids mean nothing in another one, and folders may be shared with it."""
    return Path("/proc/self/ns/pid").stat().st_ino
