"""How long others are waited for, by given clocks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fanin.testbed import patience
from fanin.testbed.patience import Starting, computed_seconds, proved
from fanin.topologies.errors import NetworkError


@pytest.fixture(autouse=True)
def _no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(patience.VARIABLE, raising=False)


def test_who_neither_answers_nor_computes_for_30_seconds_is_stuck() -> None:
    starting = Starting(now=100.0)
    assert not starting.stuck(129.9, computed=0.0)
    assert starting.stuck(130.0, computed=0.0)


def test_who_computes_is_waited_for() -> None:
    starting = Starting(now=0.0)
    # A processor that is shared by many: half a second in ten.
    assert not any(starting.stuck(now, computed=now / 20) for now in range(0, 7200, 10))
    assert starting.stuck(7200.0, computed=360.0)


def test_a_stuck_process_that_looks_around_now_and_then_is_stuck_all_the_same() -> None:
    starting = Starting(now=0.0)
    assert not starting.stuck(10.0, computed=2.0)
    assert not starting.stuck(39.9, computed=2.29)
    assert starting.stuck(40.0, computed=2.29)


def test_who_computes_for_ever_is_not_waited_for_so_long() -> None:
    starting = Starting(now=0.0)
    assert not any(starting.stuck(now, computed=now) for now in range(900))
    assert starting.stuck(900.0, computed=900.0)


def test_limits_are_as_long_as_the_machine_has_proved_to_need() -> None:
    assert proved(start=0.5) == proved(start=3.0) == 1.0
    assert proved(start=45.0) == 15.0
    assert proved(start=10_000.0) == 20.0


def test_one_setting_stretches_all_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(patience.VARIABLE, "2.5")
    assert proved(start=1.0) == 2.5
    assert proved(start=6.0) == 5.0
    starting = Starting(now=0.0)
    assert not starting.stuck(74.9, computed=0.0)
    assert starting.stuck(75.0, computed=0.0)


@pytest.mark.parametrize("text", ["", "long", "0", "-1", "nan", "inf"])
def test_a_setting_that_is_no_factor_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(patience.VARIABLE, text)
    with pytest.raises(NetworkError, match=f"FANIN_PATIENCE is '{text}'; set it to a positive number"):
        proved(1.0)


def test_what_a_process_has_started_counts_as_its_own_work() -> None:
    busy = "import time\nwhile time.process_time() < 0.2: pass\nprint(flush=True)\ninput()"
    shell = ["sh", "-c", f"'{sys.executable}' -c '{busy}'; exit"]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        child, parent = computed_seconds([process.pid, os.getpid()])
        assert 0.1 < child <= parent
        process.communicate(b"\n")
    assert computed_seconds([process.pid]) == [0]
