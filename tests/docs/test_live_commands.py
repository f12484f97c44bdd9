"""Commands of the documents that need a network, on one for all of them, print what the documents show."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.docs.commands import ROOT, UP, documents_to_run, to_run
from tests.fanin import command as typed
from tests.fanin.network import TIMEOUT, Up

pytestmark = pytest.mark.live

VARIES = re.compile(r"-?\d[\d,.]*(?: (?:[nmu]?s|[kMG]?b/s|[kM]?B)\b)?")
CHANGED = re.compile(r"^(fanin link \w+ \w+) --set")
# What docs/reference/links.md says of it; one by one, since not every kernel takes superframes.
FLOOD = """
import socket
with socket.socket(type=socket.SOCK_DGRAM) as sender:
    for _ in range(2000):
        sender.sendto(bytes(1000), ("10.1.0.2", 5005))
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp("documents"), *shlex.split(UP)[2:]) as found:
        yield found
        found.end()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the commands are typed: a clone, with the scripts that the documents show or name."""
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "flood.py").write_text(FLOOD)
    return tmp_path


def start(command: str, network: Up, folder: Path) -> subprocess.Popen[str]:
    environment = {"PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1", **network.environment}
    return typed.start(*shlex.split(command)[1:], environment=environment, cwd=folder)


def finish(command: str, running: subprocess.Popen[str]) -> str:
    """Wait for its end and return what it printed."""
    try:
        said, errors = running.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:  # another network, say, which others would find beside theirs
        running.terminate()
        running.communicate()
        raise
    assert running.returncode == 0, f"{command}: {errors}"
    return said


def run(command: str, network: Up, folder: Path) -> str:
    if command == UP:
        return network.said
    running = start(command, network, folder)
    if "trace --on" in command:  # it waits for packets of others
        assert running.stderr is not None
        assert "tracing leaf1" in running.stderr.readline()
        allreduce = "fanin allreduce --sizes '64 kB' --repetitions 1"
        finish(allreduce, start(allreduce, network, folder))
    return finish(command, running)


def fixed(lines: Iterable[str]) -> set[str]:
    """The lines with a # for each number, and its unit."""
    return {" ".join(VARIES.sub("#", line).split()) for line in lines}


def to_hold(command: str, printed: list[str]) -> list[str]:
    """Return the lines that a document shows and that are printed on every machine."""
    if "trace --on" in command:
        return printed[:1]  # which worker's packet comes first differs
    # The counter is one of the program that the tutorial has one change: tests/test_tutorial.py.
    return [line for line in printed if "…" not in line and "by_ttl" not in line]


@pytest.mark.parametrize("document", documents_to_run(live=True))
def test_what_needs_a_network_runs_and_prints_what_is_shown(network: Up, folder: Path, document: str) -> None:
    found = to_run(document, live=True)
    for command, printed in found:
        said = run(command, network, folder)
        missing = fixed(to_hold(command, printed)) - fixed(said.splitlines())
        assert not missing, f"{command} printed\n{said}"
    for link in sorted({link for command, _ in found for link in CHANGED.findall(command)}):
        finish(f"{link} --clear", start(f"{link} --clear", network, folder))
