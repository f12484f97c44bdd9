"""Which way each flow takes, against the program itself; and how many meet on a link."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from fanin.controller.planner import planner_of
from fanin.experiments.models.flows import NoFlowError, expected_most, loads, spreads, ways
from fanin.experiments.scenario.settings import Settings
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Fabric
from fanin.simulator.hosts.stations import Flow as Frames

SPINES = {"leaf_spine": {"spines": 4, "leaves": 3, "hosts_per_leaf": 2}}
FAT_TREE = {"fat_tree": {"k": 4}}


def point(topology: dict[str, Any], **rest: Any) -> Settings:
    return Settings.model_validate(
        {"topology": topology, "algorithm": "ring", "placement": "spread", "size": "4 kB", **rest}
    ).settled


@pytest.mark.parametrize("paths", ["ecmp", "single"])
@pytest.mark.parametrize("topology", [SPINES, FAT_TREE])
def test_each_flow_takes_the_way_that_the_program_sends_it(
    switch: Engine, topology: dict[str, Any], paths: str
) -> None:
    settings = point(topology, flows_per_pair=3, paths=paths)
    network = settings.network
    fabric = Fabric(network, switch, planner=planner_of(None, settings.paths))
    found = ways(settings)
    assert len(found) == 3 * len(settings.members)
    for flow, hops in found:
        host, node, taken = flow.source, flow.source.leaf, []
        frame = Frames(
            host,
            network.switch(node).mac,
            flow.destination.ip,
            flow.source_port,
            flow.destination_port,
        ).frames(np.zeros((1, 100), np.uint8))[0]
        came, data = network.port_towards(node, host.name), frame.tobytes()
        while node in fabric.engines:
            ((port, data),) = fabric.engines[node].process(came, data)
            following = network.neighbours(node)[port]
            taken.append((node, port, following))
            if following in fabric.engines:
                came = network.port_towards(following, node)
            node = following
        assert taken == [(hop.switch, hop.port, hop.neighbour) for hop in hops]


def test_loads_and_spreads_count_the_flows_of_each_link() -> None:
    found = ways(point(SPINES, flows_per_pair=4))
    counted = loads(found)
    assert sum(counted[leaf, "spine1"] for leaf in ("leaf1", "leaf2", "leaf3")) == sum(
        count for (switch, _), count in counted.items() if switch == "spine1"
    )
    for spread in spreads(found):
        on_uplinks = [counted[spread.switch, f"spine{number}"] for number in range(1, 5)]
        assert (spread.flows, spread.paths, spread.most) == (sum(on_uplinks), 4, max(on_uplinks))
        assert spread.even <= spread.most <= spread.flows
    assert [spread.switch for spread in spreads(found)] == ["leaf1", "leaf2", "leaf3"]


@pytest.mark.parametrize(("flows", "paths"), [(0, 4), (1, 4), (4, 1), (2, 2), (4, 4), (6, 3), (5, 2)])
def test_the_fullest_path_of_random_ones_is_the_mean_over_all_cases(flows: int, paths: int) -> None:
    cases = [
        max((case.count(path) for path in range(paths)), default=0)
        for case in product(range(paths), repeat=flows)
    ]
    assert expected_most(flows, paths) == pytest.approx(sum(cases) / len(cases))


def test_thousands_of_flows_are_spread_more_evenly() -> None:
    assert 1000 < expected_most(4000, 4) < 1050


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "in-network"}, "uses the links of its tree"),
        ({"paths": "spray"}, "with paths = 'spray' a path is chosen for each packet"),
        ({"world": "live"}, "set transport = 'selective-repeat'"),
    ],
)
def test_what_has_no_path_for_each_flow_says_so(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NoFlowError, match=message):
        ways(point(SPINES, **changes))
