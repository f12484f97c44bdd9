"""Folders of runs lie among those of other users: what another user puts there is no run of ours."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fanin.testbed import runs
from fanin.testbed.running import running_networks

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder as /tmp is."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that has nothing to do with runs."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def identity(process: int) -> str:
    stat = Path(f"/proc/{process}/stat").read_text()
    return f"{process}-{stat.rpartition(')')[2].split()[19]}"


def name(ending: str) -> str:
    return f"fanin-run-{Path('/proc/self/ns/pid').stat().st_ino}-{ending}"


def the_next_command() -> None:
    """Do what each command does first."""
    runs.create().remove()


def test_a_dead_run_loses_its_first_process(shared: Path, victim: subprocess.Popen[bytes]) -> None:
    """Without which the tests below would show nothing."""
    folder = shared / name("1-1")
    folder.mkdir(mode=0o700)
    (folder / "first").write_text(identity(victim.pid))
    the_next_command()
    assert victim.wait(60) == -9


@pytest.mark.parametrize("where", ["folder", "file"])
def test_a_symbolic_link_ends_no_process(shared: Path, victim: subprocess.Popen[bytes], where: str) -> None:
    elsewhere = shared / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (elsewhere / "first").write_text(identity(victim.pid))
    if where == "folder":
        (shared / name("1-1")).symlink_to(elsewhere)
    else:
        (shared / name("1-1")).mkdir(mode=0o700)
        (shared / name("1-1") / "first").symlink_to(elsewhere / "first")
    the_next_command()
    assert victim.poll() is None
    assert (elsewhere / "first").exists()


@as_root
@pytest.mark.parametrize("whose", ["folder", "file"])
def test_what_belongs_to_another_user_ends_no_process(
    shared: Path, victim: subprocess.Popen[bytes], whose: str
) -> None:
    folder = shared / name("1-1")
    folder.mkdir(mode=0o700)
    (folder / "first").write_text(identity(victim.pid))
    os.chown(folder if whose == "folder" else folder / "first", 12345, 12345)
    the_next_command()
    assert victim.poll() is None


def test_a_folder_that_others_may_write_to_ends_no_process(
    shared: Path, victim: subprocess.Popen[bytes]
) -> None:
    folder = shared / name("1-1")
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "first").write_text(identity(victim.pid))
    the_next_command()
    assert victim.poll() is None


def test_a_pipe_makes_nobody_wait(shared: Path) -> None:
    (shared / name("1-1")).mkdir(mode=0o700)
    os.mkfifo(shared / name("1-1") / "first")
    the_next_command()
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize("ending", ["x-y", "1-1-1", "-", "1-", "1-1\n", "٣-1", "1-1.json"])
def test_other_names_are_no_runs(shared: Path, ending: str) -> None:
    (shared / name(ending)).mkdir(mode=0o700)
    assert runs.all_runs() == []
    assert running_networks() == []
    the_next_command()
    assert [path.name for path in shared.iterdir()] == [name(ending)]


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Nothing more can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("shared")
def test_a_run_is_not_taken_for_dead_where_that_cannot_be_found_out() -> None:
    run = runs.create()
    with without_descriptors(), pytest.raises(OSError, match="Too many open files"):
        assert run.alive
    with without_descriptors(), pytest.raises(OSError, match="Too many open files"):
        runs.all_runs()
    assert run.alive
    run.remove()


def test_a_network_is_not_read_from_a_symbolic_link(shared: Path, tmp_path: Path) -> None:
    folder = shared / name(identity(os.getpid()))
    folder.mkdir(mode=0o700)
    (folder / "network.json").write_text('{"switches": {}, "hosts": {}}')
    assert [network.run.folder for network in running_networks()] == [folder]
    (folder / "network.json").rename(tmp_path / "network.json")
    (folder / "network.json").symlink_to(tmp_path / "network.json")
    assert running_networks() == []


def test_a_temporary_folder_whose_files_others_can_replace_is_refused(shared: Path) -> None:
    shared.chmod(0o777)
    with pytest.raises(runs.RunError, match=f"{shared}: .* is writable by all; set TMPDIR"):
        runs.create()


def test_a_name_that_somebody_has_taken_is_reported(shared: Path) -> None:
    (shared / name(identity(os.getpid()))).touch()
    with pytest.raises(runs.RunError, match="File exists; set TMPDIR to a folder of yours"):
        runs.create()
