"""The name of this process, as `ps`, `pgrep`, `pkill` and `killall` show it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

_PR_SET_NAME = 15  # linux/prctl.h
_ARG_START, _ARG_END = 47, 48  # fields 48 and 49 of /proc/self/stat, proc(5)


def set_process_name(name: str, arguments: Sequence[str]) -> None:
    """Show this process as `name` with its arguments, instead of as an interpreter that runs a script.

    Where the system does not allow it, nothing changes.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)
    try:
        # The name of the program is in parentheses and may contain spaces and parentheses.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return
    start, end = int(fields[_ARG_START - 2]), int(fields[_ARG_END - 2])
    # The kernel shows the bytes between these addresses, which hold the command line that the process was started with.
    line = b"".join(text.encode(errors="surrogateescape") + b"\0" for text in (name, *arguments))
    if start > 0 and len(line) <= end - start:
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, line, len(line))
