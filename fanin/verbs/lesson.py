"""`fanin lesson`: experiments that explain all-reduce."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.options import Changes, PointsAsJson, Processes, Results
from fanin.output import say

if TYPE_CHECKING:
    from fanin.experiments.scenario.file import Lesson

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="""List the lessons, or run one.

    A lesson is a short experiment about all-reduce, with a page of docs/tutorials/lessons that explains it.

    Examples:
        fanin lesson list
        fanin lesson run loss --small
    """,
)


@app.command("list")
def list_lessons(
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each lesson")] = False,
) -> None:
    """List the lessons with their subjects and durations.

    Durations are rough, on two cores.

    Examples:
        fanin lesson list
        fanin lesson list --json
    """
    from fanin.experiments.scenario.shipped import lessons
    from fanin.table import new_table, print_records, print_table

    records = [
        {"lesson": name, "title": lesson.title, "seconds": lesson.seconds}
        for name, lesson in lessons().items()
    ]
    if as_json:
        print_records(records)
        return
    table = new_table(["lesson", "subject"], "about s")
    for record in records:
        table.add_row(*map(str, record.values()))
    print_table(table)


@app.command("run")
def run_lesson(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the lesson (see fanin lesson list)")],
    small: Annotated[bool, typer.Option("--small", help="Run a smaller version that takes seconds")] = False,
    theatre: Annotated[
        bool,
        typer.Option(
            "--theatre", help="Show the packets of a tiny version in the browser, and run nothing else"
        ),
    ] = False,
    changes: Changes = [],  # noqa: B006 - typer's way
    results: Results = None,
    as_json: PointsAsJson = False,
    processes: Processes = None,
) -> None:
    """Run a lesson, and explain what its table and figure show.

    It also prints the cost of waiting GPUs.

    A lesson is the scenario lesson:NAME, which fanin run and fanin sweep accept as well.

    Examples:
        fanin lesson run loss --small --set loss=0,0.01
        fanin lesson run loss --theatre
    """
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.experiments.scenario.file import ScenarioError, load_frame
    from fanin.experiments.scenario.shipped import scenario_file
    from fanin.run_points import load, run_scenario

    file = f"lesson:{name}"
    with failing("lesson", ScenarioError, status=2):
        lesson = load_frame(scenario_file(file)).lesson
    assert lesson is not None
    if theatre:
        _show_packets(name, lesson, changes, results)
        return
    said = [*(lesson.small if small else ()), *changes]
    scenario = load("lesson", file, said)
    run_scenario("lesson", file, scenario, said, results, afresh=True, processes=processes, as_json=as_json)


def _show_packets(name: str, lesson: Lesson, changes: Sequence[str], results: Path | None) -> None:
    """Write the page that plays the lesson's packets, and open it where there is a screen."""
    from fanin.experiments.models.prediction import predicted_call_seconds
    from fanin.experiments.scenario.file import ScenarioError, load_scenario
    from fanin.experiments.scenario.shipped import lessons, scenario_file
    from fanin.record_points import MOST_IN_THEATRE, record_points, write_theatre

    if not lesson.theatre:
        those = ", ".join(other for other, found in lessons().items() if found.theatre)
        raise failure("lesson", f"{name} has no theatre; these lessons have one: {those}", 2)
    file = f"lesson:{name}"
    changes = [*lesson.theatre, *changes]
    with failing("lesson", ScenarioError, status=2):
        scenario = load_scenario(scenario_file(file), changes, predicted_call_seconds)
    path = (results or Path("results", scenario.frame.name)) / "theatre.html"
    recordings = record_points("lesson", file, scenario, MOST_IN_THEATRE)
    write_theatre("lesson", scenario, lesson.title, changes, recordings, path)
    say(f"wrote {path}; open it in a browser")
    if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(path.resolve().as_uri())
