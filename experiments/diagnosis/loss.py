"""Packets that did not arrive, and workers that waited until they were sent again."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding


def loss(case: Case) -> Finding | None:
    """By packets lost, or dropped where queues were full, and the time for which no link was full meanwhile."""
    links, again = case.links.values(), case.row["retransmissions"]
    lost, dropped = sum(link.lost for link in links), sum(link.queue_drops or 0 for link in links)
    corrupted = case.row.get("link_corrupted") or 0
    if not (again and lost + dropped + corrupted):
        return None
    worst = max(links, key=lambda link: link.lost + (link.queue_drops or 0))
    packets = sum(link.packets for link in links)
    sent = sum(link.packets for link in links if link.near in case.settings.members)
    # Without loss links would be less busy by what was sent again.
    explained = max(case.closed_form, max(case.busy.values()) * max(0.0, 1 - again / sent))
    counts = ((lost, "lost"), (dropped, "dropped at full queues"), (corrupted, "corrupted"))
    became = ", ".join(f"{count:,} were {what}" for count, what in counts if count)
    return Finding(
        "loss",
        1 - explained,
        f"of {packets:,} packets on links {became}, most on "
        f"{worst.name}; {again:,} were sent again, and bytes and latencies without that do not account for "
        f"{percent(1 - explained)} of the time",
        "longer queues (queue_bytes) or marks (ecn_bytes)"
        if dropped > lost + corrupted
        else f"fix the link {worst.near} - {worst.far}, or have shorter timers ([recovery])",
    )
