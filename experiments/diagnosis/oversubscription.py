"""Links between switches that together carry less than what hosts below can send."""

from __future__ import annotations

from math import isinf

from fanin.experiments.diagnosis.case import Case, Direction, percent
from fanin.experiments.diagnosis.finding import Finding
from fanin.topologies.units import RATES, quantity_text


def oversubscription(case: Case) -> Finding | None:
    """By busy links above a switch whose links down have a higher rate in all than those up."""
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
        f"{percent(at_hosts)}; below {switch} links have {quantity_text(round(down), RATES)} in all, above it "
        f"{quantity_text(round(up), RATES)}",
        "more or faster uplinks, a placement with fewer workers on each leaf, or in-network aggregation, which "
        "sends one vector up in the place of many",
    )


def _ratio(case: Case, way: Direction) -> float:
    down, up = _rates(case, way[0] if case.climbs(way) else way[1])
    return 1.0 if isinf(down) or isinf(up) else down / up


def _rates(case: Case, switch: str) -> tuple[float, float]:
    """Of all links of a switch, down and up, in bits/s; infinite, if one is unlimited."""
    down = up = 0.0
    for node in case.topology.neighbours(switch).values():
        if case.tier(node) > case.tier(switch):
            up += case.usual_rate((switch, node))
        else:
            down += case.usual_rate((switch, node))
    return down, up
