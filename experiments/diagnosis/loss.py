"""Lost packets, and workers that wait for their retransmission."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding
from fanin.experiments.diagnosis.straggler import straggler


def loss(case: Case) -> Finding | None:
    """Look for packets that were lost, dropped at full queues or corrupted, and for time that no full link explains."""
    links, again = case.links.values(), case.row["retransmissions"]
    lost, dropped = sum(link.lost for link in links), sum(link.queue_drops or 0 for link in links)
    corrupted = case.row.get("link_corrupted") or 0
    if not (again and lost + dropped + corrupted):
        return None
    worst = max(links, key=lambda link: link.lost + (link.queue_drops or 0))
    packets = sum(link.packets for link in links)
    sent = sum(link.packets for link in links if link.near in case.settings.members)
    # Without loss, links would not carry retransmissions.
    explained = max(case.closed_form, max(case.busy.values()) * max(0.0, 1 - again / sent))
    if case.computing is None:  # otherwise late workers are part of the prediction
        explained = min(1.0, explained + straggler(case).share)
    counts = ((lost, "lost"), (dropped, "dropped at full queues"), (corrupted, "corrupted"))
    became = ", ".join(f"{count:,} were {what}" for count, what in counts if count)
    return Finding(
        "loss",
        1 - explained,
        f"of {packets:,} packets on links {became}, most on "
        f"{worst.name}; there were {again:,} retransmissions, and bytes and latencies without them do not explain "
        f"{percent(1 - explained)} of the time",
        "use longer queues (queue_bytes) or congestion marks (ecn_bytes)"
        if dropped > lost + corrupted
        else f"fix the link {worst.near} - {worst.far}, or use shorter timers ([recovery])",
    )
