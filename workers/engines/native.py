"""The processing of a worker's packets in C: the .c files here, compiled when they are first used.

Everything here does the same as reference.py, bit for bit. Without a C compiler, reference.py is used alone.
"""

import ctypes
import errno
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fanin.native.shared import SharedError, check_numbers, check_structs, enumerated
from fanin.native.toolchain import NoCompilerError, ToolchainError, compile_folder
from fanin.workers import congestion, recovery, wire
from fanin.workers.agreement import DIGITS
from fanin.workers.congestion import CongestionWindow, Gate
from fanin.workers.engines.buffers import Buffers
from fanin.workers.engines.engine import (
    LOSSES,
    MAX_ERRORS,
    NONE,
    PARTS,
    REASONS,
    STAGES,
    SUMMED,
    UDP_GRO,
    UDP_SEGMENT,
    Engine,
    Progress,
    Socket,
    SocketState,
    State,
    Totals,
)
from fanin.workers.engines.reference import NumpyEngine
from fanin.workers.recovery import RttEstimator, Timers
from fanin.workers.tensor import Tensor, span
from fanin.workers.values import quantization, scaling

OPTIONS = ("-ffp-contract=off", "-lm")
NAMES = "native.c, congestion.c, socket_loop.c and step.c"

SMALL, LARGE = sorted(wire.VALUES.values())[1:]  # integers of 32 bits in a packet that has some

_pointer, _int64, _double = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class Work(ctypes.Structure):
    """The struct `work` of native.h."""

    _fields_ = (
        *((name, _pointer) for name in ("awaited", "times_sent", "backoffs", "sendings")),
        *((name, _pointer) for name in ("first_sent", "last_sent", "timeouts", "lost_at")),
        *((name, _pointer) for name in ("measured", "kept_in")),
        ("packets", _pointer * 3),
        *((name, _pointer) for name in ("ready", "held")),
        *((name, _pointer) for name in ("congestion", "gate")),
        *((name, _pointer) for name in ("rtt", "timers", "progress", "totals")),
        *((name, _double) for name in ("initial_rto", "min_rto", "max_rto", "granularity", "give_up")),
        *((name, _int64) for name in ("lease", "window", "first_slot", "workers")),
        *((name, _int64) for name in ("earliest_chunk", "last_chunk")),
        *((name, _pointer) for name in ("x_tail", "out_tail", "e0", "e1", "factors", "accepted", "missed")),
        *((name, _pointer) for name in ("x", "out", "copy", "expected", "agreement")),
        *((name, _int64) for name in ("delayed", "values", "bits", "words", "call")),
        *((name, _int64) for name in ("operation", "parts", "own", "part", "run", "first_run")),
        *((name, _int64) for name in ("blocks", "blocks_of_part", "lead")),
        *((name, _int64) for name in ("undecided", "missed_count", "ready_count")),
    )


class Batch(ctypes.Structure):
    """The struct `batch` of native.h."""

    _fields_ = tuple((name, _int64) for name in ("count", "kept_in", "size"))
    count: int
    kept_in: int
    size: int


_STRUCTS: dict[str, type[ctypes.Structure] | np.dtype[np.void]] = {
    "batch": Batch,
    "buffers": Buffers,
    "congestion_window": CongestionWindow,
    "gate": Gate,
    "header": wire.HEADER,
    "link": SocketState,
    "progress": Progress,
    "rtt_estimator": RttEstimator,
    "tensor": Tensor,
    "timers": Timers,
    "totals": Totals,
    "work": Work,
}
_NUMBERS = {
    "SMALLEST_EXPONENT": quantization.SMALLEST_EXPONENT,
    "LARGEST_EXPONENT": quantization.LARGEST_EXPONENT,
    "LARGEST_SUM": quantization.LARGEST_SUMS[32],
    "LARGEST_SUM_16": quantization.LARGEST_SUMS[16],
    "NOT_QUANTIZABLE": wire.NOT_QUANTIZABLE,
    "OF_SCATTER": wire.OF_SCATTER,
    "NO_CALL": wire.NO_CALL,
    "SATURATED": wire.SATURATED,
    "OF_16_BITS": wire.OF_16_BITS,
    "SMALL": SMALL,
    "LARGE": LARGE,
    "SIZE_SMALL": wire.SIZES[SMALL],
    "SIZE_LARGE": wire.SIZES[LARGE],
    "TYPE_SHIFT": wire.TYPE_SHIFT,
    "VERSION_SHIFT": wire.VERSION_SHIFT,
    **enumerated("UPDATE", "RESULT", "GIVE", "TAKE", "ACKNOWLEDGEMENT"),
    **enumerated("ALL_REDUCE", "GATHER", "SCATTER"),
    **enumerated("CARRYING", "LEADING", "BARE"),
    "HEADROOM": scaling.HEADROOM,
    "SLACK": scaling.SLACK,
    "DIGITS": DIGITS,
    "ALPHA": recovery.ALPHA,
    "BETA": recovery.BETA,
    "K": recovery.K,
    "GAIN": congestion.GAIN,
    "NONE": NONE,
    "UDP_SEGMENT": UDP_SEGMENT,
    "UDP_GRO": UDP_GRO,
    "MAX_ERRORS": MAX_ERRORS,
    "ECN_CONGESTED": congestion.ECN_CONGESTED,
    **enumerated(*REASONS, "reasons"),
    **enumerated(*PARTS, "parts"),
    **enumerated(*STAGES),
}


@cache
def library() -> ctypes.CDLL | None:
    """Compile the C files with $CC or cc, and return the library.

    Returns:
        The library. None if there is no compiler, or, after a warning, if compilation fails.

    Raises:
        SharedError: If C and Python do not agree on a number or a struct.
    """
    try:
        loaded = ctypes.CDLL(str(compile_folder(Path(__file__).parent, *OPTIONS, any_processor=True)))
    except NoCompilerError:
        return None
    except (OSError, ToolchainError) as error:
        warnings.warn(f"workers continue without {NAMES}, more slowly: {error}", stacklevel=2)
        return None
    check_structs(loaded, _STRUCTS)
    check_numbers(loaded, _NUMBERS)
    loaded.is_loss.restype = ctypes.c_bool
    losses = {error for error in errno.errorcode if loaded.is_loss(error)}
    if losses != LOSSES:
        raise SharedError(f"is_loss(): {sorted(losses)} in C, {sorted(LOSSES)} in Python")
    work = ctypes.POINTER(Work)
    tensor, buffers, link = (ctypes.POINTER(each) for each in (Tensor, Buffers, SocketState))
    loaded.begin.argtypes = (work, tensor, buffers, _int64, ctypes.c_bool)
    loaded.begin.restype = None
    loaded.repeat.argtypes = (work, link, tensor, buffers, ctypes.c_bool)
    loaded.repeat.restype = ctypes.c_int
    loaded.pack.argtypes = (work, _pointer, _int64, _double)
    loaded.pack.restype = Batch
    loaded.receive.argtypes = (work, _pointer, _int64, _int64, _int64, _double)
    loaded.receive.restype = None
    loaded.exchange.argtypes = (work, link, _double)
    loaded.exchange.restype = ctypes.c_int
    return loaded


def fastest(state: State) -> Engine:
    """Return the fastest engine that this machine supports."""
    return (NativeEngine if library() else NumpyEngine)(state)


class _Room:
    """Memory for consecutive all-reduces of up to `chunks` chunks, reused because allocation is slow."""

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks
        self.announced = np.zeros((2, chunks), np.int8)  # e0 and e1
        self.accepted = np.zeros(chunks, np.bool_)
        self.factors = np.empty(chunks)


class NativeEngine:
    """An Engine that leaves the work to native.c, in the caller's own arrays.

    Raises:
        RuntimeError: If the C files have not been compiled here.
    """

    def __init__(self, state: State) -> None:
        loaded = library()
        if loaded is None:
            raise RuntimeError(f"{NAMES} have not been compiled here")
        self._library = loaded
        self._repeat = loaded.repeat
        self._state = state
        lease, timers, settings = state.lease, state.timers, state.recovery
        self._ready = np.zeros(2 * lease.window, np.int64)  # also scratch memory of receive()
        self._missed = np.zeros(lease.window, np.int64)
        self._tails = np.zeros((2, lease.block(16)), np.float32)  # of x and out
        self._work = work = Work(
            awaited=state.awaited.ctypes.data,
            kept_in=state.kept_in.ctypes.data,
            packets=(_pointer * 3)(*(packets.ctypes.data for packets in state.packets)),
            ready=self._ready.ctypes.data,
            missed=self._missed.ctypes.data,
            held=state.gate.held.ctypes.data,
            congestion=ctypes.addressof(state.gate.window),
            gate=ctypes.addressof(state.gate),
            rtt=ctypes.addressof(timers.rtt),
            timers=ctypes.addressof(timers),
            progress=ctypes.addressof(state.progress),
            totals=ctypes.addressof(state.totals),
            initial_rto=settings.initial_rto,
            min_rto=settings.min_rto,
            max_rto=settings.max_rto,
            granularity=settings.granularity,
            give_up=settings.give_up,
            lease=lease.id,
            window=lease.window,
            first_slot=lease.first_slot,
            workers=lease.workers,
            earliest_chunk=lease.first_chunk,
            last_chunk=lease.last_chunk,
            x_tail=self._tails.ctypes.data,
            out_tail=self._tails.ctypes.data + self._tails.strides[0],
            **timers.addresses(),
        )
        self._at = ctypes.byref(work)
        self._room = _Room(0)
        self._begun: tuple[Tensor, Buffers] | None = None  # keeps the memory from being freed

    def begin(self, tensor: Tensor, buffers: Buffers, first_chunk: int, propagate: bool) -> NDArray[np.int64]:
        """See Engine."""
        self._make_room(tensor.blocks + tensor.lead)
        self._begun = tensor, buffers
        self._library.begin(self._at, tensor, buffers, first_chunk, propagate)
        return self._ready[: self._work.ready_count].copy()

    def repeat(self, socket: Socket, tensor: Tensor, buffers: Buffers, propagate: bool) -> int:
        """See Engine."""
        self._begun = tensor, buffers
        stage: int = self._repeat(self._at, socket.link, tensor, buffers, propagate)
        if stage == SUMMED:
            self._begun = None
        return stage

    def _make_room(self, chunks: int) -> None:
        if chunks <= self._room.chunks:
            return
        work, before = self._work, self._room
        self._room = room = _Room(chunks)
        room.accepted[: before.chunks] = before.accepted
        room.factors[: before.chunks] = before.factors
        work.e0 = room.announced.ctypes.data
        work.e1 = work.e0 + chunks
        work.factors, work.accepted = room.factors.ctypes.data, room.accepted.ctypes.data

    @property
    def quantizable(self) -> NDArray[np.bool_]:
        """See Engine."""
        return self._room.announced[1, : self._work.blocks].view(np.uint8) < wire.NOT_QUANTIZABLE

    @property
    def factors(self) -> NDArray[np.float64]:
        """See Engine."""
        return self._room.factors

    @property
    def summed(self) -> NDArray[np.bool_]:
        """See Engine."""
        lead = self._work.lead
        return self._room.accepted[lead : lead + self._work.blocks].copy()

    def pack(self, chunks: NDArray[np.int64], now: float) -> list[NDArray[np.void]]:
        """See Engine."""
        state, batches = self._state, []
        while len(chunks):
            batch: Batch = self._library.pack(self._at, chunks.ctypes.data, len(chunks), now)
            places = span((chunks[: batch.count] + state.progress.first_chunk) % state.lease.window)
            batches.append(state.packets[batch.kept_in][places])
            chunks = chunks[batch.count :]
        return batches

    def receive(self, datagrams: NDArray[np.uint8], now: float) -> NDArray[np.int64] | None:
        """See Engine."""
        work = self._work
        count, size = datagrams.shape
        self._library.receive(self._at, datagrams.ctypes.data, count, size, datagrams.strides[0], now)
        return self._ready[: work.ready_count].copy() if work.ready_count else None

    def exchange(self, socket: Socket, ready: list[NDArray[np.int64]], until: float) -> None:
        """See Engine."""
        count = 0
        for chunks in ready:
            self._ready[count : count + len(chunks)] = chunks
            count += len(chunks)
        self._work.ready_count = count
        error = self._library.exchange(self._at, socket.link, until)
        if error:
            socket.check(error, self._state.carrying.itemsize)

    @property
    def turn(self) -> tuple[int, int] | None:
        """See Engine."""
        if type(self) is not NativeEngine:  # C does not know what a subclass does differently
            return None
        return ctypes.cast(self._library.take_turn, _pointer).value or 0, ctypes.addressof(self._work)

    def finish(self) -> None:
        """See Engine."""
        self._begun = None
