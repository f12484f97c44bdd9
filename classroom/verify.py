"""Proves a lab: its solution passes, its skeleton fails, every mutant fails, and each hint points somewhere."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fanin.classroom.bench import collect
from fanin.classroom.check import check
from fanin.classroom.manifest import Hint, Lab, LabError, Mutant
from fanin.classroom.story import Outcome, told

FEWEST_STAGES = 2
FEWEST_HINTS = 3


def verify(lab: Lab, *, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield what was verified, and what is wrong with it, or an empty text.

    Args:
        lab: The lab.
        seed: The seed of what tests draw.
    """
    tests = [test.name for test in collect(lab.tests, f"{lab.name}/tests.py")]
    for file in lab.manifest.files:
        missing = [each.name for each in (lab.skeleton, lab.solution) if not (each / file).is_file()]
        yield f"{file} exists", f"not in {', '.join(missing)}" if missing else ""
    for name in tests:
        yield f"test {name} has hints", "" if lab.hint(name) else "add a table [[hints]] for it"
    stages = sum(len(hint.stages) for hint in lab.manifest.hints)
    yield (
        "the lab has hints",
        "" if stages >= FEWEST_HINTS else f"{stages}, at least {FEWEST_HINTS} are needed",
    )
    for hint in lab.manifest.hints:
        yield f"the hints for {hint.test} point somewhere", _where(lab, hint, tests)
    yield "the lab has mutants", "" if lab.manifest.mutants else "add wrong solutions, tables [[mutants]]"

    failed = _failed(lab, lab.solution, seed)
    why = f"fails {', '.join(each.test for each in failed)}\n{told(failed[0])}" if failed else ""
    yield "the solution passes", why
    yield "the skeleton fails", "" if _failed(lab, lab.skeleton, seed) else "passes every test"
    for mutant in lab.manifest.mutants:
        yield f"mutant fails: {mutant.name}", _survives(lab, mutant, seed)


def _failed(lab: Lab, folder: Path, seed: int) -> list[Outcome]:
    return [outcome for outcome in check(lab, folder, seed=seed, hidden=True) if not outcome.passed]


def _survives(lab: Lab, mutant: Mutant, seed: int) -> str:
    with tempfile.TemporaryDirectory(prefix="fanin-lab-") as made:
        folder = Path(made) / "mutant"
        shutil.copytree(lab.solution, folder)
        file = folder / mutant.file
        try:
            file.write_text(mutant.applied(file.read_text()))
        except (OSError, LabError) as error:
            return str(error)
        outcomes = [*check(lab, folder, seed=seed, hidden=True, only=mutant.fails)]
    if not outcomes:
        return f"tests.py has no test {mutant.fails}"
    return f"passes the test {mutant.fails}" if outcomes[0].passed else ""


def _where(lab: Lab, hint: Hint, tests: list[str]) -> str:
    """Return what is wrong with the places that a hint names, or an empty text."""
    if hint.test not in tests:
        return f"tests.py has no test {hint.test}"
    if len(hint.stages) < FEWEST_STAGES:
        return f"one hint only; give at least {FEWEST_STAGES}, from a nudge to nearly the answer"
    file, mark, text = hint.see.partition(": ")
    if mark:
        place = lab.skeleton / file
        if not place.is_file():
            return f"{hint.see}: the skeleton has no {file}"
        return "" if text in place.read_text() else f"{hint.see}: {file} does not have this text"
    name, _, heading = hint.see.partition("#")
    document = lab.folder / name
    if not document.is_file():
        return f"{hint.see}: no such file; write FILE: TEXT, or README.md#HEADING"
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.M)
    known = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}
    return "" if heading in known else f"{hint.see}: {name} has no such heading"
