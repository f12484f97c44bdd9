"""A batch of packets gives what the packets give one by one."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from fanin.p4compiler import Compiled, compile_once
from fanin.p4switch.engine.engine import Engine
from tests.p4src.switch_under_test import BASE, Message, SwitchUnderTest, block

ROOM = 1500
REFLECT = """
#include <core.p4>
#include <v1model.p4>
struct H {}
struct M {}
parser P(packet_in b, out H h, inout M m, inout standard_metadata_t s) { state start { transition accept; } }
control C(inout H h, inout M m) { apply {} }
control I(inout H h, inout M m, inout standard_metadata_t s) { apply { s.egress_spec = s.ingress_port; } }
control E(inout H h, inout M m, inout standard_metadata_t s) { apply {} }
control D(packet_out b, in H h) { apply {} }
V1Switch(P(), C(), I(), E(), C(), D()) main;
"""


@pytest.fixture(scope="module")
def program(fanin_p4: Compiled) -> Engine:
    return Engine.load(fanin_p4.device_config())


def random_packets(switch: SwitchUnderTest, count: int) -> list[tuple[int, bytes]]:
    """Good, repeated, cut off and foreign ones, of both sizes."""
    draw = random.Random(5)
    packets = []
    for i in range(count):
        child = draw.choice(switch.children)
        chunk = 2 + i // 50 - draw.choice((0, 0, 0, 1))
        message = Message(
            block(draw.randrange(-(2**31), 2**31), chunk, count=64 if chunk % 3 else 256),
            chunk=chunk,
            version=chunk & 1,
            slot=BASE + draw.randrange(2),
            lease=draw.choice((1, 1, 1, 2)),
        )
        frame = child.frame(message)
        packets.append((child.port, frame[: draw.choice((len(frame), len(frame), 60))]))
    return packets


@pytest.mark.slow
def test_a_batch_gives_what_its_packets_give_one_by_one(program: Engine) -> None:
    single, batched = SwitchUnderTest(program.new_instance()), SwitchUnderTest(program.new_instance())
    single.join(3)
    batched.join(3)
    packets = random_packets(single, 600)
    expected = [
        (i, *out) for i, packet in enumerate(packets) for out in single.engine.process(*packet, now=i)
    ]
    rows = np.zeros((len(packets), ROOM), np.uint8)
    for row, (_, frame) in zip(rows, packets, strict=True):
        row[: len(frame)] = np.frombuffer(frame, np.uint8)
    sent: list[tuple[int, int, bytes]] = []
    for start, stop in ((0, 1), (1, 250), (250, 250), (250, 600)):
        part = slice(start, stop)
        departed = batched.engine.process_batch(
            np.array([port for port, _ in packets[part]], np.uint32),
            rows[part],
            np.array([len(frame) for _, frame in packets[part]], np.uint32),
            np.arange(start, stop, dtype=np.uint64),
        )
        columns = (departed.sources.tolist(), departed.ports.tolist(), departed.lengths.tolist())
        for row, (source, port, length) in zip(departed.packets, zip(*columns, strict=True), strict=True):
            sent.append((start + source, port, row[:length].tobytes()))
    assert sent == expected
    assert len(expected) > 100
    for name in program.program.registers:
        assert single.engine.register(name).read() == batched.engine.register(name).read()
    assert single.drops() == batched.drops()


def test_packets_longer_than_their_rows_are_refused(program: Engine) -> None:
    one = np.ones(1, np.uint32)
    with pytest.raises(ValueError, match="the row has 50"):
        program.process_batch(one, np.zeros((1, 50), np.uint8), 60 * one, np.zeros(1, np.uint64))


@pytest.mark.slow
def test_as_many_ports_as_packets_are_needed(program: Engine) -> None:
    with pytest.raises(ValueError, match="2 packets need as many ports"):
        program.process_batch(
            np.ones(1, np.uint32), np.zeros((2, 64), np.uint8), np.ones(2, np.uint32), np.zeros(2, np.uint64)
        )


def test_empty_packets_in_rows_without_room(tmp_path: Path) -> None:
    """More than a first allocation has room for."""
    source = tmp_path / "reflect.p4"
    source.write_text(REFLECT)
    engine = Engine.load(compile_once(source).device_config())
    count = 1000
    ports, times = np.arange(count, dtype=np.uint32) % 256, np.zeros(count, np.uint64)
    departed = engine.process_batch(ports, np.zeros((count, 0), np.uint8), np.zeros(count, np.uint32), times)
    assert departed.ports.tolist() == ports.tolist()
    assert not departed.lengths.any()
