"""Priority queues: which priorities a port has queues for, and what a mirroring session makes of its clones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import Clones, Replica
from fanin.p4switch.trace.tracer import traced


@pytest.fixture
def switch(engine: Callable[[str], Engine]) -> Engine:
    return engine("priorities")


def packet(number: int) -> bytes:
    return bytes(42) + number.to_bytes(2, "big") + bytes(1)


@pytest.mark.parametrize("queues", [1, 2, 8])
def test_a_packet_without_a_queue_is_dropped(switch: Engine, queues: int) -> None:
    switch.set_priority_queues(queues)
    left = [number for number in range(8) if switch.process(1, packet(number))]
    assert left == list(range(queues))


def test_a_trace_says_so(switch: Engine) -> None:
    with traced(switch) as tracer:
        switch.process(1, packet(3))
        switch.process(1, packet(0))
        refused, passed = tracer.packets()
    assert "priority 3: a port has no such queue (--priority-queues)" in str(refused)
    assert "priority" not in str(passed).replace("standard_metadata.priority", "")


@pytest.mark.parametrize("service_class", [0, 1, 7])
def test_a_session_gives_its_clones_a_priority(switch: Engine, service_class: int) -> None:
    switch.set_priority_queues(8)
    switch.sessions.insert(5, (Replica(4, 0),), Clones(service_class=service_class))
    clone, _ = switch.process(1, packet(0xFFFF))
    assert clone == (4, packet(0xFFFF)[:-1] + bytes([service_class]))


def test_a_clone_without_a_queue_is_dropped(switch: Engine) -> None:
    switch.sessions.insert(5, (Replica(4, 0),), Clones(service_class=1))
    assert [port for port, _ in switch.process(1, packet(0xFFFF))] == [2]
