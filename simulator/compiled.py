"""The C of the event loop (loop/): its library, and what Python and C pass to each other."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from ctypes import c_bool, c_double, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fanin.native.shared import check_numbers, check_structs, enumerated
from fanin.native.toolchain import compile_folder
from fanin.simulator.links import ACTIONS, LINK

FOLDER = Path(__file__).parent / "loop"
HEADER_BYTES = 42  # Ethernet, IPv4, UDP
PROGRAM_ROOM = 65600  # bytes of the longest packet that a program takes: native/program.h
AT_LIMIT, NO_THREADS = -2, -3  # of loop_run()
FATES = ("", "loss", "burst loss", "link down", "queue drop", "watchdog drop")  # of packets on links
_FATES = ("arrives", "loss", "burst", "link down", "queue full", "watchdog")  # their names in loop.h
NOTE = np.dtype(
    [
        *((name, np.int64) for name in ("joined", "begin", "sent", "end")),
        *((name, np.uint32) for name in ("link", "length", "fate", "copy")),
        ("head", np.uint8, 96),
    ]
)
EVENT = np.dtype([("time", np.int64), ("link", np.uint32), ("row", np.uint32)])


class _Station(ctypes.Structure):
    _fields_ = (
        ("turn", c_void_p),
        ("worker", c_void_p),
        ("give_up", c_double),
        ("sizes", c_int64 * 2),
        ("headers", c_uint8 * HEADER_BYTES * 2),
        ("type", c_uint8 * 2),
        ("protocol", c_uint8),
        ("ends", c_uint8 * 12),
    )


class _Card(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("receive", "send", "deadline", "needs_python", "worker", "others")),
        *((name, c_double) for name in ("byte_seconds", "ahead")),
        ("overhead", c_int64),
        ("address", c_uint8 * 4),
    )


class _Arrival(ctypes.Structure):
    _fields_ = (("time", c_uint64), ("port", c_uint32), ("length", c_uint32))


FAULTS = {
    "lost": "loss",
    "burst lost": "burst loss",
    "corrupted": "corruption",
    "duplicated": "duplication",
    "reordered": "reordering",
    "queue drop": "queue drop",
    "ECN mark": "ECN mark",
    "no link": "no link",
}
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "loop_open": (
        c_void_p,
        (
            *(*[c_uint32] * 3, c_void_p, c_uint32, c_void_p, *[c_uint32] * 2, *[c_void_p] * 2),
            *(*[c_int64] * 2, c_uint32, c_uint64, *[c_void_p] * 2),
        ),
    ),
    "loop_close": (None, (c_void_p,)),
    "loop_set_program": (None, (c_void_p, c_uint32, c_void_p, c_void_p)),
    "loop_failed": (c_bool, (c_void_p,)),
    "loop_too_long": (c_uint32, (c_void_p,)),
    "loop_in_use": (c_uint64, (c_void_p,)),
    "loop_collect": (c_uint64, (c_void_p, c_int64, ctypes.POINTER(c_void_p))),
    "loop_read": (None, (c_void_p, c_void_p, c_uint64, c_void_p, c_void_p, c_uint64)),
    "loop_deliver": (None, (c_void_p,)),
    "loop_set_timer": (None, (c_void_p, c_uint32, c_int64)),
    "loop_set_stalls": (None, (c_void_p, c_uint32, c_void_p, c_uint64)),
    "loop_set_station": (None, (c_void_p, c_uint32, c_void_p)),
    "loop_remove_station": (None, (c_void_p, c_uint32)),
    "loop_set_card": (None, (c_void_p, c_uint32, c_void_p)),
    "loop_wake": (None, (c_void_p, c_uint32, c_int64)),
    "loop_continue": (None, (c_void_p, c_uint32, c_int64, c_int64)),
    "loop_too_long_sent": (c_uint32, (c_void_p,)),
    "loop_next_host": (c_int64, (c_void_p, c_int64, ctypes.POINTER(c_bool))),
    "loop_turns": (c_uint64, (c_void_p,)),
    "loop_waiting": (c_uint64, (c_void_p, c_uint32, c_int64)),
    "loop_take": (None, (c_void_p, c_uint32, c_uint64, c_void_p, c_void_p, c_uint64)),
    "loop_send": (None, (c_void_p, c_uint32, c_void_p, c_uint64, c_uint32, c_int64)),
    "loop_end": (None, (c_void_p, c_int64)),
    "loop_record": (None, (c_void_p,)),
    "loop_take_notes": (c_uint64, (c_void_p, c_uint32, ctypes.POINTER(c_void_p))),
    "loop_run": (c_int64, (c_void_p, c_int64, c_int64, c_void_p, c_bool, ctypes.POINTER(c_bool))),
    "loop_window_end": (c_int64, (c_void_p,)),
    "loop_rounds": (c_uint64, (c_void_p,)),
    "loop_ended": (c_int64, (c_void_p,)),
    "loop_next_time": (c_int64, (c_void_p,)),
    "loop_stopped": (None, (c_void_p, c_void_p)),
    "loop_count_lanes": (None, (c_void_p, c_void_p, c_void_p)),
    "loop_waiting_areas": (None, (c_void_p, c_int64, c_void_p)),
    "loop_queued": (c_uint64, (c_void_p, c_void_p, c_uint64)),
}
# next_function, emit_function and run_function of native/program.h
_NEXT = ctypes.CFUNCTYPE(c_bool, c_void_p, c_void_p, ctypes.POINTER(_Arrival))
_EMIT = ctypes.CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_uint32, c_void_p)
_RUN = ctypes.CFUNCTYPE(None, c_void_p, _NEXT, _EMIT, c_void_p)


@runtime_checkable
class CompiledProgram(Protocol):
    """A switch program compiled to C, such as an engine of p4switch; native/program.h describes its two addresses."""

    @property
    def run_function(self) -> int: ...  # noqa: D102
    @property
    def base(self) -> int: ...  # noqa: D102


@runtime_checkable
class PythonProgram(Protocol):
    """A switch program in Python."""

    def process(self, port: int, packet: bytes, now: int) -> Iterable[tuple[int, bytes]]:
        """Return what leaves, as (port, packet), because of a packet that arrives at `now` (microseconds)."""


class CallbackProgram:
    """A PythonProgram as a CompiledProgram.

    Attributes:
        run_function: See CompiledProgram.
        base: See CompiledProgram.
        error: The error that the program has raised, after which it drops everything.
    """

    def __init__(self, program: PythonProgram) -> None:
        self._program = program
        self._run = _RUN(self._process)  # kept from being freed
        self.run_function = ctypes.cast(self._run, c_void_p).value or 0
        self.base = 0
        self.error: BaseException | None = None
        self._packet = ctypes.create_string_buffer(PROGRAM_ROOM)

    def _process(self, _base: int, next_packet: Any, emit: Any, context: int) -> None:
        arrival = _Arrival()
        while next_packet(context, ctypes.addressof(self._packet), ctypes.byref(arrival)):
            if self.error:
                continue
            packet = ctypes.string_at(self._packet, arrival.length)
            try:
                for port, left in self._program.process(arrival.port, packet, arrival.time):
                    emit(context, port, ctypes.cast(ctypes.c_char_p(left), c_void_p), len(left), None)
            except BaseException as error:  # C cannot pass it on
                self.error = error


@dataclass(frozen=True, slots=True)
class StationInC:
    """A station whose packets C handles (native/worker.h).

    Attributes:
        turn: Address of the function that takes the worker's turn.
        worker: Address of the worker.
        give_up: Seconds without an answer after which the worker gives up.
        headers: Headers of the frames that it sends, by the size of the datagram in bytes (two sizes).
        type: Ethernet type of the frames that it accepts.
        protocol: IPv4 protocol of the frames that it accepts.
        ends: Addresses (source, destination) and then ports of the frames that it accepts.
    """

    turn: int
    worker: int
    give_up: float
    headers: dict[int, NDArray[np.uint8]]
    type: bytes
    protocol: bytes
    ends: bytes

    def as_struct(self) -> ctypes.Structure:
        """Return the struct that C reads."""
        return _Station(
            self.turn,
            self.worker,
            self.give_up,
            tuple(self.headers),
            tuple(tuple(header.tolist()) for header in self.headers.values()),
            *(tuple(self.type), self.protocol[0], tuple(self.ends)),
        )


@dataclass(frozen=True, slots=True)
class CardInC:
    """A network card and a worker whose connections take turns on it, in C (native/worker.h).

    Attributes:
        receive: Address of the worker's receive_function.
        send: Address of its send_function.
        deadline: Address of its deadline_function.
        needs_python: Address of its needs_python_function; 0 if Python never acts.
        worker: Address of the worker.
        byte_seconds: Seconds that a byte takes on the link.
        ahead: Seconds of sending that the link is given at once while several connections wait.
        overhead: Bytes of a frame on the link beyond its own.
        address: IPv4 address of the host.
        owner: The object whose memory the worker is.
        check: Raises the error because of which the worker needs Python, if there is one; takes the time in seconds.
        others: Counts frames that were not for the worker [1].
    """

    receive: int
    send: int
    deadline: int
    needs_python: int
    worker: int
    byte_seconds: float
    ahead: float
    overhead: int
    address: bytes
    owner: object
    check: Callable[[float], None] = lambda _: None
    others: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    def as_struct(self) -> ctypes.Structure:
        """Return the struct that C reads."""
        functions = self.receive, self.send, self.deadline, self.needs_python
        card = self.byte_seconds, self.ahead, self.overhead
        return _Card(*functions, self.worker, self.others.ctypes.data, *card, tuple(self.address))


@cache
def library(folder: Path = FOLDER) -> ctypes.CDLL:
    """Return the loop, compiled by $CC or cc from the C files of a folder.

    Raises:
        ToolchainError: It cannot be compiled.
        SharedError: C and Python disagree about a number or a struct.
    """
    loaded = ctypes.CDLL(str(compile_folder(folder, "-ffp-contract=off", "-lm")))
    check_structs(
        loaded,
        {
            "link": LINK,
            "event": EVENT,
            "note": NOTE,
            "station": _Station,
            "card_settings": _Card,
            "arrival": _Arrival,
        },
    )
    check_numbers(
        loaded,
        enumerated(*FAULTS) | enumerated(*ACTIONS) | enumerated(*_FATES) | {"PROGRAM_ROOM": PROGRAM_ROOM},
    )
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded
