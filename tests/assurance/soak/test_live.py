"""Faults of processes on live networks: what is drawn, what is found, and that nothing is found in fanin."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from fanin.assurance.soak.live import Fault, LiveOutcome, draw_fault, run_fault
from fanin.native import libc
from fanin.testbed.patience import VARIABLE
from tests.fanin import command
from tests.sizes import sized

# In place of fanin: says that it is up, then does as its test wants.
_FAKE = """
import pathlib, signal, subprocess, sys, time, os
said = "The network is down"
signal.signal(signal.SIGINT, lambda *_: end())
run = pathlib.Path(os.environ["TMPDIR"], "fanin-run-1")
def end():
    if {leaves_a_file}:
        run.joinpath("more").touch()
    else:
        run.joinpath("workers.sock").unlink()
        run.rmdir()
    if {leaves_a_process}:
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if {hangs}:
        return
    print({said!r}, flush=True)
    os._exit({status})
run.mkdir()
run.joinpath("workers.sock").touch()
while True:
    time.sleep(1000)
"""
_FAULT = Fault(
    seed=0,
    command="up",
    workers=2,
    leaves=1,
    standby=False,
    point="serving",
    delay=0.0,
    victim=0.0,
    number=signal.SIGSTOP,
    pause=0.0,
    settle=0.0,
)


@contextmanager
def _adopting() -> Iterator[None]:
    libc.call("prctl", libc.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.call("prctl", libc.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _run(fault: Fault = _FAULT, **does: object) -> LiveOutcome:
    usual = {
        "leaves_a_file": False,
        "leaves_a_process": False,
        "hangs": False,
        "said": "fanin",
        "status": 130,
    }
    with _adopting():
        return run_fault(fault, [sys.executable, "-c", _FAKE.format(**usual | does)])


def test_a_seed_repeats_the_fault_and_seeds_reach_every_point_and_signal() -> None:
    faults = [draw_fault(seed) for seed in range(400)]
    assert faults == [draw_fault(seed) for seed in range(400)]
    assert {fault.command for fault in faults} == {"up", "demo", "launch"}
    assert len({(fault.command, fault.point) for fault in faults}) == 20
    assert len({fault.number for fault in faults}) == 4


def test_a_command_that_ends_as_it_should_is_in_order() -> None:
    outcome = _run()
    assert (outcome.status, outcome.violations) == (130, ())
    assert "SIGSTOP to" in str(outcome)


@pytest.mark.parametrize(
    ("does", "violation"),
    [
        ({"leaves_a_file": True}, "temporary files are left: fanin-run-1"),
        ({"leaves_a_process": True}, "processes are left: sleep ("),
        ({"hangs": True}, "it hangs; there are "),
        ({"said": "a wrong sum"}, "it prints: a wrong sum"),
        ({"said": "Traceback (most recent call last):"}, "it prints: Traceback"),
        ({"status": 1, "said": ""}, "exit status 1 without a word"),
        ({"status": 3}, "exit status 3 after a pause of 0.0 s, which is to change nothing"),
    ],
)
def test_what_is_wrong_with_a_command_is_found(
    monkeypatch: pytest.MonkeyPatch, does: dict[str, object], violation: str
) -> None:
    if does.keys() & {"hangs", "leaves_a_process"}:  # what is waited for in vain
        monkeypatch.setenv(VARIABLE, "0.01")
    assert any(found.startswith(violation) for found in _run(**does).violations)


@pytest.mark.parametrize(("point", "wrong"), [("started", False), ("sandbox", True)])
def test_ctrl_c_may_end_a_command_by_its_signal_before_it_has_begun(point: str, wrong: bool) -> None:
    """On a busy machine the command is still importing when a pause and the time until Ctrl-C are over."""
    begin = {"started": "", "sandbox": 'mkdir "$TMPDIR/fanin-run-1"; '}[point]
    with _adopting():
        loop = ["sh", "-c", f"{begin}while :; do :; done # fanin"]
        outcome = run_fault(replace(_FAULT, point=point), loop)
    assert outcome.status == -signal.SIGINT
    assert any("which is to change nothing" in found for found in outcome.violations) == wrong


def test_whoever_gets_the_signal_is_found_by_its_name() -> None:
    outcome = _run(replace(_FAULT, number=signal.SIGKILL))
    assert outcome.status == -signal.SIGKILL
    assert outcome.violations[0].startswith("temporary files are left")


@pytest.mark.long
@pytest.mark.live
@pytest.mark.parametrize("seed", sized([1, 120, 142], [0]))
def test_commands_whose_processes_are_killed_leave_nothing_and_say_what_happened(
    seed: int, tmp_path: object
) -> None:
    seeds = sized(1, 200)
    results = ("--results", tmp_path)
    done = command.run("soak", "--live", "--first-seed", seed, "--seeds", seeds, *results, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("Nothing wrong; ")
