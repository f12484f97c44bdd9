"""`fanin lab`: exercises with tests, hints and solutions, and how a teacher marks them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fanin.cli_errors import ending, failing, failure
from fanin.experiments.scenario.tools import SwitchKind
from fanin.native.text import counted
from fanin.options import creatable, file_to_write
from fanin.output import say

if TYPE_CHECKING:
    from fanin.classroom.network_under_test import Surroundings
    from fanin.classroom.work_folder import WorkFolder

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="""Learn P4 in exercises with tests and hints; mark a class.

    A lab is a small task. Its tests run without root, in about two seconds. docs/tutorials/labs.md lists the labs,
    docs/how-to/class.md is for teachers.

    Examples:
        fanin lab list
        fanin lab start forwarding
    """,
)


def _in_creatable(file: Path | None) -> Path | None:
    """Refuse a file whose folder cannot be written before submissions are marked, not afterwards."""
    if file is not None:
        creatable(file.absolute().parent)
    return file


Folder = Annotated[Path, typer.Argument(metavar="[DIR]", file_okay=False, help="Folder of the lab")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything that the tests draw")]


@app.command("list")
def list_labs(
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each lab")] = False,
) -> None:
    """List the labs, their durations, and how far you are.

    How far you are is shown for the labs that you have started in this folder: tests that passed in the last check.

    Examples:
        fanin lab list
        fanin lab list --json
    """
    from fanin.classroom.manifest import labs
    from fanin.classroom.work_folder import enclosing, started
    from fanin.table import new_table, print_records, print_table

    inside = enclosing(Path())
    mine = [*started(Path() if inside is None else inside.parent)]
    records: list[dict[str, Any]] = [
        {
            "lab": lab.name,
            "title": lab.manifest.title,
            "minutes": lab.manifest.minutes,
            "started": [
                {"folder": work.folder.name, "passed": work.progress.passed, "tests": work.progress.tests}
                for work in mine
                if work.lab.folder == lab.folder
            ],
        }
        for lab in labs()
    ]
    if as_json:
        print_records(records)
        return
    columns = ["lab", "subject"] + ["passed here"] * bool(mine)
    table = new_table(columns, "minutes")
    for record in records:
        here = ", ".join(
            (f"{each['passed']} of {each['tests']}" if each["tests"] else "started")
            + (f" in {each['folder']}" if each["folder"] != record["lab"] else "")
            for each in record["started"]
        )
        row = [record["lab"], record["title"], *([here] if mine else []), str(record["minutes"])]
        table.add_row(*row)
    print_table(table)


@app.command("start")
def start_lab(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name or number of the lab, or a folder with a lab.toml")
    ],
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Folder to create (default: the name of the lab)")
    ] = None,
) -> None:
    """Create a folder with the files of a lab to edit.

    Examples:
        fanin lab start forwarding
        fanin lab start 1 my-router
    """
    from fanin.classroom.manifest import CLONE, LabError, find_lab
    from fanin.classroom.work_folder import start

    with failing("lab", LabError, status=2):
        lab = find_lab(name)
        target = folder or Path(lab.name)
        if target.resolve().is_relative_to(CLONE):
            raise failure(
                "lab",
                f"{target} would lie in the files of fanin itself; keep yours apart: "
                f"fanin lab start {name} ~/{target.name}",
                2,
            )
        start(lab, target, name)
    say(
        f"{target}: README.md explains the task; edit {', '.join(lab.manifest.files)}. Then type:\n"
        f"  cd {target} && fanin lab check"
    )


@app.command("check")
def check_lab(
    folder: Folder = Path(),
    seed: Seed = 0,
    live: Annotated[
        bool, typer.Option("--live", help="Run them in a live network of Mininet, not in virtual time")
    ] = False,
    switch: Annotated[
        SwitchKind, typer.Option(help="Switch software; bmv2 (FANIN_BMV2) implies --live")
    ] = "embedded",
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each test")] = False,
) -> None:
    """Run the tests of a lab on your files.

    The first failure is a story: the steps that ran, what was expected and what happened, and the path of the packet
    through your program. The exit status is 0 if all tests passed that can run on this switch, 1 if not.

    Examples:
        fanin lab check
        fanin lab check my-router --live
    """
    work = _work(folder)
    if not (
        _check_live(work, seed, switch, as_json=as_json)
        if live or switch == "bmv2"
        else _check(work, seed, as_json=as_json)
    ):
        raise typer.Exit(1)


@app.command("watch")
def watch_lab(folder: Folder = Path(), seed: Seed = 0) -> None:
    """Run the tests again whenever you save a file, until Ctrl-C.

    Examples:
        fanin lab watch
        fanin lab watch my-router
    """
    from fanin.classroom.watch import saves

    work = _work(folder)
    with ending():
        for changed in saves(work.folder, work.lab.manifest.files):
            say("\n" + ("" if changed is None else f"{changed} was saved"))
            _check(work, seed, as_json=False)
            say("\nwaiting for you to save a file; press Ctrl-C to stop")


@app.command("hint")
def show_hint(folder: Folder = Path()) -> None:
    """Give a hint for the test that failed first.

    It is the first failed test of the last check. Each time, the hint is clearer.

    Above it is what your program did in that test, as `fanin lab check` has found it in the trace.

    Examples:
        fanin lab hint
        fanin lab hint my-router
    """
    from fanin.classroom.manifest import LabError

    with failing("lab", LabError):
        work = _work(folder)
        found = work.hint(further=True)
    if found is None:
        raise failure("lab", "there are no hints for this test; read README.md again")
    hint, given, cured = found
    _say_causes(work)
    for number, stage in enumerate(hint.stages[:given], 1):
        say(f"{number} of {len(hint.stages)}: {stage}")
    say(f"see {hint.see}")
    if cured:
        say("the test now fails in another way than when you got the last hint; fanin lab check shows how")
    if given == len(hint.stages):
        say("this was the last hint; fanin lab solution shows one solution")


@app.command("solution")
def show_solution(folder: Folder = Path()) -> None:
    """Copy the solution next to your files, which stay.

    It goes into the folder solution/.

    Examples:
        fanin lab solution
        fanin lab solution my-router
    """
    from fanin.classroom.manifest import LabError

    with failing("lab", LabError):
        made = _work(folder).add_solution()
    say(f"{made}: one solution of several; compare it with yours")


@app.command("verify")
def verify_labs(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Labs to verify, or folders with a lab.toml (default: all)"),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Prove that the tests and hints of labs are right.

    The solution must pass, the skeleton and every planted mistake must fail, and each hint must point somewhere.

    Examples:
        fanin lab verify forwarding
        fanin lab verify labs/01-forwarding
    """
    from fanin.classroom.manifest import LabError, find_lab, labs
    from fanin.classroom.verify import verify

    with failing("lab", LabError, status=2):
        chosen = [find_lab(name) for name in names] if names else [*labs()]
    wrong = 0
    for lab in chosen:
        say(lab.name)
        for what, problem in verify(lab, seed=seed):
            wrong += bool(problem)
            say(f"  {'✗' if problem else '✓'} {what}" + (f": {problem}" if problem else ""))
    if wrong:
        raise failure("lab", f"{counted(wrong, 'problem')} in {', '.join(lab.name for lab in chosen)}")


@app.command("new")
def new_lab(
    folder: Annotated[Path, typer.Argument(metavar="NAME", help="Folder to create")],
) -> None:
    """Create a folder with a small lab of your own to edit.

    It has a manifest, a README, a skeleton, a solution, tests, hints and planted mistakes, and passes fanin lab verify.

    Examples:
        fanin lab new my-lab
        fanin lab verify my-lab
    """
    from fanin.classroom.manifest import LabError
    from fanin.classroom.work_folder import copy_folder
    from fanin.verbs.new import TEMPLATES

    with failing("lab", LabError, status=2):
        copy_folder(TEMPLATES.with_name("lab"), folder, another="fanin lab new NAME")
    for name in ("lab.toml", "README.md", "tests.py"):
        file = folder / name
        file.write_text(file.read_text().replace("NAME", folder.resolve().name))
    say(
        f"{folder}: edit tests.py first, then solution/, skeleton/ and lab.toml. To prove it:\n"
        f"  fanin lab verify {folder}"
    )


@app.command("grade")
def grade_submissions(
    submissions: Annotated[Path, typer.Argument(help="Folder with a folder for each submission")],
    name: Annotated[
        str, typer.Option("--lab", help="Name or number of the lab, or a folder with a lab.toml")
    ],
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of everything that the tests draw (default: a new one)")
    ] = None,
    further: Annotated[
        Path | None,
        typer.Option("--tests", exists=True, dir_okay=False, help="Further tests of your own, in Python"),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            parser=file_to_write,
            metavar="FILE",
            callback=_in_creatable,
            help="Where to write the points (default: grades-LAB.csv); an earlier table is renamed",
        ),
    ] = None,
    gradescope_folder: Annotated[
        Path | None,
        typer.Option(
            "--gradescope",
            file_okay=False,
            callback=creatable,
            help="Folder for Gradescope's results, a JSON file each",
        ),
    ] = None,
    at_once: Annotated[
        int | None, typer.Option("--processes", min=1, help="Submissions at a time (default: the cores)")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each submission")] = False,
) -> None:
    """Mark a folder of submissions, with the hidden tests.

    Each submission runs in sandboxes of its own: it has no network, sees no other submission and no test, and has
    limits of memory, processes, time and disk. That needs root or user namespaces; without them it marks nothing.

    Examples:
        fanin lab grade submissions --lab forwarding
        fanin lab grade submissions --lab 1 --seed 7 --gradescope results
    """
    import secrets

    from fanin.classroom.confine import require_sandboxes
    from fanin.classroom.grade import (
        Marks,
        find_submissions,
        grader,
        gradescope,
        is_archive,
        set_aside,
        shown,
        write_csv,
    )
    from fanin.classroom.manifest import LabError, find_lab
    from fanin.table import new_table, print_table
    from fanin.testbed.sandbox import SandboxError

    if not submissions.is_dir():
        raise failure("lab", f"{submissions}: no such folder; it has a folder for each submission", 2)
    with failing("lab", LabError, status=2):
        lab = find_lab(name)
        folders = find_submissions(submissions, lab)
    names = [shown(folder.name) for folder in folders]
    if gradescope_folder is not None:
        earlier = sorted(
            {file.name for file in gradescope_folder.glob("*.json")} - {f"{each}.json" for each in names}
        )
        if earlier:
            raise failure(
                "lab",
                f"{gradescope_folder} has results of other submissions: {', '.join(earlier[:3])}; "
                "remove them, or name another folder",
                2,
            )
    packed = [
        Marks(shown(each.name), (), "not marked, since it is not unpacked")
        for each in sorted(submissions.iterdir())
        if is_archive(each) and each.stem.removesuffix(".tar") not in names
    ]
    drawn = secrets.randbelow(1 << 31) if seed is None else seed
    marks = []
    with failing("lab", LabError, SandboxError, KeyboardInterrupt):
        require_sandboxes()
        with grader(lab, seed=drawn, further=further) as found:
            for each in found.marks(folders, at_once or os.cpu_count() or 1):
                marks.append(each)
                if as_json:
                    passed_tests = [outcome.test for outcome in each.outcomes if outcome.passed]
                    record = {"student": each.student, "points": each.points, "of": each.most}
                    say(json.dumps(record | {"passed": passed_tests, "note": each.summary(), "seed": drawn}))
                else:
                    note = f" ({each.summary()})" if each.summary() else ""
                    say(f"{each.student}: {each.points} of {each.most}{note}")
    if packed:
        say(
            f"not marked, since they are not unpacked: {', '.join(each.student for each in packed)}", err=True
        )
    table = table or Path(f"grades-{lab.name}.csv")
    table.parent.mkdir(parents=True, exist_ok=True)
    if kept := set_aside(table):
        say(f"{kept}: the table of an earlier marking, which was {table}", err=True)
    with table.open("w", newline="") as file:
        write_csv([*marks, *packed], file)
    if gradescope_folder is not None:
        gradescope_folder.mkdir(parents=True, exist_ok=True)
        for each in marks:
            (gradescope_folder / f"{each.student}.json").write_text(json.dumps(gradescope(each), indent=2))
    if as_json:
        return
    shown_table = new_table(["test"], "points", "passed by")
    for number, outcome in enumerate(marks[0].outcomes):
        passed = sum(each.outcomes[number].passed for each in marks)
        shown_table.add_row(outcome.test, str(outcome.points), f"{passed} of {len(marks)}")
    print_table(shown_table)
    say(f"{table}: the points of {counted(len(marks), 'submission')}; the same tests again: --seed {drawn}")


def _work(folder: Path) -> WorkFolder:
    from fanin.classroom.manifest import LabError
    from fanin.classroom.work_folder import WorkFolder

    with failing("lab", LabError, status=2):
        return WorkFolder(folder)


def _say_causes(work: WorkFolder) -> None:
    """Print what the student's program did that may have led to the failure."""
    for cause in work.progress.causes:
        say(f"your program: {cause}")


def _check_live(work: WorkFolder, seed: int, switch: SwitchKind, *, as_json: bool) -> bool:
    """Check a folder in live networks, print the outcome, and return whether all tests passed."""
    from fanin.testbed.sandbox import SandboxError, enter

    with failing("lab", SandboxError):
        enter()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its C core prints between our own lines
    # Imported here to refuse what is wrong fast.
    from fanin.classroom.live_networks import LiveNetworks
    from fanin.experiments.scenario.tools import ToolError
    from fanin.testbed.runs import scratch
    from fanin.topologies.errors import NetworkError

    logs = scratch()
    assert logs is not None  # as in every sandbox
    with failing("lab", ToolError, NetworkError), ending(), LiveNetworks(switch, logs) as networks:
        passed = _check(work, seed, as_json=as_json, surroundings=networks)
        if not networks.used and not as_json:
            say("no test of this lab needs a network, so that --live changes nothing")
        return passed


def _check(work: WorkFolder, seed: int, *, as_json: bool, surroundings: Surroundings | None = None) -> bool:
    """Check a folder, print the outcome, and return whether all tests passed that could run."""
    from fanin.classroom.check import check
    from fanin.classroom.manifest import next_lab
    from fanin.classroom.story import Outcome, told

    outcomes: list[Outcome] = []
    first: Outcome | None = None
    for outcome in check(work.lab, work.folder, seed=seed, surroundings=surroundings):
        outcomes.append(outcome)
        is_first = first is None and outcome.problem is not None
        first = outcome if is_first else first
        if as_json:
            say(json.dumps(outcome.document()))
            continue
        if outcome.not_run:
            say(f"- {outcome.title}\n  not run: {outcome.not_run}")
            continue
        say(f"{'✓' if outcome.passed else '✗'} {outcome.title}")
        if is_first:
            say(told(outcome))
    not_run = sum(bool(outcome.not_run) for outcome in outcomes)
    failed = [outcome.test for outcome in outcomes if outcome.problem is not None]
    work.remember(outcomes)
    if as_json:
        return not failed
    left_out = f", {not_run} cannot run here" if not_run else ""
    say(f"\n{len(outcomes) - len(failed) - not_run} of {len(outcomes)} tests pass{left_out}")
    if work.progress.broken:
        say("repair this first, and check again")
    elif not failed and (following := next_lab(work.lab)):
        say(
            f"next: {following.name}, {following.manifest.title}; type: cd .. && fanin lab start {following.name}"
        )
    elif failed and (found := work.hint(further=False)):
        hint, given, cured = found
        _say_causes(work)
        more = "a clearer one" if given < len(hint.stages) else "all hints"
        if cured:
            said = (
                "this test now fails in another way than when you got the last hint: see what differs above"
            )
        else:
            said = f"hint {given} of {len(hint.stages)}: {hint.stages[given - 1]}"
        say(f"{said}\n  for {more}: fanin lab hint")
    return not failed
