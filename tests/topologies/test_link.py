"""What links do: given with the topology, passed on to a switch or to virtual time, refused elsewhere."""

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from topologies.emulation import emulated_links
from topologies.errors import NetworkError
from topologies.link import Bursts, LinkProperties
from topologies.model import TopologyError, leaf_spine, load_topology, topology_from
from topologies.processes import Bmv2, P4Switch
from topologies.virtual import Burst, Faults, LinkModel
from topologies.virtual.links import DEFAULT_LINK, link_model

LOSSY = LinkProperties(loss=0.01, corruption=1e-4, delay=1e-3)
FAR = LinkProperties(delay=5e-3, queue_bytes=64_000, burst=Bursts(begin=0.01, end=0.3))


def test_properties_of_hosts_links_and_of_uplinks() -> None:
    network = leaf_spine(1, 2, 1, properties=LOSSY, uplink_properties=FAR)
    assert {(link.far_end("leaf1").node, link.properties) for link in network.links_of("leaf1")} == {
        ("h1", LOSSY),
        ("spine1", FAR),
    }
    assert {link.properties for link in leaf_spine(properties=LOSSY).links} == {LOSSY}
    assert {link.properties for link in leaf_spine().with_properties(FAR).links} == {FAR}


def test_properties_in_toml(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text("[leaf_spine]\nproperties = {loss = 0.01, corruption = 1e-4, delay = 1e-3}\n")
    assert load_topology(path) == leaf_spine(properties=LOSSY)
    data = leaf_spine().model_dump(mode="json")
    data["links"][3]["properties"] = {"burst": {"begin": 0.1, "end": 0.5}}
    assert topology_from(data).links[3].properties.burst == Bursts(begin=0.1, end=0.5, loss=1)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"loss": 2}, "properties.loss: Input should be less than or equal to 1"),
        ({"delay": -1}, "properties.delay: Input should be greater than or equal to 0"),
        ({"lose": 1}, "properties.lose: Extra inputs are not permitted"),
        ({"burst": {"begin": 0.1}}, "properties.burst.end: missing; add it"),
        ({"loss": math.nan}, "properties.loss: Input should be"),
        ({"delay": math.inf}, "properties.delay: Input should be"),
        ({"reordering": 0.1}, "properties.reordering needs a displacement"),
        ({"queue_bytes": 10, "ecn_bytes": 20}, "properties.ecn_bytes has to be less than queue_bytes"),
    ],
)
def test_properties_that_cannot_be_are_refused_by_name(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(TopologyError) as caught:
        topology_from({"leaf_spine": {"properties": given}})
    assert complaint in str(caught.value)


def test_a_switch_emulates_what_it_sends_and_what_its_hosts_send() -> None:
    network = leaf_spine(1, 1, 1, rate=10**8, properties=LOSSY, uplink_properties=FAR)
    found = [(link.port, link.direction, link.rate) for link in emulated_links(network, "leaf1")]
    assert found == [(1, "egress", 10**8), (1, "ingress", None), (2, "egress", 10**8)]
    assert [(link.port, link.direction) for link in emulated_links(network, "spine1")] == [(1, "egress")]
    assert emulated_links(leaf_spine(rate=10**8), "leaf1") == []


def test_the_embedded_switch_is_told() -> None:
    network = leaf_spine(1, 1, 1, rate=10**8, properties=LOSSY, uplink_properties=FAR)
    leaf = network.switch("leaf1")
    command = P4Switch().command(leaf, network.interfaces("leaf1"), emulated_links(network, "leaf1"))
    options = [command[i + 1] for i, word in enumerate(command) if word == "--link"]
    assert options == [
        "1:egress:delay=0.001,loss=0.01,corruption=0.0001,rate=100000000",
        "1:ingress:delay=0.001,loss=0.01,corruption=0.0001",
        "2:egress:delay=0.005,queue_bytes=64000,burst=0.01/0.3/1.0,rate=100000000",
    ]
    assert command.index("--link") < command.index("--")


def test_a_switch_that_cannot_says_so() -> None:
    network = leaf_spine(1, 1, 1, properties=LOSSY)
    leaf = network.switch("leaf1")
    with pytest.raises(
        NetworkError, match="BMv2 emulates no links, and leaf1's to h1 is to have delay, loss, corruption"
    ):
        Bmv2().command(leaf, network.interfaces("leaf1"), emulated_links(network, "leaf1"))


def test_virtual_time_reads_the_same_properties() -> None:
    plain, *_ = leaf_spine().links
    assert link_model(plain) == DEFAULT_LINK
    far, *_ = leaf_spine(properties=FAR).links
    assert link_model(far) == LinkModel(
        delay=5e-3, queue_bytes=64_000, overhead=0, faults=Faults(burst=Burst(0.01, 0.3))
    )
    lossy, *_ = leaf_spine(properties=LinkProperties(loss=0.01)).links
    assert link_model(lossy) == LinkModel(overhead=0, faults=Faults(loss=0.01))


@pytest.mark.live
def test_a_network_with_emulated_links(run: Callable[[str], "subprocess.CompletedProcess[str]"]) -> None:
    """The switch has the links; it keeps the rate of what it sends, the kernel that of what hosts send."""
    done = run(
        """
from in_sandbox import *
import subprocess, sys
from topologies.link import LinkProperties
from topologies.processes import P4Switch
topology = leaf_spine(0, 1, 1, rate=20_000_000, properties=LinkProperties(loss=0.5, seed=3))
with MininetNetwork(topology, P4Switch(), LOGS) as network:
    print(subprocess.check_output([sys.executable, "-m", "p4switch.management", "127.0.0.1:9559", "Links"], text=True))
    host = network.host_popen("h1", ["tc", "qdisc"], stdout=subprocess.PIPE, text=True)
    print("host htb", "htb" in host.communicate()[0])
    print("switch htb", "htb" in subprocess.check_output(["tc", "qdisc"], text=True))
"""
    )
    assert done.returncode == 0, done.stderr
    [links, *shaped] = [line for line in done.stdout.splitlines() if line]
    [port] = json.loads(links)["ports"]
    assert port["egress"]["properties"] == {"loss": 0.5, "rate": 20_000_000, "seed": 3}
    assert port["ingress"]["properties"] == {"loss": 0.5, "seed": 3}
    assert shaped == ["host htb True", "switch htb False"]
