"""`fanin demo`: what it makes of what was measured, and of what it cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fanin.experiments.demo
import fanin.verbs.demo
from fanin.cli import app
from fanin.experiments.demo import Demo, demo_points
from fanin.experiments.live.worker_group import RunError
from fanin.experiments.results.files import read_rows
from fanin.experiments.results.summary import Run
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.topology import LeafSpine, TopologySettings
from tests.experiments.results.runs import BARE, CURVE, RING, RUN, run

pytestmark = pytest.mark.slow

RUNS = [RUN, RING, BARE, run(size="4 MB", algorithm="ring")]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Give the demo these measurements instead of those of a network."""
    runs = list(RUNS)
    monkeypatch.setattr(fanin.verbs.demo, "enter", lambda: None)
    monkeypatch.setattr(fanin.experiments.demo, "run_demo", lambda *_, **__: Demo(runs, CURVE))
    return runs


def demo(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["demo", *map(str, arguments)], env={"COLUMNS": "200"})
    return done.exit_code, done.output


@pytest.mark.usefixtures("measured")
def test_all_is_well_if_every_sum_is_within_its_bound(tmp_path: Path) -> None:
    status, output = demo("--results", tmp_path)
    assert status == 0
    assert "in-network takes 0.60 of ring's time" in " ".join(output.split())
    assert (tmp_path / "summary.json").exists()
    assert [row["algorithm"] for row in read_rows(tmp_path)] == ["in-network", "ring"] * 2


@pytest.mark.usefixtures("measured")
def test_with_another_protocol_it_compares_the_bytes_that_were_sent(
    measured: list[Run], tmp_path: Path
) -> None:
    size, kilobytes = "4 MB", [one.measured.wire_bytes_per_worker / 1e3 for one in measured[2:]]
    measured[2] = run(size=size, protocol="majority")
    status, output = demo("--results", tmp_path, "--protocol", "majority")
    assert status == 0
    told = " ".join(output.split())
    assert f"each worker sends and receives {kilobytes[0]:,.0f} kB instead of {kilobytes[1]:,.0f}." in told
    assert "explain" not in told


def test_the_points_of_a_protocol_have_its_program_and_workers() -> None:
    network = TopologySettings(leaf_spine=LeafSpine(spines=1, leaves=2, hosts_per_leaf=2))
    points = demo_points(network, protocol="majority")
    assert {one.implementation.name for one in points if one.algorithm == "in-network"} == {"majority"}


@pytest.mark.parametrize(
    ("given", "rate"), [((), 10**8), (("--rate", "2 Gb/s"), 2 * 10**9), (("--rate", "unlimited"), None)]
)
def test_all_links_have_the_rate_that_is_given(
    given: tuple[str, ...],
    rate: int | None,
    measured: list[Run],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    asked: list[Sequence[Settings]] = []
    monkeypatch.setattr(
        fanin.experiments.demo,
        "run_demo",
        lambda points, *_, **__: asked.append(points) or Demo(measured, CURVE),
    )
    status, _ = demo("--results", tmp_path, *given)
    assert status == 0
    assert {link.rate_bits_per_second for one in asked[0] for link in one.network.links} == {rate}


def test_a_sum_outside_its_bound_fails_the_demo_after_the_results_are_written(
    measured: list[Run], tmp_path: Path
) -> None:
    measured[0] = run(violations=1)
    status, output = demo("--results", tmp_path)
    assert status == 1
    assert "sums outside their bound: training in-network" in output
    assert (tmp_path / "summary.json").exists()


@pytest.mark.usefixtures("measured")
def test_a_run_that_does_not_finish_fails_it_and_says_who_waited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stall(*_: object, **__: object) -> Demo:
        raise RunError("the run did not finish:\n  worker 3: still in all-reduce 7")

    monkeypatch.setattr(fanin.experiments.demo, "run_demo", stall)
    status, output = demo("--results", tmp_path)
    assert status == 1
    assert "worker 3: still in all-reduce 7" in output


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--workers", "7"], "7 workers cannot be spread evenly over 2 leaves"),
        (["--workers", "1", "--leaves", "1"], "--workers"),
        (["--leaves", "0"], "--leaves"),
        (["--loss", "2"], "--loss"),
        (["--spines", "0"], "spines: is 0"),
        (["--loss", "51%"], "0.51: at most 0.5"),
        (["--loss", "2%%"], "write a number from 0 to 1, or a percentage such as '1%'"),
        (["--rate", "0 Mb/s"], "rate: is 0"),
        (["--protocol", "nothere"], "nothere: no such folder; give the folder of a protocol"),
        (["--rate", "100"], "100: write a number and its unit, such as '100 Mb/s'"),
    ],
)
@pytest.mark.usefixtures("measured")
def test_what_cannot_be_is_refused_by_name(arguments: list[str], complaint: str) -> None:
    status, output = demo(*arguments)
    assert status != 0
    assert complaint in output
