"""Another job on the same switches: who is in it, what it costs the first one, and that its sums are checked."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fanin.experiments.results.checking import Errors
from fanin.experiments.results.measured import Row, row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.other_job import OtherJobs
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

RACKS = {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "10 Gb/s", "uplink_rate": "10 Gb/s"}
OTHER = {"size": "200 kB"}


def point(**changes: Any) -> Settings:
    document = {
        "topology": {"leaf_spine": RACKS},
        "size": "200 kB",
        "workers": 4,
        "placement": "spread",
        "window": 128,
    }
    return Settings.model_validate(document | changes).settled


def run(switch: Engine, **changes: Any) -> Row:
    settings = point(**changes)
    return row(settings, run_virtual(settings, switch))


def test_it_has_the_hosts_that_the_first_one_leaves() -> None:
    settings = point()
    assert set(settings.members).isdisjoint(settings.bystanders)
    assert {*settings.members, *settings.bystanders} == {host.name for host in settings.network.hosts}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
@pytest.mark.parametrize("other", ["in-network", "ring"])
def test_both_are_right_and_wait_for_one_another(switch: Engine, algorithm: str, other: str) -> None:
    alone = run(switch, algorithm=algorithm)
    both = run(switch, algorithm=algorithm, other_job=OTHER | {"algorithm": other})
    assert both["violations"] == 0
    assert both["median_seconds"] > 1.2 * alone["median_seconds"]
    assert both["other_job_seconds"] > 0
    assert alone["other_job_seconds"] is None


@pytest.mark.parametrize("check", ["all", "sample", "none"])
def test_the_key_check_is_that_of_both_jobs_and_changes_no_time(switch: Engine, check: str) -> None:
    small = {"size": "256 kB", "other_job": {"algorithm": "ring", "size": "256 kB", "repetitions": 1}}
    found, default = run(switch, **small, check=check), run(switch, **small)
    assert found["check"] == check
    assert found["violations"] == (None if check == "none" else 0)
    assert found["checked_share"] == pytest.approx({"all": 1, "sample": 1 / 16, "none": 0}[check], abs=0.01)
    assert (found["seconds"], found["other_job_seconds"]) == (
        default["seconds"],
        default["other_job_seconds"],
    )


@pytest.mark.slow
def test_two_alike_take_twice_the_time_of_one(switch: Engine) -> None:
    long = {"size": "800 kB", "repetitions": 3}
    alone, both = run(switch, **long), run(switch, **long, other_job=long)
    assert both["median_seconds"] == pytest.approx(2 * alone["median_seconds"], rel=0.1)
    assert both["other_job_seconds"] == pytest.approx(both["median_seconds"], rel=0.1)


def test_with_no_repetitions_there_is_none(switch: Engine) -> None:
    none = run(switch, other_job=OTHER | {"repetitions": 0})
    assert none["other_job_seconds"] is None
    assert none["median_seconds"] == run(switch)["median_seconds"]


def test_its_wrong_sums_are_counted(switch: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OtherJobs, "errors", Errors(largest=1.0, bound=0.5, violations=7))
    assert run(switch, other_job=OTHER)["violations"] == 7


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"workers": 7}, "other_job: needs two hosts that are not workers, and there are 1; set workers"),
        ({"window": 600}, "other_job.window: together with window exceeds the 1,024 slots of a switch"),
        ({"world": "live"}, "other_job: is virtual only; leave it out, or set world = 'virtual'"),
        ({"traffic": {"pattern": "permutation", "size": "1 kB"}}, "other_job: uses all hosts"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        point(other_job=OTHER, **changes)
