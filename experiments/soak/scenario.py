"""Everything that one random run depends on, and its drawing from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, get_args

from controller.ledger import CHUNKS as LEASE_CHUNKS
from controller.ledger import LEASES, NumberSpace
from controller.tree import SLOTS
from topologies.link import Burst, LinkProperties, Pause
from topologies.model import Topology
from topologies.shapes import fat_tree, leaf_spine, servers
from topologies.virtual.pause import headroom_bytes
from workers.collective import Algorithm, HostBasedAlgorithm, Transport
from workers.host_based.transport import PAYLOAD
from workers.recovery import Recovery

SOON, LATER = Pause(xoff_bytes=1_000, xon_bytes=500), Pause(xoff_bytes=8_000, xon_bytes=4_000)
LINKS = LinkProperties(delay=2e-6)
RECOVERY = Recovery(initial_rto=2e-3, min_rto=5e-4, max_rto=2e-2, give_up=10.0)
LONGEST_FRAME = 1076
CORRUPTED_BETWEEN_HOSTS = 1e-4  # of the packets on a link


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
    `out` is `x`. mismatch: what rank 0 has another of ("": nothing): elements, window, values or workers.
    algorithm, transport: between hosts; then there are no slots, and `window` packets are outstanding from one host.
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
        """Of the window, one behind the other; between hosts in as many steps as a ring has."""
        if not self.in_network:
            packets = [-(-4 * elements // PAYLOAD) for elements in self.elements]
            return sum(2 * self.workers * (1 + -(-count // self.window)) for count in packets)
        return sum(-(-self._chunks(elements) // self.window) for elements in self.elements)

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
    restarts, registers_lost: of switches, with their tables or not. strangers: how often one takes up a batch of
    packets at a host. last_slots: the jobs have the switches' last slots, not the first. first_chunk: of each lease id.
    same_leases: there are only as many ids as jobs at a time, so each further grant has one that was used before.
    revocations: of leases, while their jobs run, which carry on by ring.
    later: jobs that come while others run. Then jobs also end, and all have their places from the controller's budget.
    """

    seed: int = 0
    jobs: tuple[Work, ...] = (Work(),)
    spines: int = 1
    tiers: int = 2
    rate: int | None = 10**10
    links: LinkProperties = LINKS
    coalescing: float = 4e-6
    restarts: tuple[Restart, ...] = ()
    registers_lost: tuple[Restart, ...] = ()
    regrants: tuple[Regrant, ...] = ()
    strangers: float = 0.0
    last_slots: bool = False
    first_chunk: int = 0
    same_leases: bool = False
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
        return servers(pods, 1, spines, spines, servers_per_leaf=2, hosts_per_server=hosts, **links)

    @cached_property
    def hosts(self) -> tuple[tuple[str, ...], ...]:
        """Each job's, by rank: under a leaf the first jobs' workers stand one behind the other."""
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
        used_up = [LEASE_CHUNKS] * (LEASES - at_once) if self.same_leases else []
        return NumberSpace(0, [self.first_chunk] * (LEASES - len(used_up)) + used_up)

    @property
    def lossless(self) -> bool:
        """Whether pauses come in time for all queues: they have room, and no link adds to what comes."""
        adds = self.links.duplication or self.links.reordering
        room = lossless_queue_bytes(self)
        return (
            room is not None
            and not adds
            and (self.links.queue_bytes is None or self.links.queue_bytes >= room)
        )

    @property
    def bound(self) -> float:
        """Seconds within which all workers must have finished, but for an accident of one in millions.

        Turns of the windows, one behind the other, each as long as several timeouts: a chunk crosses a link of each
        tier with an update and with its result, and an attempt fails if one of them loses it.
        """
        attempts = 2 + 8 / (1 - self.links.mean_loss) ** (2 * self.tiers)
        turns = sum(job.turns + 10 for job in self.works)
        if self.revocations:
            turns += sum(replace(job, algorithm="ring").turns for job in self.works)
        held_up = sum(stall.seconds for job in self.works for stall in job.stalls)
        held_up += max(job.skew for job in self.jobs)
        held_up += sum(later.work.skew for later in self.later) + max(
            (later.time for later in self.later), default=0
        )
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


def draw_scenario(seed: int) -> Scenario:
    """The scenario of a seed."""
    draw = random.Random(f"soak {seed}")
    leaves = draw.choice((1, 1, 2, 2, 3, 4))
    count = draw.choice((1, 1, 1, 2, 3))
    # Drawn in this order: else a seed would no longer replay its scenario.
    jobs = tuple(_draw_job(draw, leaves, fewest=int(count == 1)) for _ in range(count))
    spines = draw.choice((0, 1, 2)) if leaves == 1 else draw.choice((1, 2))
    rate = draw.choice((None, 10**9, 10**10, 10**11))
    links: dict[str, Any] = {
        "delay": draw.choice((5e-6, 2e-5)),
        "jitter": draw.choice((0.0, 0.0, 0.0, 1e-5)),
        "queue_bytes": draw.choice((None, None, 2_500, 20_000)),
        "pause": draw.choice((None, None, None, SOON, LATER)),
    }
    coalescing = draw.choice((0.0, 2e-5, 2e-5, 5e-5))
    if draw.random() < 0.85:
        links |= _draw_faults(draw)
    scenario = Scenario(
        seed=seed,
        jobs=jobs,
        spines=spines,
        rate=rate,
        links=LinkProperties(**links),
        # Of its own, so that seeds replay scenarios from before there were more tiers than two.
        tiers=random.Random(f"soak tiers {seed}").choice((2, 2, 3, 4)),
        coalescing=coalescing,
        restarts=tuple(
            Restart(draw.randrange(8), draw.uniform(0, 2e-3))
            for _ in range(draw.choice((0, 0, 0, 0, 0, 1, 2)))
        ),
    )
    scenario = _draw_mishaps(draw, scenario)
    if draw.random() < 0.5 and (room := lossless_queue_bytes(scenario)):
        scenario = replace(scenario, links=scenario.links.model_copy(update={"queue_bytes": room}))
    return _corrupt_once(_draw_revocations(_draw_marks(_draw_host_based(_draw_later(scenario)))))


def _corrupt_once(scenario: Scenario) -> Scenario:
    """Between hosts only the ends verify UDP's checksum, which does not see every pair of flipped bits in a packet: so
    that pairs come up once in 10^8 packets there, and not in thousands, links corrupt fewer.
    """
    in_network = all(work.in_network for work in scenario.works) and not scenario.revocations
    if in_network or scenario.links.corruption <= CORRUPTED_BETWEEN_HOSTS:
        return scenario
    links = scenario.links.model_copy(update={"corruption": CORRUPTED_BETWEEN_HOSTS})
    return replace(scenario, links=links)


def _draw_revocations(scenario: Scenario) -> Scenario:
    draw = random.Random(f"soak revocations {scenario.seed}")  # as for the tiers
    cannot = scenario.registers_lost or any(work.mismatch or work.overflow for work in scenario.works)
    if cannot or draw.random() < 0.4:
        return scenario
    revocations = tuple(
        Revocation(
            draw.randrange(8),
            10 ** draw.uniform(-4.5, -2),
            draw.choice((0.0, 1e-5, 1e-4, 1e-3)),
            at_a_sum=draw.random() < 0.7,
        )
        for _ in range(draw.choice((1, 2, 3)))
    )
    return replace(scenario, revocations=revocations)


def _draw_marks(scenario: Scenario) -> Scenario:
    """From how much waiting on, switches mark packets."""
    draw = random.Random(f"soak marks {scenario.seed}")  # as for the tiers
    bytes_waiting = draw.choice((None, None, 0, LONGEST_FRAME, 5_000))
    room = scenario.links.queue_bytes
    if bytes_waiting is None or (room is not None and bytes_waiting >= room):
        return scenario
    return replace(scenario, links=scenario.links.model_copy(update={"ecn_bytes": bytes_waiting}))


def _draw_later(scenario: Scenario) -> Scenario:
    draw = random.Random(f"soak later {scenario.seed}")  # as for the tiers
    if draw.random() < 0.6:
        return scenario
    hosts = max(scenario.racks)

    def work() -> Work:
        drawn = _draw_job(draw, len(scenario.racks), fewest=0)
        drawn = replace(drawn, racks=tuple(min(count, hosts) for count in drawn.racks), overflow=False)
        # So many that two jobs have no room, or just have it.
        return replace(drawn, window=draw.choice((drawn.window, drawn.window, 512, 600)))

    later = tuple(
        Later(work(), draw.uniform(0, 3e-3), draw.randrange(hosts)) for _ in range(draw.randint(1, 6))
    )
    scenario = replace(scenario, later=later)
    return replace(scenario, first_chunk=min(scenario.first_chunk, 2**32 - _chunks_needed(scenario)))


def _draw_host_based(scenario: Scenario) -> Scenario:
    draw = random.Random(f"soak host-based {scenario.seed}")  # as for the tiers
    share = draw.choice((0.0, 0.0, 0.3, 1.0))

    def changed(work: Work) -> Work:
        if work.overflow or work.special or work.mismatch or draw.random() >= share:
            return work
        transport: Transport = draw.choice(("selective-repeat", "go-back-n"))
        return replace(work, algorithm=draw.choice(get_args(HostBasedAlgorithm)), transport=transport)

    later = tuple(replace(one, work=changed(one.work)) for one in scenario.later)
    return replace(scenario, jobs=tuple(map(changed, scenario.jobs)), later=later)


def _chunks_needed(scenario: Scenario) -> int:
    """The most that a lease id has to give: all to one job, and grants may be cut."""
    most = max(job.chunks for job in scenario.works)
    return most * (len(scenario.works) * (1 + len(scenario.restarts)) + 2 * len(scenario.regrants))


def _draw_mishaps(draw: random.Random, scenario: Scenario) -> Scenario:
    """What befalls switches, controller and workers, and who else is on the network."""
    kind = draw.choice(("", "", "", "", "regrants", "regrants", "registers", "registers", "mismatch"))
    if kind == "regrants":
        regrants = tuple(
            Regrant(
                draw.randrange(len(scenario.jobs)),
                draw.uniform(0, 2e-3),
                cut=draw.random() < 0.3,
                lingering=draw.choice((0.0, 1e-3, 5e-3)),
            )
            for _ in range(draw.choice((1, 1, 2)))
        )
        scenario = replace(scenario, regrants=regrants)
    elif kind == "registers":
        # Those of leaves below a root may be lost again and again: the root has the results.
        leaves = len(scenario.racks)
        switches, times = (leaves, 40) if leaves > 1 and draw.random() < 0.7 else (8, draw.choice((1, 3, 8)))
        lost = (Restart(draw.randrange(switches), draw.uniform(0, 1e-2)) for _ in range(times))
        scenario = replace(scenario, registers_lost=tuple(lost), restarts=())
    elif kind == "mismatch" and scenario.jobs[0].workers > 1:
        of = draw.choice(("elements", "window", "values", "workers"))
        # Workers that count only themselves would not notice.
        odd = replace(scenario.jobs[0], mismatch=of, overflow=False)
        scenario = replace(scenario, jobs=(odd, *scenario.jobs[1:]), restarts=())
    jobs = scenario.jobs
    if not (scenario.regrants or scenario.restarts):  # which start over with the inputs
        jobs = tuple(replace(job, in_place=draw.random() < 0.3) for job in jobs)
    most = max(job.chunks for job in jobs)
    needed = _chunks_needed(scenario)
    first = (0, 0, 2**16 - draw.randint(1, most), 2**32 - needed, draw.randrange(2**31))
    return replace(
        scenario,
        jobs=jobs,
        first_chunk=max(0, draw.choice(first)),
        same_leases=draw.random() < 0.5,
        strangers=draw.choice((0.0, 0.0, 0.02, 0.3)),
        last_slots=draw.random() < 0.3,
    )


def _draw_job(draw: random.Random, leaves: int, fewest: int) -> Work:
    """fewest: workers under each leaf."""
    racks = [draw.randint(fewest, 4 if fewest else 3) for _ in range(leaves)]
    racks[draw.randrange(leaves)] += not any(racks)
    workers = sum(racks)
    window = draw.choice((1, 1, 2, 3, 4, 8, 16, 64))
    values = draw.choice((64, 64, 256))
    longest = values * draw.choice((2, 8, 30)) * min(window, 8)
    lengths = [draw.randint(1, longest), draw.randint(1, min(longest, values * window))]
    return Work(
        racks=tuple(racks),
        window=window,
        values=values,
        elements=tuple(draw.choice(lengths) for _ in range(draw.choice((1, 1, 2, 4)))),
        skew=draw.choice((0.0, 0.0, 1e-4)),
        stalls=tuple(
            Stall(draw.randrange(workers), draw.uniform(0, 2e-3), draw.choice((1e-4, 5e-3)))
            for _ in range(draw.choice((0, 0, 0, 1, 2)))
        ),
        overflow=workers > 1 and draw.random() < 0.15,
        special=draw.random() < 0.3,
    )


def _draw_faults(draw: random.Random) -> dict[str, Any]:
    def often(*choices: float) -> float:
        return draw.choice((0.0, *choices))

    def burst() -> Burst:
        return Burst(begin=draw.choice((0.001, 0.01)), end=draw.choice((0.1, 0.3)))

    return {
        "loss": often(0.001, 0.02, 0.1),
        "corruption": often(0.0, 0.0, 0.02),
        "duplication": often(0.01, 0.2),
        "reordering": often(0.02, 0.3),
        "displacement": draw.choice((2e-5, 2e-4, 2e-3)),
        "burst": burst() if draw.random() < 0.25 else None,
    }
