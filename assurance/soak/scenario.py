"""Everything that one random run depends on."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

from fanin.assurance.soak.descending import DescendingNumbers
from fanin.controller.jobs.ledger import CHUNKS as LEASE_CHUNKS
from fanin.controller.jobs.ledger import LEASES, NumberSpace
from fanin.controller.plan import PathChoice
from fanin.controller.tree import SLOTS
from fanin.simulator.pause import headroom_bytes
from fanin.topologies.link import LinkProperties, Watchdog
from fanin.topologies.model import Topology
from fanin.topologies.shapes import fat_tree, leaf_spine, servers
from fanin.workers.collective import Algorithm, Transport
from fanin.workers.host_based.transport import PAYLOAD
from fanin.workers.recovery import Recovery
from fanin.workers.values.compression import Compressor

LINKS = LinkProperties(delay=2e-6)
RECOVERY = Recovery(initial_rto=2e-3, min_rto=5e-4, max_rto=2e-2, give_up=10.0)
LONGEST_FRAME = 1080


class _Brief:
    """Prints as an expression that makes it, without what is as by default."""

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
    """The switch of this number (modulo how many there are) loses its state at `time` (seconds)."""

    switch: int
    time: float


@dataclass(frozen=True)
class Outage:
    """The link of this number (modulo how many there are) loses all packets for `seconds` from `begin` on.

    found: so many seconds after its begin, and its end, routes change; None: they do not.
    """

    link: int
    begin: float
    seconds: float
    found: float | None = None


@dataclass(frozen=True)
class Regrant:
    """Job `job` gets another grant at `time` (seconds), as after a restart of the controller or of a worker.

    cut: one before it reaches half of the switches only. lingering: so many seconds its old workers go on.
    """

    job: int
    time: float
    cut: bool = False
    lingering: float = 0.0


@dataclass(frozen=True)
class Revocation:
    """Job `job` (modulo how many there are) loses its lease at `time` (seconds); workers hear so within `heard`.

    at_a_sum: at the moment after that at which a worker has the next sum, which others may not have.
    """

    job: int
    time: float
    heard: float = 0.0
    at_a_sum: bool = False


@dataclass(frozen=True, repr=False)
class Work(_Brief):
    """One job. racks: workers under each leaf. window: slots. elements: of each all-reduce, of `values` a packet.

    skew: its workers begin within so many seconds. overflow: they count only themselves, so that sums meet the limits
    of int32. special: inputs have blocks of zeros, subnormals, the largest numbers, infinities and NaN. in_place:
    `out` is `x`. mismatch: what rank 0 has another of ("": nothing): elements, window, values or workers; "refused": it
    refuses a call before the last one; "order": it makes the last two in the other order.
    algorithm, transport: between hosts; then there are no slots, and `window` packets are outstanding from one host.
    shards: of a parameter server; None: one on every worker.
    compression: of a ring, which then gathers what it leaves of each vector. priority: of its packets, 0 to 7.
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

    @property
    def in_network(self) -> bool:
        """Whether switches add up."""
        return self.algorithm == "in-network"

    @property
    def chunks(self) -> int:
        """Numbers that a lease needs."""
        return sum(map(self._chunks, self.elements))

    @property
    def workers(self) -> int:
        """How many."""
        return sum(self.racks)

    @property
    def turns(self) -> int:
        """Of the window, one after another; between hosts in as many steps as a ring has."""
        if not self.in_network:
            return sum(2 * self.workers * (1 + -(-count // self.window)) for count in self._payloads)
        return sum(-(-self._chunks(elements) // self.window) for elements in self.elements)

    @property
    def packets(self) -> int:
        """The most that go from host to host, if none is sent again: of a compressed vector, a copy to each."""
        return 2 * self.workers * (self.workers if self.compression else 1) * sum(self._payloads)

    @property
    def _payloads(self) -> list[int]:
        """Of each vector, sent between hosts."""
        return [-(-4 * elements // PAYLOAD) for elements in self.elements]

    def _chunks(self, elements: int) -> int:
        blocks = -(-elements // self.values)
        return blocks + min(self.window, blocks)


@dataclass(frozen=True, repr=False)
class Later(_Brief):
    """A job that comes at `time` (seconds), and waits for its hosts and for a place, behind those before it.

    shift: how many hosts of each leaf it passes over.
    """

    work: Work = Work()
    time: float = 0.0
    shift: int = 0


@dataclass(frozen=True, repr=False)
class Scenario(_Brief):
    """Jobs that share a network; times in seconds, rate of all links in bits/s. See HostModel.

    tiers: of switches: 2, leaves and spines; 3, pods of two leaves, and cores; 4, two servers with switches at a leaf.
    rails: of four tiers, network cards of a server, each at a leaf of its own. planes: networks above these that
    nothing joins, of which each has as many of the rails. paths: of several, which ordinary packets take.
    restarts, registers_lost: of switches, with their tables or not. outages: of links.
    strangers: how often one takes up a batch of packets at a host. taps: how often a packet on a link between switches.
    last_slots: the jobs have the switches' last slots, not the first. first_chunk: of each lease id.
    same_leases: there are only as many ids as jobs at a time, so each further grant has one that was used before.
    descending: a grant has lower chunk numbers than those before under its id; the first one's end below first_chunk.
    revocations: of leases, while their jobs run, which carry on by ring.
    later: jobs that come while others run. Then jobs also end, and all have their places from the controller's budget.
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

    @cached_property
    def works(self) -> tuple[Work, ...]:
        """Of all jobs, in the order in which they come."""
        return (*self.jobs, *(later.work for later in self.queue))

    @cached_property
    def queue(self) -> tuple[Later, ...]:
        """The later jobs, in the order in which they come."""
        return tuple(sorted(self.later, key=lambda later: later.time))

    @cached_property
    def racks(self) -> tuple[int, ...]:
        """Hosts that are needed under each leaf."""
        at_once = map(sum, zip_longest(*(job.racks for job in self.jobs), fillvalue=0))
        racks = (tuple(at_once), *(later.work.racks for later in self.later))
        return tuple(map(max, zip_longest(*racks, fillvalue=0)))

    @cached_property
    def topology(self) -> Topology:
        """The network, whose leaves have room for as many hosts as the fullest has workers."""
        links: dict[str, Any] = {"rate": self.rate, "properties": self.links}
        hosts = max(self.racks)
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
        """Each job's, by rank: under a leaf the first jobs' workers stand one after another."""
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

    def recovery(self, job: Work) -> Recovery:
        """Of a job's workers; those that cannot finish give up soon."""
        cannot = job.in_network and (job.mismatch or self.registers_lost)
        return replace(RECOVERY, give_up=0.2) if cannot else RECOVERY

    @property
    def first_slot(self) -> int:
        """Of the first job."""
        return SLOTS - sum(job.window for job in self.jobs) if self.last_slots else 0

    @property
    def numbers(self) -> NumberSpace:
        """What packets may carry."""
        at_once = min(len(self.works), len(self.topology.hosts))
        used_up = LEASES - at_once if self.same_leases else 0
        if self.descending:
            return DescendingNumbers(0, [self.first_chunk - 1] * (LEASES - used_up) + [-1] * used_up)
        return NumberSpace(0, [self.first_chunk] * (LEASES - used_up) + [LEASE_CHUNKS] * used_up)

    @cached_property
    def prioritized(self) -> bool:
        """Whether links have a queue for each priority."""
        return any(work.priority for work in self.works)

    @property
    def watchdog(self) -> Watchdog | None:
        """Over pauses."""
        pause = self.links.pause
        return pause.watchdog if pause else None

    @property
    def rerouted(self) -> bool:
        """Whether packets may meet a switch that has no route for them any more."""
        return any(outage.found is not None for outage in self.outages)

    @property
    def lossless(self) -> bool:
        """Whether pauses come in time for all queues: they have room, and no link adds to what comes.

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
    def disturbed(self) -> bool:
        """Whether chunks may be added up more than once, or not at all."""
        lost = self.restarts or self.registers_lost or self.regrants or self.revocations
        return bool(lost or any(work.mismatch for work in self.works))

    @property
    def bound(self) -> float:
        """Seconds within which all workers must have finished, but for an accident of one in millions.

        Turns of the windows, one after another, each as long as several timeouts: a chunk crosses a link of each
        tier with an update and with its result, and an attempt fails if one of them loses it. A burst ends with
        packets, not with time: where nothing else is sent, each one that it takes is another attempt.
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
    """Room that queues must have so that pauses come in time; None: there are no pauses, or links without a rate."""
    pause = scenario.links.pause
    if pause is None or scenario.rate is None:
        return None
    topology = scenario.topology
    into_a_switch = max(len(topology.links_of(switch.name)) for switch in topology.switches)
    headroom = headroom_bytes(scenario.rate, scenario.links, LONGEST_FRAME)
    return into_a_switch * (pause.xoff_bytes + headroom)
