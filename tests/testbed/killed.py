"""Sends a signal to a command when it prints a line, waits for all that came of it, and reports what is left.

    killed.py SIGNAL LINE COMMAND…

Prints JSON: the command's exit status as a parent sees it, its output, and the interfaces and processes that were
not there before.
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def present() -> set[str]:
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    processes = [f"process {d.name}" for d in Path("/proc").iterdir() if d.name.isdigit() and ours(d)]
    return {*(line.split()[0] for line in links.splitlines()), *processes}


def ours(process: Path) -> bool:
    """Return whether a process has descended from this one's environment."""
    try:
        return f"KILLED_BY={os.getpid()}".encode() in (process / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False


ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # whoever loses its parent becomes a child of ours
before = present()
command = subprocess.Popen(
    sys.argv[3:],
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    text=True,
    env={**os.environ, "KILLED_BY": str(os.getpid())},
)
assert command.stdout is not None
output = ""
for line in command.stdout:
    output += line
    if line.strip() == sys.argv[2]:
        command.send_signal(int(sys.argv[1]))
        output += command.stdout.read()
status = command.wait()
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
print(json.dumps({"status": status, "output": output, "left": sorted(present() - before)}))
