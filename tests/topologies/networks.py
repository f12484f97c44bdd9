"""Networks of any shape, for property tests."""

from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from fanin.topologies.model import Topology, TopologyError
from fanin.topologies.shapes import fat_tree, leaf_spine, servers, topology_from


@st.composite
def irregular(draw: st.DrawFn) -> Topology:
    """Two to four tiers, of which nearly any link is missing; leaves with several ways up, and several down."""
    roles = draw(
        st.sampled_from((("leaf", "core"), ("leaf", "spine", "core"), ("server", "leaf", "spine", "core")))
    )
    tiers = [[f"{role}{i}" for i in range(draw(st.integers(1, 4)))] for role in roles]
    names = [name for tier in tiers for name in tier]
    switches = [
        {
            "name": name,
            "role": name[:-1],
            "device_id": number + 1,
            "grpc_port": 9559 + number,
            "ip": f"10.{number}.0.254",
            "mac": f"02:00:0a:{number:02x}:00:fe",
        }
        for number, name in enumerate(names)
    ]
    hosts: list[dict[str, Any]] = []
    pairs: list[tuple[str, str]] = []
    for number, leaf in enumerate(tiers[0]):
        for position in range(1, draw(st.integers(int(not number), 3)) + 1):
            address = f"10.{number}.0.{position}"
            mac = f"02:00:0a:{number:02x}:00:{position:02x}"
            name = f"h{len(hosts)}"
            place = {"rank": len(hosts), "leaf": leaf, "gateway": f"10.{number}.0.254", "prefix_length": 24}
            hosts.append({"name": name, "ip": address, "mac": mac, **place})
            pairs.append((name, leaf))
    pairs += [(lower, upper) for below, above in pairwise(tiers) for lower in below for upper in above]

    def network() -> Topology:
        ports = dict.fromkeys(names, 0) | {host["name"]: -1 for host in hosts}

        def end(node: str) -> dict[str, Any]:
            ports[node] += 1
            return {"node": node, "port": ports[node]}

        links = [{"a": end(a), "b": end(b)} for a, b in pairs]
        return topology_from({"name": "irregular", "switches": switches, "hosts": hosts, "links": links})

    for pair in draw(st.lists(st.sampled_from(pairs), unique=True)):
        at = pairs.index(pair)
        pairs.remove(pair)
        try:
            network()
        except TopologyError:  # this one is needed
            pairs.insert(at, pair)
    return network()


small = st.integers(1, 3)
leaf_spines = st.builds(leaf_spine, small, st.integers(1, 4), st.integers(1, 5))


@st.composite
def fat_trees(draw: st.DrawFn) -> Topology:
    """With cores, but for a single pod."""
    pods, spines = draw(small), draw(small)
    cores = spines * draw(st.integers(int(pods > 1), 2))
    return fat_tree(pods=pods, leaves=draw(small), spines=spines, cores=cores, hosts_per_leaf=draw(small))


@st.composite
def with_servers(draw: st.DrawFn) -> Topology:
    pods, planes = draw(small), draw(st.integers(1, 2))
    nics, spines = planes * draw(small), planes * draw(small)
    cores = spines * draw(st.integers(int(pods > 1), 2))
    return servers(pods, nics * draw(small), spines, cores, draw(small), draw(small), nics, planes)


networks = st.one_of(leaf_spines, fat_trees(), with_servers(), irregular())
