"""Flows whose hash puts them on the same one of several paths."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Busy, Case, percent
from fanin.experiments.diagnosis.finding import Finding


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
    return Finding(
        "collision",
        case.relief(case.own, even),
        f"{case.links[way].name} was busy for {percent(case.own[way])} of the time, but would be for only "
        f"{percent(even[way])} if flows were spread evenly: {', '.join(others)}",
        "set paths = 'spray' or 'adaptive', or more flows_per_pair; fanin paths shows which flows share a link",
    )


def _mean(case: Case, way: tuple[str, str]) -> float:
    """Return the mean load of the links that could share the load of this one."""
    own: Busy = case.own
    siblings = case.siblings(way)
    return sum(own.get(one, 0.0) for one in siblings) / len(siblings)
