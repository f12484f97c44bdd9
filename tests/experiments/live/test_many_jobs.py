"""Many jobs, several at a time, on the controller of a network: nothing is left of any, and nothing comes again."""

import asyncio
import random
from pathlib import Path

import pytest

from fanin.controller.connection import Connection
from fanin.controller.controller import Controller
from fanin.controller.jobs import ledger
from fanin.controller.jobs.budget import NoRoomError
from fanin.controller.jobs.ledger import Ledger
from fanin.controller.jobs.lifecycle import JobRequest
from fanin.p4compiler import Compiled
from fanin.testbed.network_jobs import NetworkJob, NetworkJobs
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from fanin.workers.recovery import Pace
from tests.controller.switches import read_state, running
from tests.sizes import sized

pytestmark = pytest.mark.slow

JOBS, LEASES = sized((60, 16), (1000, 255))  # each lease id comes again several times
PACE = Pace(window=256, segments=8)


@pytest.mark.long
def test_many_jobs_leave_nothing_behind_and_need_no_new_program(
    fanin_p4: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushes: list[str] = []
    push = Connection.push_pipeline

    async def counted(connection: Connection) -> None:
        pushes.append(connection.switch.name)
        await push(connection)

    monkeypatch.setattr(Connection, "push_pipeline", counted)
    monkeypatch.setattr(ledger, "LEASES", LEASES)

    async def run(network: Topology) -> None:
        draw = random.Random(1)
        hosts = [host.name for host in network.hosts]
        switches = sorted(switch.name for switch in network.switches)
        leased = Ledger(tmp_path / "leases.json")
        taken: dict[int, list[range]] = {}
        async with Controller(network, fanin_p4.p4info, fanin_p4.device_config(), leased) as controller:
            before = await read_state(network)
            jobs = NetworkJobs(controller, network, PACE)
            at_once: list[NetworkJob] = []
            begun = 0
            while begun < JOBS:
                some = draw.sample(hosts, draw.randint(1, len(hosts)))
                job = jobs.open(JobRequest(tuple(some), slots=draw.choice([None, 16, 300])))
                try:
                    await job.grant()
                    at_once.append(job)
                    begun += 1
                except NoRoomError:
                    job.close()
                if job in at_once:
                    assert job.granted is not None
                    lease = job.granted.tree.job
                    numbers = range(lease.first_chunk, lease.last_chunk + 1)
                    others = taken.setdefault(lease.lease, [])
                    assert all(numbers.stop <= other.start or other.stop <= numbers.start for other in others)
                    others.append(numbers)
                if job not in at_once or len(at_once) > 3:
                    ended = at_once.pop(draw.randrange(len(at_once)))
                    await ended.withdraw()
                    ended.close()
            assert min(map(len, taken.values())) > 1
            for job in at_once:
                await job.withdraw()
                job.close()
            assert await read_state(network) == before
            assert [jobs.budget.held(switch) for switch in switches] == [0] * len(switches)
            assert jobs.open(JobRequest(("h1",))).assignment("h1")["addresses"] == [("10.1.0.1", 28500)]
        assert sorted(pushes) == switches

    with running(leaf_spine(spines=2, leaves=2, hosts_per_leaf=2)) as (network, _):
        asyncio.run(run(network))
