"""How busy processors and links were, and the runs that it tells apart."""

from __future__ import annotations

import json
import time
from math import inf
from pathlib import Path

import pytest

from fanin.controller.connection import Count
from fanin.controller.telemetry import PortCounts, SwitchCounts
from fanin.experiments.results.bottleneck import limited_by
from fanin.testbed import load
from fanin.testbed.load import Processors, link_utilization, quota
from fanin.topologies.shapes import leaf_spine
from tests.fanin.command import run

SCENARIO = """
name = "limits"
world = "live"
size = "2 MB"
repetitions = 40  # of all together nothing is said below a tenth of a second

[topology.leaf_spine]
spines = 0
leaves = 1
hosts_per_leaf = 2
"""


def compute(seconds: float) -> None:
    """On one core, until so many seconds of processor time have gone."""
    begun = time.process_time()
    while time.process_time() < begun + seconds:
        pass


@pytest.mark.slow
def test_a_thread_that_computes_all_the_time_is_seen_however_many_cores_are_idle() -> None:
    processors = Processors()
    assert not processors.begun
    processors.begin()
    compute(0.3)
    processors.end()
    assert processors.begun
    assert processors.ended
    assert processors.utilization == pytest.approx(1.0, abs=0.25)


def test_nothing_is_said_of_what_was_too_short_or_did_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_SHORTEST", inf)  # on a busy machine a moment may take long
    processors = Processors()
    processors.begin()
    assert processors.utilization is None
    processors.end()
    assert processors.utilization is None


def test_the_smallest_quota_of_all_groups_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_CGROUPS", tmp_path)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert quota() == inf
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert quota() == 1.5


def test_the_busiest_link_counts_in_its_busier_direction() -> None:
    network = leaf_spine(spines=0, leaves=1, hosts_per_leaf=2, rate=100_000_000)
    idle, full = Count(10, 1000), Count(800, 1_000_000)

    def port(received: Count, sent: Count) -> PortCounts:
        return PortCounts(received, sent, Count(), Count())

    (leaf,) = network.leaves
    counts = {leaf.name: SwitchCounts({1: port(idle, idle), 2: port(full, idle)}, {}, {})}
    assert link_utilization(network, counts, 0.1) == pytest.approx(0.8)
    assert link_utilization(network, counts, 0.01) == 1.0
    unlimited = leaf_spine(spines=0, leaves=1, hosts_per_leaf=2)
    assert link_utilization(unlimited, counts, 0.1) is None


@pytest.mark.few(0)
@pytest.mark.live
def test_a_row_has_what_links_and_processors_were_used_and_what_follows(tmp_path: Path) -> None:
    found = []
    for rate in ([], ["--set=rate=5 Mb/s", "--set=size=400 kB", "--set=repetitions=1"]):
        (tmp_path / "limits.toml").write_text(SCENARIO)
        done = run("run", "limits.toml", "--results", "results", *rate, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        (row,) = json.loads((tmp_path / "results" / "results.json").read_text())["rows"]
        assert "limited by" in done.stdout
        found.append(row)
    # How busy processors are is a matter of this machine, and of what else it does now.
    for row in found:
        assert 0 < row["processor_utilization"] <= 1
        assert row["limited_by"] == limited_by(row["link_utilization"], row["processor_utilization"])
    unlimited, slow = found
    assert unlimited["link_utilization"] is None
    assert 0 < slow["link_utilization"] <= 1
