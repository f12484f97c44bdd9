"""Collectives between hosts over TCP: a schedule, with a connection for each pair of ranks that exchange data."""

import contextlib
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import (
    Closing,
    CollectiveError,
    HostBasedAlgorithm,
    Operation,
    StallError,
    Statistics,
)
from fanin.workers.host_based.exchange import Call, Exchange, check_call
from fanin.workers.host_based.pieces import Piece, Schedule
from fanin.workers.host_based.schedules import ScheduleProgress, peers, schedule

# Sent once on each connection by the higher rank: magic, rank, number of workers.
_HELLO = struct.Struct("!4sII")
_MAGIC = b"sum1"
# Sent before each collective's data, so that bytes of one call are never taken for those of another: the number of the
# call, and a digest of the operation, its arguments, the type and the elements. 16 bytes make collisions negligible.
_HEADER = struct.Struct("!Q16s")

_PIECE = 256 << 10  # bytes per piece, and most bytes received at once
_RETRY = 0.05  # seconds between attempts to connect
_CONNECT = 1.0  # longest time in seconds for one attempt
_LOOK = 0.25  # longest time in seconds between calls of `watch` and `meanwhile`
_TOTAL_RETRANSMISSIONS = 100  # byte offset of tcpi_total_retrans in struct tcp_info (linux/tcp.h)


@dataclass(frozen=True, slots=True)
class TcpConfig:
    """Settings of a group of hosts that exchange data over TCP; times in seconds.

    Attributes:
        rank: This worker's number.
        addresses: IPv4 address and TCP port where each rank listens, by rank.
        algorithm: The all-reduce algorithm.
        shards: Number of shards of the parameter server (see schedules.schedule()).
        call: What all calls do.
        connect_timeout: How long to wait for the peers to start.
        give_up: An all-reduce in which no byte moves for this long fails.

    Raises:
        ValueError: If the rank has no address, no algorithm has this name, or calls compress and the algorithm is not
            a ring.
    """

    rank: int
    addresses: tuple[tuple[str, int], ...]
    algorithm: HostBasedAlgorithm = "ring"
    shards: int | None = None
    call: Call = "all-reduce"
    connect_timeout: float = 30.0
    give_up: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.rank < len(self.addresses):
            raise ValueError(
                f"rank must be from 0 to {len(self.addresses) - 1}, one for each address, not {self.rank}"
            )
        check_call(self.call, self.algorithm)


class TcpGroup(Closing):
    """TCP connections to the peers, opened on construction, and the code that runs a schedule over them.

    Args:
        config: The settings.
        watch: Called repeatedly until all peers are connected. An error that it raises ends the wait.
        meanwhile: Called while an all-reduce waits for others, after each quarter of a second in which no byte moved.
            An error that it raises ends the wait.
        number: Returns the number of the worker's current call, which must be the same at all workers. A refused call
            must use up a number, too: otherwise the next call would be combined with the others' current one. None
            counts the collectives carried out here.

    Raises:
        CollectiveError: If a peer did not start in time, or is not the expected one.
        OSError: If it cannot listen.
    """

    def __init__(
        self,
        config: TcpConfig,
        watch: Callable[[], object] = lambda: None,
        meanwhile: Callable[[], object] = lambda: None,
        number: Callable[[], int] | None = None,
    ) -> None:
        self.config = config
        self._watch = watch
        self._meanwhile = meanwhile
        self._statistics = Statistics()
        self._number = number or (lambda: self._statistics.all_reduces + 1)
        self._workers = len(config.addresses)
        self._destinations, self._sources = peers(config.algorithm, config.rank, self._workers, config.shards)
        # One per source: several sources may be in the middle of a piece.
        self._scratch = {peer: np.empty(_PIECE, np.uint8) for peer in self._sources}
        self._sockets: dict[int, socket.socket] | None = self._connect()

    # -- connections

    def _connect(self) -> dict[int, socket.socket]:
        """Connect to each peer: of two ranks, the higher connects to the lower."""
        deadline = time.monotonic() + self.config.connect_timeout
        rank = self.config.rank
        ranks = {*self._destinations, *self._sources}
        connections: dict[int, socket.socket] = {}
        with contextlib.ExitStack() as failed:
            with socket.create_server(self.config.addresses[rank], backlog=self._workers) as listener:
                for peer in sorted(peer for peer in ranks if peer < rank):
                    connections[peer] = failed.enter_context(self._connect_to(peer, deadline))
                    connections[peer].sendall(_HELLO.pack(_MAGIC, rank, self._workers))
                while awaited := {peer for peer in ranks if peer > rank} - connections.keys():
                    peer, connection = self._accept(listener, awaited, deadline)
                    connections[peer] = failed.enter_context(connection)
            for connection in connections.values():
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            failed.pop_all()
        return connections

    def _connect_to(self, peer: int, deadline: float) -> socket.socket:
        address = self.config.addresses[peer]
        while True:
            left = deadline - time.monotonic()
            try:
                return socket.create_connection(address, timeout=max(min(left, _CONNECT), _RETRY))
            except OSError as error:
                self._watch()
                if left <= 0:
                    raise CollectiveError(
                        f"{self._who()}: rank {peer} does not answer at {address[0]}:{address[1]} "
                        f"after {self.config.connect_timeout:g} s: {error}"
                    ) from error
                time.sleep(_RETRY)

    def _accept(
        self, listener: socket.socket, awaited: set[int], deadline: float
    ) -> tuple[int, socket.socket]:
        names = _ranks(awaited)
        while True:
            left = deadline - time.monotonic()
            listener.settimeout(max(min(left, _LOOK), _RETRY))
            try:
                connection, address = listener.accept()
                break
            except TimeoutError as error:
                self._watch()
                if left <= 0:
                    raise CollectiveError(
                        f"{self._who()}: {names} did not connect within {self.config.connect_timeout:g} s"
                    ) from error
        try:
            connection.settimeout(max(deadline - time.monotonic(), _RETRY))
            hello = connection.recv(_HELLO.size, socket.MSG_WAITALL)
            magic, peer, workers = _HELLO.unpack(hello) if len(hello) == _HELLO.size else (b"", -1, 0)
            if magic != _MAGIC or peer not in awaited or workers != self._workers:
                raise CollectiveError(
                    f"{self._who()}: {address[0]} connected and is not {names} of {self._workers}; "
                    "do all workers have the same algorithm and the same addresses in the same order?"
                )
        except BaseException:
            connection.close()
            raise
        return peer, connection

    def _who(self) -> str:
        return f"{self.config.algorithm} rank {self.config.rank} of {self._workers}"

    # -- the collective

    @property
    def statistics(self) -> Statistics:
        """Return the totals so far; retransmissions are TCP's, in segments."""
        if self._sockets is not None:
            self._statistics.retransmissions = sum(map(_tcp_retransmissions, self._sockets.values()))
        return self._statistics

    def run(self, steps: Schedule, array: NDArray[Any], combine: np.ufunc = np.add, call: str = "") -> None:
        """Carry out a schedule. Only one may run at a time. After an error the connections are closed.

        Args:
            steps: The schedule.
            array: The flat array, changed in place.
            combine: Combines pieces that are to be added with the array.
            call: The purpose of the call, in words that must be the same at all workers.

        Raises:
            StallError: If no byte moved for `give_up` seconds.
            CollectiveError: If a peer is gone, or makes another call.
        """
        if self._sockets is None:
            raise CollectiveError(f"{self._who()} is closed")
        try:
            self._exchange(steps, array, combine, call, self._sockets)
        except BaseException:
            self.close()  # the streams are no longer synchronized
            raise
        self._statistics.all_reduces += 1

    def close(self) -> None:
        """Close all connections."""
        if self._sockets is not None:
            self._statistics.retransmissions = self.statistics.retransmissions
            for connection in self._sockets.values():
                connection.close()
        self._sockets = None

    # -- one collective

    def _exchange(
        self,
        steps: Schedule,
        result: NDArray[Any],
        combine: np.ufunc,
        call: str,
        sockets: dict[int, socket.socket],
    ) -> None:
        signature = f"{result.size} {result.dtype.str} {combine.__name__} {call}"
        header = _HEADER.pack(self._number(), blake2b(signature.encode(), digest_size=16).digest())
        progress = ScheduleProgress(steps)
        outgoing = {peer: _Outgoing(sockets[peer], header, result) for peer in self._destinations}
        incoming = [
            _Incoming(peer, sockets[peer], header, progress, result, combine, scratch.view(result.dtype))
            for peer, scratch in self._scratch.items()
        ]
        while True:
            moved = 0
            for peer in progress.sending:
                while (piece := progress.next_send(peer)) is not None:
                    outgoing[peer].add(piece)
            try:
                for sender in outgoing.values():
                    moved += sender.move()
                for receiver in incoming:
                    moved += receiver.move()
            except (ConnectionError, _OutOfStepError) as error:
                raise CollectiveError(
                    f"{self._who()}: {error}; {self._describe(outgoing, incoming)}"
                ) from error
            if moved:
                continue
            reading = [receiver.connection for receiver in incoming if receiver.ready]
            writing = [sender.connection for sender in outgoing.values() if not sender.done]
            if not (reading or writing):
                break
            if not self._wait(reading, writing):
                raise StallError(
                    f"{self._who()}: no byte moved for {self.config.give_up:g} s; "
                    f"{self._describe(outgoing, incoming)}"
                )
        self._statistics.bytes_sent += sum(sender.sent for sender in outgoing.values())
        self._statistics.bytes_received += sum(receiver.received for receiver in incoming)

    def _wait(self, reading: list[socket.socket], writing: list[socket.socket]) -> bool:
        """Wait until a connection is ready and return True, or return False after `give_up` seconds."""
        deadline = time.monotonic() + self.config.give_up
        while (left := deadline - time.monotonic()) > 0:
            if _ready(reading, writing, min(left, _LOOK)):
                return True
            self._meanwhile()
        return False

    def _describe(self, outgoing: "dict[int, _Outgoing]", incoming: "list[_Incoming]") -> str:
        sending = {peer for peer, sender in outgoing.items() if not sender.done}
        awaiting = {receiver.peer for receiver in incoming if not receiver.done}
        waits = [
            f"{what} {_ranks(ranks)}"
            for what, ranks in (("sending to", sending), ("awaiting", awaiting))
            if ranks
        ]
        return f"all-reduce {self._statistics.all_reduces + 1}: {', '.join(waits)}"


class TcpAllReduce(TcpGroup):
    """A Collective over TCP.

    Every worker gets the same sum in every run (see AllReduce.float32_sum()).
    """

    def __init__(self, config: TcpConfig) -> None:
        super().__init__(config, number=lambda: self._calls)
        self._calls = 0

    def all_reduce(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Return the sum of `x` over all workers; see Collective, and TcpGroup.run() for errors."""
        self._calls += 1  # of a call that is refused, too: see TcpGroup
        config = self.config
        exchange = Exchange(config.call, x, out, config.rank, self._workers)
        array = exchange.array
        steps = schedule(
            config.algorithm,
            config.rank,
            self._workers,
            array.size,
            chunk=_PIECE // array.itemsize,
            shards=config.shards,
            operation=exchange.operation,
        )
        self.run(steps, array, call=f"{config.call} of {x.size} elements")
        return exchange.finish()


class TcpRing(TcpGroup):
    """A ring of connections over which flat arrays of any type are reduced and gathered in place.

    An array is divided into one part per rank, by pieces.bounds().
    """

    def all_reduce(self, array: NDArray[Any], combine: np.ufunc, call: str) -> None:
        """Combine the arrays of all ranks element by element."""
        self.run(self._steps(array, "all-reduce"), array, combine, call)

    def reduce_scatter(self, array: NDArray[Any], combine: np.ufunc, call: str) -> None:
        """Compute this rank's part of all_reduce(); the rest of the array is overwritten with partial results."""
        self.run(self._steps(array, "reduce-scatter"), array, combine, call)

    def all_gather(self, array: NDArray[Any], call: str) -> None:
        """Copy each rank's part of the array to all ranks."""
        self.run(self._steps(array, "all-gather"), array, call=call)

    def _steps(self, array: NDArray[Any], operation: Operation) -> Schedule:
        chunk = _PIECE // array.itemsize
        return schedule("ring", self.config.rank, self._workers, array.size, chunk=chunk, operation=operation)


def _ranks(ranks: set[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, sorted(ranks)))}"


def _ready(reading: list[socket.socket], writing: list[socket.socket], seconds: float) -> bool:
    """Return whether one of the connections is ready within this many seconds."""
    poll = select.poll()
    events = dict.fromkeys(reading, select.POLLIN)
    for connection in writing:
        events[connection] = events.get(connection, 0) | select.POLLOUT
    for connection, mask in events.items():
        poll.register(connection, mask)
    return bool(poll.poll(seconds * 1000))


def _tcp_retransmissions(connection: socket.socket) -> int:
    information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TOTAL_RETRANSMISSIONS + 4)
    if len(information) <= _TOTAL_RETRANSMISSIONS:  # emulated kernels return a shorter struct
        return 0
    return int(struct.unpack_from("=I", information, _TOTAL_RETRANSMISSIONS)[0])


class _OutOfStepError(Exception):
    """A mismatch with a peer that is in another all-reduce."""


class _Outgoing:
    """The stream to a peer: a header, then pieces as they are added."""

    def __init__(self, connection: socket.socket, header: bytes, result: NDArray[Any]) -> None:
        self.connection = connection
        self.sent = 0
        self._element = result.itemsize
        self._header = memoryview(header)
        self._bytes = result.data.cast("B")
        self._ranges: deque[list[int]] = deque()  # in bytes of the array

    @property
    def done(self) -> bool:
        """Return whether everything added has been sent."""
        return not self._header and not self._ranges

    def add(self, piece: Piece) -> None:
        """Queue `piece` for sending. It is merged with the last one if it follows it directly."""
        start, stop = piece.start * self._element, piece.stop * self._element
        if self._ranges and self._ranges[-1][1] == start:
            self._ranges[-1][1] = stop
        else:
            self._ranges.append([start, stop])

    def move(self) -> int:
        """Send what the socket accepts, and return the number of bytes."""
        before = self.sent
        with contextlib.suppress(BlockingIOError):
            while self._header:
                count = self.connection.send(self._header)
                self._header = self._header[count:]
                self.sent += count
            while self._ranges:
                part = self._ranges[0]
                count = self.connection.send(self._bytes[part[0] : part[1]])
                part[0] += count
                self.sent += count
                if part[0] == part[1]:
                    self._ranges.popleft()
        return self.sent - before


class _Incoming:
    """The stream from a peer: the same header, then pieces to add or to store."""

    def __init__(
        self,
        peer: int,
        connection: socket.socket,
        header: bytes,
        progress: ScheduleProgress,
        result: NDArray[Any],
        combine: np.ufunc,
        scratch: NDArray[Any],
    ) -> None:
        self.peer = peer
        self.connection = connection
        self.received = 0
        self._header = header
        self._received_header = b""
        self._progress = progress
        self._result = result
        self._element = result.itemsize
        self._combine = combine
        self._bytes = result.data.cast("B")
        self._scratch = scratch
        self._scratch_bytes = scratch.data.cast("B")
        self._offset = 0  # bytes of the piece that have arrived

    @property
    def done(self) -> bool:
        """Return whether everything has arrived."""
        return self.received >= len(self._header) and self.peer not in self._progress.awaiting

    @property
    def ready(self) -> bool:
        """Return whether the next data may be processed."""
        return self.received < len(self._header) or self._progress.receiving(self.peer) is not None

    def move(self) -> int:
        """Receive once, process the data and return the number of bytes, 0 if there were none."""
        try:
            if self.received < len(self._header):
                count = self._check_header()
            elif (piece := self._progress.receiving(self.peer)) is None:
                return 0
            else:
                count = self._add(piece) if piece.reduce else self._keep(piece)
        except BlockingIOError:
            return 0
        if not count:
            raise ConnectionError(f"rank {self.peer} closed the connection")
        self.received += count
        return count

    def _check_header(self) -> int:
        data = self.connection.recv(len(self._header) - self.received)
        self._received_header += data
        if len(self._received_header) == len(self._header) and self._received_header != self._header:
            theirs, _ = _HEADER.unpack(self._received_header)
            ours, _ = _HEADER.unpack(self._header)
            raise _OutOfStepError(
                f"rank {self.peer} is in call {theirs:,}, and this rank in call {ours:,}"
                if theirs != ours
                else f"rank {self.peer} has an array of another size, or makes another call"
            )
        return len(data)

    def _add(self, piece: Piece) -> int:
        count = self.connection.recv_into(self._scratch_bytes[self._offset : self._size(piece)])
        first, last = self._offset // self._element, (self._offset + count) // self._element
        part = self._result[piece.start + first : piece.start + last]
        self._combine(part, self._scratch[first:last], out=part)
        self._advance(piece, count)
        return count

    def _keep(self, piece: Piece) -> int:
        start = piece.start * self._element
        count = self.connection.recv_into(self._bytes[start + self._offset : start + self._size(piece)])
        self._advance(piece, count)
        return count

    def _advance(self, piece: Piece, count: int) -> None:
        before = self._offset // self._element
        self._offset += count
        if self._offset < self._size(piece):
            self._progress.advanced(self.peer, self._offset // self._element - before)
            return
        self._offset = 0
        self._progress.received(self.peer)

    def _size(self, piece: Piece) -> int:
        return (piece.stop - piece.start) * self._element
