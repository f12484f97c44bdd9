"""Recording the points of a scenario, for `fanin animate` and `fanin lesson run --theatre`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.cli_errors import failing, failure

if TYPE_CHECKING:
    from fanin.experiments.scenario.file import Scenario
    from fanin.experiments.virtual.recording import PacketRecording

_MOST_POINTS = 4
MOST_IN_THEATRE = 20_000  # packets; its file has about 50 bytes for each
_ROUGHLY = 2  # times as many packets as there may be are refused before the run, which would take long


def record_points(verb: str, file: str, scenario: Scenario, most: int | None) -> list[PacketRecording]:
    """Return a recording of each point, and show progress.

    Args:
        verb: The name of the verb, for errors.
        file: The scenario as the user has written it, for errors.
        scenario: The scenario.
        most: The most packets that the last all-reduces of all points may have on links; None sets no limit.

    Raises:
        typer.Exit: With status 2 if there are too many points or packets, or a point cannot be recorded; with 1 if its
            run fails.
    """
    from fanin.controller.errors import ControllerError
    from fanin.experiments.estimate import packet_hops
    from fanin.experiments.results.axes import value_label
    from fanin.experiments.scenario.settings import setting_columns
    from fanin.experiments.scenario.tools import ToolError
    from fanin.experiments.scenario.user_files import program_of
    from fanin.experiments.virtual.outcome import UnfinishedError
    from fanin.experiments.virtual.recording import RecordingError, record
    from fanin.native.python_file import PythonFileError
    from fanin.p4compiler import CompileError
    from fanin.p4switch.engine.engine import Engine
    from fanin.progress import Steps
    from fanin.simulator.deadlock import DeadlockError
    from fanin.workers.collective import CollectiveError

    if len(scenario.points) > _MOST_POINTS:
        raise failure(
            verb,
            f"{file}: {len(scenario.points)} points; choose at most {_MOST_POINTS} with --set, such as --set seed=1",
            2,
        )
    if most is not None:
        virtual = [point for point in scenario.points if point.size is not None]
        expected = round(sum(packet_hops(point) / point.repetitions for point in virtual))
        if expected > _ROUGHLY * most:
            raise failure(verb, f"about {too_many(expected, most)}", 2)
    recordings = []
    with (
        failing(verb, RecordingError, status=2),
        failing(verb, ControllerError, PythonFileError, ToolError, CompileError),
        failing(verb, CollectiveError, UnfinishedError, DeadlockError, KeyboardInterrupt),
        Steps("points", len(scenario.points)) as progress,
    ):
        for point in scenario.points:
            row = setting_columns(point)
            labels = [value_label(name, row[name]) for name in scenario.varied if row.get(name) is not None]
            name = ", ".join(labels) or scenario.frame.name
            recordings.append(record(name, point, Engine.load(program_of(point).device_config)))
            progress.advance()
    return recordings


def too_many(count: int, most: int) -> str:
    """Return the error of points with too many packets."""
    return (
        f"{count:,} packets on links are too many for one drawing ({most:,}); choose a smaller vector, such as "
        "--set size=16kB, or fewer points"
    )


def write_theatre(
    verb: str,
    scenario: Scenario,
    description: str,
    changes: Sequence[str],
    recordings: Sequence[PacketRecording],
    path: Path,
) -> None:
    """Write the page that plays the last all-reduce of each recording.

    Its title has the scenario's name and the changes, such as "in-network-and-ring, loss=0.02".

    Raises:
        typer.Exit: With status 2 if there are too many packets, with 1 if the file cannot be written.
    """
    from fanin.browser.theatre import theatre_page
    from fanin.experiments.virtual.recording_document import recording_document

    scenes = [each.last_all_reduce() for each in recordings]
    if (count := sum(len(each.flights) for each in scenes)) > MOST_IN_THEATRE:
        raise failure(verb, too_many(count, MOST_IN_THEATRE), 2)
    page = theatre_page(recording_document(", ".join([scenario.frame.name, *changes]), description, scenes))
    with failing(verb, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page)
