"""The loopback port of a switch: what leaves there comes back after a while, and is not counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.simulator import HostModel, VirtualNetwork
from fanin.topologies.link import LinkProperties, Pause
from fanin.topologies.model import LOOPBACK_IN, LOOPBACK_OUT
from fanin.topologies.shapes import leaf_spine


@dataclass
class Holding:
    """A switch that holds what it gets in the loopback port, and then sends it to its second host."""

    seen: list[tuple[int, int]] = field(default_factory=list)  # time in microseconds, port

    def process(self, port: int, packet: bytes, now: int) -> list[tuple[int, bytes]]:
        self.seen.append((now, port))
        return [(2 if port == LOOPBACK_IN else LOOPBACK_OUT, packet)]


@dataclass
class Host:
    """Sends frames at a time, and notes when it gets some."""

    frames: int = 0
    heard: list[float] = field(default_factory=list)

    def receive(self, frames: NDArray[np.uint8], lengths: NDArray[np.int64], now: float) -> None:  # noqa: ARG002
        self.heard += [now] * len(frames)

    def frames_to_send(self, now: float) -> Sequence[NDArray[np.uint8]]:  # noqa: ARG002
        sent, self.frames = self.frames, 0
        return [np.ones((sent, 100), np.uint8)] if sent else []

    def deadline(self) -> float | None:
        return None


@pytest.mark.parametrize("priorities", [False, True])
@pytest.mark.parametrize("loopback", [2e-7, 3e-6, 1e-3])
def test_packets_come_back_after_the_delay_and_only_real_links_count_them(
    loopback: float, *, priorities: bool
) -> None:
    pause = Pause(xoff_bytes=150, xon_bytes=100) if priorities else None
    network_of = leaf_spine(0, 1, 2, rate=10**9, properties=LinkProperties(delay=1e-6, pause=pause))
    switch, hosts, seen = Holding(), {"h1": Host(3), "h2": Host()}, list[int]()
    network = VirtualNetwork(
        network_of,
        {"leaf1": switch},
        hosts,
        host=HostModel(0.0),
        observer=lambda arrived, _: seen.extend(arrived.links.tolist()),
        priorities=priorities,
        loopback=loopback,
    )
    network.wake("h1", 0.0)
    network.run()
    arrived = [now for now, port in switch.seen if port == 1]
    came_back = [now for now, port in switch.seen if port == LOOPBACK_IN]
    assert len(arrived) == len(came_back) == len(hosts["h2"].heard) == 3
    waited = np.subtract(came_back, arrived)
    assert (np.abs(waited - loopback * 1e6) <= 1).all()  # the clock of a program has whole microseconds
    assert network.hops == network.links.counts.packets.sum() == len(seen) == 6
    assert network.in_flight == 0


def test_without_a_loopback_port_what_is_sent_there_has_no_link() -> None:
    network = VirtualNetwork(leaf_spine(0, 1, 2), {"leaf1": Holding()}, {"h1": Host(3)})
    network.wake("h1", 0.0)
    network.run()
    assert network.faults["no link"] == 3
