"""Functions of the C library that Python 3.11 does not wrap, and how `ps` shows this process."""

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

NEW_MOUNTS, NEW_USER, NEW_PROCESSES, NEW_NETWORK = 0x20000, 0x10000000, 0x20000000, 0x40000000  # sched.h
PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36  # linux/prctl.h
_ARG_START, _ARG_END = 45, 46  # in /proc/self/stat, after the name (proc_pid_stat(5): fields 48 and 49)


def call(function: str, *arguments: bytes | int | None, of: str | None = None) -> None:
    """Call a function that returns 0.

    Args:
        function: Its name.
        arguments: Its arguments.
        of: The file name of the error. None takes the function's name.

    Raises:
        OSError: It has returned something else.
    """
    library = ctypes.CDLL(None, use_errno=True)
    longs = (ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments)
    if getattr(library, function)(*longs):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), of or function)


def set_process_name(name: str) -> None:
    """Set the name by which `pgrep`, `pkill` and `killall` find this process, cut to 15 bytes."""
    call("prctl", PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def set_command_line(words: Sequence[str]) -> None:
    """Set the command line that `ps` shows for this process, cut to the length of its present one.

    Where the system does not tell where the command line is, nothing changes.
    """
    try:
        # The name of the program is in parentheses and may contain spaces and parentheses.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return
    begin, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    if begin > 0:
        shown = b"\0".join(os.fsencode(word) for word in words)[: max(0, end - begin - 1)]
        ctypes.memset(begin, 0, end - begin)
        ctypes.memmove(begin, shown, len(shown))


def return_free_memory() -> None:
    """Give memory that was freed back to the system, as far as the C library can do that."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):  # musl has none
        library.malloc_trim(0)
