"""Chunks that have an owner, who alone gives (in a gather) or takes (in a scatter), packet by packet."""

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


def of_scatter(message: Message) -> Message:
    return replace(message, exponents=(0, 0x40))


class TestBelowTheRootInAGather:
    def test_children_that_all_take_are_a_child_that_takes(self, switch: SwitchUnderTest) -> None:
        one, two = leaf(switch)
        switch.send(one, take(64))
        assert switch.send(two, take(64)) == [(PARENT_PORT, take(64))]
        assert switch.send(one, take(64)) == [(PARENT_PORT, take(64))]  # retransmitted
        values = block(1, 2, 3)
        down = {1: result(values), 2: result(values)}
        assert sent(switch.send_from_parent(result(values))) == down
        assert switch.send(two, take(64)) == [(2, result(values))]

    @pytest.mark.parametrize("count", SIZES)
    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_the_owners_switch_gives_and_keeps_the_values_for_its_other_children(
        self, switch: SwitchUnderTest, count: int, order: tuple[int, int]
    ) -> None:
        children, values = leaf(switch), block(5, 6, count=count)
        updates = [give(values), take(count)]
        silent, up = [switch.send(children[i], updates[i]) for i in order]
        assert silent == []
        assert up == [(PARENT_PORT, give(values))]
        assert switch.send(children[1], take(count)) == [(PARENT_PORT, give(values))]  # retransmitted
        down = {1: acknowledgement(count), 2: result(values)}
        assert sent(switch.send_from_parent(acknowledgement(count))) == down
        assert switch.send(children[1], take(count)) == [(2, result(values))]
        assert switch.send(children[0], give(values)) == [(1, acknowledgement(count))]

    def test_values_lost_with_the_registers_are_given_once_more(self, switch: SwitchUnderTest) -> None:
        one, two = leaf(switch)
        values = block(1)
        switch.send(one, give(values))
        switch.send(two, take(64))
        switch.lose_registers()
        switch.send(two, take(64))
        assert switch.send_from_parent(acknowledgement(64)) == []
        assert switch.drops() == {"STALE_RESULT": 1}
        assert switch.send(one, give(values)) == [(PARENT_PORT, give(values))]
        down = {1: acknowledgement(64), 2: result(values)}
        assert sent(switch.send_from_parent(acknowledgement(64))) == down


class TestBelowTheRootInAScatter:
    def test_children_that_all_give_are_a_child_that_gives(self, switch: SwitchUnderTest) -> None:
        one, two = leaf(switch)
        given = [of_scatter(give(block(n))) for n in (1, 2)]
        total, answer = of_scatter(give(block(3))), of_scatter(acknowledgement(64))
        switch.send(one, given[0])
        assert switch.send(two, given[1]) == [(PARENT_PORT, total)]
        assert switch.send(one, given[0]) == [(PARENT_PORT, total)]  # retransmitted
        assert sent(switch.send_from_parent(answer)) == {1: answer, 2: answer}
        assert switch.send(one, given[0]) == [(1, answer)]

    @pytest.mark.parametrize("count", SIZES)
    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_the_owners_switch_takes_and_adds_what_its_other_children_gave(
        self, switch: SwitchUnderTest, count: int, order: tuple[int, int]
    ) -> None:
        children = leaf(switch)
        asked, answer = of_scatter(take(count)), of_scatter(acknowledgement(count))
        updates = [asked, of_scatter(give(block(2, -7, count=count)))]
        silent, up = [switch.send(children[i], updates[i]) for i in order]
        assert silent == []
        assert up == [(PARENT_PORT, asked)]
        assert switch.send(children[1], updates[1]) == [(PARENT_PORT, asked)]  # retransmitted
        total = of_scatter(result(block(11, 93, count=count)))
        others = of_scatter(result(block(9, 100, count=count)))
        assert sent(switch.send_from_parent(others)) == {1: total, 2: answer}
        assert switch.send_from_parent(others) == []
        assert switch.send(children[0], asked) == [(1, total)]
        assert switch.send(children[1], updates[1]) == [(2, answer)]

    def test_a_sum_that_meets_the_limits_only_there_is_saturated(self, switch: SwitchUnderTest) -> None:
        one, two = leaf(switch)
        switch.send(one, of_scatter(take(64)))
        switch.send(two, of_scatter(give(block(2**31 - 1))))
        total = replace(of_scatter(result(block(2**31 - 1))), saturated=1)
        assert sent(switch.send_from_parent(of_scatter(result(block(1)))))[1] == total

    def test_the_others_sum_waits_for_what_is_lost_with_the_registers(self, switch: SwitchUnderTest) -> None:
        one, two = leaf(switch)
        asked, given, others = (of_scatter(each) for each in (take(64), give(block(2)), result(block(9))))
        switch.send(one, asked)
        switch.send(two, given)
        switch.lose_registers()
        switch.send(one, asked)
        assert switch.send_from_parent(others) == []
        assert switch.drops() == {"STALE_RESULT": 1}
        assert switch.send(two, given) == [(PARENT_PORT, asked)]
        assert sent(switch.send_from_parent(others))[1] == of_scatter(result(block(11)))

    def test_nobody_gets_the_sum_from_a_switch_that_does_not_have_it(self, switch: SwitchUnderTest) -> None:
        one, two = leaf(switch)
        switch.send(one, of_scatter(give(block(1))))
        switch.send(two, of_scatter(give(block(2))))
        switch.send_from_parent(of_scatter(acknowledgement(64)))
        for update in (Message(block(1)), take(64)):
            assert switch.send(one, of_scatter(update)) == []
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
