"""The aggregation tree of a job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import ControllerError
from controller.tree import Job, Tree, aggregation_tree
from topologies.model import Topology, leaf_spine


@st.composite
def trees(draw: st.DrawFn) -> tuple[Topology, Tree]:
    """A network, and the tree of a job of some of its hosts."""
    network = leaf_spine(draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 6)))
    names = [host.name for host in network.hosts]
    hosts = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    job = Job(draw(st.integers(1, 255)), tuple(hosts), draw(st.integers(0xBEE0, 0xBEEF)))
    return network, aggregation_tree(network, job)


@given(trees())
def test_every_host_is_below_its_own_leaf_once(case: tuple[Topology, Tree]) -> None:
    network, tree = case
    leaves = [part for part in tree.aggregators if network.switch(part.switch).role == "leaf"]
    placed = [(child, leaf.switch) for leaf in leaves for child in leaf.children]
    assert sorted(placed) == sorted((name, network.host(name).leaf) for name in tree.job.hosts)


@given(trees())
def test_every_switch_but_the_root_is_a_child_of_its_parent(case: tuple[Topology, Tree]) -> None:
    _, tree = case
    children_of = {part.switch: part.children for part in tree.aggregators}
    for part in tree.aggregators[:-1]:
        assert part.parent is not None
        assert part.switch in children_of[part.parent]
    assert tree.root.parent is None


@given(trees())
def test_the_root_is_a_spine_where_several_leaves_meet(case: tuple[Topology, Tree]) -> None:
    network, tree = case
    leaves = {network.host(name).leaf for name in tree.job.hosts}
    assert network.switch(tree.root.switch).role == ("spine" if len(leaves) > 1 else "leaf")


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


@pytest.mark.parametrize(
    ("job", "complaint"),
    [
        (Job(0, ("h1",)), "lease: is 0, must be from 1 to 255"),
        (Job(256, ("h1",)), "lease: is 256"),
        (Job(1, ("h1",), udp_port=5000), "udp_port: is 5000, must be from 48864 to 48879"),
        (Job(1, ("h1",), slots=0), "slots: is 0, must be from 1 to 1024"),
        (Job(1, ("h1",), base=1000, slots=25), "base: is 1000, must be from 0 to 999"),
        (Job(1, ()), "a job needs a host"),
        (Job(1, ("h1", "h9", "h10")), "no host is called h10, h9"),
        (Job(1, ("h1", "h2", "h1")), "a host contributes once; the job's are h1, h2, h1"),
    ],
)
def test_a_job_that_the_program_cannot_hold_is_refused_by_name(job: Job, complaint: str) -> None:
    with pytest.raises(ControllerError) as caught:
        aggregation_tree(leaf_spine(), job)
    assert complaint in str(caught.value)


def test_a_switch_has_bits_for_32_children() -> None:
    network = leaf_spine(spines=0, leaves=1, hosts_per_leaf=33)
    names = tuple(host.name for host in network.hosts)
    assert aggregation_tree(network, Job(1, names[:32])).root.full_mask == 0xFFFFFFFF
    with pytest.raises(ControllerError, match="leaf1 would add up 33 children; it has bits for 32"):
        aggregation_tree(network, Job(1, names))
