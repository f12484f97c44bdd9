"""The links that a job's packets cross: the time of a packet alone, and of packets that share a link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil
from typing import Literal

from fanin.controller.routes import Routes
from fanin.controller.tree import FIRST_UDP_PORT, Job, Tree, aggregation_tree
from fanin.experiments.scenario.settings import Settings
from fanin.topologies.link import LinkProperties
from fanin.topologies.model import Link
from fanin.workers.collective import HostBasedAlgorithm, Operation
from fanin.workers.host_based.algorithms.all_reduce import sent
from fanin.workers.host_based.algorithms.registry import algorithm_named
from fanin.workers.host_based.schedules import schedule

_Direction = tuple[str, str]  # from one node to the next
Delays = Literal["usual", "fixed", "longest"]
_USUAL_DELAY = 2 * LinkProperties().virtual_delay  # a delay twice as long as the default is nothing unusual
_USUAL_NOTICE = Settings.model_fields["coalescing"].default


@dataclass(frozen=True, slots=True)
class _Trunk:
    """The connection of two switches: the time of the slowest path, its links, and the links of all paths."""

    seconds: float
    links: int
    directions: frozenset[_Direction]


class Paths:
    """The paths of a point's packets; times are in seconds.

    If a packet may take several paths, the slowest one counts.

    Args:
        settings: The point.
        frame: Bytes of a packet, without Ethernet's overhead.
        patient: Make packets as late as jitter and reordering can.
        members: The hosts by rank; None: all workers.
        delays: How links delay packets, and how late hosts notice them: no longer than is usual, as they do without
            jitter ("fixed"), or as long as jitter can.
        shares: The share of a vector that each rank sends to each other one, between hosts; None: that of the
            point's algorithm.
    """

    def __init__(
        self,
        settings: Settings,
        frame: int,
        *,
        patient: bool = False,
        members: Sequence[str] | None = None,
        delays: Delays = "fixed",
        shares: tuple[Mapping[int, float], ...] | None = None,
    ) -> None:
        self._settings = settings
        self._frame = frame
        self._patient = patient
        self._delays = delays
        self._given_shares = shares
        self._network = network = settings.network
        self._members = members = tuple(members or settings.members)
        self._leaves = [network.host(member).leaf for member in members]
        self._routes = Routes(network)
        self._trunks: dict[tuple[str, str], _Trunk] = {}
        self._access = [self._alone(network.links_of(member)[0]) for member in members]

    def latency(self, sender: int, receiver: int) -> float:
        """Return the time from sending a packet until the receiver handles it, for two ranks."""
        trunk = self._trunk(self._leaves[sender], self._leaves[receiver])
        return self._access[sender] + trunk.seconds + self._access[receiver] + self.notice

    @property
    def round_trip(self) -> float:
        """Return the round-trip time of a packet.

        In the network this is the time from the host furthest from the tree's root, or from the server, to there and
        back. Between hosts it is that of the two ranks furthest from each other among those that communicate.
        """
        if self._settings.algorithm == "in-network":
            notices = 2 if self._settings.servers else 1
            return 2 * max(map(self._height, self._trees)) + notices * self.notice
        return 2 * max(
            self.latency(rank, peer) for rank, others in enumerate(self._shares) for peer in others
        )

    @property
    def tree_links(self) -> int:
        """Return the number of links of all trees of a vector together."""
        return sum(len(part.children) for tree in self._trees for part in tree.aggregators)

    @property
    def mean_links(self) -> float:
        """Return how many links a packet between hosts crosses, on average over all ranks that send to one another."""
        ways = [
            2 + self._trunk(self._leaves[rank], self._leaves[peer]).links
            for rank, others in enumerate(self._shares)
            for peer in others
        ]
        return sum(ways) / len(ways)

    @property
    def most_connections(self) -> int:
        """Return the number of ranks to which the busiest rank sends, between hosts."""
        return max(map(len, self._shares))

    def shared(self, window: int, packets: int) -> float:
        """Return how long packets that are under way at the same time take on the link where that is longest.

        Args:
            window: Packets in the window of each sender or connection.
            packets: Packets of a vector. A window is never fuller than what is sent of a vector.

        Returns:
            Seconds.
        """
        return max(
            count * self.packet_seconds(self._network.link_between(*direction))
            for direction, count in self._under_way(window, packets).items()
        )

    def exchanged(self, packets: int, parts: int, first_run: int, empty: Paths) -> float:
        """Return how long the packets of a gather or scatter take on the link where that is longest.

        Each part crosses a link in one direction: parts with an owner below it in one, all others in the other one. In
        the direction of most parts, the link waits for the first run of each part that it does not carry.

        Args:
            packets: Packets of a vector.
            parts: Number of parts, of which each has an owner.
            first_run: See runs() (workers/tensor.py).
            empty: The paths of a packet without values.

        Returns:
            Seconds.
        """
        longest = 0.0
        for tree in self._trees:
            workers = dict.fromkeys(self._members, 1)
            for part in tree.aggregators:
                workers[part.switch] = sum(workers[child] for child in part.children)
                for child in part.children:
                    link = self._network.link_between(child, part.switch)
                    elsewhere = min(workers[child], parts - workers[child]) if parts > 1 else 0
                    left_out = elsewhere * (packets // parts - first_run)
                    seconds = self.packet_seconds(link) * (packets - left_out)
                    longest = max(longest, seconds + empty.packet_seconds(link) * left_out)
        return longest

    @property
    def slowest(self) -> float:
        """Return the seconds of a packet on the slowest link that packets cross; 0 if all are unlimited."""
        crossed = self._under_way(1, 1)
        return max(self.packet_seconds(self._network.link_between(*way)) for way in crossed)

    @property
    def notice(self) -> float:
        """Return how long a host takes to notice a packet."""
        if self._settings.world == "live":
            return 0.0
        late = self._settings.coalescing
        return min(late, _USUAL_NOTICE) if self._delays == "usual" else late

    @cached_property
    def _trees(self) -> tuple[Tree, ...]:
        """Return the trees of a vector, for the first job on the network."""
        ports = range(FIRST_UDP_PORT, FIRST_UDP_PORT + self._settings.trees)
        servers = self._settings.servers or (None,) * len(ports)
        return tuple(
            aggregation_tree(self._network, Job(1, self._members, port, server=server))
            for port, server in zip(ports, servers, strict=False)
        )

    def _height(self, tree: Tree) -> float:
        """Return the time from the host furthest from the root to the root, or to the server above it."""
        root = tree.root
        above = self._alone(self._network.link_between(root.switch, root.parent)) if root.parent else 0.0
        below = {root.switch: above}
        for part in reversed(tree.aggregators):
            for child in part.children:
                below[child] = below[part.switch] + self._alone(
                    self._network.link_between(child, part.switch)
                )
        return max(below.values())

    def _trunk(self, here: str, there: str) -> _Trunk:
        """Return the connection of two switches."""
        if (here, there) not in self._trunks:
            ways = [(hop, self._trunk(hop, there)) for hop in self._routes.next_hops(here, there)]
            self._trunks[here, there] = _Trunk(
                max(
                    (self._alone(self._network.link_between(here, hop)) + rest.seconds for hop, rest in ways),
                    default=0.0,
                ),
                max((1 + rest.links for _, rest in ways), default=0),
                frozenset((here, hop) for hop, _ in ways).union(*(rest.directions for _, rest in ways)),
            )
        return self._trunks[here, there]

    def _alone(self, link: Link) -> float:
        """Return the time of a packet on a link that waits for no other."""
        properties = link.properties
        live = self._settings.world == "live"
        delay = (properties.delay or 0.0) if live else properties.virtual_delay
        if self._delays == "usual":
            delay = min(delay, _USUAL_DELAY)
        jitter = properties.jitter if self._patient or self._delays == "longest" else 0.0
        late = properties.displacement if self._patient else 0.0
        return self.packet_seconds(link) + delay + jitter + late

    def packet_seconds(self, link: Link) -> float:
        """Return the time of a packet on the wire; 0 if the link's rate is unlimited."""
        properties = link.properties
        live = self._settings.world == "live"
        overhead = (properties.overhead or 0) if live else properties.virtual_overhead
        rate = link.rate_bits_per_second
        return 0.0 if rate is None else 8 * (self._frame + overhead) / rate

    # -- packets that share a link

    @cached_property
    def _shares(self) -> tuple[Mapping[int, float], ...]:
        """Return the share of a vector that each rank sends to each other rank, between hosts."""
        settings = self._settings
        if self._given_shares is not None:
            return self._given_shares
        assert settings.algorithm != "in-network"
        return shares(settings.algorithm, len(self._leaves), settings.shards, settings.collective)

    def _under_way(self, window: int, packets: int) -> Counter[_Direction]:
        """Return how many packets may be on a link at once, by its direction."""
        settings = self._settings
        found: Counter[_Direction] = Counter()
        if settings.algorithm == "in-network":  # sums: each link carries one window of each tree
            for tree in self._trees:
                workers = dict.fromkeys(self._members, 1)
                for part in tree.aggregators:
                    # If no slot is free, what goes to a server is not summed on its way.
                    alone = self._patient and tree.job.server is not None
                    workers[part.switch] = sum(workers[child] for child in part.children) if alone else 1
                    ups = [(child, part.switch) for child in part.children]
                    ups += [(part.switch, part.parent)] if part is tree.root and part.parent else []
                    found.update({up: workers[up[0]] * min(window, packets) for up in ups})
            return found
        per_host = settings.window_per == "host"
        for rank, others in enumerate(self._shares):
            own = self._sent_by(rank, others, window * settings.flows_per_pair, packets)
            found.update({way: min(window, count) for way, count in own.items()} if per_host else own)
        return found

    def _sent_by(
        self, rank: int, others: Mapping[int, float], window: int, packets: int
    ) -> Counter[_Direction]:
        """Return how many packets of one rank may be on a link at once, with a window for each connection."""
        members, leaves = self._members, self._leaves
        here, found = leaves[rank], Counter[_Direction]()
        towards: Counter[str] = Counter()
        for peer, share in others.items():
            count = min(window, ceil(share * packets))
            found[leaves[peer], members[peer]] += count
            towards[leaves[peer]] += count
        found[members[rank], here] = towards.total()
        for leaf, count in towards.items():  # all flows may have chosen the same one of several paths
            found.update(dict.fromkeys(self._trunk(here, leaf).directions, count))
        return found


@lru_cache
def shares(
    algorithm: HostBasedAlgorithm, workers: int, shards: int | None, operation: Operation = "all-reduce"
) -> tuple[Mapping[int, float], ...]:
    """Return the share of a vector that each rank sends to each other rank, by rank."""
    if operation == "all-reduce":
        return algorithm_named(algorithm).shares(workers, shards)
    size = 2 * workers  # no part is empty
    plans = (schedule(algorithm, rank, workers, size, operation=operation) for rank in range(workers))
    return tuple(sent(plan, size) for plan in plans)
