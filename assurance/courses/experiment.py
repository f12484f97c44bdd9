"""One run of a course's exercise, and what it has to show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_SECONDS = 300.0  # for one run, which takes 10 to 40 on a quiet machine
_SCRIPT = """
ip link set lo up
empty=$1 place=$2 command=$3
shift 3
mount -t tmpfs tmpfs "$empty"
for needed; do
    case $needed in
    /tmp/*)
        mkdir -p "$empty${needed#/tmp}"
        mount --rbind "$needed" "$empty${needed#/tmp}"
        ;;
    esac
done
mount --rbind "$empty" /tmp
cd "$place"
set +e
eval "$command"
"""


@dataclass(slots=True)
class ExperimentOutcome:
    """ExperimentOutcome of one run: its output, and how that differs from the README."""

    output: str
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "as in its README" if not self.differences else "differs: " + ", ".join(self.differences)


def judge(output: str, wanted: Iterable[str], unwanted: Iterable[str] = ()) -> ExperimentOutcome:
    """Compare an output with the patterns that it must have, and those that it must not have."""
    missing = [f"no `{pattern}`" for pattern in wanted if not re.search(pattern, output)]
    return ExperimentOutcome(
        output, missing + [f"`{pattern}`" for pattern in unwanted if re.search(pattern, output)]
    )


def run_inside(course: Path, copied: Path, place: Path, command: str, typed: str) -> str:
    """Run a command in new namespaces, with the course's commands. Return its output.

    It has a /tmp of its own, because Mininet removes what other programs may have there.

    Args:
        course: The folder that `fanin course` has made.
        copied: A copy of what the command needs of the checkout.
        place: The folder in it to run the command in.
        command: The command, for a shell.
        typed: Its standard input.
    """
    environment: dict[str, str] = os.environ | {
        "PATH": f"{course / 'bin'}:{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "TERM": "dumb",
    }
    environment.pop("TMPDIR", None)
    needed = (course, copied, Path(sys.prefix), Path(__file__).resolve().parents[2])
    enter = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
    ]
    if os.geteuid() != 0:
        enter += ["--user", "--map-root-user"]
    with tempfile.TemporaryDirectory() as empty:
        started = subprocess.Popen(
            [*enter, "--mount-proc", "sh", "-ec", _SCRIPT, "sh", empty, place, command, *needed],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            return started.communicate(typed, timeout=_SECONDS)[0]
        except subprocess.TimeoutExpired:
            started.kill()  # and with it everything in its namespaces
            return started.communicate()[0] + f"\nended after {_SECONDS:.0f} s\n"
