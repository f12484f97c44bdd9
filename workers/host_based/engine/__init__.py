"""A HostBasedWorker whose packets are handled in C."""

from __future__ import annotations

import ctypes
import math
import weakref

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import CollectiveError
from fanin.workers.host_based.engine.compiled import BATCH, Worker, address_of, in_c, library, settings_of
from fanin.workers.host_based.exchange import Exchange
from fanin.workers.host_based.participant import Group, HostBasedStatistics, HostBasedWorker, Outgoing
from fanin.workers.host_based.pieces import Piece
from fanin.workers.recovery import Recovery

_pointer, _int64 = ctypes.c_void_p, ctypes.c_int64
_FINE, _NO_MEMORY, _OTHER_CALL = range(3)


def fastest(group: Group, recovery: Recovery) -> HostBasedWorker:
    """Return the fastest worker that there is for a group on this machine."""
    compiled = in_c(group.transport, group.make_control(group.window)) and library()
    return (CompiledWorker if compiled else HostBasedWorker)(group, recovery)


class CompiledWorker(HostBasedWorker):
    """A HostBasedWorker that leaves its packets to C; its congestion control is one of those in C.

    Raises:
        RuntimeError: If the C files have not been compiled here.
    """

    def __init__(self, group: Group, recovery: Recovery | None = None) -> None:
        super().__init__(group, recovery)
        loaded = library()
        if loaded is None:
            raise RuntimeError("the C files of host-based workers have not been compiled here")
        control = group.make_control(group.window)
        worker = self._worker = Worker(
            settings_of(group.transport, group.window, group.payload, self._recovery, control),
            rank=group.rank,
            workers=group.workers,
            flows=group.flows,
            session=group.session,
            per_host=group.window_per == "host",
            give_up=self._recovery.give_up,
        )
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
        streams.retransmissions = streams.timeouts = 0
        streams.ignored.clear()
        worker.streams.add_to(streams)
        if worker.other_session:
            streams.ignored["other session"] = worker.other_session
        totals.retransmissions = streams.retransmissions
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

    def behind_card(self, header: bytes, addresses: bytes, first_port: int) -> tuple[int, int, int, int, int]:
        """Let a network card in C carry the packets from now on, instead of receive() and datagrams_to_send().

        This must be called before the first packet.

        Args:
            header: Headers of a frame to no peer in particular: C writes the address, the ports and the lengths.
            addresses: IPv4 addresses of all peers by rank, 4 bytes each.
            first_port: The first UDP port of each peer; see Group.port().

        Returns:
            Addresses of the functions that take packets, send, tell when to send next, and tell whether Python has to
            act, and the address of the worker (native/worker.h).
        """
        worker, loaded = self._worker, self._c
        self._addresses = np.frombuffer(addresses, np.uint8)  # memory that C uses
        worker.header[:], worker.addresses, worker.first_port = (
            header,
            self._addresses.ctypes.data,
            first_port,
        )
        functions = (
            loaded.peers_receive_by_card,
            loaded.peers_send_by_card,
            loaded.peers_deadline,
            loaded.peers_need_python,
        )
        receive, send, deadline, needs_python = map(address_of, functions)
        return receive, send, deadline, needs_python, self._state

    def check(self, now: float) -> None:
        """Raise the error because of which C needs Python, if there is one.

        Raises:
            CollectiveError: A packet of another call has come, or nothing new for too long.
        """
        self._check(_OTHER_CALL if self._worker.differs else _FINE)
        self._check_stall(now)

    def datagrams_to_send(self, now: float) -> list[Outgoing]:
        """See HostBasedWorker."""
        self._check_stall(now)
        count = self._c.peers_send(self._state, now, ctypes.byref(self._batches), ctypes.byref(self._output))
        if count <= 0:
            self._check(_NO_MEMORY if count else _FINE)
            return []
        batches = np.frombuffer(ctypes.string_at(self._batches, count * BATCH.itemsize), BATCH).tolist()
        *_, many, size, offset = batches[-1]
        output = np.frombuffer(ctypes.string_at(self._output, offset + many * size), np.uint8)
        return [
            Outgoing(peer, output[begin : begin + many * size].reshape(many, size), flow)
            for peer, flow, many, size, begin in batches
        ]

    def deadline(self) -> float | None:
        """See Participant."""
        return None if self.finished else float(self._c.peers_deadline(self._state))

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


def _close(loaded: ctypes.CDLL, state: int, _worker: Worker) -> None:
    """Free the memory of C, which refers to `_worker` until then."""
    loaded.peers_close(state)
