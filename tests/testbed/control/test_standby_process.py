"""A second controller process takes over where the first one ends, in the middle of whatever it was doing."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from fanin.controller.errors import ControllerError
from fanin.p4compiler import Compiled
from fanin.testbed.control import controller_subprocess as candidate
from fanin.testbed.control.controller_process import ControllerProcess
from fanin.testbed.control.controller_subprocess import ControllerSubprocess, Setup
from fanin.testbed.control.standby_process import StandbyProcess
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from tests.controller.switches import SwitchProcess, read_state, running

pytestmark = pytest.mark.slow

HOSTS = ["h1", "h2"]
READY = "a standby for the controller is ready"
KILLED = "the controller has ended with signal SIGKILL\nthe standby takes over"


class Reports(list[str]):
    """The reports of a standby."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def hear(self, what: str) -> None:
        self.append(what)
        self._more.set()

    async def until(self, *expected: str) -> None:
        """All of it, and nothing else."""
        async with asyncio.timeout(120):
            while len(self) < len(expected):
                self._more.clear()
                await self._more.wait()
        assert self == list(expected)


Within = Callable[[Callable[[ControllerProcess, StandbyProcess, Reports], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Topology, dict[str, SwitchProcess]]]:
    with running(leaf_spine(spines=1, leaves=2, hosts_per_leaf=1)) as found:
        yield found


@pytest.fixture
def within(started: tuple[Topology, dict[str, SwitchProcess]], fanin_p4: Compiled, tmp_path: Path) -> Within:
    """Calls a coroutine function with a controller, its standby, which is ready, and what is reported then."""

    async def run(check: Callable[[ControllerProcess, StandbyProcess, Reports], Awaitable[None]]) -> None:
        program = fanin_p4.p4info.SerializeToString(), fanin_p4.device_config()
        setup = Setup(started[0], *program, tmp_path / "leases.json", 1.0, None)
        reports = Reports()
        async with ControllerProcess(setup, reports.hear, standby=True) as controller:
            assert controller._standby is not None
            await reports.until(READY)
            reports.clear()
            await check(controller, controller._standby, reports)
            processes = [controller._process, controller._standby._waiting]
        assert all(one._process.returncode is not None for one in processes if one is not None)

    return lambda check: asyncio.run(run(check))


def end(process: ControllerSubprocess | None, number: signal.Signals = signal.SIGKILL) -> None:
    assert process is not None
    os.kill(process.pid, number)


def test_a_grant_in_the_middle_of_which_the_controller_is_killed_is_the_standby_s(
    within: Within, started: tuple[Topology, dict[str, SwitchProcess]]
) -> None:
    network, processes = started

    async def check(controller: ControllerProcess, standby: StandbyProcess, reports: Reports) -> None:
        empty = await read_state(network)
        first = await controller.grant(HOSTS, 0xBEE0, 0, 8)
        held = await read_state(network)
        # leaf2 does not answer, so that the others have half of a lease.
        processes["leaf2"].pause()
        asking = asyncio.create_task(controller.grant(HOSTS, 0xBEE1, 8, 8))
        async with asyncio.timeout(60):
            while await read_state(network, without=["leaf2"]) == {
                name: state for name, state in held.items() if name != "leaf2"
            }:
                await asyncio.sleep(0)
        waiting = standby._waiting
        end(controller._process)
        processes["leaf2"].go_on()
        second = await asking
        assert controller._process is waiting
        assert second.tree.job.lease != first.tree.job.lease
        await second.withdraw()
        assert await read_state(network) == held
        await reports.until(KILLED, READY)  # and the next one
        end(controller._process)
        await first.withdraw()
        assert await read_state(network) == empty

    within(check)


def test_the_standby_is_killed_and_there_is_another_one(within: Within) -> None:
    async def check(controller: ControllerProcess, standby: StandbyProcess, reports: Reports) -> None:
        end(standby._waiting)
        killed = "the standby has ended with signal SIGKILL\nanother one is started"
        await reports.until(killed, READY)
        assert (await controller.tend(read_tables=True)).trouble == ""
        standby._restarts._lately *= 3
        end(standby._waiting)
        often = "it was started again 3 times within 60 s, and has ended each time"
        for_good = f"the standby has ended with signal SIGKILL\n{often}\nthere is no standby from now on"
        await reports.until(killed, READY, for_good)
        assert (await controller.tend(read_tables=True)).trouble == ""

    within(check)


def test_both_are_killed_and_the_controller_is_started_again(within: Within) -> None:
    async def check(controller: ControllerProcess, standby: StandbyProcess, reports: Reports) -> None:
        end(standby._waiting)
        end(controller._process)
        lease = await controller.grant(HOSTS, 0xBEE0, 0, 8)
        await lease.withdraw()
        assert any(text.endswith("it is started again") for text in reports)

    within(check)


def test_one_that_does_not_run_is_ended_before_the_standby_takes_over(within: Within) -> None:
    async def check(controller: ControllerProcess, standby: StandbyProcess, reports: Reports) -> None:
        stopped, waiting = controller._process, standby._waiting
        assert stopped is not None
        end(stopped, signal.SIGSTOP)
        stopped._silence = 0.5
        lease = await controller.grant(HOSTS, 0xBEE0, 0, 8)
        assert stopped._process.returncode == -signal.SIGKILL
        assert controller._process is waiting
        silent = "the controller has given no sign of life for 0.5 s, and was ended\nthe standby takes over"
        await reports.until(silent, READY)
        await lease.withdraw()

    within(check)


def test_one_that_runs_and_has_no_answer_gives_signs_of_life(
    within: Within, started: tuple[Topology, dict[str, SwitchProcess]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose asker is told, as without a standby."""
    leaf = started[1]["leaf2"]

    async def check(controller: ControllerProcess, standby: StandbyProcess, _reports: Reports) -> None:
        waiting = standby._waiting
        leaf.pause()
        monkeypatch.setattr(candidate, "_ANSWER_SECONDS", 3.0)
        try:
            with pytest.raises(ControllerError, match=r"3 s, .*; on the next request the standby takes over"):
                await controller.grant(HOSTS, 0xBEE0, 0, 8)
        finally:
            monkeypatch.undo()
            leaf.go_on()
        lease = await controller.grant(HOSTS, 0xBEE0, 0, 8)
        assert controller._process is waiting
        await lease.withdraw()

    within(check)
