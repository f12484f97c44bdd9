"""Makes a scenario that fails smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fanin.assurance.soak.scenario import Scenario, Work


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool]) -> Scenario:
    """Return the smallest failing scenario found by removing parts of a failing one while it still fails."""
    while smaller := next((s for s in _smaller(scenario) if s != scenario and fails(s)), None):
        scenario = smaller
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios with a little less in each, the largest steps first."""
    jobs = scenario.jobs
    for i, job in enumerate(jobs):
        if len(jobs) > 1:
            yield replace(scenario, jobs=jobs[:i] + jobs[i + 1 :])
        for less in _less_work(job):
            yield replace(scenario, jobs=(*jobs[:i], less, *jobs[i + 1 :]))
    for i, later in enumerate(scenario.later):
        for less in _less_work(later.work):
            smaller = replace(later, work=less)
            yield replace(scenario, later=(*scenario.later[:i], smaller, *scenario.later[i + 1 :]))
    for name in ("restarts", "registers_lost", "outages", "regrants", "revocations", "later"):
        happens = getattr(scenario, name)
        for i in range(len(happens)):
            yield replace(scenario, **{name: happens[:i] + happens[i + 1 :]})
    of_links: tuple[dict[str, Any], ...] = (
        *({"burst": None}, {"corruption": 0.0}, {"loss": 0.0}, {"duplication": 0.0}, {"reordering": 0.0}),
        *({"pause": None}, {"ecn_bytes": None}, {"queue_bytes": None}, {"jitter": 0.0}),
    )
    if (pause := scenario.links.pause) and pause.watchdog:
        of_links += ({"pause": pause.model_copy(update={"watchdog": None})},)
    for change in of_links:
        yield replace(scenario, links=scenario.links.model_copy(update=change))
    plain: tuple[dict[str, Any], ...] = (
        *(
            {"tiers": 2},
            {"spines": 1},
            {"coalescing": 0.0},
            {"rate": None},
            {"strangers": 0.0},
            {"taps": 0.0},
            {"last_slots": False},
        ),
        *({"descending": False}, {"first_chunk": 0, "descending": False}, {"same_leases": False}),
        *({"planes": 1}, {"rails": 1, "planes": 1}, {"paths": "ecmp"}),
    )
    for change in plain:
        yield replace(scenario, **change)


def _less_work(job: Work) -> Iterator[Work]:
    if len(job.elements) > 1:
        yield replace(job, elements=job.elements[:-1])
    if len(job.racks) > 1 and any(job.racks[:-1]):
        yield replace(job, racks=job.racks[:-1])
    for i, size in enumerate(job.racks):
        if size and job.workers > 1:
            yield replace(job, racks=(*job.racks[:i], size - 1, *job.racks[i + 1 :]))
    for i in range(len(job.stalls)):
        yield replace(job, stalls=job.stalls[:i] + job.stalls[i + 1 :])
    plain: tuple[dict[str, Any], ...] = (
        *({"skew": 0.0}, {"special": False}, {"overflow": False}, {"in_place": False}),
        *({"shards": None}, {"compression": None}, {"priority": 0}),
    )
    for change in plain:
        yield replace(job, **change)
    for i, count in enumerate(job.elements):
        if count > job.values:
            yield replace(job, elements=(*job.elements[:i], count // 2, *job.elements[i + 1 :]))
    if job.window > 1:
        yield replace(job, window=job.window // 2)
