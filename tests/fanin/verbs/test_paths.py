"""`fanin paths`: each flow's way, and why some points have none."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from fanin.cli import app

ONE = ["lesson:ecmp", "--set=seed=1", "--set=flows_per_pair=1", "--set=algorithm=ring"]


def invoke(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["paths", *arguments], env={"COLUMNS": "200"})
    return done.exit_code, done.output


def test_each_flow_has_its_five_tuple_its_hash_and_its_way() -> None:
    status, output = invoke(*ONE, "--set=paths=ecmp")
    assert status == 0
    assert "h5 → leaf2[8] → spine4[3] → leaf3[2] → h10" in output
    assert "10.2.0.1:20001 → 10.3.0.2:20000 UDP  2aeb06db" in output
    assert output.count("UDP") == 16


def test_as_json_a_line_is_a_flow() -> None:
    status, output = invoke(*ONE, "--set=paths=ecmp", "--json")
    first = json.loads(output.splitlines()[0])
    assert status == 0
    assert [hop["neighbour"] for hop in first["hops"]] == ["spine4", "leaf3", "h10"]
    assert first["hops"][0]["hash"] == 0x2AEB06DB
    assert len(output.splitlines()) == 16


def test_points_whose_flows_have_no_path_of_their_own_are_told() -> None:
    status, output = invoke(*ONE, "--set=paths=spray")
    assert status == 1
    assert "with paths = 'spray' a path is chosen for each packet" in output
    assert "no point has flows with a single path each" in output
