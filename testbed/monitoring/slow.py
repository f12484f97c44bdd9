"""Explains what makes a job slow that makes progress: a late worker, a full link, losses, the machine, or its own work.

The workers send when they entered and left each call (workers/job/calls.py). All workers end a call at about the same
time. So the time from the end of one call to the end of the next has three parts: all compute, the others wait for the
last worker, and data moves. A link that is full while data moves is a limit; one that is full on average, too.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from fanin.controller.jobs.reports import CallTime
from fanin.testbed.monitoring.snapshot import JobView, Snapshot, per_second
from fanin.topologies.units import RATES, quantity_text

Cause = Literal[
    "straggler", "slow link", "full link", "loss", "this machine", "latency", "waiting", "computing"
]
Span = tuple[float, float]  # from and to

_NAMED = 0.1  # share of the time that a cause must cost to be named
_FULL = 0.8  # share of its rate at which a link is full; headers of the emulated links are not counted
# A link that is this many times as full as the median one is the limit from a smaller share on: in bursts, and between
# snapshots, a full link is measured below its rate.
_TWICE, _FULLER = 2.0, 0.5
_SLOWED = 0.8  # share of the rate of its neighbours, or of its own before, below which a link is slow
_BUSY = 0.9  # utilization of processors from which they are the limit
_STANDS_OUT = 0.5  # share of all waiting for the last worker that one worker must cause
_FEW = 3  # calls, fewer of which show nothing


@dataclass(frozen=True, slots=True)
class RankTimes:
    """Times of one worker. Shares are those of the observed time.

    Attributes:
        rank: Its number.
        host: Its host.
        process: Its process id.
        computing: Share in which it was in no call.
        exposed: Share in which its program waited for calls. If `estimated`, it is at most this.
        hidden: Share in which calls were carried out while its program computed.
        estimated: Whether some calls ran in the background, and when the program waited for them is not known.
        last: Number of calls to which it came last.
        late_seconds: By how much it then came after the median of the others, in total.
    """

    rank: int
    host: str
    process: int
    computing: float
    exposed: float
    hidden: float
    estimated: bool
    last: int
    late_seconds: float


@dataclass(frozen=True, slots=True)
class CallGroup:
    """Calls of the same operation, type and size, such as those of one bucket.

    Attributes:
        what: The call.
        count: How many there were.
        waiting_seconds: Mean time for which the others waited for the last worker.
        moving_seconds: Mean time from the last worker's call to the end.
        share: Share of the observed time of both.
    """

    what: str
    count: int
    waiting_seconds: float
    moving_seconds: float
    share: float


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Load of one direction of a link.

    Attributes:
        name: Its ends.
        bits_per_second: What it carried, on average over the observed time.
        rate: Its current rate in bits/s.
        built_rate: The rate with which the network was built, in bits/s; None was unlimited.
        used: Share of the current rate, on average.
        moving: Share of the current rate while data of the job moved; at most 1.
    """

    name: str
    bits_per_second: float
    rate: int
    built_rate: int | None
    used: float
    moving: float


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


@dataclass(frozen=True, slots=True)
class _Call:
    """One call, as all workers made it. Times are in seconds.

    Attributes:
        number: Its number.
        what: The call, shortened.
        spans: From when to when each rank may compute and carry it out: from the end of its previous call to the end.
        last: The rank that came last.
        late: How much later it came than the median of the others because of what it did before.
        moving: Time from then to the end at the last rank.
        period: Time from the end of the previous call to the end of this one.
    """

    number: int
    what: str
    spans: Sequence[Span]
    last: int
    late: float
    moving: float
    period: float


def _calls(by_rank: Sequence[Mapping[int, CallTime]], since: float) -> Iterator[_Call]:
    """Yield the calls that have ended since `since` and whose previous call is known, too."""
    common = sorted(set.intersection(*(set(calls) for calls in by_rank))) if by_rank else []
    recent = [n for n in common if max(calls[n].ended for calls in by_rank) > since]
    for previous, number in itertools.pairwise(recent):
        if number != previous + 1:
            continue
        before, now = ([calls[n] for calls in by_rank] for n in (previous, number))
        last = max(range(len(now)), key=lambda rank: now[rank].began)
        # A rank behind a slow link gets its result later than others, and therefore comes later to the next call.
        late = _lag([each.began for each in now], last) - max(
            0.0, _lag([each.ended for each in before], last)
        )
        ended = max(each.ended for each in now)
        period = ended - max(each.ended for each in before)
        late = min(max(0.0, late), period)
        moving = min(ended - now[last].began, period - late)
        spans = [(a.ended, b.ended) for a, b in zip(before, now, strict=True)]
        yield _Call(number, now[0].what, spans, last, late, moving, period)


def _lag(times: Sequence[float], rank: int) -> float:
    """Return by how much the time of one rank lies after the median of the others."""
    others = [time for other, time in enumerate(times) if other != rank]
    return times[rank] - median(others) if others else 0.0


def explain_slow(
    job: JobView,
    times: Sequence[Sequence[CallTime]],
    now: Snapshot,
    before: Snapshot,
    processors: float | None = None,
) -> Slowness:
    """Explain what a job spends its time on.

    Args:
        job: The job.
        times: Times of the last calls of its workers, by rank.
        now: Snapshot of the network, taken with `times`.
        before: A snapshot some seconds before. Calls that ended before it are left out.
        processors: Utilization of this machine's processors between the two; None if it is not known.
    """
    if len(times) != len(job.workers):
        why = "workers have just come or gone: try again"
        return Slowness(0.0, 0, 0.0, 0.0, 0.0, (), (), (), "", (), why)
    by_rank = [{each.number: each for each in calls} for calls in times]
    calls = list(_calls(by_rank, before.at))
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
    ranks = tuple(_ranks(job, by_rank, calls))
    links = tuple(sorted(_loads(job, now, before, moving), key=lambda link: -link.moving))
    found = _Causes(job, ranks, links, late, moving, len(calls), seconds)
    causes = sorted(found.causes(now, before, processors), key=lambda cause: -cause.share)
    return Slowness(
        seconds,
        len(calls),
        max(0.0, 1 - late - moving),
        late,
        moving,
        ranks,
        tuple(_groups(calls, seconds)),
        links,
        _summary(causes),
        tuple(causes),
    )


_AT_WORKERS = frozenset({"straggler", "waiting", "computing"})


def _summary(causes: Sequence[SlowCause]) -> str:
    """Return the causes in a sentence, the most costly first."""
    said = [f"{cause.share:.0%} of the time, {cause.headline}" for cause in causes]
    at_workers = {cause.cause in _AT_WORKERS for cause in causes}
    # Data moves only once the last rank has come.
    adds = ": the one does not cause the other, so both times add up" if len(at_workers) == 2 else ""
    return f"About {', and about '.join(said)}{adds}."


def _ranks(
    job: JobView,
    by_rank: Sequence[Mapping[int, CallTime]],
    calls: Sequence[_Call],
) -> Iterator[RankTimes]:
    last: defaultdict[int, list[float]] = defaultdict(list)
    for call in calls:
        last[call.last].append(call.late)
    for rank, worker in enumerate(job.workers):
        mine = [by_rank[rank][call.number] for call in calls]
        spans = [call.spans[rank] for call in calls]
        whole = sum(end - begin for begin, end in spans) or 1.0
        busy = _cut(_union((each.began, each.ended) for each in mine), spans)
        exposed = _cut(_union(_exposed(mine)), spans)
        estimated = not all(map(_is_known, _overlapping(mine)))
        yield RankTimes(
            rank,
            worker.host,
            worker.process,
            max(0.0, 1 - busy / whole),
            exposed / whole,
            max(0.0, busy - exposed) / whole,
            estimated,
            len(last[rank]),
            sum(last[rank]),
        )


def _exposed(calls: Sequence[CallTime]) -> Iterator[Span]:
    """Yield when the program waited for its calls."""
    for group in _overlapping(calls):
        if _is_known(group):
            yield from (
                (max(one.waited, one.submitted), one.ended) for one in group if one.waited is not None
            )
        else:
            yield group[-1].submitted, group[-1].ended


def _is_known(group: Sequence[CallTime]) -> bool:
    """Return whether it is known when the program waited for calls that were under way together.

    It is not where PyTorch waits in C++, as DDP does. Until a program has made the last of such calls, it computes;
    then it has nothing to do before the results, or is taken to have nothing.
    """
    return any(one.waited is not None for one in group)


def _overlapping(calls: Sequence[CallTime]) -> Iterator[Sequence[CallTime]]:
    """Yield groups of calls, each of which was made before the previous one had ended."""
    group: list[CallTime] = []
    for call in calls:
        if group and call.submitted >= group[-1].ended:
            yield group
            group = []
        group.append(call)
    if group:
        yield group


def _union(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        elif begin < end:
            found.append((begin, end))
    return found


def _cut(spans: Sequence[Span], within: Sequence[Span]) -> float:
    """Return the seconds of `spans` that lie in one of `within`."""
    return sum(max(0.0, min(end, b) - max(begin, a)) for begin, end in spans for a, b in within)


def _groups(calls: Sequence[_Call], seconds: float) -> list[CallGroup]:
    by_what: defaultdict[str, list[_Call]] = defaultdict(list)
    for call in calls:
        by_what[call.what].append(call)
    found = []
    for what, same in by_what.items():
        waiting = sum(call.late for call in same)
        moving = sum(call.moving for call in same)
        count = len(same)
        found.append(CallGroup(what, count, waiting / count, moving / count, (waiting + moving) / seconds))
    return sorted(found, key=lambda group: -group.share)


def _loads(job: JobView, now: Snapshot, before: Snapshot, moving: float) -> Iterator[LinkLoad]:
    """Yield how full the links are, without those of hosts outside of the job."""
    mine = {*job.hosts, *now.switches}
    for link, then in zip(now.links, before.links, strict=True):
        carried = per_second(link.bytes, then.bytes, now.at - before.at)
        if carried is not None and link.rate and {link.sender, link.receiver} <= mine:
            used = 8 * carried / link.rate
            at_work = min(1.0, used / moving) if moving else used
            yield LinkLoad(link.name, 8 * carried, link.rate, link.built_rate, used, at_work)


@dataclass(frozen=True, slots=True)
class _Causes:
    """The tests for causes, with what they use."""

    job: JobView
    ranks: Sequence[RankTimes]
    links: Sequence[LinkLoad]
    waiting: float
    moving: float
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
        if self.moving >= _NAMED and not {"slow link", "full link", "loss"} & {one.cause for one in known}:
            known.append(self._machine(processors) or self._latency(processors))
        computing = 1 - self.waiting - self.moving
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
    def _latest(self) -> RankTimes:
        """Return the rank for which the others waited longest."""
        return max(self.ranks, key=lambda rank: rank.late_seconds)

    def _delays(self, link: LinkLoad) -> bool:
        """Return whether a full link is the reason why the rank behind it comes late.

        It is if it is full while no data of the job moves, too: then it carries something else that the rank sends or
        gets between its calls.
        """
        outside = (link.used - self.moving) / (1 - self.moving) if self.moving < 1 else 0.0
        return self._latest.host in link.name.split(" → ") and self.waiting >= _NAMED and outside >= _FULLER

    def _straggler(self, *, alone: bool) -> SlowCause | None:
        """Look for a rank that comes late; `alone`: nothing in the network is a cause."""
        total = sum(rank.late_seconds for rank in self.ranks)
        worst = self._latest
        if not total:
            return None
        each = 1e3 * worst.late_seconds / max(1, worst.last)
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
            f"{who} came last in {came}, while the others waited",
            f"find out what {worst.host} does between its calls (data loader, another process, a slower processor)"
            + ("; the network is not the limit" if alone else ""),
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
        ends = most.name.replace(" → ", " ")
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
        return SlowCause(
            "full link",
            share,
            headline,
            evidence,
            "send less (compression=, fewer steps without an update), overlap more of it with computation "
            "(async_op=True, DDP's buckets), or use faster links",
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

    def _machine(self, processors: float | None) -> SlowCause | None:
        if processors is None or processors < _BUSY:
            return None
        return SlowCause(
            "this machine",
            self.moving,
            "this machine's processors are the limit",
            f"this machine's processors were busy for {processors:.0%} of the time, {self._fullest()}",
            "use fewer workers or slower links: the emulated switches and the workers share these processors",
        )

    def _latency(self, processors: float | None) -> SlowCause:
        each = 1e3 * self.moving * self.seconds / self.calls
        busy = "" if processors is None else f", and processors for {processors:.0%}"
        return SlowCause(
            "latency",
            self.moving,
            "calls wait for latencies",
            f"a call takes {each:,.3g} ms after the last worker has come, but {self._fullest()}{busy}",
            "make fewer and larger calls (DDP: raise bucket_cap_mb; fanin: pass a list of arrays), or more slots "
            "(fanin launch --slots)",
        )

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
