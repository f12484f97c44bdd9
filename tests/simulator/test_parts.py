"""How a network is divided into parts for several cores."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fanin.simulator.parts import divide
from fanin.topologies.model import Topology
from fanin.topologies.shapes import fat_tree, leaf_spine
from tests.topologies.networks import networks


def crossing(topology: Topology, cores: int) -> set[str]:
    """The switches at both ends of links between two parts."""
    parts = divide(topology, cores)
    own = dict(zip((switch.name for switch in topology.switches), parts.switches, strict=True))
    own |= dict(zip((host.name for host in topology.hosts), parts.hosts, strict=True))
    pairs = [{link.a.node, link.b.node} for link in topology.links if own[link.a.node] != own[link.b.node]]
    return set[str]().union(*pairs)


def test_one_core_has_everything() -> None:
    parts = divide(leaf_spine(2, 4, 4), 1)
    assert (parts.count, set(parts.switches), set(parts.hosts)) == (1, {0}, {0})


def test_leaves_stay_with_their_hosts_and_spines_are_shared_out() -> None:
    parts = divide(leaf_spine(2, 4, 4), 2)
    assert parts.switches == [0, 0, 1, 1, 0, 1]  # four leaves, two spines
    assert parts.first_hosts == [0, 8, 16]


def test_only_links_to_core_switches_cross_between_the_pods_of_a_fat_tree() -> None:
    crossed = crossing(fat_tree(pods=4, leaves=2, spines=2, cores=4, hosts_per_leaf=2), 2)
    assert not any(name.startswith(("leaf", "h")) for name in crossed)


def test_there_are_no_more_parts_than_leaves() -> None:
    assert divide(leaf_spine(0, 1, 8), 4).count == 1
    assert divide(leaf_spine(1, 3, 2), 16).count == 3


@given(networks, st.integers(1, 5))
def test_every_part_has_hosts_and_every_switch_a_part(topology: Topology, cores: int) -> None:
    parts = divide(topology, cores)
    assert 1 <= parts.count <= cores
    assert all(first < end for first, end in pairwise(parts.first_hosts))
    assert len(parts.hosts) == len(topology.hosts)
    assert len(parts.switches) == len(topology.switches)
    assert set(parts.switches) <= set(range(parts.count))
