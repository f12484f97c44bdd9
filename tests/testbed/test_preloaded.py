"""Processes that a process forks which has imported their programs: nothing tells them from others but their speed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from fanin.native import libc
from fanin.testbed.patience import setting
from fanin.testbed.runs import command_line

Run = Callable[[str], subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.live

START = """
from in_sandbox import *
import json, os, signal, subprocess, sys
from fanin.testbed import preloaded
SWITCH = [sys.executable, "-P", "-m", "fanin.p4switch"]
SERVES = [*SWITCH, "--no-p4", "--device-id", "7", "--", "--grpc-server-addr", "127.0.0.1:0"]
PIPE = subprocess.PIPE
"""


def _succeeds(run: Run, script: str) -> str:
    done = run(START + script)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.few(1)
def test_they_say_and_end_as_those_that_are_started_alone(run: Run) -> None:
    forked, alone = json.loads(
        _succeeds(
            run,
            """
ends = []
for start in (preloaded.start, subprocess.Popen):
    for options in (["--help"], ["--no-p4", "-i", "1@nowhere"], ["--unknown"]):
        with open(LOGS / "errors", "w+b") as errors:
            process = start([*SWITCH, *options], stdout=PIPE, stderr=errors)
            said, status = process.stdout.read().decode(), process.wait()
            errors.seek(0)
            ends.append((status, said, errors.read().decode()))
print(json.dumps((ends[:3], ends[3:])))
""",
        )
    )
    assert forked == alone
    assert [status for status, _, _ in forked] == [0, 1, 2]


@pytest.mark.few(1)
def test_they_are_children_in_sessions_of_their_own_with_their_own_command_line_and_environment(
    run: Run,
) -> None:
    seen = _succeeds(
        run,
        """
environment = os.environ | {"COLUMNS": "40"}
process = preloaded.start(SERVES, env=environment, stdout=PIPE)
assert isinstance(process, preloaded.Forked)
print(process.stdout.readline().split()[0].decode(), os.getsid(process.pid) == process.pid, process.poll())
from fanin.native import libc
from fanin.testbed.patience import setting
from fanin.testbed.runs import command_line
print(command_line(process.pid) == tuple(SERVES))
process.terminate()
print(process.wait(), process.poll())
long = environment | {f"LONG{number}": "x" * 100_000 for number in range(8)}
helps = [preloaded.start([*SWITCH, "--help"], env=env, stdout=PIPE) for env in (long, None)]
narrow, usual = (process.stdout.read() for process in helps)
print(len(narrow.splitlines()) > len(usual.splitlines()), [process.wait() for process in helps])
""",
    )
    assert seen.splitlines() == ["ready True None", "True", "0 0", "True [0, 0]"]


def test_they_have_their_session_once_they_are_known(run: Run) -> None:
    """A process that has just started one may end it, with all that it has started."""
    seen = _succeeds(
        run,
        """
pid = preloaded._forked_twice()
if pid == 0:
    signal.pause()
print(os.getsid(pid) == pid)
os.kill(pid, signal.SIGKILL)
""",
    )
    assert seen == "True\n"


@pytest.mark.few(1)
def test_one_that_is_killed_is_told_by_its_signal_and_waited_for_no_longer_than_asked(run: Run) -> None:
    seen = _succeeds(
        run,
        """
process = preloaded.start(SERVES, stdout=PIPE)
process.stdout.readline()
try:
    process.wait(0.01)
except subprocess.TimeoutExpired as error:
    print(error.timeout)
os.kill(process.pid, signal.SIGKILL)
print(process.wait(), process.poll())
process.kill()
""",
    )
    assert seen.splitlines() == ["0.01", "-9 -9"]


@pytest.mark.few(1)
def test_whoever_kills_the_one_that_forks_is_not_noticed(run: Run) -> None:
    seen = _succeeds(
        run,
        """
for _ in range(2):
    process = preloaded.start(SERVES, stdout=PIPE)
    print(process.stdout.readline().split()[0].decode())
    os.kill(preloaded._preloader._process.pid, signal.SIGKILL)
    print(process.poll())
    process.kill()
""",
    )
    assert seen.splitlines() == ["ready", "None"] * 2


@pytest.mark.few(1)
def test_they_live_where_a_host_does(run: Run) -> None:
    seen = _succeeds(
        run,
        """
topology = leaf_spine(spines=0, leaves=1, hosts_per_leaf=1)
with MininetNetwork(topology, Tiny(topology), LOGS) as network:
    process = network.host_popen("h1", [*SWITCH, "--no-p4", "-i", "1@h1-eth0", *SERVES[5:]], stdout=PIPE)
    print(process.stdout.readline().decode().split()[-1])
    print(os.readlink(f"/proc/{process.pid}/cwd") == os.getcwd())
print(process.poll())
""",
    )
    assert seen.splitlines() == ["ports=1@h1-eth0", "True", "-9"]


def test_a_process_that_has_ended_has_no_command_line() -> None:
    with subprocess.Popen(["true"]) as process:
        pass
    assert command_line(process.pid) == ()


@pytest.mark.parametrize(
    ("program", "status", "output", "errors"),
    [
        ("return 3", 3, "", ""),
        ("sys.exit()", 0, "", ""),
        ("sys.exit('all is wrong')", 1, "", "all is wrong\n"),
        ("return {}['nothing']", 1, "", "KeyError: 'nothing'\n"),
        ("os.kill(os.getpid(), signal.SIGINT)", -signal.SIGINT, "", "KeyboardInterrupt\n"),
        ("print('first', end=' '); Thread(target=last).start()", 0, "first thread at exit", ""),
    ],
)
def test_a_program_ends_as_python_ends_it(program: str, status: int, output: str, errors: str) -> None:
    script = (
        "import atexit, os, signal, sys, threading\n"
        "from threading import Thread\n"
        "from fanin.testbed.preloaded import run\n"
        "def last():\n"
        "    threading.main_thread().join()\n"  # it is over when Python has begun to wait for threads
        "    print('thread', end=' ')\n"
        f"def program():\n    {program}\n"
        "atexit.register(print, 'at exit', end='')\n"
        "run(program)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stdout == (output or "at exit")
    assert done.stderr.endswith(errors)


_ENDED = """
import os, signal, subprocess, sys
from tests import preloading
command = [sys.executable, "-P", "-m", "fanin.p4switch", "--no-p4", "--device-id", "7"]
switch = preloading.start([*command, "--", "--grpc-server-addr", "127.0.0.1:0"], stdout=subprocess.PIPE)
assert switch.stdout.readline().startswith(b"ready")
print(switch.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_outside_a_sandbox_they_end_with_whoever_has_started_them_even_if_it_is_killed(
    environment: dict[str, str],
) -> None:
    # The script's orphans become children of a process that waits for all of them.
    waits = (
        "import ctypes, os, subprocess, sys\n"
        f"ctypes.CDLL(None).prctl({libc.PR_SET_CHILD_SUBREAPER}, 1, 0, 0, 0)\n"
        "subprocess.run([sys.executable, '-c', sys.argv[1]])\n"
        "try:\n"
        "    while True:\n"
        "        print(os.wait())\n"
        "except ChildProcessError:\n"
        "    pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", waits, _ENDED],
        capture_output=True,
        text=True,
        timeout=60 * setting(),
        env=environment,
        check=True,
    )
    switch, *ended = done.stdout.splitlines()
    assert f"({switch}, {int(signal.SIGKILL)})" in ended
