"""The aggregation tree of a job."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.controller.errors import ControllerError
from fanin.controller.tree import Aggregator, Job, Tree, aggregation_tree
from fanin.topologies.model import Topology
from fanin.topologies.shapes import fat_tree, leaf_spine, servers, topology_from
from tests.topologies.networks import networks


@st.composite
def trees(draw: st.DrawFn, *, served: bool = False) -> tuple[Topology, Tree]:
    """A network, and the tree of a job of some of its hosts, with a server on one of the others if it is `served`."""
    network = draw(networks.filter(lambda network: len(network.hosts) > 1) if served else networks)
    names = draw(st.permutations([host.name for host in network.hosts]))
    server = names.pop() if served else None
    hosts = names[: draw(st.integers(1, len(names)))]
    lease, port = draw(st.integers(1, 255)), draw(st.integers(0xBEE0, 0xBEEF))
    return network, aggregation_tree(network, Job(lease, tuple(hosts), port, server=server))


ANY = trees() | trees(served=True)


@given(ANY)
def test_every_host_is_below_its_own_leaf_once(case: tuple[Topology, Tree]) -> None:
    network, tree = case
    hosts = {host.name for host in network.hosts}
    placed = [(child, part.switch) for part in tree.aggregators for child in part.children if child in hosts]
    assert sorted(placed) == sorted((name, network.host(name).leaf) for name in tree.job.hosts)


@given(ANY)
def test_every_switch_but_the_root_is_a_child_of_its_parent_and_of_no_other(
    case: tuple[Topology, Tree],
) -> None:
    tree = case[1]
    parents = {child: part.switch for part in tree.aggregators for child in part.children}
    assert sum(len(part.children) for part in tree.aggregators) == len(parents)
    for part in tree.aggregators:
        assert part.parent == parents.get(part.switch, tree.job.server)
        assert (part.parent == tree.job.server) == (part is tree.root)
    assert len({part.switch for part in tree.aggregators}) == len(tree.aggregators)
    assert parents.keys() == {*tree.job.hosts, *(part.switch for part in tree.aggregators[:-1])}


@given(ANY)
def test_each_contribution_is_in_the_roots_sum_once(case: tuple[Topology, Tree]) -> None:
    tree = case[1]
    sums = {name: Counter([name]) for name in tree.job.hosts}
    for part in tree.aggregators:  # children come before their parents
        added: Counter[str] = Counter()
        for child in part.children:
            added += sums.pop(child)
        sums[part.switch] = added
    assert sums == {tree.root.switch: Counter(tree.job.hosts)}


@given(trees())
def test_no_switch_adds_up_more_than_it_has_bits_or_has_nothing_to_add(case: tuple[Topology, Tree]) -> None:
    for part in case[1].aggregators:
        assert 1 <= len(part.children) <= 32


@given(trees(served=True))
def test_the_root_of_a_job_with_a_server_is_the_servers_leaf(case: tuple[Topology, Tree]) -> None:
    network, tree = case
    assert tree.job.server is not None
    assert tree.root.switch == network.host(tree.job.server).leaf
    for part in tree.aggregators:
        assert part.parent in network.neighbours(part.switch).values()


@given(trees())
def test_the_root_is_the_lowest_switch_above_all_members(case: tuple[Topology, Tree]) -> None:
    """In these networks, which are small."""
    network, tree = case
    leaves = {network.host(name).leaf for name in tree.job.hosts}
    above = {leaf: {leaf} for leaf in leaves}
    for number in range(len(network.tiers)):
        if common := set.intersection(*above.values()):
            assert tree.root.switch in common
            return
        higher = {switch.name for upper in network.tiers[number + 1 : number + 2] for switch in upper}
        above = {
            leaf: {n for name in names for n in network.neighbours(name).values() if n in higher}
            for leaf, names in above.items()
        }
    raise AssertionError(f"nothing is above {leaves}")


@given(trees())
def test_a_full_mask_has_one_bit_for_each_child(case: tuple[Topology, Tree]) -> None:
    for part in case[1].aggregators:
        assert bin(part.full_mask) == "0b" + "1" * len(part.children)


def test_jobs_spread_over_the_spines_and_stay_there_from_lease_to_lease() -> None:
    network = leaf_spine(spines=3, leaves=2, hosts_per_leaf=1)
    roots = {
        (lease, port): aggregation_tree(network, Job(lease, ("h1", "h2"), port)).root.switch
        for lease in (1, 2)
        for port in (0xBEE0, 0xBEE1, 0xBEE2)
    }
    assert sorted(set(roots.values())) == ["spine1", "spine2", "spine3"]
    assert all(roots[1, port] == roots[2, port] for _, port in roots)


def test_jobs_between_pods_spread_over_the_cores() -> None:
    network = fat_tree(4)
    roots = {aggregation_tree(network, Job(1, ("h1", "h16"), 0xBEE0 + n)).root.switch for n in range(4)}
    assert roots == {"core1", "core2", "core3", "core4"}


def test_a_switch_with_one_child_is_in_the_tree_as_it_takes_results_from_neighbours_only() -> None:
    tree = aggregation_tree(fat_tree(k=2), Job(1, ("h1", "h2")))
    parts = [(part.switch, part.children, part.parent) for part in tree.aggregators]
    assert parts == [
        ("leaf1", ("h1",), "spine1"),
        ("spine1", ("leaf1",), "core1"),
        ("leaf2", ("h2",), "spine2"),
        ("spine2", ("leaf2",), "core1"),
        ("core1", ("spine1", "spine2"), None),
    ]


@given(networks, st.data())
def test_where_links_have_failed_a_tree_takes_others_as_long_as_any_join_the_leaves(
    network: Topology, data: st.DataObject
) -> None:
    left = network.without([link for link in network.links if link.a.port and data.draw(st.booleans())])
    try:
        tree = aggregation_tree(left, everybody(network))
    except ControllerError as error:
        first, second = str(error).removeprefix("no path leads from ").partition(":")[0].split(" to ")
        reached = {first}
        for _ in network.switches:
            reached |= {neighbour for node in reached for neighbour in left.neighbours(node).values()}
        assert second not in reached
        return
    for part in tree.aggregators:
        assert {*part.children, *filter(None, [part.parent])} <= set(left.neighbours(part.switch).values())


def everybody(network: Topology) -> Job:
    return Job(1, tuple(host.name for host in network.hosts))


def test_64_leaves_are_added_up_by_two_spines_and_those_by_a_core_above_both() -> None:
    data = fat_tree(pods=1, leaves=64, spines=2, cores=2, hosts_per_leaf=1).model_dump(mode="json")
    data["links"].append({"a": {"node": "spine2", "port": 66}, "b": {"node": "core1", "port": 2}})
    network = topology_from(data)
    tree = aggregation_tree(network, everybody(network))
    assert tree.root == Aggregator("core1", ("spine1", "spine2"), None)
    assert {part.switch: len(part.children) for part in tree.aggregators if len(part.children) > 1} == {
        "spine1": 32,
        "spine2": 32,
        "core1": 2,
    }


@pytest.mark.parametrize(("spines", "leaves", "hosts"), [(2, 40, 1), (2, 65, 30), (1, 33, 31), (4, 128, 2)])
def test_without_a_core_a_leaf_adds_up_the_spines_that_add_up_the_others(
    spines: int, leaves: int, hosts: int
) -> None:
    network = leaf_spine(spines, leaves, hosts)
    tree = aggregation_tree(network, everybody(network))
    assert network.switch(tree.root.switch).role == "leaf"
    assert tree.root.children[:hosts] == tuple(host.name for host in network.hosts_of(tree.root.switch))
    assert all(network.switch(name).role == "spine" for name in tree.root.children[hosts:])
    assert len(tree.aggregators) == leaves + -(-(leaves - 1) // 32)
    assert max(len(part.children) for part in tree.aggregators) <= 32


@pytest.mark.parametrize(("spines", "leaves", "hosts"), [(1, 34, 1), (2, 66, 1), (2, 33, 32), (2, 65, 31)])
def test_more_leaves_than_its_spines_can_add_up_are_refused(spines: int, leaves: int, hosts: int) -> None:
    network = leaf_spine(spines, leaves, hosts)
    with pytest.raises(
        ControllerError, match=f"below {leaves} switches, and those above have bits for 32 child"
    ):
        aggregation_tree(network, everybody(network))


@pytest.mark.parametrize(
    ("job", "complaint"),
    [
        (Job(0, ("h1",)), "lease: is 0, must be from 1 to 255"),
        (Job(256, ("h1",)), "lease: is 256"),
        (Job(1, ("h1",), udp_port=5000), "udp_port: is 5000, must be from 48864 to 48879"),
        (Job(1, ("h1",), slots=0), "slots: is 0, must be from 1 to 1024"),
        (Job(1, ("h1",), base=1000, slots=25), "base: is 1000, must be from 0 to 999"),
        (Job(1, ()), "a job needs at least one host"),
        (Job(1, ("h1", "h9", "h10")), "no host is called h10, h9"),
        (Job(1, ("h1", "h2", "h1")), "a host contributes once; the job's are h1, h2, h1"),
    ],
)
def test_a_job_that_the_program_cannot_hold_is_refused_by_name(job: Job, complaint: str) -> None:
    with pytest.raises(ControllerError) as caught:
        aggregation_tree(leaf_spine(), job)
    assert complaint in str(caught.value)


def test_more_than_a_thousand_switches_add_up_in_four_tiers() -> None:
    network = servers(pods=32, leaves=1, spines=1, cores=1, servers_per_leaf=32, hosts_per_server=1)
    tree = aggregation_tree(network, Job(1, tuple(host.name for host in network.ranked_hosts)))
    assert len(tree.aggregators) == len(network.switches) == 32 * 32 + 32 + 32 + 1
    assert Counter(len(part.children) for part in tree.aggregators) == {1: 32 * 32 + 32, 32: 32 + 1}


def test_a_switch_has_bits_for_32_children() -> None:
    network = leaf_spine(spines=0, leaves=1, hosts_per_leaf=33)
    names = tuple(host.name for host in network.hosts)
    assert aggregation_tree(network, Job(1, names[:32])).root.full_mask == 0xFFFFFFFF
    with pytest.raises(ControllerError, match="leaf1 would add up 33 children; it has bits for 32"):
        aggregation_tree(network, Job(1, names))
