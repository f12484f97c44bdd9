"""Causes of slowness in the network, each a test of a case."""

from __future__ import annotations

from math import inf, isinf
from typing import Any

from pydantic import ValidationError

from fanin.controller.tree import SLOTS
from fanin.experiments.diagnosis.case import Busy, Case, Direction, percent
from fanin.experiments.diagnosis.finding import Finding
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.settings import Settings
from fanin.topologies.units import RATES, quantity_text

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
        _saved_by_repair(case),
        f"{name} sent at {quantity_text(round(rate), RATES)} while other links between the same tiers send at "
        f"{quantity_text(round(usual), RATES)}, and was busy for {percent(case.busy[way])} of the time{also}",
        f"fix the link {name.replace(' → ', ' - ')}{' and those' if others else ''}, or place no worker behind it",
    )


_AS_SET = 1.25  # times the measured rate, up to which a slow link's rate is the one in the settings


def _saved_by_repair(case: Case) -> float:
    """Return the share of the time saved if slow links sent at the usual rate.

    The analytical model predicts it for links that it knows: those of the scenario, between hosts only those of hosts.
    """
    in_network = case.settings.algorithm == "in-network"
    known = all(
        (case.topology.link_between(*way).rate_bits_per_second or inf) <= _AS_SET * (case.rate(way) or 0.0)
        and (in_network or not case.between_switches(way))
        for way in case.slow
    )
    now = case.predicted(busiest=max(case.busy.values()) * case.step_seconds)
    then = case.predicted(case.healthy, busiest=max(case.repaired.values()) * case.step_seconds)
    if not known or now is None or then is None:
        return case.relief(case.busy, case.repaired, waited=False)
    # The model of the present may be too slow: it takes all hosts to have the slowest link.
    return max(0.0, min(now, case.step_seconds) - then) / case.step_seconds


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
    # The analytical model knows the links of a tree and the network cards of servers, but no other shared links.
    known = case.settings.algorithm == "in-network" or case.role(switch) == "server"
    hosts, links = (
        ("the GPUs of a server", "network cards") if case.role(switch) == "server" else ("hosts", "links")
    )
    return Finding(
        "oversubscription",
        _sooner(case) if known else max(case.relief(case.own, after), _sooner(case)),
        f"{case.links[way].name} was busy for {percent(case.own[way])} of the time, hosts' links for at most "
        f"{percent(at_hosts)}; {hosts} can send {quantity_text(round(down), RATES)} up through {switch}, and the "
        f"{links} above it have {quantity_text(round(up), RATES)} in total",
        _faster_uplinks(case, switch),
    )


def _sooner(case: Case) -> float:
    """Return the share of the time by which packets would arrive sooner if links between switches were fast enough."""
    now, then = case.predicted(case.healthy), case.predicted(with_fast_uplinks(case))
    return 0.0 if now is None or then is None else (now - then) / case.step_seconds


def with_fast_uplinks(case: Case) -> Settings:
    """Return the settings without slow links, where links between switches are fast enough for the hosts below."""
    rates = {
        link: round(rate * max(1.0, _ratio(case, way)) if case.between_switches(way) else rate)
        for link, repaired in zip(case.topology.links, case.healthy.network.links, strict=True)
        if (rate := repaired.rate_bits_per_second) and (way := (link.a.node, link.b.node))
    }
    return case.with_rates(rates)


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
