"""Short time slices, so that the kernel soon runs a process whose packet has arrived, even on busy cores."""

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
