"""Progress bars are shown on a terminal, on standard error, and nowhere else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import sys

import pytest

pytestmark = pytest.mark.slow
from fanin.progress import Steps
with Steps("scenarios", 4, shown="hidden" not in sys.argv) as bars:
    for _ in range(3):
        bars.advance(note="2 failed")
    bars._progress.refresh()
print("the result")
"""


def on_a_terminal(*arguments: str, **environment: str) -> tuple[str, str]:
    """Standard output through a pipe, and standard error of a terminal."""
    ours, theirs = pty.openpty()
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    variables |= {"TERM": "xterm", "COLUMNS": "80", **environment}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments], stdout=subprocess.PIPE, stderr=theirs, env=variables
    ) as process:
        os.close(theirs)
        assert process.stdout is not None
        said = process.stdout.read().decode()
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux reports the other end's close as an error
                break
            if not part:
                break
            shown += part
    os.close(ours)
    assert process.returncode == 0
    return said, shown.decode()


def test_a_terminal_shows_the_count_and_standard_output_the_result_alone() -> None:
    said, shown = on_a_terminal()
    assert said == "the result\n"
    assert "scenarios" in shown
    assert "3/4" in shown
    assert "2 failed" in shown
    assert "\x1b[3" in shown  # a colour


def test_without_colour_there_is_none() -> None:
    _, shown = on_a_terminal(NO_COLOR="1")
    assert "3/4" in shown
    assert "\x1b[3" not in shown


def test_bars_that_are_not_wanted_print_nothing() -> None:
    assert on_a_terminal("hidden") == ("the result\n", "")


def test_a_pipe_gets_nothing() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("the result\n", "")
