"""One case of the fuzzer: a program and its input. Its seed, or the file it is written to, repeats it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fanin.assurance.fuzz.packets import VIRTIO, random_frame, random_packet
from fanin.assurance.fuzz.programs import PORTS, goes_again, random_program
from fanin.p4switch.bmv2json.program import LONGEST_PACKET, REMEMBERING, Program, ProgramError
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.engine.library import PortStatistics, runtime
from fanin.p4switch.engine.links import LinkProperties
from fanin.p4switch.entries import (
    ActionCall,
    Digest,
    Entry,
    EntryKey,
    Exact,
    Lpm,
    Match,
    Optional_,
    Range,
    Replica,
    TableError,
    Ternary,
)
from fanin.p4switch.trace.text import as_text
from fanin.p4switch.trace.tracer import traced

CPU = PORTS  # the number of the control plane's port
PACKETS, FRAMES = 300, 100
PACKETS_THAT_MULTIPLY, SHORT = 15, 40  # for programs that may take milliseconds per packet
BUDGET = 5.0  # seconds of processor time for the packets; a program that uses more gets no frames
TRACED = 5  # one case in so many is traced, which needs another library
TRACED_PACKETS = 15  # one packet in so many: a trace of one that multiplies has 100,000 events


class CaseError(Exception):
    """A file is not a case. The message names it."""


class WrongError(Exception):
    """An error that no sanitizer sees: a packet that is too long left, or one with bytes of an earlier packet."""


@dataclass(frozen=True)
class FuzzCase:
    """A program and its input.

    Attributes:
        seed: Seed of the case.
        program: BMv2 JSON.
        packets: Packets (port, bytes), given to the program one by one.
        frames: Frames (port, bytes) that arrive at ports.
    """

    seed: int
    program: bytes
    packets: tuple[tuple[int, bytes], ...]
    frames: tuple[tuple[int, bytes], ...]

    @classmethod
    def random(cls, seed: int) -> FuzzCase:
        """Draw the case of a seed."""
        r = random.Random(seed)
        document = random_program(r)
        program = json.dumps(document).encode()
        multiplies = goes_again(document)
        count = PACKETS_THAT_MULTIPLY if multiplies else PACKETS
        packets = tuple((r.randrange(PORTS), random_packet(r)) for _ in range(count))
        longest = SHORT if multiplies else LONGEST_PACKET
        frames = tuple(_random_arrival(r, longest) for _ in range(min(count, FRAMES)))
        return cls(seed, program, packets, frames)

    @classmethod
    def read(cls, path: Path) -> FuzzCase:
        """Read a case from a file.

        Raises:
            CaseError: The file is not a case.
        """
        try:
            item = json.loads(path.read_text())
            arrivals = ({"packets": [], "frames": []} | item)["packets"], item["frames"]
            packets, frames = (tuple((port, bytes.fromhex(data)) for port, data in part) for part in arrivals)
            return cls(item["seed"], json.dumps(item["program"]).encode(), packets, frames)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise CaseError(f"{path} is not a case written by fanin fuzz: {error}") from None

    def write(self, path: Path) -> None:
        """Write the case as JSON."""
        packets, frames = (
            [(port, data.hex()) for port, data in part] for part in (self.packets, self.frames)
        )
        item = {"seed": self.seed, "program": json.loads(self.program), "packets": packets, "frames": frames}
        path.write_text(json.dumps(item, indent=1) + "\n")

    def run(self) -> bool:
        """Run the case, and return whether the switch accepts the program. If so, all packets went through it.

        Raises:
            WrongError: The switch is wrong.
        """
        try:
            engine = Engine.load(self.program, cpu_port=CPU)
        except ProgramError:
            return False
        _prepare(engine, self.seed)
        if _give_packets(engine, self):
            _give_frames(engine, self)
        if self.seed % TRACED == 0:
            _trace(engine, self)
        return True


def _random_arrival(r: random.Random, longest: int) -> tuple[int, bytes]:
    if r.random() < 0.1:  # from the control plane: the port, then the packet, which may be too long
        packet = random_packet(r)
        if r.random() < 0.2:
            packet = packet.ljust(LONGEST_PACKET + r.choice([0, 1, 6, 7, 5000]), b"\xa5")
        return CPU, struct.pack("=I", r.choice([0, 1, CPU, 600])) + packet
    return r.randrange(PORTS), random_frame(r, longest)


# Before packets come


def _prepare(engine: Engine, seed: int) -> None:
    """Insert random entries, groups and mirroring sessions."""
    r = random.Random(seed)
    for table in engine.program.tables.values():
        for _ in range(r.randrange(12)):
            action = r.choice(table.actions)
            arguments = tuple(r.getrandbits(p.width) if p.width else 0 for p in action.parameters)
            matches = tuple(_random_match(key.kind, key.width, r) for key in table.keys)
            priority = (
                r.randint(1, 9) if any(k.kind in ("ternary", "range", "optional") for k in table.keys) else 0
            )
            with contextlib.suppress(TableError):
                engine.table(table.name).insert(
                    Entry(EntryKey(matches, priority), ActionCall(action.name, arguments))
                )
    for number in range(1, 4):
        replicas = tuple(Replica(r.randrange(PORTS + 2), r.randrange(9)) for _ in range(r.randrange(5)))
        engine.multicast.insert(number, replicas)
        engine.sessions.insert(number, replicas)


def _random_match(kind: str, width: int, r: random.Random) -> Match:
    full = (1 << width) - 1
    value = r.choice([0, 1 & full, full, r.getrandbits(width) if width else 0])
    match kind:
        case "lpm":
            length = r.randint(0, width)
            return Lpm(value & ~(full >> length), length)
        case "ternary":
            mask = r.choice([0, full, r.getrandbits(width) if width else 0])
            return Ternary(value & mask, mask)
        case "range":
            return Range(min(value, full // 2), full)
        case "optional":
            return Optional_(r.choice([None, value]))
    return Exact(value)


# Packets


def _has_memory(program: Program) -> bool:
    """Return whether the result for a packet may depend on those before it."""
    calls = {p.op for action in program.actions.values() for p in action.primitives}
    remembering = {"register_read", "execute_meter", "modify_field_rng_uniform", "assert"}
    hashes = any(c.algorithm in REMEMBERING for c in program.calculations.values())
    return hashes or bool(calls & remembering)


def _give_packets(engine: Engine, case: FuzzCase) -> bool:
    """Give each packet to two switches, among packets full of other bytes, and check that both results are the same.

    Returns:
        Whether all were given within BUDGET: parsers that loop, or numbers of thousands of bits, are slow.
    """
    begun = time.process_time()
    other = engine.new_instance()
    _prepare(other, case.seed)
    compares = not _has_memory(engine.program)
    with _digests(engine) as first, _digests(other) as second:
        for port, packet in case.packets:
            if time.process_time() - begun > BUDGET:
                return False
            if compares and len(packet) < 200:
                for switch, fill in ((engine, b"\xa5"), (other, b"\x5a")):
                    switch.process(port, fill * 3000)
            left = engine.process(port, packet)
            if any(len(data) > LONGEST_PACKET for _, data in left):
                raise WrongError(f"a packet of {max(len(d) for _, d in left)} bytes left the program")
            if compares and len(packet) < 200:
                first(), second()
                same = engine.process(port, packet), first(), other.process(port, packet), second()
                if same[:2] != same[2:]:
                    raise WrongError(
                        f"the result for packet {packet.hex()} at port {port} depends on earlier packets"
                    )
    return True


@contextlib.contextmanager
def _digests(engine: Engine) -> Iterator[Callable[[], list[Digest]]]:
    """Keep the switch's digests inside the block; yields a function that returns those since its last call."""
    event = os.eventfd(0, os.EFD_NONBLOCK)
    engine.keep_digests(event)
    yield engine.digests
    engine.keep_digests(None)
    os.close(event)


def _trace(engine: Engine, case: FuzzCase) -> None:
    with traced(engine) as tracer:
        for port, packet in case.packets[::TRACED_PACKETS]:
            engine.process(port, packet)
        for trace in tracer.packets():
            as_text(trace, verbose=True)


# Frames


def _give_frames(engine: Engine, case: FuzzCase) -> None:
    """Send frames through the loop between ports, which are pairs of local sockets. Some ports have emulated links."""
    count = PORTS + 1
    with _forwarder(engine, random.Random(case.seed)) as (forwarder, ends):
        given = [0] * count
        for port, data in case.frames:
            ends[port].send(data)
            given[port] += port == CPU or len(data) > VIRTIO.size
            _receive(ends)
        for port in range(count):
            statistics = PortStatistics()
            taken = 0
            while taken < given[port]:
                _receive(ends)
                runtime().forwarder_statistics(forwarder, port, ctypes.byref(statistics))
                taken = (
                    statistics.received_frames if port != CPU else statistics.received + statistics.dropped
                )
        too_long = sum(port == CPU and len(data) - 4 > LONGEST_PACKET for port, data in case.frames)
        if statistics.received > given[CPU] - too_long:
            raise WrongError("the control plane has sent a packet that is too long")


def _receive(ends: list[socket.socket]) -> None:
    """Receive what has left, waiting for a moment."""
    for end in select.select(ends, [], [], 0.001)[0]:
        length = len(end.recv(1 << 18))
        if length > VIRTIO.size + LONGEST_PACKET:
            raise WrongError(f"a frame of {length} bytes left a port")


@contextlib.contextmanager
def _forwarder(engine: Engine, r: random.Random) -> Iterator[tuple[int, list[socket.socket]]]:
    """Run the loop between ports; yields it and the other ends of its ports."""
    count = PORTS + 1
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
    inner = (ctypes.c_int32 * count)(*(there.fileno() for _, there in pairs))
    opened = runtime().forwarder_open(
        engine.base, count, (ctypes.c_uint32 * count)(*range(count)), inner, CPU, r.random() < 0.8
    )
    for number, ingress in ((1, False), (2, True)):
        if r.random() < 0.5:
            link = LinkProperties(1e9, 1e-6, queue_bytes=10**6, ecn_bytes=0, duplication=0.1, reordering=0.1)
            with engine.lock:
                settings = replace(link, displacement=1e-6).for_runtime()
                runtime().forwarder_set_link(opened, number, ingress, ctypes.byref(settings))
    running = threading.Thread(target=runtime().forwarder_run, args=(opened,))
    running.start()
    try:
        yield opened, [ours for ours, _ in pairs]
    finally:
        runtime().forwarder_stop(opened)
        running.join()
        runtime().forwarder_close(opened)
        for pair in pairs:
            for end in pair:
                end.close()
