"""Labs as data: a folder with a manifest, a README, a skeleton, a solution and tests."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fanin.native.text import nearest

LABS = Path(__file__).parents[1] / "labs"
CLONE = LABS.resolve().parent  # the folder of fanin itself


class LabError(ValueError):
    """Something about a lab or a student's folder that is wrong. The message explains what to do."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Hint(_Table):
    """Hints for one test, from a nudge to nearly the answer.

    Attributes:
        test: The name of the function in tests.py.
        stages: The hints, in the order in which they are given.
        see: Where to look: `FILE: TEXT` for a line of the skeleton, or `README.md#HEADING`.
    """

    test: str
    stages: Annotated[tuple[str, ...], Field(min_length=1)]
    see: str


class Mutant(_Table):
    """A wrong solution: the solution with one text replaced by another.

    Attributes:
        name: What is wrong with it.
        file: The file of the solution.
        replace: A text that the file has exactly once.
        by: What replaces it.
        fails: The test that must notice.
    """

    name: str
    file: str
    replace: str
    by: str
    fails: str

    def applied(self, text: str) -> str:
        """Return the text of the file with the mistake in it.

        Raises:
            LabError: The text to replace is not there exactly once.
        """
        if (count := text.count(self.replace)) != 1:
            raise LabError(f"mutant {self.name!r}: {self.file} has {self.replace!r} {count} times, not once")
        return text.replace(self.replace, self.by)


class Manifest(_Table):
    """The contents of lab.toml.

    Attributes:
        title: What the lab is about.
        minutes: How long it takes a student, roughly.
        files: The files that students write and hand in.
        hints: Hints for tests that fail.
        mutants: Wrong solutions that the tests must find.
    """

    title: str
    minutes: Annotated[int, Field(gt=0)]
    files: Annotated[tuple[str, ...], Field(min_length=1)]
    hints: tuple[Hint, ...] = ()
    mutants: tuple[Mutant, ...] = ()


@dataclass(frozen=True, slots=True)
class Lab:
    """A lab in a folder.

    Attributes:
        folder: The folder, whose name is that of the lab.
        manifest: Its lab.toml.
        tests: The text of its tests.py.
    """

    folder: Path
    manifest: Manifest
    tests: str

    @property
    def name(self) -> str:
        """Return the name of the lab, such as 01-forwarding."""
        return self.folder.name

    @property
    def skeleton(self) -> Path:
        """Return the folder with the files that a student starts from."""
        return self.folder / "skeleton"

    @property
    def solution(self) -> Path:
        """Return the folder with one solution of each file that students write."""
        return self.folder / "solution"

    def hint(self, test: str) -> Hint | None:
        """Return the hints for a test, or None."""
        return next((hint for hint in self.manifest.hints if hint.test == test), None)


def load_lab(folder: Path) -> Lab:
    """Read a lab.

    Raises:
        LabError: A file is missing, or the manifest is wrong.
    """
    try:
        found = tomllib.loads((folder / "lab.toml").read_text())
        tests = (folder / "tests.py").read_text()
        compile(tests, "tests.py", "exec")
        return Lab(folder, Manifest.model_validate(found), tests)
    except OSError as error:
        raise LabError(f"{error.filename}: {error.strerror}; a lab has lab.toml and tests.py") from None
    except SyntaxError as error:
        raise LabError(f"{folder / 'tests.py'}:{error.lineno}: {error.msg}") from None
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
        raise LabError("\n".join(f"{folder / 'lab.toml'}: {line}" for line in lines)) from None
    except ValueError as error:
        raise LabError(f"{folder / 'lab.toml'}: {error}") from None


def labs() -> Iterator[Lab]:
    """Yield the labs that come with fanin, in their order."""
    for file in sorted(LABS.glob("*/lab.toml")):
        yield load_lab(file.parent)


def next_lab(lab: Lab) -> Lab | None:
    """Return the lab of fanin's that comes after this one, or None if it is the last, or none of them."""
    ordered = [each.parent for each in sorted(LABS.glob("*/lab.toml"))]
    later = ordered[ordered.index(lab.folder) + 1 :] if lab.folder in ordered else []
    return load_lab(later[0]) if later else None


def find_lab(name: str) -> Lab:
    """Return the lab with this name or number, or in this folder.

    Args:
        name: `01-forwarding`, `forwarding`, `1`, or the path of a folder with a lab.toml.

    Raises:
        LabError: There is no such lab.
    """
    if (Path(name) / "lab.toml").is_file():
        return load_lab(Path(name).resolve())
    folders = [file.parent for file in sorted(LABS.glob("*/lab.toml"))]
    for folder in folders:
        number, _, word = folder.name.partition("-")
        if name in (folder.name, word, number, number.lstrip("0")):
            return load_lab(folder)
    names = [folder.name for folder in folders]
    known = [*names, *(each.partition("-")[2] for each in names)]
    near = nearest(name, known, f"there are {', '.join(names)}")
    raise LabError(f"{name}: no such lab{near}")
