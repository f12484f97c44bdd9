"""The worker's per-packet work in C: native.c and exchange.c, compiled on first use and kept in a cache by content.

Everything here does what the numpy code does, to the bit; without a C compiler that code does it alone.
"""

import ctypes
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native.shared import check_numbers, check_structs, enumerated
from native.toolchain import NoCompilerError, ToolchainError, compile_folder
from workers import quantization, recovery, scaling, wire
from workers.agreement import DIGITS
from workers.protocol import InNetworkStatistics, Lease, Worker
from workers.recovery import Recovery, RttEstimator, Timers
from workers.tensor import Tensor

OPTIONS = ("-ffp-contract=off", "-lm")
NAMES = "native.c and exchange.c"

PARTS = ("wait", "receive", "unpack", "pack", "send")  # enum part
_REASONS = ("malformed", "other lease", "unknown chunk", "impossible", "duplicate")  # enum reason

_pointer, _int64, _double, _byte = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_byte


class _Work(ctypes.Structure):
    """See native.h."""

    _fields_ = (
        *((name, _pointer) for name in ("awaited", "times_sent", "backoffs", "sendings")),
        *((name, _pointer) for name in ("first_sent", "last_sent", "timeouts", "lost_at")),
        *((name, _pointer) for name in ("measured", "leading", "carrying", "ready", "rtt", "timers")),
        *((name, _double) for name in ("initial_rto", "min_rto", "max_rto", "granularity")),
        *((name, _int64) for name in ("lease", "window", "first_slot", "values", "workers")),
        *((name, _pointer) for name in ("x_tail", "out_tail", "e0", "e1", "factors", "accepted", "missed")),
        *((name, _pointer) for name in ("x", "out", "expected", "agreement")),
        *(
            (name, _int64)
            for name in ("delayed", "tag", "first_chunk", "whole_blocks", "rest", "blocks", "lead")
        ),
        *((name, _int64) for name in ("chunks", "undecided", "missed_count", "missing", "disagree")),
        ("sums", _int64 * DIGITS),
        ("ready_count", _int64),
        ("progress", _double),
        *((name, _int64) for name in ("received", "received_bytes", "sent", "sent_bytes")),
        ("accepted_count", _int64),
        ("saturated", _int64),
        ("ignored", _int64 * len(_REASONS)),
        ("spent", _double * len(PARTS)),
    )


class Link(ctypes.Structure):
    """A socket, how it sends, and memory for what it receives.

    enough: bytes that need not wait for more. patience: how long else, as a part of the round-trip time, and in seconds
    (not at all for less than the shortest). loss: the last error that counted as one; 0: none.
    """

    _fields_ = (
        *((name, _int64) for name in ("socket", "segments", "offload", "room", "enough")),
        *((name, _double) for name in ("patience", "shortest_patience", "longest_patience")),
        ("buffer", _pointer),
        ("sleeps", _int64),
        ("loss", _int64),
    )


_SHARED_NUMBERS = {
    "SMALLEST_EXPONENT": quantization.SMALLEST_EXPONENT,
    "LARGEST_EXPONENT": quantization.LARGEST_EXPONENT,
    "LARGEST_SUM": quantization.LARGEST_SUM,
    "NOT_QUANTIZABLE": wire.NOT_QUANTIZABLE,
    "MAX_TAG": wire.MAX_TAG,
    "SATURATED": wire.SATURATED,
    "SMALL": min(wire.SIZES),
    "LARGE": max(wire.SIZES),
    "SMALL_RESULT": wire.kind(wire.RESULT, min(wire.SIZES)),
    "LARGE_RESULT": wire.kind(wire.RESULT, max(wire.SIZES)),
    "VERSION_SHIFT": wire.VERSION_SHIFT,
    "HEADROOM": scaling.HEADROOM,
    "SLACK": scaling.SLACK,
    "DIGITS": DIGITS,
    "ALPHA": recovery.ALPHA,
    "BETA": recovery.BETA,
    "K": recovery.K,
    **enumerated(*_REASONS, "reasons"),
    **enumerated(*PARTS, "parts"),
}


@cache
def library() -> ctypes.CDLL | None:
    """Both, compiled for this processor by $CC or cc.

    None where there is no compiler; and, with a warning, where it fails.
    """
    try:
        loaded = ctypes.CDLL(str(compile_folder(Path(__file__).parent, *OPTIONS)))
    except NoCompilerError:
        return None
    except (OSError, ToolchainError) as error:
        warnings.warn(f"workers go on without {NAMES}, more slowly: {error}", stacklevel=2)
        return None
    check_structs(
        loaded,
        {
            "header": wire.HEADER,
            "link": Link,
            "rtt_estimator": RttEstimator,
            "timers": Timers,
            "work": _Work,
        },
    )
    check_numbers(loaded, _SHARED_NUMBERS)
    return _declare(loaded)


def _declare(loaded: ctypes.CDLL) -> ctypes.CDLL:
    work = ctypes.POINTER(_Work)
    loaded.begin.argtypes = (work, _pointer, _pointer, _int64, _pointer, _pointer, _int64, _int64, _int64)
    loaded.begin.restype = _int64
    loaded.pack.argtypes = (work, _pointer, _int64, _double)
    loaded.pack.restype = _int64
    loaded.receive.argtypes = (work, _pointer, _int64, _int64, _int64, _double)
    loaded.receive.restype = None
    loaded.exchange.argtypes = (work, ctypes.POINTER(Link), _double)
    loaded.exchange.restype = ctypes.c_int
    return loaded


def _library() -> ctypes.CDLL:
    loaded = library()
    if loaded is None:
        raise RuntimeError(f"{NAMES} have not been compiled here")
    return loaded


def _address(array: NDArray[Any]) -> int:
    """Where a contiguous array is in memory; `array.ctypes` takes longer to say it."""
    if array.flags.writeable:
        return ctypes.addressof(_byte.from_buffer(array))  # type: ignore[arg-type]
    return int(array.ctypes.data)


class _Room:
    """Memory for all-reduces of up to so many chunks, one after the other: allocation is slow."""

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks
        self.announced = np.zeros((2, chunks), np.int8)  # e0, and e1 without the tag
        self.accepted = np.zeros(chunks, np.bool_)
        self.factors = np.empty(chunks)


class NativeTensor(Tensor):
    """A Tensor whose packets are written and read by native.c, in the caller's own arrays.

    What is known of its blocks is good until the worker begins with another one.
    """

    def __init__(self, elements: int, worker: "NativeWorker") -> None:
        lease = worker.lease
        super().__init__(elements, workers=lease.workers, values=lease.values, window=lease.window)
        self._worker = worker
        self._expected = None if self.expected is None else _address(self.expected)
        self._agreement = _address(self.agreement.digits)

    @property
    def factors(self) -> NDArray[np.float64]:
        """See Tensor."""
        return self._worker.room.factors[: self.blocks]

    @property
    def exponents(self) -> NDArray[np.int8]:
        """The blocks' own, once announced."""
        return self._worker.room.announced[0, : self.blocks]

    @property
    def quantizable(self) -> NDArray[np.bool_]:
        """See Tensor."""
        return self._worker.room.announced[1, : self.blocks].view(np.uint8) < wire.NOT_QUANTIZABLE

    def begin(self, x: NDArray[np.float32], out: NDArray[np.float32]) -> int:
        """See Tensor."""
        self.chunks = self.least_chunks
        if not x.flags.carray:
            x = np.require(x, requirements=["C", "A"])
        self._kept = (x, out)
        vector = (_address(x), _address(out), self.elements, self._expected, self._agreement)
        return self._worker.begin(*vector, self.delayed, self.tag)

    def finish(self, tag: int) -> bool:
        """See Tensor; let go of the caller's arrays."""
        del self._kept
        return super().finish(tag)


class NativeWorker(Worker):
    """A Worker that leaves its packets to native.c."""

    def __init__(self, lease: Lease, recovery: Recovery | None = None, **options: Any) -> None:
        super().__init__(lease, recovery, **options)
        self._library = _library()
        self._ready = np.zeros(2 * lease.window, np.int64)  # and scratch of receive()
        self._missed = np.zeros(lease.window, np.int64)
        self._tails = np.zeros((2, lease.values), np.float32)  # of x and out
        self._work = work = _Work(
            awaited=self._awaited.ctypes.data,
            leading=self._leading.ctypes.data,
            carrying=self._carrying.ctypes.data,
            ready=self._ready.ctypes.data,
            missed=self._missed.ctypes.data,
            rtt=ctypes.addressof(self._timers.rtt),
            timers=ctypes.addressof(self._timers),
            initial_rto=self._recovery.initial_rto,
            min_rto=self._recovery.min_rto,
            max_rto=self._recovery.max_rto,
            granularity=self._recovery.granularity,
            lease=lease.id,
            window=lease.window,
            first_slot=lease.first_slot,
            values=lease.values,
            workers=lease.workers,
            x_tail=self._tails.ctypes.data,
            out_tail=self._tails.ctypes.data + self._tails.strides[0],
            **self._timers.addresses(),
        )
        self._at = ctypes.byref(work)
        self.room = _Room(0)

    def _make_tensor(self, elements: int) -> Tensor:
        tensor = NativeTensor(elements, self)
        if tensor.most_chunks > self.room.chunks:
            self._enlarge_room(tensor.most_chunks)
        return tensor

    def _enlarge_room(self, chunks: int) -> None:
        work, before = self._work, self.room
        self.room = room = _Room(chunks)
        room.accepted[: before.chunks] = before.accepted
        work.e0 = room.announced.ctypes.data
        work.e1 = work.e0 + chunks
        work.factors, work.accepted = room.factors.ctypes.data, room.accepted.ctypes.data

    def begin(self, *vector: int | None) -> int:
        """Prepare an all-reduce; see begin() of native.c."""
        bad: int = self._library.begin(self._at, *vector, self._first_chunk)
        return bad

    def _pack(self, chunks: NDArray[np.int64], now: float) -> NDArray[np.void]:
        """See Worker."""
        first = self._library.pack(self._at, chunks.ctypes.data, len(chunks), now)
        assert self._tensor
        packets = self._leading if chunks[0] < self._tensor.bare else self._carrying
        if first >= 0:
            return packets[first : first + len(chunks)]
        return packets[(chunks + self._first_chunk) % self.lease.window]

    def _take(self, datagrams: NDArray[np.uint8], now: float) -> None:
        """See Worker."""
        work = self._work
        count, size = datagrams.shape
        self._library.receive(self._at, datagrams.ctypes.data, count, size, datagrams.strides[0], now)
        if work.ready_count:
            self._to_send.append(self._ready[: work.ready_count].copy())
        self._follow()

    def exchange(self, link: Link) -> int:
        """Send what start() queued, receive and answer on a socket until a timer expires or all is there.

        Returns 0 or an errno.
        """
        self._work.ready_count = len(self._to_send[0]) if self._to_send else 0
        self._to_send = []
        error: int = self._library.exchange(self._at, link, self._progress + self._recovery.give_up)
        self._follow()
        return error

    def _expect_results(self, chunks: int) -> None:
        """See Worker."""
        super()._expect_results(chunks)
        self._work.missing = self._remaining

    def _follow(self) -> None:
        """Take over from native.c how far the all-reduce has come."""
        work, tensor = self._work, self._tensor
        if work.disagree:
            self._disagreement = np.array(work.sums)
        if not self._remaining:  # native.c may have begun with a vector that was refused then
            return
        assert tensor
        self._progress = max(self._progress, work.progress)
        self._remaining = work.missing
        self._next_chunk += work.chunks - tensor.chunks
        tensor.chunks = work.chunks

    @property
    def _saturated(self) -> int:
        return self._statistics.saturated + int(self._work.saturated)

    @property
    def statistics(self) -> InNetworkStatistics:
        """See Worker."""
        work, statistics = self._work, self._statistics
        statistics.datagrams_received += work.received
        statistics.bytes_received += work.received_bytes
        statistics.datagrams_sent += work.sent
        statistics.bytes_sent += work.sent_bytes
        statistics.accepted += work.accepted_count
        statistics.saturated += work.saturated
        for reason, count in zip(_REASONS, work.ignored, strict=True):
            if count:
                statistics.ignored[reason] += count
        work.received = work.received_bytes = work.sent = work.sent_bytes = 0
        work.accepted_count = work.saturated = 0
        work.ignored = (_int64 * len(_REASONS))()
        return super().statistics

    @property
    def spent(self) -> dict[str, float]:
        """Seconds in each part of exchange() so far: what receive and send take is the kernel's."""
        return dict(zip(PARTS, self._work.spent, strict=True))


def make_worker(lease: Lease, recovery: Recovery | None = None, **options: Any) -> Worker:
    """A worker of the fastest kind that this machine allows."""
    return (NativeWorker if library() else Worker)(lease, recovery, **options)
