"""The Vagrantfile is one that vagrant takes, with what the environment sets; and the machine gets the whole tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

needs_vagrant = pytest.mark.skipif(shutil.which("vagrant") is None, reason="vagrant is not installed")


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


@needs_vagrant
@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [{}, {"FANIN_BOX": "fanin-debian", "FANIN_DRIVER": "qemu", "FANIN_CPUS": "1", "FANIN_MEMORY": "1024"}],
    ids=["as it is", "set"],
)
def test_vagrant_takes_it(tmp_path: Path, environment: dict[str, str]) -> None:
    done = vagrant(tmp_path, "validate", "--ignore-provider", **environment)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_vagrant
@pytest.mark.slow
def test_a_size_that_is_no_number_is_refused(tmp_path: Path) -> None:
    done = vagrant(tmp_path, "validate", "--ignore-provider", FANIN_CPUS="many")
    assert done.returncode != 0
    assert "many" in done.stdout + done.stderr


def test_the_machine_gets_every_file_of_the_tree() -> None:
    (listed,) = re.findall(r"rsync__exclude: \[(.*)\]", (ROOT / "Vagrantfile").read_text())
    excluded = re.findall(r'"(.*?)"', listed)
    # To rsync a pattern that does not begin with a slash means files and folders of this name everywhere.
    assert excluded
    assert not [pattern for pattern in excluded if not re.fullmatch(r"/[^/]+/", pattern)]
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not [file for file in tracked.splitlines() if f"/{file.partition('/')[0]}/" in excluded]
