"""Commands that are forked: nothing tells them from those that Python has started but their speed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fanin.testbed.patience import setting
from fanin.testbed.runs import command_line
from tests.fanin import command


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("words", [["lesson", "list"], ["nothing"], ["new", "mine"], ["cost", "--help"]])
def test_they_say_and_end_as_those_that_are_started_alone(words: list[str], tmp_path: Path) -> None:
    environment = {"COLUMNS": "60", "NO_COLOR": "1"}
    ends = []
    for name in ("forked", "alone"):
        folder = tmp_path / name
        folder.mkdir()
        if name == "forked":
            done = command.run(*words, environment=environment, cwd=folder)
        else:
            done = subprocess.run(
                [sys.executable, "-c", command.RUN, *words],
                cwd=folder,
                env=os.environ | environment | {"PYTHONPATH": str(command.ROOT)},
                capture_output=True,
                text=True,
                check=False,
            )
        ends.append((done.args, done.returncode, done.stdout, done.stderr, len(list(folder.rglob("*")))))
    assert ends[0] == ends[1]


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """One that reads a program of which nothing comes."""
    program = tmp_path / "program.p4"
    os.mkfifo(program)
    with command.start("compile", program) as process, program.open("w"):
        # It has opened the program, and runs until it reads. A signal just before that would wait for the end of the
        # read: Python looks for signals before, and after what they interrupt.
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0] != "S":
            os.sched_yield()
        yield process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_signals_end_them(waiting: subprocess.Popen[str], number: int, status: int) -> None:
    assert waiting.poll() is None
    waiting.send_signal(number)
    assert waiting.communicate(timeout=60 * setting()) == ("", "")
    assert waiting.returncode == status


def test_they_are_in_our_group_with_their_own_command_line(waiting: subprocess.Popen[str]) -> None:
    assert os.getpgid(waiting.pid) == os.getpgrp()
    assert list(command_line(waiting.pid)) == waiting.args
    waiting.kill()


@pytest.mark.slow
def test_whoever_kills_the_one_that_forks_is_not_noticed() -> None:
    for _ in range(2):
        assert command.run("--version").stdout.startswith("fanin ")
        assert command._server._process is not None
        command._server._process.kill()


def test_where_python_itself_is_told_something_they_are_started_alone() -> None:
    assert "import 'fanin.cli'" in command.run("--version", environment={"PYTHONVERBOSE": "1"}).stderr
