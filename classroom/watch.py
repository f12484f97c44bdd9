"""Waits for a student to save a file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_POLL_SECONDS = 0.2


def saves(folder: Path, files: Sequence[str], poll: float = _POLL_SECONDS) -> Iterator[str | None]:
    """Yield None at once, then the name of a file whenever one is saved.

    Only the times of the files are looked at. A save during what the caller does in between is found afterwards.

    Args:
        folder: The student's folder.
        files: The files to watch.
        poll: Seconds between two looks.
    """
    known = _times(folder, files)
    yield None
    while True:
        found = _times(folder, files)
        changed = [name for name in files if found[name] != known[name] and found[name] is not None]
        known = found
        if changed:
            yield changed[0]
        else:
            time.sleep(poll)


def _times(folder: Path, files: Sequence[str]) -> dict[str, int | None]:
    return {name: _time(folder / name) for name in files}


def _time(file: Path) -> int | None:
    """Return when a file was changed, or None while an editor replaces it."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None
