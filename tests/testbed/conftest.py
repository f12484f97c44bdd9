"""Running a script as root or as nobody; `in_sandbox` can be imported there."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from fanin.testbed.patience import setting

HERE = Path(__file__).parent
NOBODY = 65534

Command = Callable[[str], list[str]]
Run = Callable[[str], subprocess.CompletedProcess[str]]


def as_myself(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def require_readable() -> None:
    """Skip a test in which an ordinary user runs this clone, if root has it where others may not read."""
    reading = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "test", "-r", __file__]
    if os.getuid() == 0 and subprocess.run(reading, check=False).returncode:
        pytest.skip("other users may not read this clone, such as one below /root")


def as_nobody(script: str) -> list[str]:
    """As an ordinary user: ourselves if we are one, else nobody, with a Python that nobody may run."""
    if os.getuid() != 0:
        return as_myself(script)
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    require_readable()
    system_python = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    runs_itself = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    for python in (sys.executable, system_python):
        if (
            python
            and subprocess.run([*become, python, "-c", runs_itself], capture_output=True).returncode == 0
        ):
            return [*become, python, "-c", script]
    pytest.skip("nobody may run no Python of this version here")


@pytest.fixture(params=[as_myself, as_nobody], ids=["root", "nobody"])
def command(request: pytest.FixtureRequest) -> Command:
    """The command line that runs a script."""
    chosen: Command = request.param
    return chosen


@pytest.fixture
def environment() -> dict[str, str]:
    paths = [str(HERE.parents[1]), str(HERE), sysconfig.get_path("purelib")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture
def run(command: Command, environment: dict[str, str]) -> Run:
    """Runs a script in a process of its own."""

    def run(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(script),
            capture_output=True,
            text=True,
            timeout=60 * setting(),
            env=environment,
            check=False,
        )

    return run
