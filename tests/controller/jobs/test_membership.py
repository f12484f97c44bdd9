"""The job service: who joins whom, what each is told, and that each job has a grant of its own from begin to end."""

import asyncio
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fanin.controller.errors import ControllerError
from fanin.controller.job_service.json_lines_server import serving_workers
from fanin.controller.jobs import membership
from fanin.controller.jobs.membership import JobService
from fanin.workers import Lease
from fanin.workers.job.environment import HOST, SERVICE, SLOTS
from fanin.workers.job.membership import JoinError, Member, join
from tests.controller.job_service import FakeGrants, With, Worker

ROOT = Path(__file__).parents[3]


def test_a_job_begins_when_all_hosts_have_joined_and_ends_when_all_have_left(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        h2 = await Worker.connect(path, "h2")
        assert await h2.hear() == {"waiting_for": ["h1", "h3"]}
        h1 = await Worker.connect(path, "h1")
        assert await h1.hear() == await h2.hear() == {"waiting_for": ["h3"]}
        assert not grants.granted
        h3 = await Worker.connect(path, "h3")
        assert [await worker.rank() for worker in (h1, h2, h3)] == [(1, 0), (1, 1), (1, 2)]
        await h1.end()
        await h2.end()
        assert not grants.withdrawn
        await h3.end()
        await grants.until(lambda: grants.withdrawn == [1])

    either(check)


def test_the_next_run_gets_a_grant_of_its_own(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        for lease in (1, 2, 3):
            workers = [await Worker.connect(path, host) for host in ("h1", "h2", "h3")]
            assert [await worker.rank() for worker in workers] == [(lease, 0), (lease, 1), (lease, 2)]
            for worker in workers:
                await worker.end()
        await grants.until(lambda: len(grants.withdrawn) == 3)

    either(check)


@pytest.mark.parametrize("hosts", [2, ["h1", "h2"], ["h2", "h1"]])
def test_a_job_of_some_hosts_leaves_the_others_alone(either: With, hosts: object) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        h1, h2 = [await Worker.connect(path, host, hosts) for host in ("h1", "h2")]
        h3 = await Worker.connect(path, "h3", ["h3"])
        ranks = [await worker.rank() for worker in (h1, h2, h3)]
        assert [rank for _, rank in ranks] == [0, 1, 0]
        assert sorted(grants.granted) == [("h1", "h2"), ("h3",)]

    either(check)


def test_a_second_worker_on_a_host_is_refused_with_the_first_one_s_process(
    either: With, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "_LEAVE_SECONDS", 0.05)

    async def check(path: Path, _grants: FakeGrants) -> None:
        first = await Worker.connect(path, "h1", process=4711)
        await first.hear()
        again = await Worker.connect(path, "h1", process=4712)
        assert await again.error() == (
            "h1 has a worker already, process 4711, in a job of h1, h2, h3: end that one first, or give this job "
            "its own name (FANIN_JOB)"
        )
        for host in ("h2", "h3"):
            await Worker.connect(path, host)
        assert await first.rank() == (1, 0)
        again = await Worker.connect(path, "h1", process=4713)
        assert "process 4711" in await again.error()

    either(check)


def test_ranks_of_a_host_follow_each_other_and_its_first_one_has_the_lease(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        places = [("h2", 1), ("h1", 0), ("h2", 0), ("h1", 1)]
        workers = {}
        for number, (host, local) in enumerate(places):
            worker = await Worker.connect(path, host, 2, process=number, local=local, per_host=2)
            workers[host, local] = worker
        told = {}
        for place, worker in workers.items():
            while "rank" not in (assigned := await worker.hear()):
                assert set(assigned["waiting_for"]) <= {"h1", "h2"}
            told[place] = assigned["rank"], assigned["processes"], bool(assigned["config"])
        assert told == {
            ("h1", 0): (0, [1, 3], True),
            ("h1", 1): (1, [1, 3], False),
            ("h2", 0): (2, [2, 0], True),
            ("h2", 1): (3, [2, 0], False),
        }
        assert grants.granted == [("h1", "h2")]
        [job] = grants.jobs.documents()
        assert (job["hosts"], job["per_host"], job["processes"]) == (("h1", "h2"), 2, [1, 3, 2, 0])
        assert [(each["host"], each["local"], each["process"]) for each in job["workers"]] == [
            ("h1", 0, 1),
            ("h1", 1, 3),
            ("h2", 0, 2),
            ("h2", 1, 0),
        ]
        await workers["h2", 1].end()
        for place in (("h1", 0), ("h1", 1), ("h2", 0)):
            assert await workers[place].hear() == {"left": {"host": "h2", "rank": 3, "process": 0}}
        again = await Worker.connect(path, "h2", 2, process=9, local=0, per_host=2)
        assert "h2 has a worker already, process 2, in a job of h1, h2" in await again.error()

    either(check)


def test_only_first_workers_of_hosts_are_asked_what_they_have_finished(service: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        first, second = [
            await Worker.connect(path, "h1", 1, local=local, per_host=2, ring=True, job="a")
            for local in (0, 1)
        ]
        for worker in (first, second):
            while "rank" not in await worker.hear():
                pass
        await grants.jobs.revoke("a")
        assert await first.hear() == {"revoked": "its lease was revoked"}
        first.say(b'{"finished": [3, 7]}')
        assert await first.hear() == {"carry_on": [[3, 7]]}
        first.say(b'{"failed": {"call": 4, "what": "a sum", "error": "too late"}}')
        assert await second.hear() == {
            "aborted": "rank 0 (process 1 on h1) failed in call 4, a sum: too late",
            "ranks": [0],
        }

    service(check)


def test_workers_of_a_job_agree_on_their_number_on_a_host(either: With) -> None:
    async def check(path: Path, _grants: FakeGrants) -> None:
        first = await Worker.connect(path, "h1", 2, process=5, per_host=2)
        await first.hear()
        other = await Worker.connect(path, "h2", 2, per_host=3)
        assert await other.error() == (
            "h1's worker 0, process 5, waits for a job of h1, h2, 2 workers on each, and the one on h2 asks for h1, "
            "h2, 3 workers on each: all must ask for the same"
        )

    either(check)


def test_who_comes_just_before_the_last_one_has_gone_takes_its_place(either: With) -> None:
    async def check(path: Path, _grants: FakeGrants) -> None:
        first = await Worker.connect(path, "h1", ["h1"])
        await first.rank()
        second = await Worker.connect(path, "h1", ["h1"])
        await first.end()
        assert await second.rank() == (2, 0)

    either(check)


def test_a_worker_that_dies_before_the_job_begins_frees_its_place(either: With) -> None:
    async def check(path: Path, _grants: FakeGrants) -> None:
        h2 = await Worker.connect(path, "h2", 2)
        assert await h2.hear() == {"waiting_for": ["h1"]}
        for _ in range(3):
            dying = await Worker.connect(path, "h1", 3)
            assert "all must ask for the same" in await dying.error()
        h3 = await Worker.connect(path, "h3", ["h3"])
        await h3.rank()
        await h2.end()
        again = [await Worker.connect(path, host, 2) for host in ("h1", "h2")]
        assert [rank for _, rank in [await worker.rank() for worker in again]] == [0, 1]

    either(check)


def test_who_waits_is_told_that_another_has_gone(either: With) -> None:
    async def check(path: Path, _grants: FakeGrants) -> None:
        h1 = await Worker.connect(path, "h1")
        assert await h1.hear() == {"waiting_for": ["h2", "h3"]}
        h2 = await Worker.connect(path, "h2")
        assert await h1.hear() == {"waiting_for": ["h3"]}
        await h2.end()
        assert await h1.hear() == {"waiting_for": ["h2", "h3"]}

    either(check)


def test_who_is_left_of_a_job_is_told_who_has_ended(either: With) -> None:
    async def check(path: Path, _grants: FakeGrants) -> None:
        pair = [await Worker.connect(path, host, 2, process) for host, process in (("h1", 11), ("h2", 12))]
        alone = await Worker.connect(path, "h3", ["h3"])
        for worker in (*pair, alone):
            await worker.rank()
        await pair[1].end()
        assert await pair[0].hear() == {"left": {"host": "h2", "rank": 1, "process": 12}}
        next_one = await Worker.connect(path, "h2", 2)  # of the next job, which forms when h1 has ended, too
        assert await next_one.hear() == {"waiting_for": ["h1"]}
        await pair[0].end()
        again = await Worker.connect(path, "h1", 2)
        assert [rank for _, rank in [await worker.rank() for worker in (again, next_one)]] == [0, 1]
        await alone.end()

    either(check)


def test_a_worker_that_dies_while_the_lease_is_granted_ends_the_job(service: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        grants.gate.clear()
        h1, h2 = [await Worker.connect(path, host, 2) for host in ("h1", "h2")]
        await grants.until(lambda: bool(grants.granted))
        await h2.end()
        again = await Worker.connect(path, "h2", ["h2"])
        grants.gate.set()
        assert "h2's worker, process 1, ended before the job began" in await h1.error()
        await grants.until(lambda: grants.withdrawn == [1])
        assert await again.rank() == (2, 0)

    service(check)


def test_all_are_told_why_there_is_no_lease(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        grants.fails = True
        workers = [await Worker.connect(path, host) for host in ("h1", "h2", "h3")]
        assert [await worker.error() for worker in workers] == ["leaf1 refuses"] * 3
        grants.fails = False
        workers = [await Worker.connect(path, host) for host in ("h1", "h2", "h3")]
        assert await workers[0].rank() == (2, 0)

    either(check)


def test_a_lease_that_cannot_be_withdrawn_is_reported(service: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        worker = await Worker.connect(path, "h1", 1)
        await worker.rank()
        grants.fails = True
        await worker.end()
        await grants.until(lambda: grants.withdrawn == [1])
        grants.fails = False
        worker = await Worker.connect(path, "h1", 1)
        assert await worker.rank() == (2, 0)
        assert grants.reports == ["the lease of h1 is not withdrawn yet: leaf1 does not answer"]

    service(check)


@pytest.mark.parametrize("line", [b"nonsense", b"{}", b"[]", b"7", b"[" * 50_000])
def test_a_worker_that_talks_nonsense_has_ended(service: With, line: bytes) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        worker = await Worker.connect(path, "h1", 1)
        await worker.rank()
        worker.say(line)
        assert await worker.hear() is None
        await grants.until(lambda: not grants.open_jobs)

    service(check)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"", "not a request to join"),
        (b"join", "not a request to join"),
        (b"\xff\xfe", "not a request to join"),
        (b"[]", "not a request to join"),
        (b"{}", "not a request to join"),
        (b"[" * 50_000, "not a request to join"),
        (b'"' + b"h" * 100_000 + b'"', "not a request to join"),
        (b'{"host": 1, "process": 1, "hosts": null}', "not a request to join"),
        (b'{"host": "h9", "process": 1, "hosts": null}', "no host is called h9; there are h1, h2, h3"),
        (b'{"host": "h1", "process": 1, "hosts": 4}', "hosts: is 4, must be from 1 to 3"),
        (b'{"host": "h1", "process": 1, "hosts": 0}', "hosts: is 0, must be from 1 to 3"),
        (b'{"host": "h1", "process": 1, "hosts": true}', "hosts: is true"),
        (b'{"host": "h1", "process": 1, "hosts": ["h7"]}', "there are h1, h2, h3"),
        (b'{"host": "h1", "process": 1, "hosts": [[]]}', "there are h1, h2, h3"),
        (b'{"host": "h1", "process": 1, "hosts": {}}', "there are h1, h2, h3"),
        (b'{"host": "h1", "process": 1, "hosts": ["h2"]}', "a job of h2, which h1 is not in"),
        (b'{"host": "h3", "process": 1, "hosts": 2}', "a job of h1, h2, which h3 is not in"),
        (b'{"host": "h1", "process": 1, "hosts": []}', "which h1 is not in"),
        (b'{"host": "h1", "process": 1, "hosts": 1, "per_host": 0}', "per_host: is 0, must be from 1 to 64"),
        (b'{"host": "h1", "process": 1, "hosts": 1, "per_host": "2"}', 'per_host: is "2", must be'),
        (
            b'{"host": "h1", "process": 1, "hosts": 1, "per_host": 2, "local": 2}',
            "local: is 2, must be from 0 to 1",
        ),
        (b'{"host": "h1", "process": 1, "hosts": 1, "local": 1}', "local: is 1, must be from 0 to 0"),
        (
            b'{"host": "h1", "process": 1, "hosts": 1, "slot_share": 0}',
            "slot_share: is 0, must be a number from 1",
        ),
        (b'{"host": "h1", "process": 1, "hosts": 1, "slot_share": true}', "slot_share: is true, must be"),
        (
            b'{"host": "h1", "process": 1, "hosts": 2, "per_host": 2, "ring": true, "min_workers": 1}',
            "min_workers: a job that continues without workers has one on each host",
        ),
        (b'{"host": "h1", "process": 1, "hosts": 1, "job": 7}', "job is a name, and slots a number"),
        (b'{"host": "h1", "process": 1, "hosts": 1, "slots": "all"}', "job is a name, and slots a number"),
        (b'{"host": "h1", "process": 1, "hosts": 1, "slots": true}', "job is a name, and slots a number"),
    ],
)
def test_a_request_that_is_none_is_answered_by_what_is_wrong_with_it(
    service: With, line: bytes, complaint: str
) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        worker = await Worker.open(path)
        worker.say(line)
        assert complaint in await worker.error()
        assert not grants.granted

    service(check)


def test_a_service_that_ends_hangs_up_on_everybody(tmp_path: Path) -> None:
    async def run() -> None:
        grants = FakeGrants()
        service = JobService(["h1", "h2"], grants.open, grants.reports.append)
        async with serving_workers(service, tmp_path / "jobs.sock"), service:
            waiting = await Worker.connect(tmp_path / "jobs.sock", "h1")
            await waiting.hear()
        assert await waiting.hear() is None
        await Worker.end_all()

    asyncio.run(run())


# The client, against the service in a process of its own: a path longer than an address holds, and real processes.

SERVE = """
import asyncio, sys
from pathlib import Path
from tests.controller.job_service import FakeGrants
from fanin.controller.job_service.json_lines_server import serving_workers
from fanin.controller.errors import ControllerError
from fanin.controller.jobs.membership import JobService

async def run():
    grants = FakeGrants()
    service = JobService(["h1", "h2"], grants.open, print)
    async with serving_workers(service, Path(sys.argv[1])), service:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(run())
"""
WORKER = "import workers, time; m = workers.join(); print(m.config.lease.id, m.rank, m.workers); m.close()"


@contextmanager
def served(path: Path) -> Iterator[dict[str, str]]:
    path.parent.mkdir(parents=True)
    serving = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert serving.stdout is not None
        assert serving.stdout.readline() == "ready\n"
        yield {SERVICE: str(path)}
    finally:
        serving.communicate()
        assert serving.returncode == 0


@pytest.mark.slow
def test_scripts_that_join_get_their_ranks_and_another_lease_each_time(tmp_path: Path) -> None:
    with served(tmp_path / ("a long folder" * 8) / "jobs.sock") as environment:
        for lease in (1, 2):
            running = [
                subprocess.Popen(
                    [sys.executable, "-c", WORKER],
                    cwd=ROOT,
                    env=os.environ | environment | {HOST: host},
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for host in ("h1", "h2")
            ]
            assert [process.communicate()[0] for process in running] == [f"{lease} 0 2\n", f"{lease} 1 2\n"]


@pytest.mark.slow
def test_a_member_has_all_that_it_was_assigned_and_what_it_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path / "run" / "jobs.sock") as environment:
        monkeypatch.setenv(HOST, "h1")
        monkeypatch.setenv(SERVICE, environment[SERVICE])
        with join(1, non_finite="propagate") as member:
            assert isinstance(member, Member)
            config = member.config
            assert config.lease == Lease(1, 0, 1, window=4, first_chunk=100)
            assert (config.segments, config.offload, config.recovery.give_up) == (8, False, 5.0)
            assert config.non_finite == "propagate"
            with pytest.raises(JoinError, match=f"h1 has a worker already, process {os.getpid()}"):
                join(1)
        join(1).close()


@pytest.mark.slow
def test_who_does_not_come_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path / "run" / "jobs.sock") as environment:
        monkeypatch.setenv(HOST, "h1")
        monkeypatch.setenv(SERVICE, environment[SERVICE])
        with pytest.raises(JoinError, match=r"no worker has joined on h2 for 1 s"):
            join(timeout=1)


def test_without_a_network_a_script_is_told_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(HOST, raising=False)
    with pytest.raises(JoinError, match="`fanin up`, and this program with `fanin exec"):
        join()
    monkeypatch.setenv(HOST, "h1")
    monkeypatch.setenv(SERVICE, str(tmp_path / "jobs.sock"))
    monkeypatch.setenv(SLOTS, "all")
    with pytest.raises(JoinError, match="FANIN_SLOTS: is 'all', must be a number of slots"):
        join()
    monkeypatch.delenv(SLOTS)
    with pytest.raises(JoinError, match=r"no job service answers at .*jobs\.sock"):
        join()


REPORT: dict[str, object] = {
    **dict.fromkeys(("all_reduces", "bytes_sent", "bytes_received", "retransmissions", "datagrams_sent"), 3),
    **dict.fromkeys(("datagrams_received", "accepted", "timeouts", "saturated"), 2),
    "ignored": {"duplicate": 1},
    "smoothed_rtt": 0.001,
    "rto": 0.02,
    "congestion_window": 16.0,
    "waiting": None,
}


@pytest.mark.parametrize("waiting", [False, True])
def test_what_workers_report_is_told_with_their_jobs(either: With, waiting: bool) -> None:
    report = REPORT | ({"waiting": WAITING} if waiting else {})

    async def check(path: Path, grants: FakeGrants) -> None:
        h1, h2 = [await Worker.connect(path, host, 2) for host in ("h1", "h2")]
        assert [await worker.rank() for worker in (h1, h2)] == [(1, 0), (1, 1)]
        h1.say(json.dumps({"report": report}).encode())
        first = second = None
        while first is None or first["report"] is None:
            await asyncio.sleep(0)
            [job] = grants.jobs.documents()
            first, second = json.loads(json.dumps(job["workers"]))
        assert first["report"] == report
        assert first["joined"] <= first["heard"]
        assert (second["host"], second["report"], second["heard"]) == ("h2", None, None)

    either(check)


TIME = {"number": 3, "what": "barrier", "submitted": 5.0, "waited": None, "began": 5.5, "ended": 6.0}


@pytest.mark.slow
def test_the_times_of_calls_are_kept_with_their_job(either: With) -> None:
    async def check(path: Path, grants: FakeGrants) -> None:
        h1, h2 = [await Worker.connect(path, host, 2, job="a") for host in ("h1", "h2")]
        assert [await worker.rank() for worker in (h1, h2)] == [(1, 0), (1, 1)]
        for number in range(600):
            h1.say(json.dumps({"times": {"calls": [{**TIME, "number": number}]}}).encode())
        while not (found := grants.jobs.times("a"))[0] or found[0][-1]["number"] != 599:
            await asyncio.sleep(0)
        assert [each["number"] for each in found[0]] == list(range(88, 600))  # memory is bounded
        assert found[0][-1] == {**TIME, "number": 599}
        assert found[1] == []
        [job] = grants.jobs.documents()
        assert [worker["call"] for worker in job["workers"]] == [599, 0]
        with pytest.raises(ControllerError, match=r"^no job is called b; there are: a$"):
            grants.jobs.times("b")

    either(check)


WAITING = {
    **dict.fromkeys(("all_reduce", "elements", "accepted", "total"), 8),
    **dict.fromkeys(("waiting", "silent"), 1.5),
    "announcing": False,
    "chunks": [[4, 7]],
    "sent": [1, 2],
}


@pytest.mark.parametrize(
    "report",
    [
        {},
        None,
        REPORT | {"all_reduces": -1},
        REPORT | {"all_reduces": 10**400},
        REPORT | {"rto": math.nan},
        REPORT | {"waiting": WAITING | {"chunks": [[1]]}},
        REPORT | {"waiting": WAITING | {"chunks": [[7, 4]]}},
        REPORT | {"waiting": WAITING | {"chunks": [[0, 1 << 40]]}},
    ],
)
def test_a_report_that_is_none_ends_the_membership(service: With, report: object) -> None:
    ends_the_membership(service, {"report": report})


@pytest.mark.parametrize(
    "times", [{}, {"calls": [{**TIME, "ended": math.inf}]}, {"calls": [{**TIME, "what": "x" * 201}]}]
)
def test_times_that_are_none_end_the_membership(service: With, times: object) -> None:
    ends_the_membership(service, {"times": times})


def ends_the_membership(service: With, message: object) -> None:
    async def check(path: Path, _grants: FakeGrants) -> None:
        h1, h2 = [await Worker.connect(path, host, 2) for host in ("h1", "h2")]
        assert [await worker.rank() for worker in (h1, h2)] == [(1, 0), (1, 1)]
        h1.say(json.dumps(message).encode())
        assert await h2.hear() == {"left": {"host": "h1", "rank": 0, "process": 1}}

    service(check)
