"""`fanin run`, `fanin sweep` and `fanin plot`: from a scenario to results and a figure, and where that fails."""

from __future__ import annotations

import csv
import json
import re
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import fanin.experiments.sweep
from fanin.cli import app
from fanin.experiments.results.drawing.plot import draw
from fanin.experiments.results.drawing.rehearsal import rehearsed_row
from fanin.experiments.results.drawing.series import series
from fanin.experiments.results.files import read_rows
from fanin.experiments.results.provenance import provenance
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.schema import scenario_schema
from fanin.experiments.scenario.tables.figure import Plot
from fanin.experiments.scenario.user_files import DIGESTS
from fanin.verbs.results.plot import plot
from tests.fanin.conftest import Fanin

pytestmark = pytest.mark.slow

SCENARIOS = Path(__file__).parents[3] / "scenarios"
VIRTUAL = """
name = "try"
algorithm = ["in-network", "ring"]
size = "20 kB"
[topology.leaf_spine]
spines = 0
leaves = 1
hosts_per_leaf = 2
rate = "10 Gb/s"
[plot]
x = "workers"
y = "median_seconds"
by = ["algorithm"]
"""
LIVE = VIRTUAL.replace("size", 'world = "live"\nsize').replace("10 Gb/s", "100 Mb/s")


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    path = tmp_path / "try.toml"
    path.write_text(VIRTUAL)
    return str(path)


def invoke(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    return done.exit_code, " ".join(done.output.split())


def test_a_run_leaves_rows_a_table_and_a_figure(fanin: Fanin, scenario: str, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    done = fanin("run", scenario, "--results", str(folder))
    assert done.returncode == 0, done.stderr
    assert "in-network" in done.stdout
    assert [row["algorithm"] for row in read_rows(folder)] == ["in-network", "ring"]
    assert json.loads((folder / "results.json").read_text())["scenario"] == VIRTUAL
    assert (folder / "try.png").stat().st_size > 0


def test_an_algorithm_that_was_chosen_has_its_reason_in_the_rows_and_below_the_table(
    scenario: str, tmp_path: Path
) -> None:
    changes = ("--set", "algorithm=auto", "--set", "size=20 kB,40 kB", "--results", tmp_path)
    for _ in range(2):  # the second time from the journal
        status, output = invoke("run", scenario, *changes)
        assert status == 0
        rows = read_rows(tmp_path)
        assert [row["size"] for row in rows] == [20_000, 40_000]
        for row in rows:
            predicted = dict(zip(row["candidates"], row["candidate_seconds"], strict=True))
            assert row["algorithm"] == min(predicted, key=predicted.__getitem__)
            assert f"chose {row['algorithm']}; predicted: in-network " in output
            assert row["closed_form_seconds"] == predicted[row["algorithm"]]


def test_beneath_the_table_stands_what_gpus_that_wait_cost(scenario: str, tmp_path: Path) -> None:
    status, output = invoke("run", scenario, "--set", "compute=100 us", "--results", tmp_path)
    assert status == 0
    for row in read_rows(tmp_path):
        waiting = row["median_seconds"]
        idle = waiting / (100e-6 + waiting)
        steps = f"{1000 * row['workers'] * 30 / 3600 * (100e-6 + waiting):,.3g}"
        assert f" {idle:.1%} {steps} {256 * 30 * idle:,.0f} / {24 * 256 * 30 * idle:,.0f} " in output
        assert f" {4096 * 30 * idle:,.0f} / {24 * 4096 * 30 * idle:,.0f} " in output
    assert json.loads((tmp_path / "results.json").read_text())["compute_seconds"] == pytest.approx(1e-4)


def test_without_the_time_of_computing_no_price_is_told_but_how_to_get_it(
    scenario: str, tmp_path: Path
) -> None:
    status, output = invoke("run", scenario, "--results", tmp_path)
    assert status == 0
    assert '--set "compute=50 ms"' in output
    assert "256 GPUs" not in output


def test_the_time_of_computing_changes_no_point(scenario: str, tmp_path: Path) -> None:
    path = tmp_path / "priced.toml"
    path.write_text('compute = "50 ms"\n' + VIRTUAL)
    assert load_scenario(path).frame.compute == 0.05
    assert load_scenario(path).points == load_scenario(Path(scenario)).points
    assert invoke("run", path, "--set", "compute=0 s")[0] == 2
    assert "compute: is ['1 s', '2 s']" in invoke("run", path, "--set", "compute=1 s,2 s")[1]


def test_a_number_of_jobs_here_and_a_cluster_are_not_both_taken(scenario: str, tmp_path: Path) -> None:
    places = ("--processes", "2", "--scheduler", "tcp://127.0.0.1:1")
    assert invoke("sweep", scenario, "--results", tmp_path, *places)[0] == 2


def test_a_cluster_that_does_not_answer_is_a_failure_that_names_it(scenario: str, tmp_path: Path) -> None:
    status, output = invoke("sweep", scenario, "--results", tmp_path, "--scheduler", "nowhere")
    assert status == 1
    assert "fanin sweep: no Dask scheduler answers at nowhere" in output


@pytest.mark.few(0)
def test_a_sweep_runs_only_what_is_missing(scenario: str, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    assert invoke("sweep", scenario, "--set", "seed=1,2", "--results", folder)[0] == 0
    status, output = invoke("sweep", scenario, "--set", "seed=1,2,3", "--results", folder)
    assert status == 0
    assert "4 of 6 points are already done" in output
    assert len(read_rows(folder)) == 6
    status, output = invoke("sweep", scenario, "--restart", "--results", folder)
    assert (status, "already" in output) == (0, False)


@pytest.mark.parametrize("name", ["rank0.json", "rank0.json.gz", "chakra.0.et", "nccl.log"])
@pytest.mark.parametrize("verb", ["run", "sweep"])
def test_a_trace_is_to_be_imported(verb: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8b{")
    status, output = invoke(verb, tmp_path / name)
    assert status == 2
    assert f"fanin import {tmp_path / name} -o scenario.toml" in output


def test_failed_points_are_listed_and_make_the_status_1(scenario: str, tmp_path: Path) -> None:
    status, output = invoke("sweep", scenario, "--set", "loss=0,1", "--results", tmp_path)
    assert status == 1
    assert "2 of 4 points failed" in output
    assert "loss=100%, algorithm=in-network: StallError" in output
    assert "links lose 100% of the packets; for 1 percent write 1% or 0.01" in output
    assert [row["error"] is None for row in read_rows(tmp_path)] == [True, False, True, False]


def test_a_run_of_which_nothing_is_left_keeps_the_results_before_it(scenario: str, tmp_path: Path) -> None:
    assert invoke("run", scenario, "--results", tmp_path)[0] == 0
    before = {path.name: path.read_bytes() for path in tmp_path.glob("results.*")}
    status, output = invoke("run", scenario, "--set", "loss=1", "--results", tmp_path)
    assert status == 1
    assert "every point failed, so the earlier results stay" in output
    assert {path.name: path.read_bytes() for path in tmp_path.glob("results.*")} == before


@pytest.mark.parametrize("verb", ["run", "sweep"])
def test_a_vector_that_memory_cannot_hold_is_refused_before_anything_runs(
    scenario: str, tmp_path: Path, verb: str
) -> None:
    status, output = invoke(verb, scenario, "--set", "size=20 TB,20 kB", "--results", tmp_path / "new")
    assert status == 2
    assert "size: 2 workers with a vector of 20 TB each need 40 TB or more, and this machine has" in output
    assert "divide size and all times of computing by the same number" in output
    assert not (tmp_path / "new").exists()
    status, output = invoke("sweep", scenario, "--set", "size=20 TB", "--dry-run")
    assert status == 0
    assert "warning" in output
    assert "need 40 TB or more" in output


def test_a_dry_run_warns_of_points_that_need_more_memory_than_there_is(
    scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their vectors alone fit."""
    monkeypatch.setattr(fanin.experiments.sweep, "_memory", lambda: 2_000_000_000)
    changes = ("--set", "size=28 MB", "--set", "repetitions=30", "--dry-run")
    status, output = invoke("sweep", scenario, *changes)
    assert status == 0
    assert "warning: a point may need 4.4 GB, and this machine has 2 GB" in output
    assert "warning" not in invoke("sweep", scenario, "--set", "size=28 MB", "--dry-run")[1]


@pytest.mark.few(0)
def test_what_is_wrong_with_several_points_is_told_once(
    fanin: Fanin, scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-cc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = fanin("sweep", scenario, "--set", "seed=1,2", "--results", str(tmp_path))
    assert done.returncode == 1
    assert "4 of 4 points failed" in done.stderr
    assert done.stderr.count("no-such-cc") == 1
    assert "(and 3 more points):" in done.stderr


def test_after_ctrl_c_the_status_is_130_and_one_is_told_how_to_go_on(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fanin.experiments.sweep, "run_points", interrupt)
    status, output = invoke("run", scenario, "--set", "rate=1 Gb/s", "--results", tmp_path)
    assert status == 130
    assert f"fanin sweep {scenario} '--set=rate=1 Gb/s' --results {tmp_path}" in output


def test_a_folder_of_results_is_no_scenario(tmp_path: Path) -> None:
    status, output = invoke("run", tmp_path)
    assert status == 2
    assert f"is a folder, not a scenario; to repeat the points of results: fanin rerun {tmp_path}" in output


def test_a_figure_that_takes_different_points_for_repetitions_is_warned_of(scenario: str) -> None:
    status, output = invoke("run", scenario, "--set", "window=2,4")
    assert status == 0
    assert (
        "points of the figure mix rows that differ in window; separate them with by or where in [plot]"
        in output
    )


@pytest.mark.parametrize("verb", ["run", "sweep"])
def test_a_scenario_that_cannot_be_is_refused_with_status_2(scenario: str, verb: str) -> None:
    status, output = invoke(verb, scenario, "--set", "loss=2")
    assert status == 2
    assert f"fanin {verb}: {scenario}: links.loss: is 2;" in output
    assert invoke(verb, "none.toml") == (
        2,
        f"fanin {verb}: none.toml cannot be read: No such file or directory",
    )
    misspelt = scenario.replace(".toml", ".tml")
    assert invoke(verb, misspelt)[1].endswith(
        f"cannot be read: No such file or directory; did you mean {scenario}?"
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ('y = "median_secs"', "median_secs: no such column; did you mean 'median_seconds'"),
        ('y = "switch"', "switch: is 'embedded', not a number"),
        ('y = "accuracy"', "no row has workers and accuracy"),
        (
            'y = "median_seconds"\nspread = "ci95"',
            "spread=ci95: needs 6 values at each place, and in-network at",
        ),
        ('y = "link_lost"\nclosed_form = true', "closed_form: cannot predict link_lost"),
        (
            'y = "median_seconds"\norder = ["rings"]',
            "order: there is no line 'rings'; there are 'in-network', 'ring'",
        ),
        ('y = "median_seconds"\nwhere = {workers = 3}', "workers=3: no row has it; there are 2"),
    ],
)
def test_a_figure_of_what_will_not_be_there_is_refused_before_the_run(
    tmp_path: Path, wrong: str, words: str
) -> None:
    path, folder = tmp_path / "try.toml", tmp_path / "results"
    path.write_text(VIRTUAL.replace('y = "median_seconds"', wrong))
    status, output = invoke("run", path, "--results", folder)
    assert status == 2
    assert f"{path}: plot: {words}" in output
    assert not folder.exists()


def test_a_figure_may_name_a_line_that_the_command_line_leaves_out(tmp_path: Path) -> None:
    path = tmp_path / "try.toml"
    path.write_text(VIRTUAL + 'order = ["ring"]\nlabels = {ring = "between hosts"}\n')
    status, output = invoke("run", path, "--set", "algorithm=in-network", "--results", tmp_path / "results")
    assert status == 0, output
    assert (tmp_path / "results" / "try.png").exists()


def test_a_run_that_replaces_earlier_results_says_so(tmp_path: Path) -> None:
    path, folder = tmp_path / "try.toml", tmp_path / "results"
    path.write_text(VIRTUAL)
    run = "run", path, "--set", "algorithm=in-network", "--results", folder
    assert "These replace" not in invoke(*run)[1]
    assert re.search(
        r"These replace the results of \d{4}-\d\d-\d\d \d\d:\d\d in .*; to keep both", invoke(*run)[1]
    )
    assert "These replace" not in invoke("sweep", *run[1:])[1]  # it keeps them


def test_rows_have_the_columns_that_a_rehearsal_has(scenario: str, tmp_path: Path) -> None:
    assert invoke("run", scenario, "--results", tmp_path)[0] == 0
    common = provenance() | dict.fromkeys(DIGESTS)
    rehearsed = [rehearsed_row(point) | common for point in load_scenario(Path(scenario)).points]
    for row, expected in zip(read_rows(tmp_path / "results.json"), rehearsed, strict=True):
        assert row.keys() == expected.keys()
        assert {name for name, value in row.items() if value is None} == {
            name for name, value in expected.items() if value is None
        }


def test_timers_far_above_the_round_trip_are_warned_of(scenario: str, tmp_path: Path) -> None:
    changes = ("--set", "loss=0.001", "--set", "min_rto=20 ms", "--results", tmp_path)
    status, output = invoke("run", scenario, *changes)
    assert status == 0
    assert f"fanin run: warning: {scenario}: recovery.min_rto: is 20,000 us, but" in output
    assert "(and 1 more points like it)" in output


def test_a_switch_is_chosen_on_the_command_line(scenario: str) -> None:
    status, output = invoke("run", scenario, "--switch", "bmv2")
    assert status == 2
    assert "switch: 'bmv2' cannot run in virtual time; set world = 'live'" in output


@pytest.mark.few(0)
def test_columns_of_results_are_drawn_against_one_another(scenario: str, tmp_path: Path) -> None:
    folder, figure = tmp_path / "results", tmp_path / "figure.svg"
    assert (
        invoke("sweep", scenario, "--set", "seed=1,2", "--set", "size=4 kB,20 kB", "--results", folder)[0]
        == 0
    )
    columns = ("--x", "size", "--by", "algorithm", "--log", "x,y", "-o", figure)
    assert invoke("plot", folder, *columns) == (0, str(figure))
    assert "goodput" not in figure.read_text()
    status, output = invoke("plot", folder / "results.parquet", "--x", "seed", "--where", "algorithm=ring")
    assert status == 0
    assert "points mix rows that differ in size; separate them with --by or --where" in output
    repeated = *columns, "--where", "algorithm=ring", "--where", "algorithm=in-network"
    assert invoke("plot", folder, *repeated) == (0, str(figure))
    assert "no such column" in invoke("plot", folder, "--x", "size", "--by", "sed", "--by", "algorithm")[1]
    listed = invoke("plot", folder, "--columns")[1].splitlines()
    assert [line.split() for line in listed if line.startswith("algorithm")] == [
        ["algorithm", "in-network,", "ring"]
    ]
    assert not any(line.startswith("shards ") for line in listed)  # which has no value in any row
    records = map(json.loads, invoke("plot", folder, "--columns", "--json")[1].splitlines())
    assert {"column": "algorithm", "values": ["in-network", "ring"]} in records
    assert invoke("plot", folder, "--x", "size", "--log", "z", "--log", "x")[0] == 2
    assert invoke("plot", folder, "--x", "sizes")[0] == 2
    assert "did you mean 'size'?" in invoke("plot", folder, "--x", "sizes")[1]
    assert invoke("plot", folder, "--x", "size", "--log", "z")[1] == "fanin plot: --log z: write x, y or x,y"


@pytest.mark.few(0)
def test_queues_are_drawn_over_time(scenario: str, tmp_path: Path) -> None:
    folder, figure = tmp_path / "results", tmp_path / "figure.svg"
    changes = ("--set", "seed=1,2", "--set", "queue_samples=1 us", "--results", folder)
    assert invoke("run", scenario, *changes)[0] == 0
    status, output = invoke("plot", folder, "--queues", "-o", figure)
    assert (status, output.startswith("fanin plot: shows the 8 deepest of 16 queues; for others")) == (
        0,
        True,
    )
    chosen = ("--where", "near=leaf1", "--where", "far=h2", "--where", "seed=1")
    assert invoke("plot", folder, "--queues", *chosen) == (0, str(folder / "queues.png"))
    assert invoke("plot", folder / "results.json", "--queues", *chosen, "-o", figure) == (0, str(figure))
    assert {">leaf1 → h2, in-network</text>", ">leaf1 → h2, ring, selective-repeat</text>"} <= set(
        re.findall(r">leaf1[^<]*</text>", figure.read_text())
    )
    assert (
        "near=leaf2: no row has it; there are h1, h2, leaf1"
        in invoke("plot", folder, "--queues", "--where", "near=leaf2")[1]
    )
    assert invoke("plot", folder, "--queues", "--by", "seed")[0] == 2
    assert invoke("plot", folder)[1].startswith("fanin plot: --x: missing")
    (folder / "queues.parquet").write_text("nothing")
    assert "queues.parquet: cannot be read" in invoke("plot", folder, "--queues")[1]
    (folder / "queues.parquet").unlink()
    assert invoke("plot", folder, "--queues") == (
        2,
        f"fanin plot: {folder}: has no queues.parquet; run the scenario again with --set 'queue_samples=10 us'",
    )


def test_plot_takes_what_a_scenario_says_of_its_figure(scenario: str, tmp_path: Path) -> None:
    folder, figure = tmp_path / "results", tmp_path / "figure.svg"
    assert invoke("run", scenario, "--set", "repetitions=6", "--results", folder)[0] == 0
    said = Plot.model_validate(
        {
            "x": "workers",
            "y": "median_seconds",
            "by": ["algorithm"],
            "spread": "ci95",
            "closed_form": True,
            "order": ["ring"],
            "labels": {"ring": "the ring"},
            "style": "column",
            "size": "3x2",
        }
    )
    options = ("--x", "workers", "--by", "algorithm", "--spread", "ci95", "--closed-form", "--order", "ring")
    more = ("--labels", "ring=the ring", "--style", "column", "--size", "3x2", "-o", figure)
    assert invoke("plot", folder, *options, *more) == (0, str(figure))
    draw(series(read_rows(folder), said), said, tmp_path / "same.svg")
    assert figure.read_bytes() == (tmp_path / "same.svg").read_bytes()
    cdf = ("--kind", "cdf", "--x", "seconds", "--by", "algorithm")
    assert invoke("plot", folder, *cdf) == (0, str(folder / "seconds-cdf.png"))


def test_every_key_of_a_figure_is_an_option_of_plot() -> None:
    others = {"results", "output", "queues", "columns", "as_json"}
    assert set(Plot.model_fields) == set(signature(plot).parameters) - others


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--size", "3"), "--size 3: write the width and the height in inches"),
        (("--kind", "box", "--spread", "iqr"), "--spread: a figure of kind box shows all values"),
        (("--labels", "ring"), "--labels ring: write LINE=NAME"),
        (("--where", "seed"), "--where seed: write COLUMN=VALUE"),
    ],
)
def test_options_that_do_not_do_are_named(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    (tmp_path / "results.json").write_text('{"rows": [{"workers": 2, "median_seconds": 1.0}]}')
    status, output = invoke("plot", tmp_path, "--x", "workers", *options)
    assert status == 2
    assert words in output


def test_the_schema_is_printed_and_shipped() -> None:
    done = CliRunner().invoke(app, ["run", "--schema"])
    assert done.exit_code == 0
    assert json.loads(done.output) == scenario_schema()
    shipped = json.loads((SCENARIOS / "scenario.schema.json").read_text())
    assert shipped == scenario_schema(), "ship it: fanin run --schema > scenarios/scenario.schema.json"


@pytest.mark.live
def test_a_live_scenario_runs_as_the_virtual_one_does(fanin: Fanin, tmp_path: Path) -> None:
    path, folder = tmp_path / "live.toml", tmp_path / "results"
    path.write_text(LIVE)
    changes = ("--set", "loss=0.01", "--set", "duplication=0.05")
    done = fanin("run", str(path), *changes, "--results", str(folder))
    assert done.returncode == 0, done.stderr
    in_network, ring = read_rows(folder)
    assert (in_network["world"], in_network["violations"], ring["violations"]) == ("live", 0, 0)
    assert in_network["dropped_lost"] > 0
    assert in_network["link_duplicated"] > 0


@pytest.mark.few(0)
@pytest.mark.live
def test_packets_of_live_hosts_take_the_paths_that_are_said(fanin: Fanin, tmp_path: Path) -> None:
    """With spray each path has about half of the packets; with a single path the other one is idle."""
    path, folder = tmp_path / "live.toml", tmp_path / "results"
    path.write_text(LIVE.replace("leaves = 1", "leaves = 2").replace("spines = 0", "spines = 2"))
    changes = (
        "--set",
        "paths=single,spray",
        "--set",
        "algorithm=ring",
        "--set",
        "transport=selective-repeat",
    )
    done = fanin("run", str(path), *changes, "--results", str(folder))
    assert done.returncode == 0, done.stderr
    links = pyarrow.parquet.read_table(folder / "links.parquet").to_pylist()
    for row in read_rows(folder):
        assert row["violations"] == 0
        to_spines = sorted(
            link["packets"]
            for link in links
            if (link["key"], link["near"]) == (row["key"], "leaf1") and link["far"].startswith("spine")
        )
        if row["paths"] == "spray":
            least, most = to_spines  # by a hash for each packet: three standard deviations of a fair coin
            assert most - least < 3 * (most + least) ** 0.5
        else:
            assert len(to_spines) == 1


@pytest.mark.live
def test_smaller_packets_are_more_packets(fanin: Fanin, tmp_path: Path) -> None:
    path, folder = tmp_path / "live.toml", tmp_path / "results"
    path.write_text(LIVE)
    changes = ("--set", "values=64,256", "--set", "granularity=10 us", "--set", "algorithm=in-network")
    done = fanin("run", str(path), *changes, "--results", str(folder))
    assert done.returncode == 0, done.stderr
    small, large = read_rows(folder)
    assert small["packets_per_worker"] > 2 * large["packets_per_worker"]
    assert (small["violations"], large["violations"]) == (0, 0)


@pytest.mark.few(0)
@pytest.mark.live
def test_placed_workers_are_the_only_ones_that_send(fanin: Fanin, tmp_path: Path) -> None:
    path, folder = tmp_path / "live.toml", tmp_path / "results"
    path.write_text(LIVE.replace("leaves = 1", "leaves = 2").replace("spines = 0", "spines = 1"))
    changes = ("--set", "placement=packed,spread", "--set", "workers=2", "--set", "algorithm=in-network")
    done = fanin("run", str(path), *changes, "--results", str(folder))
    assert done.returncode == 0, done.stderr
    assert [row["hosts"] for row in read_rows(folder)] == ["h1 h2", "h1 h3"]


# -- again, or not yet -------------------------------------------------------------------------------------------


def test_results_come_as_csv_as_well(scenario: str, tmp_path: Path) -> None:
    assert invoke("run", scenario, "--set", "repetitions=2", "--results", tmp_path)[0] == 0
    with (tmp_path / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    for text, row in zip(table, read_rows(tmp_path / "results.json"), strict=True):
        assert list(text) == list(row)
        assert json.loads(text["seconds"]) == row["seconds"]
        assert float(text["median_seconds"]) == row["median_seconds"]
        assert text["placement"] == row["placement"]


@pytest.mark.parametrize(
    ("algorithm", "reason"), [("in-network", "Python handles what arrives at h1"), ("parameter-server", None)]
)
def test_several_cores_give_the_row_of_one(
    scenario: str, tmp_path: Path, algorithm: str, reason: str | None
) -> None:
    shape = {"leaves": "2", "spines": "1", "hosts_per_leaf": "8", "rate": "100 Gb/s"}
    changes = [f"--set=topology.leaf_spine.{key}={value}" for key, value in shape.items()]
    changes += [f"--set=algorithm={algorithm}", "--set=size=400 kB", "--set=corruption=0.001"]
    assert invoke("run", scenario, *changes, "--results", tmp_path / "one")[0] == 0
    status, output = invoke("run", scenario, *changes, "--cores", "2", "--results", tmp_path / "two")
    assert status == 0
    assert (f"ran on one core: {reason}" in output) == (reason is not None)
    one, two = (read_rows(tmp_path / folder) for folder in ("one", "two"))
    assert {row.pop("one_core_because") for row in two} == {reason}
    for row in (*one, *two):
        del row["run_seconds"]
    assert one == two


def test_a_dry_run_says_what_is_left_and_runs_nothing(scenario: str, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    status, output = invoke("sweep", scenario, "--dry-run", "--processes", "3", "--results", folder)
    assert status == 0
    assert "2 points, 0 of them already done. The rest takes about" in output
    assert re.search(
        r"about \d+ s \(\d+ to \d+ s, and longer if the machine is busy\); 3 at a time, in up to 419\.6 MB",
        output,
    )
    assert not folder.exists()
    assert invoke("sweep", scenario, "--set", "algorithm=ring", "--results", folder)[0] == 0
    assert (
        "2 points, 1 of them already done" in invoke("sweep", scenario, "--dry-run", "--results", folder)[1]
    )


@pytest.mark.live
def test_a_dry_run_on_a_switch_that_is_not_there_says_how_to_get_it(fanin: Fanin, tmp_path: Path) -> None:
    path = tmp_path / "live.toml"
    path.write_text(LIVE.replace('rate = "100 Mb/s"', ""))
    done = fanin(
        "sweep", str(path), "--set", "switch=bmv2", "--dry-run", FANIN_BMV2="/nowhere/simple_switch_grpc"
    )
    assert done.returncode == 1
    assert done.stderr.startswith(
        "fanin sweep: BMv2 is not installed: there is no command /nowhere/simple_switch_grpc"
    )
    assert "https://github.com/p4lang/behavioral-model" in done.stderr
    assert "Nothing has been run" not in done.stdout


def test_a_rerun_gives_the_same_from_the_rows_alone(scenario: str, tmp_path: Path) -> None:
    assert invoke("run", scenario, "--set", "loss=0.05", "--results", tmp_path)[0] == 0
    first, second = read_rows(tmp_path)
    status, output = invoke("rerun", tmp_path / "results.json", "--point", second["key"])
    assert status == 0
    assert "same" in output
    (again,) = read_rows(tmp_path / "rerun")
    changed = {name for name in again if again[name] != second[name]}
    assert changed <= {"run_seconds"}
    assert again["key"] != first["key"]


def test_a_rerun_that_differs_in_virtual_time_is_told(scenario: str, tmp_path: Path) -> None:
    assert invoke("run", scenario, "--results", tmp_path)[0] == 0
    path = tmp_path / "results.json"
    document = json.loads(path.read_text())
    document["rows"][1] |= {"seconds": [1.0], "median_seconds": 1.0, "commit": "older"}
    path.write_text(json.dumps(document))
    status, output = invoke("rerun", path)
    assert status == 1
    assert "points in virtual time differ algorithm=ring" in output
    assert "fanin was older and is" in output


def test_what_cannot_be_run_again_is_named(scenario: str, tmp_path: Path) -> None:
    assert invoke("run", scenario, "--set", "algorithm=ring", "--results", tmp_path)[0] == 0
    path = tmp_path / "results.json"
    key = read_rows(path)[0]["key"]
    assert invoke("rerun", path, "--point", "none") == (
        2,
        f"fanin rerun: --point none: no row has this key; the keys are {key}",
    )
    document = json.loads(path.read_text())
    settings = json.loads(document["rows"][0]["settings"]) | {"hops": 3}
    document["rows"][0] |= {"settings": json.dumps(settings), "fanin": "9.9"}
    path.write_text(json.dumps(document))
    status, output = invoke("rerun", path)
    assert status == 2
    assert f"row {key}: this fanin does not accept the settings of fanin 9.9" in output
    assert "hops: Extra inputs" in output


def test_what_became_of_faults_is_told(scenario: str, tmp_path: Path) -> None:
    with Path(scenario).open("a") as file:
        file.write('[[faults]]\nat = "8 us"\nswitch = "leaf1"\ndetection = "20 us"\n')
    status, output = invoke("run", scenario, "--results", tmp_path / "results")
    assert status == 0, output
    said = "algorithm=in-network: at 8 us leaf1 restarts: the hosts sum using the ring; detected at 28 us, the next"
    assert f"{said} all-reduce ended at" in output
    with (tmp_path / "results" / "results.csv").open() as file:
        [first, second] = csv.DictReader(file)
    assert json.loads(first["faults"]) == ["leaf1 restarts: the hosts sum using the ring"]
    assert json.loads(second["faults"]) == ["leaf1 restarts: the job continues"]
    assert json.loads(first["fault_found_seconds"]) == [2.8e-5]
    rows = read_rows(tmp_path / "results" / "results.parquet")
    assert [row["workers_left"] for row in rows] == [2, 2]
