"""Jobs that arrive by a trace: who waits for hosts, who for slots, and how long each takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.experiments.models.prediction import predicted_call_seconds
from fanin.experiments.results.files import Journal
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.file import ScenarioError, load_scenario
from fanin.experiments.sweep import run_points
from tests.experiments.watch import Watch

SCENARIO = """
name = "arriving"
window = 64

[arrivals]
trace = "jobs.csv"

[topology.leaf_spine]
spines = 0
leaves = 1
hosts_per_leaf = 8
rate = "10 Gb/s"
"""
HEADER = "arrival,workers,size,rounds\n"


def scenario(folder: Path, jobs: str) -> Path:
    (folder / "jobs.csv").write_text(jobs)
    (folder / "arriving.toml").write_text(SCENARIO)
    return folder / "arriving.toml"


def ran(folder: Path, jobs: str, *changes: str) -> Row:
    points = load_scenario(scenario(folder, jobs), changes, predicted_call_seconds).points
    (row,) = run_points(points, Journal(folder), folder, Watch())
    assert row["error"] is None
    assert row["violations"] == 0
    return row


@pytest.mark.slow
def test_a_job_waits_for_hosts_and_none_overtakes_another(tmp_path: Path) -> None:
    alone = ran(tmp_path, HEADER + "0,8,100000,2\n", "seed=1")["jobs_seconds"][0]
    at = alone / 4
    jobs = [(0, 8), (at, 8), (2 * at, 2), (40 * alone, 2)]
    row = ran(tmp_path, HEADER + "".join(f"{arrival},{workers},100000,2\n" for arrival, workers in jobs))
    first, second, third, last = row["jobs_seconds"]
    assert first == pytest.approx(alone, rel=0.02)
    assert second == pytest.approx(2 * alone - at, rel=0.02)
    assert (
        third > 2 * alone - 2 * at
    )  # hosts for it were free when the first job had left, but the second came before
    assert last < 1.2 * alone
    assert row["mean_job_wait_seconds"] == pytest.approx((2 * alone - at + alone - 2 * at) / 4, rel=0.05)
    assert row["jobs"] == 4
    assert row["median_seconds"] <= row["p99_job_seconds"] <= max(row["jobs_seconds"])


@pytest.mark.slow
def test_packets_are_as_large_as_the_scenario_has_them(tmp_path: Path) -> None:
    jobs = HEADER + "0,4,100000,1\n"
    usual, large = (ran(tmp_path, jobs, "algorithm=ring", f"payload={size}") for size in (1024, 4096))
    assert large["packet_hops"] < 0.5 * usual["packet_hops"]


@pytest.mark.slow
def test_jobs_in_the_network_wait_for_slots_as_well(tmp_path: Path) -> None:
    """Two jobs fit the hosts, and their windows of 600 packets do not fit a switch's 1,024 slots together."""
    together = HEADER + "0,4,100000,1\n0,4,100000,1\n"
    assert ran(tmp_path, together, "window=500")["mean_job_wait_seconds"] == 0
    waiting = ran(tmp_path, together, "window=600")
    first, second = waiting["jobs_seconds"]
    assert second == pytest.approx(2 * first, rel=0.05)
    of_their_own = HEADER.strip() + ",algorithm\n0,4,100000,1,\n0,4,100000,1,ring\n"
    assert ran(tmp_path, of_their_own, "window=600")["mean_job_wait_seconds"] == 0


@pytest.mark.slow
def test_jobs_of_atp_share_slots_and_wait_for_servers(tmp_path: Path) -> None:
    """Four jobs with more packets in flight than slots begin at once, if each has a host for its server."""
    jobs = HEADER + 4 * "0,2,20000,1\n" + "0.05,2,20000,1\n"
    atp = ("protocol=atp", "slots=64", "window=48", "ecn_bytes=50 kB", "hosts_per_leaf=12")
    assert ran(tmp_path, jobs, *atp, "workers=8")["mean_job_wait_seconds"] == 0
    two_servers = ran(tmp_path, jobs, *atp, "workers=10")
    assert two_servers["mean_job_wait_seconds"] > 0
    assert two_servers["jobs"] == 5


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        ("", "jobs.csv:1: must be the header arrival,workers,size,rounds"),
        (HEADER, "jobs.csv: has no jobs"),
        (HEADER + "0,4,100\n", "jobs.csv:2: has 3 columns, and the header has 4"),
        (HEADER + "0,4,1 MB,1\n", "jobs.csv:2: has a word that is not a number"),
        (HEADER + "\n-1,4,100,1\n", "jobs.csv:3: arrival is -1, must be a time in seconds"),
        (HEADER + "0,1,100,1\n", "jobs.csv:2: workers is 1, must be at least 2"),
        (HEADER + "0,2,102,1\n", "jobs.csv:2: size is 102, must be a multiple of 4"),
        (HEADER + "0,9,100,1\n", "jobs.csv: a job has 9 workers, and there are hosts for 8"),
        (HEADER.strip() + ",algorithm\n0,2,100,1,rings\n", "'rings' is no algorithm; there are in-network"),
    ],
)
def test_a_wrong_trace_is_refused_with_its_line(jobs: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError) as refused:
        load_scenario(scenario(tmp_path, jobs))
    assert told in str(refused.value)


def test_jobs_that_need_servers_or_other_tables_are_refused(tmp_path: Path) -> None:
    path = scenario(tmp_path, HEADER + "0,2,100,1\n")
    with pytest.raises(ScenarioError, match="workers: jobs of protocol atp need hosts for servers"):
        load_scenario(path, ["protocol=atp", "algorithm=ring"])
    for change, told in (
        ("size=4 B", "or one of the tables training, decoding, serving and arrivals"),
        ("lateness=1 us", "lateness: cannot be combined with arrivals"),
    ):
        with pytest.raises(ScenarioError) as refused:
            load_scenario(path, [change])
        assert told in str(refused.value)
