"""Tests of explain_slow: causes found in invented times of calls and counts of links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from fanin.controller.jobs.reports import CallTime
from fanin.testbed.monitoring.call_times import Activity
from fanin.testbed.monitoring.slow import Slowness, explain_slow
from fanin.testbed.monitoring.snapshot import JobView, LinkView, Snapshot, SwitchView
from tests.testbed.monitoring.snapshots import NOW, job, worker

HOSTS = ("h1", "h2", "h3", "h4")
SECONDS = 5.0


def times(
    computes: Mapping[str, float], moves: float, begin: float = NOW - SECONDS, steps: int = 40
) -> dict[str, list[CallTime]]:
    """Return the times of the calls of each host.

    In each step, a host computes for its seconds in `computes` and then enters its call. All calls of the step end
    `moves` seconds after the last one was entered.
    """
    found: dict[str, list[CallTime]] = {host: [] for host in computes}
    ended = begin
    for number in range(1, steps + 1):
        began = {host: ended + seconds for host, seconds in computes.items()}
        ended = max(began.values()) + moves
        for host, at in began.items():
            found[host].append(sync(number, at, ended))
    return found


def sync(number: int, began: float, ended: float) -> CallTime:
    return CallTime(number=number, what="allreduce", submitted=began, waited=began, began=began, ended=ended)


def links(
    at: float, *, used: float, built: int = 10**8, lost: int = 0, losing: str = "h1", **rates: int
) -> Snapshot:
    """A look at that time, when each link had carried so much of `built` since the beginning.

    losing: hosts whose links lose packets in each direction. rates: those changed.
    """
    count = int(used * built * (at - NOW + SECONDS) / 8)
    found = [
        LinkView(
            sender=a,
            receiver=b,
            rate=rates.get(host, built),
            built_rate=built,
            up=True,
            packets=count,
            bytes=count,
            lost=lost if host in losing and at == NOW else 0,
            queue_bytes=0,
        )
        for host, leaf in zip(HOSTS, ("leaf1", "leaf1", "leaf2", "leaf2"), strict=True)
        for a, b in ((host, leaf), (leaf, host))
    ]
    switches = {name: SwitchView(slots=4) for name in ("leaf1", "leaf2", "spine1")}
    return Snapshot(at=at, jobs=(), forming=(), switches=switches, links=tuple(found))


JOB: JobView = job(*(worker(host, 7) for host in HOSTS))


def explained(found: Mapping[str, Sequence[CallTime]], processors: float = 0.3, **of: Any) -> Slowness:
    return explain_slow(
        JOB, [found.get(host, ()) for host in HOSTS], links(NOW, **of), links(NOW - SECONDS, **of), processors
    )


def test_a_rank_that_comes_late_is_named_with_its_delay() -> None:
    slow = explained(times({**dict.fromkeys(HOSTS, 0.02), "h3": 0.1}, 0.01), used=0.05)
    [cause] = slow.causes
    assert (cause.cause, round(cause.share, 2)) == ("straggler", 0.73)
    assert cause.evidence.startswith("rank 2 (process 103 on h3) came last in 39 of 39 calls, by 80 ms")
    assert [round(rank.exposed, 2) for rank in slow.ranks] == [0.82, 0.82, 0.09, 0.82]
    assert round(slow.waiting, 2) == 0.73


def test_a_link_that_was_slowed_down_is_named_with_both_rates() -> None:
    slow = explained(times(dict.fromkeys(HOSTS, 0.02), 0.1), used=0.16, h3=20_000_000)
    [cause] = slow.causes
    assert cause.cause == "slow link"
    assert cause.evidence.startswith("h3 → leaf2 carried 16 of 20 Mb/s on average, 96% of its rate while")
    assert cause.evidence.endswith("The network was built with 100 Mb/s there")
    assert cause.change.startswith("fix the link, here with `fanin link h3 leaf2 --set rate=100Mb/s`")
    assert [link.name for link in slow.links[:2]] == ["h3 → leaf2", "leaf2 → h3"]


@pytest.mark.parametrize(("used", "found"), [(0.1, "slow link"), (0.06, "latency")])
def test_a_link_far_fuller_than_the_others_is_the_limit_from_half_of_its_rate(
    used: float, found: str
) -> None:
    [cause] = explained(times(dict.fromkeys(HOSTS, 0.001), 0.1), used=used, h3=20_000_000).causes
    assert cause.cause == found


def test_a_rank_that_gets_its_results_late_is_no_straggler() -> None:
    """Behind a slow link: it computes as long as the others, from the end of its call."""
    found = times(dict.fromkeys(HOSTS, 0.02), 0.1)
    late = {host: [sync(c.number, c.began, c.ended) for c in calls] for host, calls in found.items()}
    late["h3"] = [sync(c.number, c.began + 0.01, c.ended + 0.01) for c in found["h3"]]
    assert explained(late, used=0.16, h3=20_000_000).waiting < 0.01


def test_links_that_are_all_full_are_a_limit_of_the_network() -> None:
    [cause] = explained(times(dict.fromkeys(HOSTS, 0.01), 0.1), used=0.88).causes
    assert cause.cause == "full link"
    assert "also full: 7 other directions" in cause.evidence


@pytest.mark.parametrize(("foreign", "found"), [(60_000_000, "noisy neighbour"), (5_000_000, "full link")])
def test_hosts_outside_of_the_job_that_fill_its_uplink_are_named(foreign: int, found: str) -> None:
    def look(at: float) -> Snapshot:
        def link(sender: str, receiver: str, carried: int) -> LinkView:
            count = int(carried * (at - NOW + SECONDS) / 8)
            return usual.links[0].model_copy(
                update={"sender": sender, "receiver": receiver, "packets": count, "bytes": count}
            )

        usual = links(at, used=0.3)
        more = (link("leaf1", "spine1", 90_000_000), link("h5", "leaf1", foreign))
        return usual.model_copy(update={"links": (*usual.links, *more)})

    calls = times(dict.fromkeys(HOSTS, 0.001), 0.1)
    slow = explain_slow(JOB, [calls[host] for host in HOSTS], look(NOW), look(NOW - SECONDS), 0.3)
    [cause] = slow.causes
    assert cause.cause == found
    if found == "noisy neighbour":
        assert "h5, which is outside this job, sends 60 Mb/s" in cause.evidence
        assert cause.share == pytest.approx(0.99 * 0.91 * 60 / 90, abs=0.02)
        assert "different leaves" in cause.change


@pytest.mark.parametrize(("own", "found"), [(15_000_000, "noisy neighbour"), (80_000_000, "full link")])
def test_other_programs_on_a_host_of_the_job_that_fill_its_link_are_named(own: int, found: str) -> None:
    def job_at(at: float) -> JobView:
        sent = int(own * (at - NOW + SECONDS) / 8)
        workers = []
        for host in HOSTS:
            state = worker(host, 7 if at < NOW else 47)
            assert state.report
            report = state.report.model_copy(update={"bytes_sent": sent})
            workers.append(state.model_copy(update={"report": report, "heard": at}))
        return job(*workers)

    def look(at: float) -> Snapshot:
        usual = links(at, used=0.2)
        first = usual.links[0]
        assert first.sender == "h1"
        full = first.model_copy(update={"bytes": int(90_000_000 * (at - NOW + SECONDS) / 8)})
        return usual.model_copy(update={"links": (full, *usual.links[1:]), "jobs": (job_at(at),)})

    calls = times(dict.fromkeys(HOSTS, 0.001), 0.1)
    slow = explain_slow(job_at(NOW), [calls[host] for host in HOSTS], look(NOW), look(NOW - SECONDS), 0.3)
    [cause] = slow.causes
    assert cause.cause == found
    if found == "noisy neighbour":
        assert "h1 sends 75 Mb/s besides this job's calls" in cause.evidence
        assert "which other programs on h1 send" in cause.change


@pytest.mark.parametrize(
    ("processors", "expected"), [(0.3, "latency"), (0.97, "this machine")], ids=["idle", "busy"]
)
def test_calls_that_fill_no_link_are_bound_by_latency_or_by_the_machine(
    processors: float, expected: str
) -> None:
    [cause] = explained(times(dict.fromkeys(HOSTS, 0.001), 0.05), processors, used=0.03).causes
    assert cause.cause == expected
    assert "the fullest link, h1 → leaf1, was used to 3% while data moved" in cause.evidence


@pytest.mark.parametrize(
    ("losing", "where"),
    [
        ("h1", "100 packets, most of them the link h1 - leaf1"),
        ("h1 h3", "200 packets, none of the 2 links most of them"),
    ],
)
def test_losses_are_named_with_the_link_if_it_is_one(losing: str, where: str) -> None:
    slow = explained(times(dict.fromkeys(HOSTS, 0.001), 0.05), used=0.3, lost=50, losing=losing)
    [cause] = slow.causes
    assert cause.cause == "loss"
    assert cause.evidence == f"links have lost {where}"


def test_workers_that_compute_are_told_that_the_network_is_not_the_limit() -> None:
    [cause] = explained(times(dict.fromkeys(HOSTS, 0.1), 0.002), used=0.01).causes
    assert (cause.cause, round(cause.share, 2)) == ("computing", 0.98)


def test_two_causes_are_both_named_and_do_not_contradict_each_other() -> None:
    found = times({**dict.fromkeys(HOSTS, 0.02), "h2": 0.06}, 0.06)
    slow = explained(found, used=0.1, h3=20_000_000)
    assert [cause.cause for cause in slow.causes] == ["slow link", "straggler"]
    assert "the network is not the limit" not in slow.causes[1].change
    assert slow.summary == (
        "About 50% of the time, h3 → leaf2 is the limit (20 Mb/s); about 33% of the time, the others wait for rank 1 "
        "on h2. The late ranks and the network do not cause each other: their times add up."
    )


def test_a_rank_that_comes_late_because_of_its_link_is_no_cause_of_its_own() -> None:
    """The link carries something else between the calls, too: it is full for longer than data of the job moves."""
    found = times({**dict.fromkeys(HOSTS, 0.02), "h3": 0.1}, 0.06)
    slow = explained(found, used=0.19, h3=20_000_000)
    [cause] = slow.causes
    assert (cause.cause, round(cause.share, 2)) == ("slow link", 0.88)
    assert "it is full between calls, too, so rank 2 on h3 comes late because of it" in cause.evidence


def test_who_comes_last_at_random_is_not_blamed() -> None:
    found: dict[str, list[CallTime]] = {host: [] for host in HOSTS}
    ended = NOW - SECONDS
    for number in range(1, 41):
        began = {host: ended + 0.02 + 0.08 * (number % 4 == at) for at, host in enumerate(HOSTS)}
        ended = max(began.values()) + 0.01
        for host, at in began.items():
            found[host].append(sync(number, at, ended))
    [cause] = explained(found, used=0.05).causes
    assert cause.cause == "waiting"


def background(number: int, submitted: float, began: float, ended: float, waited: float | None) -> CallTime:
    return CallTime(
        number=number, what="allreduce", submitted=submitted, waited=waited, began=began, ended=ended
    )


@pytest.mark.parametrize("known", [True, False])
def test_what_is_hidden_behind_computation_is_not_exposed(known: bool) -> None:
    """Two buckets a step: the program makes the calls after 10 and 20 ms and waits from then on; each takes 20 ms."""
    calls = []
    for step in range(40):
        at = NOW - SECONDS + 0.05 * step
        calls.append(background(2 * step + 1, at + 0.01, at + 0.01, at + 0.03, at + 0.02 if known else None))
        calls.append(background(2 * step + 2, at + 0.02, at + 0.03, at + 0.05, at + 0.02 if known else None))
    slow = explained(dict.fromkeys(HOSTS, calls), used=0.05)
    assert [(round(r.computing, 1), round(r.exposed, 1), round(r.hidden, 1)) for r in slow.ranks] == [
        (0.2, 0.6, 0.2)
    ] * 4
    assert [rank.estimated for rank in slow.ranks] == [not known] * 4


def test_too_few_calls_show_nothing() -> None:
    found = times(dict.fromkeys(HOSTS, 0.1), 0.1, steps=2) | {"h3": []}
    slow = explained(found, used=0.1)
    assert slow.causes == ()
    assert slow.unknown.startswith("0 calls have ended at all workers within 5 s; nothing has come from h3:")


def test_calls_are_grouped_by_their_size() -> None:
    found = {
        host: [each.model_copy(update={"what": f"sum of {each.number % 2 + 1}"}) for each in calls]
        for host, calls in times(dict.fromkeys(HOSTS, 0.02), 0.02).items()
    }
    groups = explained(found, used=0.05).groups
    assert {(group.what, group.count, round(group.moving_seconds, 3)) for group in groups} == {
        ("sum of 1", 20, 0.02),
        ("sum of 2", 19, 0.02),
    }


def steps(computes: float, calls: Sequence[tuple[str, float]], count: int = 20) -> dict[str, list[CallTime]]:
    """Return the times of steps that compute, and then make these calls one after the other: what, and seconds."""
    found: dict[str, list[CallTime]] = {host: [] for host in HOSTS}
    now, number = NOW - SECONDS, 0
    for _ in range(count):
        now += computes
        for what, seconds in calls:
            number += 1
            for host in HOSTS:
                found[host].append(sync(number, now, now + seconds).model_copy(update={"what": what}))
            now += seconds
    return found


def active(own: float, children: float = 0.0) -> list[Activity]:
    return [Activity(own, children)] * len(HOSTS)


def test_workers_that_neither_call_nor_use_a_processor_wait_for_data() -> None:
    times = [list(calls) for calls in steps(0.2, [("allreduce", 0.02)]).values()]
    slow = explain_slow(
        JOB, times, links(NOW, used=0.02), links(NOW - SECONDS, used=0.02), 0.3, active(0.2, children=0.6)
    )
    assert [(cause.cause, round(cause.share, 2)) for cause in slow.causes] == [("data loader", 0.71)]
    assert "num_workers" in slow.causes[0].change
    assert "while its child processes use one for 60%" in slow.causes[0].evidence


def test_a_rank_that_is_late_without_using_a_processor_waits_for_something() -> None:
    found = times({**dict.fromkeys(HOSTS, 0.02), "h3": 0.1}, 0.01)
    did = [Activity(0.2, 0.0), Activity(0.2, 0.0), Activity(0.1, 0.0), Activity(0.2, 0.0)]
    slow = explain_slow(
        JOB, list(found.values()), links(NOW, used=0.05), links(NOW - SECONDS, used=0.05), 0.3, did
    )
    [cause] = slow.causes
    assert cause.evidence.endswith("its process used no processor for 81% of the time")
    assert cause.change.startswith("find out what h3 waits for between its calls (its data, a disk, a GPU)")


def test_data_that_moves_only_after_computing_is_told_with_the_calls() -> None:
    slow = explained(steps(0.1, [("first", 0.03), ("second", 0.05)]), used=0.1)
    causes = {cause.cause: cause for cause in slow.causes}
    assert causes["no overlap"].share == pytest.approx(0.08 / 0.18, abs=0.01)
    assert "wait longest in calls of second, 29%" in causes["no overlap"].evidence
    assert [group.what for group in slow.groups] == ["second", "first"]
    assert [group.exposed for group in slow.groups] == pytest.approx([0.05 / 0.18, 0.03 / 0.18], abs=0.02)


def test_calls_that_are_hidden_behind_computing_are_no_cause() -> None:
    """A call in the background, and the program waits for it only at its very end."""
    found = steps(0.1, [("allreduce", 0.08)])
    hidden = {
        host: [
            call.model_copy(update={"submitted": call.began, "waited": call.ended - 0.005}) for call in calls
        ]
        for host, calls in found.items()
    }
    assert "no overlap" not in {cause.cause for cause in explained(hidden, used=0.1).causes}


def test_many_calls_in_a_step_are_small_buckets() -> None:
    slow = explained(steps(0.01, [*[("bucket", 0.005)] * 9, ("last", 0.004)]), used=0.03)
    [cause] = slow.causes
    assert cause.cause == "small buckets"
    assert cause.evidence.startswith("there are about 10 calls in a step; a call takes 4.9 ms")
    assert "bucket_cap_mb" in cause.change


def test_many_calls_of_the_same_size_are_small_buckets_although_processors_are_busy() -> None:
    """As with 250 buckets of 2 kB, which keep the processors of this machine busy."""
    slow = explained(times(dict.fromkeys(HOSTS, 0.0001), 0.002, steps=1000), 1.0, used=0.1)
    [cause] = slow.causes
    assert cause.cause == "small buckets"
    assert cause.evidence.startswith(
        "there are 476 calls in a second, with about 2.62 kB each; a call takes 2 ms"
    )
    assert "this machine's processors for 100%" in cause.evidence
    assert "bucket_cap_mb" in cause.change
