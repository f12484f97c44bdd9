"""The UDP checksum of aggregation packets: verified when they come, written when they leave (RFC 768)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether

from tests.p4src.switch_under_test import (
    BASE,
    PARENT_PORT,
    RESULT,
    SIZES,
    Child,
    Message,
    SwitchUnderTest,
    block,
    decode,
    parent_frame,
    saturating_sum,
)

UDP_END = 42  # where SwitchML's header begins


def checksum(frame: bytes) -> int:
    return int(Ether(frame)[UDP].chksum)


def with_sum(frame: Callable[[Message], bytes], message: Message, wanted: int) -> tuple[Message, bytes]:
    """The message with a last value that gives its frame this checksum, 1 to 0xFFFF."""
    message = replace(message, values=(*message.values[:-1], 0))
    # One's complement: what the checksum is to fall by, the sum has to grow by, carries included.
    more = (checksum(frame(message)) - wanted) % 0xFFFF
    message = replace(message, values=(*message.values[:-1], more))
    return message, frame(message)


@pytest.mark.parametrize("count", [64, 256])
def test_a_packet_with_a_wrong_udp_checksum_is_dropped_and_counted(
    switch: SwitchUnderTest, count: int
) -> None:
    child, _ = switch.join(2)
    frame = child.frame(Message(block(1, -2, 3, count=count)))
    wrong = frame[: UDP_END + 20] + bytes([frame[UDP_END + 20] ^ 4]) + frame[UDP_END + 21 :]
    assert switch.engine.process(child.port, wrong) == []
    assert switch.drops() == {"BAD_CHECKSUM": 1}
    assert switch.events() == {}


@pytest.mark.parametrize("count", [64, 256])
@pytest.mark.parametrize("root", [True, False])
def test_what_leaves_has_the_right_checksum(switch: SwitchUnderTest, count: int, root: bool) -> None:
    """`decode` looks at the checksums of all that leaves."""
    first, second = switch.join(2, root=root)
    vectors = [block(1, -2, 3, count=count), block(2**31 - 1, 5, -7, count=count)]
    assert switch.send(first, Message(vectors[0])) == []
    out = switch.engine.process(second.port, second.frame(Message(vectors[1])))
    assert [port for port, _ in out] == ([1, 2] if root else [PARENT_PORT])
    for _, frame in out:
        assert checksum(frame) != 0
        assert decode(frame).values == saturating_sum(vectors)


@pytest.mark.parametrize("count", [64, 256])
def test_a_lease_with_checksums_takes_no_packet_without_one(switch: SwitchUnderTest, count: int) -> None:
    [child] = switch.join(1, root=False)
    update = Message(block(1, 2, count=count))
    assert switch.engine.process(child.port, child.frame(update, 0)) == []
    assert (switch.drops(), switch.events()) == ({"NO_CHECKSUM": 1}, {})
    switch.send(child, update)
    result = replace(update, type=RESULT, size=SIZES[count])
    assert switch.engine.process(PARENT_PORT, parent_frame(result, 0)) == []
    assert switch.drops() == {"NO_CHECKSUM": 2}
    assert switch.send_from_parent(result) == [(child.port, result)]


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("given", [0, None])
def test_a_lease_without_checksums_writes_none_whatever_updates_carry(
    switch: SwitchUnderTest, root: bool, given: int | None
) -> None:
    first, second = switch.join(2, root=root, checksums=False)
    message = Message(block(1, 2))
    assert switch.engine.process(first.port, first.frame(message, 0)) == []
    out = switch.engine.process(second.port, second.frame(message, given))
    assert [port for port, _ in out] == ([1, 2] if root else [PARENT_PORT])
    for _, frame in out:
        assert checksum(frame) == 0
        assert decode(frame).values == saturating_sum([message.values] * 2)


def test_a_lease_without_checksums_verifies_those_that_are_there(switch: SwitchUnderTest) -> None:
    child, _ = switch.join(2, checksums=False)
    frame = child.frame(Message(block(1)))
    assert switch.engine.process(child.port, frame[:-1] + bytes([frame[-1] ^ 1])) == []
    assert switch.drops() == {"BAD_CHECKSUM": 1}


@pytest.mark.parametrize("count", [64, 256])
def test_a_checksum_sent_as_ffff_in_place_of_0_is_right(switch: SwitchUnderTest, count: int) -> None:
    child, _ = switch.join(2)
    _, frame = with_sum(child.frame, Message(block(1, count=count)), 0xFFFF)
    assert checksum(frame) == 0xFFFF
    switch.engine.process(child.port, frame)
    assert (switch.drops(), switch.events()) == ({}, {"NEW_CHUNK": 1})


@pytest.mark.parametrize("count", [64, 256])
def test_a_checksum_of_0_leaves_as_ffff(switch: SwitchUnderTest, count: int) -> None:
    [child] = switch.join(1, root=False)
    values = block(1, count=count - 1)
    [(_, frame)] = switch.engine.process(child.port, child.frame(Message((*values, 0), slot=BASE)))
    # The next slot's number is 1 more, and so is the sum.
    last = (checksum(frame) - 1) % 0xFFFF
    [(_, frame)] = switch.engine.process(child.port, child.frame(Message((*values, last), slot=BASE + 1)))
    assert checksum(frame) == 0xFFFF
    assert decode(frame).values == (*values, last)


def fate(switch: SwitchUnderTest, child: Child, frame: bytes) -> str:
    """Return the reason of a frame's drop, or the event it causes, or that it is not an update at all."""
    drops, events = switch.drops(), switch.events()
    out = switch.engine.process(child.port, frame)
    reasons = [name for name, count in switch.drops().items() if count != drops.get(name, 0)]
    done = [name for name, count in switch.events().items() if count != events.get(name, 0)]
    assert len(reasons) + len(done) == 1
    assert not (reasons and out)
    return (reasons + done)[0]


# One flipped bit makes a checksum 0 if a single bit is set, and 0xFFFE of one that is sent as 0xFFFF.
CHECKSUMS = [*((64, 1 << bit) for bit in (0, 7, 8, 15)), (256, 1), (64, 0xFFFF)]


@pytest.mark.few(2)
@pytest.mark.slow
@pytest.mark.parametrize(("count", "its_checksum"), [(64, None), (256, None), *CHECKSUMS])
def test_no_bit_that_flips_changes_a_sum(
    switch: SwitchUnderTest, count: int, its_checksum: int | None
) -> None:
    """Each bit of an update once: the packet is dropped, but for Ethernet addresses, which no switch port looks at."""
    first, second = switch.join(2)
    message = Message(block(1, -2, 2**31 - 1, count=count))
    frame = first.frame(message)
    if its_checksum is not None:
        message, frame = with_sum(first.frame, message, its_checksum)
        assert checksum(frame) == its_checksum
    fates: dict[str, set[int]] = {}
    for bit in range(8 * len(frame)):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        fates.setdefault(fate(switch, first, bytes(flipped)), set()).add(bit // 8)
        if bit == 0:
            assert fates == {"NEW_CHUNK": {0}}  # what was stored is the right one, and is only added once
    assert fates.pop("NEW_CHUNK") | fates.pop("DUPLICATE") == set(range(12))
    assert fates.pop("NOT_IP") == {12, 13}
    assert fates.pop("MALFORMED") == {14}  # version and header length
    assert fates.pop("NOT_ADMITTED") <= {36, 37}  # a destination port that is not aggregation's
    assert fates.pop("TRUNCATED", set()) <= {38}  # the length says that there are more values
    assert fates.pop("BAD_SIZE") <= {38, 39}  # the length: nothing to verify
    single = its_checksum is not None and its_checksum.bit_count() == 1
    assert fates.pop("NO_CHECKSUM", set()) == ({40 if its_checksum >> 8 else 41} if single else set())
    assert fates.keys() == {"BAD_CHECKSUM"}
    [(_, result), _] = switch.send(second, Message(block(5, count=count)))
    assert result.values == saturating_sum([message.values, block(5, count=count)])


@pytest.mark.slow
@pytest.mark.parametrize("count", [64, 256])
def test_no_bit_that_flips_in_a_packet_without_a_checksum_lets_it_in(
    switch: SwitchUnderTest, count: int
) -> None:
    first, _ = switch.join(2)
    frame = first.frame(Message(block(1, -2, 2**31 - 1, count=count)), 0)
    for bit in range(8 * len(frame)):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        switch.engine.process(first.port, bytes(flipped))
    assert switch.events() == {}
    assert switch.drops().keys() >= {"NO_CHECKSUM", "BAD_CHECKSUM"}


@pytest.mark.slow
@pytest.mark.parametrize("its_checksum", [None, 1, 0x0100, 0x8000, 0xFFFF])
def test_no_bit_that_flips_in_a_parents_result_reaches_a_child(
    switch: SwitchUnderTest, its_checksum: int | None
) -> None:
    """But for Ethernet addresses, which are the next hop's: with those flipped, the result is the right one."""
    first, second = switch.join(2, root=False)
    for child in (first, second):
        switch.send(child, Message(block(1)))
    result = Message(block(5, -6), RESULT, size=1)
    frame = parent_frame(result)
    if its_checksum is not None:
        result, frame = with_sum(parent_frame, result, its_checksum)
    reached = set()
    for bit in reversed(range(8 * len(frame))):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        for _, out in switch.engine.process(PARENT_PORT, bytes(flipped)):
            assert decode(out) == result
            reached.add(bit // 8)
    assert reached
    assert reached <= set(range(12))
    assert switch.send(first, Message(block(1))) == [(first.port, result)]
