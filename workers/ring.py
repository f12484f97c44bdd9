"""Ring all-reduce over TCP: the host-based baseline (reduce-scatter, then all-gather; n - 1 steps each).

The array is cut into n segments. In each step a worker sends one segment to the next rank and receives
another from the previous one: first adding what it receives, then, once every segment has gone round,
keeping it. What a worker sends in a step is what it received in the step before, so it need not wait for
the step's end: each byte may leave as soon as it has arrived and been added. See Patarasuk and Yuan,
"Bandwidth optimal all-reduce algorithms", 2009.
"""

import itertools
import select
import socket
import struct
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from workers.collective import CollectiveError, StallError, Statistics, flat_input, flat_output

# Sent once on each connection: magic, rank, number of workers.
_HELLO = struct.Struct("!4sII")
_MAGIC = b"ring"
# Sent before each all-reduce's data: its number and elements, so that workers who disagree find out.
_HEADER = struct.Struct("!QQ")

_ELEMENT = 4
_SCRATCH = 256 << 10  # bytes added at once: small enough for the cache
_RETRY = 0.05  # seconds between attempts to connect
_TOTAL_RETRANSMISSIONS = 100  # byte offset of tcpi_total_retrans in struct tcp_info (linux/tcp.h)


@dataclass(frozen=True, slots=True)
class RingConfig:
    """addresses: (IPv4 address, TCP port) where each rank listens, by rank. Times in seconds.

    connect_timeout: for the neighbours to come up. give_up: an all-reduce in which no byte moves for so
    long fails.
    """

    rank: int
    addresses: tuple[tuple[str, int], ...]
    connect_timeout: float = 30.0
    give_up: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.rank < len(self.addresses):
            raise ValueError(
                f"rank must be from 0 to {len(self.addresses) - 1}, one for each address, not {self.rank}"
            )


def _tcp_retransmissions(connection: socket.socket) -> int:
    information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TOTAL_RETRANSMISSIONS + 4)
    return int(struct.unpack_from("=I", information, _TOTAL_RETRANSMISSIONS)[0])


def error_bound(workers: int, magnitude: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far the sum of `workers` float32 may be from the exact one, given the sum of their |x|.

    (n - 1) u / (1 - (n - 1) u) times `magnitude`, u = 2^-24 (Higham, Accuracy and Stability, 4.2).
    """
    errors = (workers - 1) * 2.0**-24
    return magnitude * (errors / (1 - errors))


class RingAllReduce:
    """A Collective over TCP connections to the two neighbours, made on construction.

    CollectiveError: a neighbour did not come up in time, or is not the one expected. OSError: cannot listen.

    Element i of segment s is summed in the order of ranks s, s + 1, ... round the ring: the same result on
    every worker and in every run.
    """

    def __init__(self, config: RingConfig) -> None:
        self.config = config
        self._statistics = Statistics()
        self._workers = len(config.addresses)
        self._next = (config.rank + 1) % self._workers
        self._previous = (config.rank - 1) % self._workers
        self._sockets: tuple[socket.socket, socket.socket] | None = (
            None  # to the next rank, from the previous
        )
        self._scratch = np.empty(_SCRATCH // _ELEMENT, np.float32)
        if self._workers > 1:
            self._sockets = self._connect()

    # -- connections

    def _connect(self) -> tuple[socket.socket, socket.socket]:
        deadline = time.monotonic() + self.config.connect_timeout
        outgoing = None
        with socket.create_server(self.config.addresses[self.config.rank], backlog=4) as listener:
            try:
                outgoing = self._connect_to_next(deadline)
                outgoing.sendall(_HELLO.pack(_MAGIC, self.config.rank, self._workers))
                incoming = self._accept_previous(listener, deadline)
            except BaseException:
                if outgoing:
                    outgoing.close()
                raise
        for connection in (outgoing, incoming):
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return outgoing, incoming

    def _connect_to_next(self, deadline: float) -> socket.socket:
        address = self.config.addresses[self._next]
        while True:
            left = deadline - time.monotonic()
            try:
                return socket.create_connection(address, timeout=max(left, _RETRY))
            except OSError as error:
                if left <= 0:
                    raise CollectiveError(
                        f"{self._who()}: rank {self._next} does not answer at {address[0]}:{address[1]} "
                        f"after {self.config.connect_timeout:g} s: {error}"
                    ) from error
                time.sleep(_RETRY)

    def _accept_previous(self, listener: socket.socket, deadline: float) -> socket.socket:
        listener.settimeout(max(deadline - time.monotonic(), _RETRY))
        try:
            connection, address = listener.accept()
        except TimeoutError as error:
            raise CollectiveError(
                f"{self._who()}: rank {self._previous} has not connected "
                f"after {self.config.connect_timeout:g} s"
            ) from error
        try:
            connection.settimeout(max(deadline - time.monotonic(), _RETRY))
            hello = connection.recv(_HELLO.size, socket.MSG_WAITALL)
            if hello != _HELLO.pack(_MAGIC, self._previous, self._workers):
                raise CollectiveError(
                    f"{self._who()}: {address[0]} connected and is not rank {self._previous} of "
                    f"{self._workers}; do all workers have the same addresses in the same order?"
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def _who(self) -> str:
        return f"ring rank {self.config.rank} of {self._workers}"

    # -- the collective

    @property
    def statistics(self) -> Statistics:
        """Totals so far; retransmissions are TCP's, in segments, to the next rank."""
        if self._sockets:
            self._statistics.retransmissions = _tcp_retransmissions(self._sockets[0])
        return self._statistics

    def all_reduce(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Sum of `x` over all workers; see Collective.

        StallError: no byte moved for `give_up` seconds. CollectiveError: a neighbour is gone, or sums
        another size. After either the ring is closed.
        """
        flat = flat_input(x)
        result = flat_output(x, out)
        if self._workers > 1 and not self._sockets:
            raise CollectiveError(f"{self._who()} is closed")
        np.copyto(result, flat)
        if self._workers > 1:
            try:
                self._circulate(result)
            except BaseException:
                self.close()  # the streams are out of step now
                raise
        self._statistics.all_reduces += 1
        return result.reshape(x.shape)

    def close(self) -> None:
        """Close both connections."""
        sockets, self._sockets = self._sockets, None
        if sockets:
            self._statistics.retransmissions = _tcp_retransmissions(sockets[0])
            for connection in sockets:
                connection.close()

    def __enter__(self) -> Self:
        """Nothing: the connections are made already."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close both connections."""
        self.close()

    # -- one all-reduce

    def _circulate(self, result: NDArray[np.float32]) -> None:
        """Sum `result` in place: two byte streams, one from the previous rank and one to the next."""
        assert self._sockets
        outgoing, incoming = self._sockets
        header = _HEADER.pack(self._statistics.all_reduces, result.size)
        bounds = [result.size * segment // self._workers for segment in range(self._workers + 1)]
        segments = [result[first:last] for first, last in itertools.pairwise(bounds)]
        steps = 2 * (self._workers - 1)
        sender = _Sender(
            header, [segments[(self.config.rank - step) % self._workers] for step in range(steps)]
        )
        arriving = [segments[(self._previous - step) % self._workers] for step in range(steps)]
        receiver = _Receiver(header, arriving, self._scratch)
        while not (sender.done and receiver.done):
            try:
                moved = sender.move(outgoing, receiver.passed) + receiver.move(incoming)
            except (ConnectionError, _OutOfStepError) as error:
                raise CollectiveError(
                    f"{self._who()}: {error}; {self._progress(sender, receiver)}"
                ) from error
            if not moved:
                readers = [] if receiver.done else [incoming]
                writers = [outgoing] if sender.blocked else []
                if not any(select.select(readers, writers, [], self.config.give_up)):
                    progress = self._progress(sender, receiver)
                    raise StallError(
                        f"{self._who()}: no byte moved for {self.config.give_up:g} s; {progress}"
                    )
        self._statistics.bytes_sent += sender.sent
        self._statistics.bytes_received += receiver.received

    def _progress(self, sender: "_Sender", receiver: "_Receiver") -> str:
        return (
            f"all-reduce {self._statistics.all_reduces + 1}: sent {sender.sent} of {sender.total} bytes to "
            f"rank {self._next}, received {receiver.received} of {receiver.total} from rank {self._previous}"
        )


class _OutOfStepError(Exception):
    """The previous rank is in another all-reduce."""


class _Sender:
    """The stream to the next rank: a header, then a segment for each step."""

    def __init__(self, header: bytes, segments: list[NDArray[np.float32]]) -> None:
        self._pieces = [memoryview(header), *(segment.data.cast("B") for segment in segments if segment.size)]
        self._own = len(header) + segments[0].nbytes  # what does not wait for the previous rank
        self._offset = 0  # in the first piece left
        self.total = sum(map(len, self._pieces))
        self.sent = 0
        self.blocked = False

    @property
    def done(self) -> bool:
        return self.sent == self.total

    def move(self, connection: socket.socket, passed: int) -> int:
        """Send what the socket takes, given how many bytes of data have been received and dealt with."""
        before = self.sent
        self.blocked = False
        while not self.done and self.sent < self._own + passed:
            end = self._offset + self._own + passed - self.sent
            try:
                count = connection.send(self._pieces[0][self._offset : end])
            except BlockingIOError:
                self.blocked = True
                break
            self.sent += count
            self._offset += count
            if self._offset == len(self._pieces[0]):
                del self._pieces[0]
                self._offset = 0
        return self.sent - before


class _Receiver:
    """The stream from the previous rank: the same header, segments to add, segments to keep."""

    def __init__(
        self, header: bytes, segments: list[NDArray[np.float32]], scratch: NDArray[np.float32]
    ) -> None:
        self._header = header
        self._segments = segments
        self._scratch = scratch
        self._scratch_bytes = scratch.data.cast("B")
        self._adding = len(segments) // 2
        self._step = 0
        self._offset = 0  # bytes of this step's segment that are dealt with
        self._held = 0  # bytes in scratch: the beginning of an element
        self.total = len(header) + sum(segment.nbytes for segment in segments)
        self.received = 0
        self.passed = 0

    @property
    def done(self) -> bool:
        return self.received == self.total

    def move(self, connection: socket.socket) -> int:
        """Receive once and deal with it; how many bytes, 0 if there were none."""
        if self.done:
            return 0
        try:
            if self.received < len(self._header):
                count = self._check_header(connection)
            else:
                while not self._segments[self._step].nbytes - self._offset:
                    self._step += 1
                    self._offset = 0
                count = self._add(connection) if self._step < self._adding else self._keep(connection)
        except BlockingIOError:
            return 0
        if not count:
            raise ConnectionError("the previous rank closed the connection")
        self.received += count
        return count

    def _check_header(self, connection: socket.socket) -> int:
        data = connection.recv(len(self._header) - self.received)
        if data != self._header[self.received : self.received + len(data)]:
            raise _OutOfStepError(
                "the previous rank sums an array of another size, or is in another all-reduce"
            )
        return len(data)

    def _add(self, connection: socket.socket) -> int:
        segment = self._segments[self._step]
        room = self._scratch_bytes[self._held : segment.nbytes - self._offset]
        count = connection.recv_into(room)
        whole, rest = divmod(self._held + count, _ELEMENT)
        start = self._offset // _ELEMENT
        segment[start : start + whole] += self._scratch[:whole]
        self._scratch_bytes[:rest] = self._scratch_bytes[whole * _ELEMENT : whole * _ELEMENT + rest]
        self._held = rest
        self._offset += whole * _ELEMENT
        self.passed += whole * _ELEMENT
        return count

    def _keep(self, connection: socket.socket) -> int:
        count = connection.recv_into(self._segments[self._step].data.cast("B")[self._offset :])
        self._offset += count
        self.passed += count
        return count
