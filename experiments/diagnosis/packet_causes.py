"""Causes of slowness in lost, late, duplicated, marked and retransmitted packets, each a test of a case."""

from __future__ import annotations

from collections import Counter

from fanin.experiments.diagnosis.case import MOSTLY, Case, percent
from fanin.experiments.diagnosis.finding import Finding
from fanin.experiments.diagnosis.worker_causes import straggler

# -- Lost packets, and workers that wait for their retransmission


def loss(case: Case) -> Finding | None:
    """Look for packets that were lost, dropped at full queues or corrupted, and for time that no full link explains."""
    links, again = case.links.values(), case.row["retransmissions"]
    if not (again and lost(case)):
        return None
    dropped, corrupted = sum(link.queue_drops or 0 for link in links), case.row.get("link_corrupted") or 0
    on_links = lost(case) - dropped - corrupted
    where, which = _losing(case)
    packets = sum(link.packets for link in links)
    left = not_explained(case)
    counts = ((on_links, "lost"), (dropped, "dropped at full queues"), (corrupted, "corrupted"))
    (first, became), *more = ((count, what) for count, what in counts if count)
    also = "".join(f", {count:,} were {what}" for count, what in more)
    return Finding(
        "loss",
        left,
        f"{first:,} of {packets:,} packets on links were {became}{also}, {where}; there were {again:,} "
        f"retransmissions, and bytes and latencies without them do not explain {percent(left)} of the time",
        "use longer queues (queue_bytes) or congestion marks (ecn_bytes)"
        if dropped > on_links + corrupted
        else f"fix {which}, or use shorter timers ([recovery])",
    )


def lost(case: Case) -> int:
    """Return how many packets links have lost, dropped at full queues, or corrupted."""
    on_links = sum(link.lost + (link.queue_drops or 0) for link in case.links.values())
    return on_links + (case.row.get("link_corrupted") or 0)


def not_explained(case: Case) -> float:
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
    packets, left = sum(link.packets for link in case.links.values()), not_explained(case)
    return Finding(
        "reordering",
        left,
        f"{late:,} of {packets:,} packets on links came late, so that others overtook them, and bytes and latencies do "
        f"not explain {percent(left)} of the time",
        "fix the links that deliver packets late (reordering), or, between hosts, let more packets overtake one before "
        "it is retransmitted (recovery.packet_threshold)",
    )


def duplicates(case: Case) -> Finding | None:
    """Look for links that delivered packets twice, and for time that the job's own packets do not explain."""
    twice, packets = case.row.get("link_duplicated") or 0, sum(link.packets for link in case.links.values())
    own = case.predicted()
    if not twice or own is None:
        return None
    worst = max(case.links.values(), key=lambda link: link.duplicated)
    single = 2 * worst.duplicated > twice
    each = worst.duplicated / worst.packets if single else twice / packets
    # Each link of a path sends the copies that the links before it have made.
    top = max(case.tier(switch.name) for switch in case.topology.switches)
    way = max(case.busy, key=case.busy.__getitem__)
    before = case.tier(way[0]) if case.climbs(way) else 2 * top - case.tier(way[0])
    busiest = case.busy[way] / (1 + each) ** (1 if single else before)
    left = 1 - max(own / case.step_seconds + float(case.loading.max()) / case.seconds, busiest)
    if lost(case):  # then this may be what is left
        left = case.busy[way] - busiest
    return Finding(
        "duplicates",
        max(0.0, min(left, 1 - 1 / (1 + each) ** (1 if single else 2 * top - 1))),
        f"{twice:,} of {packets:,} packets on links were delivered twice, {worst.duplicated:,} by {worst.name}, and "
        f"the job's own packets do not explain {percent(left)} of the time",
        f"fix {f'the link {worst.name}' if single else 'the links'} (duplication)",
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
        min(share, not_explained(case)),
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
        not_explained(case),
        f"{sum(link.marks or 0 for link in links):,} packets were marked, most on {most.name}, {most.marks:,} of "
        f"{most.packets:,}, so that their senders slowed down; no link was busy for more than "
        f"{percent(max(case.busy.values()))} of the time",
        "let links mark packets at longer queues (links.ecn_bytes), or let senders slow down less (congestion.control)",
    )
