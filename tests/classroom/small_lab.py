"""The lab that `fanin lab new` makes: one P4 program, one Python file, three tests."""

from __future__ import annotations

import shutil
from pathlib import Path

from fanin.classroom.manifest import Lab, load_lab
from fanin.verbs.new import TEMPLATES

FILES = ("program.p4", "controller.py")


def small_lab(folder: Path) -> Lab:
    """Make it in this folder."""
    shutil.copytree(TEMPLATES.with_name("lab"), folder)
    return load_lab(folder)


def changed(lab: Lab, folder: Path, file: str, text: str, by: str) -> Path:
    """A copy of its solution with one text replaced."""
    shutil.copytree(lab.solution, folder)
    found = (folder / file).read_text()
    assert found.count(text) == 1, text
    (folder / file).write_text(found.replace(text, by))
    return folder
