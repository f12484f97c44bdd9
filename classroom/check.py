"""Runs the tests of a lab on a student's folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fanin.classroom.bench import collect, run_test
from fanin.classroom.manifest import Lab
from fanin.classroom.story import Outcome
from fanin.classroom.student import student_programs
from fanin.p4switch.engine.engine import Engine

# A lab sends a few packets. They are not worth the time that an optimizing compiler takes.
FAST_COMPILE = {"P4SWITCH_CFLAGS": "-O0"}


def check(
    lab: Lab, folder: Path, *, seed: int = 0, hidden: bool = False, only: str | None = None
) -> Iterator[Outcome]:
    """Yield the outcome of each test, as soon as there is one.

    Args:
        lab: The lab.
        folder: The student's files.
        seed: The seed of what tests draw.
        hidden: Also run the tests that are for the grader.
        only: The name of the one test to run. None runs all.
    """
    os.environ.update({name: value for name, value in FAST_COMPILE.items() if name not in os.environ})
    engines: dict[str, Engine] = {}
    with student_programs(folder) as students:
        for test in collect(lab.tests, f"{lab.name}/tests.py"):
            if (hidden or not test.hidden) and only in (None, test.name):
                yield run_test(test, folder, students, engines, seed)
