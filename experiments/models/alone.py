"""The time that a flow takes when it has the network to itself; its slowdown is a multiple of this time."""

from __future__ import annotations

from collections.abc import Sequence

from fanin.controller.routes import Routes
from fanin.experiments.scenario.settings import Settings
from fanin.topologies.model import Link
from fanin.workers.host_based.transport import HEADER_BYTES
from fanin.workers.wire import HEADERS


class Alone:
    """Flows in the network of a point in virtual time, with the transport between hosts."""

    def __init__(self, settings: Settings) -> None:
        self._network = settings.network
        self._coalescing, self._payload = settings.coalescing, settings.payload
        self._routes = Routes(settings.network)
        self._ways: dict[tuple[str, str], Sequence[Link]] = {}

    def seconds(self, source: str, destination: str, size: int) -> float:
        """Return the least time in seconds until `size` bytes have arrived at the destination, delayed by links alone.

        Of several shortest paths it takes the one whose slowest link is the fastest.
        """
        network = self._network
        (first,), (last,) = network.links_of(source), network.links_of(destination)
        links = [first, *self._way(network.host(source).leaf, network.host(destination).leaf), last]
        before = (size - 1) // self._payload  # packets, all full
        rest = size - before * self._payload
        delays = sum(link.properties.virtual_delay for link in links)
        begins = delays + sum(_packet(link, min(size, self._payload)) for link in links)
        ends = delays + sum(_packet(link, rest) for link in links) + before * self._slowest(links)[0]
        return max(ends, begins + self._coalescing)

    def packet_seconds(self, host: str) -> float:
        """Return the seconds of a full packet on the link of a host."""
        (link,) = self._network.links_of(host)
        return _packet(link, self._payload)

    def _way(self, here: str, leaf: str) -> Sequence[Link]:
        """Return the links from a switch to a leaf."""
        if (here, leaf) not in self._ways:
            ways = [
                (self._network.link_between(here, hop), *self._way(hop, leaf))
                for hop in self._routes.next_hops(here, leaf)
            ]
            self._ways[here, leaf] = min(ways, key=self._slowest, default=())
        return self._ways[here, leaf]

    def _slowest(self, links: Sequence[Link]) -> tuple[float, float]:
        """Return the slowest link's time for a full packet, and the delays of all links."""
        delays = sum(link.properties.virtual_delay for link in links)
        return max(_packet(link, self._payload) for link in links), delays


def _packet(link: Link, payload: int) -> float:
    """Return the seconds that a packet with this many bytes of payload takes on the link."""
    if (rate := link.rate_bits_per_second) is None:
        return 0.0
    return 8 * (HEADERS + HEADER_BYTES + payload + link.properties.virtual_overhead) / rate
