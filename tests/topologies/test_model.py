"""Networks as plain data: what their builders derive, and what no network may be."""

from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.topologies.errors import NetworkError
from fanin.topologies.model import Topology, TopologyError
from fanin.topologies.shapes import fat_tree, leaf_spine, servers, topology_from
from tests.topologies.networks import fat_trees, irregular, with_servers

leaf_spines = st.builds(
    leaf_spine,
    spines=st.integers(1, 4),
    leaves=st.integers(1, 6),
    hosts_per_leaf=st.integers(1, 12),
    rate=st.none() | st.integers(1_000_000, 10**11),
    uplink_rate=st.none() | st.integers(1_000_000, 10**11),
)
networks = st.one_of(leaf_spines, fat_trees(), with_servers(), irregular())


@given(networks)
def test_every_address_and_number_is_given_once(network: Topology) -> None:
    nodes = [*network.switches, *network.hosts]
    for key in ("name", "ip", "mac"):
        assert len({getattr(node, key) for node in nodes}) == len(nodes)
    for key in ("device_id", "grpc_port"):
        assert len({getattr(switch, key) for switch in network.switches}) == len(network.switches)


@given(networks)
def test_hosts_are_ranked_leaf_by_leaf_and_see_their_leaf_as_gateway(network: Topology) -> None:
    assert [host.rank for host in network.ranked_hosts] == list(range(len(network.hosts)))
    assert [host for leaf in network.leaves for host in network.hosts_of(leaf.name)] == [
        *network.ranked_hosts
    ]
    for host in network.hosts:
        rack = ip_network((host.ip, host.prefix_length), strict=False)
        assert host.gateway == network.switch(host.leaf).ip
        assert host.gateway in rack
        assert rack.prefixlen <= 24


@given(leaf_spines)
def test_ports_lead_to_and_fro(network: Topology) -> None:
    for link in network.links:
        assert network.port_towards(link.a.node, link.b.node) == link.a.port
        assert network.port_towards(link.b.node, link.a.node) == link.b.port
        assert link.far_end(link.a.node) == link.b == link.end(link.b.node)
    for leaf in network.leaves:
        neighbours = [link.far_end(leaf.name).node for link in network.links_of(leaf.name)]
        assert neighbours == [h.name for h in network.hosts_of(leaf.name)] + [
            s.name for s in network.tiers[1]
        ]


@given(networks)
def test_interface_names_are_what_linux_allows_and_differ(network: Topology) -> None:
    nodes = [node.name for node in (*network.switches, *network.hosts)]
    names = [name for node in nodes for name in network.interfaces(node).values()]
    assert len(set(names)) == len(names) == 2 * len(network.links)
    assert all(len(name) <= 15 for name in names)


@given(networks)
def test_a_network_survives_being_written_down(network: Topology) -> None:
    assert topology_from(network.model_dump(mode="json")) == network


def test_rates_are_those_of_the_hosts_links_unless_uplinks_have_their_own() -> None:
    network = leaf_spine(spines=1, leaves=2, hosts_per_leaf=1, rate=10**8, uplink_rate=10**9)
    rates = {link.rate_bits_per_second for link in network.links_of("leaf1")}
    assert rates == {10**8, 10**9}
    assert {link.rate_bits_per_second for link in leaf_spine(rate=10**8).links} == {10**8}
    assert {link.rate_bits_per_second for link in leaf_spine().links} == {None}


def test_the_slowest_link_is_one_with_a_rate() -> None:
    assert leaf_spine(1, 2, 2, rate=10_000_000, uplink_rate=1_000_000).slowest_rate == 1_000_000
    assert leaf_spine(1, 2, 2, rate=None, uplink_rate=1_000_000).slowest_rate == 1_000_000
    assert leaf_spine(1, 2, 2, rate=None).slowest_rate is None


def test_one_switch_needs_no_spine() -> None:
    network = leaf_spine(spines=0, leaves=1, hosts_per_leaf=8)
    assert [switch.name for switch in network.switches] == ["leaf1"]
    assert len(network.links) == 8


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"leaves": 0}, "leaves: is 0, must be a whole number from 1 to 254"),
        ({"spines": 0}, "spines: is 0, must be a whole number from 1 to"),
        ({"hosts_per_leaf": 253}, "hosts_per_leaf: is 253, must be a whole number from 1 to 252"),
        ({"hosts_per_leaf": "8"}, "hosts_per_leaf: is '8', must be a whole number"),
        ({"rate": 12}, "rate: is 12, must be a whole number from 10000 to"),
        ({"leafs": 2}, "leaf_spine.leafs: unknown key; there are spines, leaves"),
    ],
)
def test_a_size_that_cannot_be_is_refused_by_name(arguments: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TopologyError) as caught:
        topology_from({"leaf_spine": arguments})
    assert complaint in str(caught.value)


def _broken(path: str, value: object) -> dict[str, Any]:
    """A small network's data with the part at `path` replaced; None removes it."""
    data = leaf_spine(spines=2, leaves=2, hosts_per_leaf=2).model_dump(mode="json")
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    place: Any = data
    for key in way:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("hosts.1.ip", "10.1.0.1", "hosts[1].ip: 10.1.0.1 is taken by hosts[0] already"),
        ("hosts.0.ip", "10.1.0.254", "hosts[0].ip: 10.1.0.254 is taken by switches[0] already"),
        ("hosts.1.mac", "02:00:0a:01:00:01", "hosts[1].mac: 02:00:0a:01:00:01 is taken by hosts[0] already"),
        ("hosts.1.name", "leaf1", "hosts[1].name: leaf1 is taken by switches[0] already"),
        ("hosts.3.rank", 7, "hosts: no host has rank 3; ranks count from 0 without a gap"),
        ("hosts.0.leaf", "spine1", "hosts[0].leaf: no leaf is called 'spine1'; there are leaf1, leaf2"),
        ("hosts.0.gateway", "10.2.0.254", "hosts[0].gateway: is 10.2.0.254, must be leaf1's 10.1.0.254"),
        ("hosts.0.prefix_length", 30, "hosts[0].prefix_length: 10.1.0.0/30 lacks the gateway 10.1.0.254"),
        ("hosts.0.prefix_length", 33, "hosts[0].prefix_length: Input should be less than or equal to 32"),
        ("switches.1.grpc_port", 9559, "switches[1].grpc_port: 9559 is taken by switches[0] already"),
        ("switches.1.device_id", 1, "switches[1].device_id: 1 is taken by switches[0] already"),
        ("switches.0.role", "edge", "switches[0].role: Input should be 'server', 'leaf', 'spine' or 'core'"),
        (
            "hosts.0.prefix_length",
            14,
            "hosts[0].prefix_length: leaf1's 10.0.0.0/14 holds leaf2's 10.2.0.0/24; leng",
        ),
        ("switches.0.ip", "10.1.0", "switches[0].ip: Input is not a valid IPv4 address"),
        ("switches.0.mac", None, "switches[0].mac: missing; add it"),
        ("links.0.b.port", 2, "links[1].b: port 2 of leaf1 is taken by links[0].b already"),
        ("links.0.a.port", 1, "links[0].a.port: is 1; a host has port 0 only"),
        ("links.0.b.port", 255, "links[0].b.port: Input should be less than or equal to 254"),
        ("links.0.a.node", "h9", "links[0].a.node: no switch or host is called 'h9'"),
        ("links.0.a", {"node": "spine2", "port": 9}, "hosts[0]: h1 needs one link, to its leaf leaf1"),
        ("links.2.b", {"node": "leaf2", "port": 9}, "links[2]: joins leaf1 and leaf2; links are host–leaf"),
        ("links.0.delay", 3, "links[0].delay: Extra inputs are not permitted"),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_name(path: str, value: object, complaint: str) -> None:
    with pytest.raises(TopologyError) as caught:
        topology_from(_broken(path, value))
    assert complaint in str(caught.value)


def test_a_name_that_makes_too_long_an_interface_serves_in_virtual_time_only() -> None:
    data = leaf_spine(spines=0, leaves=1, hosts_per_leaf=1).model_dump(mode="json")
    data["switches"][0]["name"] = data["hosts"][0]["leaf"] = data["links"][0]["b"]["node"] = "leaf_one_1"
    assert topology_from(data).interfaces("leaf_one_1") == {1: "leaf_one_1-eth1"}
    data["links"][0]["b"]["port"] = 10
    network = topology_from(data)
    assert network.neighbours("leaf_one_1") == {10: "h1"}
    with pytest.raises(NetworkError, match=r"leaf_one_1-eth10 is too long .* shorten the name leaf_one_1"):
        network.interfaces("leaf_one_1")


def test_several_leaves_without_a_spine_are_refused() -> None:
    data = leaf_spine(spines=1, leaves=2, hosts_per_leaf=1).model_dump(mode="json")
    data["switches"] = data["switches"][:2]
    data["links"] = [link for link in data["links"] if link["b"]["node"] != "spine1"]
    with pytest.raises(TopologyError, match="several leaves need a spine"):
        topology_from(data)


def test_a_network_without_a_link_between_two_nodes_says_so() -> None:
    with pytest.raises(TopologyError, match="h1 and leaf2 have no link"):
        leaf_spine().port_towards("h1", "leaf2")
    with pytest.raises(TopologyError, match="h9: no such host; this network has h1, h2"):
        leaf_spine().host("h9")


def test_plain_data_give_the_size_or_every_part() -> None:
    assert topology_from({"leaf_spine": {"leaves": 3, "rate": 10**9}}) == leaf_spine(leaves=3, rate=10**9)
    with pytest.raises(TopologyError, match="leaves: is 300"):
        topology_from({"leaf_spine": {"leaves": 300}})


def test_racks_that_share_addresses_are_refused_as_routes_could_not_tell_them_apart() -> None:
    data = leaf_spine(spines=1, leaves=2, hosts_per_leaf=1).model_dump(mode="json")
    for host in data["hosts"]:
        host["prefix_length"] = 8
    with pytest.raises(
        TopologyError, match=r"hosts\[0\].prefix_length: leaf1's 10.0.0.0/8 holds leaf2's 10.0.0.0/8"
    ):
        topology_from(data)


@pytest.mark.parametrize(
    ("arguments", "switches", "hosts", "links"),
    [
        ({}, [8, 8, 4], 16, 48),  # of k = 4
        ({"k": 2, "hosts_per_leaf": 2}, [2, 2, 1], 4, 8),
        ({"pods": 1, "cores": 0}, [2, 2], 4, 8),
        ({"pods": 3, "leaves": 4, "spines": 2, "cores": 6, "hosts_per_leaf": 5}, [12, 6, 6], 60, 102),
    ],
)
def test_a_fat_tree_has_pods_of_leaves_and_spines_below_cores(
    arguments: dict[str, int], switches: list[int], hosts: int, links: int
) -> None:
    network = topology_from({"fat_tree": arguments})
    assert [len(tier) for tier in network.tiers] == switches
    assert (len(network.hosts), len(network.links)) == (hosts, links)


def test_each_core_of_a_fat_tree_is_joined_to_one_spine_of_each_pod() -> None:
    network = fat_tree(4)
    below = {core.name: [*network.neighbours(core.name).values()] for core in network.tiers[2]}
    assert below == {
        "core1": ["spine1", "spine3", "spine5", "spine7"],
        "core2": ["spine1", "spine3", "spine5", "spine7"],
        "core3": ["spine2", "spine4", "spine6", "spine8"],
        "core4": ["spine2", "spine4", "spine6", "spine8"],
    }


def test_servers_have_a_switch_each_with_hosts_below_and_one_leaf_above() -> None:
    network = servers(pods=2, leaves=2, spines=1, cores=1, servers_per_leaf=2, hosts_per_server=3)
    assert [tier[0].role for tier in network.tiers] == ["server", "leaf", "spine", "core"]
    assert [len(tier) for tier in network.tiers] == [8, 4, 2, 1]
    assert list(network.neighbours("server3").values()) == ["h7", "h8", "h9", "leaf2"]
    assert [str(network.host(name).ip) for name in ("h1", "h7", "h13")] == [
        "10.1.1.1",
        "10.1.3.1",
        "10.2.1.1",
    ]
    addresses = [str(network.switch(name).ip) for name in ("server3", "leaf2", "spine1", "leaf3", "core1")]
    assert addresses == ["10.1.3.254", "10.1.0.2", "10.1.0.3", "10.2.0.1", "10.0.0.1"]


def test_each_card_of_a_server_leads_to_a_leaf_of_its_own() -> None:
    network = servers(leaves=4, servers_per_leaf=3, hosts_per_server=1, nics_per_server=2)
    assert [len(tier) for tier in network.tiers] == [6, 4, 2]
    above = {
        server.name: [name for name in network.neighbours(server.name).values() if name.startswith("leaf")]
        for server in network.leaves
    }
    assert above == {f"server{n}": ["leaf1", "leaf2"] if n < 4 else ["leaf3", "leaf4"] for n in range(1, 7)}


def test_planes_meet_in_servers_alone() -> None:
    network = servers(
        pods=2,
        leaves=4,
        spines=4,
        cores=4,
        hosts_per_server=1,
        nics_per_server=4,
        planes=2,
        servers_per_leaf=1,
    )
    assert [len(tier) for tier in network.tiers] == [2, 8, 8, 4]
    servers_, upper = network.tiers[0], [switch.name for tier in network.tiers[1:] for switch in tier]
    below = {switch.name for switch in servers_}
    seen: list[set[str]] = []
    while left := set(upper) - set().union(*seen):
        plane, to_visit = set(), [min(left)]
        while to_visit:
            plane.add(here := to_visit.pop())
            to_visit += [n for n in network.neighbours(here).values() if n not in plane | below]
        seen.append(plane)
    assert sorted(map(len, seen)) == [10, 10]
    for server in servers_:
        above = set(network.neighbours(server.name).values())
        assert [len(above & plane) for plane in seen] == [2, 2]


def test_each_tiers_links_have_their_rate_and_properties_or_those_below() -> None:
    network = servers(
        rate=10**9, uplink_rate=10**10, nic_properties={"delay": 1e-5}, core_rate=10**11, pods=2, cores=2
    )
    found = {
        (link.a.node.rstrip("0123456789"), link.rate_bits_per_second, link.properties.delay)
        for link in network.links
    }
    assert found == {
        ("h", 10**9, None),
        ("server", 10**9, 1e-5),
        ("leaf", 10**10, 1e-5),
        ("spine", 10**11, 1e-5),
    }


@pytest.mark.parametrize(
    ("table", "arguments", "complaint"),
    [
        ("fat_tree", {"k": 5}, "k: is 5, must be even"),
        ("fat_tree", {"k": 32}, "k: is 32, must be a whole number from 2 to 30"),
        (
            "fat_tree",
            {"pods": 254, "leaves": 250, "hosts_per_leaf": 1},
            "switches: there would be 64012; use at most 55977",
        ),
        ("fat_tree", {"pods": 255}, "pods: is 255, must be a whole number from 1 to 254"),
        ("fat_tree", {"spines": "2"}, "spines: is '2', must be a whole number"),
        ("fat_tree", {"cores": 0}, "cores: is 0, must be a whole number from 2 to 254"),
        ("fat_tree", {"cores": 3}, "cores: is 3, must be a multiple of spines, 2"),
        ("fat_tree", {"hosts_per_leaf": 253}, "hosts_per_leaf: is 253, must be a whole number from 1 to 252"),
        ("fat_tree", {"leaves": 253, "cores": 4}, "leaves: a spine would have 255 links; it has 254 ports"),
        (
            "servers",
            {"leaves": 3, "nics_per_server": 2},
            "leaves: is 3, must be a multiple of nics_per_server, 2",
        ),
        (
            "servers",
            {"leaves": 2, "nics_per_server": 2, "spines": 3, "planes": 2},
            "spines: is 3, must be a multiple of planes, 2",
        ),
        ("servers", {"planes": 2}, "nics_per_server: is 1, must be a multiple of planes, 2"),
        ("servers", {"nics_per_server": 0}, "nics_per_server: is 0, must be a whole number from 1 to 254"),
        ("fat_tree", {"core_rate": 1}, "core_rate: is 1, must be a whole number from 10000"),
        ("fat_tree", {"servers": 1}, "fat_tree.servers: unknown key; there are k, pods, leaves"),
        (
            "servers",
            {"leaves": 2, "servers_per_leaf": 128},
            "leaves: is 2, must be a whole number from 1 to 1",
        ),
        ("servers", {"servers_per_leaf": 0}, "servers_per_leaf: is 0, must be a whole number from 1"),
        ("servers", {"leaves": 1, "servers_per_leaf": 254}, "servers_per_leaf: a leaf would have 256 links"),
        (
            "servers",
            {"hosts_per_server": 254},
            "hosts_per_server: is 254, must be a whole number from 1 to 253",
        ),
        ("servers", {"nic_properties": {"dely": 1}}, "nic_properties.dely: unknown link property; there are"),
    ],
)
def test_pods_that_cannot_be_are_refused_by_name(
    table: str, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        topology_from({table: arguments})
    assert complaint in str(caught.value)


def test_two_descriptions_of_a_network_are_refused() -> None:
    with pytest.raises(
        TopologyError, match="fat_tree: cannot be combined with leaf_spine, which describes the whole"
    ):
        topology_from({"leaf_spine": {}, "fat_tree": {}})
    with pytest.raises(TopologyError, match="hosts: cannot be combined with servers"):
        topology_from({"servers": {}, "hosts": []})


@pytest.mark.parametrize(
    ("removed", "complaint"),
    [
        ([("leaf1", "spine1"), ("leaf1", "spine2")], "links: leaf1 and leaf2 have no switch above both; add"),
        ([("spine1", "core1"), ("spine2", "core2")], "links: leaf1 and leaf3 have no switch above both; add"),
        (
            [("leaf1", "spine1"), ("leaf2", "spine1")],
            "links: spine1 has no link down; join it to the tier below",
        ),
        ([("h1", "leaf1")], "hosts[0]: h1 needs one link, to its leaf leaf1"),
    ],
)
def test_what_is_out_of_reach_among_pods_is_named(removed: list[tuple[str, str]], complaint: str) -> None:
    data = fat_tree(pods=2, leaves=2, spines=2, cores=2, hosts_per_leaf=1).model_dump(mode="json")
    data["links"] = [link for link in data["links"] if (link["a"]["node"], link["b"]["node"]) not in removed]
    with pytest.raises(TopologyError) as caught:
        topology_from(data)
    assert complaint in str(caught.value)


def test_among_pods_any_links_will_do_that_join_neighbouring_tiers_once() -> None:
    data = fat_tree(pods=2, leaves=2, spines=2, cores=2, hosts_per_leaf=1).model_dump(mode="json")
    links = data["links"]
    unneeded = {("leaf1", "spine2"), ("spine1", "core1")}
    data["links"] = [link for link in links if (link["a"]["node"], link["b"]["node"]) not in unneeded]
    with pytest.raises(TopologyError, match="leaf1 and leaf3 have no switch above both"):
        topology_from(data)
    data["links"] = [link for link in links if (link["a"]["node"], link["b"]["node"]) != ("spine1", "core1")]
    topology_from(data)
    twice = {"a": {"node": "leaf1", "port": 8}, "b": {"node": "spine1", "port": 8}}
    over = {"a": {"node": "leaf1", "port": 9}, "b": {"node": "core1", "port": 9}}
    with pytest.raises(TopologyError, match="links: leaf1 and spine1 have 2; two switches have one at most"):
        topology_from(data | {"links": [*links, twice]})
    with pytest.raises(
        TopologyError, match="joins leaf1 and core1; links are host–leaf or leaf–spine or spine–core"
    ):
        topology_from(data | {"links": [*links, over]})
