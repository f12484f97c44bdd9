"""Points of the scenarios that repeat figures of papers give the numbers that the document shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fanin.experiments.models.prediction import predicted_call_seconds
from fanin.experiments.results.files import Journal
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.shipped import scenario_file
from fanin.experiments.sweep import run_points
from tests.experiments.watch import Watch

DOCUMENT = Path(__file__).parents[2] / "docs" / "measurements" / "papers.md"

Cells = Callable[[Sequence[Row]], str]


def median(row: Row, digits: int = 3) -> str:
    """Return a row's median time in milliseconds."""
    return f"{1e3 * row['median_seconds']:.{digits}f}"


def two_medians(rows: Sequence[Row]) -> str:
    """Return the cells of two rows' median times, and of their ratio."""
    network, ring = rows
    ratio = ring["median_seconds"] / network["median_seconds"]
    return f"{median(network)} | {median(ring)} | {ratio:.2f}"


def medians(rows: Sequence[Row]) -> str:
    """Return the median times of rows in one cell."""
    return ", ".join(map(median, rows))


def saving(rows: Sequence[Row]) -> str:
    """Return by how much the second row's median time is less than the first one's."""
    slow, fast = (row["median_seconds"] for row in rows)
    return f"{100 * (1 - fast / slow):.0f} %"


def steps(rows: Sequence[Row]) -> str:
    """Return the cells of each row's mean step."""
    return " | ".join(f"{1e3 * row['step_seconds']:.2f}" for row in rows)


def flows(rows: Sequence[Row]) -> str:
    """Return the cells of two rows' mean times of flows, and of their ratio."""
    slow, fast = (row["traffic_mean_seconds"] for row in rows)
    return f"{1e6 * slow:.0f} µs | {1e6 * fast:.0f} µs | {slow / fast:.2f} |"


CASES: dict[str, tuple[Sequence[str], Cells]] = {
    "switchml": (["workers=8"], lambda rows: f"| 8 | {two_medians(rows)} | 2.26 |"),
    "klenk": (
        ["algorithm=ring", "size=1 kB,4 kB,16 kB,64 kB"],
        lambda rows: (
            "| ring, µs | " + " | ".join(f"{1e6 * row['median_seconds']:.0f}" for row in rows) + " |"
        ),
    ),
    "atp": (["algorithm=ring"], lambda rows: f"| ring | {1e3 * rows[0]['step_seconds']:.1f} |"),
    "go-back-n": (
        ["loss=0", "seed=1"],
        lambda rows: "| 0 | " + " | ".join(f"{median(row, 2)} ms" for row in rows) + " |",
    ),
    "canary": (["seed=1"], lambda rows: f"| 1 | {median(rows[0])} | {median(rows[1])} | {saving(rows)} |"),
    "canary-fat-tree": (
        ["protocol=canary"],
        lambda rows: f"| Canary | 0.481, 0.543, 0.561 | {medians(rows)} |",
    ),
    "hedera": (["seed=1"], lambda rows: f"| 1 | {flows(rows)}"),
    "irn": (["seed=0"], lambda rows: f"| 0 | {1e6 * rows[0]['traffic_mean_seconds']:.1f} µs |"),
    "irn-roce": (["seed=0"], lambda rows: f"| {1e6 * rows[0]['traffic_mean_seconds']:.0f} µs | 41 % |"),
    "megatron": (["parallelism_micro_batches=8"], lambda rows: f"| 8 | {steps(rows)} |"),
    "llama-3": (
        ["failures_interval=4 min", "failures_restart=10 min"],
        lambda rows: f"| 10 min | {rows[0]['lost_share']:.1%} |".replace("%", " %"),
    ),
}


@pytest.mark.slow
@pytest.mark.few(0)
@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_the_document_shows_what_a_run_gives(case: str, tmp_path: Path) -> None:
    changes, cells = CASES[case]
    scenario = load_scenario(scenario_file(f"paper:{case}"), changes, predicted_call_seconds)
    rows = run_points(scenario.points, Journal(tmp_path), tmp_path, Watch())
    assert [row["error"] for row in rows] == [None] * len(rows)
    assert sum(row["violations"] for row in rows) == 0
    assert cells(rows) in DOCUMENT.read_text()


@pytest.mark.slow
@pytest.mark.few(0)
@pytest.mark.long
def test_the_knee_of_dctcp_is_where_the_formula_has_it(tmp_path: Path) -> None:
    changes = ["ecn_bytes=2 kB,18 kB,144 kB", "size=50 MB"]
    points = load_scenario(scenario_file("paper:dctcp"), changes, predicted_call_seconds).points
    below, at, above = (
        row["median_seconds"] for row in run_points(points, Journal(tmp_path), tmp_path, Watch())
    )
    assert below > 1.005 * above
    assert at == pytest.approx(above, rel=0.005)
