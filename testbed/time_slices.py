"""How soon the kernel runs a process whose packet has come, on a machine whose cores have other work, too."""

from __future__ import annotations

import ctypes
import os
import platform

SECONDS = 1e-4  # the shortest that Linux gives
_NUMBERS = {
    "x86_64": (314, 315),
    "aarch64": (274, 275),
}  # of the system calls sched_setattr and sched_getattr


class _Attributes(ctypes.Structure):
    """`struct sched_attr`, as sched_setattr(2) has it."""

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
    """Asks for slices of `SECONDS` for this thread and all that it starts from now on; whether the kernel gives them.

    Linux's scheduler runs first whose slice ends first. So with short ones a switch or a worker runs soon after its
    packet has come, in place of after what keeps the core busy; its share of the core stays what it was. Nothing
    changes before Linux 6.12, for a thread with a policy other than the usual one, or on other processors than
    x86-64's and aarch64's.
    """
    _ask(SECONDS)
    return current() == SECONDS


def restore() -> None:
    """Asks for slices as long as everybody's, for this thread and all that it starts from now on."""
    _ask(0)


def _ask(seconds: float) -> None:
    if platform.machine() not in _NUMBERS or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    set_attributes, _ = _NUMBERS[platform.machine()]
    attributes = _read()
    attributes.runtime = round(seconds * 1e9)
    ctypes.CDLL(None).syscall(set_attributes, 0, ctypes.byref(attributes), 0)


def current() -> float:
    """Seconds of a slice of this thread; 0: the kernel does not say."""
    return float(_read().runtime / 1e9) if platform.machine() in _NUMBERS else 0.0


def _read() -> _Attributes:
    _, get_attributes = _NUMBERS[platform.machine()]
    attributes = _Attributes()
    ctypes.CDLL(None).syscall(get_attributes, 0, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    return attributes
