"""A link that sends below its rate, such as a cable, a lane or a port that has fallen back."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding
from fanin.topologies.units import RATES, quantity_text


def slow_link(case: Case) -> Finding | None:
    """Look for a link that sent its bytes at a lower rate than other links between the same tiers."""
    if not case.slow:
        return None
    way = max(case.slow, key=case.busy.__getitem__)
    rate, usual = case.rate(way) or 0.0, case.usual_rate(way)
    name = case.links[way].name
    return Finding(
        "slow link",
        case.relief(case.busy, case.repaired),
        f"{name} sent at {quantity_text(round(rate), RATES)} while other links between the same tiers send at "
        f"{quantity_text(round(usual), RATES)}, and was busy for {percent(case.busy[way])} of the time",
        f"fix the link {name.replace(' → ', ' - ')}, or place no worker behind it",
    )
