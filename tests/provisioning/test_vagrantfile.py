"""The Vagrantfile is one that vagrant takes, with what the environment sets."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.skipif(shutil.which("vagrant") is None, reason="vagrant is not installed"),
    pytest.mark.slow,
]


def vagrant(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {
        "VAGRANT_HOME": str(home / "home"),
        "VAGRANT_DOTFILE_PATH": str(home / "dotfile"),
        "VAGRANT_CWD": str(ROOT),
    }
    return subprocess.run(
        ["vagrant", *arguments],
        env=os.environ | own | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    "environment",
    [{}, {"FANIN_BOX": "fanin-debian", "FANIN_DRIVER": "qemu", "FANIN_CPUS": "1", "FANIN_MEMORY": "1024"}],
    ids=["as it is", "set"],
)
def test_vagrant_takes_it(tmp_path: Path, environment: dict[str, str]) -> None:
    done = vagrant(tmp_path, "validate", "--ignore-provider", **environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_size_that_is_no_number_is_refused(tmp_path: Path) -> None:
    done = vagrant(tmp_path, "validate", "--ignore-provider", FANIN_CPUS="many")
    assert done.returncode != 0
    assert "many" in done.stdout + done.stderr
