"""Ports on a live network: two hosts, each in a namespace of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.engine.links import Direction, LinkProperties
from fanin.p4switch.engine.live_ports import PortError
from fanin.testbed.patience import setting
from tests.p4switch.runtime.link_model import draw

ROOT = Path(__file__).parents[3]


def run(
    case: str, *configs: Path, user: str = "-r", environment: Mapping[str, str] = os.environ
) -> tuple[Any, str]:
    """Return what a case saw, and what the switch printed on standard error."""
    script = Path(__file__).with_name("live_session.py")
    command = ["unshare", user, "-n", sys.executable, str(script), case, *map(str, configs)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=120 * setting(),
        check=False,
        env={**environment, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])  # behind what ethtool says
    if seen is None:
        pytest.skip("this kernel carries no superframes of UDP, whose packets come at one time")
    return seen, done.stderr


def session(case: str, *configs: Path) -> Any:
    return run(case, *configs)[0]


@pytest.fixture
def files(config: Callable[[str], bytes], tmp_path: Path) -> Callable[[str], Path]:
    def written(name: str) -> Path:
        path = tmp_path / f"{name}.json"
        path.write_bytes(config(name))
        return path

    return written


@pytest.mark.live
def test_offload_changes_no_result(files: Callable[[str], Path]) -> None:
    """The same datagrams in the same order, the same stream: with superframes in and out, in only, and without any.

    The forwarder does not look at checksums, so they may stay partial; the router verifies those of UDP, so they are
    completed, and each datagram then leaves with its own.
    """
    seen = session("offload", files("forwarder"), files("router"))
    both, received, none = (
        {
            "received in superframes": i,
            "sent in superframes": o,
            "none lost inside": True,
            "bytes as of single frames": True,
        }
        for i, o in ((True, True), (True, False), (False, False))
    )
    assert seen == {
        "forwarder both": both,
        "forwarder in": received,
        "forwarder none": none,
        "forwarder same": True,
        "router both": received,
        "router in": received,
        "router none": none,
        "router same": True,
        "intact": True,
    }


@pytest.mark.live
def test_what_the_kernel_refuses_is_sent_apart_or_counted_and_said_once(
    files: Callable[[str], Path], old_kernel: dict[str, str]
) -> None:
    seen, said = run("refused", files("forwarder"), environment={**os.environ, **old_kernel})
    assert seen == {
        "same": True,
        "none lost inside": True,
        "sent in superframes": True,
        "send errors": 0,
        "behind superframes": ["single", "single"],
        "receive errors": 2,
        "behind one too large": "small",
        "dropped, refused": [1, 1],
    }
    apart, received, sent = (line for line in said.splitlines() if line.startswith("p4switch: "))
    assert apart == "p4switch: this kernel takes no superframes of UDP: datagrams are sent one by one"
    assert received.startswith(
        "p4switch: port 1: a frame that came in is lost: Invalid argument (a superframe"
    )
    assert sent == "p4switch: port 2: a frame is not sent: Message too long"


@pytest.mark.live
def test_control_and_end(files: Callable[[str], Path]) -> None:
    assert session("control", files("forwarder")) == {
        "packet in": True,
        "packet out": True,
        "VLAN tag": 0x2005,
        "host sees nothing": True,
        "clsact left": False,
        "left": [0, 0],
    }


@pytest.mark.live
def test_emulated_links(files: Callable[[str], Path]) -> None:
    """A superframe of 40 datagrams of 1,042 bytes: the link sees each by itself, and does what the model says."""
    seen = session("links", files("forwarder"))
    everything = list(range(40))
    for direction, stream in (("egress", 4), ("ingress", 3)):

        def drawn(number: int, purpose: int, stream: int = stream) -> float:
            return draw(LinkProperties(seed=5), stream, number, purpose)

        lost = [n for n in everything if drawn(n, 0) < 0.3]
        twice = [n for n in everything if drawn(n, 2) < 0.3]
        corrupted = [n for n in everything if drawn(n, 1) < 0.3]
        flipped = [int(drawn(n, 9) * 8 * 1042) // 8 for n in corrupted]
        assert min(flipped) >= 34  # none in Ethernet's header or IPv4's, which others look at
        late = {n: drawn(n, 4) * 5e-3 for n in everything if drawn(n, 3) < 0.5}
        expected = {
            "loss": ([n for n in everything if n not in lost], [], [len(lost), 0, 0, 0, 0]),
            "corruption": ([n for n in everything if n not in corrupted], [], [0] * 5),
            "duplication": (sorted(everything + twice), [], [0, len(twice), 0, 0, 0]),
            "reordering": (
                sorted(everything, key=lambda n: (late.get(n, 0), n)),
                [],
                [0, 0, len(late), 0, 0],
            ),
            "queue": (everything[:19], [], [0, 0, 0, 21, 0]),
            "ecn": (everything, everything[20:], [0, 0, 0, 0, 20]),
            "delay": (everything, [], [0, 0, 0, 0, 0]),
        }
        for name, (numbers, marked, counted) in expected.items():
            found = seen[f"{name} {direction}"]
            assert found["numbers"] == numbers, (name, direction)
            assert found["marked"] == marked, (name, direction)
            assert found["counted"] == counted, (name, direction)
            assert found["held"] == 0
            both = len(corrupted) if name == "corruption" else 0
            assert (found["corrupted"], found["refused by the host"]) == (both, both)
            assert found["in time"]
            assert found["changed"], (name, direction)
        assert seen[f"delay {direction}"]["in superframes"]


@pytest.mark.live
def test_egress_finds_the_queue_as_it_is_when_the_packet_leaves_it(files: Callable[[str], Path]) -> None:
    """40 packets of 1,042 bytes come at once to a link of 10 Mb/s, on which each takes 833.6 us."""
    seen = session("queueing", files("queueing"))
    for number, _, *queue in seen["no link"]:
        assert queue == [0, 0, 0], number
    for name, count in (("link", 40), ("queue", 19)):
        [arrived] = {enq_timestamp for _, enq_timestamp, *_ in seen[name]}
        assert arrived > 0
        found = [(number, *queue) for number, _, *queue in seen[name]]
        # The first need not wait, and so the second finds nobody else waiting.
        assert found == [
            (n, max(0, n - 1), pytest.approx(n * 833.6, abs=1), count - 1 - n if n else 0)
            for n in range(count)
        ]
    assert seen["link counts"] == [40, 40, 0, 0]
    assert seen["queue counts"] == [40, 19, 21, 0]


@pytest.mark.live
def test_a_link_serves_the_higher_priority_first(files: Callable[[str], Path]) -> None:
    """40 packets come at once, whose numbers' last three bits are their priorities; the first need not wait."""
    expected = [0, *sorted(range(1, 40), key=lambda number: (-(number % 8), number))]
    assert session("priorities", files("priorities")) == expected


@pytest.mark.slow
def test_a_trace_of_packets_that_wait(files: Callable[[str], Path]) -> None:
    """The events before the queue and those after it are two traces: the first of 40 packets need not wait."""
    assert session("traced", files("queueing")) == {
        "waits for port 2": 18,
        "out of the queue of port 2 after": 18,
        "the queue of port 2 is full": 21,
        "1 packet out": 19,
    }


@pytest.mark.live
def test_a_switch_that_cannot_keep_up_says_so(files: Callable[[str], Path]) -> None:
    """It gets to run 50 ms after 40 packets have come for a link of 1 ms: 49 ms late."""
    (late, most), said = run("late", files("forwarder"))
    assert late == 40
    assert most >= 49_000_000_000
    message = "p4switch: cannot keep up: emulated links released 40 of 40 packets more than 1 ms late"
    assert said.splitlines() == [message]


@pytest.mark.live
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may come before others")
def test_emulated_links_come_before_those_who_compute(files: Callable[[str], Path]) -> None:
    assert run("urgent", files("forwarder"), user="-f")[0]


def test_links_need_open_ports(engine: Callable[[str], Engine]) -> None:
    switch = engine("forwarder")
    with pytest.raises(PortError, match="open ports"):
        switch.set_link(1, Direction.EGRESS, LinkProperties())
    assert switch.link_statistics(1, Direction.EGRESS) is None


def test_ports_that_cannot_be_opened(engine: Callable[[str], Engine]) -> None:
    switch = engine("forwarder")
    with pytest.raises(PortError, match="port 1: cannot open interface nowhere: No such device"):
        switch.start({1: "nowhere"})
    with pytest.raises(PortError, match="255 is the CPU port"):
        switch.start({255: "lo"})
    with pytest.raises(PortError, match="open ports"):
        switch.packet_out(b"", 255)
    switch.stop()
