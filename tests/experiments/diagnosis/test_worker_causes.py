"""The causes at the workers: data from file servers, and workers that are the slowest in turns."""

from __future__ import annotations

from typing import Any

import pytest

from fanin.experiments.diagnosis.case import Case
from fanin.experiments.diagnosis.diagnose import Diagnosis, diagnose
from fanin.experiments.results.measured import Row, row
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

pytestmark = pytest.mark.slow

NETWORK = {"leaf_spine": {"leaves": 1, "hosts_per_leaf": 6, "spines": 0, "rate": "10 Gb/s"}}
STEP = {"forward": "0.2 ms", "backward": "0.4 ms", "bucket": "40 kB"}


def run(switch: Engine, **tables: Any) -> tuple[Settings, Row, Usage]:
    said = {"topology": NETWORK, "size": "160 kB", "workers": 5, "repetitions": 6, "step": STEP}
    settings = Settings.model_validate(said | tables).settled
    measured = run_virtual(settings, switch)
    assert measured.usage is not None
    return settings, row(settings, measured), measured.usage


def diagnosed(switch: Engine, **tables: Any) -> Diagnosis:
    _, found, usage = run(switch, **tables)
    return diagnose(found, usage)


def test_workers_that_wait_for_a_file_server_have_a_slow_data_loader(switch: Engine) -> None:
    found = diagnosed(switch, storage={"batch": "200 kB", "prefetch": 0})
    assert [finding.cause for finding in found.findings] == ["data loader"]
    assert "storage.servers" in found.findings[0].change


def test_data_that_is_there_in_time_costs_nothing(switch: Engine) -> None:
    found = diagnosed(switch, storage={"batch": "20 kB", "prefetch": 2})
    assert found.cause == "nothing wrong"


def test_workers_that_are_the_slowest_in_turns_are_stragglers(switch: Engine) -> None:
    found = diagnosed(switch, step=STEP | {"variation": 0.6})
    assert found.cause == "straggler"
    assert "was the slowest in" in found.findings[0].evidence


@pytest.mark.parametrize("workers", [2, 4])
def test_half_of_the_workers_may_be_slow(switch: Engine, workers: int) -> None:
    slow = [{"host": f"h{number + 1}", "factor": 1.8} for number in range(workers // 2)]
    _, before, _ = run(switch, workers=workers)
    _, after, usage = run(switch, workers=workers, step=STEP | {"stragglers": slow})
    [found] = diagnose(after, usage).findings
    assert found.cause == "straggler"
    assert found.share == pytest.approx(1 - before["step_seconds"] / after["step_seconds"], abs=0.05)


def test_a_slow_worker_costs_what_is_not_hidden_behind_it(switch: Engine) -> None:
    """Behind what it computes longer, the others sum many small buckets, which takes as long without it."""
    small = STEP | {"bucket": "800 B"}
    _, before, _ = run(switch, step=small)
    _, after, usage = run(switch, step=small | {"stragglers": [{"host": "h3", "factor": 4}]})
    found = diagnose(after, usage)
    shares = {finding.cause: finding.share for finding in (*found.findings, *found.minor)}
    assert shares["straggler"] == pytest.approx(1 - before["step_seconds"] / after["step_seconds"], abs=0.1)


@pytest.mark.parametrize("table", [{"step": STEP}, {"step": None}])
def test_a_worker_that_is_stopped_for_a_while_is_a_straggler(switch: Engine, table: dict[str, Any]) -> None:
    stop = {"at": "0.1 ms", "worker": "h4", "duration": "2 ms", "detection": "1 s"}
    found = diagnosed(switch, faults=[stop], **table)
    assert [finding.cause for finding in found.findings] == ["straggler"]
    assert "h4 was stopped" in found.findings[0].evidence


def test_workers_that_are_stopped_for_less_than_the_others_need_cost_nothing(switch: Engine) -> None:
    network = {"leaf_spine": NETWORK["leaf_spine"] | {"hosts_per_leaf": 4}}
    stops = [
        {"at": at, "worker": host, "duration": "111 us", "detection": "1 s"}
        for at, host in (("61 us", "h1"), ("222 us", "h3"))
    ]
    given = {"topology": network, "workers": 4, "step": None, "size": "153376 B", "repetitions": 4}
    _, before, _ = run(switch, **given)
    _, after, usage = run(switch, **given, faults=stops)
    assert after["median_seconds"] == pytest.approx(before["median_seconds"], rel=0.01)
    assert diagnose(after, usage).cause == "nothing wrong"


def test_a_worker_that_is_stopped_before_its_call_delays_those_that_have_called(switch: Engine) -> None:
    stop = {"at": "64 us", "worker": "h2", "duration": "957 us", "detection": "1 s"}
    racks = {"spines": 2, "leaves": 2, "hosts_per_leaf": 3, "rate": "5 Gb/s", "uplink_rate": "7.5 Gb/s"}
    given = {"topology": {"leaf_spine": racks}, "workers": 6, "size": "104248 B", "repetitions": 4}
    found = diagnosed(switch, faults=[stop], step=None, algorithm="ring", **given)
    assert [finding.cause for finding in found.findings] == ["straggler"]


def test_what_two_causes_leave_that_hide_each_other_is_not_communication(switch: Engine) -> None:
    """Without both, workers would idle for a tenth of the time."""
    racks = {"spines": 1, "leaves": 3, "hosts_per_leaf": 3, "rate": "100 Gb/s", "uplink_rate": "300 Gb/s"}
    network = {"leaf_spine": racks, "overrides": [{"link": ["leaf1", "h1"], "rate": "25 Gb/s"}]}
    step = {"forward": "63 us", "backward": "211 us", "bucket": "277360 B"}
    slow = step | {"stragglers": [{"host": "h6", "factor": 1.6}]}
    found = diagnosed(switch, topology=network, workers=9, size="1386800 B", step=slow)
    assert [finding.cause for finding in found.findings] == ["slow link"]


def test_workers_that_are_stopped_in_turns_cost_the_time_of_all(switch: Engine) -> None:
    """As pauses of garbage collection do."""
    stops = [
        {"at": at, "worker": host, "duration": "0.9 ms", "detection": "1 s"}
        for at, host in (("0.1 ms", "h4"), ("1.4 ms", "h1"), ("2.7 ms", "h3"), ("4 ms", "h2"))
    ]
    _, before, _ = run(switch)
    _, after, usage = run(switch, faults=stops)
    [straggler] = diagnose(after, usage).findings
    assert straggler.cause == "straggler"
    assert straggler.share == pytest.approx(1 - before["step_seconds"] / after["step_seconds"], abs=0.05)
    assert "h4 (900 us)" in straggler.evidence
    assert "were stopped for 3,600 of" in straggler.evidence


def test_communication_is_exposed_for_as_long_as_in_the_results(switch: Engine) -> None:
    settings, found, usage = run(switch, step=STEP | {"variation": 0.6})
    case = Case(settings, found, usage)
    assert case.exposed * case.step_seconds == pytest.approx(found["exposed_seconds"], rel=1e-6)
