"""A switch that sends packets over links at given times, and what arrives there."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fanin.simulator import HostModel, VirtualNetwork
from fanin.simulator.links import Packets, Transit
from fanin.simulator.units import SECOND
from fanin.topologies.link import LinkModel, LinkProperties
from fanin.topologies.shapes import leaf_spine

FEED = 1_000_000  # picoseconds from the host that sends to the switch; times are those at the switch


@dataclass(frozen=True)
class Arrived:
    """Arrivals in order of time: time (picoseconds), link, bytes."""

    times: NDArray[np.int64]
    links: NDArray[np.int64]
    rows: NDArray[np.uint8]  # [packets, room]
    lengths: NDArray[np.int64]


class OneSwitch:
    """Links from a switch, numbered from 0 on; the directions with even numbers are those that it sends over."""

    def __init__(
        self,
        rates: Sequence[int | None],
        models: Sequence[LinkModel],
        *,
        seed: int = 1,
        priorities: bool = False,
    ) -> None:
        topology = leaf_spine(0, 1, len(models) + 1)
        feed, *others = topology.links
        feeding = {"rate_bits_per_second": None, "properties": LinkProperties(delay=FEED / SECOND)}
        links = [
            link.model_copy(
                update={"a": link.b, "b": link.a, "rate_bits_per_second": rate, "properties": model}
            )
            for link, rate, model in zip(others, rates, models, strict=True)
        ]
        assert links[0].a.node == "leaf1"
        self._out_of = [link.a.port for link in links]
        self._next: deque[int] = deque()  # the links over which the packets to come are sent
        self._to_send: deque[tuple[int, list[NDArray[np.uint8]]]] = deque()
        self._arrived: list[tuple[Transit, Packets]] = []
        self.network = VirtualNetwork(
            topology.model_copy(update={"links": (*links, feed.model_copy(update=feeding))}),
            {"leaf1": self},
            {"h1": self},
            host=HostModel(0.0),
            seed=seed,
            observer=self._note,
            priorities=priorities,
        )

    def schedule(
        self, times: Sequence[int], frames: Sequence[NDArray[np.uint8]], links: Sequence[int]
    ) -> None:
        """Let the switch send frames (not yet: run the network), in the order of their times."""
        order = sorted(range(len(times)), key=lambda i: times[i])
        self._next.extend(links[i] for i in order)
        for time, group in groupby(order, key=lambda i: times[i]):
            same_length = groupby((frames[i] for i in group), key=len)
            self._to_send.append((time, [np.array(list(batch)) for _, batch in same_length]))
        if self._to_send:
            self.network.wake("h1", self._to_send[0][0] / SECOND)

    def send(
        self, times: Sequence[int], frames: Sequence[NDArray[np.uint8]], links: Sequence[int] | None = None
    ) -> Arrived:
        """Send frames at these times (picoseconds) over these links (link 0); what arrives."""
        self.schedule(times, frames, [0] * len(times) if links is None else links)
        self.network.run()
        return self.take()

    def take(self) -> Arrived:
        """Return what has arrived since the last call."""
        arrived, self._arrived = self._arrived, []
        times = np.concatenate([each.times for each, _ in arrived] or [np.zeros(0, np.int64)])
        order = np.argsort(times, kind="stable")
        return Arrived(
            times[order] - FEED,
            np.concatenate([each.links for each, _ in arrived] or [times])[order] // 2,
            np.concatenate([packets.rows for _, packets in arrived] or [np.zeros((0, 0), np.uint8)])[order],
            np.concatenate([packets.lengths for _, packets in arrived] or [times])[order],
        )

    def _note(self, arrived: Transit, packets: Packets) -> None:
        at_hosts = arrived.links < 2 * len(self._out_of)
        if at_hosts.any():
            which = arrived.take(at_hosts)
            self._arrived.append((which, Packets(packets.rows[at_hosts], packets.lengths[at_hosts])))

    # -- the switch

    def process(self, port: int, packet: bytes, now: int) -> list[tuple[int, bytes]]:  # noqa: ARG002
        return [(self._out_of[self._next.popleft()], packet)]

    # -- the host that sends

    def receive(self, *_: object) -> None:
        raise AssertionError("nothing is sent to it")

    def frames_to_send(self, now: float) -> Sequence[NDArray[np.uint8]]:
        if not self._to_send or self._to_send[0][0] / SECOND > now:
            return []
        return self._to_send.popleft()[1]

    def deadline(self) -> float | None:
        return self._to_send[0][0] / SECOND if self._to_send else None
