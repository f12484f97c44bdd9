"""The generator and the bare loop (generate.c, bare.c), each in a thread on a processor of its own."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_bool, c_char_p, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.bench.switch.errors import BenchError
from fanin.native.shared import check_numbers, check_structs
from fanin.native.toolchain import compile_folder

MAX_PORTS = 8
_Interfaces = c_char_p * MAX_PORTS


class _Generator(ctypes.Structure):
    _fields_ = (
        ("ports", c_uint32),
        ("count", c_uint32),
        ("length", c_uint32),
        ("burst", c_uint32),
        ("window", c_uint32),
        ("packets", c_uint32),
        ("size", c_uint32),
        ("interface", _Interfaces),
        ("frames", c_void_p),
        ("limit", c_uint64),
        ("next", c_uint64),
        ("sent", c_uint64),
        ("stalled", c_bool),
        ("stop", c_bool),
    )


class _Bare(ctypes.Structure):
    _fields_ = (
        ("ports", c_uint32),
        ("values", c_uint32),
        ("superframes", c_bool),
        ("interface", _Interfaces),
        ("received", c_uint64),
        ("stop", c_bool),
        ("ready", c_bool),
    )


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(compile_folder(Path(__file__).parent)))
    check_structs(library, {"bare": _Bare, "generator": _Generator})
    check_numbers(library, {"MAX_PORTS": MAX_PORTS})
    return library


def generator_processor() -> int:
    """The processor that sends."""
    return min(os.sched_getaffinity(0))


def switch_processor() -> int:
    """The one that switches."""
    return max(os.sched_getaffinity(0))


class _Running:
    """A function of the library in a thread, from `with` to its end; BenchError there, if it failed."""

    def __init__(
        self, function: Callable[[c_void_p], int], state: _Generator | _Bare, processor: int
    ) -> None:
        self.state = state
        self._function = function
        self._processor = processor
        self._error = 0
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        os.sched_setaffinity(0, {self._processor})
        self._error = self._function(ctypes.byref(self.state))  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        self.state.stop = False
        self.thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.state.stop = True
        self.thread.join()
        if self._error:
            raise BenchError(f"{self._function.__name__}: {os.strerror(self._error)}")

    def processor_seconds(self) -> float:
        """What the thread has used."""
        return time.clock_gettime(time.pthread_getcpuclockid(self.thread.ident or 0))


class Traffic:
    """Frames [ports, count, size], each behind its virtio header, for each of the `interfaces`; see generate.c.

    window: chunks under way, 0 sends frames as they are. packets: in a frame; size: UDP payload bytes of each.
    """

    def __init__(
        self,
        interfaces: Sequence[str],
        frames: NDArray[np.uint8],
        *,
        burst: int,
        window: int = 0,
        packets: int = 1,
        size: int = 0,
    ) -> None:
        ports, count, length = frames.shape
        self.frames = np.ascontiguousarray(frames)
        names = _Interfaces(*(name.encode() for name in interfaces))
        self._state = _Generator(ports, count, length, burst, window, packets, size, names)
        self._state.frames = self.frames.ctypes.data

    @contextmanager
    def running(self) -> Iterator[_Running]:
        """Sends until the end of a `with` block."""
        self._state.limit = 0
        with _Running(_library().generate, self._state, generator_processor()) as running:
            yield running

    def send(self, bursts: int) -> None:
        """Sends so many bursts through each interface and waits for the results.

        Raises:
            BenchError: they do not come.
        """
        self._state.limit = bursts
        with _Running(_library().generate, self._state, generator_processor()) as running:
            running.thread.join()
        self.check()

    def check(self) -> None:
        """Check that all results have come.

        Raises:
            BenchError: some have not.
        """
        if self._state.stalled:
            raise BenchError(f"after {self._state.sent} packets the results stopped coming")


@contextmanager
def bare(interfaces: Sequence[str], values: int, superframes: bool) -> Iterator[Callable[[], int]]:
    """The bare loop for the time of a `with` block, which is told how to read the packets received."""
    state = _Bare(len(interfaces), values, superframes, _Interfaces(*(name.encode() for name in interfaces)))
    with _Running(_library().bare, state, switch_processor()):
        while not state.ready:
            time.sleep(0.001)
        yield lambda: int(state.received)
