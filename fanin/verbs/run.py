"""`fanin run`: an experiment as its scenario describes it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fanin.experiments.scenario.tools import Compiler, SwitchKind
from fanin.options import Changes, ControllerFile, Program, Results, ScenarioFile, WorkerFile, brought
from fanin.output import say


def _print_schema(wanted: bool) -> None:
    if wanted:
        from fanin.experiments.scenario.schema import scenario_schema

        say(json.dumps(scenario_schema(), indent=1))
        raise typer.Exit


def run(
    scenario: ScenarioFile,
    changes: Changes = [],  # noqa: B006 - typer's way
    switch: Annotated[
        SwitchKind | None, typer.Option(help="what runs as a switch, as --set switch=…")
    ] = None,
    program: Program = None,
    compiler: Annotated[Compiler | None, typer.Option(help="what compiles, as --set compiler=…")] = None,
    controller: ControllerFile = None,
    worker: WorkerFile = None,
    results: Results = None,
    _schema: Annotated[
        bool,
        typer.Option(
            "--schema", callback=_print_schema, is_eager=True, help="print the JSON Schema of scenarios"
        ),
    ] = False,
) -> None:
    """Run a scenario, live or in virtual time: all its points, its table, its figure."""
    from fanin.run_points import load, run_scenario

    chosen = [f"{key}={value}" for key, value in (("switch", switch), ("compiler", compiler)) if value]
    said = [*changes, *chosen, *brought(program=program, controller=controller, worker=worker)]
    run_scenario("run", scenario, load("run", scenario, said), said, results, afresh=True)
