"""All-reduce between hosts over datagrams, without sockets or clock: a schedule over the reliable transport."""

from collections import deque
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import (
    CollectiveError,
    HostBasedAlgorithm,
    StallError,
    Statistics,
    Transport,
    WindowScope,
)
from fanin.workers.host_based.congestion_control import Dctcp, MakeControl
from fanin.workers.host_based.exchange import Call, Exchange, check_call
from fanin.workers.host_based.pieces import CHUNK, Piece, Schedule
from fanin.workers.host_based.schedules import ScheduleProgress, schedule
from fanin.workers.host_based.transport import (
    ACK,
    CALL_BYTES,
    DATA,
    ENDS,
    HEADER,
    HEADER_BYTES,
    MAX_FLOWS,
    MAX_PAYLOAD,
    NAK,
    PAYLOAD,
    Ends,
    Receiver,
    Sender,
    StreamCounts,
    open_stream,
    packet_numbers,
)
from fanin.workers.recovery import Recovery

_Key = tuple[int, int]  # a peer and a flow

MAX_WORKERS = 1 << 16  # ranks have 16 bits
_ELEMENT = 4
LEAST_SHARE = 8  # packets of a host's window that a stream may send in its turn, if there is room for them
_CALLS = 1 << 32  # a call's identity is a number modulo this
_FAR = 1 << 16  # identities that are further apart differ in more than the number of the call


@dataclass(frozen=True, slots=True)
class Group:
    """One worker's place in a group that all-reduces between hosts. All fields but `rank` are the same for all workers.

    Attributes:
        rank: This worker's number.
        workers: Number of workers.
        algorithm: The all-reduce algorithm.
        transport: How lost packets are recovered.
        shards: See schedules.schedule().
        window: Limit of outstanding packets.
        window_per: Whether `window` limits each stream, as with TCP and RDMA queue pairs, or all streams of this worker
            together ("host").
        chunk: See schedules.schedule().
        session: Any 32-bit number that distinguishes this group's datagrams from those of others.
        flows: Number of streams to each other rank, each with its own UDP ports. Chunks are sent over them in turn.
        make_control: Makes the congestion control of each stream.
        calls: What a worker's calls do, in turn.
        payload: Bytes of the array in a full packet, a multiple of 4.

    Raises:
        ValueError: If a number is out of range, no algorithm has this name, or a call compresses and the algorithm is
            not a ring.
    """

    rank: int
    workers: int
    algorithm: HostBasedAlgorithm = "ring"
    transport: Transport = "selective-repeat"
    shards: int | None = None
    window: int = 256
    window_per: WindowScope = "connection"
    chunk: int = CHUNK
    session: int = 0
    flows: int = 1
    make_control: MakeControl = Dctcp
    calls: tuple[Call, ...] = ("all-reduce",)
    payload: int = PAYLOAD

    def __post_init__(self) -> None:
        if not 0 < self.workers <= MAX_WORKERS:
            raise ValueError(f"workers must be from 1 to {MAX_WORKERS}, not {self.workers}")
        if not 0 <= self.rank < self.workers:
            raise ValueError(
                f"rank must be from 0 to {self.workers - 1} with {self.workers} workers, not {self.rank}"
            )
        if self.window < 1:
            raise ValueError(f"window must be at least 1, not {self.window}")
        if not 1 <= self.flows <= MAX_FLOWS:
            raise ValueError(f"flows must be from 1 to {MAX_FLOWS}, not {self.flows}")
        if not _ELEMENT <= self.payload <= MAX_PAYLOAD or self.payload % _ELEMENT:
            raise ValueError(
                f"payload must be a multiple of {_ELEMENT} from {_ELEMENT} to {MAX_PAYLOAD}, not {self.payload}"
            )
        for call in self.calls:
            check_call(call, self.algorithm)

    def port(self, rank: int, flow: int) -> int:
        """Return the UDP port that a peer uses for a flow to or from `rank`, counted from the peer's first port.

        The flows of a pair have consecutive ports: for ports that lie further apart, the last bits of a CRC are often
        the same.
        """
        return rank * self.flows + flow


@dataclass(slots=True)
class HostBasedStatistics(Statistics):
    """Running totals of one worker; for `streams` see StreamCounts."""

    datagrams_sent: int = 0
    datagrams_received: int = 0
    streams: StreamCounts = field(default_factory=StreamCounts)


class Outgoing(NamedTuple):
    """Datagrams [m, size] for one peer."""

    peer: int
    datagrams: NDArray[np.uint8]
    flow: int = 0


class _Flow:
    """A stream to another rank and one back, and payloads that have arrived and must wait."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self.sender = sender
        self.receiver = receiver
        self.waiting: deque[NDArray[np.uint8]] = deque()  # calls and payloads, in order


class _Peer:
    """Another rank: its flows, which carry pieces in turn, and the progress of the pieces to and from it."""

    def __init__(self, flows: list[_Flow]) -> None:
        self.flows = flows
        self.sent = 0  # pieces
        self.received = 0  # pieces
        self.offset = 0  # processed elements of the piece that is arriving


class HostBasedWorker:
    """A Participant of a group of hosts.

    It runs any number of all-reduces, one after the other. An all-reduce has finished when the worker has the sum and
    all that it sent has been acknowledged: only then may the array change. After that the worker must continue to
    answer datagrams, since the acknowledgements that others wait for may have been lost.
    """

    def __init__(self, group: Group, recovery: Recovery | None = None) -> None:
        self.group = group
        self._statistics = HostBasedStatistics()
        self._recovery = recovery or Recovery()
        self._peers: dict[int, _Peer] = {}
        # Flows with something to send, or unacknowledged, in the order in which they are served.
        self._busy: dict[_Key, Sender] = {}
        self._answering: set[_Key] = set()  # flows to which an acknowledgement is due
        self._progress: ScheduleProgress | None = None
        self._exchange: Exchange | None = None
        self._calls = 0  # begun so far, also those that were refused
        self._call = 0  # the current call's identity, which all its packets carry: see _identity()
        self._heard = 0.0  # when something new arrived last
        self._summed_at: float | None = None

    @property
    def statistics(self) -> HostBasedStatistics:
        """Return the totals so far."""
        return self._statistics

    # -- one all-reduce --------------------------------------------------------------------------------------

    def start(self, x: NDArray[np.float32], now: float, out: NDArray[np.float32] | None = None) -> None:
        """See Participant."""
        if not self.finished:
            raise CollectiveError(f"the previous all-reduce has not finished: {self.outstanding(now)}")
        group = self.group
        call = group.calls[self._calls % len(group.calls)]
        # A refused call counts, too: otherwise the next one would be combined with the others' current call.
        self._calls += 1
        exchange = self._exchange = Exchange(call, x, out, group.rank, group.workers)
        self._call = self._identity(call, x.size)
        self._begin(exchange, now)

    def _begin(self, exchange: Exchange, now: float) -> None:
        self._progress = ScheduleProgress(self._schedule(exchange))
        self._heard = now
        self._summed_at = None
        self._advance()
        self._note_sum(now)

    def _note_sum(self, now: float) -> None:
        if self._summed_at is None and self._progress is not None and not self._progress.awaiting:
            self._summed_at = now

    def _end(self) -> None:
        self._progress = None

    def _schedule(self, exchange: Exchange) -> Schedule:
        group = self.group
        return schedule(
            group.algorithm,
            group.rank,
            group.workers,
            exchange.array.size,
            chunk=group.chunk,
            shards=group.shards,
            operation=exchange.operation,
        )

    def _identity(self, call: Call, elements: int) -> int:
        """Return the current call's number, added to a hash of all that must be the same at all workers."""
        group = self.group
        alike = (
            group.algorithm,
            group.workers,
            group.shards,
            group.chunk,
            group.flows,
            group.payload,
            call,
            elements,
        )
        signature = int.from_bytes(sha256(repr(alike).encode()).digest()[:4])
        return (signature + self._calls) % _CALLS

    @property
    def finished(self) -> bool:
        """Return whether the sum is there and all that was sent has been acknowledged."""
        progress = self._progress
        return progress is None or not (progress.awaiting or progress.sending or self._busy)

    @property
    def summed_at(self) -> float | None:
        """Return when the sum of the current or the last all-reduce was there, in seconds; None if it is not yet.

        What this worker has sent may still have to be acknowledged.
        """
        return self._summed_at

    def finish(self) -> NDArray[np.float32]:
        """See Participant."""
        if self._exchange is None or not self.finished:
            raise CollectiveError("no all-reduce has finished")
        exchange, self._exchange = self._exchange, None
        self._end()
        self._statistics.all_reduces += 1
        return exchange.finish()

    # -- datagrams -------------------------------------------------------------------------------------------

    def receive(
        self, datagrams: NDArray[np.uint8], now: float, marked: NDArray[np.bool_] | None = None
    ) -> None:
        """Process a batch of datagrams.

        Args:
            datagrams: The datagrams [m, size].
            now: The time in seconds.
            marked: Whether each came with a congestion mark [m]. None: none did.
        """
        count, size = datagrams.shape
        statistics = self.statistics
        statistics.datagrams_received += count
        statistics.bytes_received += datagrams.size
        if size < HEADER_BYTES:
            statistics.streams.ignored["malformed"] += count
            return
        ends = datagrams[:, :ENDS]
        if count == 1 or (ends == ends[0]).all():
            self._take(datagrams, 0 if marked is None else int(np.count_nonzero(marked)), now)
            return
        # The batch has several peers or kinds: process each group by itself, in order.
        keys = np.ascontiguousarray(ends).view(f"V{ENDS}")[:, 0]
        _, groups = np.unique(keys, return_inverse=True)
        order = np.argsort(groups, kind="stable")
        for edge in pairwise(np.flatnonzero(np.diff(groups[order], prepend=-1, append=-1)).tolist()):
            part = order[slice(*edge)]
            self._take(datagrams[part], 0 if marked is None else int(np.count_nonzero(marked[part])), now)

    def datagrams_to_send(self, now: float) -> list[Outgoing]:
        """Return acknowledgements, then data; see Participant."""
        self._check_stall(now)
        if not (
            self._answering or self._busy
        ):  # usual if a host has many workers, each for a part of a model
            return []
        outgoing = []
        for peer, flow in sorted(self._answering):
            answer = self._peers[peer].flows[flow].receiver.answer()
            if answer is not None:
                outgoing.append(Outgoing(peer, answer, flow))
        self._answering.clear()
        busy = list(self._busy.items())
        if self.group.window_per == "connection":
            for (peer, flow), sender in busy:
                outgoing += [Outgoing(peer, batch, flow) for batch in sender.datagrams(now)]
        else:
            room = self.group.window - sum(sender.outstanding for sender in self._busy.values())
            for left, ((peer, flow), sender) in zip(range(len(busy), 0, -1), busy, strict=True):
                share = max(min(room, max(-(-room // left), LEAST_SHARE)), 0)
                before = sender.outstanding
                outgoing += [Outgoing(peer, batch, flow) for batch in sender.datagrams(now, share)]
                room -= sender.outstanding - before
        if len(busy) > 1:  # start with another one next time
            self._busy[busy[0][0]] = self._busy.pop(busy[0][0])
        statistics = self.statistics
        for sent in outgoing:
            statistics.datagrams_sent += len(sent.datagrams)
            statistics.bytes_sent += sent.datagrams.size
        statistics.retransmissions = statistics.streams.retransmissions
        return outgoing

    def _check_stall(self, now: float) -> None:
        if not self.finished and now >= self._last_heard() + self._recovery.give_up:
            raise StallError(self.outstanding(now))

    def deadline(self) -> float | None:
        """See Participant."""
        if self.finished:
            return None
        deadlines = [sender.deadline() for sender in self._busy.values()]
        return min([self._heard + self._recovery.give_up, *deadlines])

    # -- receiving -------------------------------------------------------------------------------------------

    def _take(self, datagrams: NDArray[np.uint8], marked: int, now: float) -> None:
        """Process datagrams of one kind, of one peer's flow."""
        group, ignored, count = self.group, self.statistics.streams.ignored, len(datagrams)
        kind, flow, source, destination, session, _, _ = HEADER.unpack(datagrams[0, :HEADER_BYTES].tobytes())
        if session != group.session or destination != group.rank:
            ignored["other session"] += count
            return
        known = source < group.workers and source != group.rank and flow < group.flows
        if not known or kind not in (DATA, ACK, NAK):
            ignored["malformed"] += count
            return
        peer = self._peer(source)
        stream = peer.flows[flow]
        if kind != DATA:
            for answer in datagrams:
                number, seen = HEADER.unpack(answer[:HEADER_BYTES].tobytes())[-2:]
                if stream.sender.acknowledge(kind, number, seen, answer[HEADER_BYTES:], now):
                    self._heard = now
            if stream.sender.done:
                self._busy.pop((source, flow), None)
            return
        if not HEADER_BYTES < datagrams.shape[1] <= HEADER_BYTES + group.payload:
            ignored["malformed"] += count
            return
        self._answering.add((source, flow))
        with_calls = datagrams[:, HEADER_BYTES - CALL_BYTES :]
        arrived = stream.receiver.accept(packet_numbers(datagrams), with_calls, marked)
        if not arrived:
            return
        self._heard = now
        applied = False
        for payloads in arrived:
            rest = self._apply(source, flow, payloads) if not stream.waiting else payloads
            applied |= len(rest) < len(payloads)
            if len(rest):
                stream.waiting.append(rest.copy())
        if applied:
            self._advance()
            self._note_sum(now)

    def _peer(self, rank: int) -> _Peer:
        peer = self._peers.get(rank)
        if peer is None:
            group = self.group
            peer = self._peers[rank] = _Peer([self._open(rank, flow) for flow in range(group.flows)])
        return peer

    def _open(self, rank: int, flow: int) -> _Flow:
        group, counts = self.group, self.statistics.streams
        ends = Ends(group.rank, rank, group.session, flow, group.payload)
        return _Flow(
            *open_stream(group.transport, ends, group.window, self._recovery, counts, group.make_control)
        )

    # -- the array -------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Process waiting payloads and send pieces until nothing more can be done."""
        progress, exchange = self._progress, self._exchange
        if progress is None or exchange is None:
            return
        moved = True
        while moved:
            moved = False
            for rank, peer in self._peers.items():
                for flow, stream in enumerate(peer.flows):
                    moved |= self._apply_waiting(rank, flow, stream.waiting)
        data = exchange.source.view(np.uint8)
        for rank in progress.sending:
            while (piece := progress.next_send(rank)) is not None:
                peer = self._peer(rank)
                flow = peer.sent % self.group.flows
                sender = peer.flows[flow].sender
                sender.write(data[piece.start * _ELEMENT : piece.stop * _ELEMENT], self._call)
                peer.sent += 1
                self._busy[rank, flow] = sender

    def _apply_waiting(self, rank: int, flow: int, waiting: deque[NDArray[np.uint8]]) -> bool:
        """Process a flow's waiting payloads as far as possible, and return whether any were processed."""
        moved = False
        while waiting:
            payloads = waiting.popleft()
            rest = self._apply(rank, flow, payloads)
            moved |= len(rest) < len(payloads)
            if len(rest):
                waiting.appendleft(rest)
                break
        return moved

    def _apply(self, rank: int, flow: int, payloads: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Add packets from `rank` to the array, or store them there, and return those that must wait.

        Raises:
            CollectiveError: If they belong to another call.
        """
        progress, exchange = self._progress, self._exchange
        if progress is None or exchange is None:
            return payloads
        peer, flows, size = self._peers[rank], self.group.flows, payloads.shape[1] - CALL_BYTES
        while len(payloads) and flow == peer.received % flows:
            piece = progress.receiving(rank)
            if piece is None:
                break
            first = piece.start + peer.offset
            count, expected = self._packets_of(piece, peer.offset)
            count = min(count, len(payloads))
            calls = np.ascontiguousarray(payloads[:count, :CALL_BYTES]).view(">u4")
            if size != expected or (calls != self._call).any():
                raise CollectiveError(f"{self._who()}: {self._difference(rank, int(calls[0, 0]))}")
            values = payloads[:count, CALL_BYTES:].view(np.float32)
            part = exchange.array[first : first + values.size].reshape(values.shape)
            if piece.reduce:
                part += values
            else:
                part[:] = values
            payloads = payloads[count:]
            peer.offset += values.size
            if first + values.size == piece.stop:
                peer.offset = 0
                peer.received += 1
                progress.received(rank)
        return payloads

    def _packets_of(self, piece: Piece, offset: int) -> tuple[int, int]:
        """Return the number and size in bytes of the next packets of a piece, as far as they have the same size."""
        left = (piece.stop - piece.start - offset) * _ELEMENT
        payload = self.group.payload
        return (left // payload, payload) if left >= payload else (1, left)

    # -- explaining ------------------------------------------------------------------------------------------

    def outstanding(self, now: float) -> str:
        """Describe what the worker waits for, and how long ago something new arrived."""
        data, acknowledgements = self._awaited()
        waits = []
        if data:
            waits.append(f"data from {_ranks(data)}")
        if acknowledgements:
            waits.append(f"acknowledgements from {_ranks(acknowledgements)}")
        return (
            f"{self._who()}, all-reduce {self.statistics.all_reduces + 1}: awaiting "
            f"{' and '.join(waits) or 'nothing'}; nothing new for {now - self._last_heard():.3g} s"
        )

    def _awaited(self) -> tuple[list[int], list[int]]:
        """Return the ranks whose data are awaited, and those whose acknowledgements are, in ascending order."""
        data = self._progress.awaiting if self._progress else []
        return sorted(data), sorted({rank for rank, _ in self._busy})

    def _last_heard(self) -> float:
        return self._heard

    def _difference(self, rank: int, call: int) -> str:
        """Say how the call of another rank differs from this rank's."""
        ahead = (call - self._call + _FAR) % _CALLS - _FAR
        if 0 < abs(ahead) < _FAR:
            return f"rank {rank} is in call {self._calls + ahead}, and this rank in call {self._calls}"
        return f"rank {rank} has an array of another size, or makes another call"

    def _who(self) -> str:
        return f"{self.group.algorithm} rank {self.group.rank} of {self.group.workers}"


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    more = f" and {len(ranks) - 8} more" if len(ranks) > 8 else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"
