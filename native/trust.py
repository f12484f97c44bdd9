"""A check whether another user could replace a file in a shared folder."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_EVERY_ID = 2**32 - 1  # the length of an id map that leaves no user out
_MAX_LINKS = 40  # as the kernel follows (path_resolution(7))


def replaceable(path: Path) -> str | None:
    """Return how another user could put something else at `path`; None if nobody but this user and root can.

    Every folder and symbolic link on the way has to belong to one of the two. No folder may be writable by others, or
    by a group with other users in it, unless it is sticky, as /tmp is. Inside a user namespace that leaves users out,
    the owner of a file that belongs to one of them is unknown, and is taken to be root.

    Args:
        path: A file or folder. It need not exist, but its folder must.

    Raises:
        OSError: If a folder on the way cannot be examined, or there are too many symbolic links.
    """
    trusted = _trusted_users()
    for place in _way_to(path):
        found = place.lstat()
        if found.st_uid not in trusted:
            return f"{place} belongs to user {found.st_uid}"
        if not stat.S_ISDIR(found.st_mode) or found.st_mode & stat.S_ISVTX:
            continue
        if found.st_mode & stat.S_IWOTH:
            return f"{place} is writable by all"
        if found.st_mode & stat.S_IWGRP and (how := _shared(found.st_gid, trusted)):
            return f"{place} is writable by {how}"
    return None


def _shared(gid: int, trusted: set[int]) -> str | None:
    """Return the name of a group and one of its users who is not trusted; None if there is nobody else."""
    try:
        group = grp.getgrgid(gid)
        name, members = group.gr_name, group.gr_mem
    except KeyError:
        name, members = str(gid), []
    for user in pwd.getpwall():
        if user.pw_uid not in trusted and (user.pw_gid == gid or user.pw_name in members):
            return f"group {name}, and {user.pw_name} belongs to it"
    return None


def _way_to(path: Path) -> Iterator[Path]:
    """Yield each folder and symbolic link that leads to `path`, but not `path` itself."""
    parts = deque(path.absolute().parts)
    here, links = Path(parts.popleft()), 0
    while parts:
        yield here
        name = parts.popleft()
        there = here.parent if name == os.pardir else here / name
        if there.is_symlink():
            yield there
            links += 1
            if links > _MAX_LINKS:
                raise OSError(f"{path}: too many symbolic links")
            target = there.readlink()
            parts.extendleft(reversed(target.parts))
            there = Path(parts.popleft()) if target.is_absolute() else here
        here = there


def _trusted_users() -> set[int]:
    """Return the ids of this user and root and, for root, that of the user who became root with sudo."""
    trusted = {0, os.geteuid()}
    if os.geteuid() == 0:
        trusted.add(int(os.environ.get("SUDO_UID", 0)))
    mapped = [int(line.split()[2]) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    if sum(mapped) < _EVERY_ID:
        trusted.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return trusted
