"""The border between a worker's protocol and what is done for each packet: the state that both know, and who does it.

reference.py does it with numpy and is what is meant; native.py does the same in C, to the bit.
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

UDP_SEGMENT, UDP_GRO = 103, 104  # linux/udp.h; Python's socket module does not name them
MAX_ERRORS = 16  # skipped at a time
# Errors that are a loss: is_loss() of exchange.c.
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
    """How far the all-reduce begun last has come.

    Attributes:
        calls: How many calls of the lease have begun or have been refused.
        first_chunk: Its first chunk's number in the lease.
        chunks: How many it has, as far as that is known.
        missing: How many of their results are not there.
        disagree: Whether the first chunk's result shows that the workers do not agree.
        unsummed: How many blocks are known that some worker cannot quantize.
        sums: What was in the result that shows a disagreement.
        latest: When it began, or something new arrived last, in seconds.
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
    """What has been counted since the lease began: datagrams and bytes, and results.

    ignored: datagrams, by reason. spent: seconds in each part of exchange(), which C alone measures.
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
    """A socket, how it sends, and memory for what it receives, as exchange.c takes them.

    enough: bytes that need not wait for more. patience: how long else, as a part of the round-trip time, and in seconds
    (not at all for less than the shortest). longest_exchange: seconds after which sum() returns, whatever has come.
    loss: the last error that counted as one; 0: none. looked: what had not come by then, in seconds, timers may count
    as lost. news: another descriptor, which ends an exchange once it can be read; negative: there is none.
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
    """What a worker knows of its packets, as one memory for Python and C.

    By place in the window (chunk mod W): awaited, the chunk whose result is; and the packet last sent, as it was sent,
    since a retransmission repeats it byte for byte: `leading` has those without values, of the smaller size, `carrying`
    the others.
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
        self.leading = self.carrying if lease.values == smallest else self._packets(smallest)

    def _packets(self, values: int) -> NDArray[np.void]:
        packets = np.zeros(self.lease.window, wire.packet_dtype(values))
        packets["kind"] = wire.kind(wire.UPDATE, values)
        packets["lease"] = self.lease.id
        return packets


class Socket(Protocol):
    """What an engine asks of a socket: udp.UdpSocket."""

    link: SocketState

    def exchange(self, state: State, engine: "Engine", ready: list[NDArray[np.int64]], until: float) -> None:
        """See Engine, in Python."""

    def check(self, error: int, size: int) -> None:
        """Check that `error`, about a datagram of `size` bytes, is 0.

        Raises:
            OSError: it is not.
        """


class Engine(Protocol):
    """What is done for each packet of one worker, on its State.

    Chunks are numbered within the all-reduce.
    """

    def begin(self, tensor: Tensor, buffers: Buffers, first_chunk: int, propagate: bool) -> NDArray[np.int64]:
        """Begin a sum, which is there when nothing is missing; nobody else writes to `buffers` before finish().

        The chunks [m] that may be sent at once. propagate: blocks that cannot be quantized are left out: where the sum
        would be, each worker has its own values; if not, and there are such, nothing has begun, and there are no
        chunks.
        """

    def sum(self, socket: "Socket", tensor: Tensor, buffers: Buffers, propagate: bool) -> int:
        """All of an all-reduce like one before, with that one's `tensor`, faster. How far it has come:

        SUMMED: it is over, and nobody keeps `buffers`. BEGUN: exchange() has to go on, or somebody to look at what has
        been saturated or left out. NOT_BEGUN: begin() does it, or says why not. A negative number: BEGUN, until this
        error.
        """

    @property
    def quantizable(self) -> NDArray[np.bool_]:
        """Which blocks of the vector begun last are: [blocks]."""

    @property
    def factors(self) -> NDArray[np.float64]:
        """What the integers were multiplied by, by block [blocks], once its exponent is known."""

    @property
    def summed(self) -> NDArray[np.bool_]:
        """Of which blocks the sum is in `out`, while that of others may be missing: [blocks].

        Not of a vector whose blocks all fit into the window.
        """

    def pack(self, chunks: NDArray[np.int64], now: float) -> NDArray[np.void]:
        """The packets [m] of chunks [m] that are sent for the first time: all among the first B, or none."""

    def receive(self, datagrams: NDArray[np.uint8], now: float) -> NDArray[np.int64] | None:
        """Take a batch [m, size]; the chunks [n] that may be sent then, if there are any."""

    def exchange(self, socket: Socket, ready: list[NDArray[np.int64]], until: float) -> None:
        """Send what is ready, receive and answer until a timer may have expired, all is there, `until`, or news.

        `ready`: chunks, [m] each. `until` in seconds.
        """

    def finish(self) -> None:
        """The caller has the result: keep none of its arrays."""

    @property
    def turn(self) -> tuple[int, int] | None:
        """Where C's turn_function of native/worker.h and its worker are in memory; None: C has none."""
