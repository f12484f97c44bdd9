"""Runs the tests of a lab on a student's folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fanin.classroom.bench import LabTest, collect, run_test
from fanin.classroom.manifest import Lab
from fanin.classroom.network_under_test import Surroundings
from fanin.classroom.story import Outcome
from fanin.classroom.student import StudentPrograms, student_programs
from fanin.classroom.switch_under_test import LoadedProgram

# A lab sends a few packets. They are not worth the time that -O3 takes. -O0 takes up to eight times as long as -Og:
# it also compiles the functions of our headers that the program does not call.
FAST_COMPILE = {"P4SWITCH_CFLAGS": "-Og"}


def check(
    lab: Lab,
    folder: Path,
    *,
    seed: int = 0,
    hidden: bool = False,
    only: str | None = None,
    surroundings: Surroundings | None = None,
    shared: Path | None = None,
) -> Iterator[Outcome]:
    """Yield the outcome of each test, as soon as there is one.

    Args:
        lab: The lab.
        folder: The student's files.
        seed: The seed of what tests draw.
        hidden: Also run the tests that are for the grader.
        only: The name of the one test to run. None runs all.
        surroundings: Where switches and networks run. None is virtual time.
        shared: A folder with what is the same for a whole class (`Bench.once`). None: there is none.
    """
    with student_programs(folder) as students:
        tests = collect_tests(lab, hidden=hidden, only=only)
        yield from run_tests(tests, folder, students, seed, surroundings, shared)


def collect_tests(lab: Lab, *, hidden: bool, only: str | None = None) -> list[LabTest]:
    """Return the tests of a lab to run; see `check`."""
    tests = collect(lab.tests, f"{lab.name}/tests.py")
    return [test for test in tests if (hidden or not test.hidden) and only in (None, test.name)]


def run_tests(
    tests: Iterable[LabTest],
    folder: Path,
    students: StudentPrograms,
    seed: int,
    surroundings: Surroundings | None = None,
    shared: Path | None = None,
) -> Iterator[Outcome]:
    """Yield the outcome of each of these tests, with the student's Python in the processes of `students`."""
    programs: dict[str, LoadedProgram] = {}
    for test in tests:
        with _compiling_fast():
            outcome = run_test(test, folder, students, programs, seed, surroundings, shared)
        yield outcome


@contextmanager
def _compiling_fast() -> Iterator[None]:
    """Compile like FAST_COMPILE, unless the user has set other options."""
    added = FAST_COMPILE.keys() - os.environ.keys()
    os.environ.update({name: FAST_COMPILE[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
