"""The first lines of a report, and its picture of the step."""

from __future__ import annotations

import re
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.report.html_report import page
from fanin.experiments.report.overview import points_of, sentences
from fanin.experiments.results.drawing.steps import MeanStep, draw_steps
from fanin.experiments.results.measured import Row, row
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

pytestmark = pytest.mark.slow
STEP = {"forward": "100 us", "backward": "200 us", "bucket": "25 kB"}


def ran(switch: Engine, **settings: Any) -> tuple[Row, Usage | None]:
    shape = {"spines": 2, "leaves": 2, "hosts_per_leaf": 2, "rate": "10 Gb/s"}
    point = Settings.model_validate({"topology": {"leaf_spine": shape}, "size": "100 kB"} | settings).settled
    measured = run_virtual(point, switch)
    return row(point, measured), measured.usage


def test_the_cause_its_price_and_the_change_come_first(switch: Engine) -> None:
    runs = [ran(switch, step=STEP), ran(switch, step=STEP | {"loading": "300 us"})]
    points = points_of(runs, ["a", "b"], None)
    cause, price, cheapest, change = sentences(points)
    least, most = (1000 * 4 * 30 / 3600 * row["step_seconds"] for row, _ in runs)
    assert cheapest == f"1,000 steps cost least with a: {least:,.3g} $. They cost most with b: {most:,.3g} $."
    assert "With 64 GPUs at 2.5 $ an hour each" in sentences(points, 2.5, [64])[1]
    said, evidence = cause.split(" Evidence: ")
    assert re.fullmatch(r"Cause of most lost time with b: data loader \(about 4\d% of the time\)\.", said)
    assert points[1].diagnosis is not None
    assert evidence == f"{points[1].diagnosis.findings[0].evidence}."
    assert "300 us" in evidence
    idle = runs[1][0]["gpu_idle_share"]
    assert price.startswith(
        f"GPUs idle for {idle:.1%} of the time with b. With 1,024 GPUs at 30 $ an hour each"
    )
    assert f"{idle * 1024 * 30:,.0f} $ an hour" in price
    assert "num_workers" in change
    text = page({"name": "two"}, runs, "results/two")
    assert "Cause of most lost time with step loading 300 µs: data loader" in text
    for part in ("compute, no data moves", "compute while data moves (hidden)", "wait for training data"):
        assert part in text  # in the legend


def test_the_parts_of_a_step_add_up_to_what_was_measured(switch: Engine) -> None:
    [point] = points_of([ran(switch, step=STEP | {"loading": "50 us"})], ["a"], None)
    measured, _ = ran(switch, step=STEP | {"loading": "50 us"})
    assert point.step is not None
    assert point.step.seconds == pytest.approx(measured["step_seconds"])
    assert point.step.loading == pytest.approx(50e-6)
    assert point.step.exposed == pytest.approx(measured["exposed_seconds"])
    assert point.step.hidden > 0
    assert point.step.computing + point.step.hidden == pytest.approx(300e-6)


def test_sums_alone_have_a_price_if_it_is_known_for_how_long_workers_compute(switch: Engine) -> None:
    run = ran(switch)
    assert points_of([run], ["a"], None)[0].step is None
    assert "not known" in sentences(points_of([run], ["a"], None))[1]
    [point] = points_of([run], ["a"], 0.001)
    assert point.step is not None
    assert astuple(point.step) == ("a", 0.001, 0.0, 0.0, run[0]["wait_seconds"])
    assert "GPUs idle for" in sentences([point])[1]


def test_nothing_is_called_right_while_workers_idle(switch: Engine) -> None:
    """The all-reduces themselves are as fast as they can be."""
    run = ran(switch)
    assert sentences(points_of([run], ["a"], None))[0].startswith("Nothing is wrong: ")
    [point] = points_of([run], ["a"], 50e-6)
    cause, price, change = sentences([point])
    assert point.idle is not None
    assert cause.startswith(
        f"Cause of most lost time: communication (about {point.idle:.0%} of the time). Evidence: "
    )
    assert price.startswith(f"GPUs idle for {point.idle:.1%} of the time.")
    assert "gradient accumulation" in change


def test_cause_price_and_change_are_of_the_same_point(switch: Engine) -> None:
    """The other point idles longer."""
    slow = [{"host": "h1", "factor": 3.0}]
    runs = [ran(switch, step=STEP | {"stragglers": slow}), ran(switch, step=STEP, links={"delay": "2 ms"})]
    points = points_of(runs, ["a", "b"], None)
    for other in (points, points[::-1]):
        cause, price, *_ = sentences(other)
        (named,) = re.findall("with ([ab]): ", cause)
        assert f"of the time with {named}." in price


def test_each_part_of_a_bar_is_labelled(tmp_path: Path) -> None:
    draw_steps(
        [MeanStep("a", 0.5, 0.2, 0.0, 0.3), MeanStep("b", 0.4, 0.0, 0.2, 0.001)], tmp_path / "steps.svg"
    )
    text = (tmp_path / "steps.svg").read_text()
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", text)
    assert [one for one in shown if re.fullmatch(r"\d+%", one)] == ["50%", "67%", "20%", "33%", "30%"]
    assert {"a", "b", "1 s", "0.601 s; exposed 0%", "wait for sums (exposed)"} <= set(shown)
