"""The fields of `stat` in which the kernel describes each process and thread (proc_pid_stat(5))."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PROCESSES = Path("/proc")


def process_stats(folder: Path = PROCESSES) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each process, and the fields of its `stat` that follow the command's name.

    Processes that end meanwhile are left out. For those the kernel answers ENOENT or ESRCH, and Path.glob("*/stat")
    raises the second one.

    Args:
        folder: /proc for all processes, /proc/PID/task for the threads of one.
    """
    for process in folder.glob("[0-9]*"):
        try:
            text = (process / "stat").read_text()
        except OSError:
            continue
        # The name is in brackets, and may contain anything.
        yield int(process.name), text.rpartition(")")[2].split()
