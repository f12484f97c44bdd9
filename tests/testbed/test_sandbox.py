"""Fresh namespaces around a command."""

import json
import os
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fanin.testbed import runs, sandbox
from fanin.testbed.patience import setting
from tests.sizes import sized
from tests.testbed.conftest import as_myself

ROOT = Path(__file__).parents[2]

Command = Callable[[str], list[str]]
Run = Callable[[str], subprocess.CompletedProcess[str]]

ENTER = "from fanin.testbed.sandbox import enter, inside; enter()\n"
NETWORK = """
from in_sandbox import *

class Announcing(Tiny):
    def command(self, switch, ports, links):
        print("building", flush=True)
        return super().command(switch, ports, links)

topology = leaf_spine(spines=1, leaves=2, hosts_per_leaf=2, rate=1_000_000)
try:
    with MininetNetwork(topology, Announcing(topology), LOGS) as network:
        worker = network.host_popen("h1", ["sleep", "1000"])
        print("up", flush=True)
        worker.wait()
finally:
    print("cleaned", left(), flush=True)
"""


@pytest.mark.live
def test_the_command_goes_on_as_root_and_first_process_of_empty_namespaces(run: Run) -> None:
    done = run(
        ENTER + "import os, pathlib\n"
        "print(inside(), os.getpid(), os.getuid())\n"
        "print([p.name for p in pathlib.Path('/sys/class/net').iterdir()], os.listdir('/run'))\n"
        "print([p for p in os.listdir('/proc') if p.isdigit()])\n"
        "import socket; print(socket.create_server(('127.0.0.1', 9559)).getsockname())\n"
    )
    assert done.stdout.splitlines() == ["True 1 0", "['lo'] []", "['1']", "('127.0.0.1', 9559)"], done.stderr


@pytest.mark.live
@pytest.mark.parametrize(("works", "found"), [(True, "possible"), (False, "refused")])
def test_the_check_is_right_where_a_library_ends_forked_processes(run: Run, works: bool, found: str) -> None:
    """As gRPC does, whose threads a forked process lacks."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        broken = Path(folder, "ip")
        broken.write_text("#!/bin/sh\necho not here >&2; exit 1\n")
        broken.chmod(0o755)
        done = run(
            f"import os\nos.register_at_fork(after_in_child=os.abort)\nworks = {works}\n"
            f"if not works: os.environ['PATH'] = {folder + ':'!r} + os.environ['PATH']\n"
            "from fanin.testbed.sandbox import SandboxError, check\n"
            "try: check(); print('possible')\n"
            "except SandboxError as error: print('refused', error)\n"
        )
    assert done.stdout.split()[:1] == [found], done.stderr
    assert works or "ip link set lo up: not here" in done.stdout


@pytest.mark.live
@pytest.mark.parametrize("status", [0, 7])
def test_the_exit_status_is_that_of_the_command(run: Run, status: int) -> None:
    done = run(f"{ENTER}import sys; sys.exit({status})")
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.live
def test_a_sandbox_may_be_entered_in_a_sandbox_and_twice(run: Run) -> None:
    done = run(
        f"{ENTER}enter()\n"
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', '''{ENTER}print(1)'''])"
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


@pytest.mark.live
def test_a_command_can_be_reached_from_outside_where_it_asks_to_be(
    command: Command, environment: dict[str, str]
) -> None:
    listens = (
        "from fanin.testbed.sandbox import enter\n"
        "listeners = enter([('127.0.0.1', 0), ('127.0.0.1', 0)])\n"
        "for listener in listeners:\n"
        "    print(listener.getsockname()[1], flush=True)\n"
        "    print(listener.accept()[0].recv(100), flush=True)\n"
    )
    with subprocess.Popen(command(listens), stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for said in (b"from outside", b"again"):
            port = int(process.stdout.readline())
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(said)
            assert process.stdout.readline() == f"{said!r}\n"
        process.communicate(timeout=60 * setting())
    assert process.returncode == 0


@pytest.mark.live
def test_a_port_that_is_taken_is_named(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(f"from fanin.testbed.sandbox import enter; enter([('127.0.0.1', {port})])")
    assert done.stderr.endswith(f"cannot listen on 127.0.0.1:{port}: Address already in use\n")


@pytest.mark.few(4)
@pytest.mark.live
@pytest.mark.parametrize("moment", ["building", "up"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_at_any_moment_leaves_nothing(
    command: Command, environment: dict[str, str], moment: str, sent: signal.Signals
) -> None:
    harness = Path(__file__).with_name("killed.py")
    killed = [sys.executable, str(harness), str(int(sent)), moment, *command(NETWORK)]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)  # as /tmp: nobody may replace what belongs to others
        done = subprocess.run(
            killed,
            capture_output=True,
            text=True,
            timeout=60 * setting(),
            env={**environment, "TMPDIR": folder},
            check=True,
        )
        assert not list(Path(folder).glob("fanin-run-*"))
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["status"] == 128 + sent or report["status"] == -sent
    assert report["left"] == []
    if sent != signal.SIGKILL:
        assert "cleaned" in report["output"]
    if sent != signal.SIGKILL and moment == "up":
        assert "cleaned {'interfaces': [], 'processes': []}" in report["output"]


ENTERED = """
signal.signal(signal.SIGINT, signal.SIG_DFL)
from fanin.testbed.sandbox import enter
try:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    enter()
    print("in", flush=True)
    while True:
        signal.pause()
except KeyboardInterrupt:
    sys.exit(130)
"""
STARTED = """
from fanin.__main__ import main
sys.argv = ["fanin", "up", "--workers", "2", "--leaves", "1", "--spines", "0", "--logs", "/dev/null/no"]
main()
"""


def signalled(script: str, number: int, victim: str, role: int, moment: int) -> dict[str, Any]:
    """Return the outcome of a script that gets a signal at a moment; see signalled.py."""
    harness = Path(__file__).with_name("signalled.py")
    done = subprocess.run(
        [sys.executable, str(harness), script, str(number), victim, str(role), str(moment)],
        capture_output=True,
        text=True,
        timeout=120 * setting(),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture(scope="module")
def moments() -> list[int]:
    """How many moments the supervisor, the process between, and process 1 have until the command is inside."""
    report = signalled(ENTERED, signal.SIGINT, "command", 0, 0)
    assert all(report["moments"])
    counts: list[int] = report["moments"]
    return counts


@pytest.mark.few(6)
@pytest.mark.live
@pytest.mark.parametrize("seed", range(sized(12, 400)))
def test_a_signal_at_any_moment_of_the_way_in_ends_the_command_and_leaves_nothing(
    moments: list[int], seed: int
) -> None:
    draw = random.Random(seed)
    victim = draw.choice(("command", "command", "self"))
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
    number = signal.SIGKILL if victim == "self" else draw.choice(numbers)
    role = draw.choice((0, 0, 1, 2))
    report = signalled(ENTERED, number, victim, role, draw.randint(1, moments[role]))
    assert report["status"] in (128 + number, -number), report
    assert report["left"] == []
    assert "Traceback" not in report["output"]
    assert "ignored" not in report["output"]


@pytest.mark.few(2)
@pytest.mark.live
@pytest.mark.parametrize("seed", range(sized(6, 100)))
def test_a_signal_while_fanin_is_imported_ends_it_at_once_even_where_a_shell_has_it_ignored(
    seed: int,
) -> None:
    draw = random.Random(seed)
    number = draw.choice((signal.SIGINT, signal.SIGTERM))
    ignoring = f"import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n{STARTED}"
    report = signalled(draw.choice((STARTED, ignoring)), number, "command", 0, draw.randint(10, 150))
    assert report["status"] in (128 + number, -number), report
    assert report["left"] == []
    assert "Traceback" not in report["output"]


DROPPED = """
import gc
from fanin.testbed.sandbox import enter, raise_dropped_interrupts

class Destroyed:
    def __del__(self):
        os.kill(1, number)
        for _ in range(1000):  # the handler is called here, and what it raises is dropped
            pass

raise_dropped_interrupts()
number = NUMBER
try:
    enter()
    Destroyed()
    signal.pause()
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_in_a_destructor_ends_the_command(run: Run, number: signal.Signals) -> None:
    done = run("import os, signal, sys\n" + DROPPED.replace("NUMBER", str(int(number))))
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")


@pytest.mark.live
def test_ctrl_c_on_a_terminal_before_process_1_is_there_reaches_it() -> None:
    """The terminal sends it to the processes that there are. The supervisor has to pass it on to later ones."""
    script = ENTERED.replace(
        "    enter()\n",
        """
    forks = os.fork
    def fork():
        os.write(terminal, b"\\3")
        while signal.SIGINT not in signal.sigpending():
            pass
        os.fork = forks
        return forks()
    os.fork = fork
    enter()
""",
    )
    on_terminal = """
import os, pty, signal, sys
main, terminal = pty.openpty()
child = os.fork()
if child == 0:
    os.login_tty(terminal)
    terminal = main
    exec(sys.argv[1])
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", on_terminal, script],
        capture_output=True,
        text=True,
        timeout=60 * setting(),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert done.stdout == "130\n"


@pytest.mark.live
def test_a_run_whose_first_process_ends_before_anybody_sees_its_supervisor_killed_leaves_nothing(
    environment: dict[str, str],
) -> None:
    waits = ENTER + "import signal; print('up', flush=True); signal.pause()"
    with tempfile.TemporaryDirectory() as folder:
        command = subprocess.Popen(
            as_myself(waits), stdout=subprocess.PIPE, text=True, env={**environment, "TMPDIR": folder}
        )
        assert command.stdout is not None
        assert command.stdout.readline() == "up\n"
        between = _only_child(command.pid)
        first = _only_child(between)
        ends = {process: os.pidfd_open(process) for process in (between, first)}
        os.kill(between, signal.SIGSTOP)
        command.kill()
        command.communicate()
        for process in (first, between):
            assert select.select([ends[process]], [], [], 60 * setting())[0], "it does not end"
            if process == first:
                os.kill(between, signal.SIGCONT)
            os.close(ends[process])
        assert not list(Path(folder).iterdir())


def _only_child(process: int) -> int:
    (child,) = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(child)


STUCK = f"""{ENTER}
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""


@pytest.mark.live
def test_a_command_that_does_not_end_in_time_is_killed_which_is_said(
    command: Command, environment: dict[str, str]
) -> None:
    more = {"FANIN_PATIENCE": "0.01"}
    with subprocess.Popen(
        command(STUCK), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment | more
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.terminate()
        _, errors = process.communicate(timeout=60 * setting())
    assert process.returncode == 128 + signal.SIGKILL
    assert errors == (
        "fanin: it did not end within 0.6 s of being asked to, and was killed; nothing is left behind\n"
    )


@pytest.mark.live
def test_the_signal_that_ends_the_main_process_is_named(run: Run) -> None:
    # From its own namespace it gets no signal that it does not handle, but by a fault.
    done = run(ENTER + "import ctypes; ctypes.string_at(0)")
    assert done.returncode == 128 + signal.SIGSEGV
    assert done.stderr.endswith("fanin: its main process was killed by SIGSEGV; nothing is left behind\n"), (
        done.stderr
    )


@pytest.mark.live
def test_what_was_done_before_is_not_done_again(run: Run) -> None:
    done = run(
        "from tempfile import NamedTemporaryFile\n"
        "print('once')\n"
        "file = NamedTemporaryFile()\n" + ENTER + "import pathlib\n"
        "print(pathlib.Path(file.name).exists())\n"
    )
    assert done.stdout.splitlines() == ["once", "True"], done.stderr


@pytest.mark.live
def test_processes_inside_are_known_outside_as_well(environment: dict[str, str]) -> None:
    script = (
        ENTER + "import subprocess\n"
        "from fanin.testbed import runs\n"
        "with subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:\n"
        "    other.stdin.write(b'now it runs\\n')\n"
        "    other.stdin.flush()\n"
        "    other.stdout.readline()\n"
        "    print(runs.scratch(), other.pid, flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        as_myself(script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            folder, other = process.stdout.readline().split()
            found = runs.Run(Path(folder)).process_ids
            assert found.keys() == {1, int(other)}
            assert runs.command_line(found[1]) == runs.command_line(process.pid)
            assert runs.command_line(found[int(other)]) == ("cat",)
            process.communicate("\n")
        finally:
            process.kill()
    assert process.returncode == 0
    assert not Path(folder).exists()


@pytest.mark.live
def test_as_many_files_may_be_open_as_the_hard_limit_allows(run: Run) -> None:
    done = run(
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300))\n" + ENTER + "import subprocess, sys\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)\n"
        "subprocess.run([sys.executable, '-c', 'import os; print(os.sysconf(4))'])\n"
    )
    assert done.stdout.splitlines() == ["(300, 300)", "300"], done.stderr


def test_too_few_open_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (32, 32))
    with pytest.raises(sandbox.SandboxError, match="at most 32 files here, and a network needs 64 or more"):
        sandbox.enter()


@pytest.mark.live
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_cache_that_another_user_could_replace_is_refused_on_the_way_in(
    run: Run, environment: dict[str, str]
) -> None:
    """Inside a user namespace its owner would be unknown."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, 12345, 12345)
        Path(folder).chmod(0o755)
        environment["XDG_CACHE_HOME"] = folder
        done = run(ENTER)
    assert f"{folder}/fanin: others may replace it: " in done.stderr
    assert "belongs to user " in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(("user", "fix"), [(0, "a container needs --privileged"), (1000, "sudo ")])
def test_where_namespaces_are_forbidden_it_says_what_to_type(
    environment: dict[str, str], user: int, fix: str
) -> None:
    forbidden = (
        "import os\n"
        "from fanin.testbed import sandbox\n"
        "def refused(name, *_arguments, **_options):\n"
        "    raise PermissionError(1, 'Operation not permitted', name)\n"
        "sandbox.libc.call = refused\n"
        f"os.geteuid = lambda: {user}\n"
        "sandbox.enter()\n"
    )
    done = subprocess.run(as_myself(forbidden), capture_output=True, text=True, env=environment, check=False)
    assert "(unshare: Operation not permitted)" in done.stderr
    assert fix in done.stderr
    assert done.returncode == 1


@pytest.mark.live
def test_who_is_interrupted_on_the_way_in_goes_on_outside_only(environment: dict[str, str]) -> None:
    interrupted = (
        "from fanin.testbed import sandbox\n"
        "def interrupted():\n"
        "    raise KeyboardInterrupt\n"
        "sandbox._set_up = interrupted\n"
        "try:\n"
        "    sandbox.enter()\n"
        "finally:\n"
        "    print(sandbox.inside())\n"
    )
    done = subprocess.run(
        as_myself(interrupted), capture_output=True, text=True, env=environment, check=False
    )
    assert (done.returncode, done.stdout) == (1, "False\n")
    assert "(KeyboardInterrupt())" in done.stderr


@pytest.mark.live
@pytest.mark.parametrize("step", ["_unshare", "_end_as"])
def test_a_supervisor_that_is_killed_while_it_starts_leaves_no_folder(step: str, tmp_path: Path) -> None:
    """The process between the supervisor and process 1 removes it, at whichever step it is then."""
    script = f"""
import os, signal
from fanin.testbed import sandbox

step, supervisor = sandbox.{step}, os.getpid()

def late(*arguments):
    os.kill(supervisor, signal.SIGKILL)
    while os.getppid() == supervisor:
        pass
    return step(*arguments)

sandbox.{step} = late
sandbox.enter()
"""
    waiting = """
import os, subprocess, sys
from fanin.native import libc

libc.call("prctl", libc.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # all that the command has started becomes our child
print(subprocess.call([sys.executable, "-c", sys.argv[1]]))
try:
    while True:
        os.wait()
except ChildProcessError:
    pass
"""
    done = subprocess.run(
        [sys.executable, "-c", waiting, script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=True,
    )
    assert done.stdout == f"{-signal.SIGKILL}\n"
    assert list(tmp_path.glob("fanin-run-*")) == []
