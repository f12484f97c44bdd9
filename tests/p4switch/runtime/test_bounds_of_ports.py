"""The packets at ports get no more than there is room for: packets, superframes, clones that wait for a link.

test_sanitizers.py runs this module with the sanitizers in the process, where reaching outside memory ends it.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fanin.p4switch.engine.engine import LONGEST_PACKET, Engine
from fanin.p4switch.engine.library import PortStatistics, runtime
from fanin.p4switch.engine.links import LinkProperties
from fanin.p4switch.engine.live_ports import PortError
from fanin.p4switch.entries import Replica
from tests.p4switch.documents import (
    assign,
    call,
    changed,
    document,
    extract,
    field,
    header,
    in_egress,
    number,
    parser,
)

pytestmark = pytest.mark.slow

CPU_PORT = 255
FIELD_LISTS = [{"id": 1, "name": "nothing", "elements": []}]


@contextmanager
def forwarder(
    engine: Engine, count: int, cpu: int = -1, rate: float | None = None
) -> Iterator[tuple[list[socket.socket], Callable[[int], PortStatistics]]]:
    """A forwarding loop whose ports are local sockets; the other ends, and the statistics of a port.

    With a rate, there is a link behind port 0.
    """
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(count)]
    inner = (ctypes.c_int32 * count)(*(there.fileno() for _, there in pairs))
    opened = runtime().forwarder_open(
        engine.base, count, (ctypes.c_uint32 * count)(*range(count)), inner, cpu, True
    )
    if rate is not None:
        link = LinkProperties(rate).for_runtime()
        runtime().forwarder_set_link(opened, 0, False, ctypes.byref(link))
    running = threading.Thread(target=runtime().forwarder_run, args=(opened,))
    running.start()

    def statistics(port: int) -> PortStatistics:
        found = PortStatistics()
        runtime().forwarder_statistics(opened, port, ctypes.byref(found))
        return found

    try:
        yield [ours for ours, _ in pairs], statistics
    finally:
        runtime().forwarder_stop(opened)
        running.join()
        runtime().forwarder_close(opened)
        for pair in pairs:
            for end in pair:
                end.close()


RESUBMITS_NEVER = document(
    {"h": [["a", 8, False]]},
    [call("_jump", number(2)), call("resubmit", number(1))],
    field_lists=FIELD_LISTS,
)


def test_a_packet_out_that_is_too_long_is_refused() -> None:
    engine = Engine.load(RESUBMITS_NEVER, cpu_port=CPU_PORT)
    received: list[bytes] = []
    came = threading.Event()
    engine.start({}, lambda packet: (received.append(packet), came.set()))  # type: ignore[func-returns-value]
    try:
        with pytest.raises(
            PortError, match=f"a packet of {LONGEST_PACKET + 1} bytes: .* at most {LONGEST_PACKET}"
        ):
            engine.packet_out(bytes(LONGEST_PACKET + 1), CPU_PORT)
        engine.packet_out(bytes(LONGEST_PACKET), CPU_PORT)
        assert came.wait(30)
    finally:
        engine.stop()
    assert received == [bytes(LONGEST_PACKET)]


@pytest.mark.parametrize(
    "length", [LONGEST_PACKET + 1, LONGEST_PACKET + 6, LONGEST_PACKET + 7, 2 * LONGEST_PACKET]
)
def test_a_message_to_the_cpu_port_that_is_too_long_is_dropped(length: int) -> None:
    """Neither processed nor cut."""
    engine = Engine.load(RESUBMITS_NEVER, cpu_port=0)
    with forwarder(engine, 1, cpu=0) as ((ours,), statistics):
        ours.send(struct.pack("=I", 0) + bytes(length))
        ours.send(struct.pack("=I", 0) + b"ok")
        assert ours.recv(1 << 18) == b"ok"
        assert (statistics(0).received, statistics(0).dropped) == (1, 1)


def test_clones_that_wait_for_a_link_count_as_passes() -> None:
    """Each makes two more, which wait again: without a common bound they would go on for ever."""

    def with_priority(parsed: Any) -> None:
        parsed["header_types"][0]["fields"].insert(0, ["priority", 8, False])

    config = in_egress(
        document({"h": [["a", 8, False]]}, [], field_lists=FIELD_LISTS),
        call("clone_egress_pkt_to_egress", number(5), number(1)),
    )
    engine = Engine.load(changed(config, with_priority))
    engine.sessions.insert(5, (Replica(0, 1), Replica(0, 2)))
    with forwarder(engine, 1, rate=1e8) as ((ours,), statistics):
        ours.send(bytes(10) + bytes(60))
        while statistics(0).sent + statistics(0).dropped < 4096:
            pass
        assert engine.drops().too_often


def superframe(kind: int, *, tags: int = 0, ihl: int = 5, options: bytes = b"", payload: int = 3000) -> bytes:
    """A virtio header and a UDP (5) or TCP (1) superframe behind it."""
    transport = bytes(8) if kind == 5 else bytes(12) + b"\x50\x10" + bytes(6)
    frame = bytes(12) + b"\x81\x00\0\5" * tags + b"\x08\x00"
    start = len(frame) + 20 + len(options)
    ip = bytes([0x40 | ihl]) + bytes(8) + bytes([17 if kind == 5 else 6]) + bytes(10) + options
    virtio = struct.pack("=BBHHHH", 1, kind, start + len(transport), 1000, start, 6 if kind == 5 else 16)
    return virtio + frame + ip + transport + bytes(payload)


@pytest.mark.parametrize("kind", [1, 5])
def test_superframes_whose_headers_do_not_fit_together_are_dropped(kind: int) -> None:
    """An IPv4 header that would reach behind its transport header, or behind all that is kept of them."""
    engine = Engine.load(document({"h": [["a", 8, False]]}, []))
    longest_tags = (512 - 14 - 20 - (8 if kind == 5 else 20)) // 4
    hostile = [superframe(kind, ihl=ihl, tags=tags) for ihl in (0, 4, 6, 15) for tags in (0, 1, longest_tags)]
    hostile += [superframe(kind, tags=longest_tags + more) for more in (1, 20)]
    sound = [superframe(kind, tags=n) for n in (0, 2)] + [superframe(kind, ihl=15, options=bytes(40))]
    with forwarder(engine, 1) as ((ours,), statistics):
        for frame in hostile + sound:
            ours.send(frame)
        while statistics(0).received_frames < len(hostile + sound):
            pass
        assert statistics(0).dropped == len(hostile)


def test_the_checksum_of_a_header_that_the_program_takes_away_is_not_completed() -> None:
    """It counts from a byte that is no longer there: in front of the packet, and of the memory that it stands in."""
    config = document(
        {"gone": [["a", 8 * 1000, False], ["b", 8 * 1000, False]], "h": [["b", 8 * 40, False]]},
        [call("remove_header", header("gone"))],
    )
    config = changed(
        config,
        lambda d: d["actions"][0]["primitives"].__setitem__(
            -1, assign(field("standard_metadata", "egress_spec"), number(0))
        ),
    )
    engine = Engine.load(config, cpu_port=0)
    with forwarder(engine, 2, cpu=0) as ((cpu, ours), _):
        packet = bytes(2000) + bytes(range(60))
        ours.send(struct.pack("=BBHHHH", 1, 0, 0, 0, 10, 2000) + packet)
        assert cpu.recv(1 << 18) == packet[2000:]


def test_a_partial_checksum_behind_the_end_of_its_header_stays_inside_the_packet() -> None:
    """Its second byte is the payload's first; when the program makes the payload nothing, there is none."""
    config = document(
        {"h": [["b", 8 * 20, False]], "added": [["c", 8, False]]},
        [call("add_header", header("added"))],
        **parser(extract("h")),
        deparsers=[{"name": "deparser", "id": 0, "order": ["added", "h"]}],
    )
    engine = Engine.load(config)
    with forwarder(engine, 2) as ((ours, _), statistics):
        for _ in range(3):
            ours.send(struct.pack("=BBHHHH", 1, 0, 0, 0, 10, 8) + bytes(20))
            ours.recv(1 << 18)
        assert statistics(0).received == 3
