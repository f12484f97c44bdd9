"""The settings that suit the links of a network."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.experiments.scenario import targets
from fanin.experiments.scenario.targets import EMBEDDED
from fanin.testbed.shaping import shape
from fanin.topologies.model import SLOWEST
from fanin.topologies.shapes import leaf_spine

MAX_PACKET = 1_100  # bytes: 256 values with their headers
rates = st.integers(SLOWEST, 10_000_000_000)


def queue_bytes(rate: int) -> int:
    (*_, queue) = shape("eth0", rate)
    found = re.search(r"bfifo limit (\d+)", queue)
    assert found
    return int(found[1])


@given(rates, rates)
def test_what_one_job_has_in_flight_waits_in_the_queue_of_any_link_and_is_not_dropped(host: int, uplink: int):
    network = leaf_spine(1, 2, 2, rate=host, uplink_rate=uplink)
    in_flight = EMBEDDED.pace(network.slowest_rate).window * MAX_PACKET
    assert all(in_flight <= queue_bytes(link.rate_bits_per_second or 0) for link in network.links)


@pytest.mark.parametrize(("buffer", "window"), [(2 * 212_992, 256), (16 << 20, 992)])
def test_links_without_a_rate_have_as_much_in_flight_as_receive_buffers_hold(
    monkeypatch: pytest.MonkeyPatch, buffer: int, window: int
) -> None:
    monkeypatch.setattr(targets, "receive_buffer", lambda: buffer)
    assert EMBEDDED.live_pace(None).window == window
    assert EMBEDDED.live_pace(1_000_000_000) == EMBEDDED.pace(1_000_000_000)
