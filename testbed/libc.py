"""Functions of the C library that Python 3.11 does not wrap."""

import ctypes
import os

NEW_MOUNTS, NEW_USER, NEW_PROCESSES, NEW_NETWORK = 0x20000, 0x10000000, 0x20000000, 0x40000000  # sched.h
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


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
