"""The names of what is counted, and differences of counts."""

import re
from pathlib import Path

import pytest

from fanin.controller.connection import Count
from fanin.controller.telemetry import Event, PortCounts, Reason, SwitchCounts

REASONS_P4 = (Path(__file__).parents[2] / "p4src" / "reasons.p4").read_text()


@pytest.mark.parametrize(("prefix", "names"), [("REASON", Reason), ("EVENT", Event)])
def test_the_names_are_those_of_the_program(prefix: str, names: type[Reason | Event]) -> None:
    constants = re.findall(rf"const bit<\d+> {prefix}_(\w+) = (\d+);", REASONS_P4)
    assert {name: int(value) for name, value in constants} == {name.name: name.value for name in names}


def test_counts_subtract_part_by_part() -> None:
    def counted(n: int) -> SwitchCounts:
        port = PortCounts(Count(n, 100 * n), Count(2 * n, 0), Count(0, 0), Count(n, 0))
        return SwitchCounts({1: port}, {Reason.LOST: Count(3 * n, n)}, {Event.ADDED: Count(n, n)})

    assert counted(5) - counted(2) == counted(3)
