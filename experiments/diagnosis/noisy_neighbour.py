"""Hosts outside the job whose traffic fills links that the job needs."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding


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
        max(0.0, case.relief(case.repaired, case.own) - case.overtaken),
        f"hosts outside this job ({', '.join(sorted(case.others))}) sent {foreign / 1e6:,.2f} MB, about "
        f"{percent(share)} of what {case.links[way].name} carried, which was busy for "
        f"{percent(case.busy[way])} of the time",
        "place the jobs on different leaves, give them separate links, or let links mark packets (ecn_bytes), "
        "so that the jobs share the links",
    )
