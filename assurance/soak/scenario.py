"""Description of a random run: everything that it depends on."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, Literal

from fanin.assurance.soak.descending import DescendingNumbers
from fanin.controller.jobs.ledger import CHUNKS as LEASE_CHUNKS
from fanin.controller.jobs.ledger import LEASES, NumberSpace
from fanin.controller.plan import PathChoice
from fanin.controller.tree import SLOTS
from fanin.simulator.links import headroom_bytes
from fanin.topologies.link import LinkProperties, Watchdog
from fanin.topologies.model import Topology
from fanin.topologies.shapes import fat_tree, leaf_spine, servers
from fanin.workers.collective import Algorithm, Transport
from fanin.workers.host_based.transport import PAYLOAD
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.values.compression import Compressor

Operation = Literal["all-reduce", "gather", "scatter"]

LINKS = LinkProperties(delay=2e-6)
RECOVERY = Recovery(initial_rto=2e-3, min_rto=5e-4, max_rto=2e-2, give_up=10.0)
LONGEST_FRAME = 1080


class _Brief:
    """Prints as an expression that creates it, without default values."""

    def __repr__(self) -> str:
        default = type(self)()
        differing = (
            f"{f.name}={value!r}"
            for f in fields(self)  # type: ignore[arg-type]
            if (value := getattr(self, f.name)) != getattr(default, f.name)
        )
        return f"{type(self).__name__}({', '.join(differing)})"


@dataclass(frozen=True)
class Stall:
    """Worker `rank` does nothing for `seconds` from `begin` on."""

    rank: int
    begin: float
    seconds: float


@dataclass(frozen=True)
class Restart:
    """The switch of this number (modulo the number of switches) loses its state at `time` (seconds)."""

    switch: int
    time: float


@dataclass(frozen=True)
class Outage:
    """The link of this number (modulo the number of links) loses all packets for `seconds` from `begin` on.

    Attributes:
        found: Routes change so many seconds after its begin, and after its end. None: they do not change.
    """

    link: int
    begin: float
    seconds: float
    found: float | None = None


@dataclass(frozen=True)
class Regrant:
    """Job `job` gets another grant at `time` (seconds), as after a restart of the controller or of a worker.

    Attributes:
        cut: Whether an earlier attempt reaches only half of the switches.
        lingering: Seconds for which its old workers continue.
    """

    job: int
    time: float
    cut: bool = False
    lingering: float = 0.0


@dataclass(frozen=True)
class Revocation:
    """Job `job` (modulo the number of jobs) loses its lease at `time` (seconds).

    Attributes:
        heard: Seconds within which workers learn of it.
        at_a_sum: Whether to wait for the moment at which a worker has the next sum, which others may not have.
    """

    job: int
    time: float
    heard: float = 0.0
    at_a_sum: bool = False


@dataclass(frozen=True, repr=False)
class Work(_Brief):
    """One job.

    Attributes:
        racks: Number of workers under each leaf.
        window: Number of slots. Between hosts, the maximum number of packets in flight from one host.
        values: Integers in a packet.
        elements: Elements of each all-reduce.
        skew: Its workers begin within this many seconds.
        stalls: Pauses of its workers.
        overflow: Whether workers assume to be alone, so that sums reach the limits of int32.
        special: Whether inputs have blocks of zeros, subnormals, the largest numbers, infinities and NaN.
        in_place: Whether `out` is `x`.
        mismatch: In what rank 0 differs ("": nothing): elements, window, values or workers. "refused": it refuses a
            call before the last one. "order": it swaps the last two calls.
        algorithm: Algorithm. Between hosts there are no slots.
        transport: Transport between hosts.
        shards: Shards of a parameter server. None: one on every worker.
        compression: Compression of a ring, which then gathers the compressed vectors.
        priority: Priority of its packets, 0 to 7.
        operation: What its workers do. The inputs of a gather are the outputs, too (workers/tensor.py).
        chunk_numbers: Chunk numbers of its lease. None: those that fanin's own protocol needs.
    """

    racks: tuple[int, ...] = (2,)
    window: int = 4
    values: int = 64
    elements: tuple[int, ...] = (1000,)
    skew: float = 0.0
    stalls: tuple[Stall, ...] = ()
    overflow: bool = False
    special: bool = False
    in_place: bool = False
    mismatch: str = ""
    algorithm: Algorithm = "in-network"
    transport: Transport = "selective-repeat"
    shards: int | None = None
    compression: Compressor | None = None
    priority: int = 0
    operation: Operation = "all-reduce"
    chunk_numbers: int | None = None

    @property
    def in_network(self) -> bool:
        """Return whether switches add up."""
        return self.algorithm == "in-network"

    @property
    def chunks(self) -> int:
        """Return how many chunk numbers a lease needs."""
        return sum(map(self._chunks, self.elements)) if self.chunk_numbers is None else self.chunk_numbers

    @property
    def workers(self) -> int:
        """Return the number of workers."""
        return sum(self.racks)

    @property
    def turns(self) -> int:
        """Return the turns of the window, one after another; between hosts in as many steps as a ring has."""
        if not self.in_network:
            return sum(2 * self.workers * (1 + -(-count // self.window)) for count in self._payloads)
        return sum(-(-self._chunks(elements) // self.window) for elements in self.elements)

    @property
    def packets(self) -> int:
        """Return the most packets from host to host without retransmissions.

        A compressed vector is copied to each host.
        """
        return 2 * self.workers * (self.workers if self.compression else 1) * sum(self._payloads)

    @property
    def _payloads(self) -> list[int]:
        """Return the packets of each vector that is sent between hosts."""
        return [-(-4 * elements // PAYLOAD) for elements in self.elements]

    def _chunks(self, elements: int) -> int:
        if self.operation == "gather":
            return -(-elements // self.block) + 1
        blocks = -(-elements // self.values)
        return blocks + min(self.window, blocks)

    @property
    def block(self) -> int:
        """Return the elements of a block. A gather has 32 bits for each."""
        return Lease(1, 0, 1, 1, values=self.values).block(32) if self.operation == "gather" else self.values


@dataclass(frozen=True, repr=False)
class Later(_Brief):
    """A job that comes at `time` (seconds), and waits for its hosts and for a place, after earlier jobs.

    Attributes:
        shift: Number of hosts of each leaf that it skips.
    """

    work: Work = Work()
    time: float = 0.0
    shift: int = 0


@dataclass(frozen=True, repr=False)
class Scenario(_Brief):
    """Jobs that share a network. Times are in seconds, the rate of all links is in bits/s.

    Attributes:
        seed: Seed of all draws.
        jobs: Jobs that begin first.
        spines: Number of spines.
        tiers: Tiers of switches: 2, leaves and spines; 3, pods of two leaves, and cores; 4, two servers with switches
            at a leaf.
        rails: With four tiers, network cards of a server, each at a different leaf.
        planes: Separate networks above these; each has the same number of rails.
        paths: Which of several paths ordinary packets take.
        coalescing: See HostModel.
        restarts: Switches that lose their state.
        registers_lost: Switches that lose their registers but keep their tables.
        outages: Outages of links.
        regrants: Jobs that get another grant.
        strangers: How often a stranger uses a batch of packets at a host.
        taps: How often a tap uses a packet on a link between switches.
        last_slots: Whether the jobs have the switches' last slots, not the first.
        first_chunk: First chunk number of each lease id.
        same_leases: Whether there are only as many ids as jobs at a time, so that each further grant reuses one.
        descending: Whether a grant has lower chunk numbers than earlier grants with its id. The first one's end below
            first_chunk.
        later: Jobs that come while others run. Then jobs also end, and all get their places from the controller's
            budget.
        revocations: Leases that are revoked while their jobs run, which continue using the ring.
        servers: Whether each of the first jobs has a parameter server, on a host of its own.
        slots: Number of slots that all jobs share. None: each job has its own.
    """

    seed: int = 0
    jobs: tuple[Work, ...] = (Work(),)
    spines: int = 1
    tiers: int = 2
    rails: int = 1
    planes: int = 1
    paths: PathChoice = "ecmp"
    rate: int | None = 10**10
    links: LinkProperties = LINKS
    coalescing: float = 4e-6
    restarts: tuple[Restart, ...] = ()
    registers_lost: tuple[Restart, ...] = ()
    outages: tuple[Outage, ...] = ()
    regrants: tuple[Regrant, ...] = ()
    strangers: float = 0.0
    taps: float = 0.0
    last_slots: bool = False
    first_chunk: int = 0
    same_leases: bool = False
    descending: bool = False
    later: tuple[Later, ...] = ()
    revocations: tuple[Revocation, ...] = ()
    servers: bool = False
    slots: int | None = None

    @cached_property
    def works(self) -> tuple[Work, ...]:
        """Return all jobs, in the order in which they come."""
        return (*self.jobs, *(later.work for later in self.queue))

    @cached_property
    def queue(self) -> tuple[Later, ...]:
        """Return the later jobs, in the order in which they come."""
        return tuple(sorted(self.later, key=lambda later: later.time))

    @cached_property
    def racks(self) -> tuple[int, ...]:
        """Return the number of hosts that are needed under each leaf."""
        at_once = map(sum, zip_longest(*(job.racks for job in self.jobs), fillvalue=0))
        racks = (tuple(at_once), *(later.work.racks for later in self.later))
        return tuple(map(max, zip_longest(*racks, fillvalue=0)))

    @cached_property
    def topology(self) -> Topology:
        """Return the network. Each leaf has room for as many hosts as the fullest leaf needs."""
        links: dict[str, Any] = {"rate": self.rate, "properties": self.links}
        hosts = max(self.racks) + (-(-len(self.jobs) // len(self.racks)) if self.servers else 0)
        if self.tiers == 2:
            return leaf_spine(self.spines, len(self.racks), hosts, **links)
        pods, spines = -(-len(self.racks) // 2), max(1, self.spines)
        if self.tiers == 3:
            return fat_tree(pods=pods, leaves=2, spines=spines, cores=spines, hosts_per_leaf=hosts, **links)
        spines *= self.planes
        return servers(
            pods,
            self.rails,
            spines,
            spines,
            servers_per_leaf=2,
            hosts_per_server=hosts,
            nics_per_server=self.rails,
            planes=self.planes,
            **links,
        )

    @cached_property
    def hosts(self) -> tuple[tuple[str, ...], ...]:
        """Return each job's hosts, by rank. The first jobs' workers are next to one another under a leaf."""
        under = [self.topology.hosts_of(leaf.name) for leaf in self.topology.leaves]
        free = [iter(hosts) for hosts in under]
        at_once = [
            tuple(next(free[leaf]).name for leaf, count in enumerate(job.racks) for _ in range(count))
            for job in self.jobs
        ]
        after = [
            tuple(
                under[leaf][(later.shift + i) % len(under[leaf])].name
                for leaf, count in enumerate(later.work.racks)
                for i in range(count)
            )
            for later in self.queue
        ]
        return (*at_once, *after)

    def server_of(self, number: int) -> str:
        """Return the host of the server of one of the first jobs: under each leaf, the last hosts are for servers."""
        turn, leaf = divmod(number, len(self.racks))
        return self.topology.hosts_of(self.topology.leaves[leaf].name)[-1 - turn].name

    def recovery(self, job: Work) -> Recovery:
        """Return the timers of a job's workers; those that cannot finish give up soon."""
        cannot = job.in_network and (job.mismatch or self.registers_lost)
        return replace(RECOVERY, give_up=0.2) if cannot else RECOVERY

    @property
    def first_slot(self) -> int:
        """Return the first slot of the first job."""
        return SLOTS - sum(job.window for job in self.jobs) if self.last_slots else 0

    @property
    def numbers(self) -> NumberSpace:
        """Return the numbers that packets may carry."""
        at_once = min(len(self.works), len(self.topology.hosts))
        used_up = LEASES - at_once if self.same_leases else 0
        if self.descending:
            return DescendingNumbers(0, [self.first_chunk - 1] * (LEASES - used_up) + [-1] * used_up)
        return NumberSpace(0, [self.first_chunk] * (LEASES - used_up) + [LEASE_CHUNKS] * used_up)

    @cached_property
    def prioritized(self) -> bool:
        """Return whether links have a queue for each priority."""
        return any(work.priority for work in self.works)

    @property
    def watchdog(self) -> Watchdog | None:
        """Return the watchdog over pauses, or None."""
        pause = self.links.pause
        return pause.watchdog if pause else None

    @property
    def rerouted(self) -> bool:
        """Return whether packets may meet a switch that no longer has a route for them."""
        return any(outage.found is not None for outage in self.outages)

    @property
    def lossless(self) -> bool:
        """Return whether pauses come in time for all queues: they have room, and no link adds packets.

        A watchdog that forwards sends in spite of pauses.
        """
        adds = self.links.duplication or self.links.reordering
        adds = adds or (self.watchdog is not None and self.watchdog.action == "forward")
        room = lossless_queue_bytes(self)
        return (
            room is not None
            and not adds
            and (self.links.queue_bytes is None or self.links.queue_bytes >= room)
        )

    @property
    def forgetful(self) -> bool:
        """Return whether switches lose registers."""
        return bool(self.restarts or self.registers_lost)

    @property
    def disturbed(self) -> bool:
        """Return whether chunks may be added up more than once, or not at all."""
        lost = self.restarts or self.registers_lost or self.regrants or self.revocations
        return bool(lost or any(work.mismatch for work in self.works))

    @property
    def bound(self) -> float:
        """Return the seconds within which all workers must have finished, except for an accident of one in millions.

        It is the turns of the windows, one after another, each as long as several timeouts. A chunk crosses a link of
        each tier with an update and with its result, and an attempt fails if one of them is lost. A burst ends after a
        number of packets, not after a time: if nothing else is sent, each packet that it loses is another attempt.
        """
        crossings = 2 * self.tiers
        attempts = 2 + 8 / (1 - self.links.mean_loss) ** crossings
        if self.links.burst:
            attempts += 2 * crossings / self.links.burst.end
        turns = sum(job.turns + 10 for job in self.works)
        if self.revocations:
            turns += sum(replace(job, algorithm="ring").turns for job in self.works)
        held_up = sum(stall.seconds for job in self.works for stall in job.stalls)
        held_up += max(job.skew for job in self.jobs)
        held_up += sum(later.work.skew for later in self.later) + max(
            (later.time for later in self.later), default=0
        )
        held_up += sum(outage.seconds + RECOVERY.max_rto for outage in self.outages)
        begun = 1 + len(self.restarts) + len(self.regrants) + len(self.registers_lost)
        return turns * attempts * RECOVERY.max_rto * begun + held_up


def lossless_queue_bytes(scenario: Scenario) -> int | None:
    """Return the room that queues need so that pauses come in time; None without pauses, or without a rate."""
    pause = scenario.links.pause
    if pause is None or scenario.rate is None:
        return None
    topology = scenario.topology
    into_a_switch = max(len(topology.links_of(switch.name)) for switch in topology.switches)
    headroom = headroom_bytes(scenario.rate, scenario.links, LONGEST_FRAME)
    return into_a_switch * (pause.xoff_bytes + headroom)
