"""The generator and the bare loop (generate.c, bare.c), each in a thread on its own processor."""

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

from fanin.assurance.bench.switch.errors import SwitchBenchError
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
    """Return the processor that sends."""
    return min(os.sched_getaffinity(0))


def switch_processor() -> int:
    """Return the processor that switches."""
    return max(os.sched_getaffinity(0))


class _Running:
    """A function of the library that runs in a thread inside a `with` block. A failure raises BenchError at its end."""

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
            raise SwitchBenchError(f"{self._function.__name__}: {os.strerror(self._error)}")

    def processor_seconds(self) -> float:
        """Return the processor time that the thread has used."""
        return time.clock_gettime(time.pthread_getcpuclockid(self.thread.ident or 0))


class Traffic:
    """Frames for each of the `interfaces`; see generate.c.

    Args:
        interfaces: The interfaces to send through.
        frames: Frames, each after its virtio header, [ports, count, size].
        burst: Frames sent through one interface at a time.
        window: Chunks in flight; 0 sends frames unchanged.
        packets: Updates in a frame.
        size: UDP payload bytes of each update.
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
        """Send until the end of a `with` block."""
        self._state.limit = 0
        with _Running(_library().generate, self._state, generator_processor()) as running:
            yield running

    def send(self, bursts: int) -> None:
        """Send so many bursts through each interface and wait for the results.

        Raises:
            BenchError: They do not come.
        """
        self._state.limit = bursts
        with _Running(_library().generate, self._state, generator_processor()) as running:
            running.thread.join()
        self.check()

    def check(self) -> None:
        """Check that all results have come.

        Raises:
            BenchError: Some have not.
        """
        if self._state.stalled:
            raise SwitchBenchError(f"after {self._state.sent} packets the results stopped coming")


@contextmanager
def bare(interfaces: Sequence[str], values: int, superframes: bool) -> Iterator[Callable[[], int]]:
    """Run the bare loop inside a `with` block; yields a function that reads the number of packets received."""
    state = _Bare(len(interfaces), values, superframes, _Interfaces(*(name.encode() for name in interfaces)))
    with _Running(_library().bare, state, switch_processor()):
        while not state.ready:
            time.sleep(0.001)
        yield lambda: int(state.received)
