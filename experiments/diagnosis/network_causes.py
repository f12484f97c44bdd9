"""Causes of slowness in the network, each a test of a case."""

from __future__ import annotations

from collections import Counter
from math import ceil, isinf
from typing import Any

import numpy as np
from pydantic import ValidationError

from fanin.controller.tree import SLOTS
from fanin.experiments.diagnosis.case import MOSTLY, Busy, Case, Direction, percent
from fanin.experiments.diagnosis.finding import Finding
from fanin.experiments.diagnosis.worker_causes import straggler
from fanin.experiments.models.packets import full_frame, full_payload
from fanin.experiments.models.paths import Paths
from fanin.experiments.models.prediction import (
    longest_message,
    predicted_seconds,
    predicted_training_step,
)
from fanin.experiments.models.step import step_parts
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.topologies.units import BYTES, RATES, quantity_text
from fanin.workers.host_based.algorithms.registry import algorithm_named

# -- A live run whose speed was limited by this machine's processors


def this_machine(case: Case) -> Finding | None:
    """Look for processors that were busy while links were not, as bottleneck.py decides."""
    if case.row.get("limited_by") != "processors":
        return None
    busy, link = case.row["processor_utilization"], case.row.get("link_utilization") or 0.0
    return Finding(
        "this machine",
        busy,
        f"processors were busy for {percent(busy)} of the time, the busiest link for {percent(link)}",
        "use fewer workers, slower links, or world = 'virtual', whose times do not depend on the machine",
    )


# -- A link that sends below its rate, such as a cable, a lane or a port that has fallen back


def slow_link(case: Case) -> Finding | None:
    """Look for a link that sent its bytes at a lower rate than other links between the same tiers."""
    if not case.slow:
        return None
    way = max(case.slow, key=case.busy.__getitem__)
    rate, usual = case.rate(way) or 0.0, case.usual_rate(way)
    name = case.links[way].name
    others = sorted(case.links[one].name for one in case.slow if set(one) != set(way))
    also = f"; also slow: {', '.join(others)}" if others else ""
    return Finding(
        "slow link",
        case.relief(case.busy, case.repaired, waited=False),
        f"{name} sent at {quantity_text(round(rate), RATES)} while other links between the same tiers send at "
        f"{quantity_text(round(usual), RATES)}, and was busy for {percent(case.busy[way])} of the time{also}",
        f"fix the link {name.replace(' → ', ' - ')}{' and those' if others else ''}, or place no worker behind it",
    )


# -- Hosts outside the job whose traffic fills links that the job needs


def noisy_neighbour(case: Case) -> Finding | None:
    """Look for traffic of other hosts on the busiest link, and estimate its load without that."""
    if not case.others:
        return None
    way = max(case.repaired, key=case.repaired.__getitem__)
    foreign = sum(link.wire_bytes for link in case.links.values() if link.near in case.others)
    share = 1 - case.own[way] / (case.repaired[way] or 1.0)
    return Finding(
        "noisy neighbour",
        # Traffic that overtakes the job's packets because of its priority is a different cause.
        0.0 if case.overtaken else _neighbours(case),
        f"hosts outside this job ({', '.join(sorted(case.others))}) sent {foreign / 1e6:,.2f} MB, about "
        f"{percent(share)} of what {case.links[way].name} carried, which was busy for "
        f"{percent(case.busy[way])} of the time",
        "place the jobs on different leaves, give them separate links, or let links mark packets (ecn_bytes), "
        "so that the jobs share the links",
    )


def _neighbours(case: Case) -> float:
    """Return the share of the time that other hosts' traffic costs, at most what the analytical model leaves."""
    return min(case.relief(case.repaired, case.own), 1 - case.closed_form)


# -- Links between switches that together carry less than the hosts below can send


def oversubscription(case: Case) -> Finding | None:
    """Look for busy links above a switch whose links down have a higher total rate than those up."""
    between = [way for way in case.own if case.between_switches(way)]
    if not between:
        return None
    after = {
        way: share / max(1.0, _ratio(case, way)) if way in between else share
        for way, share in case.own.items()
    }
    way = max(between, key=case.own.__getitem__)
    switch = way[0] if case.climbs(way) else way[1]
    down, up = _rates(case, switch)
    if isinf(down) or down <= up:
        return None
    at_hosts = max(share for one, share in case.own.items() if one not in between)
    hosts, links = (
        ("the GPUs of a server", "network cards") if case.role(switch) == "server" else ("hosts", "links")
    )
    return Finding(
        "oversubscription",
        max(case.relief(case.own, after), _sooner(case)),
        f"{case.links[way].name} was busy for {percent(case.own[way])} of the time, hosts' links for at most "
        f"{percent(at_hosts)}; {hosts} can send {quantity_text(round(down), RATES)} up through {switch}, and the "
        f"{links} above it have {quantity_text(round(up), RATES)} in total",
        _faster_uplinks(case, switch),
    )


def _sooner(case: Case) -> float:
    """Return the share of the time by which packets would arrive sooner if links between switches were fast enough."""
    links = tuple(
        link.model_copy(update={"rate_bits_per_second": round(rate * max(1.0, _ratio(case, way)))})
        if (rate := link.rate_bits_per_second) and case.between_switches(way := (link.a.node, link.b.node))
        else link
        for link in case.topology.links
    )
    faster = case.topology.model_copy(update={"links": links}).model_dump(mode="json")
    given = case.settings.model_dump(mode="json") | {"topology": faster}
    now = _predicted(case, case.settings, case.window)
    then = _predicted(case, Settings.model_validate(given), case.window)
    return 0.0 if now is None or then is None else (now - then) / case.step_seconds


def _faster_uplinks(case: Case, switch: str) -> str:
    """Return what to change about the links above a switch."""
    settings, in_network = case.settings, case.settings.algorithm == "in-network"
    if case.role(switch) != "server":
        change = "use more or faster uplinks, or place fewer workers on each leaf"
        return change if in_network else f"{change}; {_ONE_VECTOR}"
    cards = sum(case.tier(node) > case.tier(switch) for node in case.topology.neighbours(switch).values())
    faster = f"use faster network cards for {switch} (nic_rate)"
    if not in_network:
        return (
            f"{faster}, or more of them (nics_per_server) with paths = 'spray' or 'adaptive'; {_ONE_VECTOR}"
        )
    trees = min(cards, SLOTS // case.window)
    if trees > settings.trees and _is_valid(settings, trees=trees):
        unused = f"{switch} has {cards} network cards, and a tree uses one"
        return f"set trees = {trees}: {unused}; or {faster}"
    return f"{faster}, or more of them with as many trees (nics_per_server, trees)"


_ONE_VECTOR = "in-network aggregation sends one vector up instead of many"


def _is_valid(settings: Settings, **changes: Any) -> bool:
    """Return whether a scenario with these keys changed is accepted, so that they can be advised."""
    try:
        Settings.model_validate(settings.model_dump(mode="json") | changes)
    except ValidationError:
        return False
    return True


def _ratio(case: Case, way: Direction) -> float:
    down, up = _rates(case, way[0] if case.climbs(way) else way[1])
    return 1.0 if isinf(down) or isinf(up) else down / up


def _rates(case: Case, switch: str) -> tuple[float, float]:
    """Return what the hosts below a switch can send through it, and the total rate of its links up, in bits/s.

    Both are infinite if a link is unlimited. Hosts spread what they send over all links up. So wider links above a leaf
    alone do not help if those above the spine are as narrow.
    """
    down = up = 0.0
    for node in case.topology.neighbours(switch).values():
        if case.tier(node) > case.tier(switch):
            up += case.usual_rate((switch, node))
        elif 0 < case.tier(node) < case.tier(switch):
            down += _rates(case, node)[0] / len(case.siblings((node, switch)))
        else:
            down += case.usual_rate((switch, node))
    return down, up


# -- Flows whose hash puts them on the same one of several paths


def collision(case: Case) -> Finding | None:
    """Look for one busy link among several that could share its load."""
    if case.settings.algorithm == "in-network":  # an aggregation tree uses one of them on purpose
        return None
    between = [way for way in case.own if case.between_switches(way)]
    if not between:
        return None
    even = {way: _mean(case, way) if way in between else share for way, share in case.own.items()}
    way = max(between, key=case.own.__getitem__)
    others = [f"{near} → {far} {percent(case.own.get((near, far), 0.0))}" for near, far in case.siblings(way)]
    if len(others) < 2:
        return None
    # Other transports take packets that overtake one another for lost.
    in_order = case.settings.transport in ("go-back-n", "tcp")
    spread = "use" if in_order else "set paths = 'spray' or 'adaptive', or"
    return Finding(
        "collision",
        case.relief(case.own, even),
        f"{case.links[way].name} was busy for {percent(case.own[way])} of the time, but would be for only "
        f"{percent(even[way])} if flows were spread evenly: {', '.join(others)}",
        f"{spread} more flows_per_pair; fanin paths shows which flows share a link",
    )


def _mean(case: Case, way: tuple[str, str]) -> float:
    """Return the mean load of the links that could share the load of this one."""
    own: Busy = case.own
    siblings = case.siblings(way)
    return sum(own.get(one, 0.0) for one in siblings) / len(siblings)


# -- Links that were paused although nothing behind them was full


def pause_storm(case: Case) -> Finding | None:
    """Look for time in which a link was paused, or waited for a watchdog's drops, that no full link explains."""
    links = case.links.values()
    worst = max(links, key=lambda link: link.paused_seconds or 0.0)
    if not worst.paused_seconds:
        return None
    paused = min(1.0, worst.paused_seconds / case.seconds)
    pauses, storms, dropped = (
        sum(getattr(link, count) or 0 for link in links) for count in ("pauses", "storms", "watchdog_drops")
    )
    watchdog = f"; a watchdog found {storms:,} storms and dropped {dropped:,} packets" if storms else ""
    return Finding(
        "pause storm",
        # Workers wait for packets that a watchdog has dropped even when no link is paused.
        1 - case.explained if dropped else min(paused, 1 - case.explained),
        f"{worst.name} was paused for {percent(paused)} of the time ({worst.pauses:,} of {pauses:,} pauses in total), "
        f"and no link was busy for more than {percent(max(case.busy.values()))} of it{watchdog}",
        "use higher thresholds (pause.xoff_bytes), or congestion marks (ecn_bytes) that come before pauses"
        + (", and a watchdog that waits longer (detection_time)" if dropped else ""),
    )


# -- A run that never ended because links paused one another in a circle


_ERROR = "DeadlockError: "  # simulator/deadlock.py


def deadlock(row: Row) -> Finding | None:
    """Look for a deadlock in the run's error, which lists the links that waited for one another."""
    error = row.get("error") or ""
    if not error.startswith(_ERROR):
        return None
    return Finding(
        "deadlock",
        1.0,
        error.removeprefix(_ERROR),
        "use routes without a circle, such as those that go up and then down; or a watchdog that drops or forwards "
        "(links.pause.watchdog)",
    )


# -- A job of a low priority, whose packets wait while packets of a higher priority are sent


def priority_inversion(case: Case) -> Finding | None:
    """Look for time in which a link sent packets of a higher priority while some of the job's waited."""
    if not case.overtaken:
        return None
    worst = max(case.links.values(), key=lambda link: link.overtaken_seconds or 0.0)
    # Packets that are sent while no packet of the job waits on the same link delay later ones.
    share = max(case.overtaken, _neighbours(case))
    if case.computing is not None:
        # In a step, some of this time is hidden. Without steps, barriers wait as well, which no model counts.
        share = min(share, 1 - case.closed_form)
    return Finding(
        "priority inversion",
        share,
        f"{worst.name} sent packets of a higher priority for {percent(case.overtaken)} of the time while packets of "
        f"the job (priority {case.settings.priority}) waited",
        "give the job a priority that is not below that of other traffic on these links, or separate links",
    )


# -- Lost packets, and workers that wait for their retransmission


def loss(case: Case) -> Finding | None:
    """Look for packets that were lost, dropped at full queues or corrupted, and for time that no full link explains."""
    links, again = case.links.values(), case.row["retransmissions"]
    lost, dropped = sum(link.lost for link in links), sum(link.queue_drops or 0 for link in links)
    corrupted = case.row.get("link_corrupted") or 0
    if not (again and lost + dropped + corrupted):
        return None
    where, which = _losing(case)
    packets = sum(link.packets for link in links)
    left = _not_explained(case)
    counts = ((lost, "lost"), (dropped, "dropped at full queues"), (corrupted, "corrupted"))
    (first, became), *more = ((count, what) for count, what in counts if count)
    also = "".join(f", {count:,} were {what}" for count, what in more)
    return Finding(
        "loss",
        left,
        f"{first:,} of {packets:,} packets on links were {became}{also}, {where}; there were {again:,} "
        f"retransmissions, and bytes and latencies without them do not explain {percent(left)} of the time",
        "use longer queues (queue_bytes) or congestion marks (ecn_bytes)"
        if dropped > lost + corrupted
        else f"fix {which}, or use shorter timers ([recovery])",
    )


def _not_explained(case: Case) -> float:
    """Return the share of the time that bytes, latencies and late workers would not explain without retransmissions."""
    explained = max(case.closed_form, max(case.busy.values()) * (1 - _again(case)))
    # The prediction of a step has late workers already, but none that are stopped.
    late = straggler(case).share if case.computing is None else case.stopped_seconds / case.seconds
    return max(0.0, 1 - explained - late)


def _again(case: Case) -> float:
    """Return the share of retransmissions in the packets that workers sent."""
    sent = sum(link.packets for link in case.links.values() if link.near in case.settings.members)
    return min(1.0, (case.row["retransmissions"] or 0) / (sent or 1))


def _losing(case: Case) -> tuple[str, str]:
    """Return where packets were lost, and which links to fix: a single one only if it lost most of them."""
    lost: Counter[str] = Counter()
    for way, link in case.links.items():
        below, above = sorted(way, key=lambda node: (case.tier(node), node))
        lost[f"{below} - {above}"] += link.lost + (link.queue_drops or 0)
    losing = +lost
    if not losing:
        return "at links that do not count them", "the links that corrupt packets (corrupt)"
    (worst, most), *_ = losing.most_common(1)
    if 2 * most > losing.total():
        return f"{'all' if len(losing) == 1 else 'most'} on the link {worst}", f"the link {worst}"
    some = ", ".join(f"{name} {count:,}" for name, count in losing.most_common(3))
    return (
        f"on {len(losing)} of {len(lost)} links, none of which lost most ({some}{', …' if len(losing) > 3 else ''})",
        f"what these {len(losing)} links have in common (loss)",
    )


# -- Packets that overtake one another, and timers that end too early


def reordering(case: Case) -> Finding | None:
    """Look for links that delayed some packets, so that others overtook them, and for time that nothing explains."""
    late = case.row.get("link_reordered") or 0
    if not late:
        return None
    packets, left = sum(link.packets for link in case.links.values()), _not_explained(case)
    return Finding(
        "reordering",
        left,
        f"{late:,} of {packets:,} packets on links came late, so that others overtook them, and bytes and latencies do "
        f"not explain {percent(left)} of the time",
        "fix the links that deliver packets late (reordering), or, between hosts, let more packets overtake one before "
        "it is retransmitted (recovery.packet_threshold)",
    )


def spurious_retransmissions(case: Case) -> Finding | None:
    """Look for retransmissions although nothing was lost, which take the time of other packets."""
    again, links = case.row["retransmissions"], case.links.values()
    if not again or any(link.lost or link.queue_drops or link.watchdog_drops for link in links):
        return None
    if case.row.get("link_corrupted"):
        return None
    share = _again(case)
    change = "use longer timers (recovery.min_rto and initial_rto)"
    if case.settings.algorithm != "in-network":
        change += ", or, if packets overtake one another, a larger recovery.packet_threshold"
    return Finding(
        "spurious retransmissions",
        min(share, _not_explained(case)),
        f"{again:,} packets, {percent(share)} of those that workers sent, were retransmissions, although no packet was "
        "lost, dropped or corrupted",
        change,
    )


# -- Marks at queues so short that senders slow down although links are not full


def congestion_marks(case: Case) -> Finding | None:
    """Look for marked packets where bytes and latencies explain less than half of what workers wait for the network."""
    links = [link for link in case.links.values() if link.marks]
    if not links or 1 - case.explained < MOSTLY * case.exposed:
        return None
    most = max(links, key=lambda link: link.marks or 0)
    return Finding(
        "congestion marks",
        1 - case.explained,
        f"{sum(link.marks or 0 for link in links):,} packets were marked, most on {most.name}, {most.marks:,} of "
        f"{most.packets:,}, so that their senders slowed down; no link was busy for more than "
        f"{percent(max(case.busy.values()))} of the time",
        "let links mark packets at longer queues (links.ecn_bytes), or let senders slow down less (congestion.control)",
    )


# -- A window that is smaller than the bandwidth-delay product of the path


_ROOM = 1.5  # times the bandwidth-delay product, for a window that is advised


def window(case: Case) -> Finding | None:
    """Look for a window that takes less time to send than a round trip, where vectors are longer than the window."""
    settings, packets = case.settings, case.row.get("window")
    # In half a round trip, a message reaches the next worker, which lets another one follow it.
    at_once = _longest_message(settings) * (1 if settings.algorithm == "in-network" else 2)
    if packets is None or packets >= at_once // full_payload(settings):
        return None
    paths = Paths(settings, full_frame(settings))
    open_at_once = packets * _windows(settings, paths)
    sending, there_and_back = open_at_once * paths.slowest, paths.round_trip
    if not 0 < sending < there_and_back:
        return None
    needed = ceil(there_and_back / sending * packets)
    enough = ceil(_ROOM * needed)
    larger = enough
    if enough <= SLOTS:
        change = f"use a window of {enough:,} packets or more (window)"
    elif packets < SLOTS:
        larger = SLOTS
        change = f"use a window of {SLOTS:,} packets, the largest (window); {enough:,} would fill the links"
    else:
        change = f"shorten the round trip: {SLOTS:,} is the largest window, and {enough:,} packets would fill the links"
    busiest = max(case.busy.values())
    now, then = (_predicted(case, settings, each) for each in (packets, larger))
    if now is not None and then is not None:
        saved = (now - then) / case.step_seconds
    elif settings.step is None or case.computing is None:
        saved = 1 - packets / min(larger, needed)
    else:
        saved = case.exposed
    # What a link sends cannot be saved.
    most = 1 - busiest if settings.step is None or case.computing is None else case.saved_at_most
    share = min(saved, most)
    return Finding(
        "window",
        max(0.0, share),
        f"a window of {open_at_once:,} packets takes {1e6 * sending:,.1f} us to send on the slowest link of its path, "
        f"but the first answer takes {1e6 * there_and_back:,.1f} us to arrive; the busiest link, {case.busiest.name}, "
        f"sent for {percent(busiest)} of the time",
        change,
    )


def _predicted(case: Case, settings: Settings, window: int) -> float | None:
    """Predict the seconds of an all-reduce or of a training step with other settings; None if nothing predicts it."""
    if settings.step is not None and case.computing is not None:
        return predicted_training_step(settings, window, slowness=case.slowness)
    if settings.size is None or case.computing is not None:
        return None
    return predicted_seconds(settings, settings.size, window)


# -- Jobs that share slots, and find them in use


def slot_collisions(case: Case) -> Finding | None:
    """Look for packets that went to a parameter server because the slot of their chunk was in use."""
    settings = case.settings
    if not case.servers or settings.elements is None or settings.step is not None:
        return None
    vectors = len(case.usage.workers[0].began)
    # A chunk that was summed on the way needs one packet, and each all-reduce follows a barrier of one chunk.
    needed = vectors * (1 + -(-settings.elements // settings.implementation.packet(settings.values).elements))
    ways = [(settings.network.host(server).leaf, server) for server in case.servers]
    used = [case.links[way].packets for way in ways if way in case.links]
    # A retransmission goes to the server, too, whether or not its slot is free.
    more = sum(used) - needed * len(used) - (case.row.get("retransmissions") or 0)
    if more <= 0:
        return None
    left = 1 - more / sum(used)
    after = {way: share * left if way in ways else share for way, share in case.busy.items()}
    slots = settings.shared_slots or 0
    return Finding(
        "slot collisions",
        # The server adds up their packets one by one, and its answers are marked, which makes windows smaller.
        max(case.relief(case.busy, after), (1 - left) * (1 - case.explained)),
        f"{case.links[ways[0]].name} carried {sum(used):,} packets to the server, of which about {more:,} found the "
        f"slot of their chunk in use; all jobs share {slots:,} slots, and a worker of this one has up to "
        f"{case.window:,} packets in flight",
        f"use more slots (slots), or a smaller window (window = {max(1, case.window // 4)})"
        + ("" if _marks(settings) else ", and let links mark packets (links.ecn_bytes)"),
    )


def _marks(settings: Settings) -> bool:
    return any(link.properties.ecn_bytes is not None for link in settings.network.links)


def _windows(settings: Settings, paths: Paths) -> int:
    """Return how many windows the busiest host has open at once: between hosts, one for each connection."""
    if settings.algorithm == "in-network" or settings.window_per == "host":
        return 1
    one_at_a_time = algorithm_named(settings.algorithm).one_peer_at_a_time
    return 1 if one_at_a_time else paths.most_connections


def _longest_message(settings: Settings) -> int:
    """Return the most bytes that a worker sends at once to one other worker, or to the switches."""
    size = settings.size or 0
    if settings.step is not None:
        parts, _ = step_parts(settings.step, size // ELEMENT_BYTES)
        size = ELEMENT_BYTES * max(part.stop - part.start for part in parts)
    return longest_message(settings, size, len(settings.members))


# -- Vectors so small, or delays so long, that the way through the network takes longer than sending


# Share of the time for which links send, above which larger vectors would not help much. Shorter delays would.
_SENDING = 0.26
# Share of the time that unusual delays must cost: the model overestimates it.
_DELAYED = 0.2
_LONGER = 2.0  # times as long as the median delay, from which the link with the longest one is named


def latency(case: Case) -> Finding | None:
    """Look for all-reduces whose time the analytical model explains, but not by bytes, or not with usual delays."""
    settings, busiest, step = case.settings, max(case.busy.values()), case.step_seconds
    if settings.size is None or case.computing is not None:
        return None
    fixed, longest, usual = (
        predicted_seconds(settings, settings.size, SLOTS, delays=delays)
        for delays in ("fixed", "longest", "usual")
    )
    if fixed is None or longest is None or usual is None:
        return None
    late = min(1.0, longest / step) - max(usual / step, busiest)
    small = max(0.0, min(1.0, fixed / step) - busiest) if busiest < _SENDING else 0.0
    return Finding(
        "latency",
        max(late if late >= _DELAYED else 0.0, small),
        f"an all-reduce of {quantity_text(settings.size, BYTES)} takes {1e6 * step:,.1f} us, of which the busiest "
        f"link, {case.busiest.name}, sends for {1e6 * step * busiest:,.1f} us ({percent(busiest)}); the rest are "
        f"latencies: {_delays(settings)}",
        "use shorter paths, or hosts that notice packets sooner (delay, jitter, coalescing), sum several vectors in "
        "one call (size; a list of arrays; DDP: raise bucket_cap_mb), or choose an algorithm with fewer steps "
        "(algorithm = 'in-network' or 'halving-doubling')",
    )


def _delays(settings: Settings) -> str:
    """Describe how long links delay packets and hosts leave them unnoticed."""
    by_link = {}
    for link in settings.network.links:
        properties = link.properties
        fixed = (properties.delay or 0.0) if settings.world == "live" else properties.virtual_delay
        by_link[f"{link.a.node} - {link.b.node}"] = fixed + properties.jitter
    most, usual = max(by_link, key=by_link.__getitem__), float(np.median([*by_link.values()]))
    where = (
        f"the link {most} delays packets for"
        if by_link[most] >= _LONGER * usual
        else "links delay packets for"
    )
    unnoticed = (
        f", hosts notice them within {1e6 * settings.coalescing:,.4g} us" if settings.coalescing else ""
    )
    return f"{where} up to {1e6 * by_link[most]:,.4g} us{unnoticed}"
