"""How long a flow takes that has the network for itself: the time of which its slowdown is a multiple."""

from __future__ import annotations

from collections.abc import Sequence

from fanin.controller.routes import Routes
from fanin.experiments.scenario.settings import Settings
from fanin.topologies.model import Link
from fanin.workers.host_based.transport import HEADER_BYTES, PAYLOAD
from fanin.workers.wire import HEADERS


class Alone:
    """Flows in the network of a point in virtual time, by the transport between hosts."""

    def __init__(self, settings: Settings) -> None:
        self._network = settings.network
        self._coalescing = settings.coalescing
        self._routes = Routes(settings.network)
        self._ways: dict[tuple[str, str], Sequence[Link]] = {}

    def seconds(self, source: str, destination: str, size: int) -> float:
        """At least, of `size` bytes from host to host until all are handed out; nothing but links holds them.

        Of several shortest ways it takes the one whose slowest link is the fastest.
        """
        network = self._network
        (first,), (last,) = network.links_of(source), network.links_of(destination)
        links = [first, *self._way(network.host(source).leaf, network.host(destination).leaf), last]
        before = (size - 1) // PAYLOAD  # packets, all full
        rest = size - before * PAYLOAD
        delays = sum(link.properties.virtual_delay for link in links)
        begins = delays + sum(_packet(link, min(size, PAYLOAD)) for link in links)
        ends = delays + sum(_packet(link, rest) for link in links) + before * _slowest(links)[0]
        return max(ends, begins + self._coalescing)

    def _way(self, here: str, leaf: str) -> Sequence[Link]:
        """Between two switches, the second of them a leaf."""
        if (here, leaf) not in self._ways:
            ways = [
                (self._network.link_between(here, hop), *self._way(hop, leaf))
                for hop in self._routes.next_hops(here, leaf)
            ]
            self._ways[here, leaf] = min(ways, key=_slowest, default=())
        return self._ways[here, leaf]


def _slowest(links: Sequence[Link]) -> tuple[float, float]:
    """Its time for a packet, then the delays of all."""
    delays = sum(link.properties.virtual_delay for link in links)
    return max(_packet(link, PAYLOAD) for link in links), delays


def _packet(link: Link, payload: int) -> float:
    """Seconds of one with so many bytes."""
    if (rate := link.rate_bits_per_second) is None:
        return 0.0
    return 8 * (HEADERS + HEADER_BYTES + payload + link.properties.virtual_overhead) / rate
