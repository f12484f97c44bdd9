"""Foreign packets in a network: damaged, malformed or forged, made from packets that belong there.

None of them may change a sum. The only packets that would are missing here: other values sent by a member under its own
name, in its turn.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.soak.scenario import Scenario
from fanin.simulator.corruption import complete_checksums, flip_bits
from fanin.simulator.hosts.stations import Frames
from fanin.simulator.links import Packets, Transit
from fanin.simulator.units import MICROSECOND
from fanin.topologies.model import Endpoint, Host, Topology
from fanin.workers import wire
from fanin.workers.lease import Lease
from fanin.workers.wire import HEADERS

# Bytes of a frame.
_IP_CHECKSUM, _IP_SOURCE, _IP_DESTINATION, _UDP_SOURCE, _UDP_CHECKSUM = 24, 26, 30, 34, 40
_KIND, _LEASE, _CHUNK, _POOL, _E0, _VALUES = (HEADERS + i for i in (0, 1, 2, 6, 8, 10))

_STRANGE_LEASES = (0, *range(200, 256))  # never granted
_Frame = NDArray[np.uint8]
_Forge = Callable[["Stranger", _Frame], _Frame | None]  # makes a foreign packet of a copy of a good one


class Stranger:
    """A source of foreign packets at one host, whose worker holds `lease`.

    Args:
        topology: The network.
        host: The host.
        lease: Lease of its worker.
        often: Probability of using a batch of packets.
        seed: Seed of the draws.
        flips: Whether it flips bits. Not allowed where links do, since a checksum may miss two flipped bits in one
            packet.
        followed: Whether the chunk numbers after the lease's may belong to the next one, with the same id.
        preceded: Whether those before the lease's may.

    Attributes:
        forged: Number of its packets.
    """

    def __init__(
        self,
        topology: Topology,
        host: Host,
        lease: Lease,
        often: float,
        seed: list[int],
        *,
        flips: bool,
        followed: bool,
        preceded: bool,
    ) -> None:
        self._draw = np.random.Generator(np.random.PCG64(seed))
        self._often = often
        self._flips = flips
        self._followed, self._preceded = followed, preceded
        self._lease = lease
        self._topology = topology
        self._host = host
        self._exponents: dict[int, int] = {}  # announced by this worker, by chunk
        self.forged = 0

    def out_of(self, batches: list[Frames]) -> list[Frames]:
        """Return packets to send in addition to these updates (frames [m, length] each), each in a separate batch."""
        for frames in batches:
            for chunk, exponent in zip(
                _chunks(frames).tolist(), frames[:, _E0].view(np.int8).tolist(), strict=True
            ):
                self._exponents[chunk % (2 * self._lease.window)] = exponent
        return self._forge(batches, _UPDATES)

    def into(self, frames: Frames) -> list[Frames]:
        """Return packets to receive in addition to these results (frames [m, length]), as if from an earlier time."""
        if frames.shape[1] < _VALUES:
            return []
        return self._forge([frames], _RESULTS)

    def _forge(self, batches: list[Frames], kinds: tuple[_Forge, ...]) -> list[Frames]:
        forged = []
        for frames in batches:
            if self._draw.random() < self._often:
                frame = frames[self._draw.integers(len(frames))].copy()
                forge = kinds[self._draw.integers(len(kinds))]
                made = forge(self, frame)
                if made is not None:
                    forged.append(made[np.newaxis])
        self.forged += len(forged)
        return forged

    # -- damaged and malformed: as they are, with a wrong checksum or length

    def _flipped(self, frame: _Frame) -> _Frame | None:
        if not self._flips:
            return None
        flipped: _Frame = flip_bits(frame[np.newaxis], np.array([len(frame)]), self._draw.random(1))[0]
        return flipped

    def _truncated(self, frame: _Frame) -> _Frame:
        return frame[: self._draw.integers(14, len(frame))]

    def _padded(self, frame: _Frame) -> _Frame | None:
        return np.append(frame, np.zeros(20, np.uint8)) if len(frame) < 1000 else None

    def _noise(self, frame: _Frame) -> _Frame:
        frame[HEADERS:] = self._draw.integers(0, 256, len(frame) - HEADERS)
        frame[_LEASE] = self._draw.choice(_STRANGE_LEASES)
        return _with_checksums(frame)

    def _size(self, frame: _Frame) -> _Frame:
        # Not with the other bits of an integer alone: packets of that length may have them. Without values, all sizes
        # have one length.
        others = (1, 2, 3, 5, 6, 7) if len(frame) > HEADERS + wire.HEADER.itemsize else (1, 3, 5, 7)
        frame[_KIND] ^= np.uint8(self._draw.choice(others))
        return self._with_other_values(frame)

    # -- forged: other values, and a right checksum

    def _type(self, frame: _Frame) -> _Frame:
        others = np.arange(16)
        own = _FROM_MEMBERS if frame[_KIND] >> 4 in _FROM_MEMBERS else [frame[_KIND] >> 4]
        frame[_KIND] = frame[_KIND] & 0x0F | self._draw.choice(others[~np.isin(others, own)]) << 4
        return self._with_other_values(frame)

    def _lease_id(self, frame: _Frame) -> _Frame:
        frame[_LEASE] = self._draw.choice(_STRANGE_LEASES)
        return self._with_other_values(frame)

    def _old_chunk(self, frame: _Frame) -> _Frame | None:
        """Use a chunk that had the same slot and version, in this lease or before it."""
        chunk = int(_chunks(frame[np.newaxis])[0]) - 2 * self._lease.window * int(self._draw.integers(1, 4))
        least = self._lease.first_chunk if self._preceded else 0
        return None if chunk < least else self._with_other_values(_with_chunk(frame, chunk))

    def _beyond(self, frame: _Frame) -> _Frame | None:
        """Use a chunk beyond the lease's last one."""
        chunk = self._lease.last_chunk + int(self._draw.integers(1, 2 * self._lease.window + 1))
        return (
            None if chunk >= 1 << 32 or self._followed else self._with_other_values(_with_chunk(frame, chunk))
        )

    def _slot(self, frame: _Frame) -> _Frame:
        lease = self._lease
        slot = int(self._draw.integers(lease.first_slot + lease.window, 1 << 15))
        frame[_POOL] = frame[_POOL] & 0x80 | slot >> 8
        frame[_POOL + 1] = slot & 0xFF
        return self._with_other_values(frame)

    def _source_port(self, frame: _Frame) -> _Frame:
        frame[_UDP_SOURCE + 1] ^= np.uint8(self._draw.integers(1, 256))
        return self._with_other_values(frame)

    def _source_address(self, frame: _Frame) -> _Frame | None:
        """Use the address of another host, which has another port of the switch."""
        others = [host.ip.packed for host in self._topology.hosts if host != self._host]
        if not others:
            return None
        frame[_IP_SOURCE:_IP_DESTINATION] = np.frombuffer(self._draw.choice(others), np.uint8)
        return self._with_other_values(frame)

    def _destination(self, frame: _Frame) -> _Frame | None:
        """Address it to another switch, or another host."""
        nodes = [switch.ip.packed for switch in self._topology.switches]
        nodes += [host.ip.packed for host in self._topology.hosts]
        others = [ip for ip in nodes if ip not in (self._host.gateway.packed, self._host.ip.packed)]
        if not others:
            return None
        frame[_IP_DESTINATION:_UDP_SOURCE] = np.frombuffer(self._draw.choice(others), np.uint8)
        return self._with_other_values(frame)

    def _result_for_another(self, frame: _Frame) -> _Frame | None:
        """Send a result to another host in the name of its leaf."""
        others = [host for host in self._topology.hosts if host != self._host]
        if not others:
            return None
        victim = others[self._draw.integers(len(others))]
        frame[_KIND] |= 0x10
        frame[_IP_SOURCE:_IP_DESTINATION] = np.frombuffer(victim.gateway.packed, np.uint8)
        frame[_IP_DESTINATION:_UDP_SOURCE] = np.frombuffer(victim.ip.packed, np.uint8)
        return self._with_other_values(frame)

    def _other_version(self, frame: _Frame) -> _Frame:
        frame[_POOL] ^= 0x80
        return self._with_other_values(frame)

    def _small_exponent(self, frame: _Frame) -> _Frame | None:
        """Use an exponent smaller than the worker's own."""
        own = self._exponents.get(int(_chunks(frame[np.newaxis])[0]) % (2 * self._lease.window), -128)
        if own == -128:
            return None
        frame[_E0] = np.int8(own - 1).view(np.uint8)
        return self._with_other_values(frame)

    def _with_other_values(self, frame: _Frame) -> _Frame:
        return _with_values(frame, self._draw)


class Tap:
    """An observer on links between switches that sends results of earlier chunks again, and forged results.

    A forged result answers a sum in the parent's name, for the same chunk, with another call and other values.

    Args:
        scenario: The scenario.
        deliver: Gives a frame to the switch of this name, at this port, at this time in microseconds.

    Attributes:
        sent: Number of its frames so far.
    """

    def __init__(self, scenario: Scenario, deliver: Callable[[str, int, bytes, int], None]) -> None:
        self._often = scenario.taps
        self._draw = np.random.Generator(np.random.PCG64([scenario.seed, 6]))
        self._deliver = deliver
        self._ends: dict[
            int, tuple[Endpoint, Endpoint, bytes]
        ] = {}  # near and far, and their addresses, by number of link
        self._passed: dict[int, _Frame] = {}  # a result that has passed, by number of link
        self.sent = 0
        switches = {switch.name: switch.ip.packed for switch in scenario.topology.switches}
        ends = (pair for link in scenario.topology.links for pair in ((link.a, link.b), (link.b, link.a)))
        for number, (near, far) in enumerate(ends):
            if near.node in switches and far.node in switches:
                self._ends[number] = near, far, switches[near.node] + switches[far.node]
        self._between = np.array([*self._ends], np.int64)

    def __call__(self, arrived: Transit, store: Packets) -> None:
        """Answer some of what arrives."""
        drawn = np.isin(arrived.links, self._between)
        drawn &= self._draw.random(len(drawn)) < self._often
        some = arrived.take(drawn)
        passing: dict[int, _Frame] = {}  # not delivered yet, and nobody is to overtake them
        for link, time, packet in zip(
            some.links.tolist(), (some.times // MICROSECOND).tolist(), some.packets.tolist(), strict=True
        ):
            near, far, addresses = self._ends[link]
            frame = store.rows[packet, : store.lengths[packet]].copy()
            if (
                len(frame) - HEADERS not in wire.VALUES
                or frame[_IP_SOURCE:_UDP_SOURCE].tobytes() != addresses
            ):
                continue
            msg_type = frame[_KIND] >> 4
            if msg_type in (wire.RESULT, wire.ACKNOWLEDGEMENT):
                passing[link] = frame
                if link in self._passed:
                    self._send(far, self._passed[link], time)
            else:
                frame[_IP_SOURCE:_UDP_SOURCE] = np.roll(frame[_IP_SOURCE:_UDP_SOURCE], 4)
                answer = wire.ACKNOWLEDGEMENT if msg_type == wire.TAKE else wire.RESULT  # of its length
                frame[_KIND] ^= (msg_type ^ answer) << 4
                self._send(near, _with_values(frame, self._draw), time)
        self._passed |= passing

    def _send(self, to: Endpoint, frame: _Frame, time: int) -> None:
        self._deliver(to.node, to.port, frame.tobytes(), time)
        self.sent += 1


class Flips:
    """Single flipped bits at both ends of a host's link, which only a mandatory checksum detects.

    What the host sends arrives with the UDP checksum 0, as if its only set bit had been flipped. What it receives has
    one bit flipped, whether it came with a checksum or not.

    Args:
        share: Share of the frames in each direction.
        seed: Seed of the draws.
    """

    def __init__(self, share: float, seed: list[int]) -> None:
        self._share = share
        self._draw = np.random.Generator(np.random.PCG64(seed))
        self.flips = 0

    def out_of(self, batches: list[Frames]) -> None:
        """Flip bits of frames [m, length] that the host sends, in place."""
        for frames in batches:
            frames[self._drawn(frames), _UDP_CHECKSUM:HEADERS] = 0

    def into(self, frames: Frames) -> Frames:
        """Return the frames [m, length] as they reach the host."""
        which = np.flatnonzero(self._drawn(frames))
        if len(which):
            frames = frames.copy()
            bits = self._draw.integers(0, 8 * frames.shape[1], len(which))
            # The link may have flipped a bit as well, and a checksum need not find two on one hop.
            right = frames[which]
            right[:, _UDP_CHECKSUM:HEADERS] = 0
            complete_checksums(right, np.full(len(right), right.shape[1]))
            sent = frames[which, _UDP_CHECKSUM:HEADERS]
            whole = (sent == right[:, _UDP_CHECKSUM:HEADERS]).all(axis=1) | ~sent.any(axis=1)
            which, bits = which[whole], bits[whole]
            frames[which, bits >> 3] ^= (1 << (bits & 7)).astype(np.uint8)
        return frames

    def _drawn(self, frames: Frames) -> NDArray[np.bool_]:
        drawn = self._draw.random(len(frames)) < self._share
        self.flips += int(np.count_nonzero(drawn))
        return drawn


_MALFORMED: tuple[_Forge, ...] = (
    *(Stranger._flipped, Stranger._truncated, Stranger._padded, Stranger._noise),
    Stranger._size,
)
_FROM_MEMBERS = (wire.UPDATE, wire.GIVE, wire.TAKE)
_UPDATES: tuple[_Forge, ...] = (
    *_MALFORMED,
    *(Stranger._type, Stranger._lease_id, Stranger._old_chunk, Stranger._beyond),
    *(Stranger._slot, Stranger._source_port, Stranger._source_address, Stranger._destination),
    Stranger._result_for_another,
)
_RESULTS: tuple[_Forge, ...] = (
    *_MALFORMED,
    *(Stranger._type, Stranger._lease_id, Stranger._old_chunk, Stranger._slot),
    *(Stranger._source_port, Stranger._other_version, Stranger._small_exponent),
)


def _chunks(frames: Frames) -> NDArray[np.int64]:
    return np.ascontiguousarray(frames[:, _CHUNK:_POOL]).view(">u4")[:, 0].astype(np.int64)


def _with_chunk(frame: _Frame, chunk: int) -> _Frame:
    frame[_CHUNK:_POOL] = np.frombuffer(chunk.to_bytes(4, "big"), np.uint8)
    return frame


def _with_values(frame: _Frame, draw: np.random.Generator) -> _Frame:
    """Return the frame with another call, other values and right checksums."""
    values = frame[_VALUES:]
    values[:] = draw.integers(0, 256, len(values))
    return _with_checksums(frame)


def _with_checksums(frame: _Frame) -> _Frame:
    """Return the frame with right checksums."""
    frame[_IP_CHECKSUM:_IP_SOURCE] = 0
    total = int(frame[14:34].view(">u2").sum(dtype=np.int64))
    total = (total & 0xFFFF) + (total >> 16)
    frame[_IP_CHECKSUM:_IP_SOURCE] = np.frombuffer((0xFFFF - total).to_bytes(2, "big"), np.uint8)
    frame[_UDP_CHECKSUM:HEADERS] = 0
    complete_checksums(frame[np.newaxis], np.array([len(frame)]))
    return frame
