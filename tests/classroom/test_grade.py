"""Marks: each submission gets its own points, and whatever it does costs nobody else any."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from fanin.classroom.bench import Bench, LabTest, run_test
from fanin.classroom.confine import require_sandboxes
from fanin.classroom.grade import Grader, Marks, find_submissions, grader, gradescope, write_csv
from fanin.classroom.judge import Judges, judges
from fanin.classroom.manifest import Lab, LabError, find_lab
from fanin.classroom.student import student_programs
from fanin.testbed.process_stats import process_stats
from fanin.testbed.sandbox import SandboxError
from tests.classroom.small_lab import changed, small_lab

pytestmark = pytest.mark.slow

MOST = 4
SECONDS = 25.0
SHORT_CALLS = """
from fanin.classroom import student
student.CALL_SECONDS, student.SECONDS_AFTER_A_HANG = 2.0, 0.1
"""

# Python that the controllers of attackers begin with, inside entries(); GOOD and SOLUTION are folders.
ATTACKS = {
    "loops": "while True: pass",
    "sleeps": "import time; time.sleep(1e6)",
    "forks": "import os\n    while True: os.fork()",
    # The limit is one of addresses: bytes(), which touches none of its pages, reaches it as well and much sooner.
    "eats-memory": "x = [bytes(1 << 28) for _ in range(100)]",
    "fills-the-disk": """
    written = []
    for place in ("/", "/tmp", "/dev", "/dev/shm", "/submission", "/var/tmp", "/usr", "/proc", "/compiled"):
        try:
            with open(f"{place}/full", "wb") as file:
                for _ in range(1000): file.write(bytes(1 << 20))
        except OSError:
            continue
        written.append(place)
    if not written: raise ValueError("nowhere to write")""",
    "reads-another-submission": "exec(open('GOOD/controller.py').read(), globals()); return entries(hosts)",
    "reads-the-solution": "exec(open('SOLUTION/controller.py').read(), globals()); return entries(hosts)",
    "prints-results": """
    import json, os
    for test in ("reaches", "unknown", "at_random"):
        line = json.dumps({"test": test, "title": test, "points": 100, "hidden": False, "steps": [], "problem": None})
        for number in range(64):
            try: os.write(number, line.encode() + b"\\n")
            except OSError: pass
    return {"entries": []}""",
    "kills": """
    import os, signal
    for process in (-1, 1, os.getppid(), *(int(each) for each in os.listdir("/proc") if each.isdigit())):
        try:
            if process != os.getpid(): os.kill(process, signal.SIGKILL)
        except OSError: pass
    raise ValueError("still here")""",
    "answers-too-much": """
    import os
    answer = bytes(1 << 20)
    for number in range(64):
        try:
            while True: os.write(number, answer)
        except OSError: pass""",
    "leaves-processes": """
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: time.sleep(1e6)
        os._exit(0)
    raise ValueError("left")""",
    "holds-shared-memory": """
    import ctypes, mmap, os
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    held = 0
    while (number := libc.shmget(0, 64 << 20, 0o1600)) >= 0:  # IPC_PRIVATE, IPC_CREAT
        place = libc.shmat(number, None, 0)
        ctypes.memset(place, 1, 64 << 20)
        libc.shmdt(ctypes.c_void_p(place))  # from here on, no limit of this process counts it
        held += 64
        if held == 512: break
    raise ValueError(f"holds {held} MiB")""",
    "makes-namespaces": """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    found = [libc.unshare(0x10000000), libc.unshare(0x20000), libc.syscall(435, 0, 0)]
    flags = 0x10000000 | 17
    found.append(libc.syscall(56 if os.uname().machine == "x86_64" else 220, flags, 0, 0, 0, 0))
    raise ValueError(f"namespaces {found}")""",
    "writes-to-memory": """
    import os
    reached = []
    for process in (int(each) for each in os.listdir("/proc") if each.isdigit()):
        if process == os.getpid(): continue
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file: name = file.read()
            with open(f"/proc/{process}/mem", "r+b") as file: reached.append(name)
        except OSError: pass
    raise ValueError(f"reached {[each for each in reached if b'student_server' not in each]}")""",
    "watches-others": """
    import ctypes, os
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(0)
    # The sandbox's own root has folders of these names, if they lead to the interpreter or the clone.
    own = os.stat("/").st_dev
    seen = [each for each in ("GOOD", "SOLUTION", "/tmp", "/var/tmp", "/home", "/root")
            if libc.inotify_add_watch(watch, each.encode(), 0xFFF) >= 0 and os.listdir(each)
            and os.stat(each).st_dev != own]
    raise ValueError(f"watches {seen}")""",
    "reads-the-tests": """
    import os, sys
    found = []
    for top, folders, names in os.walk("/"):
        folders[:] = [each for each in folders if each not in ("proc", "sys", "usr", "site-packages", "templates")]
        for name in names:
            if name in ("tests.py", "lab.toml"): found.append(os.path.join(top, name))
    raise ValueError(f"tests {found}")""",
    "drips": """
    import os, time
    while True:
        for number in range(3, 64):
            try: os.write(number, b" ")
            except OSError: pass
        time.sleep(0.1)""",
    "connects": "import socket; socket.create_connection(('127.0.0.1', 22), 2)",
}
LOOPING_P4 = (
    "        ethernet_host.apply();",
    "        ethernet_host.apply(); resubmit_preserving_field_list(0);",
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    try:
        require_sandboxes()
    except SandboxError as error:
        pytest.skip(str(error))
    lab = small_lab(tmp_path_factory.mktemp("labs") / "small")
    # With this line, judges stop a program that never ends sooner.
    return replace(lab, tests=f"{lab.tests}\n{SHORT_CALLS}")


@pytest.fixture(scope="module")
def hostile(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A submission with modules named like those that fanin imports; each makes a file in the folder above."""
    folder = Path(shutil.copytree(lab.solution, tmp_path_factory.mktemp("hostile") / "ann"))
    for name in ("json", "platform", "resource", "numpy"):
        (folder / f"{name}.py").write_text(f"open({str(folder.parent / 'imported')!r}, 'w')\n")
    return folder


@pytest.fixture(scope="module")
def marker(lab: Lab, hostile: Path) -> Iterator[Grader]:
    """One grader for all tests: what it compiles takes longer than to mark. It is started inside of a submission."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(hostile)
        with grader(lab, seed=3) as found:
            found.seconds = SECONDS
            yield found


@pytest.fixture(scope="module")
def marks(lab: Lab, marker: Grader, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Marks]:
    """The marks of good submissions, first and last, and of all attackers between them."""
    folder = tmp_path_factory.mktemp("submissions")
    add: Callable[[str], Path] = lambda name: Path(shutil.copytree(lab.solution, folder / name))  # noqa: E731
    good = add("a-good")
    add("zz-good")
    shutil.copytree(lab.solution, folder / "in-a-folder" / "handed-in")
    for name, code in ATTACKS.items():
        file = add(name) / "controller.py"
        code = code.replace("GOOD", str(good)).replace("SOLUTION", str(lab.solution))
        file.write_text(file.read_text().replace("    return {\n", f"    {code}\n    return {{\n", 1))
    program = add("loops-in-p4") / "program.p4"
    program.write_text(program.read_text().replace(*LOOPING_P4))
    (add("includes-another") / "program.p4").write_text(f'#include "{good}/program.p4"\n')
    (add("includes-the-solution") / "program.p4").write_text(f'#include "{lab.solution}/program.p4"\n')
    for name, target in (("links-to-a-folder", good), ("links-to-the-solution", lab.solution)):
        (folder / name).mkdir()
        (folder / name / "handed-in").symlink_to(target)
    linked = add("links-to-another") / "controller.py"
    linked.unlink()
    linked.symlink_to(good / "controller.py")
    pipe = add("pipe") / "program.p4"
    pipe.unlink()
    os.mkfifo(pipe)
    (add("huge") / "controller.py").write_bytes(b"#" * (5 << 20))
    with (add("sparse") / "controller.py").open("r+b") as file:
        file.truncate(1 << 40)
    for name in ("folder-as-program", "folder-as-controller"):
        file_of = add(name) / ("program.p4" if name == "folder-as-program" else "controller.py")
        file_of.unlink()
        file_of.mkdir()
    for name, place in (("includes-zeros", "/dev/zero"), ("includes-its-results", "/proc/self/fd/1")):
        (add(name) / "program.p4").write_text(f'#include "{place}"\n')
    (folder / "empty").mkdir()
    shutil.copytree(lab.skeleton, folder / "skeleton")
    return {each.student: each for each in marker.marks(find_submissions(folder, lab), 2)}


@pytest.mark.parametrize("name", ["a-good", "zz-good", "in-a-folder"])
def test_good_submissions_get_all_points_whatever_others_do(marks: dict[str, Marks], name: str) -> None:
    assert (marks[name].points, marks[name].most, marks[name].summary()) == (MOST, MOST, "")


@pytest.mark.parametrize(
    "name",
    [
        *ATTACKS,
        "loops-in-p4",
        "includes-another",
        "includes-the-solution",
        "links-to-another",
        "links-to-a-folder",
        "links-to-the-solution",
        "pipe",
        "huge",
        "sparse",
        "folder-as-program",
        "folder-as-controller",
        "includes-zeros",
        "includes-its-results",
        "empty",
    ],
)
def test_an_attack_gets_no_points_for_what_does_not_work(marks: dict[str, Marks], name: str) -> None:
    found = marks[name]
    # What it returns has no entries, or nothing leaves: an unknown destination is dropped, as it should be.
    most = 1 if name in ("prints-results", "loops-in-p4") else 0
    assert found.points <= most, [each for each in found.outcomes if each.passed]
    assert found.most == MOST


def test_what_attackers_were_refused_is_in_their_reports(marks: dict[str, Marks]) -> None:
    def text(name: str) -> str:
        problem = marks[name].outcomes[0].problem
        assert problem is not None
        return problem.text

    assert "nowhere to write" in text("fills-the-disk")
    assert "No such file" in text("reads-another-submission")
    assert "No such file" in text("reads-the-solution")
    assert "unreachable" in text("connects")
    assert "MemoryError" in text("eats-memory")
    assert "holds 0 MiB" in text("holds-shared-memory")
    assert "namespaces [-1, -1, -1, -1]" in text("makes-namespaces")
    assert "reached []" in text("writes-to-memory")
    assert "watches []" in text("watches-others")
    assert "tests []" in text("reads-the-tests")
    assert "did not return within 2 s" in text("drips")
    assert marks["folder-as-controller"].note == "controller.py: not a file"
    assert "left" in text("leaves-processes")
    assert "nothing left the switch" in text("loops-in-p4")
    assert "Too many levels of symbolic links" in marks["links-to-another"].note
    assert "MiB" in marks["huge"].note


def test_no_process_is_left(marks: dict[str, Marks]) -> None:
    assert marks
    lines = (each / "cmdline" for each in Path("/proc").iterdir() if each.name.isdigit())
    found = [
        int(line.parent.name) for line in lines if line.exists() and b"/submission\0" in line.read_bytes()
    ]
    # Not those of other tests, which another process of pytest runs at the same time.
    parents = {process: int(fields[1]) for process, fields in process_stats()}

    def above(process: int) -> set[int]:
        return {process} | (above(parents[process]) if process in parents else set())

    assert not [each for each in found if os.getpid() in above(each) or os.getppid() not in above(each)]


@pytest.fixture
def no_judges() -> Iterator[Judges]:
    """For graders that need none."""
    with socket.socket() as unconnected:
        yield Judges(unconnected)


def test_a_name_cannot_look_like_the_line_of_another_submission(
    lab: Lab, marker: Grader, tmp_path: Path
) -> None:
    name = tmp_path / "mine\nyours: 10 of 10"
    name.mkdir()
    (name / lab.manifest.files[0]).touch()
    [found] = marker.marks([name], 1)
    assert found.student == "mine\N{REPLACEMENT CHARACTER}yours: 10 of 10"
    for byte in (b"\xfe", b"\xff"):
        Path(os.fsdecode(bytes(tmp_path) + b"/" + byte)).mkdir()
    with pytest.raises(
        LabError, match="two submissions would be called \N{REPLACEMENT CHARACTER}; rename one"
    ):
        find_submissions(tmp_path, lab)


def files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (
            ["ann/counters/meter.p4"],
            r"no submission has a file of 01-forwarding: .*; their files are those of 02-",
        ),
        (["ann/x/y/forwarding.p4"], r"no submission has a file .* such as .*/ann/forwarding\.p4$"),
        ([], r"there is no folder of a submission in it; expected"),
        (  # one folder too high
            ["slides/1.md", "week1/ann/forwarding.p4", "week1/bob/01-forwarding/forwarding.p4"],
            r"week1 has the files of several submissions \(ann, bob\).* name that folder: .*/week1$",
        ),
        (  # one too low, with a folder that would be taken for a student
            ["forwarding.p4", "controller.py", "solution/forwarding.p4"],
            r"controller\.py is not in a folder .* name the folder above it, /.*; otherwise give each student",
        ),
        (["Ann_17_assignsubmission_file_forwarding.p4"], r"file_forwarding\.p4 is not in a folder"),
    ],
)
def test_a_folder_that_is_not_one_of_submissions_is_refused(
    tmp_path: Path, names: list[str], complaint: str
) -> None:
    files(tmp_path, *names)
    with pytest.raises(LabError, match=complaint):
        find_submissions(tmp_path, find_lab("forwarding"))


def test_a_submission_in_two_folders_does_not_stop_others(tmp_path: Path) -> None:
    files(tmp_path, "ann/forwarding.p4", "bob/01-forwarding/forwarding.p4")
    files(tmp_path, "eve/a/forwarding.p4", "eve/b/forwarding.p4", "none/readme.txt")
    names = [each.name for each in find_submissions(tmp_path, find_lab("forwarding"))]
    assert names == ["ann", "bob", "eve", "none"]


def test_what_runs_ends_when_marking_is_interrupted(lab: Lab, tmp_path: Path, no_judges: Judges) -> None:
    started: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()

    class Interrupted(Grader):
        def mark(self, folder: Path) -> Marks:
            if folder.name == "a":
                started.put(started.get())  # b's runs by now
                raise KeyboardInterrupt
            with self._started(["sleep", "1000"]) as process:
                started.put(process)
                process.wait()
            return Marks(folder.name, ())

    with pytest.raises(KeyboardInterrupt):
        list(Interrupted(lab, "", 0, tmp_path, no_judges).marks([tmp_path / "a", tmp_path / "b"], 2))
    assert started.get().returncode == -signal.SIGKILL


def test_modules_in_the_folder_of_the_teacher_are_not_imported(marker: Grader, hostile: Path) -> None:
    [marks] = marker.marks([hostile], 1)
    assert marks.points == MOST
    assert not (hostile.parent / "imported").exists()


def test_the_process_that_becomes_judges_has_nothing_of_the_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_OF_THE_TEACHER", "secret")
    with judges([]):
        mine = [number for number, fields in process_stats() if int(fields[1]) == os.getpid()]
        environments = [
            Path(f"/proc/{number}/environ").read_bytes()
            for number in mine
            if b"fanin.classroom.judge" in Path(f"/proc/{number}/cmdline").read_bytes()
        ]
    assert environments
    assert not any(b"secret" in each for each in environments)


def test_the_table_of_a_class_has_a_line_for_each(marks: dict[str, Marks]) -> None:
    file = io.StringIO()
    packed = Marks("eve.zip", (), "not unpacked")
    write_csv([marks["a-good"], marks["skeleton"], Marks("=1+1", marks["a-good"].outcomes), packed], file)
    rows = list(csv.DictReader(io.StringIO(file.getvalue())))
    assert rows[0] == {
        "student": "a-good", "points": "4", "of": "4", "reaches": "2", "unknown": "1", "at_random": "1", "note": "",
    }  # fmt: skip
    assert rows[1]["points"] == "1"  # an unknown destination is dropped
    assert rows[2]["student"] == "'=1+1"
    assert rows[3] == dict.fromkeys(rows[0], "") | {"student": "eve.zip", "note": "not unpacked"}


def test_gradescope_gets_points_texts_and_what_students_may_see(marks: dict[str, Marks]) -> None:
    found = json.loads(json.dumps(gradescope(marks["skeleton"])))
    assert found["score"] == 1
    assert [(each["score"], each["max_score"], each["visibility"]) for each in found["tests"]] == [
        (0, 2, "visible"),
        (1, 1, "visible"),
        (0, 1, "hidden"),
    ]
    assert "host 1 sends a frame to host 2" in found["tests"][0]["output"]


def test_a_lab_whose_solution_fails_marks_nobody(lab: Lab, tmp_path: Path) -> None:
    further = tmp_path / "further.py"
    further.write_text(
        "@lab_test('Impossible')\ndef impossible(bench: Bench) -> None:\n    bench.check(False, 'never')\n"
    )
    with (
        pytest.raises(LabError, match=r"its solution fails impossible\n[\s\S]*never"),
        grader(lab, seed=0, further=further),
    ):
        pass
    further.write_text("1 +")
    with pytest.raises(LabError, match=r"further\.py:\d+: "), grader(lab, seed=0, further=further):
        pass
    further.write_text("x = 1")
    with (
        pytest.raises(LabError, match="adds no test: decorate a function"),
        grader(lab, seed=0, further=further),
    ):
        pass


def test_a_lab_whose_solution_passes_only_outside_of_the_sandboxes_marks_nobody(
    lab: Lab, tmp_path: Path
) -> None:
    further = tmp_path / "further.py"
    further.write_text(
        "@lab_test('Needs a file that is only outside')\n"
        "def outside(bench: Bench) -> None:\n"
        f"    bench.check(__import__('os').path.exists({str(further)!r}), 'no file')\n"
    )
    complaint = (
        "its solution passes, but in a sandbox it fails outside, and so would every submission\n.*no file"
    )
    with pytest.raises(LabError, match=complaint), grader(lab, seed=0, further=further):
        pass


def test_one_reason_for_all_failures_is_the_note(lab: Lab, marker: Grader, tmp_path: Path) -> None:
    submissions = tmp_path / "submissions"
    submissions.mkdir()
    changed(lab, submissions / "ada", "program.p4", "standard.egress_spec = port;", "standard.egress = port;")
    (submissions / "__MACOSX").mkdir()
    files(
        submissions,
        "bob/lab.zip",
        "eve/Program (1).p4",
        "eve/controller.py",
        "joe/a/program.p4",
        "joe/b/program.p4",
    )
    marks, *unmarked = marker.marks(find_submissions(submissions, lab), 1)
    assert [each.note for each in unmarked] == [
        "program.p4: No such file or directory; unpack lab.zip",
        "program.p4: No such file or directory; rename 'Program (1).p4' if that is it",
        "it has the files of several submissions, in a, b",
    ]
    assert marks.student == "ada"
    assert marks.points == 0
    assert marks.summary().startswith("program.p4 does not compile: ")
    assert "\n" not in marks.summary()


def test_the_note_of_a_partly_right_submission_has_a_phrase_for_each_test_that_failed(
    marks: dict[str, Marks],
) -> None:
    file = io.StringIO()
    write_csv([marks["skeleton"]], file)
    [row] = csv.DictReader(io.StringIO(file.getvalue()))
    assert row["note"] == "; ".join(
        f"{test}: mark_to_drop drops the packet (program.p4:31): table MyIngress.ethernet_host, hdr.ethernet.destinat…"
        for test in ("reaches", "at_random")
    )
    for_student = gradescope(marks["skeleton"])
    assert for_student["output"] == row["note"].partition("; at_random")[0]  # that test is hidden
    assert "  Your program: mark_to_drop drops the packet" in for_student["tests"][0]["output"]


def test_what_is_the_same_for_a_class_is_made_once(lab: Lab, tmp_path: Path) -> None:
    """And for another seed, or without a grader, again."""
    made = []

    def draw(bench: Bench) -> None:
        value = bench.once("drawn", lambda: made.append(0) or {"number": bench.random.random()})
        bench.check(value == {"number": random.Random(f"{seed}/draw").random()}, "another value")

    test = LabTest(draw, "Draws", 1, False)
    with student_programs(lab.solution) as students:
        for seed, shared in ((1, tmp_path), (1, tmp_path), (2, tmp_path), (1, None), (1, None)):
            assert run_test(test, lab.solution, students, {}, seed, shared=shared).passed
    assert len(made) == 4


def test_a_folder_that_may_not_be_read_costs_only_its_own_points(
    lab: Lab, marker: Grader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a folder without rights does, unless root marks it."""
    for name in ("ada", "closed"):
        shutil.copytree(lab.solution, tmp_path / name)
    entries = Path.iterdir

    def iterdir(folder: Path) -> Iterator[Path]:
        if folder.name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return entries(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    ada, closed = marker.marks(find_submissions(tmp_path, lab), 1)
    assert (ada.points, closed.points) == (MOST, 0)
    assert closed.note.endswith("closed: Permission denied")


@pytest.mark.parametrize(
    "name", ["=1", "=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", "\uff201"]
)
def test_no_name_is_a_formula(name: str) -> None:
    file = io.StringIO()
    write_csv([Marks(name, ())], file)
    [row] = csv.DictReader(io.StringIO(file.getvalue(), newline=""))
    assert row["student"] == f"'{name}"
