"""`fanin lesson`: questions about all-reduce that scenarios answer, listed and run."""

from __future__ import annotations

from typing import Annotated

import typer

from fanin.cli_errors import failing
from fanin.options import Changes, Jobs, Results

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="List the lessons that come with fanin, or run one: its table, its figure, what to see.",
)


@app.command("list")
def list_lessons() -> None:
    """List all lessons: name, question, and about how long they take on two cores."""
    from fanin.console import console
    from fanin.experiments.scenario.shipped import lessons
    from fanin.run_points import points_table

    table = points_table(["lesson", "what it is about"], "about s")
    for name, lesson in lessons().items():
        table.add_row(name, lesson.title, str(lesson.seconds))
    console.print(table, highlight=False)


@app.command("run")
def run_lesson(
    name: Annotated[str, typer.Argument(metavar="NAME", help="of the lesson, as 'fanin lesson list' has it")],
    small: Annotated[bool, typer.Option("--small", help="little of it, within seconds")] = False,
    changes: Changes = [],  # noqa: B006 - typer's way
    results: Results = None,
    jobs: Jobs = None,
) -> None:
    """Run a lesson: print its table and what GPUs that wait would cost, draw its figure, say what to see.

    It is the scenario lesson:NAME, which fanin run and fanin sweep take as well.
    """
    # Not above: it takes a second, for which --help and a wrong option should not wait.
    from fanin.experiments.scenario.file import ScenarioError, load_scenario
    from fanin.experiments.scenario.shipped import scenario_file
    from fanin.run_points import load, run_scenario

    file = f"lesson:{name}"
    with failing("lesson", ScenarioError, status=2):
        lesson = load_scenario(scenario_file(file)).frame.lesson
    assert lesson is not None
    said = [*(lesson.small if small else ()), *changes]
    run_scenario("lesson", file, load("lesson", file, said), said, results, afresh=True, jobs=jobs)
