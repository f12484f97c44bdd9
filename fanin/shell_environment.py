"""The virtual environment of p4runtime-shell, which needs an older protobuf than fanin."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(sys.prefix).with_name(".venv-p4runtime-shell")
PYTHON = FOLDER / "bin" / "python"
# The stubs of the package p4runtime need a protobuf of the 3.20 series; pip would take a newer one.
PACKAGES = ("p4runtime-shell==0.0.6", "protobuf==3.20.3")


class SetUpError(RuntimeError):
    """p4runtime-shell cannot be installed; the message holds what was said."""


def set_up() -> None:
    """Makes the environment, unless it is there; needs the package index.

    Raises:
        SetUpError: it cannot be installed, with what pip says.
    """
    if PYTHON.exists():
        return
    try:
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(FOLDER)],
            [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SetUpError(
                    f"p4runtime-shell cannot be installed:\n{(done.stderr or done.stdout).strip()}"
                )
    except BaseException:  # half of an environment would be taken for one
        shutil.rmtree(FOLDER, ignore_errors=True)
        raise
