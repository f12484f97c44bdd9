"""The environment for courses, without what pip installs into it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import thrift
from typer.testing import CliRunner

from fanin.bmv2_commands import course
from fanin.bmv2_commands.course import CourseError, missing_programs, set_up
from fanin.bmv2_commands.install import COMMANDS
from fanin.cli import app


@pytest.fixture
def without_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """Make an environment without pip, and with a Mininet. Return what would have been run in it."""
    ran: list[list[str]] = []
    mininet = tmp_path / "dist-packages/mininet"
    mininet.mkdir(parents=True)
    (mininet / "net.py").touch()
    monkeypatch.setattr(course, "_DIST_PACKAGES", str(mininet.parent))
    plain = course._run

    def run(command: list[str]) -> None:
        ran.append(command)
        if command[1:3] == ["-m", "venv"]:
            plain([*command[:3], "--without-pip", *command[3:]])

    monkeypatch.setattr(course, "_run", run)
    return ran


def test_the_folder_has_packages_modules_and_commands(without_index: list[list[str]], tmp_path: Path) -> None:
    folder = tmp_path / "course"
    for _ in range(2):  # the second call completes what is there
        set_up(folder)
    assert {"scapy", "ptf", "thrift", "networkx", "ipython"} <= set(without_index[1])
    assert without_index[2][-2:] == ["--no-deps", "p4runtime-shell"]
    script = "import bmpy_utils, mininet.net, sys; print(sys.prefix, mininet.__path__)"
    packages = Path(thrift.__file__).parents[1]
    done = subprocess.run(
        [folder / "bin/python3", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(packages)},
    )
    assert done.stdout.startswith(str(folder))
    assert str(folder) in done.stdout.partition(" ")[2]
    for command in COMMANDS:
        assert os.access(folder / "bin" / command, os.X_OK)


@pytest.mark.usefixtures("without_index")
def test_the_command_says_what_to_put_into_path(tmp_path: Path) -> None:
    folder = tmp_path / "course"
    done = CliRunner().invoke(app, ["course", str(folder)])
    assert done.exit_code == 0, done.output
    assert f"export PATH={folder / 'bin'}:$PATH" in done.output
    assert os.access(folder / "bin/p4c", os.X_OK)


@pytest.mark.usefixtures("without_index")
def test_what_sudo_starts_finds_the_commands(tmp_path: Path) -> None:
    folder = tmp_path / "course"
    set_up(folder)
    # A machine's sudo that fails, as it does in a user namespace, or asks for a password.
    real = tmp_path / "sudo"
    real.write_text("#!/bin/sh\necho only root may do this >&2\nexit 1\n")
    real.chmod(0o755)
    script = (folder / "bin/sudo").read_text()
    script = script.replace("/usr/bin/sudo /usr/local/bin/sudo /bin/sudo", str(real))
    (folder / "bin/sudo").write_text(script)
    environment = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sudo", "sh", "-c", "command -v p4c; echo $X"],
        capture_output=True,
        text=True,
        check=False,
        env=environment | {"X": "kept"},
        executable=folder / "bin/sudo",
    )
    if os.geteuid() == 0:
        assert done.stdout.split() == [str(folder / "bin/p4c"), "kept"]
    else:
        assert (done.returncode, done.stderr) == (1, "only root may do this\n")


def test_without_mininet_the_cure_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(course, "_DIST_PACKAGES", str(tmp_path))
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(CourseError, match="sudo apt-get install mininet"):
        set_up(tmp_path / "course")
    assert not (tmp_path / "course").exists()


def test_what_pip_says_is_passed_on() -> None:
    with pytest.raises(CourseError, match="No module named not_there"):
        course._run([sys.executable, "-m", "not_there"])


def test_missing_programs_are_named_with_their_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ping").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = missing_programs()
    assert "ping" not in missing
    assert (missing["brctl"], missing["mn"]) == ("bridge-utils", "mininet")


def test_an_interrupted_command_ends_with_its_children_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int | None] = []

    class Interrupted(subprocess.Popen[str]):
        def communicate(self, *_: object, **__: object) -> tuple[str, str]:
            assert self.stdout is not None
            assert self.stdout.readline() == "started\n"
            raise KeyboardInterrupt

        def __exit__(self, *error: Any) -> None:
            super().__exit__(*error)
            ended.append(self.returncode)

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        course._run(["sh", "-c", "touch $TMPDIR/of-pip; echo started; sleep 1000; :"])
    assert ended == [-signal.SIGKILL]
    assert not list(tmp_path.iterdir())
