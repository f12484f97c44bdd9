"""Workers on hosts in virtual time: they send datagrams as Ethernet frames and do one all-reduce after another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from ipaddress import IPv4Address
from math import inf
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fanin.simulator.compiled import CardInC, StationInC
from fanin.simulator.corruption import complete_checksums
from fanin.simulator.hosts.card import Card
from fanin.simulator.links import PRECEDENCE
from fanin.simulator.network import Station
from fanin.simulator.segments import segments
from fanin.topologies.model import Host
from fanin.workers import wire
from fanin.workers.collective import Participant, Server, Statistics, marked
from fanin.workers.congestion import ECN_CAPABLE, ECN_CONGESTED
from fanin.workers.host_based.engine import CompiledWorker
from fanin.workers.host_based.participant import HostBasedWorker
from fanin.workers.host_based.transport import DATA, FIRST_PEER_PORT
from fanin.workers.job.retained_results import RetainedResult
from fanin.workers.protocol import Worker
from fanin.workers.wire import HEADERS

Vector = NDArray[np.float32]
Frames = NDArray[np.uint8]  # [m, length]
SwitchWorker = Participant[NDArray[np.uint8]]

_TYPE, _PROTOCOL = b"\x08\x00", b"\x11"  # IPv4 in Ethernet, UDP in IPv4


class Summing(Protocol):
    """A Participant, or several at once, with which a station does all-reduces; see Participant."""

    @property
    def statistics(self) -> Statistics: ...  # noqa: D102
    @property
    def finished(self) -> bool: ...  # noqa: D102
    def start(self, x: Vector, now: float, out: Vector | None = None) -> None: ...  # noqa: D102
    def deadline(self) -> float | None: ...  # noqa: D102
    def finish(self) -> Vector: ...  # noqa: D102


_P_co = TypeVar("_P_co", bound=Summing, covariant=True)
_End = TypeVar("_End", bound=Server)


class Port(Protocol[_P_co]):
    """The connection between a participant and the frames of its host."""

    @property
    def participant(self) -> _P_co:
        """Return the participant whose datagrams go in and out."""

    @property
    def compiled(self) -> StationInC | CardInC | None:
        """Return the C implementation of the same work, or None if there is none."""

    @property
    def not_ours(self) -> int:
        """Return the number of frames so far that were not for the participant."""

    @property
    def ready_at(self) -> float | None:
        """Return when to call frames_to_send() for frames that wait behind the participant; None if none do."""

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """Take frames [m, bytes] of these lengths [m]."""

    def frames_to_send(self, now: float) -> list[Frames]:
        """Return batches of frames [m, length] to send now."""


class WorkerStation(Generic[_P_co]):
    """A Station whose participant does all-reduces of `inputs` one after the other.

    Args:
        port: Port of the participant.
        inputs: Vector of each all-reduce, each [elements].
        start: When it begins, in seconds.
        outputs: Sums of all-reduces that are already done.
        in_place: Whether sums replace the inputs.
        pauses: Seconds before each all-reduce, counted from the end of the first one of its step. Empty: no pauses.
        per_step: Number of all-reduces in a step.
        kept: Retained results, for a job that falls back to the ring when it loses its lease.
        called: Number of all-reduces that it may have begun. None allows all.
        until_sum: Whether an all-reduce between hosts ends, and the pause after it begins, when the sum is there. The
            next one begins no sooner than everything is acknowledged.

    Attributes:
        outputs: The sums so far.
        began: When it began each all-reduce, in seconds.
        ended: When it finished each all-reduce, in seconds.
        loaded: When the data of each step had arrived, in seconds. None: steps need no data.
    """

    def __init__(
        self,
        port: Port[_P_co],
        inputs: Sequence[Vector],
        start: float = 0.0,
        outputs: Sequence[Vector] = (),
        *,
        in_place: bool = False,
        pauses: Sequence[float] = (),
        per_step: int = 1,
        kept: RetainedResult | None = None,
        called: int | None = None,
        until_sum: bool = False,
    ) -> None:
        self.worker = port.participant
        self.called = called
        self.outputs = list(outputs)
        self.began: list[float] = []
        self.ended: list[float] = []
        self.loaded: list[float] | None = None
        self.kept = kept
        self._sent_again_before = 0
        self._port = port
        self._inputs = inputs
        self._start = start
        self._in_place = in_place
        self._pauses = pauses or [0.0] * len(inputs)
        self._per_step = per_step
        self._until_sum = until_sum
        self._step_began = start
        self._running = False
        self._working = False  # the participant has begun an all-reduce

    def go_on_from(self, earlier: WorkerStation[Any], now: float) -> None:
        """Continue for another station of the same worker, which has stopped.

        Sums in `outputs` that the other station did not have count as received at `now` (seconds).
        """
        done = len(self.outputs)
        self.began, self.ended = earlier.began[: done + 1], earlier.ended[:done]
        self.ended += [now] * (done - len(self.ended))
        self._sent_again_before = earlier.retransmissions
        if done:
            self._step_began = self.ended[(done - 1) // self._per_step * self._per_step]
        if done == len(self.began) and not self.finished:  # between two all-reduces
            self._start = max(self._start, self._step_began + self._pauses[done])

    @property
    def retransmissions(self) -> int:
        """Return the number of retransmissions, also by stations before this one."""
        return self._sent_again_before + self.worker.statistics.retransmissions

    @property
    def not_ours(self) -> int:
        """Return the number of frames that arrived and were not for this station."""
        return self._port.not_ours

    @property
    def finished(self) -> bool:
        """Return whether all sums are complete."""
        return len(self.outputs) == len(self._inputs)

    @property
    def _idle(self) -> bool:
        """Return whether no all-reduce is running and none is due, now or at a known time."""
        return not self._running and (self.finished or len(self.outputs) == self.called)

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Station."""
        self._port.receive(frames, lengths, now)
        self.taken(now)

    def taken(self, now: float) -> None:
        """See CompiledStation."""
        if self._running and self.worker.finished:
            self._end(now)

    @property
    def compiled(self) -> StationInC | CardInC | None:
        """See CompiledStation."""
        return self._port.compiled

    def frames_to_send(self, now: float) -> list[Frames]:
        """See Station."""
        self.begin(now)
        return self._port.frames_to_send(now)

    def begin(self, now: float) -> None:
        """See CompiledStation."""
        while not (self._running or self._idle) and now >= self._start:
            x = self._inputs[len(self.outputs)]
            if len(self.began) == len(self.outputs):
                self.began.append(now)
            self._working = True
            out = x if self._in_place else None
            self.worker.start(x, now, out if self.kept is None else self.kept.buffer(x.size))
            self._running = True
            if self.worker.finished:  # an empty vector
                self._end(now)

    @property
    def begins_at(self) -> float | None:
        """See CompiledStation."""
        return None if self._running or self._idle else self._start

    def deadline(self) -> float | None:
        """See Station."""
        deadlines = [self._port.ready_at, self.begins_at]
        if self._working:  # others may still need its packets
            deadlines.append(self.worker.deadline())
        return min((one for one in deadlines if one is not None), default=None)

    def _end(self, now: float) -> None:
        result = self.worker.finish()
        if self.kept is not None:
            self.kept.finish()
            x = self._inputs[len(self.outputs)]
            kept, result = result, x if self._in_place else np.empty_like(x)
            result[:] = kept
        self.outputs.append(result)
        ended = now
        if self._until_sum and isinstance(self.worker, HostBasedWorker):
            ended = now if self.worker.summed_at is None else self.worker.summed_at
        self.ended.append(ended)
        self._running = False
        if (len(self.outputs) - 1) % self._per_step == 0:
            self._step_began = ended
        if not self.finished:
            self._start = self._next_start(now)

    def load(self, now: float) -> None:
        """Take the data of the next step, which has arrived at `now` (seconds), if steps need data (`loaded`)."""
        assert self.loaded is not None
        self.loaded.append(now)
        if self._start == inf:
            self._start = self._next_start(now)

    @property
    def steps_done(self) -> int:
        """Return the number of steps whose sums are all complete."""
        return len(self.outputs) // self._per_step

    @property
    def steps_loaded(self) -> int:
        """Return the number of steps that have begun and have their data."""
        assert self.loaded is not None
        return min(-(-len(self.outputs) // self._per_step), len(self.loaded))

    def _next_start(self, now: float) -> float:
        """Return when the next all-reduce may begin; infinity while its step waits for data."""
        step, within = divmod(len(self.outputs), self._per_step)
        began = self._step_began
        if self.loaded is not None and within:
            if len(self.loaded) <= step:
                return inf
            began = max(began, self.loaded[step])
        return max(now, began + self._pauses[len(self.outputs)])


class SwitchPort(Generic[_End]):
    """Connects an in-network worker, or a server, to its leaf on one UDP port.

    Args:
        worker: The participant or server. If it is Marked, its packets are ECN-capable.
        host: Its host.
        gateway_mac: MAC address of its leaf.
        udp_port: UDP port on both sides.
        priority: Priority of its packets, and so of the results that switches make of them.
        checksums: Whether its packets carry a UDP checksum. The switches of the lease then require it.
        card: Network card where its packets take turns with those to other hosts; None if the host sends nothing else.
    """

    def __init__(
        self,
        worker: _End,
        host: Host,
        gateway_mac: str,
        udp_port: int,
        priority: int = 0,
        *,
        checksums: bool = False,
        card: Card | None = None,
    ) -> None:
        self.participant = worker
        self.not_ours = 0
        self._card = card
        self._checksums = checksums
        self.udp_port = udp_port
        self._marked = marked(worker)
        ecn = ECN_CAPABLE if self._marked else 0
        self._flow = Flow(host, gateway_mac, host.gateway, udp_port, udp_port, ecn, priority)
        self._filter = FrameFilter(host.ip, udp_port, host.gateway)
        self._ends = host.gateway.packed + host.ip.packed + 2 * udp_port.to_bytes(2, "big")

    @property
    def compiled(self) -> StationInC | None:
        """See Port."""
        worker = self.participant
        if not isinstance(worker, Worker) or worker.turn is None or self._checksums:
            return None
        # Only gathers and scatters have packets without values, and C leaves these to Python.
        headers = {size: self._flow.header(size) for size, values in wire.VALUES.items() if values}
        return StationInC(*worker.turn, headers, _TYPE, _PROTOCOL, self._ends)

    @property
    def ready_at(self) -> float | None:
        """See Port."""
        return None if self._card is None else self._card.ready_at

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Port."""
        self.not_ours += len(frames)
        for part in segments(lengths):
            ours, marks = self._filter(frames[part, : int(lengths[part.start])])
            if len(ours):
                if marks is not None and self._marked:
                    self._marked.count_marks(int(np.count_nonzero(marks)))
                self.participant.receive(ours[:, HEADERS:], now)
                self.not_ours -= len(ours)

    def frames_to_send(self, now: float) -> list[Frames]:
        """See Port."""
        batches = [self._flow.frames(batch) for batch in self.participant.datagrams_to_send(now)]
        if self._checksums:
            for frames in batches:
                complete_checksums(frames, np.full(len(frames), frames.shape[1]))
        if self._card is None:
            return batches
        for frames in batches:
            self._card.send(self, frames)
        return self._card.take(now)


def addresses(hosts: Iterable[Host]) -> bytes:
    """Return the IPv4 addresses of hosts, 4 bytes each."""
    return b"".join(host.ip.packed for host in hosts)


class ServerStation:
    """A Station with a protocol's server, which answers what arrives.

    Args:
        port: Port of the server.
    """

    def __init__(self, port: SwitchPort[Server]) -> None:
        self._port = port

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Station."""
        self._port.receive(frames, lengths, now)

    def frames_to_send(self, now: float) -> list[Frames]:
        """See Station."""
        return self._port.frames_to_send(now)

    def deadline(self) -> float | None:
        """See Station."""
        return self._port.participant.deadline()


class PeerPort:
    """Connects a HostBasedWorker to its peers. Its packets are ECN-capable.

    Args:
        worker: The participant.
        host: Its host.
        gateway_mac: MAC address of its leaf.
        peers: IPv4 addresses of the peers by rank, 4 bytes each.
        card: Network card of the host, which all ports on the host share.
        priority: Priority of its packets.
        first_port: First UDP port, the same on all peers.
    """

    def __init__(
        self,
        worker: HostBasedWorker,
        host: Host,
        gateway_mac: str,
        peers: bytes,
        card: Card,
        priority: int = 0,
        first_port: int = FIRST_PEER_PORT,
    ) -> None:
        self.participant = worker
        self._card = card
        self._first_port = first_port
        self._host = host
        self._gateway_mac = gateway_mac
        self._peers = peers
        self._priority = priority
        self._flows: dict[tuple[int, int], Flow] = {}
        self._filter = FrameFilter(host.ip)
        self._others = np.zeros(1, np.int64)  # C counts them, too

    @property
    def compiled(self) -> CardInC | None:
        """See Port."""
        worker, card = self.participant, self._card
        if not isinstance(worker, CompiledWorker) or not card.plain:
            return None
        header = self._frames_to(self._host.ip, 0, 0).header(0).tobytes()
        return CardInC(
            *worker.behind_card(header, self._peers, self._first_port),
            *(card.byte_seconds, card.ahead, card.overhead),
            self._host.ip.packed,
            owner=worker,
            check=worker.check,
            others=self._others,
        )

    @property
    def not_ours(self) -> int:
        """See Port."""
        return int(self._others[0])

    @property
    def ready_at(self) -> float | None:
        """See Port."""
        return self._card.ready_at

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Port."""
        self._others += len(frames)
        for part in segments(lengths):
            ours, marked = self._filter(frames[part, : int(lengths[part.start])])
            if len(ours):
                self.participant.receive(ours[:, HEADERS:], now, marked)
                self._others -= len(ours)

    def frames_to_send(self, now: float) -> list[Frames]:
        """See Port."""
        for peer, batch, number in self.participant.datagrams_to_send(now):
            flow = self._flow(peer, number)
            if batch[0, 0] == DATA:
                self._card.send(flow, flow.frames(batch), self._address(peer))
            else:
                self._card.acknowledge(flow.frames(batch))
        return self._card.take(now)

    def _flow(self, peer: int, flow: int) -> Flow:
        if (peer, flow) not in self._flows:
            group = self.participant.group
            own, other = group.port(peer, flow), group.port(group.rank, flow)
            self._flows[peer, flow] = self._frames_to(
                self._address(peer), self._first_port + own, self._first_port + other
            )
        return self._flows[peer, flow]

    def _address(self, peer: int) -> IPv4Address:
        return IPv4Address(self._peers[4 * peer : 4 * peer + 4])

    def _frames_to(self, address: IPv4Address, source_port: int, destination_port: int) -> Flow:
        ports = source_port, destination_port
        return Flow(self._host, self._gateway_mac, address, *ports, ECN_CAPABLE, self._priority)


class SharedStation:
    """Two Stations as one: `other` receives all frames to its UDP `ports`, `job` the rest."""

    def __init__(self, job: Station, other: Station, ports: Collection[int]) -> None:
        self._job, self._other = job, other
        self._ports = np.array(sorted(ports))

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Station."""
        ports = frames[:, 36].astype(np.int64) << 8 | frames[:, 37]
        others = np.isin(ports, self._ports) & (lengths >= HEADERS)
        for station, which in ((self._job, ~others), (self._other, others)):
            if which.any():
                station.receive(frames[which], lengths[which], now)

    def frames_to_send(self, now: float) -> list[Frames]:
        """See Station."""
        return [*self._job.frames_to_send(now), *self._other.frames_to_send(now)]

    def deadline(self) -> float | None:
        """See Station."""
        deadlines = (self._job.deadline(), self._other.deadline())
        return min((one for one in deadlines if one is not None), default=None)


class IdleStation:
    """A Station that does nothing, for a host whose worker has ended."""

    def receive(self, frames: Frames, lengths: NDArray[np.int64], now: float) -> None:
        """See Station."""

    def frames_to_send(self, now: float) -> list[Frames]:  # noqa: ARG002
        """See Station."""
        return []

    def deadline(self) -> float | None:
        """See Station."""
        return None


class FrameFilter:
    """Selects UDP frames over IPv4 for an address that have correct checksums.

    Args:
        address: Destination address.
        udp_port: UDP port on both sides, as for a connected socket. None accepts all ports.
        peer: Source address. It counts only together with a port.
    """

    def __init__(
        self, address: IPv4Address, udp_port: int | None = None, peer: IPv4Address | None = None
    ) -> None:
        # Ethernet's type, IPv4's protocol and destination, UDP's destination port.
        places, expected = [12, 13, 23, 30, 31, 32, 33], _TYPE + _PROTOCOL + address.packed
        if udp_port is not None and peer is not None:
            places = [*places, *range(26, 30), *range(34, 38)]
            expected += peer.packed + 2 * udp_port.to_bytes(2, "big")
        self._places = np.array(places)
        self._expected = np.frombuffer(expected, np.uint8)
        self._seen: dict[
            bytes, bool
        ] = {}  # by the headers of accepted batches: whether they carry a congestion mark

    def __call__(self, frames: Frames) -> tuple[Frames, NDArray[np.bool_] | None]:
        """Return the accepted frames and which of them carry a congestion mark (None if none does)."""
        # Most come from one sender, with the same headers as many before.
        headers = frames[:, 12:HEADERS]
        alike = len(frames) == 1 or bool((headers == headers[0]).all())
        first = headers[0].tobytes()
        alike = alike and first.endswith(b"\0\0")  # no UDP checksum: nothing else has to be checked
        if alike and (marked := self._seen.get(first)) is not None:
            return frames, np.ones(len(frames), np.bool_) if marked else None
        ours = frames[self._ours(frames)]
        if not len(ours):
            return ours, None
        marks = ours[:, 15] & ECN_CONGESTED == ECN_CONGESTED
        if alike:
            self._seen[first] = bool(marks[0])
        return ours, marks if marks.any() else None

    def _ours(self, frames: Frames) -> NDArray[np.bool_]:
        if frames.shape[1] < HEADERS:
            return np.zeros(len(frames), np.bool_)
        right = _word_sums(frames[:, 14:34]) % 0xFFFF == 0
        if frames[:, 40:HEADERS].any():
            total = _word_sums(frames[:, 26:]) + _word_sums(frames[:, 38:40]) + 17  # with the pseudo-header
            right &= (total % 0xFFFF == 0) | ~frames[:, 40:HEADERS].any(axis=1)
        return np.asarray((frames[:, self._places] == self._expected).all(axis=1) & right)


class Flow:
    """Ethernet, IPv4 and UDP headers from a host through its leaf to an address.

    The UDP checksum is 0 (RFC 768); a link that corrupts a frame fills it in first (simulator/corruption.py).
    `priority` is sent as a class selector (RFC 2474).
    """

    def __init__(
        self,
        host: Host,
        gateway_mac: str,
        destination: IPv4Address,
        source_port: int,
        destination_port: int,
        ecn: int = 0,
        priority: int = 0,
    ) -> None:
        self._ethernet = _mac(gateway_mac) + _mac(host.mac) + b"\x08\x00"
        self._addresses = host.ip.packed + destination.packed
        self._ports = source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")
        self._tos = priority << PRECEDENCE | ecn
        self._made: dict[int, NDArray[np.uint8]] = {}

    def frames(self, datagrams: NDArray[np.uint8]) -> Frames:
        """Return the datagrams [m, size] in frames [m, HEADERS + size]."""
        count, size = datagrams.shape
        frames = np.empty((count, HEADERS + size), np.uint8)
        frames[:, :HEADERS] = self.header(size)
        frames[:, HEADERS:] = datagrams
        return frames

    def header(self, size: int) -> NDArray[np.uint8]:
        """Return the headers of a datagram of `size` bytes, [HEADERS]."""
        if size not in self._made:
            self._made[size] = self._make(size)
        return self._made[size]

    def _make(self, size: int) -> NDArray[np.uint8]:
        length = (28 + size).to_bytes(2, "big")
        ip = bytearray(bytes([0x45, self._tos]) + length + b"\x00\x00\x40\x00\x40\x11\x00\x00")
        ip += self._addresses
        words = sum(int.from_bytes(ip[i : i + 2], "big") for i in range(0, 20, 2))
        words = (words & 0xFFFF) + (words >> 16)
        ip[10:12] = (0xFFFF - words).to_bytes(2, "big")
        udp = self._ports + (8 + size).to_bytes(2, "big") + b"\x00\x00"
        return np.frombuffer(self._ethernet + bytes(ip) + udp, np.uint8)


def _word_sums(rows: Frames) -> NDArray[np.int64]:
    """Return the sum of the 16-bit words in each row. An odd last byte is the first byte of a word."""
    even = np.pad(rows, ((0, 0), (0, 1))) if rows.shape[1] % 2 else rows
    return np.asarray(even.view(">u2").sum(axis=1, dtype=np.int64))


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
