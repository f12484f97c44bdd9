"""`fanin import`: what it shows of a trace, and the scenario that it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from statistics import fmean

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.experiments.results.drawing.rehearsal import rehearse
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.workloads.trace import Node, RankTrace, TraceCall, joined
from fanin.verbs import import_trace
from fanin.workers.collective import Operation

TRACES = Path(__file__).parents[2] / "experiments" / "workloads" / "traces"
GLOO = [str(TRACES / f"gloo-rank{rank}.json.gz") for rank in (0, 1)]

NCCL_TESTS = """# nThread 1 nGpus 4 minBytes 8
#  size count type redop root time algbw busbw #wrong
   1024 256 float sum -1 30.2 0.03 0.05 0
   1048576 262144 float sum -1 187.3 5.6 8.4 0
   16777216 4194304 float sum -1 2547 6.59 9.88 0
   1073741824 268435456 float sum -1 161000 6.67 10.0 0
"""


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["import", *arguments])
    return done.exit_code, " ".join(done.output.split())


def test_a_trace_is_shown_and_becomes_a_scenario(tmp_path: Path) -> None:
    output = tmp_path / "My Training.toml"
    status, shown = invoke(*GLOO, "-o", str(output), "--rate", "25 Gb/s")
    assert status == 0
    assert "2 ranks, 3 steps Mean step of all ranks: 88.51 ms as measured, 74.76 ms of computing; " in shown
    assert "the rank that computes longest is 0, with 79.26 ms" in shown
    assert "all-reduce 6 2.646 1" in shown
    assert f"run it: fanin run {output}".replace(" ", "") in shown.replace(" ", "")
    scenario = load_scenario(output)
    assert scenario.frame.name == "my-training"
    assert [point.algorithm for point in scenario.points] == ["in-network", "ring"]
    assert {len(point.members) for point in scenario.points} == {2}
    assert scenario.points[0].host_link.rate_bits_per_second == 25e9


@pytest.mark.parametrize(
    ("operations", "algorithms"),
    [
        (["all-gather", "reduce-scatter"], ["in-network", "ring"]),  # as FSDP2 calls them
        (["all-to-all"], ["ring"]),
    ],
)
def test_a_scenario_uses_switches_if_they_can_carry_out_a_call(
    operations: list[Operation], algorithms: list[str]
) -> None:
    nodes = [Node(one, call=TraceCall(one, (0, 1), 8000)) for one in operations]
    trace = joined(RankTrace("trace", rank, nodes, 2) for rank in range(2))
    written = tomllib.loads("\n".join(import_trace._replayed("x", ["trace"], trace, 10**9)))
    assert written["algorithm"] == algorithms


@pytest.mark.slow
def test_a_replay_shows_the_predicted_time_next_to_the_measured_one(tmp_path: Path) -> None:
    output = tmp_path / "replay.toml"
    invoke(*GLOO, "-o", str(output))
    changes = ("--set", "algorithm=ring", "--set", "workload.scale=0.01", "--results", str(tmp_path / "out"))
    done = CliRunner().invoke(app, ["run", str(output), *changes])
    assert done.exit_code == 0, done.output
    row = json.loads(
        CliRunner().invoke(app, ["run", str(output), *changes, "--json"]).stdout
    )  # as it was measured
    assert row["exposed_seconds"] < row["step_seconds"]
    assert f" {row['step_seconds'] / row['trace_step_seconds'] - 1:+.0%}" in done.output
    for column in ("step ms: ", "exposed ms: ", "kB each: ", "in the trace ms: ", "off by: "):
        assert column in done.output


def test_a_scenario_that_was_edited_is_not_lost(tmp_path: Path) -> None:
    output = tmp_path / "replay.toml"
    output.write_text("# mine")
    status, shown = invoke(*GLOO, "-o", str(output))
    assert status == 2
    assert "exists already; choose another name" in shown
    assert output.read_text() == "# mine"


def test_a_figure_can_show_the_steps_of_a_replay(tmp_path: Path) -> None:
    output = tmp_path / "replay.toml"
    invoke(*GLOO, "-o", str(output))
    output.write_text(output.read_text() + '[plot]\nx = "algorithm"\ny = "step_seconds"\n')
    scenario = load_scenario(output)
    assert scenario.frame.plot
    rehearse(scenario.points, scenario.frame.plot)


def test_without_an_output_it_only_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, shown = invoke(GLOO[0])
    assert status == 0
    assert "1 of 2 ranks have no file" in shown
    assert not [*tmp_path.iterdir()]


def test_json_has_the_times_of_steps_and_a_record_of_each_operation(tmp_path: Path) -> None:
    output = tmp_path / "scenario.toml"
    done = CliRunner().invoke(app, ["import", *GLOO, "--json", "-o", str(output)])
    times, record = map(json.loads, done.stdout.splitlines())
    assert (times["ranks"], times["steps"], len(times["step_seconds"])) == (2, 3, 3)
    assert [round(1e3 * seconds, 2) for seconds in times["compute_seconds"]] == [79.26, 70.27]
    assert fmean(times["step_seconds"]) == pytest.approx(0.08851, rel=1e-3)
    assert record == {"operation": "all-reduce", "calls": 6, "bytes": 15_876_216, "groups": 1}
    assert output.exists()


def test_a_reader_that_stops_does_not_cost_the_scenario(tmp_path: Path) -> None:
    output, (reader, writer) = tmp_path / "scenario.toml", os.pipe()
    os.close(reader)
    arguments = ["import", *GLOO, "--json", "-o", str(output)]
    subprocess.run(
        [sys.executable, "-m", "fanin", *arguments], stdout=writer, stderr=subprocess.DEVNULL, check=False
    )
    os.close(writer)
    assert load_scenario(output).frame.name == "scenario"


def test_an_output_of_nccl_tests_becomes_links_of_its_latency_and_rate(tmp_path: Path) -> None:
    """Four ranks: 6 hops of 5 us, and 1.5 times the bytes at 10 GB/s."""
    file, output = tmp_path / "all_reduce.txt", tmp_path / "links.toml"
    file.write_text(NCCL_TESTS)
    status, shown = invoke(str(file), "-o", str(output))
    assert status == 0
    assert "all-reduce of 4 ranks. Round a ring, 80" in shown
    points = load_scenario(output).points
    assert [point.size for point in points] == [1024, 1048576, 16777216]  # a gigabyte takes too long
    link = points[0].host_link
    assert link.rate_bits_per_second == pytest.approx(80e9 * 1112 / 1024, rel=0.01)
    packet = 8 * 1112 / (80e9 * 1112 / 1024)
    latency = 2 * (link.properties.virtual_delay + packet) + points[0].coalescing
    assert latency == pytest.approx(5e-6, rel=0.02)


def test_what_is_wrong_is_said_in_a_line(tmp_path: Path) -> None:
    broken = tmp_path / "rank0.json"
    broken.write_text('{"traceEvents": [\n{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1}]}')
    status, shown = invoke(str(broken))
    assert status == 2
    assert f"fanin import: {broken}:2: field 'dur': missing in 'gemm'".replace(" ", "") in shown.replace(
        " ", ""
    )
    status, shown = invoke(GLOO[0], "--rate", "fast")
    assert status == 2
    assert "--rate fast: write a number and its unit" in shown
