"""Places for jobs: no two share slots at a switch or a port on a host, and roots share the load."""

import random
from dataclasses import replace

import pytest

from fanin.controller.errors import ControllerError
from fanin.controller.jobs.budget import Budget, NoRoomError, SlotAllocation
from fanin.controller.network import Network
from fanin.controller.planner import Planner
from fanin.controller.tree import FIRST_UDP_PORT, SLOTS, Job, Tree, aggregation_tree
from fanin.topologies.shapes import leaf_spine

NETWORK = leaf_spine(spines=2, leaves=2, hosts_per_leaf=2)
LEFT, RIGHT, ACROSS = ("h1", "h2"), ("h3", "h4"), ("h1", "h3")


def test_jobs_that_share_a_switch_have_slots_side_by_side_and_others_the_same() -> None:
    budget = Budget(NETWORK)
    first, second, other = [budget.take(hosts, 100) for hosts in (LEFT, LEFT, RIGHT)]
    assert [place.job.base for place in (first, second, other)] == [0, 100, 0]
    # At both leaves the same.
    assert budget.take(ACROSS, 10).job.base == 200
    assert budget.held("leaf1") == 210
    assert budget.held("leaf2") == 110


def test_roots_share_the_load_by_slots() -> None:
    budget = Budget(NETWORK)
    large = budget.take(ACROSS, 300)
    small = [budget.take(ACROSS, 100) for _ in range(3)]
    assert {place.tree.root.switch for place in small} == {"spine1", "spine2"} - {large.tree.root.switch}
    assert budget.held("spine1") == budget.held("spine2") == 300


def test_trees_are_those_of_the_planner() -> None:
    def always_the_same(network: Network, job: Job) -> Tree:
        return replace(aggregation_tree(network, replace(job, udp_port=FIRST_UDP_PORT)), job=job)

    budget = Budget(NETWORK, Planner(aggregation_tree=always_the_same))
    assert len({budget.take(ACROSS, 100).tree.root for _ in range(3)}) == 1
    assert len({budget.take(RIGHT, 100).job.udp_port for _ in range(3)}) == 3


def test_who_finds_no_room_is_told_where_there_is_none() -> None:
    budget = Budget(NETWORK)
    for slots in (400, 200, 400):
        last = budget.take(LEFT, slots)
    with pytest.raises(NoRoomError, match=r"^leaf1 has 24 of 1,024 slots free; the job needs 128$"):
        budget.take(ACROSS, 128)
    budget.give_back_slots(last)
    assert budget.take(ACROSS, 128).job.base == 600


def test_slots_that_do_not_hang_together_are_no_room() -> None:
    budget = Budget(NETWORK)
    places = [budget.take(LEFT, 256) for _ in range(4)]
    for place in places[::2]:
        budget.give_back(place)
    with pytest.raises(NoRoomError, match="leaf1 has 512 of 1,024 slots free; the job needs 257 in a row"):
        budget.take(LEFT, 257)
    assert budget.take(LEFT, 256).job.base == 0


def test_the_most_that_a_job_can_get_is_free_at_all_its_switches_in_one_range() -> None:
    budget = Budget(NETWORK)
    assert budget.most(LEFT) == SLOTS
    places = [budget.take(hosts, slots) for hosts, slots in ((LEFT, 100), (RIGHT, 300), (LEFT, 500))]
    assert [budget.most(hosts) for hosts in (LEFT, RIGHT, ACROSS)] == [424, 724, 424]
    budget.give_back(places[0])
    assert [budget.most(hosts) for hosts in (LEFT, ACROSS)] == [424, 424]
    budget.give_back(places[2])
    assert [budget.most(hosts) for hosts in (LEFT, ACROSS)] == [SLOTS, 724]
    assert budget.take(ACROSS, 724).job.base == 300
    assert [budget.most(hosts) for hosts in (LEFT, RIGHT)] == [300, 0]


def test_a_port_is_one_job_s_on_a_host_until_its_workers_have_ended() -> None:
    budget = Budget(NETWORK)
    places = [budget.take(("h1",), 1) for _ in range(16)]
    assert len({place.job.udp_port for place in places}) == 16
    budget.take(("h2",), 1)
    with pytest.raises(NoRoomError, match="no free UDP port in common; there are 16, and h1 uses 16"):
        budget.take(LEFT, 1)
    budget.give_back_slots(places[7])
    with pytest.raises(NoRoomError):
        budget.take(LEFT, 1)
    budget.give_back(places[7])
    assert budget.take(LEFT, 1).job.udp_port == places[7].job.udp_port


@pytest.mark.parametrize(("hosts", "slots"), [(("h1",), 0), (("h1",), 1025), (("h9",), 1)])
def test_what_can_never_be_granted_does_not_wait(hosts: tuple[str, ...], slots: int) -> None:
    with pytest.raises(ControllerError) as refused:
        Budget(NETWORK).take(hosts, slots)
    assert not isinstance(refused.value, NoRoomError)


@pytest.mark.slow
def test_whatever_comes_and_goes_nothing_is_shared_and_nothing_is_left() -> None:
    draw = random.Random(1)
    hosts = [host.name for host in NETWORK.hosts]
    switches = [switch.name for switch in NETWORK.switches]
    budget = Budget(NETWORK)
    places: list[SlotAllocation] = []
    for _ in range(1000):
        if places and draw.random() < 0.4:
            budget.give_back(places.pop(draw.randrange(len(places))))
            continue
        try:
            places.append(budget.take(draw.sample(hosts, draw.randint(1, 4)), draw.randint(1, 300)))
        except NoRoomError:
            continue
        for switch in switches:
            used = [slot for place in places for slot in place.slots_at(switch)]
            assert len(used) == len(set(used)) == budget.held(switch) <= SLOTS
        for host in hosts:
            ports = [place.job.udp_port for place in places if host in place.job.hosts]
            assert len(ports) == len(set(ports))
    for place in places:
        budget.give_back(place)
    assert budget.take(hosts, SLOTS).job.base == 0
