"""Draws a scenario from its seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fanin.assurance.soak.scenario import (
    LONGEST_FRAME,
    Later,
    Operation,
    Outage,
    Regrant,
    Restart,
    Revocation,
    Scenario,
    Stall,
    Work,
    lossless_queue_bytes,
)
from fanin.controller.routes import Routes
from fanin.experiments.protocol import FAULTS, Protocol
from fanin.topologies.link import Burst, LinkProperties, Pause, Watchdog
from fanin.topologies.model import Link, Topology
from fanin.workers import wire
from fanin.workers.collective import Transport
from fanin.workers.host_based.algorithms.registry import ALGORITHMS
from fanin.workers.values.compression import Rounded, TopK

SOON, LATER = Pause(xoff_bytes=1_000, xon_bytes=500), Pause(xoff_bytes=8_000, xon_bytes=4_000)
AT_ONCE = Pause(xoff_bytes=0, xon_bytes=0)
CORRUPTED_BETWEEN_HOSTS = 1e-4  # share of the packets on a link
MAX_GOING_BACK = 2_000_000  # packets that a job with go-back-N sends, if each costs a window


def draw_scenario(seed: int) -> Scenario:
    """Draw the scenario of a seed."""
    draw = random.Random(f"soak {seed}")
    leaves = draw.choice((1, 1, 2, 2, 3, 4))
    count = draw.choice((1, 1, 1, 2, 3))
    # The order of draws must not change, or a seed would no longer replay its scenario.
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
        # A separate generator, so that seeds still replay scenarios from when there were only two tiers.
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
    scenario = _draw_revocations(_draw_marks(_draw_host_based(_draw_later(scenario))))
    for draw_more in (
        *(_draw_ways, _draw_outages, _draw_priorities, _draw_compression, _draw_watchdog),
        *(_draw_first_chunks, _draw_descending, _draw_taps, _draw_operations),
    ):
        scenario = draw_more(scenario)
    return _shorten_going_back(_corrupt_once(scenario))


def scenario_for(seed: int, protocol: Protocol) -> Scenario:
    """Draw the scenario of a seed, without the faults that a protocol does not survive.

    Args:
        seed: The seed.
        protocol: The protocol. If it survives all FAULTS (experiments/protocol.py), the scenario is that of
            draw_scenario().
    """
    scenario, survives = draw_scenario(seed), protocol.survives
    if survives >= set(FAULTS):
        return scenario
    links: dict[str, Any] = {}
    if "reordering" not in survives:
        links |= {"reordering": 0.0, "duplication": 0.0}  # a copy may be late, too
    links |= {fault: 0.0 for fault in ("duplication", "corruption") if fault not in survives}
    changes: dict[str, Any] = {
        "links": scenario.links.model_copy(update=links),
        "taps": 0.0,
        "revocations": (),
    }
    changes["jobs"] = tuple(_agreed(work, protocol) for work in scenario.jobs)
    changes["later"] = tuple(replace(one, work=_agreed(one.work, protocol)) for one in scenario.later)
    if "new leases" not in survives:
        changes |= {"regrants": (), "restarts": (), "later": (), "same_leases": False, "descending": False}
    if protocol.make_server:
        changes |= {"servers": True, "later": ()}
    if protocol.shares_slots:  # so few that jobs collide
        changes["slots"] = max(1, sum(work.window for work in scenario.jobs) // 2)
    if "restarts" not in survives:
        changes["restarts"] = ()
    if "registers lost" not in survives:
        changes["registers_lost"] = ()
    if "strangers" not in survives:
        changes["strangers"] = 0.0
    before, scenario = scenario.topology, replace(scenario, **changes)
    scenario = replace(
        scenario, outages=tuple(_moved(one, before, scenario.topology) for one in scenario.outages)
    )
    needed = _chunks_needed(scenario)
    first = min(scenario.first_chunk, 2**32 - needed)
    return replace(scenario, first_chunk=max(first, needed) if scenario.descending else first)


def _moved(outage: Outage, before: Topology, after: Topology) -> Outage:
    """Return an outage of the same link in a network that may have more hosts."""
    link = before.links[outage.link % len(before.links)]
    ends = {link.a.node, link.b.node}
    if _of_a_host(link):  # its leaf may be another one
        ends -= {switch.name for switch in before.switches}
    return replace(
        outage,
        link=next(i for i, one in enumerate(after.links) if ends <= {one.a.node, one.b.node}),
    )


def _agreed(work: Work, protocol: Protocol) -> Work:
    """Return a job with the protocol's chunk numbers, and without what concerns fanin's own workers only."""
    values = wire.VALUES[wire.packet_dtype(work.values).itemsize]  # only fanin has integers of 16 bits
    numbers = protocol.chunks(work.elements, values, work.window)
    plain = {"overflow": False, "special": False, "mismatch": "", "operation": "all-reduce"}
    return replace(work, values=values, chunk_numbers=numbers, **plain)  # type: ignore[arg-type]


def _shorten_going_back(scenario: Scenario) -> Scenario:
    """Shorten the vectors of jobs with go-back-N and a large window.

    With go-back-N each packet that is lost or overtaken costs up to a window, and that may happen to most packets.
    Otherwise one scenario in 10,000 would take hours.
    """

    def changed(work: Work) -> Work:
        packets = work.window * work.packets
        if work.transport != "go-back-n" or packets <= MAX_GOING_BACK:
            return work
        elements = (max(1, count * MAX_GOING_BACK // packets) for count in work.elements)
        return replace(work, elements=tuple(elements))

    later = tuple(replace(one, work=changed(one.work)) for one in scenario.later)
    return replace(scenario, jobs=tuple(map(changed, scenario.jobs)), later=later)


def _corrupt_once(scenario: Scenario) -> Scenario:
    """Limit corruption if there are jobs between hosts.

    Between hosts only the ends verify UDP's checksum, which misses some pairs of flipped bits in a packet. With the
    limit, pairs occur in one packet in 10^8, not in one in thousands.
    """
    in_network = all(work.in_network for work in scenario.works) and not scenario.revocations
    if in_network or scenario.links.corruption <= CORRUPTED_BETWEEN_HOSTS:
        return scenario
    links = scenario.links.model_copy(update={"corruption": CORRUPTED_BETWEEN_HOSTS})
    return replace(scenario, links=links)


def _draw_ways(scenario: Scenario) -> Scenario:
    """Draw rails and planes of four tiers, and which of several paths packets take."""
    draw = random.Random(f"soak ways {scenario.seed}")  # separate, as for the tiers
    if scenario.tiers == 4:
        rails = draw.choice((1, 2, 2))
        scenario = replace(scenario, rails=rails, planes=draw.choice((1, rails)))
    return replace(scenario, paths=draw.choice(("ecmp", "ecmp", "spray", "adaptive")))


def _draw_outages(scenario: Scenario) -> Scenario:
    draw = random.Random(f"soak outages {scenario.seed}")  # as for the tiers
    if draw.random() < 0.75:
        return scenario
    every = list(range(len(scenario.topology.links)))
    uplinks = [link for link in every if not _of_a_host(scenario.topology.links[link])]
    some = draw.choice((every, uplinks or every, uplinks or every))
    links = draw.sample(some, min(draw.choice((1, 1, 2)), len(some)))
    outages = [Outage(link, 10 ** draw.uniform(-5, -2.5), 10 ** draw.uniform(-5, -2)) for link in links]
    # Jobs that come later got their places from a budget of the whole network.
    if not scenario.later and _joined_without(scenario.topology, links):
        outages = [
            replace(one, seconds=draw.choice((one.seconds, 0.1)), found=draw.choice((0.0, 1e-4, 1e-3)))
            for one in outages
        ]
    return replace(scenario, outages=tuple(outages))


def _of_a_host(link: Link) -> bool:
    return 0 in (link.a.port, link.b.port)


def _joined_without(topology: Topology, links: Sequence[int]) -> bool:
    """Return whether all hosts still reach each other, on paths up and then down."""
    left = [topology.links[link] for link in links]
    if any(map(_of_a_host, left)):
        return False
    routes, leaves = Routes(topology.without(left)), [leaf.name for leaf in topology.leaves]
    return all(routes.next_hops(one, other) for one in leaves for other in leaves if one != other)


def _draw_priorities(scenario: Scenario) -> Scenario:
    draw = random.Random(f"soak priorities {scenario.seed}")  # as for the tiers
    if draw.random() < 0.7:
        return scenario
    some = draw.sample(range(8), 3)  # so that several jobs may share one
    jobs = tuple(replace(work, priority=draw.choice(some)) for work in scenario.jobs)
    later = tuple(replace(one, work=replace(one.work, priority=draw.choice(some))) for one in scenario.later)
    links = scenario.links
    if not scenario.revocations and draw.random() < 0.6:
        # Arrivals then show when packets were sent: order.py.
        plain = {"jitter": 0.0, "reordering": 0.0, "duplication": 0.0, "corruption": 0.0}
        links = links.model_copy(update=plain)
    return replace(scenario, jobs=jobs, later=later, links=links)


def _draw_compression(scenario: Scenario) -> Scenario:
    """Draw compression for jobs between hosts, which then use a ring."""
    draw = random.Random(f"soak compression {scenario.seed}")  # as for the tiers

    def changed(work: Work) -> Work:
        if work.in_network or draw.random() < 0.6:
            return work
        density = draw.choice((1e-9, 0.01, 0.3, 1.0))
        compression = draw.choice((TopK(density), Rounded(8), Rounded(4)))
        return replace(work, algorithm="ring", compression=compression)

    later = tuple(replace(one, work=changed(one.work)) for one in scenario.later)
    return replace(scenario, jobs=tuple(map(changed, scenario.jobs)), later=later)


def _draw_watchdog(scenario: Scenario) -> Scenario:
    """Draw a watchdog over pauses, and parameter servers on one host.

    These receive so much that switches pause one another.
    """
    draw = random.Random(f"soak watchdog {scenario.seed}")  # as for the tiers
    if draw.random() < 0.75:
        return scenario
    watchdog = Watchdog(
        detection_time=draw.choice((1e-7, 2e-6, 5e-5)),
        restoration_time=draw.choice((1e-7, 1e-5, 1e-3)),
        action=draw.choice(("drop", "drop", "forward", "alert")),
    )
    pause = draw.choice((SOON, LATER, AT_ONCE)).model_copy(update={"watchdog": watchdog})
    links = scenario.links.model_copy(update={"pause": pause})

    def changed(work: Work) -> Work:
        other = work.overflow or work.special or work.mismatch or work.compression
        if other or draw.random() < 0.4:
            return work
        return replace(work, algorithm="parameter-server", shards=1, window=64, elements=(6000,))

    later = tuple(replace(one, work=changed(one.work)) for one in scenario.later)
    jobs = tuple(map(changed, scenario.jobs))
    return replace(scenario, links=links, rate=10**9, jobs=jobs, later=later)


def _draw_first_chunks(scenario: Scenario) -> Scenario:
    """Draw chunk numbers that pass 2^31, where those with a sign become negative."""
    draw = random.Random(f"soak first chunks {scenario.seed}")  # as for the tiers
    if draw.random() < 0.75:
        return scenario
    most = max(work.chunks for work in scenario.works)
    return replace(scenario, first_chunk=2**31 - draw.randint(1, most))


def _draw_operations(scenario: Scenario) -> Scenario:
    """Draw jobs that gather or scatter. A job that may fall back to the ring sums."""
    draw = random.Random(f"soak operations {scenario.seed}")  # as for the tiers
    if scenario.revocations:
        return scenario

    def changed(work: Work) -> Work:
        drawn: tuple[Operation, ...] = ("all-reduce", "all-reduce", "gather", "scatter")
        operation = draw.choice(drawn)
        if not work.in_network or work.mismatch or work.overflow:
            return work
        work = replace(work, operation=operation)
        if operation == "all-reduce":
            return work
        unit = work.workers * work.block  # whole blocks for each worker
        return replace(work, elements=tuple(-(-elements // unit) * unit for elements in work.elements))

    later = tuple(replace(one, work=changed(one.work)) for one in scenario.later)
    return replace(scenario, jobs=tuple(map(changed, scenario.jobs)), later=later)


def _draw_descending(scenario: Scenario) -> Scenario:
    """Draw whether lease ids come again with lower chunk numbers, of which there are enough."""
    draw = random.Random(f"soak descending {scenario.seed}")  # as for the tiers
    if draw.random() < 0.7:
        return scenario
    return replace(scenario, descending=True, first_chunk=max(scenario.first_chunk, _chunks_needed(scenario)))


def _draw_taps(scenario: Scenario) -> Scenario:
    draw = random.Random(f"soak taps {scenario.seed}")  # as for the tiers
    taps = draw.choice((0.0, 0.0, 0.02, 0.3))
    # What is made of a corrupted packet may be dropped for any reason.
    return scenario if scenario.links.corruption else replace(scenario, taps=taps)


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
    """Draw the queue length from which switches mark packets."""
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
        # Windows so large that two jobs have just enough room, or not enough.
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
        return replace(work, algorithm=draw.choice(list(ALGORITHMS)), transport=transport)

    later = tuple(replace(one, work=changed(one.work)) for one in scenario.later)
    return replace(scenario, jobs=tuple(map(changed, scenario.jobs)), later=later)


def _chunks_needed(scenario: Scenario) -> int:
    """Return the most chunk numbers that a lease id must have: all for one job, and grants may be cut."""
    most = max(job.chunks for job in scenario.works)
    return most * (len(scenario.works) * (1 + len(scenario.restarts)) + 2 * len(scenario.regrants))


def _draw_mishaps(draw: random.Random, scenario: Scenario) -> Scenario:
    """Draw the faults of switches, controller and workers, and strangers on the network."""
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
        # Registers of leaves below a root may be lost repeatedly: the root has the results.
        leaves = len(scenario.racks)
        switches, times = (leaves, 40) if leaves > 1 and draw.random() < 0.7 else (8, draw.choice((1, 3, 8)))
        lost = (Restart(draw.randrange(switches), draw.uniform(0, 1e-2)) for _ in range(times))
        scenario = replace(scenario, registers_lost=tuple(lost), restarts=())
    elif kind == "mismatch" and scenario.jobs[0].workers > 1:
        of = draw.choice(("elements", "window", "values", "workers", "refused", "order"))
        # With overflow, workers assume to be alone and would not notice.
        odd = replace(scenario.jobs[0], mismatch=of, overflow=False)
        if of in ("refused", "order"):
            # The lengths occurred before, so that the first packets carry values.
            most = odd.values * draw.randint(1, odd.window)
            one, other = draw.sample(range(most - odd.values + 1, most + 1), 2)
            odd = replace(odd, elements=(one, other) * draw.randint(2, 3))
        scenario = replace(scenario, jobs=(odd, *scenario.jobs[1:]), restarts=())
    jobs = scenario.jobs
    if not (scenario.regrants or scenario.restarts):  # these start over with the inputs
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
    """Draw a job with at least `fewest` workers under each leaf."""
    racks = [draw.randint(fewest, 4 if fewest else 3) for _ in range(leaves)]
    racks[draw.randrange(leaves)] += not any(racks)
    workers = sum(racks)
    window = draw.choice((1, 1, 2, 3, 4, 8, 16, 64))
    values = draw.choice((64, 64, 256, 128, 512))
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
