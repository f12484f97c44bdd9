"""A job of a protocol on a live network whose links lose packets."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from fanin.experiments.results.files import read_rows
from tests.fanin.command import run

SCENARIO = """
name = "live"
protocol = "PROTOCOL"
world = "live"
size = "40 kB"
repetitions = 2
workers = 3
links.loss = 0.01
[topology.leaf_spine]
spines = 1
leaves = 2
hosts_per_leaf = 2
rate = "200 Mb/s"
"""


def run_live(protocol: str, folder: Path) -> CompletedProcess[str]:
    """Run the job, with its results in this folder."""
    (folder / "live.toml").write_text(SCENARIO.replace("PROTOCOL", protocol))
    return run("run", "live.toml", "--results", "results", cwd=folder)


def right_sums_of(protocol: str, folder: Path) -> dict[str, Any]:
    """The row of the job, whose sums are right."""
    done = run_live(protocol, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (row,) = read_rows(folder / "results")
    assert (row["protocol"], row["error"], row["violations"]) == (protocol, None, 0)
    return row
