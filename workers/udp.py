"""All-reduce through the switches: the protocol on a UDP socket, with many datagrams per system call."""

import errno
import math
import os
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fanin.workers import wire
from fanin.workers.collective import Closing, StallError
from fanin.workers.congestion import ECN_CAPABLE, ECN_CONGESTED
from fanin.workers.engines.buffers import Buffers
from fanin.workers.engines.engine import (
    LOSSES,
    MAX_ERRORS,
    NOT_BEGUN,
    SUMMED,
    UDP_GRO,
    UDP_SEGMENT,
    Engine,
    SocketState,
    State,
)
from fanin.workers.lease import Lease
from fanin.workers.protocol import InNetworkStatistics, Outstanding, Worker
from fanin.workers.recovery import Recovery
from fanin.workers.tensor import Partition

# linux/udp.h, asm-generic/socket.h, linux/in.h; Python's socket module does not name them.
_SOL_UDP = 17
_SO_NO_CHECK = 11
_SO_RCVBUFFORCE = 33
_IP_MTU_DISCOVER = 10
_IP_RECVTOS = 13
_IP_PMTUDISC_PROBE = 3

_LARGEST_MESSAGE = 65507
MAX_SEGMENTS = _LARGEST_MESSAGE // wire.packet_dtype(256).itemsize  # 63
_RECEIVE_BUFFER = 8 << 20
_NO_ELEMENTS = np.zeros(0, np.int64)
# Bytes received before work on them begins: with fewer, the cost of a call dominates that of its datagrams;
# with more, the switch waits for the worker's answer.
_ENOUGH = 16 << 10
# How long to wait for more if less arrives: a fraction of the round-trip time, and at most this many seconds.
_PATIENCE = 1 / 8
_LONGEST_PATIENCE = 0.001
# Longest time in seconds between checks for messages, even if the timers are longer.
_LOOK = 0.25
# Waiting for less than this many seconds gains nothing: falling asleep and waking up takes as long.
_SHORTEST_PATIENCE = 0.0002

# Errors where segmentation is unavailable: of setsockopt, and of send if checksums are not offloaded.
_NO_OPTION = {errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EINVAL}
_NO_OFFLOAD = {errno.EINVAL, errno.EIO}


def _enlarge_receive_buffer(of: socket.socket) -> None:
    try:
        of.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
    except PermissionError:  # not root: as much as net.core.rmem_max allows
        of.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)


def receive_buffer() -> int:
    """Return the size of a worker's receive buffer in bytes, as the kernel counts: with what it adds to each packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        _enlarge_receive_buffer(probe)
        return probe.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


@dataclass(frozen=True, slots=True)
class InNetworkConfig:
    """Settings of a worker's in-network all-reduce.

    Attributes:
        lease: The worker's lease.
        local: IPv4 address and UDP port of the worker, as the controller admitted it.
        remote: IPv4 address and UDP port of its leaf, as the controller admitted it; ports from 0xBEE0 to 0xBEEF.
        segments: Datagrams handed to the kernel at once, 1 to 63. Few keep the delay low on slow links (62 take 5 ms at
            100 Mb/s).
        offload: Whether to use UDP_SEGMENT and UDP_GRO where the kernel has them.
        checksums: Whether packets carry UDP checksums; must be as the lease was granted. With checksums, switches drop
            packets without one. Without them, a flipped bit goes into the sum. UDP_SEGMENT needs checksums.
        recovery: Settings of loss recovery.
        non_finite: "raise" refuses numbers that are not finite. With "propagate", all_reduce() returns NaN for the
            whole block in which some worker has such a number.
        on_saturation: See protocol.Worker.
        deterministic: See protocol.Worker.
        growth: See protocol.Worker.

    Raises:
        ValueError: If the port is not one of the switch's, or `segments` is out of range.
    """

    lease: Lease
    local: tuple[str, int]
    remote: tuple[str, int]
    segments: int = 62
    offload: bool = True
    checksums: bool = True
    recovery: Recovery = field(default_factory=Recovery)
    non_finite: Literal["raise", "propagate"] = "raise"
    on_saturation: Literal["raise", "count"] = "raise"
    deterministic: bool = False
    growth: int | None = None

    def __post_init__(self) -> None:
        if self.remote[1] not in wire.UDP_PORTS:
            raise ValueError(
                f"the switch's UDP port must be from {wire.UDP_PORTS[0]:#x} to {wire.UDP_PORTS[-1]:#x}, "
                f"not {self.remote[1]:#x}"
            )
        if not 1 <= self.segments <= MAX_SEGMENTS:
            raise ValueError(f"segments must be from 1 to {MAX_SEGMENTS}, not {self.segments}")


class UdpSocket:
    """A connected UDP socket that sends and receives batches [m, size] of datagrams of one size.

    With offload a batch costs one system call. Without it (older kernel, network device without checksum offload, no
    checksums) the same calls work datagram by datagram.

    Args:
        local: IPv4 address and UDP port of this end.
        remote: IPv4 address and UDP port of the other end.
        segments: Datagrams handed to the kernel at once.
        offload: Whether to use segmentation offload where it is available.
        checksums: Whether datagrams carry UDP checksums.

    Raises:
        OSError: If the address is not this machine's, or the port is taken.
    """

    def __init__(
        self,
        local: tuple[str, int],
        remote: tuple[str, int],
        *,
        segments: int,
        offload: bool,
        checksums: bool = True,
    ) -> None:
        self._segments = segments
        self._segment_size = 0  # as set by UDP_SEGMENT; 0: whole datagrams
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            # No fragments: the switch could not read them. And only the interface's own MTU limits the size: the path
            # MTU comes from ICMP messages, which anybody can forge.
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_PROBE)
            self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, ECN_CAPABLE)
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)
            if not checksums:
                self._socket.setsockopt(socket.SOL_SOCKET, _SO_NO_CHECK, 1)
            self._socket.bind(local)
            self._socket.connect(remote)
        except OSError as error:
            self._socket.close()
            raise OSError(error.errno, f"UDP socket from {local} to {remote}: {error.strerror}") from error
        _enlarge_receive_buffer(self._socket)
        self._bytes = np.zeros(_ENOUGH + (1 << 16), np.uint8)  # room for one more message than is enough
        self._view = self._bytes.data
        self.link = SocketState(
            socket=self._socket.fileno(),
            segments=segments,
            # The kernel segments only datagrams that it may write checksums for.
            offload=offload
            and checksums
            and self._set_option(UDP_SEGMENT, 0)
            and self._set_option(UDP_GRO, 1),
            room=len(self._bytes),
            enough=_ENOUGH,
            patience=_PATIENCE,
            shortest_patience=_SHORTEST_PATIENCE,
            longest_patience=_LONGEST_PATIENCE,
            longest_exchange=_LOOK,
            buffer=self._bytes.ctypes.data,
            news=-1,
        )
        self._batches: list[tuple[int, int, int]] = []  # first byte, last byte + 1, size of a datagram
        self._end = 0
        self._marked = 0
        self._noticed = False  # whether the descriptor `news` can be read
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def notice(self, news: int) -> None:
        """Let exchange() also end when it waits and this descriptor can be read. A negative number removes it."""
        self.link.news = news
        if news >= 0:
            self._poll.register(news, select.POLLIN)

    @property
    def offload(self) -> bool:
        """Return whether many datagrams are sent at once. Offload is switched off if the device refuses it."""
        return bool(self.link.offload)

    def _set_option(self, option: int, value: int) -> bool:
        try:
            self._socket.setsockopt(_SOL_UDP, option, value)
        except OSError as error:
            if error.errno in _NO_OPTION:
                return False
            raise
        return True

    def send(self, datagrams: NDArray[np.uint8]) -> None:
        """Send every row of `datagrams` [m, size]; blocks while the socket buffer is full."""
        sent = self._send_segmented(datagrams) if self.offload else 0
        for datagram in datagrams[sent:]:
            self._send(datagram)

    def _send_segmented(self, datagrams: NDArray[np.uint8]) -> int:
        """Send with segmentation offload, and return how many rows were sent: fewer than all if the device lacks it."""
        count, size = datagrams.shape
        start = 0
        try:
            if size != self._segment_size:
                self._socket.setsockopt(_SOL_UDP, UDP_SEGMENT, size)
                self._segment_size = size
            while start < count:
                self._send(datagrams[start : start + self._segments])
                start += self._segments
        except OSError as error:
            if error.errno not in _NO_OFFLOAD:
                raise
            self.link.offload = False
            self._socket.setsockopt(_SOL_UDP, UDP_SEGMENT, 0)
        return start

    def _send(self, message: NDArray[np.uint8]) -> None:
        """Send one message, as send_message() of socket_loop.c does."""
        failed: OSError | None = None
        for _ in range(MAX_ERRORS):
            try:
                self._socket.send(message.data)
            except OSError as error:
                failed = error
                if error.errno != errno.EMSGSIZE and not self._is_loss(error):
                    raise
            else:
                return
        assert failed
        if failed.errno == errno.EMSGSIZE:
            raise _too_large(message.shape[-1]) from failed

    def _is_loss(self, error: OSError) -> bool:
        if error.errno not in LOSSES:
            return False
        self.link.loss = error.errno
        return True

    @property
    def last_loss(self) -> str:
        """Return the last error in this all-reduce that counted as a lost datagram; "" if there was none."""
        return os.strerror(self.link.loss) if self.link.loss else ""

    def receive(self, timeout: float, patience: float = 0.0) -> list[NDArray[np.uint8]]:
        """Return the datagrams that have arrived, in order, in batches [m, size] of one size each.

        The arrays are the socket's own memory, which the next call overwrites.

        Args:
            timeout: Seconds to wait for the first datagram.
            patience: Seconds to wait for more if little has arrived.

        Returns:
            The batches; an empty list if nothing arrives in time.
        """
        self._batches = []
        self._end = self._marked = 0
        self._noticed = False
        self._receive_waiting()
        if not self._end and timeout > 0:
            self._noticed = self.link.news in dict(self._poll.poll(math.ceil(timeout * 1000)))
            self._receive_waiting()
        if patience > 0 and 0 < self._end < _ENOUGH:
            time.sleep(patience)
            self._receive_waiting()
        return [self._bytes[first:last].reshape(-1, size) for first, last, size in self._batches]

    @property
    def noticed(self) -> bool:
        """Return whether the descriptor of notice() could be read when receive() last waited."""
        return self._noticed

    @property
    def marks(self) -> int:
        """Return how many of the datagrams that receive() returned last carried a congestion mark."""
        return self._marked

    def exchange(self, state: State, engine: Engine, ready: list[NDArray[np.int64]], until: float) -> None:
        """Send, receive and answer, as socket_loop.c does, for any engine; see Engine.exchange().

        Args:
            state: The worker's state.
            engine: The engine that packs and reads packets.
            ready: Chunks to send first, [m] each.
            until: When to return at the latest, in seconds of time.monotonic().
        """
        progress, timers, totals = state.progress, state.timers, state.totals
        late = False
        while True:
            now = time.monotonic()
            for chunks in ready:
                for packets in engine.pack(chunks, now):
                    datagrams = wire.as_datagrams(packets)
                    self.send(datagrams)
                    totals.sent += len(datagrams)
                    totals.sent_bytes += datagrams.size
            ready = []
            self.link.looked = now
            if not progress.missing or progress.disagree or late:
                return
            left = min(timers.earliest(), until) - now
            patience = min((timers.rtt.smoothed or 0.0) * _PATIENCE, _LONGEST_PATIENCE)
            batches = self.receive(left, patience)
            if (left <= 0 or self._noticed) and not batches:
                return
            state.gate.marked += self._marked
            for batch in batches:
                released = engine.receive(batch, time.monotonic())
                if released is not None:
                    ready.append(released)
            late = now >= until or self._noticed

    def check(self, error: int, size: int) -> None:
        """Raise an error unless the error number is 0.

        Args:
            error: The error number.
            size: Size in bytes of the datagram that caused it.

        Raises:
            OSError: If `error` is not 0.
        """
        if error == errno.EMSGSIZE:
            raise _too_large(size)
        if error:
            raise OSError(error, os.strerror(error))

    def _receive_waiting(self) -> None:
        """Receive messages that are waiting, until there is enough to work on at once."""
        errors = 0
        while self._end < _ENOUGH and errors < MAX_ERRORS:
            try:
                length, ancillary, _, _ = self._socket.recvmsg_into(
                    [self._view[self._end :]],
                    socket.CMSG_SPACE(4) + socket.CMSG_SPACE(1),
                    socket.MSG_DONTWAIT,
                )
            except BlockingIOError:
                return
            except OSError as error:  # about a datagram sent earlier, which counts as lost
                if error.errno != errno.EMSGSIZE and not self._is_loss(error):
                    raise
                errors += 1
                continue
            # With UDP_GRO a message is several datagrams of one size, the last one perhaps shorter.
            said = {(level, kind): data for level, kind, data in ancillary}
            segment = said.get((_SOL_UDP, UDP_GRO))
            size = struct.unpack("i", segment)[0] if segment else length
            rest = length % size if size else 0
            if said.get((socket.IPPROTO_IP, socket.IP_TOS), b"\0")[0] & ECN_CONGESTED == ECN_CONGESTED:
                self._marked += (length // size if size else 0) + (rest > 0)
            self._append(length - rest, size)
            self._append(rest, rest)

    def _append(self, length: int, size: int) -> None:
        """Record that `length` more bytes are in the buffer, in datagrams of `size` bytes."""
        if not length:
            return
        first = self._end
        self._end += length
        if self._batches and self._batches[-1][2] == size:
            first = self._batches.pop()[0]
        self._batches.append((first, self._end, size))

    def fileno(self) -> int:
        """Return the descriptor, for poll()."""
        return self._socket.fileno()

    def close(self) -> None:
        """Release the port."""
        self._socket.close()


def _too_large(size: int) -> OSError:
    return OSError(
        errno.EMSGSIZE,
        f"a datagram of {size} bytes does not fit the network device's MTU: raise it to {size + 28} "
        "at least, on every link, or use packets of 64 values",
    )


class SocketWorker(Protocol):
    """The worker of an InNetworkAllReduce: fanin's own, or that of another protocol (participant_udp.py)."""

    @property
    def statistics(self) -> InNetworkStatistics: ...  # noqa: D102
    @property
    def finished(self) -> bool: ...  # noqa: D102
    @property
    def unsummed(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def summed(self) -> NDArray[np.bool_]: ...  # noqa: D102
    def checked(self, x: NDArray[np.float32], out: NDArray[np.float32] | None) -> Buffers: ...  # noqa: D102
    def repeat(self, socket: UdpSocket, buffers: Buffers, call: str) -> int: ...  # noqa: D102
    def begin(  # noqa: D102
        self, buffers: Buffers, now: float, call: str, partition: Partition | None = None
    ) -> None: ...
    def datagrams_to_send(self, now: float) -> list[NDArray[np.uint8]]: ...  # noqa: D102
    def exchange(self, socket: UdpSocket, until: float) -> None: ...  # noqa: D102
    def finish(self, *, unsummed: Literal["NaN", "own"] = "NaN") -> NDArray[np.float32]: ...  # noqa: D102
    def outstanding(self, now: float) -> Outstanding | None: ...  # noqa: D102


class InNetworkAllReduce(Closing):
    """A Collective whose sums are made in the switches.

    Args:
        config: The settings.
        worker: The worker; None: fanin's own, as the settings describe it.

    Attributes:
        config: The settings.
        worker: The protocol's state.
        socket: The socket to the switch.
        unsummed: Indices of the elements of the last sum that have no sum, ascending; the same at all workers.

    Raises:
        OSError: See UdpSocket.
    """

    def __init__(self, config: InNetworkConfig, worker: SocketWorker | None = None) -> None:
        self.config = config
        self.unsummed = _NO_ELEMENTS
        self.worker: SocketWorker = worker or Worker(
            config.lease,
            config.recovery,
            non_finite=config.non_finite,
            on_saturation=config.on_saturation,
            deterministic=config.deterministic,
            growth=config.growth,
        )
        self.socket = UdpSocket(
            config.local,
            config.remote,
            segments=config.segments,
            offload=config.offload,
            checksums=config.checksums,
        )

    @property
    def statistics(self) -> InNetworkStatistics:
        """Return the totals so far."""
        return self.worker.statistics

    def all_reduce(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None, call: str = ""
    ) -> NDArray[np.float32]:
        """Return the sum of `x` over all workers; see Collective.

        Args:
            x: The array to sum, float32, of any shape.
            out: Where the sum is written; may be `x`. None allocates a new array.
            call: The purpose of the all-reduce; see Worker.start().

        Raises:
            TypeError: If `x` is not an array of float32. Nothing was sent, but the call has used up its number.
            ValueError: If an element cannot be quantized, or `out` does not fit. Nothing was sent, but the call has
                used up its number: the next sum of this worker is an error if the others made this call.
            StallError: See protocol.py.
            SaturationError: See protocol.py.
            LeaseExhaustedError: See protocol.py.
        """
        buffers = self.worker.checked(x, out)
        self.sum_in_network(buffers, call)
        buffers.out[self.unsummed] = np.nan
        return buffers.out.reshape(x.shape) if out is None else out

    def sum_in_network(self, buffers: Buffers, call: str) -> None:
        """Sum flat arrays that have been checked. Elements that are `unsummed` keep the values of `x`.

        Args:
            buffers: Input and output.
            call: The purpose of the all-reduce; see Worker.start().
        """
        stage = self.worker.repeat(self.socket, buffers, call)
        if stage != SUMMED:
            self._complete(buffers, call, stage)
        elif len(self.unsummed):
            self.unsummed = _NO_ELEMENTS

    def exchange_in_network(self, buffers: Buffers, partition: Partition, call: str) -> None:
        """Gather or scatter flat arrays that have been checked.

        Args:
            buffers: Input and output, as Worker.begin() expects them.
            partition: The parts and their owners; only fanin's own worker knows them.
            call: The purpose of the operation; see Worker.start().
        """
        self._complete(buffers, call, NOT_BEGUN, partition)

    def _complete(self, buffers: Buffers, call: str, stage: int, partition: Partition | None = None) -> None:
        """Complete sum_in_network() or exchange_in_network() from `stage` on."""
        worker = self.worker
        if stage == NOT_BEGUN:
            self.socket.link.loss = 0
            worker.begin(buffers, time.monotonic(), call, partition)
            worker.exchange(self.socket, time.monotonic() + _LOOK)
        while not worker.finished:
            self._send()
            worker.exchange(self.socket, time.monotonic() + _LOOK)
        worker.finish(unsummed="own")
        self.unsummed = worker.unsummed

    def _send(self) -> None:
        """Send what the timers ask for."""
        try:
            batches = self.worker.datagrams_to_send(self.socket.link.looked)
        except StallError as error:
            if said := self.socket.last_loss:
                raise StallError(f"{error}; the socket last said: {said}") from None
            raise
        for batch in batches:
            self.socket.send(batch)

    def close(self) -> None:
        """Release the port."""
        self.socket.close()
