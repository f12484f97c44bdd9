"""Run by test_sanitizers.py with the sanitizers in the process: random packets and damaged programs, thousands of them.

A finding of a sanitizer ends the process; nothing here looks at the outputs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import random
import socket
import struct
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

from fanin.native.toolchain import ToolchainError
from fanin.p4compiler import compile_once
from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.engine.library import PortStatistics, runtime
from fanin.p4switch.engine.links import LinkProperties
from fanin.p4switch.entries import (
    ActionCall,
    Entry,
    EntryKey,
    Exact,
    GroupReference,
    Lpm,
    Match,
    Range,
    Replica,
    TableError,
    Ternary,
)
from fanin.p4switch.stf.run import run_stf
from fanin.p4switch.trace.text import as_text
from fanin.p4switch.trace.tracer import traced
from tests.sizes import sized

HERE = Path(__file__).parent
PACKETS = sized(400, 1500)  # for each program
TRACED = sized(60, 200)
EACH = sized(3, 1)  # of so many programs one is compiled with the sanitizers
EACH_TRACED = sized(3, 1)  # and of so many of those one is traced: that compiles it once more
FRAMES = 200
VIRTIO = 10  # bytes of a header
DAMAGED = sized(3, 6)  # documents that are compiled


def match_for(kind: str, width: int, r: random.Random) -> Match:
    full = (1 << width) - 1
    value = r.choice([0, 1, full, r.getrandbits(width)])
    match kind:
        case "lpm":
            length = r.randint(0, width)
            return Lpm(value & ~(full >> length), length)
        case "ternary" | "optional":
            mask = r.choice([0, full, r.getrandbits(width)])
            return Ternary(value & mask, mask)
        case "range":
            return Range(*sorted((value, r.getrandbits(width))))
    return Exact(value & 1 if kind == "valid" else value)


def fill(engine: Engine, r: random.Random) -> None:
    """Entries, groups and sessions; some are changed and removed again."""
    for profile in engine.program.profiles:
        state = engine.profile(profile)
        with contextlib.suppress(TableError):
            for number in range(1, 6):
                with contextlib.suppress(TableError):
                    state.insert_member(number, ActionCall("Receive.forward", (number,)))
            state.insert_group(1, tuple((number, r.randint(1, 9)) for number in state.members))
    for table in engine.program.tables.values():
        for _ in range(40):
            action = r.choice(table.actions)
            call = ActionCall(action.name, tuple(r.getrandbits(p.width) for p in action.parameters))
            chosen = GroupReference(1) if table.profile and r.random() < 0.5 else call
            matches = tuple(match_for(key.kind, key.width, r) for key in table.keys)
            ordered = any(key.kind in ("ternary", "range", "optional") for key in table.keys)
            entry = Entry(EntryKey(matches, r.randint(1, 9) if ordered else 0), chosen)
            with contextlib.suppress(TableError):
                engine.table(table.name).insert(entry)
            if r.random() < 0.3:
                with contextlib.suppress(TableError):
                    engine.table(table.name).delete(entry.key)
    for number in range(1, 8):
        replicas = tuple(Replica(r.randrange(512), r.randrange(9)) for _ in range(r.randrange(4)))
        engine.multicast.insert(number, replicas)
        engine.sessions.insert(number, replicas)


def bombard(engine: Engine, seeds: list[bytes], r: random.Random, packets: int = PACKETS) -> None:
    """Random bytes, and packets of the program's own tests with bits turned, cut and lengthened."""
    for number in range(packets):
        packet = bytearray(r.choice(seeds) if seeds and r.random() < 0.8 else r.randbytes(r.randrange(200)))
        for _ in range(r.randrange(5)):
            if packet:
                packet[r.randrange(len(packet))] = r.choice([0, 1, 255, r.randrange(256)])
        if r.random() < 0.3:
            packet = packet[: r.randrange(len(packet) + 1)]
        if r.random() < 0.02:
            packet += r.randbytes(r.choice([1500, 9000, 65600 - len(packet)]))
        engine.process(r.randrange(600), bytes(packet), number)


def frame_for_port(seeds: list[bytes], r: random.Random) -> bytes:
    """A virtio header, mostly of a superframe and partly wrong, and a frame behind it."""
    if r.random() < 0.2 and seeds:
        frame = bytearray(r.choice(seeds))
    else:
        length, tcp = r.choice([1, 60, 3000, 65000]), r.random() < 0.5
        transport = bytes([*r.randbytes(12), 5 << 4, 16, *r.randbytes(6)] if tcp else r.randbytes(8))
        ip = bytes([0x45, 0, *r.randbytes(7), 6 if tcp else 17, *r.randbytes(10)])
        tags = b"\x81\x00\0\5" * r.choice([0, 0, 1, 40])
        frame = bytearray(bytes(12) + tags + b"\x08\x00" + ip + transport + bytes(length))
    network = 14 + 4 * frame.count(b"\x81\x00\0\5")
    kind = r.choice([0, 1, 1, 4, 5, 5, 0x81, r.randrange(256)])
    sizes, starts = [0, 25, 1000, 65535], [network + 20, network + 20, network + 20, 0, r.randrange(65536)]
    checksum_at = r.choice([6, 16, 16, 0, 65535])
    virtio = struct.pack(
        "=BBHHHH", r.choice([1, 1, 0]), kind, 54, r.choice(sizes), r.choice(starts), checksum_at
    )
    for _ in range(r.choice([0, 0, 1, 5])):
        if frame:
            frame[r.randrange(min(len(frame), network + 60))] = r.choice([0, 1, 255, r.randrange(256)])
    if r.random() < 0.1:
        frame = frame[: r.randrange(len(frame) + 1)]
    return virtio + bytes(frame)


def bombard_ports(engine: Engine, seeds: list[bytes], r: random.Random, frames: int = FRAMES) -> None:
    """Frames with damaged virtio headers through the loop between ports (pairs of local sockets) and links."""
    numbers = range(3)
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in numbers]
    inner = (ctypes.c_int32 * len(pairs))(*(there.fileno() for _, there in pairs))
    forwarder = runtime().forwarder_open(
        engine.base, len(pairs), (ctypes.c_uint32 * len(pairs))(*numbers), inner, -1, True
    )
    link = LinkProperties(
        1e9, 1e-6, queue_bytes=10**6, ecn_bytes=0, duplication=0.1, reordering=0.1, displacement=1e-6
    )
    for number, ingress in ((1, False), (2, True)):
        with engine.lock:
            runtime().forwarder_set_link(forwarder, number, ingress, ctypes.byref(link.for_runtime()))
    running = threading.Thread(target=runtime().forwarder_run, args=(forwarder,))
    running.start()
    taken = [0] * len(pairs)
    for _ in range(frames):
        number = r.choice(numbers)
        frame = frame_for_port(seeds, r)
        pairs[number][0].send(frame)
        taken[number] += len(frame) > VIRTIO
        for ours, _ in pairs:
            with contextlib.suppress(BlockingIOError):
                while True:
                    ours.recv(1 << 17, socket.MSG_DONTWAIT)
    for number in numbers:
        statistics = PortStatistics()
        while statistics.received_frames < taken[number]:
            runtime().forwarder_statistics(forwarder, number, ctypes.byref(statistics))
    runtime().forwarder_stop(forwarder)
    running.join()
    runtime().forwarder_close(forwarder)
    for pair in pairs:
        for end in pair:
            end.close()


def damage(config: bytes, r: random.Random) -> bytes:
    """A program with a few of its numbers and names exchanged."""
    document = json.loads(config)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key, value in list(node.items() if isinstance(node, dict) else enumerate(node)):
            if isinstance(value, (dict, list)):
                walk(value)
            elif key not in ("source_fragment", "filename"):
                places.append((node, key))

    walk(document)
    for _ in range(r.randint(1, 3)):
        node, key = r.choice(places)
        other, at = r.choice(places)
        strange = [0, 1, -1, 64, 65536, "0xffffffffffffffff", "0xzz", "", None, True, [], {}]
        node[key] = r.choice([other[at], r.choice(strange)])
    return json.dumps(document).encode()


@cache
def compiled(path: Path) -> bytes:
    return compile_once(path).device_config()


def main(seed: int) -> None:
    r = random.Random(seed)
    for test in sorted(HERE.parent.glob("stf/*.stf"))[::EACH]:
        config = compiled(test.with_suffix(".p4"))
        assert run_stf(config, test.read_text()).differences == []
    programs = (*sorted(HERE.parent.glob("*/**/*.p4"))[::EACH], HERE.parents[2] / "p4src/fanin.p4")
    for number, path in enumerate(programs):
        config = compiled(path)
        engine = Engine.load(config)
        fill(engine, r)
        test = path.with_suffix(".stf")
        lines = test.read_text().splitlines() if test.exists() else []
        seeds = [bytes.fromhex("".join(line.split()[2:])) for line in lines if line.startswith("packet")]
        bombard(engine, seeds, r)
        bombard(engine.new_instance(seed), seeds, r)
        bombard_ports(engine, seeds, r)
        if number % EACH_TRACED == 0:
            with traced(engine) as tracer:
                bombard(engine, seeds, r, TRACED)
                for trace in tracer.packets():
                    as_text(trace, verbose=True)
    accepted = 0
    while accepted < DAMAGED:
        path = r.choice(sorted(HERE.parent.glob("stf/*.p4")))
        damaged = damage(compiled(path), r)
        with contextlib.suppress(ProgramError, ToolchainError):
            engine = Engine.load(damaged)
            accepted += 1
            bombard(engine, [], r)
    print("no finding")


if __name__ == "__main__":
    main(int(sys.argv[1]))
