"""Copies of p4src/ that differ from it."""

from __future__ import annotations

import shutil
from pathlib import Path

from fanin.controller.requirements import PROGRAM


def copy_of_p4src(folder: Path, *changes: tuple[str, str, str]) -> Path:
    """A copy in `folder`; changes: (file, text, what takes its place). The path of its fanin.p4."""
    shutil.copytree(PROGRAM.parent, folder, dirs_exist_ok=True)
    for name, before, after in changes:
        text = (folder / name).read_text()
        assert before in text, f"{name} has no {before!r}"
        (folder / name).write_text(text.replace(before, after))
    return folder / PROGRAM.name
