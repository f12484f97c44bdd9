"""The benchmark of starts measures processes that were ready, and says which were not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.assurance.bench.switch.errors import SwitchBenchError
from fanin.assurance.bench.switch.start import start_outcome
from fanin.p4compiler import compile_once

PROGRAM = Path(__file__).parents[2] / "p4switch" / "programs" / "router.p4"


@pytest.mark.slow
def test_starts_are_compared_with_a_bare_process() -> None:
    found = start_outcome(compile_once(PROGRAM).device_config(), 1)
    assert found.ratio == found.seconds / found.baseline_seconds
    # The switch loads everything that the baseline loads, and more.
    assert found.bytes > found.baseline_bytes > 1 << 20
    assert found.seconds > 0 < found.baseline_seconds


@pytest.mark.slow
def test_a_switch_that_does_not_start_is_reported() -> None:
    with pytest.raises(SwitchBenchError, match=r"fanin\.p4switch .* did not start"):
        start_outcome(b"{}", 1)
