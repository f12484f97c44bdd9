"""Fields of headers that a packet does not have read as 0, whatever earlier packets and replicas wrote into them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import Replica
from tests.sizes import sized

REQUEST = struct.Struct(">3B6I")
A, B, STACK = 1, 2, 4
WRITTEN_IN_EGRESS = 10
GROUP, SESSION = 5, 1


@dataclass(frozen=True)
class Sent:
    """A packet of programs/invalid.p4, and what stands in the headers that it has."""

    operation: int
    value: int
    numbers: dict[int, int]

    def packet(self, group: int = 0) -> bytes:
        head = REQUEST.pack(sum(self.numbers), self.operation, group, self.value, *[0xEEEEEEEE] * 5)
        return head + b"".join(number.to_bytes(4, "big") for _, number in sorted(self.numbers.items()))

    @property
    def fields(self) -> list[int]:
        """The fields of a, b and the stack's elements as they arrive."""
        return [self.numbers.get(header, 0) for header in (A, B, STACK)] + [0]


NUMBERS = st.integers(1, 2**32 - 1)


def packets(operations: Iterable[int]) -> st.SearchStrategy[Sent]:
    """Return the packets that ask for one of these operations."""
    headers = st.dictionaries(st.sampled_from([A, B, STACK]), NUMBERS)
    return st.builds(Sent, st.sampled_from(sorted(operations)), NUMBERS, headers)


PACKETS = packets(range(WRITTEN_IN_EGRESS + 1))


@pytest.fixture(scope="module")
def switch(config: Callable[[str], bytes]) -> Engine:
    made = Engine.load(config("invalid"))
    made.multicast.insert(GROUP, tuple(Replica(port, port) for port in (1, 2, 3)))
    return made


@pytest.fixture(scope="module")
def cloning(config: Callable[[str], bytes]) -> Engine:
    made = Engine.load(config("invalid_cloned"))
    made.sessions.insert(SESSION, (Replica(7, 0),))
    return made


def answers(packet: bytes) -> tuple[list[int], int]:
    """Return what ingress found in the four fields, and egress in that of a and in metadata together."""
    *_, a, b, first, second, at_egress = REQUEST.unpack_from(packet)
    return [a, b, first, second], at_egress


def after_ingress(sent: Sent) -> int:
    """The field of a."""
    return sent.value if sent.operation in (1, 2, 3, 9) else sent.numbers.get(A, 0)


def headers_left(sent: Sent) -> int:
    """How many headers it has besides the request once ingress is done."""
    has = {header: header in sent.numbers for header in (A, B, STACK)}
    match sent.operation:
        case 2:
            has[A] = True
        case 3 | 9:
            has[A] = False
        case 4:
            has[B] = has[A]
        case 5:
            return 1 + sum(has.values())
    return sum(has.values())


def expected(sent: Sent) -> tuple[list[int], int]:
    """The answers to a packet that is the first."""
    return sent.fields, (after_ingress(sent) + sent.value) % 2**32


@pytest.mark.slow
@settings(max_examples=sized(50, 150))
@given(st.lists(PACKETS, min_size=2, max_size=8))
def test_no_packet_shows_in_a_later_one(switch: Engine, packets: list[Sent]) -> None:
    for sent in packets:
        [(_, packet)] = switch.process(1, sent.packet())
        assert answers(packet) == expected(sent)


@settings(max_examples=sized(33, 100))
@given(st.lists(PACKETS | packets([WRITTEN_IN_EGRESS]), min_size=1, max_size=4))
def test_no_replica_shows_in_the_next(switch: Engine, packets: list[Sent]) -> None:
    """Neither in fields that egress reads, metadata among them, nor in the bytes that leave."""
    for sent in packets:
        copies = [packet for _, packet in switch.process(1, sent.packet(GROUP))]
        [(_, alone)] = switch.process(1, sent.packet())
        assert answers(alone) == expected(sent)
        assert len(alone) == REQUEST.size + 4 * headers_left(sent)
        assert copies == [alone.replace(sent.packet()[:3], sent.packet(GROUP)[:3], 1)] * 3


@settings(max_examples=sized(26, 80))
@given(st.lists(PACKETS, min_size=2, max_size=6))
def test_no_packet_shows_in_a_later_one_s_clone(cloning: Engine, packets: list[Sent]) -> None:
    for sent in packets:
        by_port = dict(cloning.process(1, sent.packet()))
        left = sent.value if sent.operation == WRITTEN_IN_EGRESS else after_ingress(sent)
        assert answers(by_port[1]) == expected(sent)
        assert answers(by_port[7]) == (sent.fields, left)  # its metadata are zero
