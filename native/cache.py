"""The user's cache of compiled programs: bounded in size, in a folder that nobody else can write to."""

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

MAX_BYTES = 250_000_000  # of all entries together: libraries with their C, and output of p4compiler
# An entry is kept for so many seconds after its last use: a process that asked for it may be about to load it.
RECENT = 86_400.0
SELDOM = 3600.0  # seconds between two searches for entries to remove
LOOKED = "looked-for-room"  # a file whose modification time is that of the last search
# Only files with such names are ours; all others in the folder are left alone.
_NAME = re.compile(r"\w+-[0-9a-f]{32}")
_SUFFIXES = (".so", ".c", ".compiled", ".building")


class CacheError(Exception):
    """A cache folder that cannot be written to or cannot be trusted; the message explains how to fix it."""


def cache_directory() -> Path:
    """Return the cache folder, `$XDG_CACHE_HOME/fanin`, usually ~/.cache/fanin.

    Raises:
        CacheError: If $XDG_CACHE_HOME is not set and the user has no home folder.
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
    """Lock an entry of the cache, so that one process at a time makes it, and yield the open lock file.

    Raises:
        CacheError: If the folder is full or cannot be written to, if another user could write to it, or if its file
            system does not allow programs to be loaded from it.
    """
    folder = entry.parent
    try:
        _check_private(folder)
        lock = _lock(entry.with_suffix(".lock"), "a", fcntl.LOCK_EX)
    except OSError as error:
        fix = "name another folder in $XDG_CACHE_HOME"
        if isinstance(error, PermissionError) and os.access(folder, os.W_OK):  # left there by sudo
            fix = f"a file there belongs to another user: sudo chown -R {os.geteuid()} {folder}"
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
    """Open the file and lock it until all processes have closed it (`how`: flags of flock)."""
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
    """A compiled program in the cache, such as a library with its C.

    Attributes:
        lock: The path of its lock file, which is touched whenever the program is used.
        bytes: The size of its files.
        used: The time of its last use, in seconds since the epoch.
    """

    lock: Path
    bytes: int
    used: float

    def remove(self) -> bool:
        """Remove the program and return whether that succeeded.

        It fails if the program is being made, or has been used since this object was made.
        """
        try:
            with _lock(self.lock, "r+", fcntl.LOCK_EX | fcntl.LOCK_NB) as lock:
                if os.fstat(lock.fileno()).st_mtime > self.used:
                    return False
                shutil.rmtree(self.lock.with_suffix(".temporary"), ignore_errors=True)
                for suffix in (
                    *_SUFFIXES,
                    ".lock",
                ):  # the lock last: a process that waits for it then starts again
                    self.lock.with_suffix(suffix).unlink(missing_ok=True)
        except OSError:
            return False
        return True


def libraries(folder: Path) -> list[Library]:
    """Return the programs in a cache folder, the least recently used first."""
    found = []
    for lock in folder.glob("*.lock"):
        if _NAME.fullmatch(lock.stem):
            files = [path for suffix in _SUFFIXES if (path := lock.with_suffix(suffix)).exists()]
            with suppress(FileNotFoundError):  # removed by another process
                size = sum(path.stat().st_size for path in files)
                found.append(Library(lock, size, lock.stat().st_mtime))
    return sorted(found, key=lambda library: library.used)


def make_room(folder: Path) -> None:
    """Call `remove_unused`, at most once in SELDOM seconds: in a large cache it takes as long as a compilation."""
    looked = folder / LOOKED
    with suppress(OSError):  # the file may belong to another user if sudo was used
        if looked.exists() and abs(time.time() - looked.stat().st_mtime) < SELDOM:
            return
        looked.touch()
    remove_unused(folder)


def remove_unused(folder: Path, keep: int = MAX_BYTES, recent: float = RECENT) -> list[Library]:
    """Remove programs, the least recently used first, until those that are left fit into `keep` bytes.

    Args:
        folder: The cache folder.
        keep: Bytes that may be kept.
        recent: Seconds after its last use for which a program is never removed.

    Returns:
        The programs that were removed.
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
    """Make the folder if necessary, and check that nobody else can write to it.

    Raises:
        CacheError: If another user could put a program into it.
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
