"""The folder of commands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fanin.bmv2_commands.install import COMMANDS, ForeignCommandError, install


@pytest.mark.slow
def test_every_command_runs_with_nothing_in_path(tmp_path):
    paths = list(install(tmp_path / "commands"))
    assert [path.name for path in paths] == list(COMMANDS)
    for path in paths:
        done = subprocess.run([path, "--help"], capture_output=True, text=True, check=True, env={}, cwd="/")
        assert "usage" in done.stdout


def test_a_file_of_the_folder_is_not_imported(tmp_path):
    install(tmp_path)
    (tmp_path / "socket.py").write_text("raise SystemExit('imported')")
    subprocess.run([tmp_path / "p4c", "--help"], capture_output=True, check=True, cwd=tmp_path)


def test_a_second_call_replaces_the_first_one_s_commands(tmp_path):
    install(tmp_path)
    (tmp_path / "p4c").write_text((tmp_path / "p4c").read_text().replace("/python", "/gone"))
    install(tmp_path)
    subprocess.run([tmp_path / "p4c", "--help"], capture_output=True, check=True)


def test_a_real_p4c_is_never_replaced(tmp_path):
    (tmp_path / "p4c").write_bytes(b"\x7fELF\xff")
    with pytest.raises(ForeignCommandError, match=str(tmp_path / "p4c")):
        install(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["p4c"]
    assert (tmp_path / "p4c").read_bytes() == b"\x7fELF\xff"


def test_a_command_may_be_a_link(tmp_path):
    install(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/p4c").symlink_to(tmp_path / "a/p4c")
    install(tmp_path / "b")
    assert not (tmp_path / "b/p4c").is_symlink()
    assert Path(tmp_path / "a/p4c").is_file()
