"""Rails, planes and several paths in soak; and rules of trees and of forwarding broken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

import pytest

from fanin.assurance.soak.generate import draw_scenario
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Outage, Scenario, Work
from fanin.controller.network import Network
from fanin.controller.plan import _Forwarding
from fanin.controller.planner import OURS
from fanin.controller.tree import Job, Tree, aggregation_tree
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Fabric
from fanin.topologies.model import Topology

pytestmark = pytest.mark.slow

WITHIN = 200  # seeds, in which a mutant must be caught
RAILS = Scenario(
    0,
    (Work((2, 1, 1), elements=(3000,)), Work((1, 1, 1), elements=(3000,), algorithm="ring")),
    tiers=4,
    rails=2,
    planes=2,
)


@pytest.mark.few(3)
@pytest.mark.parametrize("paths", ["ecmp", "spray", "adaptive"])
@pytest.mark.parametrize("planes", [1, 2])
def test_sums_are_right_on_rails_and_planes_by_any_paths(switch: Engine, paths: Any, planes: int) -> None:
    scenario = replace(RAILS, paths=paths, planes=planes)
    server = scenario.topology.leaves[0].name
    above = [node for node in scenario.topology.neighbours(server).values() if node.startswith("leaf")]
    assert len(above) == 2
    assert not run_scenario(scenario, switch).violations


def test_scenarios_have_rails_planes_and_all_paths() -> None:
    scenarios = [draw_scenario(seed) for seed in range(WITHIN)]
    assert {(scenario.rails, scenario.planes) for scenario in scenarios} == {(1, 1), (2, 1), (2, 2)}
    assert {scenario.paths for scenario in scenarios} == {"ecmp", "spray", "adaptive"}


def test_routes_go_round_a_link_that_is_known_to_be_down(switch: Engine) -> None:
    assert any(draw_scenario(seed).rerouted for seed in range(WITHIN))
    spines = replace(RAILS, tiers=2, rails=1, planes=1, spines=2)
    (uplink, *_) = (
        number
        for number, link in enumerate(spines.topology.links)
        if {link.a.node, link.b.node} == {"leaf1", "spine1"}
    )
    down = replace(spines, outages=(Outage(uplink, 0.0, 1.0, found=0.0),))
    outcome = run_scenario(down, switch)
    assert not outcome.violations
    assert outcome.faults["rerouted"]


def by_another_card(network: Network, job: Job) -> Tree:
    """The first switch of a tree sends its sum up by another link than the one that leads to its parent."""
    tree = aggregation_tree(network, job)
    first, *others = tree.aggregators
    tiers = {switch.name: number for number, tier in enumerate(network.tiers) for switch in tier}
    above = [
        name
        for name in network.neighbours(first.switch).values()
        if tiers.get(name, 0) > tiers[first.switch] and name != first.parent
    ]
    return replace(tree, aggregators=(replace(first, parent=above[0]), *others)) if above and others else tree


def test_a_sum_that_leaves_a_server_by_the_wrong_card_is_caught(switch: Engine) -> None:
    planner = replace(OURS, aggregation_tree=by_another_card)
    scenarios = (scenario for scenario in map(draw_scenario, range(WITHIN)) if scenario.rails > 1)
    assert any(run_scenario(scenario, switch, planner=planner).violations for scenario in scenarios)


def test_a_network_of_which_one_switch_is_not_told_of_new_routes_is_caught(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reroute = Fabric.reroute
    tell = {name: getattr(Fabric, name) for name in ("install", "remove")}

    def partly(fabric: Fabric, usable: Topology) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name, told in tell.items():
                patch.setattr(Fabric, name, lambda one, plan, told=told: told(one, dict([*plan.items()][1:])))
            reroute(fabric, usable)

    monkeypatch.setattr(Fabric, "reroute", partly)
    scenarios = (scenario for scenario in map(draw_scenario, range(WITHIN)) if scenario.rerouted)
    assert any(run_scenario(scenario, switch).violations for scenario in scenarios)


def test_a_path_that_leads_nowhere_is_caught(switch: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    equal_paths = _Forwarding._equal_paths

    def one_too_many(
        forwarding: _Forwarding, hops: tuple[str, ...], racks: Iterable[IPv4Network], *, down: bool
    ) -> Iterable[Any]:
        for entry in equal_paths(forwarding, hops, racks, down=down):
            if "count" in entry.params:
                more = {**entry.params, "count": entry.params["count"] + 1}
                yield replace(entry, params=more)
            else:
                yield entry
        forwarding._paths += 1

    monkeypatch.setattr(_Forwarding, "_equal_paths", one_too_many)
    scenarios = (scenario for scenario in map(draw_scenario, range(WITHIN)) if scenario.paths != "ecmp")
    assert any(run_scenario(scenario, switch).violations for scenario in scenarios)
