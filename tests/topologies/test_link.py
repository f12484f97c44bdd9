"""The properties of links: given with the topology, passed on to a switch or to virtual time, refused elsewhere."""

import math
from dataclasses import asdict, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.p4switch.engine.links import LinkProperties as SwitchLink
from fanin.p4switch.engine.links import changed, link_option
from fanin.testbed.switch_processes import Bmv2, P4Switch
from fanin.topologies.emulation import SWITCH_PROPERTIES, emulated_links
from fanin.topologies.errors import NetworkError
from fanin.topologies.link import ETHERNET_OVERHEAD, PLAIN, VIRTUAL_ONLY, Burst, LinkProperties, Pause
from fanin.topologies.model import TopologyError
from fanin.topologies.shapes import leaf_spine, topology_from

LOSSY = LinkProperties(loss=0.01, corruption=1e-4, delay=1e-3)
FAR = LinkProperties(delay=5e-3, queue_bytes=64_000, burst=Burst(begin=0.01, end=0.3))

OF_BMV2 = ("packet_rate", "queue_packets")  # set by simple_switch_CLI only


def test_properties_of_hosts_links_and_of_uplinks() -> None:
    network = leaf_spine(1, 2, 1, properties=LOSSY, uplink_properties=FAR)
    assert {(link.far_end("leaf1").node, link.properties) for link in network.links_of("leaf1")} == {
        ("h1", LOSSY),
        ("spine1", FAR),
    }
    assert {link.properties for link in leaf_spine(properties=LOSSY).links} == {LOSSY}
    assert {link.properties for link in leaf_spine().with_properties(loss=0.5, seed=3).links} == {
        LinkProperties(loss=0.5, seed=3)
    }
    changed = leaf_spine(properties=LOSSY).with_properties(loss=0.5)
    assert {link.properties for link in changed.links} == {
        LinkProperties(loss=0.5, corruption=1e-4, delay=1e-3)
    }


def test_properties_that_cannot_be_are_no_change_either() -> None:
    with pytest.raises(ValueError, match="reordering: needs displacement"):
        leaf_spine().with_properties(reordering=0.1)


def test_properties_in_plain_data() -> None:
    lossy = {"loss": 0.01, "corruption": 1e-4, "delay": 1e-3}
    assert topology_from({"leaf_spine": {"properties": lossy}}) == leaf_spine(properties=LOSSY)
    short = topology_from({"leaf_spine": {"properties": {"delay": "1 ms", "queue_bytes": "64 KiB"}}})
    assert short == leaf_spine(properties=LinkProperties(delay=1e-3, queue_bytes=65536))
    data = leaf_spine().model_dump(mode="json")
    data["links"][3]["properties"] = {"burst": {"begin": 0.1, "end": 0.5}}
    assert topology_from(data).links[3].properties.burst == Burst(begin=0.1, end=0.5, loss=1)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"loss": 2}, "properties.loss: is 2; must be at most 1; for 2 percent, write '2%' or 0.02"),
        ({"delay": -1}, "properties.delay: Input should be greater than or equal to 0"),
        ({"lose": 1}, "properties.lose: unknown link property; there are delay, jitter, queue_bytes"),
        ({"delay": 1e-10}, "properties.delay: is 1e-10 s, must be at least 1 ns, or 0"),
        ({"delay": "1 min"}, "properties.delay: is '1 min'; write a number and its unit, such as '10 us'"),
        ({"jitter": -1e-6}, "properties.jitter: Input should be greater than or equal to 0"),
        ({"corruption": -0.1}, "properties.corruption: Input should be greater than or equal to 0"),
        ({"displacement": -1}, "properties.displacement: Input should be greater than or equal to 0"),
        ({"pause": {"xoff_bytes": 1, "xon_bytes": 2}}, "properties.pause.xon_bytes: is 2, must be from 0 to"),
        ({"burst": {"begin": 0.1}}, "properties.burst.end: missing; add it"),
        ({"loss": math.nan}, "properties.loss: Input should be"),
        ({"delay": math.inf}, "properties.delay: Input should be"),
        ({"reordering": 0.1}, "properties.reordering: needs displacement"),
        ({"queue_bytes": 10, "ecn_bytes": 20}, "properties.ecn_bytes: must be less than queue_bytes"),
        ({"ecn_max_bytes": 20}, "properties.ecn_max_bytes: must be more than ecn_bytes"),
        ({"ecn_max_bytes": 20, "ecn_bytes": 20}, "properties.ecn_max_bytes: must be more than ecn_bytes"),
        ({"ecn_bytes": 20, "ecn_probability": 0.1}, "properties.ecn_probability: needs ecn_max_bytes"),
    ],
)
def test_properties_that_cannot_be_are_refused_by_name(given: dict[str, object], complaint: str) -> None:
    with pytest.raises(TopologyError) as caught:
        topology_from({"leaf_spine": {"properties": given}})
    assert complaint in str(caught.value)


def test_a_switch_emulates_what_it_sends_and_what_its_hosts_send() -> None:
    network = leaf_spine(1, 1, 1, rate=10**8, properties=LOSSY, uplink_properties=FAR)
    found = [
        (link.port, link.direction, link.properties.get("rate")) for link in emulated_links(network, "leaf1")
    ]
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
        NetworkError, match="BMv2 emulates no links, but leaf1's link to h1 has delay, loss, corruption"
    ):
        Bmv2().command(leaf, network.interfaces("leaf1"), emulated_links(network, "leaf1"))


@given(
    st.builds(
        LinkProperties,
        delay=st.none() | st.floats(1e-9, 10),
        jitter=st.floats(0, 10),
        queue_bytes=st.none() | st.integers(0, 10**9),
        ecn_bytes=st.none(),
        overhead=st.none() | st.integers(0, 100),
        loss=st.floats(0, 1),
        corruption=st.floats(0, 1),
        duplication=st.floats(0, 1),
        reordering=st.floats(0, 1),
        displacement=st.floats(1e-9, 10),
        burst=st.none() | st.builds(Burst, begin=st.floats(0, 1), end=st.floats(0, 1), loss=st.floats(0, 1)),
        **dict.fromkeys(VIRTUAL_ONLY, st.none()),
        seed=st.integers(0, 2**32 - 1),
    )
)
def test_the_embedded_switch_reads_what_it_is_told(properties: LinkProperties) -> None:
    """The text is read by p4switch's own reader, with p4switch's own defaults for what is left out."""
    network = leaf_spine(0, 1, 1, rate=10**8, properties=properties)
    for link in emulated_links(network, "leaf1"):
        port, direction, given = link_option(link.option)
        assert (port, direction) == (1, link.direction)
        read = asdict(changed(SwitchLink(), given))
        assert read.pop("rate") == (10**8 if direction == "egress" else None)
        assert [read.pop(name) for name in OF_BMV2] == [None, None]
        expected = properties.model_dump(exclude={*VIRTUAL_ONLY})
        assert read == expected | {"delay": expected["delay"] or 0, "overhead": expected["overhead"] or 0}


def test_a_switch_has_the_same_properties_and_a_rate_and_no_pauses() -> None:
    assert {*SWITCH_PROPERTIES, *OF_BMV2} == {field.name for field in fields(SwitchLink)}


@pytest.mark.parametrize("properties", [PLAIN, LinkProperties(delay=0), LinkProperties(overhead=0)])
def test_links_that_have_only_a_rate_are_the_kernel_s(properties: LinkProperties) -> None:
    assert emulated_links(leaf_spine(rate=10**8, properties=properties), "leaf1") == []


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("pause", LinkProperties(pause=Pause(xoff_bytes=2000, xon_bytes=1000))),
        ("ecn_max_bytes", LinkProperties(ecn_bytes=1000, ecn_max_bytes=2000)),
    ],
)
def test_live_links_neither_pause_nor_draw_marks(name: str, properties: LinkProperties) -> None:
    network = leaf_spine(properties=properties)
    with pytest.raises(NetworkError, match=f"{name}: works in virtual time only; leave it out"):
        emulated_links(network, "leaf1")


def test_what_is_left_out_is_that_of_ethernet_in_virtual_time() -> None:
    for left_out in (PLAIN, LOSSY.model_copy(update={"delay": None}), LinkProperties(delay=0, loss=0.1)):
        assert (left_out.virtual_delay, left_out.virtual_overhead) == (1e-6, ETHERNET_OVERHEAD)
    assert (FAR.virtual_delay, LinkProperties(overhead=0).virtual_overhead) == (5e-3, 0)
