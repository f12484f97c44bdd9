"""The benchmark of starts measures processes that were ready, and says which were not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.assurance.bench.switch.errors import SwitchBenchError
from fanin.assurance.bench.switch.start import BASELINE, HELP, start_outcomes
from fanin.p4compiler import compile_once

PROGRAM = Path(__file__).parents[2] / "p4switch" / "programs" / "router.p4"


@pytest.mark.slow
def test_starts_are_measured_next_to_a_bare_process_and_goals() -> None:
    config, rounds = compile_once(PROGRAM).device_config(), []
    found = start_outcomes(config, config, 1, lambda: rounds.append(1))
    assert len(rounds) == 2
    bare, command, *switches = found.values()
    assert list(found)[:2] == [BASELINE, HELP]
    for one in found.values():
        assert one.use.processor > 0
        assert one.use.elapsed > 0
    # A switch loads everything that the bare process loads, and more.
    assert min(one.use.bytes or 0 for one in switches) > (bare.use.bytes or 0) > 1 << 20
    assert command.use.bytes is None
    assert [one.goal.elapsed for one in switches] == [0.5, 0.5]
    assert command.goal.processor == 0.3


@pytest.mark.slow
def test_a_switch_that_does_not_start_is_reported() -> None:
    with pytest.raises(SwitchBenchError, match=r"fanin\.p4switch .* did not start"):
        start_outcomes(b"{}", b"{}", 1)
