"""Chunks whose sum not everybody needs, and to which not everybody has something to add, packet by packet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.p4src.switch_under_test import (
    PARENT_PORT,
    RESULT,
    SIZES,
    Child,
    Message,
    SwitchUnderTest,
    block,
    saturating_sum,
)

GIVE, TAKE, ACKNOWLEDGEMENT = 2, 3, 4


def give(values: tuple[int, ...]) -> Message:
    return Message(values, GIVE, size=SIZES[len(values)])


def take(count: int) -> Message:
    return Message((), TAKE, size=SIZES[count])


def acknowledgement(count: int) -> Message:
    return Message((), ACKNOWLEDGEMENT, size=SIZES[count])


def result(values: tuple[int, ...]) -> Message:
    return Message(values, RESULT, size=SIZES[len(values)])


def sent(packets: list[tuple[int, Message]]) -> dict[int, Message]:
    assert len({port for port, _ in packets}) == len(packets)
    return dict(packets)


@pytest.mark.parametrize("count", SIZES)
class TestRoot:
    @pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
    def test_the_values_of_one_child_go_to_all_others(
        self, switch: SwitchUnderTest, count: int, order: tuple[int, ...]
    ) -> None:
        children = switch.join(3)
        values = block(7, -7, 2**15 - 1, count=count)
        updates = [give(values), take(count), take(count)]
        *silent, answer = [switch.send(children[i], updates[i]) for i in order]
        assert silent == [[], []]
        assert sent(answer) == {1: acknowledgement(count), 2: result(values), 3: result(values)}

    @pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
    def test_the_sum_goes_to_the_child_that_takes_it(
        self, switch: SwitchUnderTest, count: int, order: tuple[int, ...]
    ) -> None:
        children = switch.join(3)
        values = [block(n, -n, 100 * n, count=count) for n in (1, 2)]
        updates = [give(values[0]), take(count), give(values[1])]
        answer = [switch.send(children[i], updates[i]) for i in order][-1]
        assert sent(answer) == {
            1: acknowledgement(count),
            2: result(saturating_sum(values)),
            3: acknowledgement(count),
        }

    def test_an_update_among_them_gets_the_sum(self, switch: SwitchUnderTest, count: int) -> None:
        one, two, three = switch.join(3)
        switch.send(one, Message(block(1, count=count)))
        switch.send(two, give(block(2, count=count)))
        total = result(block(3, count=count))
        assert sent(switch.send(three, take(count))) == {1: total, 2: acknowledgement(count), 3: total}

    def test_nobodys_values_are_zeros_whatever_the_cell_held(
        self, switch: SwitchUnderTest, count: int
    ) -> None:
        one, two = switch.join(2)
        for child in (one, two):
            switch.send(child, Message(block(99, count=count)))
        switch.send(one, replace(take(count), chunk=2))
        zeros = replace(result(block(0, count=count)), chunk=2)
        assert sent(switch.send(two, replace(take(count), chunk=2))) == {1: zeros, 2: zeros}

    def test_each_gets_again_what_it_has_missed(self, switch: SwitchUnderTest, count: int) -> None:
        one, two = switch.join(2)
        values = block(5, 6, count=count)
        switch.send(one, give(values))
        switch.send(two, take(count))
        assert switch.send(one, give(values)) == [(1, acknowledgement(count))]
        assert switch.send(two, take(count)) == [(2, result(values))]
        assert switch.drops() == {}

    def test_exponents_are_those_of_all(self, switch: SwitchUnderTest, count: int) -> None:
        one, two = switch.join(2)
        switch.send(one, replace(take(count), exponents=(4, 0)))
        answers = switch.send(two, replace(give(block(1, count=count)), exponents=(-3, 0x80)))
        assert {message.exponents for _, message in answers} == {(4, 0x80)}


def leaf(switch: SwitchUnderTest, children: int = 2) -> list[Child]:
    return switch.join(children, root=False)


class TestBelowTheRoot:
    def test_children_that_all_take_are_a_child_that_takes(self, switch: SwitchUnderTest) -> None:
        one, two = leaf(switch)
        switch.send(one, take(64))
        assert switch.send(two, take(64)) == [(PARENT_PORT, take(64))]
        assert switch.send(one, take(64)) == [(PARENT_PORT, take(64))]  # retransmitted
        values = block(1, 2, 3)
        down = {1: result(values), 2: result(values)}
        assert sent(switch.send_from_parent(result(values))) == down
        assert switch.send(two, take(64)) == [(2, result(values))]

    def test_children_that_all_give_are_a_child_that_gives(self, switch: SwitchUnderTest) -> None:
        one, two = leaf(switch)
        switch.send(one, give(block(1)))
        assert switch.send(two, give(block(2))) == [(PARENT_PORT, give(block(3)))]
        assert switch.send(one, give(block(1))) == [(PARENT_PORT, give(block(3)))]  # retransmitted
        down = {1: acknowledgement(64), 2: acknowledgement(64)}
        assert sent(switch.send_from_parent(acknowledgement(64))) == down
        assert switch.send(one, give(block(1))) == [(1, acknowledgement(64))]

    def test_children_of_both_kinds_are_a_child_with_an_update(self, switch: SwitchUnderTest) -> None:
        one, two = leaf(switch)
        switch.send(one, take(64))
        assert switch.send(two, give(block(2))) == [(PARENT_PORT, Message(block(2), size=SIZES[64]))]
        assert switch.send(one, take(64)) == [
            (PARENT_PORT, Message(block(2), size=SIZES[64]))
        ]  # retransmitted
        assert sent(switch.send_from_parent(result(block(9)))) == {
            1: result(block(9)),
            2: acknowledgement(64),
        }

    def test_registers_that_are_lost_meanwhile_lose_no_sum(self, switch: SwitchUnderTest) -> None:
        one, two = leaf(switch)
        switch.send(one, give(block(1)))
        switch.send(two, take(64))
        switch.lose_registers()
        switch.send(one, give(block(1)))
        assert sent(switch.send_from_parent(result(block(9)))) == {
            1: acknowledgement(64),
            2: result(block(9)),
        }
        assert switch.send(two, take(64)) == [(2, result(block(9)))]

    def test_nobody_gets_the_sum_from_a_switch_that_does_not_have_it(self, switch: SwitchUnderTest) -> None:
        one, two = leaf(switch)
        switch.send(one, give(block(1)))
        switch.send(two, give(block(2)))
        switch.send_from_parent(acknowledgement(64))
        for update in (Message(block(1)), take(64)):
            assert switch.send(one, update) == []
        assert switch.drops() == {"MISMATCH": 2}


class TestRefused:
    @pytest.mark.parametrize("size", [0, 2, 4, 6])
    def test_a_size_that_does_not_exist(self, switch: SwitchUnderTest, size: int) -> None:
        one, _ = switch.join(2)
        assert switch.send(one, replace(take(64), size=size)) == []
        assert switch.drops() == {"BAD_SIZE": 1}

    @pytest.mark.parametrize(
        "message",
        [Message(block(1), TAKE), Message((), size=1), Message((), GIVE, size=1)],
        ids=["taking with values", "an update without values", "giving nothing"],
    )
    def test_values_where_there_are_none_and_none_where_there_are_some(
        self, switch: SwitchUnderTest, message: Message
    ) -> None:
        one, _ = switch.join(2)
        assert switch.send(one, message) == []
        assert switch.drops() == {"BAD_SIZE": 1}

    def test_bytes_behind_a_packet_without_values(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        padded, longer = (one.frame(take(64)) + bytes(count) for count in (4, 5))
        switch.engine.process(one.port, longer)
        assert switch.drops() == {"BAD_SIZE": 1}
        switch.engine.process(one.port, padded)  # as Ethernet does
        assert len(switch.send(two, give(block(1)))) == 2

    def test_an_acknowledgement_from_a_child(self, switch: SwitchUnderTest) -> None:
        one, _ = switch.join(2)
        assert switch.send(one, acknowledgement(64)) == []
        assert switch.drops() == {"BAD_TYPE": 1}

    @pytest.mark.parametrize("kind", [GIVE, TAKE])
    def test_what_children_send_from_the_parent(self, switch: SwitchUnderTest, kind: int) -> None:
        leaf(switch)
        values = block(1) if kind == GIVE else ()
        assert switch.send_from_parent(Message(values, kind, size=1)) == []
        assert switch.drops() == {"BAD_TYPE": 1}

    def test_another_size_than_that_of_the_chunk(self, switch: SwitchUnderTest) -> None:
        one, two = switch.join(2)
        switch.send(one, give(block(1, count=256)))
        assert switch.send(two, take(64)) == []
        assert switch.drops() == {"BAD_SIZE": 1}
