"""`fanin clean` removes what killed runs have left, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fanin.native.toolchain import INCLUDE, compile_text
from fanin.testbed import runs

DIES_AFTER = (
    "from fanin.testbed import runs; run = runs.create(); (run.folder / 'file').touch(); print(run.folder)"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where temporary files go."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def clean(fanin, folder, *options):
    done = fanin("clean", *options, TMPDIR=str(folder), XDG_CACHE_HOME=str(folder.parent / "cache"))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_machine_without_leftovers(fanin, folder):
    assert clean(fanin, folder) == "Earlier runs left nothing behind.\n"


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
    (run.folder / "first").write_text(f"{os.getpid()}-1")  # who had our number before us
    with subprocess.Popen(["sleep", "1000"], env=os.environ | {runs.VARIABLE: str(run.folder)}) as member:
        said = clean(fanin, folder)
        assert f"process {os.getpid()}" in said
        assert run.folder.is_dir()
        assert member.poll() is None
        assert run.processes == [member.pid]
        member.kill()


def test_the_cache_is_told_of_and_emptied_when_asked(fanin, folder, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent / "cache"))
    library = compile_text("program", b"", lambda: "int x;", INCLUDE)
    cache = library.parent
    environment, image = cache / "p4runtime-shell-0123456789abcdef", cache / "vm"
    for other in (environment, image):
        other.mkdir()
    said = clean(fanin, folder)
    assert f"{cache} holds 1 compiled programs, " in said
    assert "Beyond 250 MB" in said
    assert library.exists()
    said = clean(fanin, folder, "--cache")
    assert "removed 1 compiled programs, " in said
    assert f"removed {environment}\n" in said
    assert not library.exists()
    assert not environment.exists()
    assert image.is_dir()
    assert "compiled programs" not in clean(fanin, folder)
