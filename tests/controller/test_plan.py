"""Tables of switches lead where they should, in random networks and for random jobs."""

from collections import Counter
from ipaddress import IPv4Address, IPv4Network
from typing import Any, get_args
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.controller.errors import ControllerError
from fanin.controller.plan import (
    PathChoice,
    Plan,
    SwitchPlan,
    TableEntry,
    plan_aggregation,
    plan_forwarding,
    plan_loss,
)
from fanin.controller.tree import Job, Tree, aggregation_tree
from fanin.topologies.model import Topology
from fanin.topologies.shapes import fat_tree, leaf_spine, servers, topology_from
from tests.topologies.networks import leaf_spines, networks


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Topology, Tree]:
    network = draw(networks)
    hosts = draw(st.lists(st.sampled_from([host.name for host in network.hosts]), min_size=1, unique=True))
    slots = draw(st.integers(1, 1024))
    job = Job(draw(st.integers(1, 255)), tuple(hosts), base=draw(st.integers(0, 1024 - slots)), slots=slots)
    return network, aggregation_tree(network, job)


def of(plan: SwitchPlan, table: str, action: str = "") -> list[TableEntry]:
    return [entry for entry in plan.entries if entry.table == table and entry.action.endswith(action)]


def routed(
    network: Topology, plan: Plan, source: str, destination: IPv4Address, choose: Any = min
) -> list[str]:
    """The switches that a packet crosses, by a path of each group that `choose` picks; the host it reaches is last."""
    node = network.host(source).leaf
    way = []
    while node in plan:
        way.append(node)
        assert len(way) < 10, f"a loop: {way}"
        routes = [e for e in of(plan[node], "ingress.forwarding.ipv4_lpm") if destination in prefix(e)]
        if not routes:
            break
        route = max(routes, key=lambda entry: prefix(entry).prefixlen)
        if route.action.endswith(("ecmp", "spray", "adaptive")):
            base, count = int(route.params["base"]), int(route.params["count"])  # type: ignore[arg-type]
            index = choose(range(base, base + count))
            (route,) = [
                entry
                for entry in of(plan[node], "ingress.forwarding.ecmp_nexthop")
                if entry.match["meta.nexthop"] == index
            ]
        if route.action.endswith(("no_route", "own_address")):
            break
        node = neighbour(network, node, route.params)
    return [*way, node]


def prefix(entry: TableEntry) -> IPv4Network:
    value = entry.match["hdr.ipv4.destination"]
    assert isinstance(value, IPv4Network)
    return value


def neighbour(network: Topology, node: str, next_hop: Any) -> str:
    """The node behind a port, which must be the one that the MAC address means."""
    (link,) = [link for link in network.links_of(node) if link.end(node).port == next_hop["port"]]
    far = link.far_end(node).node
    (owner,) = [n for n in (*network.hosts, *network.switches) if n.mac == next_hop["mac"]]
    assert owner.name == far
    return far


@given(networks, st.data())
def test_a_packet_reaches_its_host_up_and_then_down_and_by_no_longer_way_than_there_is(
    network: Topology, data: st.DataObject
) -> None:
    plan = plan_forwarding(network, data.draw(st.sampled_from(get_args(PathChoice))))
    hosts = st.sampled_from(network.hosts)
    source, destination = data.draw(hosts), data.draw(hosts)
    way = routed(network, plan, source.name, destination.ip, lambda paths: data.draw(st.sampled_from(paths)))
    assert way[-1] == destination.name
    tiers = [{switch.name for switch in tier} for tier in network.tiers]
    heights = [next(number for number, names in enumerate(tiers) if node in names) for node in way[:-1]]
    top = max(heights)
    assert heights == [*range(top), *range(top, -1, -1)]
    assert top == lowest_common_tier(network, source.leaf, destination.leaf)


def lowest_common_tier(network: Topology, leaf: str, other: str) -> int | None:
    """Return the lowest tier of the switches above both, if there are any."""
    reached, others = {leaf}, {other}
    for number, tier in enumerate(network.tiers):
        if reached & others:
            return number
        above = {switch.name for tier in network.tiers[number + 1 : number + 2] for switch in tier}
        reached = {n for name in reached for n in network.neighbours(name).values() if n in above}
        others = {n for name in others for n in network.neighbours(name).values() if n in above}
    return None


@given(networks, st.data())
def test_where_links_have_failed_a_packet_reaches_its_host_if_a_way_up_and_down_is_left(
    network: Topology, data: st.DataObject
) -> None:
    between_switches = [link for link in network.links if link.a.port]
    failed = [link for link in between_switches if data.draw(st.booleans())]
    left = network.without(failed)
    hosts = st.sampled_from(network.hosts)
    source, destination = data.draw(hosts), data.draw(hosts)
    plan = plan_forwarding(left)
    way = routed(left, plan, source.name, destination.ip, lambda paths: data.draw(st.sampled_from(paths)))
    reached = lowest_common_tier(left, source.leaf, destination.leaf) is not None
    assert (way[-1] == destination.name) == reached


def test_a_tier_that_has_lost_all_links_down_does_not_keep_others_from_their_routes() -> None:
    network = leaf_spine(2, 2, 2)
    uplinks = [link for link in network.links if link.a.port]
    left = network.without(uplinks)
    plan = plan_forwarding(left)
    assert routed(left, plan, "h1", network.host("h2").ip)[-1] == "h2"
    assert routed(left, plan, "h1", network.host("h3").ip)[-1] != "h3"


@given(networks, st.data())
def test_a_packet_to_nobody_ends_without_a_loop(network: Topology, data: st.DataObject) -> None:
    known = {host.ip for host in network.hosts}
    racks = [ip for leaf in network.leaves for ip in IPv4Network((leaf.ip, 24), strict=False)]
    anywhere = st.integers(2**24 * 10, 2**24 * 11 - 1).map(IPv4Address)
    nobody = data.draw(st.one_of(anywhere, st.sampled_from(racks)).filter(lambda ip: ip not in known))
    source = data.draw(st.sampled_from(network.hosts)).name
    plan = plan_forwarding(network)
    way = routed(network, plan, source, nobody, lambda paths: data.draw(st.sampled_from(paths)))
    assert way[-1] in {switch.name for switch in network.switches}


@given(networks)
def test_no_two_entries_of_a_table_are_for_the_same_packets(network: Topology) -> None:
    for part in plan_forwarding(network).values():
        keys = [(entry.table, *entry.match.values()) for entry in part.entries]
        assert len(set(keys)) == len(keys)


def ways(network: Topology, source: str, destination: str) -> Counter[tuple[str, ...]]:
    """How often each way is taken by flows whose hashes are 0 to 63; all switches hash alike."""
    plan, address = plan_forwarding(network), network.host(destination).ip
    return Counter(
        tuple(routed(network, plan, source, address, lambda paths, value=value: paths[value % len(paths)]))
        for value in range(64)
    )


def test_flows_between_pods_use_all_cores_evenly() -> None:
    taken = ways(fat_tree(4, hosts_per_leaf=1), "h1", "h8")
    cores = Counter({way[2]: count for way, count in taken.items()})
    assert cores == {"core1": 16, "core2": 16, "core3": 16, "core4": 16}


def test_flows_to_a_server_on_two_leaves_use_both_evenly() -> None:
    data = servers(leaves=3, spines=2, servers_per_leaf=1, hosts_per_server=1).model_dump(mode="json")
    data["links"].append({"a": {"node": "server2", "port": 3}, "b": {"node": "leaf3", "port": 4}})
    taken = ways(topology_from(data), "h1", "h2")
    assert {way[2:4]: count for way, count in taken.items()} == {
        (spine, leaf): 16 for spine in ("spine1", "spine2") for leaf in ("leaf2", "leaf3")
    }


def test_a_single_path_goes_by_the_first_spine_only() -> None:
    plan = plan_forwarding(leaf_spine(spines=4), "single")
    (path,) = of(plan["leaf1"], "ingress.forwarding.ecmp_nexthop")
    assert neighbour(leaf_spine(spines=4), "leaf1", path.params) == "spine1"


@pytest.mark.parametrize(
    ("rate", "byte_time"), [(None, 0), (10_000, 800 * 2**32), (10**11, 343_597), (8 * 10**11, 42_950)]
)
def test_adaptive_routing_knows_how_long_a_byte_takes_on_each_link(rate: int | None, byte_time: int) -> None:
    plan = plan_forwarding(leaf_spine(uplink_rate=rate), "adaptive")
    paths = of(plan["leaf1"], "ingress.forwarding.ecmp_nexthop", "forward_and_count")
    assert [path.params["byte_time"] for path in paths] == [byte_time] * 2


@given(st.binary(min_size=13, max_size=13), st.binary(min_size=13, max_size=13), st.integers(0, 2**32 - 1))
def test_a_salt_would_leave_those_flows_together_that_collide(one: bytes, other: bytes, salt: int) -> None:
    def path(flow: bytes, salt: int) -> int:
        return crc32(flow + salt.to_bytes(4, "big")) % 8

    assert (path(one, 0) == path(other, 0)) == (path(one, salt) == path(other, salt))


@given(leaf_spines)
def test_every_spine_is_one_of_the_equal_paths(network: Topology) -> None:
    plan = plan_forwarding(network)
    for leaf in network.leaves:
        paths = of(plan[leaf.name], "ingress.forwarding.ecmp_nexthop")
        assert [path.match["meta.nexthop"] for path in paths] == list(range(len(network.tiers[1])))
        assert [neighbour(network, leaf.name, path.params) for path in paths] == [
            s.name for s in network.tiers[1]
        ]
        (group,) = of(plan[leaf.name], "ingress.forwarding.ipv4_lpm", "ecmp")
        assert group.params == {"base": 0, "count": len(network.tiers[1])}


def test_twice_as_many_pods_have_twice_as_many_entries_not_four_times() -> None:
    small, large = (
        plan_forwarding(servers(pods=pods, leaves=1, spines=1, cores=1, servers_per_leaf=8)).values()
        for pods in (8, 16)
    )
    assert sum(len(part.items) for part in large) <= 2 * sum(len(part.items) for part in small)


@given(networks)
def test_what_is_addressed_to_a_switch_ends_there(network: Topology) -> None:
    plan = plan_forwarding(network)
    for switch in network.switches:
        (own,) = of(plan[switch.name], "ingress.forwarding.ipv4_lpm", "own_address")
        assert own.match == {"hdr.ipv4.destination": IPv4Network(switch.ip)}


@given(networks)
def test_a_leaf_answers_arp_for_its_own_address(network: Topology) -> None:
    plan = plan_forwarding(network)
    for leaf in network.leaves:
        (answer,) = of(plan[leaf.name], "ingress.forwarding.arp_responder")
        assert answer.match == {"hdr.arp.target": leaf.ip}
        assert answer.params == {"mac": leaf.mac}


@given(jobs())
def test_each_child_is_admitted_where_it_is_and_has_a_bit_of_its_own(case: tuple[Topology, Tree]) -> None:
    network, tree = case
    plan = plan_aggregation(network, tree)
    assert set(plan) == {part.switch for part in tree.aggregators}
    nodes = {node.name: node for node in (*network.hosts, *network.switches)}
    for part in tree.aggregators:
        children = of(plan[part.switch], "ingress.aggregation.admission", "admit_child")
        bits = [entry.params["member_bit"] for entry in children]
        assert sum(map(int, bits)) == part.full_mask  # type: ignore[arg-type]
        assert len(set(bits)) == len(part.children)
        for name, entry in zip(part.children, children, strict=True):
            assert entry.match == {
                "standard_metadata.ingress_port": network.port_towards(part.switch, name),
                "hdr.ipv4.source": nodes[name].ip,
                "hdr.ipv4.destination": nodes[part.switch].ip,
                "hdr.udp.source_port": tree.job.udp_port,
                "hdr.switchml.lease": tree.job.lease,
            }
            assert entry.params["full"] == part.full_mask
            claim = ("base", "slots", "first_chunk", "last_chunk", "checksums")
            assert [entry.params[key] for key in claim] == [getattr(tree.job, key) for key in claim]
            assert entry.params["root"] == (part is tree.root)


@given(jobs())
def test_a_partial_sum_is_admitted_by_the_parent_and_its_result_by_the_child(
    case: tuple[Topology, Tree],
) -> None:
    network, tree = case
    plan = plan_aggregation(network, tree)
    for part in tree.aggregators:
        from_parent = of(plan[part.switch], "ingress.aggregation.admission", "admit_parent")
        assert len(from_parent) == (part is not tree.root)
        if part.parent is None:
            continue
        sent_up = sent(plan[part.switch], member=0)
        accepted = [
            entry
            for entry in of(plan[part.parent], "ingress.aggregation.admission", "admit_child")
            if entry.match["standard_metadata.ingress_port"] == network.port_towards(part.parent, part.switch)
        ]
        assert [seen_from(entry) for entry in accepted] == [(sent_up["source"], sent_up["source_port"])]
        uplinks = of(plan[part.switch], "ingress.aggregation.admission", "admit_child")
        assert {e.params["uplink"] for e in uplinks} == {network.port_towards(part.switch, part.parent)}
        member = accepted[0].params["member"]
        result = sent(plan[part.parent], member=int(member))  # type: ignore[arg-type]
        assert seen_from(from_parent[0]) == (result["source"], result["source_port"])
        assert 0xBEE0 <= int(result["destination_port"]) <= 0xBEEF  # else the parser would not see it


@given(jobs())
def test_results_are_copied_to_each_child_at_its_port_and_address(case: tuple[Topology, Tree]) -> None:
    network, tree = case
    plan = plan_aggregation(network, tree)
    nodes = {node.name: node for node in (*network.hosts, *network.switches)}
    for part in tree.aggregators:
        (group,) = plan[part.switch].groups
        admitted = of(plan[part.switch], "ingress.aggregation.admission")
        assert {entry.params["group"] for entry in admitted} == {group.group}
        assert group.group > 0
        assert [port for port, _ in group.replicas] == [
            network.port_towards(part.switch, c) for c in part.children
        ]
        children = of(plan[part.switch], "ingress.aggregation.admission", "admit_child")
        assert [member for _, member in group.replicas] == [entry.params["member"] for entry in children]
        assert 0 not in [member for _, member in group.replicas]  # that is the parent
        for name, (_, member) in zip(part.children, group.replicas, strict=True):
            to = sent(plan[part.switch], member)
            assert (to["destination_mac"], to["destination"]) == (nodes[name].mac, nodes[name].ip)
            assert (to["source_mac"], to["source"]) == (nodes[part.switch].mac, nodes[part.switch].ip)


@given(networks, st.data())
def test_what_switches_are_told_of_two_jobs_does_not_collide(network: Topology, data: st.DataObject) -> None:
    names = [host.name for host in network.hosts]
    told: Counter[tuple[object, ...]] = Counter()
    for lease, base in ((1, 0), (2, 512)):
        hosts = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        port = data.draw(st.integers(0xBEE0, 0xBEEF))
        tree = aggregation_tree(network, Job(lease, tuple(hosts), port, base=base, slots=512))
        for switch, part in plan_aggregation(network, tree).items():
            told.update((switch, group.group) for group in part.groups)
            told.update((switch, entry.table, *entry.match.values()) for entry in part.entries)
    assert set(told.values()) == {1}


def sent(plan: SwitchPlan, member: int) -> Any:
    (entry,) = [e for e in of(plan, "egress.receivers") if e.match["meta.member"] == member]
    return entry.params


def seen_from(entry: TableEntry) -> tuple[object, object]:
    return entry.match["hdr.ipv4.source"], entry.match["hdr.udp.source_port"]


@given(networks, st.floats(0, 0.999), st.integers(0, 2**64))
def test_each_direction_of_each_link_is_drawn_once(network: Topology, probability: float, seed: int) -> None:
    plan = plan_loss(network, probability, seed)
    drawn: Counter[tuple[str, str]] = Counter()
    for switch, part in plan.items():
        for entry in part.entries:
            (link,) = [
                link for link in network.links_of(switch) if link.end(switch).port == entry.match["port"]
            ]
            far = link.far_end(switch).node
            drawn[(far, switch) if entry.table.startswith("ingress") else (switch, far)] += 1
    links = [(link.a.node, link.b.node) for link in network.links]
    assert drawn == Counter([*links, *((b, a) for a, b in links)])


@given(networks, st.integers(0, 2**64))
def test_no_two_draws_share_a_seed_and_the_same_seed_draws_the_same(network: Topology, seed: int) -> None:
    plan = plan_loss(network, 0.01, seed)
    seeds = [entry.params["seed"] for part in plan.values() for entry in part.entries]
    assert len(set(seeds)) == len(seeds)
    assert plan == plan_loss(network, 0.01, seed)


@pytest.mark.parametrize(
    ("probability", "threshold"), [(0, 0), (0.5, 2**31), (0.01, 42949673), (1 - 1e-12, 2**32 - 1)]
)
def test_the_threshold_is_the_probability_in_units_of_2_to_the_minus_32(
    probability: float, threshold: int
) -> None:
    plan = plan_loss(leaf_spine(), probability, 0)
    assert {entry.params["threshold"] for part in plan.values() for entry in part.entries} == {threshold}


@pytest.mark.parametrize("probability", [-0.1, 1, 1.5, float("nan")])
def test_a_probability_that_is_none_is_refused(probability: float) -> None:
    with pytest.raises(ControllerError, match=f"loss: is {probability}, must be at least 0 and less than 1"):
        plan_loss(leaf_spine(), probability, 0)


def test_an_entry_is_shown_as_it_would_be_said() -> None:
    plan = plan_forwarding(leaf_spine())
    shown = str(of(plan["leaf1"], "ingress.forwarding.ipv4_lpm")[0])
    assert shown == (
        "ingress.forwarding.ipv4_lpm(hdr.ipv4.destination=10.1.0.1/32) -> forward(mac=02:00:0a:01:00:01, port=1)"
    )
