"""Faults in virtual time: the outcome is that of a live network, and no sum is wrong."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.experiments.results.faults import FaultOutcome
from fanin.experiments.results.measured import Measured, row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import SECOND, History, fault_recovery
from fanin.simulator.fabric import Cluster, Job
from fanin.simulator.hosts.stations import PeerPort
from fanin.workers.collective import StallError
from fanin.workers.job.membership import LeftError
from fanin.workers.job.retained_results import ProgressSnapshot
from tests.sizes import sized

pytestmark = pytest.mark.slow

RACKS = {"spines": 2, "leaves": 2, "hosts_per_leaf": 2, "rate": "2.5 Gb/s"}
SOON = "100 us"
# The root of the tree is spine1, and an all-reduce takes 393 us: at 600 us the second one is under way.
AT = "600 us"
UPLINK = {"at": AT, "link": ["spine1", "leaf1"], "detection": SOON}
ROOT = {"at": AT, "switch": "spine1", "detection": SOON}
END = {"at": AT, "worker": "h2", "detection": SOON}
OTHER = {"size": "100 kB", "repetitions": 8}
BESIDE: dict[str, Any] = {"workers": 2, "placement": "spread", "other_job": OTHER}
GONE = {"at": "500 us", "controller": True, "duration": "300 us"}


def point(*faults: dict[str, Any], **changes: Any) -> Settings:
    document = {
        "topology": {"leaf_spine": RACKS},
        "size": "100 kB",
        "repetitions": 4,
        "window": 16,
        "coalescing": "16 us",
        "faults": faults,
    }
    return Settings.model_validate(document | changes).settled


def run(switch: Engine, *faults: dict[str, Any], **changes: Any) -> Measured:
    measured = run_virtual(point(*faults, **changes), switch)
    assert measured.violations == 0
    assert len(measured.seconds) == 4
    return measured


def picoseconds(measured: Measured) -> list[int]:
    """How long each all-reduce took: of times, which are whole picoseconds, floats are no exact differences."""
    return [round(seconds * SECOND) for seconds in measured.seconds]


def only(measured: Measured) -> FaultOutcome:
    [outcome] = measured.faults
    return outcome


# -- links


def test_a_job_whose_tree_loses_a_link_goes_on_by_ring(switch: Engine) -> None:
    alone, by_ring = run(switch), run(switch, algorithm="ring")
    measured = run(switch, UPLINK)
    outcome = only(measured)
    assert str(outcome) == "the link between spine1 and leaf1 is down: the hosts sum using the ring"
    assert (outcome.at, outcome.found) == (6e-4, 7e-4)
    assert outcome.next_end
    assert outcome.next_end > 7e-4
    assert measured.link_events["lost"] > 0
    assert picoseconds(measured)[0] == picoseconds(alone)[0]
    assert measured.seconds[1] > by_ring.seconds[1], "what was under way is done again"
    assert measured.seconds[2:] == pytest.approx(by_ring.seconds[2:], rel=0.01)
    assert (alone.faults, alone.workers_left, measured.workers_left) == ((), 4, 4)


def test_a_link_that_is_up_before_anybody_looks_costs_retransmissions(switch: Engine) -> None:
    measured = run(switch, UPLINK | {"duration": "50 us"})
    assert only(measured).outcome == "over before it was detected; the job continues"
    assert only(measured).found is None
    assert measured.retransmissions > 0
    assert picoseconds(measured)[2:] == picoseconds(run(switch))[2:]


def test_a_link_that_the_tree_does_not_have_changes_nothing(switch: Engine) -> None:
    measured = run(switch, UPLINK | {"link": ["leaf1", "spine2"]})
    assert only(measured).outcome == "the job continues"
    assert picoseconds(measured) == picoseconds(run(switch))


def test_without_a_time_of_its_own_a_fault_is_found_as_soon_as_live(switch: Engine) -> None:
    assert only(run(switch, {"at": AT, "link": ["spine1", "leaf1"]})).found == pytest.approx(0.2506)


def test_packets_between_hosts_go_around_it_until_it_is_back(switch: Engine) -> None:
    def packets(*faults: dict[str, Any]) -> int:
        usage = run(switch, *faults, algorithm="ring", paths="single").usage
        assert usage
        return sum(link.packets for link in usage.links if link.name == "leaf1 → spine1")

    down = UPLINK | {"at": "100 us"}
    assert packets(down | {"at": "0 s", "detection": "0 s"}) == 0
    assert 0 < packets(down) < packets(down | {"duration": "300 us"}) < packets()


def test_a_host_s_link_is_waited_for(switch: Engine) -> None:
    link = UPLINK | {"link": ["h1", "leaf1"]}
    assert "using the ring" in only(run(switch, link | {"duration": "1 ms"})).outcome
    with pytest.raises(StallError, match="awaiting data from rank 3"):
        run(switch, link)


def test_where_no_way_is_left_the_ring_says_for_whom_it_waits(switch: Engine) -> None:
    with pytest.raises(StallError, match=r"ring rank . of 4.*awaiting"):
        run(switch, UPLINK, UPLINK | {"link": ["leaf1", "spine2"], "at": "800 us"})


# -- switches


def test_a_job_whose_root_restarts_goes_on_by_ring(switch: Engine) -> None:
    measured = run(switch, ROOT)
    assert str(only(measured)) == "spine1 restarts: the hosts sum using the ring"
    assert measured.seconds[2:] == pytest.approx(run(switch, algorithm="ring").seconds[2:], rel=0.01)


def test_a_leaf_with_one_worker_that_restarts_costs_retransmissions(switch: Engine) -> None:
    measured = run(switch, ROOT | {"switch": "leaf1"}, hosts=["h1", "h3", "h4"])
    assert str(only(measured)) == "leaf1 restarts: the job continues"
    assert measured.retransmissions > 0
    assert picoseconds(measured)[2:] == picoseconds(run(switch, hosts=["h1", "h3", "h4"]))[2:]


def test_a_leaf_with_several_may_have_forgotten_what_one_of_them_lacks(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # h2 misses results that h1 gets; before it asks again, leaf1 has lost them.
    missed = {"at": AT, "link": ["h2", "leaf1"], "duration": "60 us"}
    lost = {"at": "620 us", "switch": "leaf1", "detection": "1 us"}
    measured = run(switch, missed, lost)
    assert [one.outcome for one in measured.faults] == [
        "over before it was detected; the job continues",
        "the hosts sum using the ring",
    ]
    monkeypatch.setattr(fault_recovery, "rests_on", lambda parts, switch: parts[-1].switch == switch)
    with pytest.raises(StallError, match="nothing new for 30 s"):
        run(switch, missed, lost)


def test_a_job_between_hosts_goes_on(switch: Engine) -> None:
    measured = run(switch, ROOT | {"switch": "leaf1"}, algorithm="ring")
    assert only(measured).outcome == "the job continues"
    assert measured.retransmissions > 0


def test_a_link_that_goes_down_while_a_switch_is_empty(switch: Engine) -> None:
    measured = run(switch, ROOT | {"detection": "200 us"}, UPLINK | {"link": ["spine1", "leaf2"]})
    assert [str(one) for one in measured.faults] == [
        "spine1 restarts: the job continues",
        "the link between spine1 and leaf2 is down: the hosts sum using the ring",
    ]


# -- all have the same sums


@pytest.mark.few(0)
def test_those_behind_are_sent_what_others_have(switch: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcomes() -> set[str]:
        found = set()
        for time in range(98, 110):
            fault = UPLINK | {"at": f"{time} us", "detection": "20 us"}
            measured = run_virtual(point(fault, size="4 kB", repetitions=8), switch)
            assert not measured.violations
            found.add(only(measured).outcome)
        return found

    assert outcomes() == {
        "the hosts sum using the ring",
        "the hosts sum using the ring, 2 of them sent a sum that others had",
    }

    def never(job: Job, standing: ProgressSnapshot, now: float) -> int:
        least = min(count for count in standing.finished if count is not None)
        job.carry_on([station.outputs[:least] for station in job.stations], now)
        return 0

    monkeypatch.setattr(fault_recovery, "carry_on", never)
    with pytest.raises(AssertionError):
        outcomes()


def test_a_wrong_sum_after_a_fault_is_counted(switch: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_on = fault_recovery.carry_on

    def wrong(job: Job, standing: ProgressSnapshot, now: float) -> int:
        sent = carry_on(job, standing, now)
        job.stations[0]._inputs[-1][0] += 1
        return sent

    monkeypatch.setattr(fault_recovery, "carry_on", wrong)
    assert run_virtual(point(UPLINK), switch).violations == 4


@pytest.mark.long
def test_whatever_fails_whenever_sums_are_right_or_somebody_is_named(switch: Engine) -> None:
    ended: set[str] = set()
    for seed in range(sized(20, 60)):
        draw = random.Random(seed)
        hosts = draw.sample(["h1", "h2", "h3", "h4"], 4)
        links = draw.sample(
            [["leaf1", "spine1"], ["leaf2", "spine1"], ["leaf1", "spine2"], ["h1", "leaf1"]], 4
        )
        faults = []
        for host, link in zip(hosts[: draw.randint(1, 3)], links, strict=False):
            duration = {"duration": draw.uniform(1e-5, 1e-3)}
            of_a_switch = {"switch": draw.choice(["leaf1", "spine1", "spine2"])}
            kinds = [{"link": link} | duration, of_a_switch, {"worker": host} | duration, {"worker": host}]
            times = {"at": draw.uniform(0, 1e-3), "detection": draw.uniform(0, 3e-4)}
            faults.append(times | draw.choice(kinds))
        settings = point(
            *faults,
            algorithm=draw.choice(["in-network", "in-network", "ring", "halving-doubling"]),
            min_workers=draw.choice([None, 2]),
            size=draw.choice(["4 kB", "25 kB"]),
            repetitions=draw.choice([4, 12]),
            seed=seed,
            links={"loss": draw.choice([0, 0.01])},
        )
        try:
            measured = run_virtual(settings, switch)
        except LeftError:
            ended.add("the job ends")
            continue
        assert not measured.violations, seed
        ended |= {one.outcome.partition(",")[0] for one in measured.faults}
    assert ended >= {
        "the job ends",
        "the hosts sum using the ring",
        "the job has another lease",
        "3 of 4 workers continue",
        "the job continues",
    }


def test_what_waits_for_a_network_card_when_a_worker_ends_is_still_sent(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C has the network cards, as Python would have them."""
    in_c = run(switch, END, algorithm="ring", min_workers=2)
    monkeypatch.setattr(PeerPort, "compiled", None)
    assert run(switch, END, algorithm="ring", min_workers=2) == in_c


def test_a_run_with_faults_has_one_history(switch: Engine) -> None:
    found: list[tuple[str, tuple[FaultOutcome, ...]]] = []
    faults = ROOT | {"at": "300 us"}, UPLINK, END, GONE
    settings = point(*faults, min_workers=2, links={"loss": 0.01})

    for _ in range(2):
        history = History()

        def prepare(cluster: Cluster, history: History = history) -> None:
            cluster.network._observer = history

        outcomes = run_virtual(settings, switch, prepare).faults
        found.append((history.digest, outcomes))
    assert found[0] == found[1]


# -- workers


def test_a_worker_that_ends_ends_the_job_by_name(switch: Engine) -> None:
    with pytest.raises(LeftError, match="rank 1 on h2 ended while others wait: rank 0 of 4, lease 1"):
        run(switch, END)
    with pytest.raises(LeftError, match="rank 1 on h2 ended while others wait: ring rank 0 of 4"):
        run(switch, END, algorithm="ring")


@pytest.mark.parametrize("algorithm", ["in-network", "ring", "halving-doubling", "parameter-server"])
def test_with_min_workers_the_others_go_on(switch: Engine, algorithm: str) -> None:
    measured = run(switch, END, min_workers=3, algorithm=algorithm)
    assert str(only(measured)) == "rank 1 on h2 ends: 3 of 4 workers continue"
    assert measured.workers_left == 3
    assert measured.usage
    assert [(one.rank, one.host) for one in measured.usage.workers] == [(0, "h1"), (2, "h3"), (3, "h4")]
    assert all(len(one.ended) == 4 for one in measured.usage.workers)


def test_fewer_than_min_workers_end(switch: Engine) -> None:
    with pytest.raises(LeftError, match="rank 1 on h2 ended; 3 are left, fewer than min_workers, 4"):
        run(switch, END, min_workers=4)


def test_two_that_end_one_after_the_other(switch: Engine) -> None:
    both = run(switch, END, END | {"worker": "h3"}, min_workers=2)
    assert [str(one) for one in both.faults] == [
        "rank 1 on h2 ends: 2 of 4 workers continue",
        "rank 2 on h3 ends: 2 of 4 workers continue",
    ]
    later = run(switch, END, END | {"worker": "h3", "at": "1 ms"}, min_workers=2)
    assert [one.outcome for one in later.faults] == ["3 of 4 workers continue", "2 of 3 workers continue"]
    assert later.workers_left == 2


@pytest.mark.parametrize("fault", [UPLINK, ROOT])
def test_with_min_workers_a_job_gets_another_lease(switch: Engine, fault: dict[str, Any]) -> None:
    measured = run(switch, fault, min_workers=2)
    assert only(measured).outcome == "the job has another lease"
    assert picoseconds(measured)[2:] == picoseconds(run(switch))[2:]
    assert measured.link_events["lost"] > 0 or fault is ROOT


def test_with_min_workers_and_a_host_s_link_it_goes_on_by_ring(switch: Engine) -> None:
    link = UPLINK | {"link": ["h1", "leaf1"], "duration": "1 ms"}
    assert only(run(switch, link, min_workers=2)).outcome == "the hosts sum using the ring"


def test_a_worker_that_is_stopped_costs_time_and_is_named(switch: Engine) -> None:
    stopped = {"at": AT, "worker": "h2", "duration": "10 ms"}
    outcome = only(run(switch, stopped | {"detection": "1 ms"}))
    assert str(outcome) == "rank 1 on h2 is stopped: the others wait for it"
    assert outcome.found == 1.6e-3
    assert outcome.next_end
    assert 1.06e-2 < outcome.next_end < 1.2e-2
    assert only(run(switch, stopped)).outcome == "over before it was detected; the job continues"
    long = only(run(switch, stopped | {"duration": "8 s"}))
    assert (long.outcome, long.found) == ("the others wait for it", 7.0006)


# -- the controller


def test_all_reduces_do_not_notice_that_there_is_no_controller(switch: Engine) -> None:
    alone = run(switch)
    measured = run(switch, GONE)
    assert str(only(measured)) == "the controller is gone: nothing waited for it"
    assert (only(measured).at, only(measured).found) == (5e-4, 8e-4)
    assert measured.seconds == alone.seconds
    for_good = run(switch, {"at": "0 s", "controller": True})
    assert str(only(for_good)) == "the controller is gone: the job ended before it was back"
    assert (only(for_good).found, for_good.seconds) == (None, alone.seconds)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (UPLINK, "the link between spine1 and leaf1 is down: the hosts sum using the ring"),
        (ROOT, "spine1 restarts: the hosts sum using the ring"),
    ],
)
def test_what_happens_meanwhile_is_found_as_long_after_as_any_other_time(
    switch: Engine, fault: dict[str, Any], outcome: str
) -> None:
    by_ring = run(switch, algorithm="ring")
    gone, found = run(switch, GONE, fault).faults
    assert str(found) == outcome
    assert (gone.outcome, gone.found) == (f"waited for it: {found.what}", 8e-4)
    assert (found.at, found.found) == (6e-4, 9e-4)
    # As is what happened before, and was not found yet.
    earlier, gone = run(switch, fault | {"at": "420 us"}, GONE).faults
    assert earlier.found == 9e-4
    assert gone.outcome == f"waited for it: {found.what}"
    # And what happens twice in a row.
    later = run(switch, fault, GONE, GONE | {"at": "850 us"})
    assert [one.found for one in later.faults] == [1.25e-3, 8e-4, 1.15e-3]
    assert later.seconds[-1] == pytest.approx(by_ring.seconds[-1], rel=0.01)


def test_a_link_that_is_up_before_the_controller_is_back_is_never_found(switch: Engine) -> None:
    gone, link = run(switch, GONE | {"duration": "10 ms"}, UPLINK | {"duration": "200 us"}).faults
    assert (link.outcome, link.found) == ("over before it was detected; the job continues", None)
    assert gone.outcome == "the job ended before it was back"


def test_where_it_is_gone_for_good_a_switch_stays_empty(switch: Engine) -> None:
    with pytest.raises(StallError, match="nothing new for 30 s"):
        run(switch, GONE | {"duration": "60 s"}, ROOT)


def test_who_goes_on_without_a_worker_gets_a_lease_once_it_is_back(switch: Engine) -> None:
    gone, ended = run(switch, GONE, END, min_workers=2).faults
    assert str(ended) == "rank 1 on h2 ends: 3 of 4 workers continue"
    assert ended.found == 7e-4
    assert ended.next_end
    assert ended.next_end > 8e-4
    assert gone.outcome == "waited for it: rank 1 on h2 ends"
    # Another one that ends before that is left out at once.
    both = run(switch, GONE, END, END | {"worker": "h3", "at": "650 us"}, min_workers=2)
    assert [one.outcome for one in both.faults[1:]] == ["2 of 4 workers continue"] * 2


def test_that_a_worker_ended_the_others_learn_without_it(switch: Engine) -> None:
    with pytest.raises(LeftError, match="rank 1 on h2 ended while others wait"):
        run(switch, GONE, END)
    with pytest.raises(LeftError, match="3 are left, fewer than min_workers, 4"):
        run(switch, GONE, END, min_workers=4)
    gone, ended = run(switch, GONE, END, min_workers=2, algorithm="ring").faults
    assert (ended.outcome, gone.outcome) == ("3 of 4 workers continue", "nothing waited for it")


def test_a_stopped_worker_is_named_without_it(switch: Engine) -> None:
    gone, stopped = run(switch, GONE, END | {"duration": "10 ms"}).faults
    assert (stopped.outcome, stopped.found) == ("the others wait for it", 7e-4)
    assert gone.outcome == "nothing waited for it"


times, lengths = st.floats(0, 1e-3), st.floats(1e-6, 1e-3)


@pytest.mark.few(0)
@given(
    gone=st.lists(st.tuples(times, lengths), min_size=1, max_size=3),
    others=st.lists(
        st.tuples(st.sampled_from([UPLINK, UPLINK | {"link": ["leaf2", "spine2"]}, ROOT, END]), times, times),
        max_size=3,
        unique_by=lambda one: str(one[0]),
    ),
    duration=lengths | st.none(),
    min_workers=st.none() | st.just(3),
    beside=st.booleans(),
)
@settings(max_examples=25)
def test_whenever_it_is_gone_sums_are_right_and_it_finds_nothing(
    switch: Engine,
    gone: list[tuple[float, float]],
    others: list[tuple[dict[str, Any], float, float]],
    duration: float | None,
    min_workers: int | None,
    beside: bool,
) -> None:
    absences: list[tuple[float, float]] = []
    for pause, length in gone:  # one after the other
        begin = pause + (absences[-1][1] if absences else 0.0) + 1e-6
        absences.append((begin, begin + length))
    faults = [{"at": begin, "controller": True, "duration": end - begin} for begin, end in absences]
    for fault, at, detection in others:
        faults.append(fault | {"at": at, "detection": detection})
        if "link" in fault and duration:
            faults[-1]["duration"] = duration
    changes: dict[str, Any] = {"min_workers": min_workers, "size": "20 kB"}
    if beside:
        # Below each leaf a third host.
        changes["topology"] = {"leaf_spine": RACKS | {"hosts_per_leaf": 3}}
        changes |= {"hosts": ["h1", "h2", "h4", "h5"], "other_job": OTHER | {"size": "20 kB"}}
    try:
        measured = run_virtual(point(*faults, **changes), switch)
    except LeftError:
        assert min_workers is None
        return
    except StallError:  # no path is left between the racks
        assert duration is None
        assert sum("link" in fault for fault in faults) == 2
        return
    assert not measured.violations
    for fault, outcome in zip(faults, measured.faults, strict=True):
        if outcome.found is not None and not {"controller", "worker"} & set(fault):
            looked = outcome.found - fault["detection"]
            assert looked >= outcome.at - 1e-9
            assert all(end <= looked + 1e-9 or begin >= outcome.found - 1e-9 for begin, end in absences)


# -- with the rest of a scenario


def test_what_comes_after_the_job_is_none_of_it(switch: Engine) -> None:
    late = only(run(switch, UPLINK | {"at": "1 s"}))
    assert (late.outcome, late.found, late.next_end) == ("the job had ended before", None, None)
    unseen = only(run(switch, UPLINK | {"link": ["leaf1", "spine2"], "detection": "1 s"}))
    assert unseen.outcome == "the job ended before it was detected"


def test_steps_go_on_computing_where_they_were(switch: Engine) -> None:
    step = {"forward": "1 ms", "backward": "1 ms", "bucket": "25 kB"}
    alone = run(switch, step=step)
    for fault in (UPLINK, END):
        # In the second step, and while all of them compute.
        measured = run(switch, fault | {"at": "2.6 ms"}, step=step, min_workers=2)
        assert measured.step_seconds == pytest.approx(alone.step_seconds, rel=0.02)


def test_traffic_beside_goes_around_it(switch: Engine) -> None:
    traffic = {"pattern": "permutation", "size": "250 kB"}
    measured = run(switch, UPLINK, workers=2, placement="spread", traffic=traffic)
    assert measured.traffic
    assert measured.traffic.count == 2


BY_RING = "the hosts sum using the ring"


def test_another_job_goes_on_by_ring_as_the_first_one(switch: Engine) -> None:
    # Each has two workers below either leaf.
    leaf = ROOT | {"switch": "leaf1"}
    beside = BESIDE | {"topology": {"leaf_spine": RACKS | {"hosts_per_leaf": 4}}, "workers": 4}
    beside |= {"other_job": OTHER | {"repetitions": 3}}
    assert only(run(switch, leaf, **beside)).outcome == f"{BY_RING}; the other job: {BY_RING}"
    assert (
        only(run(switch, leaf, min_workers=2, **beside)).outcome
        == f"the job has another lease; the other job: {BY_RING}"
    )
    gone, found = run(switch, GONE, leaf, **beside).faults
    assert (gone.outcome, found.found) == ("waited for it: leaf1 restarts", 9e-4)


@pytest.mark.parametrize("fault", [UPLINK | {"link": ["spine2", "leaf1"]}, ROOT | {"switch": "spine2"}])
def test_what_concerns_another_job_alone_leaves_the_first_one_its_lease(
    switch: Engine, fault: dict[str, Any]
) -> None:
    assert only(run(switch, fault, **BESIDE)).outcome == f"the job continues; the other job: {BY_RING}"
    later = only(run(switch, fault | {"at": "2.5 ms"}, **BESIDE))
    assert later.outcome == f"the job had ended before; the other job: {BY_RING}"
    assert only(run(switch, ROOT, **BESIDE)).outcome == BY_RING


def test_a_wrong_sum_of_another_job_after_a_fault_is_counted(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_on = fault_recovery.carry_on

    def wrong(job: Job, standing: ProgressSnapshot, now: float) -> int:
        sent = carry_on(job, standing, now)
        if job.members == ("h2", "h4"):
            job.stations[0]._inputs[-1][0] += 1
        return sent

    monkeypatch.setattr(fault_recovery, "carry_on", wrong)
    fault = UPLINK | {"link": ["spine2", "leaf1"]}
    assert run_virtual(point(fault, **BESIDE), switch).violations == 2


def test_a_row_says_it(switch: Engine) -> None:
    settings = point(UPLINK, ROOT | {"at": "1 s"})
    found = row(settings, run_virtual(settings, switch))
    assert found["faults"] == [
        "the link between spine1 and leaf1 is down: the hosts sum using the ring",
        "spine1 restarts: the job had ended before",
    ]
    assert found["fault_seconds"] == [6e-4, 1]
    assert found["fault_found_seconds"] == [7e-4, None]
    [ended, never] = found["fault_next_end_seconds"]
    assert never is None
    assert found["fault_recovery_seconds"] == ended - 6e-4
    nothing = row(point(), run_virtual(point(), switch))
    assert all(nothing[name] is None for name in found if name.startswith("fault"))
