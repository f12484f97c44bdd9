"""A student's folder: the files of a lab, and how many hints were given."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fanin.classroom.manifest import Hint, Lab, LabError, find_lab

STATE = ".fanin-lab.json"
_NOT_THEIRS = shutil.ignore_patterns("__pycache__")  # pip compiles the files of a wheel


@dataclass(slots=True)
class Progress:
    """The state that a student's folder keeps.

    Attributes:
        lab: The name of the lab, or the path of its folder if it is not one of fanin's.
        failed: The test that failed first in the last check, or None.
        broken: It failed because a file is missing, does not compile or raises an error, so that no hint helps.
        hints: How many hints were given for each test.
    """

    lab: str
    failed: str | None = None
    broken: bool = False
    hints: dict[str, int] = field(default_factory=dict)


class WorkFolder:
    """A student's folder.

    Raises:
        LabError: No lab was started there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        try:
            self._progress = TypeAdapter(Progress).validate_json((folder / STATE).read_bytes())
        except FileNotFoundError:
            raise LabError(
                f"{folder}: no lab was started here; type: fanin lab start NAME, then cd to its folder"
            ) from None
        except (OSError, ValidationError) as error:
            raise LabError(
                f"{folder / STATE}: cannot be read: {error}; start the lab again elsewhere"
            ) from None
        self.lab = find_lab(self._progress.lab)

    def remember(self, failed: str | None, *, broken: bool = False) -> None:
        """Remember which test failed first, None if all passed, and whether because of a file that is broken."""
        self._progress.failed, self._progress.broken = failed, broken
        self._write()

    def hint(self, *, further: bool) -> tuple[Hint, int] | None:
        """Return the hints for the test that failed first, and how many of them are given.

        Args:
            further: Give one more.

        Raises:
            LabError: No check has failed yet, or because of a file that is broken.
        """
        failed = self._progress.failed
        if failed is None:
            raise LabError("no test has failed; type: fanin lab check")
        if self._progress.broken:
            raise LabError("first repair what fanin lab check has reported, and check again")
        found = self.lab.hint(failed)
        if found is None:
            return None
        given = self._progress.hints.get(failed, 0) + further
        self._progress.hints[failed] = max(1, min(given, len(found.stages)))
        self._write()
        return found, self._progress.hints[failed]

    def add_solution(self) -> Path:
        """Copy the solution into a folder of its own next to the student's files, and return that folder.

        Raises:
            LabError: The folder cannot be written.
        """
        target = self.folder / "solution"
        try:
            shutil.copytree(self.lab.solution, target, ignore=_NOT_THEIRS, dirs_exist_ok=True)
        except OSError as error:
            raise LabError(f"{target} cannot be written: {error.strerror or error.args[0][0][2]}") from None
        return target

    def _write(self) -> None:
        (self.folder / STATE).write_bytes(TypeAdapter(Progress).dump_json(self._progress, indent=2))


def start(lab: Lab, folder: Path, name: str) -> None:
    """Make a folder with the skeleton and the README of a lab.

    Args:
        lab: The lab.
        folder: The folder, which must not exist.
        name: What the student called the lab, which finds it again.

    Raises:
        LabError: The folder exists or cannot be made.
    """
    copy_folder(lab.skeleton, folder, another=f"fanin lab start {name} DIR")
    try:
        shutil.copyfile(lab.folder / "README.md", folder / "README.md")
        made = Progress(str(Path(name).resolve()) if (Path(name) / "lab.toml").is_file() else lab.name)
        (folder / STATE).write_bytes(TypeAdapter(Progress).dump_json(made, indent=2))
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise LabError(f"{folder} cannot be made: {error.strerror}") from None


def copy_folder(source: Path, folder: Path, *, another: str) -> None:
    """Make a folder with the files of another one. If that fails, nothing is left.

    Args:
        source: The other folder.
        folder: The folder, which must not exist.
        another: The command that makes a folder of another name.

    Raises:
        LabError: The folder exists or cannot be made.
    """
    try:
        shutil.copytree(source, folder, ignore=_NOT_THEIRS)
    except FileExistsError:
        raise LabError(f"{folder} exists already; choose another folder: {another}") from None
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        why = error.strerror or error.args[0][0][2]  # shutil.Error lists files, each with its error
        raise LabError(f"{folder} cannot be made: {why}") from None
