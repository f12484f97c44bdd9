"""Changed C: a library in which one text of one file is another."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class Mutant(NamedTuple):
    """A text of a C file that is replaced, and a seed of random flows that shows it."""

    file: str
    old: str
    new: str
    seed: int = 0


def library_with(
    mutant: Mutant, folder: Path, library: Callable[[Path], ctypes.CDLL], place: Path
) -> ctypes.CDLL:
    """Return the library of the C in a folder with a mutant, made below `place`."""
    changed = shutil.copytree(folder, place / "changed")
    text = (changed / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    (changed / mutant.file).write_text(text.replace(mutant.old, mutant.new))
    return library(changed)
