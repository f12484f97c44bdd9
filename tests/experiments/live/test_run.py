"""The main job on a live network: real switches, real loss, every sum compared with the exact one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fanin.testbed.patience import setting

pytestmark = pytest.mark.live

SCRIPT = """
from dataclasses import asdict
import json, pathlib, sys
from fanin.testbed.sandbox import enter
enter()
from fanin.experiments.scenario.compilers import compile_program
from fanin.controller.requirements import PROGRAM
from fanin.experiments.demo import Work, demo_points, run_demo
from fanin.experiments.scenario.tables.topology import LeafSpine, TopologySettings
from fanin.experiments.scenario.tables.training import Training

class Quiet:
    def stage(self, text): pass
    def awaits(self, who): pass
    def run(self, settings, steps): return lambda step, awaited: None

folder = pathlib.Path(sys.argv[1])
network = TopologySettings(leaf_spine=LeafSpine(spines=2, leaves=2, hosts_per_leaf=2))
points = demo_points(network, 0.05, work=Work(Training(epochs=2, hidden=32), 300_000, 3))
demo = run_demo(points, compile_program(PROGRAM, "embedded"), folder / "logs", Quiet())
demo.write(folder)
curves = [run.measured.curve for run in demo.runs]
print(json.dumps([run.columns | {"curve": c and asdict(c)} for run, c in zip(demo.runs, curves)]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[tuple[str, str, float], dict[str, Any]]:
    """All the demo's runs with 4 workers, by name, algorithm and loss."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        capture_output=True,
        text=True,
        timeout=240 * setting(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {(run["name"], run["algorithm"], run["loss"]): run for run in json.loads(done.stdout)}


def test_every_sum_is_within_its_bound(runs: dict[Any, dict[str, Any]]) -> None:
    assert len(runs) == 5
    for run in runs.values():
        assert run["violations"] == 0
        assert 0 < run["max_abs_error"] <= run["error_bound"]


def test_every_way_trains_as_well_as_one_process(runs: dict[Any, dict[str, Any]]) -> None:
    for (name, _, _), run in runs.items():
        if name == "training":
            assert run["accuracy"] == pytest.approx(run["reference_accuracy"], abs=0.02)


def test_loss_is_repaired_and_changes_no_bit(runs: dict[Any, dict[str, Any]]) -> None:
    whole, lossy = runs["training", "in-network", 0.0], runs["training", "in-network", 0.05]
    assert lossy["retransmissions"] > 0
    assert lossy["curve"]["loss"] == whole["curve"]["loss"]


def test_bytes_on_the_wire_are_those_of_the_algorithms(runs: dict[Any, dict[str, Any]]) -> None:
    vector, workers = 1_200_000, 4
    ring = runs["1.2 MB", "ring", 0.0]["wire_bytes_per_worker"]
    in_network = runs["1.2 MB", "in-network", 0.0]["wire_bytes_per_worker"]
    once_each_way = 2 * vector
    assert once_each_way < in_network < 1.25 * once_each_way
    ring_moves = 2 * (workers - 1) / workers * once_each_way
    assert ring_moves < ring < 1.15 * ring_moves


def test_the_results_are_written(runs: dict[Any, dict[str, Any]], folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    assert len(summary["runs"]) == len(runs)
    for name in ("runs.csv", "curves.csv", "comparison.png", "training.png"):
        assert (folder / name).stat().st_size > 0
