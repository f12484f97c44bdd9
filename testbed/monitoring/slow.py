"""Explains what makes a job slow that makes progress: a late worker, a full link, losses, the machine, or its own work.

A link that is full while data moves is a limit (call_times.py); one that is full on average, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

from fanin.controller.jobs.reports import CallTime
from fanin.testbed.monitoring.call_times import (
    Activity,
    CallGroup,
    LinkLoad,
    RankTimes,
    calls_of,
    groups_of,
    loads_of,
    others_of,
    ranks_of,
)
from fanin.testbed.monitoring.snapshot import JobView, Snapshot
from fanin.topologies.units import RATES, quantity_text

Cause = Literal[
    "straggler",
    "slow link",
    "full link",
    "noisy neighbour",
    "loss",
    "this machine",
    "latency",
    "small buckets",
    "no overlap",
    "data loader",
    "waiting",
    "computing",
]

# Causes that neither calls nor counts of links show: which flows share a link, why a switch sends nothing, and what the
# calls of a pipeline are for.
UNSEEN = ("collision", "pause storm", "priority inversion", "pipeline bubble")

_NAMED = 0.1  # share of the time that a cause must cost to be named
_FULL = 0.8  # share of its rate at which a link is full; headers of the emulated links are not counted
# A link that is this many times as full as the median one is the limit from a smaller share on: in bursts, and between
# snapshots, a full link is measured below its rate.
_TWICE, _FULLER = 2.0, 0.5
_SLOWED = 0.8  # share of the rate of its neighbours, or of its own before, below which a link is slow
_BUSY = 0.9  # utilization of processors from which they are the limit
_STANDS_OUT = 0.5  # share of all waiting for the last worker that one worker must cause
_FOREIGN = 0.2  # share of what a full link carries that others must send to be named
_LOUDEST = 3  # senders that are named
_WORTH = 0.2  # share of the time that more overlap must save to be worth a change
_OVERLAPPED = 0.25  # share of the time in which data moves that must be hidden, or there is no overlap
_MANY = 4  # calls in a step from which they are buckets
_SMALL = 16 * 1024  # bytes up to which a call takes hardly longer than one of a packet
_FEW = 3  # calls, fewer of which show nothing


@dataclass(frozen=True, slots=True)
class SlowCause:
    """A cause of slowness.

    Attributes:
        cause: Its name.
        share: Share of the observed time that it costs.
        headline: What happens in this time, in a few words.
        evidence: What shows it.
        change: What to change.
    """

    cause: Cause
    share: float
    headline: str
    evidence: str
    change: str


@dataclass(frozen=True, slots=True)
class Slowness:
    """Shares of the time that a job spent on each activity.

    Attributes:
        seconds: Observed time, from the end of the first call to the end of the last one.
        calls: Number of calls in it.
        computing: Share in which no worker was in a call, or all before the last came.
        waiting: Share in which workers waited for the last one.
        moving: Share in which data moved.
        ranks: The workers, by rank.
        groups: The calls by size, the most costly first.
        links: Links with a rate, the fullest first.
        summary: The causes in one sentence, and how they depend on each other; "" if nothing is known.
        causes: The causes, the most costly first.
        unknown: Why nothing is known, or "".
    """

    seconds: float
    calls: int
    computing: float
    waiting: float
    moving: float
    ranks: tuple[RankTimes, ...]
    groups: tuple[CallGroup, ...]
    links: tuple[LinkLoad, ...]
    summary: str
    causes: tuple[SlowCause, ...]
    unknown: str = ""


def explain_slow(
    job: JobView,
    times: Sequence[Sequence[CallTime]],
    now: Snapshot,
    before: Snapshot,
    processors: float | None = None,
    activity: Sequence[Activity | None] | None = None,
) -> Slowness:
    """Explain what a job spends its time on.

    Args:
        job: The job.
        times: Times of the last calls of its workers, by rank.
        now: Snapshot of the network, taken with `times`.
        before: A snapshot some seconds before. Calls that ended before it are left out.
        processors: Utilization of this machine's processors between the two; None if it is not known.
        activity: What each worker's process did between the two; None if it is not known.
    """
    if len(times) != len(job.workers):
        why = "workers have just come or gone: try again"
        return Slowness(0.0, 0, 0.0, 0.0, 0.0, (), (), (), "", (), why)
    by_rank = [{each.number: each for each in calls} for calls in times]
    calls = list(calls_of(by_rank, before.at))
    if len(calls) < _FEW:
        silent = [job.named(worker) for worker, known in zip(job.workers, times, strict=True) if not known]
        who = f"; nothing has come from {', '.join(silent)}" if silent else ""
        why = (
            f"{len(calls)} calls have ended at all workers within {now.at - before.at:.0f} s{who}: use a longer "
            "--interval, or `fanin why` without --slow if the job stands still"
        )
        return Slowness(0.0, len(calls), 0.0, 0.0, 0.0, (), (), (), "", (), why)
    seconds = sum(call.period for call in calls)
    late, moving = (sum(getattr(call, what) for call in calls) / seconds for what in ("late", "moving"))
    ranks = tuple(ranks_of(job, by_rank, calls, activity or [None] * len(times)))
    links = tuple(sorted(loads_of(job, now, before, moving), key=lambda link: -link.moving))
    groups = groups_of(calls, by_rank, seconds)
    others = others_of(job, now, before)
    found = _Causes(job, ranks, links, others, late, moving, groups, len(calls), seconds)
    causes = sorted(found.causes(now, before, processors), key=lambda cause: -cause.share)
    return Slowness(
        seconds,
        len(calls),
        max(0.0, 1 - late - moving),
        late,
        moving,
        ranks,
        tuple(groups),
        links,
        _summary(causes),
        tuple(causes),
    )


_LATE = frozenset({"straggler", "waiting"})
_NETWORK = frozenset({"slow link", "full link", "noisy neighbour", "loss"})


def _summary(causes: Sequence[SlowCause]) -> str:
    """Return the causes in a sentence, the most costly first, and whether their times add up."""
    said = [f"{cause.share:.0%} of the time, {cause.headline}" for cause in causes]
    names = {cause.cause for cause in causes}
    # Data moves only once the last rank has come.
    adds = (
        " The late ranks and the network do not cause each other: their times add up."
        if names & _LATE and names & _NETWORK
        else ""
    )
    return f"About {'; about '.join(said)}.{adds}"


@dataclass(frozen=True, slots=True)
class _Causes:
    """The tests for causes, with what they use."""

    job: JobView
    ranks: Sequence[RankTimes]
    links: Sequence[LinkLoad]
    others: Mapping[str, float]
    waiting: float
    moving: float
    groups: Sequence[CallGroup]
    calls: int
    seconds: float

    def causes(self, now: Snapshot, before: Snapshot, processors: float | None) -> list[SlowCause]:
        link = self._fullest_link()
        behind = link is not None and self._delays(link)
        full = None if link is None else self._full_link(link, behind=behind)
        network = [full, self._loss(now, before)]
        known = [cause for cause in network if cause is not None and cause.share >= _NAMED]
        straggler = None if behind else self._straggler(alone=not known)
        if straggler is not None and straggler.share >= _NAMED:
            known.append(straggler)
        known += [cause for cause in (self._data_loader(), self._no_overlap()) if cause is not None]
        if self.moving >= _NAMED and not _NETWORK & {one.cause for one in known}:
            known.append(self._small_calls(processors))
        computing = self._computing - self._idle
        if not known or computing > max(cause.share for cause in known):
            known.append(
                SlowCause(
                    "computing",
                    computing,
                    "the workers compute",
                    f"workers compute for {computing:.0%} of the time, in which no data moves and nobody waits",
                    "make the computation faster, or look at the data loader: communication costs "
                    f"{1 - computing:.0%} of the time at most",
                )
            )
        return known

    @property
    def _computing(self) -> float:
        return max(0.0, 1 - self.waiting - self.moving)

    @property
    def _idle(self) -> float:
        """Return the share in which the median worker was outside of calls and used no processor; 0 if not known."""
        return median(rank.idle or 0.0 for rank in self.ranks)

    @property
    def _latest(self) -> RankTimes:
        """Return the rank for which the others waited longest."""
        return max(self.ranks, key=lambda rank: rank.late_seconds)

    def _delays(self, link: LinkLoad) -> bool:
        """Return whether a full link is the reason why the rank behind it comes late.

        It is if it is full while no data of the job moves, too: then it carries something else that the rank sends or
        gets between its calls.
        """
        outside = (link.used - self.moving) / (1 - self.moving) if self.moving < 1 else 0.0
        return (
            self._latest.host in (link.sender, link.receiver)
            and self.waiting >= _NAMED
            and outside >= _FULLER
        )

    def _straggler(self, *, alone: bool) -> SlowCause | None:
        """Look for a rank that comes late; `alone`: nothing in the network is a cause."""
        total = sum(rank.late_seconds for rank in self.ranks)
        worst = self._latest
        if not total:
            return None
        each = 1e3 * worst.late_seconds / max(1, worst.last)
        idle = (worst.idle or 0.0) - self._idle
        waits = f"; its process used no processor for {worst.idle:.0%} of the time" if idle >= _NAMED else ""
        does, usually = (
            ("waits for", "its data, a disk, a GPU")
            if waits
            else ("does", "more work, garbage collection, another process, a slower processor")
        )
        who = f"rank {worst.rank} (process {worst.process} on {worst.host})"
        came = f"{worst.last} of {self.calls} calls, by {each:,.3g} ms on average"
        if worst.late_seconds < _STANDS_OUT * total or self.waiting < _NAMED:
            return SlowCause(
                "waiting",
                self.waiting,
                "ranks wait for one another",
                f"the others wait for the last rank, which differs from call to call; {who} was the last in {came}",
                "give all ranks the same work (batch size, sequence length, data loader) and the same processors",
            )
        return SlowCause(
            "straggler",
            worst.late_seconds / self.seconds,
            f"the others wait for rank {worst.rank} on {worst.host}",
            f"{who} came last in {came}, while the others waited{waits}",
            f"find out what {worst.host} {does} between its calls ({usually})"
            + ("; the network is not the limit" if alone else ""),
        )

    def _data_loader(self) -> SlowCause | None:
        """Look for time in which workers neither call nor use a processor."""
        share = self._idle
        if share < _NAMED:
            return None
        loading = median(rank.loading or 0.0 for rank in self.ranks)
        also = f", while its child processes use one for {loading:.0%}" if loading >= _NAMED else ""
        return SlowCause(
            "data loader",
            share,
            "workers wait for their data, a disk or a GPU",
            f"the median worker is outside of calls for {share:.0%} of the time without using a processor{also}",
            "load data in the background (PyTorch's DataLoader: num_workers, prefetch_factor, pin_memory) or from a "
            "faster disk; if workers compute on a GPU, this is that time",
        )

    def _no_overlap(self) -> SlowCause | None:
        """Look for data that moves while workers could compute."""
        hidden = fmean(rank.hidden for rank in self.ranks)
        share = min(self._computing, self.moving - hidden)
        if share < _WORTH or hidden > _OVERLAPPED * self.moving:
            return None
        most = max(self.groups, key=lambda group: group.exposed)
        return SlowCause(
            "no overlap",
            share,
            "data moves while workers could compute",
            f"data moves for {self.moving:.0%} of the time, of which {hidden:.0%} while workers compute; they "
            f"compute for {self._computing:.0%}, and wait longest in calls of {most.what}, {most.exposed:.0%}",
            "begin calls while the program still computes (async_op=True; DDP: several buckets, lower bucket_cap_mb)",
        )

    @property
    def _full_links(self) -> list[LinkLoad]:
        among = median(link.moving for link in self.links) if self.links else 0.0
        return [
            link for link in self.links if link.moving >= (_FULL if link.moving < _TWICE * among else _FULLER)
        ]

    def _fullest_link(self) -> LinkLoad | None:
        """Return the slowest of the full links; None if no link is full."""
        return min(self._full_links, key=lambda link: (link.rate, -link.moving), default=None)

    def _full_link(self, most: LinkLoad, *, behind: bool) -> SlowCause:
        """Return the cause for a full link; `behind`: the rank behind it comes late because of it."""
        usual = median(link.rate for link in self.links)
        rate, others = quantity_text(most.rate, RATES), len(self._full_links) - 1
        also = f"; also full: {others} other {'direction' if others == 1 else 'directions'}" if others else ""
        evidence = (
            f"{most.name} carried {most.bits_per_second / 1e6:,.4g} of {rate} on average, {most.moving:.0%} of its "
            f"rate while data moved{also}"
        )
        share = self.moving * most.moving
        if behind:
            late = self._latest
            share += late.late_seconds / self.seconds
            evidence += f"; it is full between calls, too, so rank {late.rank} on {late.host} comes late because of it"
        ends = f"{most.sender} {most.receiver}"
        headline = f"{most.name} is the limit ({rate})"
        if most.built_rate is None or most.rate < _SLOWED * most.built_rate:
            built = "no limit" if most.built_rate is None else quantity_text(most.built_rate, RATES)
            # Without a space, as a shell takes it.
            restore = "--clear" if most.built_rate is None else f"--set rate={built.replace(' ', '')}"
            return SlowCause(
                "slow link",
                share,
                headline,
                f"{evidence}. The network was built with {built} there",
                f"fix the link, here with `fanin link {ends} {restore}`, or place no worker behind it",
            )
        if most.rate < _SLOWED * usual:
            return SlowCause(
                "slow link",
                share,
                headline,
                f"{evidence}. The median link has {quantity_text(round(usual), RATES)}",
                "fix the link, or place no worker behind it",
            )
        foreign = self._foreign(most)
        if foreign >= _FOREIGN * most.bits_per_second:
            return self._noisy_neighbour(most, share * min(1.0, foreign / most.bits_per_second), evidence)
        return SlowCause(
            "full link",
            share,
            headline,
            evidence,
            "send less (compression=, fewer steps without an update), overlap more of it with computation "
            "(async_op=True, DDP's buckets), or use faster links",
        )

    def _foreign(self, most: LinkLoad) -> float:
        """Return how much of what a link carries is not the job's, in bits/s."""
        if most.sender in self.job.hosts:
            return self.others.get(most.sender, 0.0)
        # A link between switches carries at least what the job's worker on one host sends.
        own = max(
            (
                link.bits_per_second - self.others.get(link.sender, 0.0)
                for link in self.links
                if link.sender in self.job.hosts
            ),
            default=0.0,
        )
        return min(sum(self.others.values()), most.bits_per_second - own)

    def _noisy_neighbour(self, most: LinkLoad, share: float, evidence: str) -> SlowCause:
        senders = [most.sender] if most.sender in self.job.hosts else self.others
        loudest = sorted(senders, key=self.others.__getitem__, reverse=True)[:_LOUDEST]
        who = "; ".join(
            f"{host}, which is outside this job, sends {self.others[host] / 1e6:,.4g} Mb/s"
            if host not in self.job.hosts
            else f"{host} sends {self.others[host] / 1e6:,.4g} Mb/s besides this job's calls"
            for host in loudest
        )
        inside = [host for host in loudest if host in self.job.hosts]
        return SlowCause(
            "noisy neighbour",
            share,
            f"{most.name} is full with other packets, too",
            f"{evidence}; {who}",
            (f"find out which other programs on {' and '.join(inside)} send; " if inside else "")
            + "place the jobs on different leaves, give them separate links, or let links mark packets (ecn_bytes), so "
            "that the jobs share the links",
        )

    def _loss(self, now: Snapshot, before: Snapshot) -> SlowCause | None:
        lost: Counter[str] = Counter()
        for link, then in zip(now.links, before.links, strict=True):
            lost[" - ".join(sorted((link.sender, link.receiver)))] += (link.lost or 0) - (then.lost or 0)
        again = _growth(now, before, self.job.name)
        total = lost.total()
        if total <= 0 or again == 0:
            return None
        (worst, most), *_ = lost.most_common(1)
        alone = 2 * most > total
        where = f"the link {worst}" if alone else f"{len(+lost)} links"
        full = max((link.moving for link in self.links), default=0.0)
        return SlowCause(
            "loss",
            self.moving * (1 - min(1.0, full)) if full < _FULL else 0.0,
            f"packets that {where} {'has' if alone else 'have'} lost are missing",
            f"links have lost {total:,} packets, "
            + (f"most of them {where}" if alone else f"none of the {where} most of them")
            + ("" if again is None else f"; workers retransmitted {again:,}"),
            f"find out what drops packets on {where} (`fanin top`, `fanin link`)",
        )

    def _small_calls(self, processors: float | None) -> SlowCause:
        """Return what limits calls that fill no link: their number, this machine, or latencies."""
        each = self.moving * self.seconds / self.calls
        # The rarest call is taken to be made once in a step.
        in_a_step = self.calls / min(group.count for group in self.groups)
        limited = processors is not None and processors >= _BUSY
        busy = "" if processors is None else f", and this machine's processors for {processors:.0%}"
        evidence = (
            f"a call takes {1e3 * each:,.3g} ms after the last worker has come, but {self._fullest()}{busy}"
        )
        larger = "make fewer and larger calls (DDP: raise bucket_cap_mb; fanin: pass a list of arrays)"
        carried = each * max((link.moving * link.rate / 8 for link in self.links), default=0.0)
        many = ""
        if in_a_step >= _MANY:
            many = f"there are about {in_a_step:.0f} calls in a step"
        elif limited and 0 < carried <= _SMALL:  # what keeps the processors busy is the number of calls
            often = f"{self.calls / self.seconds:,.0f} calls in a second"
            many = f"there are {often}, with about {carried / 1e3:,.3g} kB each"
        if many:
            headline = "many small calls are made"
            return SlowCause("small buckets", self.moving, headline, f"{many}; {evidence}", larger)
        if limited:
            return SlowCause(
                "this machine",
                self.moving,
                "this machine's processors are the limit",
                evidence,
                "use fewer workers or slower links: the emulated switches and the workers share these processors",
            )
        slots = f"{larger}, or more slots (fanin launch --slots)"
        return SlowCause("latency", self.moving, "calls wait for latencies", evidence, slots)

    def _fullest(self) -> str:
        if not self.links:
            return "no link has a rate"
        most = self.links[0]
        return f"the fullest link, {most.name}, was used to {most.moving:.0%} while data moved"


def _growth(now: Snapshot, before: Snapshot, name: str) -> int | None:
    """Return how many packets the workers of a job have retransmitted between the snapshots; None if not known."""

    def total(look: Snapshot) -> int | None:
        found = [
            worker.report.retransmissions
            for job in look.jobs
            if job.name == name
            for worker in job.workers
            if worker.report
        ]
        return sum(found) if found else None

    after, first = total(now), total(before)
    return None if after is None or first is None else max(0, after - first)
