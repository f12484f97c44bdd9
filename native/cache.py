"""The user's cache: what is made once and kept, in a folder that nobody else can write to."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


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
        CacheError: the folder cannot be written, anybody else could write to it, or nothing can be loaded from it.
    """
    folder = entry.parent
    try:
        _check_private(folder)
        lock = entry.with_suffix(".lock").open("w")
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
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when everybody has closed the file
        yield lock


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
    elif parent := next((p for p in path.resolve().parents if _open_to_all(p)), None):
        reason = f"anybody may replace it: {parent} is writable by all"
    else:
        return
    raise CacheError(
        f"{path} cannot be trusted to keep compiled programs: {reason}; remove it, or set $XDG_CACHE_HOME to a "
        "folder of yours"
    )


def _open_to_all(path: Path) -> bool:
    mode = path.stat().st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX
