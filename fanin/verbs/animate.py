"""`fanin animate`: the packets of a scenario's points as an animated drawing, or as a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.options import Changes, ScenarioFile
from fanin.output import say

_MOST_POINTS = 4


def animate(
    scenario: ScenarioFile,
    changes: Changes = [],  # noqa: B006 - typer's way
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            dir_okay=False,
            help="SVG file, or a trace if it ends in .json; results/NAME/animation.svg by default",
        ),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            min=1, max=120, help="Seconds that the longest all-reduce takes in the drawing; 10 by default"
        ),
    ] = None,
) -> None:
    """Draw packets as an animated SVG, or write a run's trace.

    Each point of the scenario gets a panel, and all panels have one clock, so you see which ends first. Open the file
    in a browser. The last repetition is drawn, in virtual time. Choose a small vector and few workers, so that you can
    follow it.

    If the output ends in .json, the whole run is written as a trace, with any number of packets: a track for the calls
    of each worker, and one for the packets of each link. Open it in ui.perfetto.dev or chrome://tracing.

    Examples:
        fanin animate scenario:in-network-and-ring
        fanin animate scenario:in-network-and-ring -o trace.json
    """
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.controller.errors import ControllerError
    from fanin.controller.python_file import PythonFileError
    from fanin.experiments.animation import AnimationError, Scene, draw
    from fanin.experiments.models.prediction import predicted_call_seconds
    from fanin.experiments.results.axes import value_label
    from fanin.experiments.scenario.file import ScenarioError, load_scenario
    from fanin.experiments.scenario.settings import setting_columns
    from fanin.experiments.scenario.shipped import scenario_file
    from fanin.experiments.scenario.tools import ToolError
    from fanin.experiments.scenario.user_files import program_of
    from fanin.experiments.trace_events import trace_events
    from fanin.experiments.virtual.outcome import UnfinishedError
    from fanin.experiments.virtual.recording import RecordingError, record
    from fanin.p4compiler import CompileError
    from fanin.p4switch.engine.engine import Engine
    from fanin.progress import Steps
    from fanin.simulator.deadlock import DeadlockError
    from fanin.workers.collective import CollectiveError

    with failing("animate", ScenarioError, status=2):
        loaded = load_scenario(scenario_file(scenario), changes, predicted_call_seconds)
    if len(loaded.points) > _MOST_POINTS:
        raise failure(
            "animate",
            f"{scenario}: {len(loaded.points)} points; choose at most {_MOST_POINTS} with --set, such as --set seed=1",
            2,
        )
    path = output or Path("results", loaded.frame.name, "animation.svg")
    if duration is not None and path.suffix == ".json":
        raise failure(
            "animate",
            f"--duration {duration:g}: is for drawings, and {path} is a trace in virtual time; leave it out",
            2,
        )
    with (
        failing("animate", AnimationError, RecordingError, status=2),
        failing("animate", ControllerError, PythonFileError, ToolError, CompileError),
        failing("animate", CollectiveError, UnfinishedError, DeadlockError, KeyboardInterrupt),
    ):
        traced = path.suffix == ".json"
        recordings, scenes = [], []
        with Steps("points", len(loaded.points)) as progress:
            for point in loaded.points:
                row = setting_columns(point)
                labels = [value_label(name, row[name]) for name in loaded.varied if row.get(name) is not None]
                name = ", ".join(labels) or loaded.frame.name
                recording = record(name, point, Engine.load(program_of(point).device_config))
                if traced:
                    recordings.append(recording)
                else:
                    scenes.append(Scene.of(recording))
                progress.advance()
        if traced:
            text, viewer = json.dumps(trace_events(recordings)), "ui.perfetto.dev or chrome://tracing"
        else:
            text, viewer = draw(scenes, 10 if duration is None else duration), "a browser"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    say(f"wrote {path}; open it in {viewer}")
