"""`fanin animate`: the packets of a scenario's points as an animated drawing, as a page to play, or as a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.options import Changes, ScenarioFile, file_to_write
from fanin.output import say


def animate(
    scenario: ScenarioFile,
    changes: Changes = [],  # noqa: B006 - typer's way
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            parser=file_to_write,
            metavar="FILE",
            help="SVG file, a page if it ends in .html, or a trace if in .json; results/NAME/animation.svg by default",
        ),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(
            min=1, max=120, help="Seconds that the longest all-reduce takes in the drawing; 10 by default"
        ),
    ] = None,
) -> None:
    """Draw packets as an animated SVG, a page, or a trace.

    Each point of the scenario gets a panel, and all panels have one clock, so you see which ends first. Open the file
    in a browser. The last repetition is drawn, in virtual time. Choose a small vector and few workers, so that you can
    follow it.

    If the output ends in .html, it is the theatre: one file that plays the packets, pauses, steps, and shows slots that
    fill and packets that are lost in slow motion. It needs no server and no network.

    If the output ends in .json, the whole run is written as a trace, with any number of packets. It has tracks for the
    calls of each worker, the sums of each bucket, the packets of each link, and the chunks in each slot of a switch.
    Open it in ui.perfetto.dev or chrome://tracing.

    Examples:
        fanin animate scenario:in-network-and-ring
        fanin animate scenario:in-network-and-ring --set loss=0.02 -o theatre.html
    """
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.experiments.animation import MOST_FLIGHTS, AnimationError, draw
    from fanin.experiments.models.prediction import predicted_call_seconds
    from fanin.experiments.scenario.file import ScenarioError, load_scenario
    from fanin.experiments.scenario.shipped import scenario_file
    from fanin.experiments.trace_events import trace_events
    from fanin.record_points import MOST_IN_THEATRE, record_points, write_theatre

    with failing("animate", ScenarioError, status=2):
        loaded = load_scenario(scenario_file(scenario), changes, predicted_call_seconds)
    path = output or Path("results", loaded.frame.name, "animation.svg")
    if duration is not None and path.suffix in {".json", ".html"}:
        raise failure(
            "animate",
            f"--duration {duration:g}: is for drawings, and {path} has the times of the run; leave it out",
            2,
        )
    limits = {".html": MOST_IN_THEATRE, ".json": None}
    recordings = record_points("animate", scenario, loaded, limits.get(path.suffix, MOST_FLIGHTS))
    if path.suffix == ".html":
        write_theatre("animate", loaded, loaded.frame.description, changes, recordings, path)
        say(f"wrote {path}; open it in a browser")
        return
    with failing("animate", AnimationError, status=2):
        if path.suffix == ".json":
            text, viewer = json.dumps(trace_events(recordings)), "ui.perfetto.dev or chrome://tracing"
        else:
            text, viewer = draw([each.last_all_reduce() for each in recordings], duration or 10), "a browser"
    with failing("animate", OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    say(f"wrote {path}; open it in {viewer}")
