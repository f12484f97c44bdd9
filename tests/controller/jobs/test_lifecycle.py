"""Several jobs at once: their names, the queue for slots, the list, and those that go on by ring."""

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fanin.controller.errors import ControllerError
from tests.controller.job_service import FakeGrants, With, Worker


def test_jobs_with_names_of_their_own_share_hosts(either: With) -> None:
    async def check(path: Path, _grants: FakeGrants) -> None:
        a1 = await Worker.connect(path, "h1", 2, job="a")
        b1 = await Worker.connect(path, "h1", job="b")
        plain = await Worker.connect(path, "h1", 1)
        assert await plain.rank() == (1, 0)
        assert await a1.hear() == {"waiting_for": ["h2"]}
        assert await b1.hear() == {"waiting_for": ["h2", "h3"]}
        b3, b2 = [await Worker.connect(path, host, job="b") for host in ("h3", "h2")]
        assert [await worker.rank() for worker in (b1, b2, b3)] == [(2, 0), (2, 1), (2, 2)]
        a2 = await Worker.connect(path, "h2", 2, job="a", process=12)
        assert [await worker.rank() for worker in (a1, a2)] == [(3, 0), (3, 1)]
        await a2.end()  # of which those of b hear nothing
        assert await a1.hear() == {"left": {"host": "h2", "rank": 1, "process": 12}}
        await b2.end()
        assert await b1.hear() == {"left": {"host": "h2", "rank": 1, "process": 1}}

    either(check)


def test_a_name_is_one_job_s(either: With) -> None:
    async def check(path: Path, _grants: FakeGrants) -> None:
        first = await Worker.connect(path, "h1", 2, job="a")
        await first.hear()
        assert (
            await (await Worker.connect(path, "h3", ["h3"], job="a")).error()
            == "h1's worker, process 1, waits for a job of h1, h2, and the one on h3 asks for h3: all must ask "
            "for the same"
        )
        unlike = await Worker.connect(path, "h2", 2, job="a", slots=8)
        assert (
            "waits for a job of h1, h2, and the one on h2 asks for h1, h2 with 8 slots"
            in await unlike.error()
        )
        second = await Worker.connect(path, "h2", 2, job="a")
        assert [await worker.rank() for worker in (first, second)] == [(1, 0), (1, 1)]
        assert (
            await (await Worker.connect(path, "h3", ["h3"], job="a")).error()
            == "there is a job of h1, h2 called a: give this one another name (FANIN_JOB)"
        )

    either(check)


def test_jobs_wait_in_a_queue_and_are_told_their_places(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        running = await Worker.connect(path, "h1", 1, job="a", slots=1000)
        assert await running.rank() == (1, 0)
        large = await Worker.connect(path, "h1", 1, job="b", slots=512)
        why = "leaf1 has 24 slots free; the job needs 512"
        assert await large.hear() == {"queued": {"rank": 0, "place": 1, "why": why}}
        # It would find room, but were it let in, and the next one, too, the large one might wait for ever.
        small = await Worker.connect(path, "h2", ["h2"], job="c", slots=24)
        assert await small.hear() == {"queued": {"rank": 0, "place": 2, "why": "b waits for its lease"}}
        impatient = await Worker.connect(path, "h3", ["h3"], job="d", slots=1024)
        assert (await impatient.hear())["queued"]["place"] == 3
        last = await Worker.connect(path, "h3", ["h3"], job="e", slots=8)
        assert (await last.hear())["queued"]["place"] == 4
        await impatient.end()
        assert (await last.hear())["queued"]["place"] == 3
        await running.end()
        assert [await worker.rank() for worker in (large, small, last)] == [(2, 0), (3, 0), (4, 0)]
        assert grants.withdrawn == [1]
        for worker in (large, small, last):
            await worker.end()
        await grants.until(lambda: not grants.open_jobs)
        assert grants.room == 1024

    either(check)


def test_a_worker_that_ends_while_its_job_waits_ends_the_job(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        running = await Worker.connect(path, "h1", 1, slots=1000)
        await running.rank()
        h1, h2 = [await Worker.connect(path, host, 2, job="a", slots=100) for host in ("h1", "h2")]
        while "queued" not in await h1.hear():
            pass
        await h2.end()
        assert "h2's worker, process 1, ended before the job began" in await h1.error()
        await grants.until(lambda: len(grants.open_jobs) == 1)

    either(check)


def listed(grants: FakeGrants) -> dict[str, Any]:
    return {job.pop("name"): job for job in json.loads(json.dumps(grants.jobs.documents()))}


def test_jobs_are_listed(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        assert listed(grants) == {}
        plain = await Worker.connect(path, "h1", ["h1"], process=11)
        await plain.rank()
        named = [await Worker.connect(path, host, 2, job="a", slots=1000) for host in ("h1", "h2")]
        for worker in named:
            await worker.rank()
        waiting = await Worker.connect(path, "h3", ["h3"], job="b", slots=25)
        await waiting.hear()
        jobs = listed(grants)
        began = [job.pop("since") for job in jobs.values()]
        assert began == sorted(began)
        workers = {name: job.pop("workers") for name, job in jobs.items()}
        assert [(each["host"], each["process"], each["left"]) for each in workers["a"]] == [
            ("h1", 1, False),
            ("h2", 1, False),
        ]
        running = {"per_host": 1, "state": "in network", "place": 0, "why": "", "aborted": "", "ring": False}
        assert jobs == {
            "job-1": {"hosts": ["h1"], "processes": [11], **running, "lease": 1},
            "a": {"hosts": ["h1", "h2"], "processes": [1, 1], **running, "lease": 2},
            "b": {
                "hosts": ["h3"],
                "processes": [1],
                "per_host": 1,
                "state": "queued",
                "place": 1,
                "why": "leaf1 has 24 slots free; the job needs 25",
                "aborted": "",
                "ring": False,
                "lease": None,
            },
        }

    either(check)


def test_a_job_that_goes_on_by_ring_does_not_wait(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        running = await Worker.connect(path, "h1", 1, slots=1000)
        await running.rank()
        pair = [await Worker.connect(path, "h1", 2, job="a", slots=25, ring=True)]
        assert await pair[0].hear() == {"waiting_for": ["h2"]}
        pair.append(await Worker.connect(path, "h2", 2, job="a", slots=25, ring=True))
        why = "leaf1 has 24 slots free; the job needs 25"
        for rank, worker in enumerate(pair):
            said = await worker.hear()
            assert (said["rank"], said["config"], said["refused"]) == (rank, None, why)
        assert listed(grants)["a"]["state"] == "using the ring"
        waiting = await Worker.connect(path, "h3", ["h3"], job="b", slots=25)
        assert "queued" in await waiting.hear()
        late = await Worker.connect(path, "h3", ["h3"], job="c", slots=1, ring=True)
        assert (await late.hear())["refused"] == "b waits for its lease"
        for worker in (*pair, late):
            await worker.end()
        await grants.until(lambda: len(grants.open_jobs) == 2)
        await running.end()
        assert await waiting.rank() == (2, 0)

    either(check)


def test_a_revoked_lease_is_withdrawn_and_all_learn_what_each_has_finished(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        pair = [await Worker.connect(path, host, 2, job="a", slots=1000, ring=True) for host in ("h1", "h2")]
        for worker in pair:
            await worker.rank()
        waiting = await Worker.connect(path, "h1", 1, job="b", slots=1000)
        await waiting.hear()
        await grants.jobs.revoke("a")
        for worker in pair:
            assert await worker.hear() == {"revoked": "its lease was revoked"}
        assert grants.withdrawn == [1]
        assert await waiting.rank() == (2, 0)
        pair[1].say(b'{"finished": [8, 4711]}')
        assert listed(grants)["a"]["state"] == "using the ring"
        pair[0].say(b'{"finished": [7, 4712]}')
        for worker in pair:
            assert await worker.hear() == {"carry_on": [[7, 4712], [8, 4711]]}
        with pytest.raises(
            ControllerError, match=r"a has no lease: it is using the ring \(its lease was revoked\)"
        ):
            await grants.jobs.revoke("a")
        with pytest.raises(ControllerError, match="no job is called c; there are: a, b"):
            await grants.jobs.revoke("c")
        for worker in pair:
            await worker.end()
        await grants.until(lambda: len(grants.open_jobs) == 1)
        assert grants.withdrawn == [1]

    either(check)


def test_who_ends_in_the_middle_of_it_is_not_waited_for(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        pair = [await Worker.connect(path, host, 2, job="a", ring=True) for host in ("h1", "h2")]
        for worker in pair:
            await worker.rank()
        await grants.jobs.revoke("a")
        assert "revoked" in await pair[0].hear()
        pair[0].say(b'{"finished": [7, 4712]}')
        await pair[1].end()
        assert "left" in await pair[0].hear()
        assert await pair[0].hear() == {"carry_on": [[7, 4712], None]}

    either(check)


@pytest.mark.parametrize("ring", [False, True])
def test_a_place_in_the_queue_can_be_revoked(either: With, ring: bool) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        grants.gate.clear()
        first = await Worker.connect(path, "h1", 1)
        await grants.until(lambda: bool(grants.granted))
        second = await Worker.connect(path, "h2", ["h2"], job="b", ring=ring)
        while "b" not in listed(grants):
            await asyncio.sleep(0)
        await grants.jobs.revoke("b")
        if ring:
            assert (await second.hear())["refused"] == "its lease was revoked"
        else:
            assert await second.error() == "its lease was revoked"
        grants.gate.set()
        assert await first.rank() == (1, 0)

    either(check)


async def elastic(path: Path, least: int = 1, slots: int | None = None) -> list[Worker]:
    three = [
        await Worker.connect(path, host, job="a", ring=True, min_workers=least, slots=slots, process=number)
        for number, host in enumerate(("h1", "h2", "h3"), 11)
    ]
    assert [await worker.rank() for worker in three] == [(1, 0), (1, 1), (1, 2)]
    return three


async def until(worker: Worker, word: str) -> Any:
    while word not in (message := await worker.hear()):
        pass
    return message[word]


def test_those_who_are_left_agree_and_get_a_lease_of_their_own(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        h1, h2, h3 = await elastic(path)
        await h1.end()
        why = "rank 0 (process 11 on h1) ended"
        for worker in (h2, h3):
            assert await until(worker, "regroup") == {"round": 1, "why": why}
            assert await until(worker, "waiting_for") == ["h2", "h3"]
        assert grants.granted == [("h1", "h2", "h3")]
        h3.say(b'{"finished": [8, 4713], "round": 1}')
        assert await until(h2, "waiting_for") == ["h2"]
        h2.say(b'{"finished": [7, 4712], "round": 0}')  # of no round that was
        h2.say(b'{"finished": [7, 4712], "round": 1}')
        for rank, worker in enumerate((h2, h3)):
            group = await until(worker, "group")
            assert group["finished"] == [["h2", 7, 4712], ["h3", 8, 4713]]
            assert (group["round"], group["rank"], group["hosts"]) == (1, rank, ["h2", "h3"])
            assert group["config"]["lease"]["id"] == 2
        assert (grants.granted, grants.withdrawn) == ([("h1", "h2", "h3"), ("h2", "h3")], [1])
        assert listed(grants)["a"]["hosts"] == ["h2", "h3"]
        for worker in (h2, h3):
            await worker.end()
        await grants.until(lambda: not grants.open_jobs)

    either(check)


@pytest.mark.parametrize("first", [True, False])
def test_a_job_begins_without_a_worker_that_will_not_join(either: With, first: bool) -> None:
    """That may be known before or after the others have joined; the next job of the name has all its workers."""

    async def check(path: Path, grants: FakeGrants) -> None:
        async def connect(host: str) -> Worker:
            return await Worker.connect(path, host, job="a", ring=True, min_workers=2)

        h1 = await connect("h1")
        assert await until(h1, "waiting_for") == ["h2", "h3"]
        with ExitStack() as absences:
            if first:
                absences.enter_context(grants.without("h2", "a"))
            h3 = await connect("h3")
            if not first:
                assert await until(h3, "waiting_for") == ["h2"]
                absences.enter_context(grants.without("h2", "a"))
            for rank, worker in enumerate((h1, h3)):
                while "rank" not in (assignment := await worker.hear()):
                    pass
                assert (assignment["rank"], assignment["hosts"]) == (rank, ["h1", "h3"])
            for worker in (h1, h3):
                await worker.end()
            await grants.until(lambda: not grants.open_jobs)
        h1 = await connect("h1")
        assert await until(h1, "waiting_for") == ["h2", "h3"]
        assert await until(await connect("h3"), "waiting_for") == ["h2"]

    either(check)


@pytest.mark.parametrize("begun", [True, False])
def test_who_was_absent_is_waited_for_once_whoever_said_so_has_ended(either: With, begun: bool) -> None:
    """It may have ended before anybody had joined, or after the job had begun and lost a worker."""

    async def check(path: Path, grants: FakeGrants) -> None:
        if begun:
            three = await elastic(path, least=2)
            await three[1].end()
        with grants.without("h2", "a"):
            pass
        if begun:
            for worker in (three[0], three[2]):
                await worker.end()
            await grants.until(lambda: not grants.open_jobs)
        for host, missing in (("h1", ["h2", "h3"]), ("h3", ["h2"])):
            worker = await Worker.connect(path, host, job="a", ring=True, min_workers=2)
            assert await until(worker, "waiting_for") == missing

    either(check)


def test_too_few_workers_go_on_waiting_for_one_that_will_not_join(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        h1 = await Worker.connect(path, "h1", job="a", ring=True, min_workers=2)
        assert await until(h1, "waiting_for") == ["h2", "h3"]
        with ExitStack() as absences:
            for host in ("h2", "h3"):
                absences.enter_context(grants.without(host, "a"))
                assert await until(h1, "waiting_for") == ["h2", "h3"]
        assert not grants.granted

    either(check)


def test_who_ends_in_a_round_makes_another_one(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        h1, h2, h3 = await elastic(path)
        await h1.end()
        await until(h2, "regroup")
        h2.say(b'{"finished": [7, 4712], "round": 1}')
        await h3.end()
        why = "rank 0 (process 11 on h1) ended; rank 2 (process 13 on h3) ended"
        assert await until(h2, "regroup") == {"round": 2, "why": why}
        h2.say(b'{"finished": [7, 4714], "round": 2}')
        assert (await until(h2, "group"))["finished"] == [["h2", 7, 4714]]
        assert grants.granted[1:] == [("h2",)]

    either(check)


def test_who_leaves_stays_until_the_others_have_what_it_has_finished(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        h1, h2, h3 = await elastic(path, least=2)
        h1.say(b'{"leaving": true}')
        for number, worker in enumerate((h1, h2, h3)):
            assert (await until(worker, "regroup"))["why"] == "rank 0 (process 11 on h1) left"
            worker.say(b'{"finished": [%d, 4711], "round": 1}' % (8 - (number > 1)))
        assert [("rank" in await until(worker, "group")) for worker in (h1, h2, h3)] == [False, True, True]
        h2.say(b'{"leaving": true}')
        for worker in (h2, h3):
            assert (await until(worker, "regroup"))["round"] == 2
            worker.say(b'{"finished": [8, 4711], "round": 2}')
        said = "rank 0 (process 12 on h2) left; 1 are left, fewer than min_workers, 2"
        assert [(await until(worker, "group"))["refused"] for worker in (h2, h3)] == [said, said]
        await grants.until(lambda: not grants.open_jobs)

    either(check)


def test_with_too_few_the_job_ends(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        h1, h2, h3 = await elastic(path, least=3)
        await h1.end()
        said = "rank 0 (process 11 on h1) ended; 2 are left, fewer than min_workers, 3"
        assert [await worker.error() for worker in (h2, h3)] == [said, said]
        await grants.until(lambda: not grants.open_jobs)
        assert grants.withdrawn == [1]

    either(check)


@pytest.mark.parametrize(
    "asked", [{"min_workers": 0}, {"min_workers": 4}, {"min_workers": True}, {"ring": False}]
)
def test_a_number_of_workers_that_cannot_be_is_refused(service: With, asked: dict[str, object]) -> None:
    async def check(path: Path, _grants: FakeGrants) -> None:
        worker = await Worker.connect(path, "h1", **{"ring": True, "min_workers": 1, **asked})
        assert "must be from 1 to 3, in a job that may use the ring" in await worker.error()

    service(check)


async def say_finished(workers: list[Worker]) -> list[Any]:
    """In the first round; the groups that they are told then."""
    for worker in workers:
        await until(worker, "regroup")
        worker.say(b'{"finished": [7, 4711], "round": 1}')
    return [await until(worker, "group") for worker in workers]


@pytest.mark.parametrize("for_good", [False, True])
def test_a_job_of_groups_whose_tree_fails_gets_another_lease_if_one_would_be_better(
    service: With, for_good: bool
) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        three = await elastic(path)
        await grants.jobs.end_lease(1, "a link is down", for_good=for_good)
        groups = await say_finished(three)
        assert grants.withdrawn == [1]
        if for_good:
            assert [group["config"] for group in groups] == [None] * 3
        else:
            assert [group["config"]["lease"]["id"] for group in groups] == [2] * 3
        told = "using the ring" if for_good else "in network"
        assert listed(grants)["a"]["state"] == told

    service(check)


def test_the_lease_of_a_job_that_has_ended_is_not_its_successor_s(service: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        before = await Worker.connect(path, "h1", 1, job="a", ring=True)
        await before.rank()
        await before.end()
        await grants.until(lambda: grants.withdrawn == [1])
        after = await Worker.connect(path, "h1", 1, job="a", ring=True)
        assert await after.rank() == (2, 0)
        await grants.jobs.end_lease(1, "a link is down", for_good=True)
        assert listed(grants)["a"]["lease"] == 2
        await grants.jobs.end_lease(2, "a link is down", for_good=True)
        assert await after.hear() == {"revoked": "a link is down"}

    service(check)


def test_a_job_that_waits_is_granted_what_a_group_has_left(service: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        three = await elastic(path, slots=1000)
        waiting = await Worker.connect(path, "h1", 1, job="b", slots=512)
        assert "queued" in await waiting.hear()
        grants.fails = True
        await three[2].end()
        for worker in three[:2]:
            await until(worker, "regroup")
            worker.say(b'{"finished": [7, 4711], "round": 1}')
        assert (await until(three[0], "group"))["config"] is None
        assert await waiting.error() == "leaf1 refuses"  # so it was asked for

    service(check)


def test_all_are_told_that_there_is_no_controller_any_more(service: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        three = await elastic(path)
        grants.ended = True
        beginning = await Worker.connect(path, "h1", 1, job="b")
        why = "the controller has ended with signal SIGKILL"
        assert await beginning.error() == why
        await three[2].end()
        for worker in three[:2]:
            await until(worker, "regroup")
            worker.say(b'{"finished": [7, 4711], "round": 1}')
        assert [await worker.error() for worker in three[:2]] == [why] * 2
        await grants.until(lambda: not grants.open_jobs)

    service(check)
