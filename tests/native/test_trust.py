"""The users who could replace a file by renaming a folder, or by pointing a symbolic link elsewhere."""

import grp
import os
import pwd
from pathlib import Path

import pytest

from fanin.native.trust import replaceable

STRANGER = 12345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")


def test_a_file_that_only_its_user_can_replace(tmp_path: Path) -> None:
    assert replaceable(tmp_path / "file") is None


@as_root
def test_a_folder_of_another_user_on_the_way(tmp_path: Path) -> None:
    folder = tmp_path / "theirs" / "ours"
    folder.mkdir(parents=True)
    os.chown(folder.parent, STRANGER, STRANGER)
    assert replaceable(folder) == f"{folder.parent} belongs to user {STRANGER}"
    assert replaceable(folder / "file") == f"{folder.parent} belongs to user {STRANGER}"


@as_root
def test_the_user_who_became_root_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(tmp_path, STRANGER, STRANGER)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    assert replaceable(tmp_path / "file") is None


@as_root
def test_a_symbolic_link_of_another_user_on_the_way(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "ours").mkdir()
    link = tmp_path / "link"
    link.symlink_to("ours")
    assert replaceable(link / "file") is None
    os.lchown(link, STRANGER, STRANGER)
    assert replaceable(link) == f"{link} belongs to user {STRANGER}"
    assert replaceable(link / "file") == f"{link} belongs to user {STRANGER}"


def test_links_are_followed_to_where_they_lead(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (tmp_path / "second").symlink_to(shared / "inner")
    (shared / "inner").mkdir()
    (tmp_path / "first").symlink_to(Path("..", tmp_path.name, "second"))
    assert replaceable(tmp_path / "first" / "file") is None
    shared.chmod(0o777)
    assert replaceable(tmp_path / "first" / "file") == f"{shared} is writable by all"


def group_of_two(monkeypatch: pytest.MonkeyPatch, other: pwd.struct_passwd, members: list[str]) -> None:
    us = pwd.struct_passwd(("us", "x", os.geteuid(), os.getegid(), "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwall", lambda: [us, other])
    monkeypatch.setattr(grp, "getgrgid", lambda gid: grp.struct_group(("class", "x", gid, ["us", *members])))


def user(gid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd(("ann", "x", STRANGER, gid, "", "/", "/bin/sh"))


@pytest.mark.parametrize(("gid", "members"), [(os.getegid(), []), (STRANGER, ["ann"])])
def test_a_folder_that_another_user_may_write_to_as_a_member_of_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gid: int, members: list[str]
) -> None:
    group_of_two(monkeypatch, user(gid), members)
    assert replaceable(tmp_path / "file") is None
    tmp_path.chmod(0o770)
    assert replaceable(tmp_path / "file") == f"{tmp_path} is writable by group class, and ann belongs to it"
    tmp_path.chmod(0o1770)
    assert replaceable(tmp_path / "file") is None


def test_a_folder_that_a_group_without_other_users_may_write_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As distributions do that give each user a group and the umask 002."""
    group_of_two(monkeypatch, user(STRANGER), [])
    tmp_path.chmod(0o775)
    assert replaceable(tmp_path / "file") is None


def test_links_that_never_end(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="too many symbolic links"):
        replaceable(tmp_path / "loop" / "file")
