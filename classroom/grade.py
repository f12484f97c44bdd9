"""Marks a folder of submissions. Each runs in sandboxes of its own, and whatever it does costs only its own points."""

from __future__ import annotations

import csv
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from stat import S_ISREG
from typing import Any, TextIO

from fanin.classroom.bench import LabTest, collect
from fanin.classroom.check import FAST_COMPILE, check
from fanin.classroom.confine import COMPLAINT, Confinement, files_of_fanin, hidden_labs
from fanin.classroom.judge import COMPILED, END, Judges, judges
from fanin.classroom.manifest import Lab, LabError, labs
from fanin.classroom.story import Outcome, Problem, outcome_from, told
from fanin.native.text import printable
from fanin.testbed.patience import setting
from fanin.testbed.sandbox import SandboxError

MOST_BYTES = 4 << 20  # of a submission
MOST_FILES = 100
SECONDS = 90.0  # for all tests of one submission
_LONGEST_NOTE = 200  # characters
_LONGEST_PHRASE = 100  # characters about one of several tests
_BEGINS_FORMULA = tuple("=+-@\t\r＝＋－＠")  # some spreadsheets take wide characters, too
_SERVER = "/submission"  # where its sandboxes see a submission
_KINDS = (".p4", ".py", ".json", ".toml", ".h")


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one submission.

    Attributes:
        student: The name of the submission's folder.
        outcomes: The outcome of every test, hidden ones included. Empty if it could not be marked.
        note: What is wrong with the submission as a whole, or an empty text.
    """

    student: str
    outcomes: Sequence[Outcome]
    note: str = ""

    @property
    def points(self) -> int:
        """Return the points of the tests that passed."""
        return sum(outcome.points for outcome in self.outcomes if outcome.passed)

    @property
    def most(self) -> int:
        """Return the points of all tests."""
        return sum(outcome.points for outcome in self.outcomes)

    def summary(self, *, hidden: bool = True) -> str:
        """Return the note, or else what failed in each test, on one line; empty if all passed.

        Args:
            hidden: Whether the reader may know of hidden tests.
        """
        return self.note or _what_failed([each for each in self.outcomes if hidden or not each.hidden])


@dataclass(slots=True)
class Grader:
    """Marks submissions of one lab.

    Attributes:
        lab: The lab.
        tests: The text of all tests: those of the lab, and the teacher's own.
        seed: The seed of what tests draw.
        compiled: A folder with what the C compiler has made of fanin itself.
        judges: Starts the process that runs the tests of a submission.
        seconds: Seconds after which the tests of a submission end.
    """

    lab: Lab
    tests: str
    seed: int
    compiled: Path
    judges: Judges
    seconds: float = SECONDS
    _numbers: SimpleQueue[int] = field(default_factory=SimpleQueue)
    _running: set[Callable[[], None]] = field(default_factory=set)  # what ends each process
    _interrupted: bool = False

    def marks(self, folders: Sequence[Path], at_once: int) -> Iterator[Marks]:
        """Yield the marks of each submission, in their order.

        Args:
            folders: The folders of the submissions, which `find_submissions` returns.
            at_once: How many run at the same time.
        """
        self._numbers = SimpleQueue()
        for number in range(at_once):
            self._numbers.put(number)
        with ThreadPoolExecutor(at_once) as pool:
            try:
                yield from pool.map(self.mark, folders)
            except BaseException:  # Ctrl-C, too: the pool waits for its threads
                self._interrupted = True
                for end in tuple(self._running):
                    with suppress(ProcessLookupError):
                        end()
                raise

    def mark(self, folder: Path) -> Marks:
        """Run all tests on one submission."""
        number = self._numbers.get()
        try:
            with tempfile.TemporaryDirectory(prefix="fanin-grade-") as made:
                staged = Path(made) / "submission"
                staged.mkdir()
                staged.chmod(0o755)
                try:
                    note = _stage(folder, staged, self.lab.manifest.files)
                except PermissionError as error:
                    note = f"{error.filename}: {error.strerror}"
                outcomes, ended = self._run(staged, Path(made), number)
        finally:
            self._numbers.put(number)
        return Marks(shown(folder.name), outcomes, shown(note or ended))

    def _run(self, staged: Path, place: Path, number: int) -> tuple[list[Outcome], str]:
        """Return the outcomes, and why the tests ended early, or an empty text."""
        ours, theirs = socket.socketpair()
        with ExitStack() as held:
            for each in (ours, theirs):
                held.enter_context(each)
            server = self._box(place / "student", staged, 2 * number, judge=False)
            python = (sys.executable, "-P", "-m")
            held.enter_context(
                self._started(
                    server.command(*python, "fanin.classroom.student_server", _SERVER, str(theirs.fileno())),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
            )
            theirs.close()
            judge = self._box(place / "judge", staged, 2 * number + 1, judge=True)
            complaint = held.enter_context((place / "complaint").open("w"))
            reader, output = os.pipe()
            held.callback(os.close, reader)
            try:
                handle = self.judges.start(judge, _SERVER, self.tests, self.seed, ours, output, complaint)
            finally:
                os.close(output)
            ours.close()
            with self._killed_at_the_end(handle):
                said, in_time = _read_until(reader, time.monotonic() + self.seconds * setting())
            if not in_time:
                ended = f"the tests did not end within {self.seconds:g} s"
            elif not said.endswith(f"{END}\n"):
                ended = "the tests ended early: they took too much"
            else:
                ended = ""
        refusal = (place / "complaint").read_text(errors="replace")
        if refusal.startswith(COMPLAINT):
            raise SandboxError(refusal.strip())
        return _all_outcomes(collect(self.tests, "tests.py"), said, ended), ended

    @contextmanager
    def _started(self, command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
        environment = {**os.environ, **FAST_COMPILE}
        with subprocess.Popen(
            command, env=environment, text=True, start_new_session=True, **options
        ) as process:
            end = partial(_end, process.pid)
            self._running.add(end)
            try:
                if self._interrupted:
                    end()
                yield process
            finally:
                self._running.remove(end)
                end()  # the sandbox ends with it

    @contextmanager
    def _killed_at_the_end(self, handle: int) -> Iterator[None]:
        """Kill the process of a handle when the context ends, and its sandbox with it."""
        kill = partial(signal.pidfd_send_signal, handle, signal.SIGKILL)
        self._running.add(kill)
        try:
            if self._interrupted:
                kill()
            yield
        finally:
            self._running.remove(kill)
            with suppress(ProcessLookupError):
                kill()
            os.close(handle)

    def _box(self, root: Path, staged: Path, user: int, *, judge: bool) -> Confinement:
        root.mkdir()
        mounted = {_SERVER: str(staged)}
        if judge:
            mounted[COMPILED] = str(self.compiled)
        return Confinement(
            root=str(root),
            shown=files_of_fanin(),
            mounted=mounted,
            masked=hidden_labs(),
            user=user,
            disk_bytes=(96 << 20) if judge else 0,
            memory_bytes=(4 << 30) if judge else (1 << 30),
            processes=64 if judge else 24,
            cpu_seconds=round(self.seconds),
        )


@contextmanager
def grader(lab: Lab, *, seed: int, further: Path | None = None) -> Iterator[Grader]:
    """Prepare to mark submissions: check that the solution passes here, and compile what all of them need.

    Args:
        lab: The lab.
        seed: The seed of what tests draw.
        further: A file with the teacher's own tests.

    Raises:
        LabError: The solution fails, or the teacher's tests cannot be read.
    """
    tests = lab.tests
    if further is not None:
        try:
            compile(added := further.read_text(), str(further), "exec")
            tests += "\n" + added
            count = len(collect(tests, str(further)))
        except SyntaxError as error:
            raise LabError(f"{further}:{error.lineno}: {error.msg}") from None
        except Exception as error:  # whatever the teacher's tests raise
            raise LabError(f"{further}: {type(error).__name__}: {error}") from None
        if count == len(collect(lab.tests, lab.name)):
            raise LabError(
                f"{further} adds no test: decorate a function with @lab_test, under a name of its own"
            )
    with tempfile.TemporaryDirectory(prefix="fanin-grade-") as made:
        before = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = made
        try:
            whole = Lab(lab.folder, lab.manifest, tests)
            compiled = Path(made) / "fanin"
            compiled.mkdir(mode=0o700)
            outcomes = check(whole, lab.solution, seed=seed, hidden=True, shared=compiled)
            failed = [each for each in outcomes if not each.passed]
            # A failure is traced, for which there is a second program and further parts of fanin.
            _warm_up_of_failures(whole, seed)
        finally:
            if before is None:
                del os.environ["XDG_CACHE_HOME"]
            else:
                os.environ["XDG_CACHE_HOME"] = before
        if failed:
            names = ", ".join(each.test for each in failed)
            raise LabError(f"{lab.name}: its solution fails {names}\n{told(failed[0])}")
        for each in (compiled, *compiled.iterdir()):
            each.chmod(0o755)  # for the users of the sandboxes; the folder above keeps others out
        with judges(_modules_of_tests()) as found:
            marker = Grader(lab, tests, seed, compiled, found)
            _require_points(marker)
            yield marker


def _require_points(marker: Grader) -> None:
    """Check that the solution passes in the sandboxes as well, so that no right submission loses points to them."""
    [marks] = marker.marks([marker.lab.solution], 1)
    failed = [each for each in marks.outcomes if not each.passed]
    if failed:
        names = ", ".join(each.test for each in failed)
        raise LabError(
            f"{marker.lab.name}: its solution passes, but in a sandbox it fails {names}, "
            f"and so would every submission\n{marks.note or told(failed[0])}"
        )


def _modules_of_tests() -> list[str]:
    """Return the modules that tests have imported here: the judges' process imports them once for all."""
    packages = ("fanin.classroom.", "fanin.p4", "fanin.simulator.", "fanin.experiments.", "scapy.", "numpy.")
    return [name for name in sys.modules if name.startswith(packages)]


def _read_until(reader: int, end: float) -> tuple[str, bool]:
    """Return what is written to a pipe until it is closed or the time is up, and whether it was closed."""
    said = b""
    waiting = select.poll()
    waiting.register(reader, select.POLLIN)
    while (left := end - time.monotonic()) > 0 and waiting.poll(left * 1000):
        if not (more := os.read(reader, 1 << 16)):
            return said.decode(errors="replace"), True
        said += more
    return said.decode(errors="replace"), False


def _warm_up_of_failures(lab: Lab, seed: int) -> None:
    for outcome in check(lab, lab.skeleton, seed=seed):
        if outcome.problem is not None and outcome.problem.trace:
            return


def shown(name: str) -> str:
    """Return the name of a submission on one line: a line feed in it would begin the line of another one."""
    return printable(name).translate(dict.fromkeys(map(ord, "\n\t"), "\N{REPLACEMENT CHARACTER}"))


def find_submissions(place: Path, lab: Lab) -> list[Path]:
    """Return the folders of the submissions in a folder, in the order of their names.

    Raises:
        LabError: The folder is not one with a folder for each submission, two names are the same where they are
            shown, or no submission has a file of the lab.
    """
    files = lab.manifest.files
    expected = f"expected a folder for each student, such as {place / 'ann' / files[0]}"
    # Moodle puts a prefix before the names of files, unless it is asked for folders.
    loose = [each.name for each in sorted(place.iterdir()) if each.is_file() and each.name.endswith(files)]
    if loose:
        raise LabError(
            f"{place}: {shown(loose[0])} is not in a folder of a submission. If this is one submission, name the "
            f"folder above it, {shown(str(place.resolve().parent))}; otherwise give each student a folder"
        )
    folders = _folders(place)
    if not folders:
        raise LabError(f"{place}: there is no folder of a submission in it; {expected}")
    names = [shown(each.name) for each in folders]
    for name in names:
        if names.count(name) > 1:
            raise LabError(f"{place}: two submissions would be called {name}; rename one of their folders")
    there = {file.name for folder in folders for file in (*folder.glob("*"), *folder.glob("*/*"))}
    if there.isdisjoint(files):
        others = [one.name for one in labs() if not there.isdisjoint(one.manifest.files)]
        hint = f"; their files are those of {' or '.join(others)}" if others else f"; {expected}"
        raise LabError(f"{place}: no submission has a file of {lab.name}: {', '.join(files)}{hint}")
    several = {
        folder: [each for each in _folders(folder) if _has(each, files) or _having(each, files)]
        for folder in folders
        if not _has(folder, files)
    }
    classes = [folder for folder, below in several.items() if len(below) > 1]
    if classes and len(several) == len(folders) and all(len(below) != 1 for below in several.values()):
        students = ", ".join(shown(each.name) for each in several[classes[0]][:3])
        raise LabError(
            f"{place}: {shown(classes[0].name)} has the files of several submissions ({students}); {expected}. "
            f"To mark them, name that folder: {shown(str(classes[0]))}"
        )
    return folders


def _folders(place: Path) -> list[Path]:
    """Return the folders in a folder that may be submissions; zip files of macOS have a folder __MACOSX."""
    found = (each for each in place.glob("*") if each.is_dir() and not each.is_symlink())
    return sorted(each for each in found if each.name != "__MACOSX")


def _has(folder: Path, files: Sequence[str]) -> bool:
    return any((folder / file).is_file() for file in files)


def _having(folder: Path, files: Sequence[str]) -> list[Path]:
    return [each for each in _folders(folder) if _has(each, files)]


def _stage(folder: Path, staged: Path, files: Sequence[str]) -> str:
    """Copy the regular files of a submission, without following links, and return what is wrong with it, or nothing."""
    below = [] if _has(folder, files) else _having(folder, files)
    if len(below) > 1:
        return f"it has the files of several submissions, in {', '.join(each.name for each in below[:3])}"
    source = below[0] if below else folder
    left, note = MOST_BYTES, ""
    there = sorted(source.iterdir())
    archives = [each.name for each in there if is_archive(each)]
    packed = f"; unpack {', '.join(archives[:3])}" if archives else ""
    others = [each.name for each in there if each.suffix in _KINDS and each.name not in files]
    names = [*files, *others]
    for name in names[:MOST_FILES]:
        try:
            descriptor = os.open(source / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            if name in files and not note:
                note = f"{name}: {error.strerror}{packed or _likely(name, others)}"
            continue
        if not S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            note = note or (f"{name}: not a file" if name in files else "")
            continue
        with os.fdopen(descriptor, "rb") as opened:
            data = opened.read(left + 1)
        left -= len(data)
        if left < 0:
            return f"it has more than {MOST_BYTES >> 20} MiB; {name} and what follows is left out"
        (staged / name).write_bytes(data)
        (staged / name).chmod(0o644)
    return note


def is_archive(file: Path) -> bool:
    """Return whether a file has to be unpacked before what it holds can be marked."""
    return file.suffix in {".zip", ".tar", ".gz", ".tgz", ".xz", ".7z", ".rar"}


def _likely(name: str, others: Sequence[str]) -> str:
    """Return which other files may be the one that is missing: browsers call a second download `forwarding (1).p4`."""
    stem, suffix = Path(name).stem.lower(), Path(name).suffix
    same_kind = [each for each in others if each.endswith(suffix)]
    likely = [each for each in same_kind if each.lower().startswith(stem)] or same_kind
    return f"; rename {' or '.join(map(repr, likely[:3]))} if that is it" if likely else ""


def _what_failed(outcomes: Sequence[Outcome]) -> str:
    """Return one phrase for each test that failed, or one for all if all failed for the same reason."""
    problems = {each.test: each.problem for each in outcomes if each.problem is not None}
    if len({problem.text for problem in problems.values()}) == 1 and len(problems) == len(outcomes):
        return _phrase(next(iter(problems.values())), _LONGEST_NOTE)
    return "; ".join(f"{test}: {_phrase(each, _LONGEST_PHRASE)}" for test, each in problems.items())


def _phrase(problem: Problem, longest: int) -> str:
    """Return the likely cause of a failure, or else what was found, on one line."""
    text = shown(" ".join((problem.causes or (problem.text,))[0].split()))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def _end(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _all_outcomes(tests: Sequence[LabTest], said: str, ended: str) -> list[Outcome]:
    """Return the outcome of every test. One without an outcome has failed."""
    found: dict[str, Outcome] = {}
    for line in said.splitlines():
        with suppress(ValueError, KeyError, TypeError):  # half a line
            outcome = outcome_from(json.loads(line))
            found[outcome.test] = outcome
    missing = Problem(ended or "the test did not run")
    return [
        found.get(each.name, Outcome(each.name, each.title, each.points, each.hidden, (), missing))
        for each in tests
    ]


def write_csv(marks: Sequence[Marks], file: TextIO) -> None:
    """Write a line for each submission: its points, those of each test, and a note.

    One without outcomes was not marked: it has a note, and no points.
    """
    writer = csv.writer(file)
    tests = [outcome.test for outcome in marks[0].outcomes] if marks else []
    writer.writerow(["student", "points", "of", *tests, "note"])
    for each in marks:
        points = [outcome.points if outcome.passed else 0 for outcome in each.outcomes]
        numbers = [each.points, each.most, *points] if points else [""] * (2 + len(tests))
        writer.writerow([_cell(each.student), *numbers, _cell(each.summary())])


def set_aside(file: Path) -> Path | None:
    """Rename an earlier table, which may have a teacher's notes, so that a new one can take its name.

    Args:
        file: The name of the table, such as grades.csv.

    Returns:
        The new name of the earlier table, such as grades-1.csv. None if there is none.
    """
    if file.is_symlink() or not file.is_file():  # such as /dev/stdout
        return None
    names = (file.with_name(f"{file.stem}-{number}{file.suffix}") for number in itertools.count(1))
    kept = next(each for each in names if not each.exists())
    return file.rename(kept)


def _cell(text: str) -> str:
    """Return text that a spreadsheet does not take for a formula."""
    return f"'{text}" if text[:1] in _BEGINS_FORMULA else text


def _with_causes(outcome: Outcome, problem: Problem) -> str:
    causes = [f"  Your program: {cause}" for cause in problem.causes]
    return "\n".join([told(outcome), *([""] if causes else []), *causes])


def gradescope(marks: Marks) -> dict[str, Any]:
    """Return the results of a submission as Gradescope's autograder reads them (results.json)."""
    return {
        "score": marks.points,
        "output": marks.summary(hidden=False),
        "tests": [
            {
                "name": outcome.title,
                "score": outcome.points if outcome.passed else 0,
                "max_score": outcome.points,
                "status": "passed" if outcome.passed else "failed",
                "output": ""
                if outcome.problem is None
                else printable(_with_causes(outcome, outcome.problem)),
                "visibility": "hidden" if outcome.hidden else "visible",
            }
            for outcome in marks.outcomes
        ],
    }
