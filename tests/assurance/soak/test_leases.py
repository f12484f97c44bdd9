"""Lease after lease over the same slots: packets of earlier ones are refused, also when all numbers come again."""

from __future__ import annotations

import pytest

from fanin.assurance.soak import leases
from fanin.assurance.soak.descending import DescendingNumbers
from fanin.assurance.soak.leases import Succession, WrongSumError
from fanin.controller.jobs import ledger
from fanin.controller.jobs.ledger import CHUNKS, LEASES, UsedUpError
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Fabric
from fanin.topologies.shapes import leaf_spine
from tests.sizes import sized

pytestmark = pytest.mark.slow

RACK = leaf_spine(spines=0, leaves=1, hosts_per_leaf=2)


@pytest.mark.long
def test_no_packet_of_an_earlier_lease_is_admitted(switch: Engine) -> None:
    succession = Succession(RACK, switch, 2**20)
    take(succession, sized(2 * LEASES, 100_000))
    assert succession.count.rounds == 1
    assert succession.count.replayed > succession.count.leases


def test_in_a_tree(switch: Engine) -> None:
    succession = Succession(leaf_spine(spines=1, leaves=2, hosts_per_leaf=2), switch, 2**28)
    take(succession, 100)
    assert succession.count.replayed > 100


def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """So few numbers that they come again after so many leases, which then find the cells of those before."""
    monkeypatch.setattr(ledger, "LEASES", 3)
    monkeypatch.setattr(leases, "LEASES", 3)
    round = 3 * (CHUNKS // 2**31)
    monkeypatch.setattr(leases, "SLOTS", leases.WINDOW * round)
    return round


def take(succession: Succession, count: int) -> None:
    for _ in range(count):
        succession.next()
    succession.check()


def test_when_all_numbers_have_been_taken_cells_are_emptied_and_they_come_again(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    round = small(monkeypatch)
    succession = Succession(RACK, switch, 2**31)
    take(succession, 5 * round)
    assert succession.count.rounds == 5
    assert succession.count.replayed > 0


def test_it_notices_cells_that_were_not_emptied(switch: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    round = small(monkeypatch)
    monkeypatch.setattr(Fabric, "empty_cells", lambda _: None)
    succession = Succession(RACK, switch, 2**31)
    with pytest.raises(WrongSumError):
        take(succession, 5 * round)


def test_it_notices_packets_that_are_as_old_as_a_round(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    round = small(monkeypatch)
    succession = Succession(RACK, switch, 2**31, replayed_for=2 * round)
    with pytest.raises(WrongSumError):
        take(succession, 20 * round)


def test_chunk_numbers_that_descend_meet_from_above_and_end_with_0() -> None:
    numbers = DescendingNumbers(0, [99, *[-1] * (LEASES - 1)])
    taken = [numbers.take(count) for count in (30, 1, 69)]
    assert [(one.lease, one.first_chunk, one.last_chunk) for one in taken] == [
        (1, 70, 99),
        (1, 69, 69),
        (1, 0, 68),
    ]
    with pytest.raises(UsedUpError):
        numbers.take(1)
