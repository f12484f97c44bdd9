"""The protocols that come with fanin on the real BMv2: every result is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.experiments.protocol import built_in, protocol_of
from fanin.experiments.results.files import read_rows
from tests.fanin.command import run

SCENARIO = """
name = "on-bmv2"
protocol = "{protocol}"
world = "live"
switch = "bmv2"
size = "40 kB"
workers = 3
repetitions = 2
[topology.leaf_spine]
spines = 1
leaves = 2
hosts_per_leaf = 2
rate = "4 Mb/s"
"""


@pytest.mark.live
@pytest.mark.bmv2
@pytest.mark.parametrize(
    "protocol", [name for name in built_in() if protocol_of(name).loopback("live") is None]
)
def test_its_results_are_right(protocol: str, tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(SCENARIO.format(protocol=protocol))
    done = run("run", "scenario.toml", "--results", "results", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = read_rows(tmp_path / "results")
    assert (row["protocol"], row["switch"], row["error"], row["violations"]) == (protocol, "bmv2", None, 0)
