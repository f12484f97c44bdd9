"""Communication that delays workers although nothing is wrong with it."""

from __future__ import annotations

from fanin.experiments.diagnosis.case import Case, percent
from fanin.experiments.diagnosis.finding import Finding


def communication(case: Case) -> Finding | None:
    """Measure the time in which workers neither compute nor wait for data or for a slower worker."""
    if case.computing is None:
        return None
    busiest, exposed = case.busiest, case.exposed
    share = case.busy[busiest.near, busiest.far]
    cut = case.settings.parallelism
    fewer = (
        "" if cut is None or cut.tensor == 1 else ", or tensor groups of fewer workers (parallelism.tensor)"
    )
    limit = "bytes" if share >= exposed / 2 else "latencies"
    return Finding(
        "communication",
        exposed,
        f"for {percent(exposed)} of the time even the slowest worker only waits for sums; the busiest link, "
        f"{busiest.name}, sends for {percent(share)} of the time, so mostly {limit} set it",
        "let workers compute more for each sum (larger batches, gradient accumulation), send less (compression), or "
        "use " + ("faster links" if limit == "bytes" else "shorter paths and fewer, larger sums") + fewer,
    )
