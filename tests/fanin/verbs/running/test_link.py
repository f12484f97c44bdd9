"""`fanin link` shows and changes the emulated links of a network that is up."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fanin.testbed.patience import setting
from fanin.testbed.running import RunningHost, RunningNetwork, RunningSwitch
from fanin.testbed.runs import Run
from fanin.topologies.errors import NetworkError
from fanin.verbs.running.link import _ways
from tests.fanin.network import Up

TIMEOUT = 30 * setting()
SEND = """
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
for n in range(5):
    s.sendto(b"datagram", ("10.1.0.2", 5005))
"""


@pytest.mark.live
def test_links_are_changed_both_ways_and_read(up: Up, fanin: Any) -> None:
    def state(*arguments: str) -> list[dict[str, Any]]:
        done = fanin("link", *arguments, "--json", **up.environment)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def sent(end: int = 0) -> list[int]:
        """Return the packets sent to h1, and from it, once at least `end` came from it."""
        late = time.monotonic() + TIMEOUT
        while (counts := [one["sent"] for one in state("leaf1", "h1")])[1] < end and time.monotonic() < late:
            pass
        return counts

    began = sent()
    assert fanin("exec", "h1", sys.executable, "-c", SEND, **up.environment).returncode == 0
    without = sent(began[1] + 5)
    assert without[1] >= began[1] + 5  # a link without properties counts, too
    there, back = state("leaf1", "h1", "--set", "delay=1ms,loss=1%")
    assert [there["sent"] >= without[0], back["sent"] >= without[1]] == [
        True,
        True,
    ]  # and its counts continue
    assert (there["from"], there["to"], there["direction"]) == ("leaf1", "h1", "egress")
    assert (back["from"], back["to"], back["direction"]) == ("h1", "leaf1", "ingress")
    assert there["properties"] == back["properties"] == {"delay": 0.001, "loss": 0.01}

    [only] = state("h1", "leaf1", "--one-way", "--set", "loss=100%")
    assert only["properties"] == {"delay": 0.001, "loss": 1}
    before = only["drops"]["loss"]
    assert fanin("exec", "h1", sys.executable, "-c", SEND, **up.environment).returncode == 0
    end = time.monotonic() + TIMEOUT
    while (dropped := state("h1", "leaf1")[0]["drops"]["loss"] - before) < 5 and time.monotonic() < end:
        pass
    assert dropped == 5

    assert [link["properties"] for link in state("leaf1", "1", "--clear", "--set", "jitter=1us")] == [
        {"jitter": 1e-6}
    ] * 2
    shown = fanin("link", "leaf1", **up.environment).stdout
    assert "jitter=1 us" in shown
    assert "5 loss" in shown


@pytest.mark.live
@pytest.mark.parametrize(
    ("status", "arguments", "complaint"),
    [
        (2, ("leaf1", "h1", "--set", "delay=5"), "--set delay=5: write the unit as well, such as delay=5ms"),
        (
            2,
            ("leaf1", "h1", "--set", "rate=1e6"),
            "--set rate=1e6: write the unit as well, such as rate=100Mb/s",
        ),
        (2, ("leaf1", "h1", "--set", "loss=2"), "leaf1: loss: 2 is not from 0 to 1; for 2 percent, write 2%"),
        (2, ("leaf1", "h1", "--set", "lose=1"), "leaf1: lose: unknown link property; there are rate, delay"),
        (2, ("leaf1", "h1", "--set", "loss"), "write NAME=VALUE"),
        (1, ("leaf1", "h9"), "leaf1 has no link to h9; it has links to h1, h2"),
        (1, ("leaf1", "9"), "leaf1 has no port 9; its ports are 1, 2"),
        (2, ("leaf1", "--set", "loss=1%"), "give the other end"),
        (1, ("leaf7",), "no network that is up has leaf7"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    up: Up, fanin: Any, status: int, arguments: tuple[str, ...], complaint: str
) -> None:
    done = fanin("link", *arguments, **up.environment)
    assert done.returncode == status
    [line] = done.stderr.splitlines()
    assert complaint in line


def test_each_direction_is_emulated_where_it_is_sent_or_at_the_host_s_leaf(tmp_path: Path) -> None:
    switches = {
        "leaf1": RunningSwitch(1, 9559, "embedded", {1: "h1", 2: "spine1"}),
        "spine1": RunningSwitch(2, 9560, "embedded", {1: "leaf1"}),
    }
    network = RunningNetwork(Run(tmp_path), switches, {"h1": RunningHost(5, "10.1.0.1")})

    def ways(*arguments: Any) -> list[tuple[str, str, str, int, str]]:
        return [
            (w.sender, w.receiver, w.switch, w.port, w.direction) for w in _ways(network, *arguments, False)
        ]

    up = [("leaf1", "spine1", "leaf1", 2, "egress"), ("spine1", "leaf1", "spine1", 1, "egress")]
    down = [("leaf1", "h1", "leaf1", 1, "egress"), ("h1", "leaf1", "leaf1", 1, "ingress")]
    assert ways("leaf1", "spine1") == ways("leaf1", "2") == up
    assert ways("leaf1", None) == down + up
    assert ways("h1", None) == ways("h1", "leaf1") == down[::-1]
    with pytest.raises(NetworkError, match="h1 has no port 0; its ports are none"):
        ways("h1", "0")
