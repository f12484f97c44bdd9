"""The aggregation tree of a job: which switch adds up what, and where its sum goes."""

from dataclasses import dataclass

from controller.errors import ControllerError
from controller.network import Network
from workers.lease import Lease

FIRST_UDP_PORT, LAST_UDP_PORT = 0xBEE0, 0xBEEF  # what the parser takes for aggregation
SLOTS = 1024  # of a switch: p4src/values.p4
MAX_CHILDREN = 32  # the bitmap of a chunk's contributions


@dataclass(frozen=True, slots=True)
class Job:
    """One lease's claim: who adds up, on which UDP port, in which slots (`base` to `base + slots - 1`).

    Its chunks have numbers from `first_chunk` to `last_chunk`.
    """

    lease: int
    hosts: tuple[str, ...]
    udp_port: int = FIRST_UDP_PORT
    base: int = 0
    slots: int = SLOTS
    first_chunk: int = 0
    last_chunk: int = 2**32 - 1

    def lease_of(self, host: str, values: int = 256) -> Lease:
        """The lease as the worker on one of its hosts holds it, for packets of 64 or 256 values."""
        return Lease(
            self.lease,
            self.hosts.index(host),
            len(self.hosts),
            self.slots,
            self.base,
            values,
            self.first_chunk,
            self.last_chunk,
        )


@dataclass(frozen=True, slots=True)
class Aggregator:
    """A switch in a tree; child i is member i + 1 and contributes bit i."""

    switch: str
    children: tuple[str, ...]
    parent: str | None  # None: the root

    @property
    def full_mask(self) -> int:
        """The bitmap when every child has contributed."""
        return (1 << len(self.children)) - 1


@dataclass(frozen=True, slots=True)
class Tree:
    """A job's switches, the root last."""

    job: Job
    aggregators: tuple[Aggregator, ...]

    @property
    def root(self) -> Aggregator:
        """The switch where the sum is complete."""
        return self.aggregators[-1]


def aggregation_tree(network: Network, job: Job) -> Tree:
    """The tree of `job`: its leaves below one spine, or its one leaf.

    Jobs spread over the spines by their UDP port, which outlives their leases.

    Raises:
        ControllerError: a job that the program cannot hold, or hosts that the network lacks.
    """
    _check(network, job)
    members = set(job.hosts)
    racks = {
        leaf.name: tuple(host.name for host in network.hosts_of(leaf.name) if host.name in members)
        for leaf in network.leaves
    }
    racks = {leaf: hosts for leaf, hosts in racks.items() if hosts}
    parent = None
    if len(racks) > 1:
        parent = network.spines[(job.udp_port - FIRST_UDP_PORT) % len(network.spines)].name
    aggregators = [Aggregator(leaf, hosts, parent) for leaf, hosts in racks.items()]
    if parent is not None:
        aggregators.append(Aggregator(parent, tuple(racks), None))
    for aggregator in aggregators:
        if len(aggregator.children) > MAX_CHILDREN:
            raise ControllerError(
                f"{aggregator.switch} would add up {len(aggregator.children)} children; it has bits for "
                f"{MAX_CHILDREN}: spread the job over more leaves"
            )
    return Tree(job, tuple(aggregators))


def _check(network: Network, job: Job) -> None:
    _check_range("lease", job.lease, 1, 255)  # 0 is what a fresh register holds
    _check_range("udp_port", job.udp_port, FIRST_UDP_PORT, LAST_UDP_PORT)
    _check_range("slots", job.slots, 1, SLOTS)
    _check_range("base", job.base, 0, SLOTS - job.slots)
    if not job.hosts:
        raise ControllerError("a job needs a host")
    known = {host.name for leaf in network.leaves for host in network.hosts_of(leaf.name)}
    if unknown := sorted(set(job.hosts) - known):
        raise ControllerError(f"no host is called {', '.join(unknown)}")
    if len(set(job.hosts)) < len(job.hosts):
        raise ControllerError(f"a host contributes once; the job's are {', '.join(job.hosts)}")


def _check_range(key: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ControllerError(f"{key}: is {value}, must be from {low} to {high}")
