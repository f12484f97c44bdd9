"""The times of a job's calls and the loads of its links, of which `fanin why --slow` and `diagnose --live` find causes.

The workers send when they entered and left each call (workers/job/calls.py). All workers end a call at about the same
time. So the time from the end of one call to the end of the next has three parts: all compute, the others wait for the
last worker, and data moves.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from fanin.controller.jobs.reports import CallTime
from fanin.testbed.monitoring.snapshot import JobView, Snapshot, per_second

# What a host's link carries at most for each byte that a worker counts as sent: headers and acknowledgements add to it.
_HEADERS = 1.5
# Some workers count what they have sent when a call ends, so the bytes of fewer calls say little.
_ENOUGH = 5

Span = tuple[float, float]  # from and to


@dataclass(frozen=True, slots=True)
class Activity:
    """Shares of the time in which a worker's process, and its child processes, used a processor."""

    own: float
    children: float


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
        idle: Share in which its process was outside of calls and did not use a processor; None if it is not known.
        loading: Share in which child processes of it used a processor; None if it is not known.
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
    idle: float | None
    loading: float | None
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
        exposed: Share of the observed time in which programs waited for these calls, on average over the workers.
    """

    what: str
    count: int
    waiting_seconds: float
    moving_seconds: float
    share: float
    exposed: float


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """Load of one direction of a link.

    Attributes:
        name: Its ends, as printed.
        sender: The end that sends.
        receiver: The end that receives.
        bits_per_second: What it carried, on average over the observed time.
        rate: Its current rate in bits/s.
        built_rate: The rate with which the network was built, in bits/s; None was unlimited.
        used: Share of the current rate, on average.
        moving: Share of the current rate while data of the job moved; at most 1.
    """

    name: str
    sender: str
    receiver: str
    bits_per_second: float
    rate: int
    built_rate: int | None
    used: float
    moving: float


@dataclass(frozen=True, slots=True)
class Call:
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


def calls_of(by_rank: Sequence[Mapping[int, CallTime]], since: float) -> Iterator[Call]:
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
        yield Call(number, now[0].what, spans, last, late, moving, period)


def _lag(times: Sequence[float], rank: int) -> float:
    """Return by how much the time of one rank lies after the median of the others."""
    others = [time for other, time in enumerate(times) if other != rank]
    return times[rank] - median(others) if others else 0.0


def ranks_of(
    job: JobView,
    by_rank: Sequence[Mapping[int, CallTime]],
    calls: Sequence[Call],
    activity: Sequence[Activity | None],
) -> Iterator[RankTimes]:
    """Yield the times of each worker.

    Args:
        job: The job.
        by_rank: The times of its calls by their numbers, for each rank.
        calls: The calls.
        activity: What each worker's process did; None if it is not known.
    """
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
        computing, did = max(0.0, 1 - busy / whole), activity[rank]
        yield RankTimes(
            rank,
            worker.host,
            worker.process,
            computing,
            exposed / whole,
            max(0.0, busy - exposed) / whole,
            estimated,
            None if did is None else max(0.0, computing - did.own),
            None if did is None else did.children,
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


def groups_of(
    calls: Sequence[Call], by_rank: Sequence[Mapping[int, CallTime]], seconds: float
) -> list[CallGroup]:
    """Return the calls by what they do, the most costly first; `by_rank` as in ranks_of()."""
    by_what: defaultdict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_what[call.what].append(call)
    exposed: defaultdict[str, list[float]] = defaultdict(list)
    for times in by_rank:
        mine = {call.number: times[call.number] for call in calls}
        waited = _union(_exposed(list(mine.values())))
        for what, same in by_what.items():
            spans = [(mine[call.number].began, mine[call.number].ended) for call in same]
            exposed[what].append(_cut(waited, spans) / seconds)
    found = []
    for what, same in by_what.items():
        waiting = sum(call.late for call in same)
        moving = sum(call.moving for call in same)
        each, share = (waiting / len(same), moving / len(same)), (waiting + moving) / seconds
        found.append(CallGroup(what, len(same), *each, share, fmean(exposed[what])))
    return sorted(found, key=lambda group: -group.share)


def loads_of(job: JobView, now: Snapshot, before: Snapshot, moving: float) -> Iterator[LinkLoad]:
    """Yield how full the links are, without those of hosts outside of the job."""
    mine = {*job.hosts, *now.switches}
    for link, then in zip(now.links, before.links, strict=True):
        carried = per_second(link.bytes, then.bytes, now.at - before.at)
        if carried is not None and link.rate and {link.sender, link.receiver} <= mine:
            used = 8 * carried / link.rate
            at_work = min(1.0, used / moving) if moving else used
            ends = link.name, link.sender, link.receiver
            yield LinkLoad(*ends, 8 * carried, link.rate, link.built_rate, used, at_work)


def others_of(job: JobView, now: Snapshot, before: Snapshot) -> dict[str, float]:
    """Return what each host sends that is not the job's, in bits/s, without hosts that send little of it."""
    sent = {
        link.sender: 8 * (per_second(link.bytes, then.bytes, now.at - before.at) or 0.0)
        for link, then in zip(now.links, before.links, strict=True)
        if link.sender not in now.switches
    }
    own = _sent_by_job(job, before)
    found = {}
    for host, every in sent.items():
        if host not in job.hosts:
            found[host] = every
        elif host in own and every > _HEADERS * own[host]:
            found[host] = every - own[host]
    return {host: rate for host, rate in found.items() if rate > 0}


def _sent_by_job(job: JobView, before: Snapshot) -> dict[str, float]:
    """Return what the job's worker on each host sends, in bits/s, between its report in `before` and the last one.

    Hosts whose worker has not reported, or has finished few calls, are left out.
    """
    first = {worker.process: worker for one in before.jobs if one.name == job.name for worker in one.leaders}
    found = {}
    for worker in job.leaders:
        then = first.get(worker.process)
        if then and then.report and then.heard and worker.report and worker.heard:
            calls = worker.report.all_reduces - then.report.all_reduces
            rate = per_second(worker.report.bytes_sent, then.report.bytes_sent, worker.heard - then.heard)
            if calls >= _ENOUGH and rate is not None:
                found[worker.host] = 8 * rate
    return found
