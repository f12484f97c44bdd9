"""Scenarios in a notebook: they run in its process and return rows and figures as values, without files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fanin.experiments.models.prediction import predicted_call_seconds
from fanin.experiments.results.axes import value_text
from fanin.experiments.results.drawing.plot import draw
from fanin.experiments.results.drawing.series import select, series
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.file import Scenario, ScenarioError, load_scenario
from fanin.experiments.scenario.shipped import scenario_file
from fanin.experiments.scenario.user_files import program_of
from fanin.experiments.sweep import run_point


class PointError(Exception):
    """A point of a scenario that failed; the message explains which, and why."""


@dataclass(frozen=True, slots=True)
class Found:
    """The results of a scenario.

    Attributes:
        scenario: The scenario that ran.
        rows: A row for each point, as in results.json.
    """

    scenario: Scenario
    rows: Sequence[Row]

    @property
    def table(self) -> list[dict[str, str]]:
        """Return the settings in which points differ, and their median times, as text."""
        return [
            {name: value_text(name, row[name]) for name in self.scenario.varied}
            | {"median ms": f"{1e3 * row['median_seconds']:.4g}", "resent": f"{row['retransmissions']:,}"}
            for row in self.rows
        ]

    def figure(self, title: str) -> str:
        """Draw the scenario's figure with this title and return it as SVG.

        Raises:
            PlotError: If it cannot be drawn.
            ScenarioError: If the scenario has no figure.
        """
        plot = self.scenario.frame.plot
        if plot is None:
            raise ScenarioError(f"{self.scenario.frame.name}: has no figure; add a table [plot]")
        with TemporaryDirectory() as folder:
            path = Path(folder, "figure.svg")
            draw(series(select(self.rows, plot.where), plot), plot.model_copy(update={"title": title}), path)
            return path.read_text()


def run(file: str, *changes: str) -> Found:
    """Run a scenario in virtual time.

    Args:
        file: A scenario file, or the name of a shipped one, as for `fanin run`.
        changes: Changes such as "topology.leaf_spine.leaves=4", as for `fanin run --set`.

    Raises:
        ScenarioError: If the scenario is invalid or has live points.
        CompileError: If the program cannot be compiled.
        ToolError: If there is no compiler for it.
        PointError: If a point fails.
    """
    scenario = load_scenario(scenario_file(file), changes, predicted_call_seconds)
    if any(point.world == "live" for point in scenario.points):
        raise ScenarioError(f"{file}: world: is live, which needs separate namespaces; run it with fanin run")
    rows = [run_point(point, program_of(point).device_config) for point in scenario.points]
    for point, row in zip(scenario.points, rows, strict=True):
        if row["error"] is not None:
            raise PointError(f"{file}: {point.topology.table}, seed {point.seed}: {row['error']}")
    choices = scenario.choices
    return Found(
        scenario, [row | choices[row["key"]].columns if row["key"] in choices else row for row in rows]
    )
