"""The diagnosis of a run: the likely causes of its slowness, the most costly first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pydantic import ValidationError

from fanin.experiments.diagnosis.case import MOSTLY, THRESHOLD, Case, percent
from fanin.experiments.diagnosis.finding import Cause, Finding
from fanin.experiments.diagnosis.network_causes import (
    collision,
    deadlock,
    noisy_neighbour,
    oversubscription,
    pause_storm,
    priority_inversion,
    slot_collisions,
    slow_link,
    this_machine,
)
from fanin.experiments.diagnosis.packet_causes import (
    congestion_marks,
    duplicates,
    loss,
    reordering,
    spurious_retransmissions,
)
from fanin.experiments.diagnosis.size_causes import buckets, idle_without, latency, window
from fanin.experiments.diagnosis.worker_causes import (
    communication,
    data_loader,
    pipeline_bubble,
    straggler,
    waiting,
)
from fanin.experiments.results.measured import Row, idle_share_and_step
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings

_Test = Callable[[Case], Finding | None]

# Causes in the network, which cost at most the time for which workers wait for it.
NETWORK_TESTS: tuple[_Test, ...] = (
    this_machine,
    slow_link,
    noisy_neighbour,
    oversubscription,
    collision,
    pause_storm,
    priority_inversion,
    loss,
    reordering,
    duplicates,
    spurious_retransmissions,
    congestion_marks,
    window,
    slot_collisions,
    latency,
    buckets,
)
# Other causes have these two as consequences: packets that wait in queues are marked, and timers end before their
# answers come. So they cost what others do not explain. Their shares leave out latencies already.
_CONSEQUENCES: tuple[Cause, ...] = ("spurious retransmissions", "congestion marks")
WORKER_TESTS: tuple[_Test, ...] = (straggler, data_loader, pipeline_bubble)

# Causes that live counts do not show (experiments/live/usage.py).
UNSEEN_LIVE: tuple[Cause, ...] = ("slow link", "pause storm", "priority inversion")

IDLE = 0.2  # share of the time for which workers may idle without a cause
_MENTIONED = 0.05  # a cause that costs less than THRESHOLD, but this, is mentioned; losses always are


class DiagnosisError(ValueError):
    """A run that cannot be diagnosed; the message explains why, and what to do."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of a diagnosis.

    Attributes:
        findings: The causes, the most costly first, and what they leave last; empty if nothing is wrong.
        minor: Causes that cost too little to be worth a change, the most costly first.
        unseen: Causes that the measurements of a live run cannot show.
        limit: A sentence about what determined the time, such as the busiest link.
        unexplained: The share of the time that neither bytes nor latencies nor computing explain.
    """

    findings: tuple[Finding, ...]
    limit: str
    minor: tuple[Finding, ...] = ()
    unseen: tuple[Cause, ...] = ()
    unexplained: float = 0.0

    @property
    def cause(self) -> str:
        """Return the most costly cause, or "nothing wrong".

        It is "cannot tell live" if a cause that a live run cannot show may cost enough to be named.
        """
        if self.findings:
            return self.findings[0].cause
        return "cannot tell live" if self.unseen and self.unexplained >= IDLE else "nothing wrong"


def diagnose(row: Row, usage: Usage | None, compute: float | None = None) -> Diagnosis:
    """Diagnose one run.

    Args:
        row: The run's row of results.
        usage: The counts of its links and workers; None if there are none.
        compute: Seconds of computing between two all-reduces, for rows that do not measure it; None if not known.

    Raises:
        DiagnosisError: If the run failed, or its results lack what is needed.
    """
    if stuck := deadlock(row):
        return Diagnosis((stuck,), "links waited for one another")
    if row.get("error") is not None:
        raise DiagnosisError(f"the run failed: {row['error']}")
    try:
        settings = Settings.model_validate_json(row["settings"])
    except (KeyError, ValidationError) as error:
        raise DiagnosisError(f"its settings cannot be read; run the scenario again: {error}") from None
    for name in ("arrivals", "serving"):
        if getattr(settings, name) is not None:
            raise DiagnosisError(
                f"it has a table {name}, and only runs of a single job are diagnosed; its times are in the results"
            )
    if usage is None or not usage.links or not usage.workers:
        raise DiagnosisError(
            "the results have no counts of links and workers (links.parquet, workers.parquet); run the scenario again"
        )
    case = Case(settings, row, usage)
    # While a pipeline fills and drains, nobody waits for the network.
    bubble = pipeline_bubble(case)
    most = max(0.0, case.exposed - (bubble.share if bubble else 0.0))
    network = [
        replace(finding, share=min(finding.share, most)) for test in NETWORK_TESTS if (finding := test(case))
    ]
    for cause in _CONSEQUENCES:
        others = sum(finding.share for finding in network if finding.cause not in (cause, "latency"))
        network = [
            replace(finding, share=max(0.0, finding.share - others)) if finding.cause == cause else finding
            for finding in network
        ]
    found = [*network, *(finding for test in WORKER_TESTS if (finding := test(case)))]
    found.sort(key=lambda finding: -finding.share)
    findings = [finding for finding in found if finding.share >= THRESHOLD]
    minor = [
        finding
        for finding in found
        if finding not in findings and (finding.share >= _MENTIONED or finding.cause == "loss")
    ]
    # Idle workers are never called right, whether or not a cause is known.
    named = sum(finding.share for finding in findings)
    rest = communication(case)
    if rest is not None and (case.idle or 0.0) - named >= IDLE:
        left = idle_without(case, (*findings, *minor), (case.idle or 0.0) - named)
        rest = replace(rest, share=min(rest.share, left))
        if not findings and minor and (left < IDLE or minor[0].share >= rest.share):
            findings.append(minor.pop(0))
        elif not findings or (left >= IDLE and rest.share >= THRESHOLD):
            # After the causes that cost much, since it is what they leave.
            findings.insert(sum(finding.share >= IDLE for finding in findings), rest)
    elif not findings and case.explained < MOSTLY:
        findings.append(_unexplained(case))
    elif not findings and case.computing is None:
        idle, _ = idle_share_and_step(row, compute)
        if idle is not None and compute is not None and idle >= IDLE:
            findings.append(waiting(case, compute, idle))
    limit = case.busiest_text
    if case.computing is not None:
        limit = f"workers computed for {percent(case.computing.mean() / case.seconds)} of the time; {limit}"
    unseen = UNSEEN_LIVE if settings.world == "live" else ()
    return Diagnosis(tuple(findings), limit, tuple(minor), unseen, 1 - case.explained)


def _unexplained(case: Case) -> Finding:
    live = case.settings.world == "live"
    if not case.explained:
        return Finding(
            "unexplained",
            1.0,
            "neither bytes nor latencies explain any of the time, as no link has a rate",
            'give the links a rate (rate, or --set "rate=100 Gb/s")',
        )
    return Finding(
        "unexplained",
        1 - case.explained,
        f"bytes and latencies explain {percent(case.explained)} of the time, {1 / case.explained:,.1f} times of which "
        "it took" + (f"; a live run cannot show whether it was a {', a '.join(UNSEEN_LIVE)}" if live else ""),
        "run the scenario in virtual time (world = 'virtual'), which counts queues and pauses, or watch a live job "
        "with fanin why --slow"
        if live
        else "compare the run with one of fewer workers or larger vectors, and report it",
    )
