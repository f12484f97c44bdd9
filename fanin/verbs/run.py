"""`fanin run`: the experiment that a scenario describes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fanin import options
from fanin.experiments.scenario.tools import Compiler, SwitchKind
from fanin.output import say


def _print_schema(wanted: bool) -> None:
    if wanted:
        from fanin.experiments.scenario.schema import scenario_schema

        say(json.dumps(scenario_schema(), indent=1))
        raise typer.Exit


def run(
    scenario: options.ScenarioFile,
    changes: options.Changes = [],  # noqa: B006 - typer's way
    switch: Annotated[SwitchKind | None, typer.Option(help="Switch software, as with --set switch=…")] = None,
    program: options.Program = None,
    compiler: Annotated[Compiler | None, typer.Option(help="P4 compiler, as with --set compiler=…")] = None,
    controller: options.ControllerFile = None,
    worker: options.WorkerFile = None,
    results: options.Results = None,
    cores: Annotated[
        int,
        typer.Option(
            min=1,
            max=options.MOST_CORES,
            help="Number of cores that may share the work of one point in virtual time; results do not depend on it",
        ),
    ] = 1,
    as_json: options.PointsAsJson = False,
    _schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            callback=_print_schema,
            is_eager=True,
            help="Print the JSON Schema of scenarios and exit",
        ),
    ] = False,
) -> None:
    """Run a scenario, print its table and draw its figure.

    Each point of the scenario runs live or in virtual time, as the scenario specifies (docs/how-to/scenario.md).

    Examples:
        fanin run lesson:loss
        fanin run scenario:small-virtual --set loss=0,0.01
    """
    from fanin.run_points import load, run_scenario

    chosen = [f"{key}={value}" for key, value in (("switch", switch), ("compiler", compiler)) if value]
    said = [*changes, *chosen, *options.brought(program=program, controller=controller, worker=worker)]
    run_scenario(
        *("run", scenario, load("run", scenario, said), said, results),
        afresh=True,
        cores_each=cores,
        as_json=as_json,
    )
