"""Loss on emulated links: of the asked share, repeatable by seed, for each copy by itself."""

from __future__ import annotations

import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from fanin.p4switch.engine.engine import Engine
from tests.p4src.switch_under_test import Message, SwitchUnderTest, block

PERCENT = 2**32 // 100


def lose(switch: SwitchUnderTest, direction: str, port: int, threshold: int, seed: int = 1) -> None:
    table = {"in": "ingress.loss_in.links", "out": "egress.loss_out.links"}[direction]
    switch.insert(table, (port,), "draw", seed, threshold)


def receivers(switch: SwitchUnderTest, chunks: int) -> list[list[int]]:
    """Which ports get the result of each of `chunks` chunks."""
    one, two = switch.children
    got = []
    for chunk in range(1, chunks + 1):
        switch.send(one, Message(block(1), chunk=chunk))
        got.append(sorted(port for port, _ in switch.send(two, Message(block(1), chunk=chunk))))
    return got


@pytest.mark.slow
def test_without_an_entry_nothing_is_lost(switch: SwitchUnderTest) -> None:
    switch.join(2)
    assert receivers(switch, 100) == [[1, 2]] * 100


@pytest.mark.parametrize("percent", [1, 10, 50])
def test_the_asked_share_is_lost(switch: SwitchUnderTest, percent: int) -> None:
    switch.route("0.0.0.0", 0, "forward", 2, 1)
    lose(switch, "out", 1, percent * PERCENT)
    frame = bytes(Ether() / IP(dst="10.0.0.1"))
    packets = 20_000
    lost = sum(not switch.engine.process(5, frame) for _ in range(packets))
    expected = packets * percent / 100
    assert abs(lost - expected) < 4 * (expected * (1 - percent / 100)) ** 0.5  # four standard deviations
    assert switch.engine.counter("egress.loss_out.lost").read(1).packets == lost


@pytest.mark.slow
def test_copies_of_one_result_are_lost_independently(switch: SwitchUnderTest) -> None:
    switch.join(2)
    for port in (1, 2):
        lose(switch, "out", port, 50 * PERCENT, seed=port)
    got = [tuple(ports) for ports in receivers(switch, 400)]
    for outcome in ((), (1,), (2,), (1, 2)):
        assert 60 < got.count(outcome) < 140


@pytest.mark.slow
def test_a_seed_repeats_and_another_differs(engine: Engine) -> None:
    def history(seed: int) -> list[list[int]]:
        switch = SwitchUnderTest(engine.new_instance())
        switch.join(2)
        lose(switch, "out", 1, 30 * PERCENT, seed)
        return receivers(switch, 100)

    assert history(1) == history(1)
    assert history(1) != history(2)


def test_what_is_lost_on_the_way_in_is_not_processed(switch: SwitchUnderTest) -> None:
    one, _ = switch.join(2)
    lose(switch, "in", one.port, 2**32 - 1)
    assert switch.send(one, Message(block(1))) == []
    assert switch.drops() == {"LOST": 1}
    assert switch.events() == {}
    assert switch.engine.counter("ingress.loss_in.lost").read(one.port).packets == 1
