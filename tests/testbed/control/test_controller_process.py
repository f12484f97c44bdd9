"""A controller in a process of its own, which ends at any time: what is asked of it is done once it is there again."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fanin.controller.errors import ControllerError
from fanin.p4compiler import Compiled
from fanin.testbed.control import controller_subprocess as candidate
from fanin.testbed.control.controller_process import ControllerProcess
from fanin.testbed.control.controller_subprocess import Setup
from fanin.topologies.errors import NetworkError
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from tests.controller.switches import read_state, running

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
        monkeypatch.setattr(candidate, "_ANSWER_SECONDS", 0.5)
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


def test_one_that_cannot_be_started_again_is_tried_the_next_time(
    within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    async def check(controller: ControllerProcess, _reports: list[str]) -> None:
        end(controller, signal.SIGKILL)
        monkeypatch.setattr(candidate, "start", refuse)
        for _ in range(5):
            with pytest.raises(
                ControllerError, match=r"cannot be started \(Resource temporarily unavailable\)"
            ):
                await controller.tend(read_tables=False)
        monkeypatch.undo()
        assert (await controller.tend(read_tables=False)).trouble == ""

    within(check)


def test_one_that_ends_again_and_again_is_so_for_all_who_ask(within: Within) -> None:
    async def check(controller: ControllerProcess, _reports: list[str]) -> None:
        controller._restarts._lately = [time.monotonic()] * 3
        end(controller, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(
                NetworkError, match="signal SIGKILL\nit was started again 3 times within 60 s"
            ):
                await controller.grant(HOSTS, 0xBEE0, 0, 8)

    within(check)


def test_one_that_refuses_to_start_is_none(within: Within, tmp_path: Path) -> None:
    async def check(controller: ControllerProcess, reports: list[str]) -> None:
        end(controller, signal.SIGKILL)
        ledger = tmp_path / "leases.json"
        kept = ledger.read_text()
        ledger.write_text("nonsense")
        for _ in range(2):
            with pytest.raises(ControllerError, match=r"leases\.json"):
                await controller.tend(read_tables=False)
        assert controller._process is None
        ledger.write_text(kept)
        await controller.tend(read_tables=False)
        assert reports == ["the controller has ended with signal SIGKILL\nit is started again"]

    within(check)


def test_what_fails_in_a_way_that_nobody_foresaw_is_not_asked_again(within: Within) -> None:
    async def check(controller: ControllerProcess, reports: list[str]) -> None:
        hosts: Any = [["h1"]]  # of which there can be no set
        with pytest.raises(ControllerError, match="the controller ends because grant failed: TypeError"):
            await controller.grant(hosts, 0xBEE0, 0, 8)
        lease = await controller.grant(HOSTS, 0xBEE0, 0, 8)
        assert lease.tree.job.udp_port == 0xBEE0
        assert reports == ["the controller has ended with status 1\nit is started again"]

    within(check)


def test_the_network_ends_while_it_is_started_again(within: Within) -> None:
    async def check(controller: ControllerProcess, reports: list[str]) -> None:
        end(controller, signal.SIGKILL)
        asking = asyncio.create_task(controller.tend(read_tables=False))
        while not reports:
            await asyncio.sleep(0)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        await controller.__aexit__(None, None, None)
        assert not controller._exchanges
        assert controller._process is None or controller._process._process.returncode is not None

    within(check)


def test_who_was_to_ask_it_has_gone() -> None:
    """Without a traceback."""
    command = [sys.executable, "-m", "fanin.testbed.control.controller_main"]
    ended = subprocess.run(command, input="", capture_output=True, text=True, check=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("", "")
