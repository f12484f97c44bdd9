"""The user's cache: what is made once and kept, in a folder that nobody else can write to, and bounded in size."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fanin.native.trust import replaceable

MAX_BYTES = 250_000_000  # of all programs: libraries with their C, and what p4compiler has made
# Seconds after its last use for which a program stays: who asked for it may be about to load it.
RECENT = 86_400.0
SELDOM = 3600.0  # seconds for which nobody looks again for what can go
LOOKED = "looked-for-room"  # a file, of the time when somebody did
# Of our own making; whatever else is in the folder is left alone.
_NAME = re.compile(r"\w+-[0-9a-f]{32}")
_SUFFIXES = (".so", ".c", ".compiled", ".building")


class CacheError(Exception):
    """Nothing can be kept, or nothing that is kept be trusted; the message says how to fix it."""


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/fanin`, usually ~/.cache/fanin.

    Raises:
        CacheError: there is neither.
    """
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        raise CacheError(
            f"user {os.geteuid()} has no home folder to keep programs in; name a folder in $XDG_CACHE_HOME"
        ) from None
    return Path(base) / "fanin"


@contextmanager
def locked(entry: Path) -> Iterator[IO[str]]:
    """Of an entry of the cache: one process at a time makes it, the others wait; yields the open file of the lock.

    Raises:
        CacheError: the folder cannot be written or is full, anybody else could write to it, or nothing can be loaded
            from it.
    """
    folder = entry.parent
    try:
        _check_private(folder)
        lock = _lock(entry.with_suffix(".lock"), "a", fcntl.LOCK_EX)
    except OSError as error:
        fix = "name another folder in $XDG_CACHE_HOME"
        if isinstance(error, PermissionError) and os.access(folder, os.W_OK):  # sudo has been there
            fix = f"a file there is another user's: sudo chown -R {os.geteuid()} {folder}"
        raise CacheError(f"nothing can be kept in {folder}: {error.strerror}; {fix}") from error
    with lock:
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:
            raise CacheError(
                f"no compiled program can be loaded from {folder}, where a file system is mounted with noexec: "
                "name a folder elsewhere in $XDG_CACHE_HOME"
            )
        os.utime(lock.fileno())  # the entry's last use
        try:
            yield lock
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise CacheError(
                f"nothing can be kept in {folder}: {error.strerror}; make room there, or name another folder in "
                "$XDG_CACHE_HOME"
            ) from error


def _lock(path: Path, mode: str, how: int) -> IO[str]:
    """The file, opened in this mode, with a lock on it until everybody has closed it."""
    while True:
        lock = path.open(mode)
        try:
            fcntl.flock(lock, how)
            if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                return lock
        except FileNotFoundError:
            pass
        except BaseException:
            lock.close()
            raise
        lock.close()  # it was removed with its entry while this process waited


@dataclass(frozen=True, slots=True)
class Library:
    """A compiled program, a library with its C, say: its lock, bytes, and the time of its last use."""

    lock: Path
    bytes: int
    used: float

    def remove(self) -> bool:
        """Whether it is gone: not if it is being made, or has been used since it was looked at."""
        try:
            with _lock(self.lock, "r+", fcntl.LOCK_EX | fcntl.LOCK_NB) as lock:
                if os.fstat(lock.fileno()).st_mtime > self.used:
                    return False
                shutil.rmtree(self.lock.with_suffix(".temporary"), ignore_errors=True)
                for suffix in (*_SUFFIXES, ".lock"):  # that last: who waits for it begins anew
                    self.lock.with_suffix(suffix).unlink(missing_ok=True)
        except OSError:
            return False
        return True


def libraries(folder: Path) -> list[Library]:
    """Those in a cache, the ones that have not been used for longest first."""
    found = []
    for lock in folder.glob("*.lock"):
        if _NAME.fullmatch(lock.stem):
            files = [path for suffix in _SUFFIXES if (path := lock.with_suffix(suffix)).exists()]
            with suppress(FileNotFoundError):  # removed by another process
                size = sum(path.stat().st_size for path in files)
                found.append(Library(lock, size, lock.stat().st_mtime))
    return sorted(found, key=lambda library: library.used)


def make_room(folder: Path) -> None:
    """`remove_unused`, but seldom: among thousands of programs it takes as long as to make one."""
    looked = folder / LOOKED
    with suppress(OSError):  # another user's, whom sudo made
        if looked.exists() and abs(time.time() - looked.stat().st_mtime) < SELDOM:
            return
        looked.touch()
    remove_unused(folder)


def remove_unused(folder: Path, keep: int = MAX_BYTES, recent: float = RECENT) -> list[Library]:
    """Removes libraries, the least recently used first, until the others have `keep` bytes; gives those that are gone.

    recent: seconds for which a library stays after its last use, come what may.
    """
    there = libraries(folder)
    excess, before = sum(library.bytes for library in there) - keep, time.time() - recent
    gone = []
    for library in there:
        if excess <= 0 or library.used > before:
            break
        if library.remove():
            gone.append(library)
            excess -= library.bytes
    return gone


def _check_private(path: Path) -> None:
    """The folder is made if need be.

    Raises:
        CacheError: anybody else could put a program into it.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.stat()
    trusted = {os.geteuid()} | ({int(os.environ.get("SUDO_UID", 0))} if os.geteuid() == 0 else set())
    if found.st_uid not in trusted:
        reason = f"it belongs to user {found.st_uid}, not to {os.geteuid()}"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        reason = f"others may write to it (mode {stat.S_IMODE(found.st_mode):04o})"
    elif how := replaceable(path):
        reason = f"others may replace it: {how}"
    else:
        return
    raise CacheError(
        f"{path} cannot be trusted to keep compiled programs: {reason}; remove it, or set $XDG_CACHE_HOME to a "
        "folder of yours"
    )
