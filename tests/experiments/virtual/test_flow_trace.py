"""Flows of a trace in HPCC's format: what is sent, and the tables of their completion times."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import parquet

from fanin.experiments.models.prediction import predicted_call_seconds
from fanin.experiments.results.files import Journal, write_results
from fanin.experiments.scenario.file import ScenarioError, load_scenario
from fanin.experiments.scenario.user_files import digests
from fanin.experiments.sweep import run_points
from tests.experiments.watch import Watch

SCENARIO = """
name = "traced"
algorithm = "ring"
workers = 2
size = "4 B"

[topology.leaf_spine]
spines = 1
leaves = 2
hosts_per_leaf = 4
rate = "10 Gb/s"

[traffic]
pattern = "trace"
trace = "flows.txt"
begin = "10 us"
"""
FLOWS = """3
0 5 3 100 20000 0.0
4 1 3 100 500000 0.00002
2 6 3 200 64000 0.00005
"""


def scenario(folder: Path, flows: str = FLOWS, text: str = SCENARIO) -> Path:
    (folder / "flows.txt").write_text(flows)
    (folder / "traced.toml").write_text(text)
    return folder / "traced.toml"


@pytest.mark.slow
@pytest.mark.parametrize(
    "flows", [FLOWS, FLOWS.replace("3\n", "source,destination,group,port,bytes,start\n", 1).replace(" ", ",")]
)
def test_each_flow_of_a_trace_is_sent_and_is_in_the_tables(flows: str, tmp_path: Path) -> None:
    points = load_scenario(scenario(tmp_path, flows), predict=predicted_call_seconds).points
    rows = run_points(points, Journal(tmp_path), tmp_path, Watch())
    (row,) = rows
    assert row["error"] is None
    write_results(rows, {}, tmp_path / "results")
    found = parquet.read_table(tmp_path / "results" / "flows.parquet").to_pylist()
    assert [(one["source"], one["destination"], one["port"], one["bytes"]) for one in found] == [
        ("h1", "h6", 100, 20_000),
        ("h5", "h2", 100, 500_000),
        ("h3", "h7", 200, 64_000),
    ]
    assert [one["start"] for one in found] == pytest.approx([10e-6, 30e-6, 60e-6])
    assert all(one["seconds"] >= one["alone_seconds"] > 8 * one["bytes"] / 10e9 for one in found)
    assert row["traffic_flows"] == 3
    slowdowns = sorted(one["seconds"] / one["alone_seconds"] for one in found)
    assert row["traffic_p50_slowdown"] == pytest.approx(slowdowns[1])

    # As fct_analysis.py of HPCC reads them: ordinary flows have the port 100, and a slowdown is column 7 over column 8.
    lines = [
        line.split() for line in (tmp_path / "results" / "fct" / f"{row['key']}.txt").read_text().splitlines()
    ]
    ordinary = {int(line[4]): int(line[6]) / int(line[7]) for line in lines if line[3] == "100"}
    assert ordinary == {
        one["bytes"]: pytest.approx(one["seconds"] / one["alone_seconds"], rel=1e-4)
        for one in found
        if one["port"] == 100
    }
    assert ["0b000001", "0b000501", "0", "100", "20000", "10000"] in [line[:6] for line in lines]
    ends = [int(line[5]) + int(line[6]) for line in lines]
    assert ends == sorted(ends)


@pytest.mark.parametrize(
    ("flows", "told"),
    [
        ("", "flows.txt: is empty; write the number of flows"),
        ("2\n0 1 3 100 5 0\n", "flows.txt:1: has 2 flows, but the file has lines for 1"),
        ("source destination\n", "flows.txt:1: must be the number of flows, or the header"),
        ("1\n\n0 1 3 100 5\n", "flows.txt:3: has 5 columns; write source destination group port bytes start"),
        ("1\n0 1 3 100 x 0\n", "flows.txt:2: has a word that is not a number"),
        ("1\n0 1 3 100 0 0\n", "flows.txt:2: bytes is 0, must be at least 1"),
        ("1\n0 1 3 100 5 nan\n", "flows.txt:2: start is nan, must be a time in seconds"),
        ("1\n4 4 3 100 5 0\n", "flows.txt:2: goes from host 4 to itself"),
        ("1\n0 8 3 100 5 0\n", "hosts are 0 to 7 in this network; the highest is 8"),
        ("1\n-1 2 3 100 5 0\n", "hosts are 0 to 7 in this network"),
        ("\udcff", "flows.txt: cannot be read"),
    ],
)
def test_a_wrong_trace_is_refused_with_its_line(flows: str, told: str, tmp_path: Path) -> None:
    path = scenario(tmp_path)
    (tmp_path / "flows.txt").write_bytes(flows.encode(errors="surrogateescape"))
    with pytest.raises(ScenarioError) as refused:
        load_scenario(path)
    assert told in str(refused.value)


def test_results_show_when_the_flows_of_a_trace_change(tmp_path: Path) -> None:
    first, again, other = (
        digests(load_scenario(scenario(tmp_path, flows)).points[0])
        for flows in (FLOWS, FLOWS, FLOWS.replace("64000", "64001"))
    )
    assert first == again != other


def test_a_trace_replaces_sizes_and_belongs_to_its_pattern(tmp_path: Path) -> None:
    for text, told in (
        (SCENARIO + 'size = "1 kB"\n', "traffic.size: the flows of a trace have their own sizes"),
        (SCENARIO.replace('trace = "flows.txt"', ""), "traffic.trace: missing; trace needs it"),
        (SCENARIO.replace('"trace"', '"permutation"'), "traffic.trace: has no meaning for permutation"),
        (SCENARIO.replace("flows.txt", "none.txt"), "none.txt: cannot be read"),
    ):
        with pytest.raises(ScenarioError) as refused:
            load_scenario(scenario(tmp_path, text=text))
        assert told in str(refused.value)
