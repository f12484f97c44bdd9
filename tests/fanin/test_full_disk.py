"""On a full disk a verb names the file and the cause, and leaves no process and no half of a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fanin.command import ROOT, RUN

pytestmark = pytest.mark.live

_SCENARIO = "scenarios/small-virtual.toml"


def on_small_disk(folder: Path, kibibytes: int, *words: str) -> tuple[int, str, list[str]]:
    """Exit status, standard error and the files in `folder`, where so small a file system is mounted for the verb."""
    mount = f"mount -t tmpfs -o size={kibibytes}k small {folder}"
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    script = f'{mount} && "$@"; status=$?; ls -A {folder} > {folder}.files; exit $status'
    verb = [sys.executable, "-c", RUN, *words]
    done = subprocess.run(
        [*unshare, "sh", "-c", script, "sh", *verb], capture_output=True, text=True, check=False, cwd=ROOT
    )
    return done.returncode, done.stderr, folder.with_suffix(".files").read_text().split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    return folder


@pytest.mark.few(0)
def test_results(folder: Path) -> None:
    status, said, _ = on_small_disk(folder, 4, "run", _SCENARIO, "--results", str(folder))
    assert status == 1
    assert said.endswith(f"fanin: cannot write {folder}/points.jsonl: No space left on device\n")


@pytest.mark.few(0)
def test_results_at_the_end(folder: Path) -> None:
    status, said, files = on_small_disk(folder, 96, "run", _SCENARIO, "--results", str(folder))
    assert status == 1
    name = said.rstrip().removesuffix(": No space left on device").rpartition("/")[2]
    assert name not in files
    assert f"fanin: cannot write {folder}/{name}: No space left on device\n" in said
    assert not [file for file in files if file.startswith(".")]


def test_logs_of_switches(folder: Path) -> None:
    status, said, _ = on_small_disk(folder, 4, "up", "--logs", str(folder))
    log = folder / "leaf2.log"
    assert (status, said) == (
        1,
        f"fanin up: leaf2 does not start: [Errno 28] No space left on device: '{log}'\n",
    )
