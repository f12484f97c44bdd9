"""Saves are noticed by the times of the files."""

from __future__ import annotations

import os
from pathlib import Path

from fanin.classroom.watch import saves


def test_each_save_is_yielded_once_also_one_that_came_in_between(tmp_path: Path) -> None:
    for name in ("a.p4", "b.py", "c.txt"):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, ns=(1, 1))
    found = saves(tmp_path, ["a.p4", "b.py"], poll=0)
    assert next(found) is None
    os.utime(tmp_path / "c.txt", ns=(2, 2))  # not a file of the lab
    os.utime(tmp_path / "b.py", ns=(2, 2))
    assert next(found) == "b.py"
    os.utime(tmp_path / "a.p4", ns=(1, 5))
    assert next(found) == "a.p4"


def test_an_editor_may_replace_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.p4").write_text("")
    found = saves(tmp_path, ["a.p4"], poll=0)
    next(found)
    (tmp_path / "new").write_text("x")
    os.utime(tmp_path / "new", ns=(7, 7))
    (tmp_path / "new").rename(tmp_path / "a.p4")
    assert next(found) == "a.p4"
