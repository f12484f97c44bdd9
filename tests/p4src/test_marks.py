"""Congestion marks (RFC 3168) on contributions reach every worker with the result."""

from __future__ import annotations

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from tests.p4src.switch_under_test import (
    PARENT_PORT,
    RESULT,
    Child,
    Message,
    SwitchUnderTest,
    block,
    decode,
    parent_frame,
)

NOT_CAPABLE, CAPABLE, CONGESTED = 0, 2, 3
DSCP = 46  # which marks leave alone
SIZES = {64: 1, 256: 3}


def marked(frame: bytes, ecn: int) -> bytes:
    packet = Ether(frame)
    packet[IP].tos = DSCP << 2 | ecn
    del packet[IP].chksum
    return bytes(packet)


def ends(switch: SwitchUnderTest, port: int, frame: bytes, ecn: int) -> list[tuple[int, int]]:
    """Where what comes of a frame goes, and its mark; its checksums are right."""
    found = []
    for out, packet in switch.engine.process(port, marked(frame, ecn)):
        decode(packet)
        assert Ether(packet)[IP].tos >> 2 == DSCP
        found.append((out, Ether(packet)[IP].tos & 3))
    return sorted(found)


def update(
    switch: SwitchUnderTest, child: Child, ecn: int, chunk: int = 1, count: int = 64
) -> list[tuple[int, int]]:
    return ends(switch, child.port, child.frame(Message(block(1, count=count), chunk=chunk)), ecn)


@pytest.mark.parametrize("count", [64, 256])
@pytest.mark.parametrize("congested", [(), (0,), (1,), (2,), (0, 2)])
def test_a_mark_on_any_contribution_is_on_the_result_for_all(
    switch: SwitchUnderTest, congested: tuple[int, ...], count: int
) -> None:
    children = switch.join(3)
    *first, last = [CONGESTED if i in congested else CAPABLE for i in range(3)]
    for child, ecn in zip(children, first, strict=False):
        assert update(switch, child, ecn, count=count) == []
    result = CONGESTED if congested else CAPABLE
    assert update(switch, children[2], last, count=count) == [(child.port, result) for child in children]


def test_who_is_not_capable_is_told_nothing_as_long_as_nobody_is_marked(switch: SwitchUnderTest) -> None:
    one, two = switch.join(2)
    update(switch, one, NOT_CAPABLE)
    assert update(switch, two, NOT_CAPABLE) == [(one.port, NOT_CAPABLE), (two.port, NOT_CAPABLE)]


def test_the_next_chunk_of_a_cell_begins_without_a_mark(switch: SwitchUnderTest) -> None:
    one, two = switch.join(2)
    update(switch, one, CONGESTED)
    update(switch, two, CAPABLE)
    update(switch, one, CAPABLE, chunk=2)
    assert update(switch, two, CAPABLE, chunk=2) == [(one.port, CAPABLE), (two.port, CAPABLE)]


def test_a_stored_result_is_served_again_with_its_mark(switch: SwitchUnderTest) -> None:
    one, two = switch.join(2)
    update(switch, one, CONGESTED)
    update(switch, two, CAPABLE)
    assert update(switch, two, CAPABLE) == [(two.port, CONGESTED)]


def test_a_mark_on_what_is_asked_for_again_is_for_who_asks_and_not_kept(switch: SwitchUnderTest) -> None:
    one, two = switch.join(2)
    update(switch, one, CAPABLE)
    update(switch, two, CAPABLE)
    assert update(switch, two, CONGESTED) == [(two.port, CONGESTED)]
    assert update(switch, one, CAPABLE) == [(one.port, CAPABLE)]


class TestBelowTheRoot:
    def test_a_partial_sum_goes_up_with_the_mark_and_again_with_it(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2, root=False)
        update(switch, one, CONGESTED)
        assert update(switch, two, CAPABLE) == [(PARENT_PORT, CONGESTED)]
        assert update(switch, two, CAPABLE) == [(PARENT_PORT, CONGESTED)]

    @pytest.mark.parametrize("ecn", [CAPABLE, CONGESTED])
    def test_a_result_from_above_goes_down_as_it_came_and_is_kept_so(
        self, switch: SwitchUnderTest, ecn: int
    ) -> None:
        one, two = switch.join(2, root=False)
        update(switch, one, CAPABLE)
        update(switch, two, CAPABLE)
        down = parent_frame(Message(block(7), RESULT, size=SIZES[64]))
        assert ends(switch, PARENT_PORT, down, ecn) == [(one.port, ecn), (two.port, ecn)]
        assert update(switch, one, CAPABLE) == [(one.port, ecn)]


def test_marks_change_no_sum(switch: SwitchUnderTest) -> None:
    one, two = switch.join(2)
    switch.engine.process(one.port, marked(one.frame(Message(block(3))), CONGESTED))
    for _, frame in switch.engine.process(two.port, marked(two.frame(Message(block(4))), CAPABLE)):
        assert decode(frame).values == block(7)
        assert Ether(frame)[UDP].chksum
