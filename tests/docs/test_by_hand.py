"""Every command of docs/how-to/by-hand.md, typed in one shell, prints what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin import shell_environment
from fanin.cli import app
from tests.docs.commands import BY_HAND, FENCE, ROOT
from tests.fanin.network import TIMEOUT

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.few(0)]

LISTENS = "until (echo > /dev/tcp/127.0.0.1/9559) 2> /dev/null; do sleep 0.05; done"
END = "end of the command:"
VARIES = re.compile(r"\b\d{4,}\b|\d+\.\d{6}|\d\d:\d\d:\d\d\.\d{3}")  # process ids and ports, times


class Shell:
    """A shell in which commands are typed one after the other."""

    def __init__(self, home: Path) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "HOME": str(home), "PATH": path, "SHELL": "/bin/bash", "NO_COLOR": "1"}
        environment |= {
            "COLUMNS": "200",
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        }
        self._process = subprocess.Popen(
            ["timeout", str(int(5 * TIMEOUT)), "bash"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def type(self, command: str) -> tuple[str, int]:
        """Run a command, and return what it printed and its exit status."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(f"{command}\nstatus=$?; echo; echo '{END}' $status\n")
        stdin.flush()
        said = ""
        while not (line := stdout.readline()).startswith(END):
            assert line, f"{command}: the shell has ended after {said}"
            said += line
        return said, int(line.removeprefix(END))

    def close(self) -> None:
        """End the shell and what it has left running."""
        self.type("kill $(jobs -p); wait")
        self._process.communicate(timeout=TIMEOUT)


def shown() -> Iterator[tuple[str, list[str]]]:
    """The commands of the page, each with the lines that it is shown to print."""
    printed: list[str] = []
    for line in FENCE.sub("", (ROOT / BY_HAND).read_text()).splitlines():
        if line.startswith("    $ "):
            printed = []
            yield line.removeprefix("    $ "), printed
        elif line.startswith("    "):
            printed.append(line)


def fixed(text: str) -> str:
    return " ".join(VARIES.sub("#", text).split())


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell whose home folder has a Python with p4runtime-shell where `fanin course` puts it."""
    course = tmp_path / "p4-course/bin/python"
    course.parent.mkdir(parents=True)
    course.write_text(f'#!/bin/sh\nexec {shell_environment.python()} "$@"\n')
    course.chmod(0o755)
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def walk(shell: Shell) -> Iterator[str]:
    """Type the commands of the page, check what each prints, and yield it."""
    for command, printed in list(shown()):
        if "p4-course" in command and not shell_environment.ready():
            continue
        if command.startswith("grep"):  # the log is written a moment later
            shell.type(f"until {command} > /dev/null; do sleep 0.05; done")
        said, status = shell.type(command)
        assert status == 0, f"{command}: {said}"
        found = {fixed(line) for line in said.splitlines()}
        missing = [line for line in printed if line.strip() != "…" and fixed(line) not in found]
        assert not missing, f"{command}: {missing} is not in\n{said}"
        if command.endswith("&"):
            shell.type(LISTENS)
        yield command


def test_the_page_prints_what_it_shows(shell: Shell) -> None:
    seen_outside = False
    for command in walk(shell):
        if command == "python control.py" and not seen_outside:
            [process] = re.findall(r"^\d+", shell.type("jobs -l | grep -o '[0-9]* Running'")[0], re.M)
            done = CliRunner().invoke(app, ["tables", process])
            assert "MyIngress.forward(port=2)" in done.stdout, done.output
            seen_outside = True
    assert seen_outside


@pytest.mark.bmv2
def test_bmv2_refuses_only_what_the_page_says(shell: Shell) -> None:
    bmv2 = os.environ.get("FANIN_BMV2", "simple_switch_grpc")
    refused = []
    for command, _ in list(shown()):
        if command.startswith("kill"):
            break
        said, status = shell.type(command)
        if command == "fanin shims bin":
            shell.type(f"printf '#!/bin/sh\\nexec {bmv2} \"$@\"\\n' > bin/simple_switch_grpc")
        elif command.endswith("&"):
            shell.type(LISTENS)
        elif status and command.startswith("fanin"):
            refused.append(said)
    assert len(refused) == 1, refused
    assert "fanin packet: 127.0.0.1:9559 is BMv2, which accepts packets only at its ports" in refused[0]
