"""A student's folder: the files of a lab, and how many hints were given."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter, ValidationError

from fanin.classroom.manifest import Hint, Lab, LabError, find_lab
from fanin.classroom.story import Outcome, Problem

STATE = ".fanin-lab.json"
_NOT_THEIRS = shutil.ignore_patterns("__pycache__")  # pip compiles the files of a wheel


@dataclass(slots=True)
class Progress:
    """The state that a student's folder keeps.

    Attributes:
        lab: The name of the lab, or the path of its folder if it is not one of fanin's.
        failed: The test that failed first in the last check, or None.
        failure: A digest of how it failed.
        broken: It failed because of a broken file (see Problem), so that no hint helps.
        causes: What the student's program did that may have led to the failure (causes.py).
        hints: How many hints were given for each test.
        hinted: The digest of each test's failure for which its last hint was given.
        passed: How many tests passed in the last check.
        tests: How many tests there were in the last check, 0 if there was none.
    """

    lab: str
    failed: str | None = None
    failure: str = ""
    broken: bool = False
    causes: list[str] = field(default_factory=list)
    hints: dict[str, int] = field(default_factory=dict)
    hinted: dict[str, str] = field(default_factory=dict)
    passed: int = 0
    tests: int = 0


class Given(NamedTuple):
    """Hints for a test that failed.

    Attributes:
        hint: All hints for the test.
        given: How many of them are given.
        cured: All were given already when the test failed in another way, which none of them may explain.
    """

    hint: Hint
    given: int
    cured: bool


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
            raise LabError(f"{folder}: no lab was started here; {_where_to(self.folder)}") from None
        except (OSError, ValidationError) as error:
            raise LabError(
                f"{folder / STATE}: cannot be read: {error}; start the lab again elsewhere"
            ) from None
        self.lab = find_lab(self._progress.lab)

    @property
    def progress(self) -> Progress:
        """The state of the folder after the last check."""
        return self._progress

    def remember(self, outcomes: Sequence[Outcome]) -> None:
        """Remember the outcomes of a check: how many tests passed, and which failed first."""
        failed = [each for each in outcomes if each.problem is not None]
        self._progress.failed = failed[0].test if failed else None
        self._progress.failure = _digest(failed[0].problem) if failed else ""
        self._progress.broken = any(each.problem is not None and each.problem.broken for each in failed[:1])
        self._progress.causes = [*failed[0].problem.causes] if failed and failed[0].problem else []
        self._progress.passed = sum(each.passed for each in outcomes)
        self._progress.tests = len(outcomes)
        self._write()

    def hint(self, *, further: bool) -> Given | None:
        """Return the hints for the test that failed first; None if it has none. The first one is given in any case.

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
        before, failure = self._progress.hints.get(failed, 0), self._progress.failure
        cured = before == len(found.stages) and self._progress.hinted.get(failed, failure) != failure
        count = max(1, min(before + further, len(found.stages)))
        self._progress.hints[failed] = count
        if before < count:
            self._progress.hinted[failed] = failure
        self._write()
        return Given(found, count, cured)

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


def _digest(problem: Problem | None) -> str:
    return hashlib.sha256(repr(problem and (problem.text, problem.rows)).encode()).hexdigest()[:16]


def started(place: Path) -> Iterator[WorkFolder]:
    """Yield the student's folders that lie directly in a folder, in the order of their names."""
    for state in sorted(place.glob(f"*/{STATE}")):
        with suppress(LabError):  # damaged, or of a lab that is no longer there
            yield WorkFolder(state.parent)


def enclosing(folder: Path) -> Path | None:
    """Return the innermost student's folder that a folder is or lies in, or None."""
    resolved = folder.resolve()
    return next((each for each in (resolved, *resolved.parents) if (each / STATE).exists()), None)


def _where_to(folder: Path) -> str:
    """Return what to type in a folder in which no lab was started."""
    here = [work.folder.name for work in started(folder)]
    if here:
        return f"there are {', '.join(here)}; type: cd {here[0]}" if len(here) > 1 else f"type: cd {here[0]}"
    if (outer := enclosing(folder)) is not None:
        return f"type: cd {os.path.relpath(outer, folder)}"
    return "type: fanin lab start NAME, then cd to its folder"


def start(lab: Lab, folder: Path, name: str) -> None:
    """Make a folder with the skeleton and the README of a lab.

    Args:
        lab: The lab.
        folder: The folder, which must not exist.
        name: What the student called the lab, which finds it again.

    Raises:
        LabError: The folder exists or cannot be made, or it would lie in that of another lab.
    """
    if (outer := enclosing(folder.parent)) is not None:
        above = os.path.relpath(outer.parent)
        again = f"fanin lab start {name} {folder.name}".removesuffix(f" {lab.name}")
        raise LabError(
            f"{folder} would lie in {outer}, the folder of another lab; type: cd {above} && {again}"
        )
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
