"""How the kernel schedules what runs on a network: with short time slices, and so that workers interrupt no switch."""

from __future__ import annotations

import ctypes
import os
import platform

SECONDS = 1e-4  # the shortest slice that Linux grants
_NUMBERS = {
    "x86_64": (314, 315),
    "aarch64": (274, 275),
}  # of the system calls sched_setattr and sched_getattr


class _Attributes(ctypes.Structure):
    """`struct sched_attr` of sched_setattr(2)."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def shorten() -> bool:
    """Ask for slices of `SECONDS` for this thread and all that it starts from now on.

    Linux first runs the process whose slice ends first. With a short slice, a switch or a worker runs soon after its
    packet has arrived, instead of after the process that keeps the core busy. Its share of the core does not change.
    There is no effect before Linux 6.12, for a thread with a non-default scheduling policy, or on processors other than
    x86-64 and aarch64.

    Returns:
        Whether the kernel grants them.
    """
    _ask(SECONDS)
    return current() == SECONDS


def restore() -> None:
    """Ask for slices of the usual length, for this thread and all that it starts from now on."""
    _ask(0)


def never_interrupt(process: int = 0) -> None:
    """Let a process wake up without interrupting the one that runs on its core, also all that it starts from now on.

    A switch that sends results to several workers wakes them one after the other. If each interrupted it, the others
    would have to wait for their results (SCHED_BATCH of sched(7)). A policy other than the usual one is kept.

    Args:
        process: Number of the process; 0 is this thread.

    Raises:
        ProcessLookupError: If it has ended.
    """
    if os.sched_getscheduler(process) == os.SCHED_OTHER:
        os.sched_setscheduler(process, os.SCHED_BATCH, os.sched_param(0))


def _ask(seconds: float) -> None:
    if platform.machine() not in _NUMBERS or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    set_attributes, _ = _NUMBERS[platform.machine()]
    attributes = _read()
    attributes.runtime = round(seconds * 1e9)
    ctypes.CDLL(None).syscall(set_attributes, 0, ctypes.byref(attributes), 0)


def current() -> float:
    """Return the seconds of a slice of this thread; 0 if the kernel does not say."""
    return float(_read().runtime / 1e9) if platform.machine() in _NUMBERS else 0.0


def _read() -> _Attributes:
    _, get_attributes = _NUMBERS[platform.machine()]
    attributes = _Attributes()
    ctypes.CDLL(None).syscall(get_attributes, 0, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    return attributes
