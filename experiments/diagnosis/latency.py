"""Vectors so small that the way through the network takes longer than sending them."""

from __future__ import annotations

from fanin.controller.tree import SLOTS
from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding
from fanin.experiments.models.prediction import predicted_seconds
from fanin.topologies.units import BYTES, quantity_text

# Share of the time for which links send, above which larger vectors would not help much.
_SENDING = 0.15


def latency(case: Case) -> Finding | None:
    """Look for all-reduces whose time the analytical model explains, but not by their bytes."""
    settings, busiest = case.settings, max(case.busy.values())
    if settings.size is None or case.computing is not None or busiest >= _SENDING:
        return None
    unlimited = predicted_seconds(settings, settings.size, SLOTS)
    if unlimited is None:
        return None
    share = min(1.0, unlimited / case.step_seconds) - busiest
    alone = 1e6 * case.step_seconds * busiest
    return Finding(
        "latency",
        max(0.0, share),
        f"an all-reduce of {quantity_text(settings.size, BYTES)} takes {1e6 * case.step_seconds:,.1f} us, of which the "
        f"busiest link, {case.busiest.name}, sends for {alone:,.1f} us ({percent(busiest)}); the rest are latencies",
        "sum several vectors in one call (size; a list of arrays; DDP: raise bucket_cap_mb), or choose an algorithm "
        "with fewer steps (algorithm = 'in-network' or 'halving-doubling')",
    )
