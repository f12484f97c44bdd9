"""What runs of fanin there are on this machine: a folder for each, which says whether it still lives.

A folder is made by the supervisor of a sandbox, is named after it, and is removed when it ends, or, if it was
killed, by the next run. The first process inside is named there, and all others inherit its path: so what is left can
be told from other people's.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fanin.native.trust import replaceable

VARIABLE = "FANIN_RUN"  # in the environment of every process of a run: its folder
_PREFIX = "fanin-run-"
_NAME = re.compile(_PREFIX + r"([0-9]+)-([0-9]+)-([0-9]+)")  # namespace, process, start in clock ticks
_FIRST = "first"  # in a folder: who the first process inside is, as it is known outside


class RunError(Exception):
    """There is no folder for a run; the message says why and what to do."""


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
        first = self.read(_FIRST)
        found = []
        for process in all_processes():
            with _if_ours():
                inherited = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
                if entry in inherited or _identity(process) == first:
                    found.append(process)
        return found

    @property
    def process_ids(self) -> dict[int, int]:
        """Those of its processes that are in the sandbox: their ids outside by those inside."""
        found = {}
        for process in self.processes:
            with _if_ours():
                for line in Path(f"/proc/{process}/status").read_text().splitlines():
                    if line.startswith("NSpid:") and len(line.split()) == 3:
                        found[int(line.split()[2])] = process
        return found

    def process(self, inner: int) -> int | None:
        """The process that has the number `inner` in the sandbox, by its number outside."""
        return self.process_ids.get(inner)

    def read(self, name: str) -> str | None:
        """Return the text of a file in the folder; None if there is no such file of this user's.

        Folder and file are opened without following symbolic links, and looked at only once they are open: the folder
        lies among those of others.
        """
        with _if_ours(), _opened(self.folder) as folder:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(file) as stream:
                found = os.fstat(file)
                if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid():
                    return stream.read()
        return None

    def set_first(self) -> None:
        """This process is the first one inside; it still has the /proc of outside."""
        identity = _identity(int(Path("/proc/self").readlink().name))
        assert identity is not None
        (self.folder / _FIRST).write_text(identity)

    def remove(self) -> None:
        """End its processes, if there are any left, and delete its folder."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


def create() -> Run:
    """Make a folder for a run of which this process is the supervisor, and remove those of dead runs.

    Raises:
        RunError: The temporary folder is full or cannot be written to, or other users could replace what is in it.
    """
    name = _name(os.getpid())
    assert name is not None
    advice = "set TMPDIR to a folder of yours"
    try:
        for run in all_runs():
            if not run.alive:
                run.remove()
        folder = Path(tempfile.gettempdir(), name)
        if how := replaceable(folder):
            raise RunError(f"{folder.parent}: other users may replace the files of a run: {how}; {advice}")
        folder.mkdir(mode=0o700)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise RunError(f"no folder for the files of a run: {where}{error.strerror}; {advice}") from None
    return Run(folder)


def scratch() -> Path | None:
    """Where the files of the run go that this process belongs to; None outside of any."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None


def all_runs() -> list[Run]:
    """This user's runs in this namespace of processes, the dead ones as well."""
    found = []
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}{_namespace()}-*")):
        if _NAME.fullmatch(path.name):
            with _if_ours(), _opened(path):
                found.append(Run(path))
    return found


def all_processes() -> list[int]:
    """The ids of this user's processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with _if_ours():
            if path.stat().st_uid == os.getuid():
                found.append(int(path.name))
    return found


def command_line(process: int) -> tuple[str, ...]:
    """What a process was started as; empty if it has ended."""
    with _if_ours():
        if words := Path(f"/proc/{process}/cmdline").read_bytes().rstrip(b"\0"):
            return tuple(words.decode(errors="replace").split("\0"))
    return ()


@contextmanager
def _if_ours() -> Iterator[None]:
    """Skip what has gone or belongs to others.

    Raises:
        OSError: This process has no room to look, which says nothing about what it looks at.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """A descriptor of a folder that is this user's alone.

    Raises:
        OSError: It is none: another user's, writable by others, or a symbolic link.
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
    """What the folder of a run with this supervisor is called; None if there is no such process."""
    identity = _identity(process)
    return f"{_PREFIX}{_namespace()}-{identity}" if identity else None


def _identity(process: int) -> str | None:
    """Its number and its start in clock ticks, since another may get the number; None if there is no such process.

    Raises:
        OSError: It cannot be found out.
    """
    with _if_ours():
        stat = Path(f"/proc/{process}/stat").read_text()
        return f"{process}-{stat.rpartition(')')[2].split()[19]}"
    return None


def _namespace() -> int:
    """Process ids mean nothing in another one, and folders may be shared with it."""
    return Path("/proc/self/ns/pid").stat().st_ino
