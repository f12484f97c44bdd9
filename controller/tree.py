"""The aggregation tree of a job: which switch adds up what, and where its sum goes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from operator import or_

from fanin.controller.errors import ControllerError
from fanin.controller.network import Network
from fanin.workers.lease import Lease

FIRST_UDP_PORT, LAST_UDP_PORT = 0xBEE0, 0xBEEF  # the ports that the parser accepts for aggregation
SLOTS = 1024  # slots of a switch: p4src/values.p4
MAX_CHILDREN = 32  # bits in the bitmap of a chunk's contributions


@dataclass(frozen=True, slots=True)
class Job:
    """The values of one lease.

    Attributes:
        lease: The lease's id.
        hosts: The workers' hosts, by rank.
        udp_port: The UDP port of its packets.
        base: The first slot.
        slots: Number of slots.
        first_chunk: The first chunk number.
        last_chunk: The last chunk number.
        checksums: Whether switches drop packets without a UDP checksum, and write one into those that they send. If
            not, they accept packets without one, and write none.
        window: Packets that a worker may have in flight; None: as many as there are slots.
        server: The host of the job's parameter server, to which its root sends sums; None: it has none.
    """

    lease: int
    hosts: tuple[str, ...]
    udp_port: int = FIRST_UDP_PORT
    base: int = 0
    slots: int = SLOTS
    first_chunk: int = 0
    last_chunk: int = 2**32 - 1
    checksums: bool = True
    window: int | None = None
    server: str | None = None

    def lease_of(self, rank: int, values: int = 256) -> Lease:
        """Return the lease as the worker with this rank holds it, for packets of this many integers."""
        return Lease(
            self.lease,
            rank,
            len(self.hosts),
            self.window or self.slots,
            self.base,
            values,
            self.first_chunk,
            self.last_chunk,
            None if self.window is None else self.slots,
        )


@dataclass(frozen=True, slots=True)
class Aggregator:
    """A switch in a tree; child i is member i + 1 and contributes bit i."""

    switch: str
    children: tuple[str, ...]
    parent: str | None  # None for the root, unless the job has a server, which then is its parent

    @property
    def full_mask(self) -> int:
        """Return the bitmap after every child has contributed."""
        return (1 << len(self.children)) - 1


@dataclass(frozen=True, slots=True)
class Tree:
    """A job's switches, the root last."""

    job: Job
    aggregators: tuple[Aggregator, ...]

    @property
    def root(self) -> Aggregator:
        """Return the switch where the sum is complete."""
        return self.aggregators[-1]


def rests_on(aggregators: Iterable[Aggregator], switch: str) -> bool:
    """Return whether a job may stand still after a switch has lost its registers.

    If the switch has several children in the tree, workers below one child may have a result that workers below another
    lack; then nobody ever sends that chunk again. If it has one child, either a worker below it has the result, or all
    ask for it.

    Args:
        aggregators: The switches of the job's tree.
        switch: The switch that has lost its registers.
    """
    return any(part.switch == switch and len(part.children) > 1 for part in aggregators)


def aggregation_tree(network: Network, job: Job) -> Tree:
    """Return the tree of a job, along links of the network: see "Trees" in docs/reference/protocol.md.

    The root is the switch with the smallest distance to the farthest of the job's leaves, as long as no switch gets
    more children than it has bits. So it is the lowest switch above all leaves. Jobs spread over equal roots by their
    UDP port, which outlives their leases.

    If the job has a server, the tree reaches its host, too. The root is then the server's leaf, and all other switches
    send towards it.

    Args:
        network: The network.
        job: The job.

    Raises:
        ControllerError: If the program cannot hold the job, or the network lacks its hosts.
    """
    _check(network, job)
    members = {*job.hosts, *([job.server] if job.server else [])}
    racks = {
        leaf.name: tuple(host.name for host in network.hosts_of(leaf.name) if host.name in members)
        for leaf in network.leaves
    }
    racks = {leaf: hosts for leaf, hosts in racks.items() if hosts}
    for leaf, hosts in racks.items():
        if len(hosts) > MAX_CHILDREN:
            raise ControllerError(
                f"{leaf} would add up {len(hosts)} children; it has bits for {MAX_CHILDREN}: spread the job over "
                "more switches"
            )
    search = _Search(network, racks, job.udp_port - FIRST_UDP_PORT)
    if apart := search.apart():
        raise ControllerError(f"no path leads from {apart[0]} to {apart[1]}: links between them are down")
    for root in search.roots():
        if aggregators := search.tree_below(root):
            return Tree(job, _towards(job.server, aggregators) if job.server else aggregators)
    raise ControllerError(
        f"the job's hosts are below {len(racks)} switches, and those above have bits for {MAX_CHILDREN} children each, "
        "too few for all: add switches to a tier above, or spread the job over fewer"
    )


def _towards(server: str, aggregators: Sequence[Aggregator]) -> tuple[Aggregator, ...]:
    """Return a tree, one of whose children is `server`, with the server's leaf as the root and the server above it."""
    parts = {part.switch: part for part in aggregators}
    above, switch = server, next(name for name, part in parts.items() if server in part.children)
    turned: list[Aggregator] = []
    while True:
        part = parts.pop(switch)
        below = tuple(child for child in part.children if child != above)
        if part.parent is None:
            turned.append(replace(part, children=below, parent=above))
            return (*parts.values(), *reversed(turned))
        turned.append(replace(part, children=(*below, part.parent), parent=above))
        above, switch = switch, part.parent


class _Search:
    """The search for a tree in which every switch on the way to a job's leaves has enough bits for its children.

    The search is greedy and never goes back: on irregular networks it may miss a tree that exists. A set of leaves is
    an integer, with bit i for the i-th of `racks`.

    Args:
        network: The network.
        racks: The job's hosts at each leaf.
        turn: Chooses among equal switches; different for each job.
    """

    def __init__(self, network: Network, racks: Mapping[str, tuple[str, ...]], turn: int) -> None:
        self._racks, self._turn = racks, turn
        self._tiers = [[switch.name for switch in tier] for tier in network.tiers]
        names = {name for tier in self._tiers for name in tier}
        self._neighbours = {
            name: [other for _, other in sorted(network.neighbours(name).items()) if other in names]
            for name in chain(*self._tiers)
        }
        self._bits = {leaf: 1 << number for number, leaf in enumerate(racks)}
        self._within = self._leaves_within()
        self._found: list[Aggregator] = []
        self._used: set[str] = set()

    def apart(self) -> tuple[str, str] | None:
        """Return two of the job's leaves that no links join, if there are any."""
        first, *others = self._racks
        joined = self._within[first][-1]
        return next(((first, other) for other in others if not self._bits[other] & joined), None)

    def roots(self) -> Iterable[str]:
        """Yield all switches by the distance to their farthest leaf; at equal distance, higher tiers come first."""
        alike: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        every = (1 << len(self._racks)) - 1
        for tier, names in enumerate(self._tiers):
            for name in names:
                within = self._within[name]
                farthest = within.index(every) if within[-1] == every else len(self._neighbours)
                alike[farthest, -tier].append(name)
        for _, names in sorted(alike.items()):
            yield from self._in_turn(names)

    def tree_below(self, root: str) -> tuple[Aggregator, ...]:
        """Return the tree with this root, which is last; empty if there is none."""
        self._found, self._used = [], set()
        reached = self._grow(root, None, (1 << len(self._racks)) - 1)
        return tuple(self._found) if reached.bit_count() == len(self._racks) else ()

    def _grow(self, switch: str, parent: str | None, leaves: int) -> int:
        """Add `switch` and the switches it needs to reach as many of these leaves as it can, by shortest paths.

        Returns:
            The leaves reached.
        """
        self._used.add(switch)
        hosts = self._racks.get(switch, ())
        reached = self._bits.get(switch, 0)
        missing = leaves & ~reached
        nearer = {
            neighbour: missing & self._nearer(neighbour, switch)
            for neighbour in self._in_turn(self._neighbours[switch])
        }
        children: list[str] = []
        while len(hosts) + len(children) < MAX_CHILDREN:
            free = [neighbour for neighbour in nearer if neighbour not in self._used]
            child = max(free, key=lambda neighbour: (nearer[neighbour] & missing).bit_count(), default=None)
            if child is None or not nearer[child] & missing:
                break
            if below := self._grow(child, switch, nearer[child] & missing):
                children.append(child)
                reached |= below
                missing &= ~below
        if reached:
            children.sort(key=self._neighbours[switch].index)
            self._found.append(Aggregator(switch, (*hosts, *children), parent))
        return reached

    def _nearer(self, neighbour: str, switch: str) -> int:
        """Return the leaves that are nearer to `neighbour` than to `switch`."""
        pairs = zip(self._within[neighbour], self._within[switch], strict=True)
        return reduce(or_, (there & ~here for there, here in pairs))

    def _in_turn(self, names: Sequence[str]) -> Sequence[str]:
        first = self._turn % len(names) if names else 0
        return [*names[first:], *names[:first]]

    def _leaves_within(self) -> Mapping[str, Sequence[int]]:
        """Return for each switch which leaves are at most 0, 1, 2 … links away, up to the farthest in the network."""
        within = {name: [self._bits.get(name, 0)] for name in self._neighbours}
        while True:
            farther = {
                name: reduce(or_, (within[other][-1] for other in around), within[name][-1])
                for name, around in self._neighbours.items()
            }
            if all(farther[name] == known[-1] for name, known in within.items()):
                return within
            for name, known in within.items():
                known.append(farther[name])


def _check(network: Network, job: Job) -> None:
    _check_range("lease", job.lease, 1, 255)  # 0 is the initial value of a register
    _check_range("udp_port", job.udp_port, FIRST_UDP_PORT, LAST_UDP_PORT)
    _check_range("slots", job.slots, 1, SLOTS)
    _check_range("base", job.base, 0, SLOTS - job.slots)
    if not job.hosts:
        raise ControllerError("a job needs at least one host")
    known = {host.name for leaf in network.leaves for host in network.hosts_of(leaf.name)}
    if job.server in job.hosts:
        raise ControllerError(f"{job.server} is a worker's host, and the job's server needs one of its own")
    if unknown := sorted({*job.hosts, job.server or job.hosts[0]} - known):
        raise ControllerError(f"no host is called {', '.join(unknown)}")
    if len(set(job.hosts)) < len(job.hosts):
        raise ControllerError(f"a host contributes once; the job's are {', '.join(job.hosts)}")


def _check_range(key: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ControllerError(f"{key}: is {value}, must be from {low} to {high}")
