"""`fanin clean` removes what killed runs have left, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from topologies import runs

DIES_AFTER = (
    "from topologies import runs; run = runs.create(); (run.folder / 'file').touch(); print(run.folder)"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where temporary files go."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def clean(fanin, folder):
    done = fanin("clean", TMPDIR=str(folder))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_machine_without_leftovers(fanin, folder):
    assert clean(fanin, folder) == "Nothing is left of earlier runs.\n"


def test_a_killed_run_loses_its_folder_and_its_processes(fanin, folder):
    done = subprocess.run(
        [sys.executable, "-c", DIES_AFTER],
        env=os.environ | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    left = done.stdout.strip()
    assert list(folder.iterdir())
    with (
        subprocess.Popen(["sleep", "1000"], env=os.environ | {runs.VARIABLE: left}) as stray,
        subprocess.Popen(["sleep", "1000"]) as stranger,
    ):
        said = clean(fanin, folder)
        assert stray.wait(10) == -9
        assert stranger.poll() is None
        stranger.kill()
    assert left in said
    assert not list(folder.iterdir())


def test_a_run_that_goes_on_stays(fanin, folder):
    run = runs.create()
    with subprocess.Popen(["sleep", "1000"], env=os.environ | {runs.VARIABLE: str(run.folder)}) as member:
        said = clean(fanin, folder)
        assert f"process {os.getpid()}" in said
        assert run.folder.is_dir()
        assert member.poll() is None
        assert run.processes == [member.pid]
        member.kill()
