"""Properties of emulated links as numbers and texts, and the management calls that read and change them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.p4switch.engine.library import LinkStatistics
from fanin.p4switch.engine.links import (
    Burst,
    Direction,
    LinkError,
    LinkProperties,
    changed,
    link_option,
    report,
)
from fanin.p4switch.management.links import link_calls
from fanin.p4switch.management.service import ManagementError
from fanin.p4switch.p4runtime.device import Device

PLAIN = LinkProperties()
TIMES, PROBABILITIES, BYTES = st.floats(0, 10), st.floats(0, 1), st.integers(0, 10**9)
PROPERTIES = st.builds(
    LinkProperties,
    rate=st.none() | st.floats(1e3, 1e12),
    delay=TIMES,
    jitter=TIMES,
    queue_bytes=st.none() | BYTES,
    ecn_bytes=st.none(),
    loss=PROBABILITIES,
    corruption=PROBABILITIES,
    duplication=PROBABILITIES,
    reordering=PROBABILITIES,
    displacement=TIMES,
    burst=st.none() | st.builds(Burst, begin=PROBABILITIES, end=PROBABILITIES, loss=PROBABILITIES),
    overhead=st.integers(0, 100),
    seed=st.integers(0, 2**53),
).filter(lambda p: not p.reordering or p.displacement > 0)


@given(PROPERTIES)
def test_what_is_given_gives_the_same_link(properties: LinkProperties):
    assert changed(PLAIN, properties.given()) == properties


@given(PROPERTIES)
def test_text_gives_the_same_link(properties: LinkProperties):
    given = properties.given()
    if burst := properties.burst:
        given["burst"] = f"{burst.begin}/{burst.end}/{burst.loss}"
    text = "1:" + ",".join(f"{name}={value}" for name, value in given.items())
    if given:
        port, direction, read = link_option(text)
        assert (port, direction, changed(PLAIN, read)) == (1, Direction.EGRESS, properties)


@pytest.mark.parametrize(
    ("given", "properties"),
    [
        ({"rate": "100M"}, LinkProperties(rate=1e8)),
        ({"rate": "2.5 Gb/s"}, LinkProperties(rate=2.5e9)),
        ({"rate": "10kbit"}, LinkProperties(rate=1e4)),
        ({"delay": "1ms", "jitter": "20us"}, LinkProperties(delay=1e-3, jitter=20e-6)),
        ({"loss": "1%", "duplication": "0.5"}, LinkProperties(loss=0.01, duplication=0.5)),
        ({"queue_bytes": "64k", "ecn_bytes": "4KiB"}, LinkProperties(queue_bytes=64_000, ecn_bytes=4096)),
        ({"burst": "1%/30%"}, LinkProperties(burst=Burst(0.01, 0.3))),
        ({"burst": {"begin": 0.01, "end": 0.3, "loss": 0.5}}, LinkProperties(burst=Burst(0.01, 0.3, 0.5))),
    ],
)
def test_units(given: dict[str, Any], properties: LinkProperties):
    assert changed(PLAIN, given) == properties


def test_a_change_leaves_the_rest_and_none_takes_back():
    link = changed(LinkProperties(delay=1e-3, loss=0.5), {"loss": None, "jitter": 1e-4})
    assert link == LinkProperties(delay=1e-3, jitter=1e-4)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"lose": 0.1}, "lose: unknown link property; there are rate, delay"),
        ({"loss": 1.5}, "loss: 1.5 is not from 0 to 1"),
        ({"loss": "120%"}, "loss: 120% is not from 0 to 1"),
        ({"loss": True}, "loss: True is not a number"),
        ({"delay": "1 fortnight"}, r"delay: '1 fortnight' is not a number of seconds \(units: s, ms"),
        ({"delay": -1}, "delay: -1 is not a number"),
        ({"delay": "inf"}, "delay"),
        ({"rate": 1}, "rate: 1 is not from 1000"),
        ({"burst": 0.1}, "burst: write BEGIN/END"),
        ({"burst": {"begin": 0.1}}, "burst: write BEGIN/END"),
        ({"burst": "0.1/2"}, r"burst\.end: 2 is not from 0 to 1"),
        *(
            ({name: value}, f"{name}: ")
            for name in (
                "rate",
                "delay",
                "jitter",
                "loss",
                "duplication",
                "reordering",
                "displacement",
                "seed",
            )
            for value in (-1, "-0.5", math.nan, "nan", math.inf, "1e999", "", [], {})
        ),
        ({"queue_bytes": -1}, "queue_bytes: -1 is not a number of bytes"),
        ({"reordering": 0.1}, "reordering: needs a displacement"),
        ({"queue_bytes": 1000, "ecn_bytes": 1000}, "ecn_bytes: with 1000 waiting of 1000 .* give less"),
    ],
)
def test_what_cannot_be_is_named(given: dict[str, Any], complaint: str):
    with pytest.raises(LinkError, match=complaint):
        changed(PLAIN, given)


def test_a_change_is_looked_at_together_with_what_there_is():
    link = LinkProperties(queue_bytes=2000, displacement=1e-3)
    assert changed(link, {"reordering": 0.1, "ecn_bytes": 1999}).ecn_bytes == 1999
    with pytest.raises(LinkError, match="ecn_bytes"):
        changed(link, {"ecn_bytes": 3000})
    with pytest.raises(LinkError, match="displacement"):
        changed(link, {"reordering": 0.1, "displacement": None})


@pytest.mark.parametrize(
    "text", ["", "1", "loss=1", ":loss=1", "x:loss=1", "1:loss", "1:sideways:loss=1", "1:"]
)
def test_the_option_says_how_it_is_written(text: str):
    with pytest.raises(LinkError, match="PORT:NAME=VALUE"):
        link_option(text)


def test_a_direction_in_the_option():
    assert link_option("3:ingress:loss=1%,delay=1ms") == (
        3,
        Direction.INGRESS,
        {"loss": "1%", "delay": "1ms"},
    )


def test_a_report_is_in_seconds_and_by_kind():
    statistics = LinkStatistics(
        offered=12,
        sent=8,
        lost=2,
        corrupted=3,
        queue_dropped=1,
        lateness_sum=16_000_000,
        lateness_most=9_000_000,
        held=1,
    )
    told = report(LinkProperties(loss=0.1), statistics)
    assert told["properties"] == {"loss": 0.1}
    assert told["drops"] == {"loss": 2, "burst": 0, "queue": 1, "memory": 0}
    assert told["lateness"] == {"mean": 2e-6, "most": 9e-6, "late": 0}
    assert (told["on_the_way"], told["corrupted"]) == (1, 3)


# Management


@pytest.fixture
def device() -> Device:
    return Device({1: "eth1", 2: "eth2"}, None, 511, {(2, Direction.INGRESS): LinkProperties(loss=0.5)})


def test_links_are_told_by_port(device: Device):
    calls = link_calls(device)
    second = {"port": 2, "interface": "eth2", "ingress": {"properties": {"loss": 0.5}}}
    assert calls["Links"]({}) == {"ports": [{"port": 1, "interface": "eth1"}, second]}
    assert calls["Links"]({"port": 2}) == {"ports": [second]}


def test_links_are_changed_before_there_is_a_program(device: Device):
    calls = link_calls(device)
    told = calls["SetLink"]({"port": 2, "direction": "ingress", "properties": {"delay": "1ms"}})
    [port] = told["ports"]
    assert port["ingress"] == {"properties": {"loss": 0.5, "delay": 1e-3}}
    [port] = calls["SetLink"]({"port": 2, "direction": "ingress", "properties": {"loss": None}})["ports"]
    assert port["ingress"] == {"properties": {"delay": 1e-3}}


@pytest.mark.parametrize(
    ("method", "request_", "complaint"),
    [
        ("Links", {"port": 7}, "no port 7"),
        ("SetLink", {}, "needs a port"),
        ("SetLink", {"port": 1, "direction": "up", "properties": {}}, "egress, ingress"),
        ("SetLink", {"port": 7, "direction": "egress", "properties": {}}, "no port 7; there are 1, 2"),
        ("SetLink", {"port": 1, "direction": "egress", "properties": {"loss": 2}}, "not from 0 to 1"),
    ],
)
def test_wrong_requests_say_what_is_wrong(
    device: Device, method: str, request_: dict[str, Any], complaint: str
):
    with pytest.raises(ManagementError, match=complaint):
        link_calls(device)[method](request_)
