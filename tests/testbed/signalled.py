"""Runs a script, sends a signal at one of the moments that its processes pass, and reports what became of it.

    signalled.py SCRIPT SIGNAL VICTIM ROLE MOMENT

A moment is a line of fanin's own files that a process passes; the script's process has the role 0, what that forks the
role 1, and so on. VICTIM is "command", for the script's process, or "self", for the one that passes the line. With the
moment 0 no signal is sent. Prints JSON: the exit status as a parent sees it, the output, how many moments each role
had until the script printed "in", and what is left in the temporary folder.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

from fanin.native import libc

# In the new namespace of processes the command has no number, so that the harness sends the signal, and confirms it.
TRACED = """
import os, signal, sys
_log, _ask, _confirm, _number, _victim, _role, _moment = (
    sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5], *map(int, sys.argv[6:8])
)
_process, _seen, _which = os.getpid(), 0, 0
_FILES = ("fanin/__main__.py", "fanin/cli.py", "running/up.py", "testbed/sandbox.py", "testbed/runs.py")

def _line(frame, event, argument):
    global _process, _seen, _which
    if event != "line":
        return _line
    if os.getpid() != _process:
        _process, _seen, _which = os.getpid(), 0, _which + 1
    _seen += 1
    with open(_log, "a") as log:
        log.write(str(_which))
    if (_which, _seen) == (_role, _moment):
        if _victim == "self":
            if os.getpid() == 1:  # gets no signals from inside
                os.write(_ask, b"1")
                os.read(_confirm, 1)
            os.kill(os.getpid(), _number)
        elif _which == 0:
            os.kill(os.getpid(), _number)
        elif _which == 1:
            os.kill(os.getppid(), _number)
        else:
            os.write(_ask, b"0")
            os.read(_confirm, 1)
    return _line

def _call(frame, event, argument):
    return _line if frame.f_code.co_filename.endswith(_FILES) else None

sys.settrace(_call)
sys.argv[1:] = []
"""


def main() -> None:
    script, number, victim, role, moment = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
    libc.call(
        "prctl", libc.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0
    )  # whoever loses its parent becomes a child of ours
    with tempfile.TemporaryDirectory() as folder:
        log, temporary = Path(folder, "log"), Path(folder, "tmp")
        temporary.mkdir()
        asked, ask = os.pipe()
        confirmed, confirm = os.pipe()
        traced = [sys.executable, "-c", TRACED + script, str(log), str(ask), str(confirmed)]
        command = subprocess.Popen(
            [*traced, str(number), victim, role, moment],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[ask, confirmed],
            env={**os.environ, "TMPDIR": str(temporary)},
        )
        os.close(ask)
        assert command.stdout is not None
        output, came, moments = b"", False, ""
        while True:
            ready, _, _ = select.select([command.stdout, *([asked] if asked >= 0 else [])], [], [])
            if asked in ready:
                if whose := os.read(asked, 1):
                    came = True
                    os.kill(_first(command.pid) if whose == b"1" else command.pid, number)
                    os.write(confirm, b".")
                else:
                    os.close(asked)
                    asked = -1
            if command.stdout in ready:
                if not (more := os.read(command.stdout.fileno(), 1 << 16)):
                    break
                output += more
                if b"in\n" in output and not moments:
                    moments = log.read_text()
                    if moment == "0" or not came:  # passed by now, or never
                        command.send_signal(number)
        status = command.wait()
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
        left = sorted(path.name for path in temporary.iterdir())
    counts = [moments.count(str(role)) for role in range(3)]
    print(json.dumps({"status": status, "output": output.decode(), "moments": counts, "left": left}))


def _first(command: int) -> int:
    """The first process inside."""
    for _ in range(2):
        (command,) = map(int, Path(f"/proc/{command}/task/{command}/children").read_text().split())
    return command


main()
