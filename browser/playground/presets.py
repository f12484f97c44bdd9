"""The programs that the playground offers, each with packets to try it with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fanin
from fanin.classroom.manifest import LabError, labs
from fanin.classroom.work_folder import WorkFolder

_PROGRAMS = Path(__file__).parent / "programs"
_ROOT = Path(fanin.__file__).parent


@dataclass(frozen=True, slots=True)
class Preset:
    """A program to begin with.

    Attributes:
        name: Its name in addresses.
        group: The heading that it is listed under.
        title: What the list shows.
        main: Its file. The other P4 files of its folder belong to it.
        scenario: A file with an STF test, from which entries and packets are taken, or None.
    """

    name: str
    group: str
    title: str
    main: Path
    scenario: Path | None

    def files(self) -> dict[str, str]:
        """Return the texts of the program's files by name."""
        return {path.name: path.read_text() for path in sorted(self.main.parent.glob("*.p4"))}

    def stf(self) -> str:
        """Return the STF test, or an empty text."""
        return self.scenario.read_text() if self.scenario else ""


def presets() -> Iterator[Preset]:
    """Yield the programs that come with fanin: first the one that adds up, then other examples, labs and fanin.p4."""
    adding = _PROGRAMS / "adding" / "adding.p4"
    others = sorted(file for file in _PROGRAMS.glob("*/*.p4") if file != adding)
    for file in [adding, *others]:
        yield Preset(file.stem, "Examples", _title(file), file, file.with_suffix(".stf"))
    for file in sorted((_ROOT / "examples").glob("*/*.p4")):
        yield Preset(file.stem, "Examples", _title(file), file, file.with_suffix(".stf"))
    for lab in labs():
        programs = [name for name in lab.manifest.files if name.endswith(".p4")]
        if programs:
            stf = _PROGRAMS / f"{lab.name}.stf"
            yield Preset(
                f"lab-{lab.name}",
                "Labs",
                f"{lab.name[:2]} {lab.manifest.title}",
                lab.skeleton / programs[0],
                stf if stf.exists() else None,
            )
    yield Preset(
        "fanin",
        "fanin",
        "fanin.p4, which adds up gradients",
        _ROOT / "p4src" / "fanin.p4",
        _PROGRAMS / "fanin.stf",
    )


def _title(program: Path) -> str:
    """Return the beginning of the comment in a program's first line."""
    return re.split(r"[.:*]", program.read_text().removeprefix("/* "), maxsplit=1)[0]


def own_program(path: Path, stf: Path | None) -> Preset:
    """Return a user's program as a preset.

    Args:
        path: The program.
        stf: Its scenario. None: the STF file of the same name in its folder or, in a student's folder, that of the lab.
    """
    beside = path.with_suffix(".stf")
    if stf is None:
        stf = beside if beside.exists() else _of_lab(path.parent)
    return Preset("own", "Yours", path.name, path, stf)


def _of_lab(folder: Path) -> Path | None:
    try:
        stf = _PROGRAMS / f"{WorkFolder(folder).lab.name}.stf"
    except LabError:
        return None
    return stf if stf.exists() else None
