"""Links between switches that together carry less than the hosts below can send."""

from __future__ import annotations

from math import isinf

from fanin.experiments.diagnosis.case import Case, Direction, percent
from fanin.experiments.diagnosis.finding import Finding
from fanin.topologies.units import RATES, quantity_text


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
    return Finding(
        "oversubscription",
        case.relief(case.own, after),
        f"{case.links[way].name} was busy for {percent(case.own[way])} of the time, hosts' links for at most "
        f"{percent(at_hosts)}; the links below {switch} have {quantity_text(round(down), RATES)} in total, those "
        f"above it {quantity_text(round(up), RATES)}",
        "use more or faster uplinks, place fewer workers on each leaf, or use in-network aggregation, which "
        "sends one vector up instead of many",
    )


def _ratio(case: Case, way: Direction) -> float:
    down, up = _rates(case, way[0] if case.climbs(way) else way[1])
    return 1.0 if isinf(down) or isinf(up) else down / up


def _rates(case: Case, switch: str) -> tuple[float, float]:
    """Return the total rates of a switch's links down and up in bits/s; infinite if one of them is unlimited."""
    down = up = 0.0
    for node in case.topology.neighbours(switch).values():
        if case.tier(node) > case.tier(switch):
            up += case.usual_rate((switch, node))
        else:
            down += case.usual_rate((switch, node))
    return down, up
