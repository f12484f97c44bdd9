"""The interface between a worker's protocol and the processing of its packets: the state that both share, and Engine.

reference.py is the reference implementation with numpy; native.py does the same in C, bit for bit.
"""

import ctypes
import errno
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fanin.workers import wire
from fanin.workers.agreement import DIGITS
from fanin.workers.congestion import Gate
from fanin.workers.engines.buffers import Buffers
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery, Timers
from fanin.workers.tensor import Tensor

NONE = -1  # no chunk
CARRYING, LEADING, BARE = range(3)  # State.packets

UDP_SEGMENT, UDP_GRO = 103, 104  # linux/udp.h; Python's socket module does not name them
MAX_ERRORS = 16  # how many are skipped in a row
# Errors that count as a lost datagram: is_loss() of socket_loop.c.
LOSSES = {
    *(errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENONET),
    *(errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.EPROTO),
    *(errno.ENETDOWN, errno.ENOBUFS, errno.ENOMEM, errno.EACCES, errno.EPERM),
}

REASONS = ("malformed", "other lease", "unknown chunk", "impossible", "duplicate")  # enum reason of native.h
PARTS = ("wait", "receive", "unpack", "pack", "send")  # enum part
STAGES = ("not begun", "begun", "summed")  # enum stage
NOT_BEGUN, BEGUN, SUMMED = range(len(STAGES))

_int64 = ctypes.c_int64


class Progress(ctypes.Structure):
    """The progress of the last all-reduce that has begun.

    Attributes:
        calls: Number of calls of the lease that have begun or have been refused.
        first_chunk: The all-reduce's first chunk number in the lease.
        chunks: Number of its chunks, as far as that is known.
        missing: Number of results that have not arrived.
        disagree: Whether the first chunk's result shows that the workers do not agree.
        unsummed: Number of blocks known so far that some worker cannot quantize.
        sums: The digits in the result that shows a disagreement.
        latest: When the all-reduce began or something new last arrived, in seconds.
    """

    _fields_ = (
        *((name, _int64) for name in ("calls", "first_chunk", "chunks", "missing", "disagree", "unsummed")),
        ("sums", _int64 * DIGITS),
        ("latest", ctypes.c_double),
    )
    calls: int
    first_chunk: int
    chunks: int
    missing: int
    disagree: int
    unsummed: int
    sums: ctypes.Array[ctypes.c_int64]
    latest: float


class Totals(ctypes.Structure):
    """Counters since the lease began.

    Attributes:
        received: Datagrams received.
        received_bytes: Bytes in them.
        sent: Datagrams sent.
        sent_bytes: Bytes in them.
        accepted: Results accepted.
        saturated: Accepted results in which an addition saturated.
        ignored: Ignored datagrams, by reason.
        spent: Seconds in each part of exchange(), measured in C only.
    """

    _fields_ = (
        *((name, _int64) for name in ("received", "received_bytes", "sent", "sent_bytes")),
        *((name, _int64) for name in ("accepted", "saturated")),
        ("ignored", _int64 * len(REASONS)),
        ("spent", ctypes.c_double * len(PARTS)),
    )
    received: int
    received_bytes: int
    sent: int
    sent_bytes: int
    accepted: int
    saturated: int
    ignored: ctypes.Array[ctypes.c_int64]
    spent: ctypes.Array[ctypes.c_double]


class SocketState(ctypes.Structure):
    """A socket, its settings, and memory for what it receives, as socket_loop.c expects them.

    The fields that need explanation:
    - enough: Number of bytes that are worked on without waiting for more.
    - patience: How long to wait for more otherwise, as a fraction of the round-trip time, and at most
      `longest_patience` seconds. There is no wait if it would be shorter than `shortest_patience`.
    - longest_exchange: Seconds after which repeat() returns in any case.
    - loss: The last error that counted as a lost datagram; 0 if there was none.
    - looked: When the socket was last read, in seconds. Timers may count as lost what had not arrived by then.
    - news: Another descriptor, which ends an exchange once it can be read; negative if there is none.
    """

    _fields_ = (
        *((name, _int64) for name in ("socket", "segments", "offload", "room", "enough")),
        *((name, ctypes.c_double) for name in ("patience", "shortest_patience", "longest_patience")),
        ("longest_exchange", ctypes.c_double),
        ("buffer", ctypes.c_void_p),
        ("sleeps", _int64),
        ("crowded", _int64),
        ("loss", _int64),
        ("looked", ctypes.c_double),
        ("news", _int64),
    )


class State:
    """The state of a worker's packets, in memory shared by Python and C.

    A retransmission repeats a packet byte for byte, so packets are kept as they were last sent.

    Attributes:
        lease: The worker's lease.
        recovery: Settings of loss recovery.
        timers: The retransmission timers.
        gate: The chunks that congestion control holds back.
        progress: The progress of the all-reduce.
        totals: Counters since the lease began.
        awaited: The chunk whose result is awaited, by place in the window (chunk mod W), or NONE.
        carrying: The last packet sent with values, by place.
        leading: The last packet sent with zeros only, by place; of the smaller size.
        bare: The last packet sent without values, by place.
        kept_in: In which of `packets` the last packet sent is, by place.
        packets: These three: carrying, leading and bare.
    """

    def __init__(self, lease: Lease, recovery: Recovery) -> None:
        self.lease = lease
        self.recovery = recovery
        self.timers = Timers(lease.window, recovery)
        self.gate = Gate(lease.window)
        self.progress = Progress()
        self.totals = Totals()
        self.awaited = np.full(lease.window, NONE, np.int64)
        self.carrying = self._packets(lease.values)
        smallest = min(wire.SIZES)
        self.leading = self.carrying if lease.block(32) == smallest else self._packets(smallest)
        self.bare = self._packets(0)
        self.kept_in = np.full(lease.window, CARRYING, np.uint8)
        self.packets = self.carrying, self.leading, self.bare

    def _packets(self, values: int) -> NDArray[np.void]:
        packets = np.zeros(self.lease.window, wire.packet_dtype(values))
        packets["lease"] = self.lease.id
        return packets


class Socket(Protocol):
    """The methods of a socket that an engine needs; implemented by udp.UdpSocket."""

    link: SocketState

    def exchange(self, state: State, engine: "Engine", ready: list[NDArray[np.int64]], until: float) -> None:
        """Do the work of Engine.exchange() in Python."""

    def check(self, error: int, size: int) -> None:
        """Raise an error unless the error number is 0.

        Args:
            error: The error number.
            size: Size in bytes of the datagram that caused it.

        Raises:
            OSError: If `error` is not 0.
        """


class Engine(Protocol):
    """The processing of one worker's packets, on its State.

    Chunks are numbered within the all-reduce.
    """

    def begin(self, tensor: Tensor, buffers: Buffers, first_chunk: int, propagate: bool) -> NDArray[np.int64]:
        """Begin a sum, which is complete when no result is missing.

        Until finish(), only the engine may write to `buffers`.

        Args:
            tensor: The chunks of the vector.
            buffers: Input and output.
            first_chunk: The first chunk number in the lease.
            propagate: Whether blocks that cannot be quantized are left out. In such blocks each worker keeps its own
                values. If false, nothing begins when there is such a block, and there are no chunks.

        Returns:
            The chunks [m] that may be sent at once.
        """

    def repeat(self, socket: "Socket", tensor: Tensor, buffers: Buffers, propagate: bool) -> int:
        """Run a whole all-reduce like an earlier one, with that one's `tensor`, which is faster.

        Args:
            socket: The socket to the switch.
            tensor: The chunks of the vector.
            buffers: Input and output.
            propagate: See begin().

        Returns:
            How far the all-reduce has come. SUMMED: it is complete, and `buffers` is no longer used. BEGUN: exchange()
                has to continue, or the caller has to handle what was saturated or left out. NOT_BEGUN: call begin(),
                which begins it or reports why it cannot. A negative number is the negated errno of an error after it
                had begun.
        """

    @property
    def quantizable(self) -> NDArray[np.bool_]:
        """Return which blocks of the last vector can be quantized: [blocks]."""

    @property
    def factors(self) -> NDArray[np.float64]:
        """Return the factor by which each block's values were multiplied [blocks], valid once its exponent is known."""

    @property
    def summed(self) -> NDArray[np.bool_]:
        """Return which blocks have their sum in `out`, while sums of others may be missing: [blocks].

        It is not defined for a vector whose blocks all fit into the window.
        """

    def pack(self, chunks: NDArray[np.int64], now: float) -> list[NDArray[np.void]]:
        """Return the packets of chunks [m] that are sent for the first time, in batches of one size.

        Either all chunks are among the first B, or none is.
        """

    def receive(self, datagrams: NDArray[np.uint8], now: float) -> NDArray[np.int64] | None:
        """Process a batch [m, size] of datagrams and return the chunks [n] that may be sent now, None if none."""

    def exchange(self, socket: Socket, ready: list[NDArray[np.int64]], until: float) -> None:
        """Send, receive and answer until a timer may have expired, all results are there, `until`, or news.

        Args:
            socket: The socket to the switch.
            ready: Chunks to send first, [m] each.
            until: When to return at the latest, in seconds.
        """

    def finish(self) -> None:
        """Release the caller's arrays: the caller has the result."""

    @property
    def turn(self) -> tuple[int, int] | None:
        """Return the addresses of C's turn_function (native/worker.h) and of its worker; None without C."""
