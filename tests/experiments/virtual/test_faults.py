"""What fails in virtual time: what docs/faults.md promises of it, and that every sum is right whatever happens."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from experiments.results.measured import Row, row
from experiments.scenario.settings import Settings
from experiments.virtual.faults import FaultError
from experiments.virtual.point import run_virtual
from p4switch.engine.engine import Engine

RACKS = {"spines": 2, "leaves": 2, "hosts_per_leaf": 2, "rate": "10 Gb/s", "uplink_rate": "10 Gb/s"}
MIDDLE = "300 us"  # of the second of four all-reduces, in the network or by ring


def point(fault: dict[str, Any] | None, **changes: Any) -> Settings:
    document = {"topology": {"leaf_spine": RACKS}, "size": "200 kB", "repetitions": 4, "window": 64}
    return Settings.model_validate(document | changes | ({"fault": fault} if fault else {})).settled


def run(switch: Engine, fault: dict[str, Any] | None, **changes: Any) -> Row:
    settings = point(fault, **changes)
    found = row(settings, run_virtual(settings, switch))
    assert found["violations"] == 0
    return found


def restart(node: str) -> dict[str, Any]:
    return {"kind": "switch-restart", "node": node, "at": MIDDLE, "notice": "20 ms"}


def down(spine: str, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "link-down",
        "node": "leaf1",
        "far_node": spine,
        "at": MIDDLE,
        "notice": "20 ms",
    } | changes


def root(switch: Engine) -> str:
    """Of the job's tree: of a fault at the other spine nothing is to be seen."""
    (name,) = (
        spine for spine in ("spine1", "spine2") if run(switch, down(spine))["fault_carried_on"] == "ring"
    )
    return name


@pytest.mark.parametrize("loss", [0, 0.01])
def test_a_job_whose_root_restarts_goes_on_by_ring(switch: Engine, loss: float) -> None:
    found = run(switch, restart(root(switch)), links={"loss": loss})
    assert found["fault_carried_on"] == "ring"
    assert 0.02 < found["fault_recovery_seconds"] < 0.2
    whole = run(switch, None, links={"loss": loss})
    assert whole["fault_carried_on"] is None
    assert found["max_seconds"] > 0.02 > whole["max_seconds"]


@pytest.mark.parametrize("loss", [0, 0.01])
def test_a_job_goes_on_where_it_was_when_a_leaf_below_its_root_restarts(switch: Engine, loss: float) -> None:
    found = run(switch, restart("leaf2"), links={"loss": loss})
    assert found["fault_carried_on"] == "in-network"
    assert 0.02 < found["fault_recovery_seconds"] < 0.2
    assert found["retransmissions"] > 0


def test_routes_go_around_a_link_that_is_down_and_a_job_whose_tree_has_it_goes_on_by_ring(
    switch: Engine,
) -> None:
    used = root(switch)
    (other,) = {"spine1", "spine2"} - {used}
    assert run(switch, down(other))["fault_carried_on"] == "in-network"
    for back in ({}, {"duration": "25 ms"}):
        found = run(switch, down(used, **back))
        assert found["fault_carried_on"] == "ring"
        assert found["fault_recovery_seconds"] > 0.02
    up_before_it_is_found = run(switch, down(used, duration="1 ms"))
    assert up_before_it_is_found["fault_carried_on"] == "in-network"
    assert up_before_it_is_found["retransmissions"] > 0


@pytest.mark.parametrize("node", ["spine1", "spine2"])
def test_between_hosts_a_job_just_goes_on(switch: Engine, node: str) -> None:
    for fault in (restart(node), down(node)):
        found = run(switch, fault, algorithm="ring", placement="spread")
        assert found["fault_carried_on"] == "ring"
        assert found["fault_recovery_seconds"] > 0


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_the_others_wait_for_a_worker_that_stands_still(switch: Engine, algorithm: str) -> None:
    fault = {"kind": "worker-stall", "node": "h3", "at": MIDDLE, "duration": "30 ms"}
    found = run(switch, fault, algorithm=algorithm)
    assert found["fault_recovery_seconds"] == pytest.approx(0.03, rel=0.1)


def test_a_worker_that_dies_is_named(switch: Engine) -> None:
    with pytest.raises(FaultError, match="rank 2 on h3 ended while others wait"):
        run(switch, {"kind": "worker-death", "node": "h3", "at": MIDDLE})


def test_a_fault_after_the_end_is_an_error(switch: Engine) -> None:
    with pytest.raises(FaultError, match=r"fault.at: the job was over after [\d.]+ ms; set it to less"):
        run(switch, restart("leaf1") | {"at": "1 s"})


def test_without_compiled_links_the_history_is_the_same(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = down(root(switch))
    in_c = run(switch, fault)
    monkeypatch.setattr("topologies.virtual.compiled.library", lambda: None)
    assert run(switch, fault) == in_c


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"node": "h1", "kind": "switch-restart"}, "fault.node: no switch is called 'h1'"),
        ({"node": "leaf1", "kind": "worker-stall", "duration": 1}, "fault.node: 'leaf1' is no worker's host"),
        ({"node": "leaf1", "kind": "worker-stall"}, "duration: missing; worker-stall needs it"),
        ({"node": "leaf1", "kind": "link-down"}, "far_node: missing; link-down needs both ends"),
        (
            {"node": "leaf1", "kind": "link-down", "far_node": "h1"},
            "fault.far_node: no switch is called 'h1'",
        ),
        ({"node": "leaf1", "kind": "link-down", "far_node": "leaf2"}, "no link joins leaf1 and leaf2"),
        ({"node": "leaf1", "kind": "switch-restart", "far_node": "leaf2"}, "far_node: is of link-down"),
        ({"node": "h1", "kind": "worker-death", "duration": 1}, "duration: has no meaning for worker-death"),
    ],
)
def test_one_that_cannot_be_is_refused(fault: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        point(fault | {"at": MIDDLE})


def test_live_it_is_refused() -> None:
    with pytest.raises(ValidationError, match="fault: is virtual only"):
        point(restart("leaf1"), world="live")


def test_none_is_the_point_without_one() -> None:
    assert point(restart("leaf1") | {"kind": "none"}).key == point(None).key
