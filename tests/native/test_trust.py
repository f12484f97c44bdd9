"""Who could replace a file by renaming a folder, or by pointing a symbolic link elsewhere."""

import os
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


def test_links_that_never_end(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="too many symbolic links"):
        replaceable(tmp_path / "loop" / "file")
