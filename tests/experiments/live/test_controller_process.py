"""A controller in a process of its own, which ends at any time: what is asked of it is done once it is there again."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from controller.errors import ControllerError
from experiments.live import controller_process
from experiments.live.controller_process import ControllerProcess, Setup
from p4compiler import Compiled
from tests.controller.switches import read_state, running
from topologies.errors import NetworkError
from topologies.model import Topology, leaf_spine

pytestmark = pytest.mark.slow

HOSTS = ["h1", "h2"]
Within = Callable[[Callable[[ControllerProcess, list[str]], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def network() -> Iterator[Topology]:
    with running(leaf_spine(spines=1, leaves=2, hosts_per_leaf=1)) as (topology, _):
        yield topology


@pytest.fixture
def within(network: Topology, fanin_p4: Compiled, tmp_path: Path) -> Within:
    """Calls a coroutine function with a controller and a list of what it reports."""

    async def run(check: Callable[[ControllerProcess, list[str]], Awaitable[None]]) -> None:
        program = fanin_p4.p4info.SerializeToString(), fanin_p4.device_config()
        setup = Setup(network, *program, tmp_path / "leases.json", 1.0, None)
        reports: list[str] = []
        async with ControllerProcess(setup, reports.append) as controller:
            await check(controller, reports)

    return lambda check: asyncio.run(run(check))


def end(controller: ControllerProcess, number: signal.Signals) -> None:
    assert controller._process is not None
    os.kill(controller._process.pid, number)


def test_leases_outlive_the_controller_that_granted_them_and_no_number_comes_twice(
    within: Within, network: Topology
) -> None:
    async def check(controller: ControllerProcess, reports: list[str]) -> None:
        empty = await read_state(network)
        first = await controller.grant(HOSTS, 0xBEE0, 0, 8)
        held = await read_state(network)
        end(controller, signal.SIGKILL)
        report = await controller.tend(read_tables=False)
        assert (report.trouble, list(report.losses)) == ("", [])
        assert await read_state(network) == held
        assert reports == ["the controller has ended with signal SIGKILL\nit is started again"]
        end(controller, signal.SIGKILL)
        second = await controller.grant(HOSTS, 0xBEE1, 8, 8)
        assert second.tree.job.lease != first.tree.job.lease
        end(controller, signal.SIGKILL)
        await first.withdraw()
        await second.withdraw()
        assert await read_state(network) == empty
        end(controller, signal.SIGKILL)
        with pytest.raises(NetworkError, match="started again 3 times within 60 s, and has ended each time"):
            await controller.tend(read_tables=True)

    within(check)


def test_one_that_does_not_answer_is_ended_and_who_has_asked_is_told(
    within: Within, network: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(controller: ControllerProcess, reports: list[str]) -> None:
        empty = await read_state(network)
        end(controller, signal.SIGSTOP)
        monkeypatch.setattr(controller_process, "_ANSWER_SECONDS", 0.5)
        with pytest.raises(
            ControllerError, match=r"the controller has not answered for 0\.5 s, and was ended"
        ):
            await controller.grant(HOSTS, 0xBEE0, 0, 8)
        monkeypatch.undo()
        lease = await controller.grant(HOSTS, 0xBEE0, 0, 8)
        await lease.withdraw()
        assert await read_state(network) == empty
        assert reports == []

    within(check)


def test_a_grant_that_is_given_up_in_the_middle_leaves_its_answer_to_nobody(
    within: Within,
) -> None:
    async def check(controller: ControllerProcess, _reports: list[str]) -> None:
        given_up = asyncio.create_task(controller.grant(HOSTS, 0xBEE0, 0, 8))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        lease = await controller.grant(HOSTS, 0xBEE1, 8, 8)
        assert (lease.tree.job.udp_port, lease.tree.job.base) == (0xBEE1, 8)

    within(check)


def test_what_the_controller_refuses_is_said_by_it(within: Within) -> None:
    async def check(controller: ControllerProcess, _reports: list[str]) -> None:
        with pytest.raises(ControllerError, match="no host is called h9"):
            await controller.grant(["h9"], 0xBEE0, 0, 8)

    within(check)
