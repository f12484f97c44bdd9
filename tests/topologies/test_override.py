"""Single links that are not like the others, named by their ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.topologies.model import Link, Topology, TopologyError
from fanin.topologies.override import Override, override
from fanin.topologies.shapes import leaf_spine
from tests.topologies.networks import networks


def ends(link: Link) -> tuple[str, str]:
    return link.a.node, link.b.node


NETWORK = leaf_spine(2, 2, 2, rate=10**10)


@given(networks, st.data())
def test_the_link_has_what_is_said_and_all_others_what_they_had(
    network: Topology, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(network.links) - 1))
    chosen = network.links[place]
    ends = data.draw(st.permutations([chosen.a.node, chosen.b.node]))
    changed = override(network, [Override(link=(ends[0], ends[1]), rate=12_345, loss=0.25, delay=3e-6)])
    found = changed.links[place]
    assert (found.a, found.b) == (chosen.a, chosen.b)
    assert found.rate_bits_per_second == 12_345
    assert found.properties == chosen.properties.model_copy(update={"loss": 0.25, "delay": 3e-6})
    assert found in changed.links_of(chosen.a.node)
    assert [link for link in changed.links if link is not found] == [
        link for link in network.links if link is not chosen
    ]


def test_none_change_nothing() -> None:
    assert override(NETWORK, []) is NETWORK


@pytest.mark.parametrize(
    ("links", "complaint"),
    [
        ([("leaf1", "h9")], r"overrides\[0\].link: h9: no such switch or host; the network has h1, h2,"),
        (
            [("h1", "leaf1"), ("h1", "h2")],
            r"overrides\[1\].link: no link joins h1 and h2; the links of h1 lead to leaf1",
        ),
        (
            [("h1", "leaf1"), ("leaf1", "h1")],
            "overrides: the link h1 leaf1 has 2 of them; merge them into one",
        ),
    ],
)
def test_a_link_that_is_not_there_or_named_twice_is_refused(
    links: list[tuple[str, str]], complaint: str
) -> None:
    with pytest.raises(TopologyError, match=complaint):
        override(NETWORK, [Override(link=link) for link in links])


def test_a_link_that_is_down_is_not_there_and_others_keep_their_ports() -> None:
    left = override(NETWORK, [Override(link=("spine2", "leaf1"), down=True)])
    assert left.neighbours("leaf1") == {
        port: name for port, name in NETWORK.neighbours("leaf1").items() if name != "spine2"
    }
    assert set(left.links) == {link for link in NETWORK.links if {"leaf1", "spine2"} != set(ends(link))}
    assert left.neighbours("leaf2") == NETWORK.neighbours("leaf2")


@pytest.mark.parametrize(
    ("links", "complaint"),
    [
        ([("h2", "leaf1")], "h2 needs one link, to its leaf leaf1"),
        ([("leaf1", "spine1"), ("leaf2", "spine2")], "leaf1 and leaf2 have no switch above both"),
        ([("leaf1", "spine1"), ("leaf2", "spine1")], "spine1 has no link down; join it to the tier below"),
    ],
)
def test_links_may_not_be_down_without_which_hosts_are_cut_off(
    links: list[tuple[str, str]], complaint: str
) -> None:
    with pytest.raises(TopologyError, match=complaint):
        override(NETWORK, [Override(link=link, down=True) for link in links])


def test_properties_that_no_link_can_have_are_refused() -> None:
    with pytest.raises(TopologyError, match=r"overrides\[0\]: ecn_bytes: must be less than queue_bytes"):
        override(NETWORK, [Override(link=("leaf1", "h1"), queue_bytes=10, ecn_bytes=20)])
