"""A HostBasedWorker whose packets are handled in C: the .c files here, compiled when they are first used."""

from __future__ import annotations

import ctypes
import math
import warnings
import weakref
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fanin.native.shared import check_numbers, check_structs
from fanin.native.toolchain import NoCompilerError, ToolchainError, compile_folder
from fanin.workers.collective import CollectiveError
from fanin.workers.host_based import transport
from fanin.workers.host_based.congestion_control import Dctcp, NoControl
from fanin.workers.host_based.exchange import Exchange
from fanin.workers.host_based.participant import (
    LEAST_SHARE,
    Group,
    HostBasedStatistics,
    HostBasedWorker,
    Outgoing,
)
from fanin.workers.host_based.pieces import Piece
from fanin.workers.recovery import MAX_BACKOFF, Recovery

_pointer, _int64, _double = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
_FINE, _NO_MEMORY, _OTHER_CALL = range(3)
_TRANSPORTS = ("selective-repeat", "go-back-n")


class _Worker(ctypes.Structure):
    """The struct `worker` of peers.h."""

    _fields_ = (
        *((name, _double) for name in ("initial_rto", "min_rto", "max_rto", "granularity")),
        *((name, _int64) for name in ("rank", "workers", "flows", "window", "session", "transport")),
        *((name, _int64) for name in ("per_host", "packet_threshold", "payload")),
        *((name, _int64) for name in ("control", "least", "first_window", "initial_ssthresh", "always")),
        *((name, _double) for name in ("gain", "alpha")),
        *((name, _pointer) for name in ("source", "array")),
        *((name, _int64) for name in ("call", "running")),
        *((name, _double) for name in ("heard", "summed_at")),
        *((name, _int64) for name in ("datagrams_sent", "datagrams_received", "bytes_sent")),
        *((name, _int64) for name in ("bytes_received", "retransmissions", "timeouts")),
        *((name, _int64) for name in ("malformed", "other_session", "duplicate", "early")),
        *((name, _int64) for name in ("other_rank", "other_call")),
    )


_BATCH = np.dtype([(name, np.int64) for name in ("peer", "flow", "kind", "count", "size", "offset")])
_PIECE = np.dtype([(name, np.int64) for name in ("start", "stop", "after", "needed", "reduce")])
_NUMBERS = {
    "MAX_PAYLOAD": transport.MAX_PAYLOAD,
    "HEADER_BYTES": transport.HEADER_BYTES,
    "CALL_BYTES": transport.CALL_BYTES,
    "ENDS": transport.ENDS,
    "MIN_FLIGHT": transport.MIN_FLIGHT,
    "MAX_BACKOFF": MAX_BACKOFF,
    "LEAST_SHARE": LEAST_SHARE,
    "DATA": transport.DATA,
    "ACK": transport.ACK,
    "NAK": transport.NAK,
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
        folder = Path(__file__).parent
        loaded = ctypes.CDLL(str(compile_folder(folder, "-ffp-contract=off", "-lm", any_processor=True)))
    except NoCompilerError:
        return None
    except (OSError, ToolchainError) as error:
        warnings.warn(f"host-based workers continue without C, more slowly: {error}", stacklevel=2)
        return None
    check_structs(loaded, {"worker": _Worker, "batch": _BATCH, "piece": _PIECE})
    check_numbers(loaded, _NUMBERS)
    loaded.peers_open.argtypes = (ctypes.POINTER(_Worker),)
    loaded.peers_open.restype = _pointer
    loaded.peers_close.argtypes = (_pointer,)
    loaded.peers_close.restype = None
    loaded.peers_start.argtypes = (_pointer, _pointer, _int64, _pointer, _double)
    loaded.peers_receive.argtypes = (_pointer, _pointer, _int64, _int64, _pointer, _double)
    loaded.peers_receive_frames.argtypes = (
        *(_pointer, _pointer, _int64, _pointer, _int64),
        *(ctypes.c_char_p, _double, ctypes.POINTER(_int64)),
    )
    loaded.peers_send.argtypes = (_pointer, _double, ctypes.POINTER(_pointer), ctypes.POINTER(_pointer))
    loaded.peers_send.restype = _int64
    loaded.peers_finished.argtypes = (_pointer,)
    loaded.peers_finished.restype = ctypes.c_bool
    loaded.peers_deadline.argtypes = (_pointer,)
    loaded.peers_deadline.restype = _double
    loaded.peers_awaited.argtypes = (_pointer, ctypes.c_bool, _pointer)
    loaded.peers_awaited.restype = _int64
    return loaded


def fastest(group: Group, recovery: Recovery) -> HostBasedWorker:
    """Return the fastest worker that there is for a group on this machine."""
    control = group.make_control(group.window)
    in_c = group.transport in _TRANSPORTS and type(control) in (Dctcp, NoControl) and library()
    return (CompiledWorker if in_c else HostBasedWorker)(group, recovery)


class CompiledWorker(HostBasedWorker):
    """A HostBasedWorker that leaves its packets to C; its congestion control is Dctcp or NoControl.

    Raises:
        RuntimeError: If the C files have not been compiled here.
    """

    def __init__(self, group: Group, recovery: Recovery | None = None) -> None:
        super().__init__(group, recovery)
        loaded = library()
        if loaded is None:
            raise RuntimeError("the C files of host-based workers have not been compiled here")
        settings, control = self._recovery, group.make_control(group.window)
        worker = self._worker = _Worker(
            initial_rto=settings.initial_rto,
            min_rto=settings.min_rto,
            max_rto=settings.max_rto,
            granularity=settings.granularity,
            rank=group.rank,
            workers=group.workers,
            flows=group.flows,
            window=group.window,
            session=group.session,
            transport=_TRANSPORTS.index(group.transport),
            per_host=group.window_per == "host",
            packet_threshold=settings.packet_threshold,
            payload=group.payload,
        )
        if isinstance(control, Dctcp):
            parameters = control.parameters
            worker.control = 1
            worker.least = min(parameters.min_window, group.window)
            worker.first_window = min(parameters.initial_window or group.window, group.window)
            worker.initial_ssthresh = parameters.ssthresh or group.window
            worker.always = parameters.increase == "always"
            worker.gain, worker.alpha = parameters.gain, parameters.initial_alpha
        self._c = loaded
        self._state = loaded.peers_open(worker)
        if not self._state:
            raise MemoryError("no memory for a worker")
        self._batches, self._output = _pointer(), _pointer()
        self._begun: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None  # memory that C uses
        weakref.finalize(self, _close, loaded, self._state, worker)

    @property
    def statistics(self) -> HostBasedStatistics:
        """Return the totals so far."""
        worker, totals = self._worker, self._statistics
        streams = totals.streams
        totals.datagrams_sent, totals.datagrams_received = worker.datagrams_sent, worker.datagrams_received
        totals.bytes_sent, totals.bytes_received = worker.bytes_sent, worker.bytes_received
        totals.retransmissions = streams.retransmissions = worker.retransmissions
        streams.timeouts = worker.timeouts
        for name in ("malformed", "other_session", "duplicate", "early"):
            if count := getattr(worker, name):
                streams.ignored[name.replace("_", " ")] = count
        return totals

    @property
    def finished(self) -> bool:
        """Return whether the sum is there and all that was sent has been acknowledged."""
        return bool(self._c.peers_finished(self._state))

    def _begin(self, exchange: Exchange, now: float) -> None:
        schedule = self._schedule(exchange)
        streams: list[tuple[int, int, int]] = []
        pieces: list[Piece] = []
        for sent, of_peers in ((1, schedule.sends), (0, schedule.receives)):
            for peer, stream in of_peers.items():
                before = len(pieces)
                pieces.extend(stream)
                streams.append((peer, sent, len(pieces) - before))
        rows, table = np.array(pieces, np.int64).reshape(-1, 5), np.array(streams, np.int64).reshape(-1, 3)
        self._begun = rows, table
        worker = self._worker
        worker.source, worker.array = exchange.source.ctypes.data, exchange.array.ctypes.data
        worker.call = self._call
        self._check(self._c.peers_start(self._state, table.ctypes.data, len(table), rows.ctypes.data, now))

    def _end(self) -> None:
        self._worker.running = 0
        self._begun = None

    def receive(
        self, datagrams: NDArray[np.uint8], now: float, marked: NDArray[np.bool_] | None = None
    ) -> None:
        """See HostBasedWorker."""
        rows = np.ascontiguousarray(datagrams)
        marks = None if marked is None else np.ascontiguousarray(marked)
        self._check(
            self._c.peers_receive(
                self._state, rows.ctypes.data, *rows.shape, None if marks is None else marks.ctypes.data, now
            )
        )

    def receive_frames(
        self, frames: NDArray[np.uint8], lengths: NDArray[np.int64], address: bytes, now: float
    ) -> int:
        """Process Ethernet frames as far as they carry UDP over IPv4 to an address, with right checksums.

        Args:
            frames: The frames [m, bytes].
            lengths: Their lengths [m].
            address: The IPv4 address.
            now: The time in seconds.

        Returns:
            How many frames were something else.
        """
        rows, others = np.ascontiguousarray(frames), _int64()
        sizes = np.ascontiguousarray(lengths)
        self._check(
            self._c.peers_receive_frames(
                self._state,
                rows.ctypes.data,
                rows.shape[1],
                sizes.ctypes.data,
                len(rows),
                address,
                now,
                ctypes.byref(others),
            )
        )
        return others.value

    def datagrams_to_send(self, now: float) -> list[Outgoing]:
        """See HostBasedWorker."""
        self._check_stall(now)
        count = self._c.peers_send(self._state, now, ctypes.byref(self._batches), ctypes.byref(self._output))
        if count <= 0:
            self._check(_NO_MEMORY if count else _FINE)
            return []
        batches = np.frombuffer(ctypes.string_at(self._batches, count * _BATCH.itemsize), _BATCH).tolist()
        *_, many, size, offset = batches[-1]
        output = np.frombuffer(ctypes.string_at(self._output, offset + many * size), np.uint8)
        return [
            Outgoing(peer, output[begin : begin + many * size].reshape(many, size), flow)
            for peer, flow, _, many, size, begin in batches
        ]

    def deadline(self) -> float | None:
        """See Participant."""
        if self.finished:
            return None
        earliest: float = self._c.peers_deadline(self._state)
        return min(self._last_heard() + self._recovery.give_up, earliest)

    def _awaited(self) -> tuple[list[int], list[int]]:
        """See HostBasedWorker."""
        found = np.empty(self.group.workers * self.group.flows, np.int64)
        data, acknowledgements = (
            found[: self._c.peers_awaited(self._state, which, found.ctypes.data)].tolist()
            for which in (True, False)
        )
        return sorted(data), sorted({*acknowledgements})

    @property
    def summed_at(self) -> float | None:
        """See HostBasedWorker."""
        return None if math.isnan(self._worker.summed_at) else float(self._worker.summed_at)

    def _last_heard(self) -> float:
        return float(self._worker.heard)

    def _check(self, outcome: int) -> None:
        if outcome == _NO_MEMORY:
            raise MemoryError("no memory for the packets of a worker")
        if outcome == _OTHER_CALL:
            raise CollectiveError(
                f"{self._who()}: {self._difference(self._worker.other_rank, self._worker.other_call)}"
            )


def _close(loaded: ctypes.CDLL, state: int, _worker: _Worker) -> None:
    """Free the memory of C, which refers to `_worker` until then."""
    loaded.peers_close(state)
