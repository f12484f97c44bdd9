"""Short slices for what runs on a network."""

import os
import platform
import subprocess
import sys

import pytest

from fanin.testbed import time_slices


def _run(script: str) -> str:
    """Return what a process prints; its slices are not this one's."""
    # Another test may have shortened those of this process, which it inherits.
    start = "import os, subprocess, sys\nfrom fanin.testbed import time_slices\ntime_slices.restore()\n"
    return subprocess.run(
        [sys.executable, "-c", start + script], capture_output=True, text=True, check=True
    ).stdout.strip()


def _since_6_12() -> bool:
    major, minor = platform.release().split(".")[:2]
    return (int(major), int(minor.partition("-")[0])) >= (6, 12)


def test_what_a_process_starts_has_them_too():
    child = "from fanin.testbed.time_slices import current; print(current())"
    said = _run(
        f"print(time_slices.shorten())\nsys.stdout.flush()\nsubprocess.run([sys.executable, '-c', {child!r}])"
    )
    given, seconds = said.split()
    assert given == str(_since_6_12())
    assert (float(seconds) == time_slices.SECONDS) == _since_6_12()


def test_they_can_be_as_long_again_as_before():
    said = _run(
        "print(time_slices.current()); time_slices.shorten(); time_slices.restore(); print(time_slices.current())"
    )
    before, after = said.split()
    assert before == after


def test_nothing_else_changes():
    niceness = os.nice(0)
    said = _run(
        "os.nice(3); time_slices.shorten(); print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_OTHER)"
    )
    assert said == f"{niceness + 3} True"


def test_a_thread_with_a_policy_of_its_own_keeps_it():
    policy = "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)); print(time_slices.shorten())"
    assert _run(policy + "; print(os.sched_getscheduler(0) == os.SCHED_BATCH)").split() == ["False", "True"]


def test_a_processor_whose_system_calls_are_not_known_goes_without(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert not time_slices.shorten()
    assert time_slices.current() == 0


@pytest.mark.live
def test_processes_of_a_network_have_them():
    said = _run("from fanin.testbed.sandbox import enter; enter(); print(time_slices.current())")
    assert (float(said) == time_slices.SECONDS) == _since_6_12()
