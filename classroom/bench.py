"""The workbench with which the tests of a lab are written.

A test is a function that takes a `Bench`, decorated with `lab_test`. It tells its story with `step`. It fails by
raising `ExpectationError`, which the methods of the bench and of its switches do.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.classroom.network_under_test import NetworkUnderTest, StudentWorker, Surroundings, VirtualTime
from fanin.classroom.story import ExpectationError, NotPossibleError, Outcome, Problem, Story
from fanin.classroom.student import StudentProgram, StudentPrograms
from fanin.classroom.switch_under_test import LoadedProgram, SwitchUnderTest, load_program
from fanin.p4compiler import CompileError, lint_file
from fanin.topologies.model import Topology

# It warns of packets without a source address on machines without a route.
logging.getLogger("scapy.runtime").setLevel(logging.ERROR)

__all__ = ["Bench", "ExpectationError", "collect", "lab_test", "run_test"]


class Bench:
    """A workbench for one test: the student's programs, and random numbers that are the same for the same seed."""

    def __init__(
        self,
        folder: Path,
        students: StudentPrograms,
        programs: dict[str, LoadedProgram],
        seed: str,
        surroundings: Surroundings,
        shared: Path | None = None,
    ) -> None:
        self._seed = seed
        self._shared = shared
        self._folder = folder
        self._students = students
        self._programs = programs
        self._surroundings = surroundings
        self._running: list[StudentProgram] = []
        self._network: NetworkUnderTest | None = None  # the last one
        self.story = Story()
        self.random = random.Random(seed)

    def step(self, text: str) -> None:
        """Begin a step of the story."""
        self.story.step(text)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what `make` returns, which must be JSON and depend on nothing that a student has written.

        A grader calls it once for the whole class. Otherwise it is called each time.

        Args:
            name: Its name, which no other call of this test has.
            make: Makes the value.
        """
        if self._shared is None:
            return make()
        digest = hashlib.sha256(f"{self._seed}/{name}".encode()).hexdigest()
        file = self._shared / f"once-{digest}.json"
        if file.exists():
            return json.loads(file.read_text())
        made = make()
        with suppress(OSError):  # a sandbox only reads: a submission has come further than the solution
            file.write_text(json.dumps(made))
        return made

    def switch(self, file: str) -> SwitchUnderTest:
        """Return a new switch with the student's P4 program.

        Raises:
            ExpectationError: The program does not compile.
        """
        if file not in self._programs:
            self.step(f"fanin compiles {file}")
            self._programs[file] = load_program(self._folder / file)
            self.story.steps.pop()
        return self._surroundings.switch(self._programs[file], self.story)

    def python(self, file: str) -> StudentProgram:
        """Start one of the student's Python files.

        Raises:
            ExpectationError: It is missing.
        """
        self._running.append(self._students.start(file))
        return self._running[-1]

    def worker(self, file: str, *arguments: Any) -> StudentWorker:
        """Start the class Worker of one of the student's Python files, in a process of its own.

        Raises:
            ExpectationError: The file or the class is missing, or raises an error.
        """
        program = self.python(file)
        program.new("Worker", *arguments)
        return StudentWorker(program)

    def network(
        self,
        topology: Topology,
        switches: Mapping[str, SwitchUnderTest],
        hosts: Mapping[str, Any],
        *,
        lose: Mapping[str, Callable[[int, bytes], bool]] | None = None,
    ) -> NetworkUnderTest:
        """Return a network, in virtual time or live (see NetworkUnderTest)."""
        self._network = NetworkUnderTest(
            topology,
            switches,
            hosts,
            seed=self.random.getrandbits(31),
            lose=lose,
            surroundings=self._surroundings,
        )
        return self._network

    def fits_pipeline(self, file: str) -> None:
        """Fail if the student's P4 program needs what a hardware pipeline does not have (docs/reference/lint.md).

        Raises:
            ExpectationError: It does, or does not compile.
        """
        self.step(f"fanin lint {file}")
        try:
            found, _ = lint_file(self._folder / file)
        except CompileError as error:
            raise ExpectationError(Problem(f"{file} does not compile:\n{error}", broken=True)) from None
        except OSError as error:
            raise ExpectationError(
                Problem(f"{file}: cannot be read: {error.strerror}", broken=True)
            ) from None
        self.check(not found, "\n".join(f"{each.code}: {each.diagnostic}" for each in found))

    def check(self, holds: bool, text: str) -> None:
        """Fail with a text unless something holds.

        Raises:
            ExpectationError: It does not hold.
        """
        if not holds:
            raise ExpectationError(Problem(text, causes=self._network.causes() if self._network else ()))

    def close(self) -> None:
        """End the student's processes of this test."""
        for program in self._running:
            program.close()


@dataclass(frozen=True, slots=True)
class LabTest:
    """A test of a lab.

    Attributes:
        function: The function that runs it.
        title: What it tests, as students read it.
        points: What it is worth.
        hidden: Only a grader runs it.
    """

    function: Callable[[Bench], None]
    title: str
    points: int
    hidden: bool

    @property
    def name(self) -> str:
        """Return the name of its function."""
        return self.function.__name__


def lab_test(
    title: str, *, points: int = 1, hidden: bool = False
) -> Callable[[Callable[[Bench], None]], LabTest]:
    """Make a function a test of its lab.

    Args:
        title: What it tests, as students read it.
        points: What it is worth.
        hidden: Only a grader runs it.
    """
    return lambda function: LabTest(function, title, points, hidden)


def collect(source: str, name: str) -> list[LabTest]:
    """Return the tests of a tests.py, in their order.

    Args:
        source: The text of the file.
        name: Its name in tracebacks.
    """
    scope: dict[str, Any] = {"__name__": "fanin_lab_tests"}
    exec(compile(source, name, "exec"), scope)
    return [value for value in scope.values() if isinstance(value, LabTest)]


def run_test(
    test: LabTest,
    folder: Path,
    students: StudentPrograms,
    programs: dict[str, LoadedProgram],
    seed: int,
    surroundings: Surroundings | None = None,
    shared: Path | None = None,
) -> Outcome:
    """Run one test on a student's folder.

    Args:
        test: The test.
        folder: The student's files.
        students: Starts the student's Python.
        programs: Programs that were loaded before, by file.
        seed: The seed of what the test draws.
        surroundings: Where switches and networks run. None is virtual time.
        shared: A folder with what is the same for a whole class (`Bench.once`). None: there is none.
    """
    bench = Bench(folder, students, programs, f"{seed}/{test.name}", surroundings or VirtualTime(), shared)
    problem, not_run = None, ""
    try:
        test.function(bench)
    except NotPossibleError as error:
        not_run = str(error)
    except ExpectationError as error:
        problem = error.problem
    except (TypeError, ValueError, LookupError, AttributeError) as error:  # of a value that no test expects
        problem = Problem(
            f"the test cannot use what your program returned: {type(error).__name__}: {error}\n"
            "compare it with what README.md asks for"
        )
    finally:
        bench.close()
    return Outcome(
        test.name, test.title, test.points, test.hidden, tuple(bench.story.steps), problem, not_run
    )
