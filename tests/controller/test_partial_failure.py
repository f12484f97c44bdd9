"""Switches that refuse, go silent, die and come back, at each call of a grant and of a withdrawal.

Afterwards what each switch holds is what the controller means it to hold, and nothing else.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import finsy as fy
import grpc
import pytest
from finsy.proto import p4i, p4r

from fanin.controller.controller import Controller, Loss
from fanin.controller.errors import ControllerError
from fanin.controller.jobs.ledger import Ledger
from fanin.controller.plan import SwitchPlan
from fanin.p4compiler import Compiled, compile_once
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from tests.controller.switches import (
    Proxies,
    State,
    SwitchProcess,
    another_primary,
    proxied,
    read_entities,
    read_state,
    running,
)
from tests.sizes import sized

# In one process of pytest-xdist, which would start switches in each that has one of these otherwise.
pytestmark = pytest.mark.slow

HOSTS = ["h1", "h2"]
OTHERS = itertools.count(9000, 10)  # election ids of other controllers


@dataclass(frozen=True, slots=True)
class Scene:
    """A controller of two leaves below a spine, whose calls go by way of proxies."""

    controller: Controller
    proxies: Proxies
    network: Topology
    processes: dict[str, SwitchProcess]

    async def state(self) -> State:
        return await read_state(self.network)

    async def state_with_a_lease(self) -> State:
        """Return what the switches hold with the lease that `grant` gives, without its numbers."""
        lease = await self.controller.grant(HOSTS)
        state = await self.state()
        await lease.withdraw()
        return state


Within = Callable[[Callable[[Scene], Awaitable[None]]], None]


@pytest.fixture(scope="module")
def fragile() -> Iterator[tuple[Topology, dict[str, SwitchProcess]]]:
    with running(leaf_spine(spines=1, leaves=2, hosts_per_leaf=1)) as started:
        yield started


@pytest.fixture(scope="module")
def program(fanin_p4: Compiled) -> tuple[p4i.P4Info, bytes]:
    return fanin_p4.p4info, fanin_p4.device_config()


@pytest.fixture
def within(
    fragile: tuple[Topology, dict[str, SwitchProcess]], program: tuple[p4i.P4Info, bytes], tmp_path: Path
) -> Within:
    async def run(check: Callable[[Scene], Awaitable[None]]) -> None:
        network, processes = fragile
        async with (
            proxied(network) as proxies,
            Controller(
                proxies.network,
                *program,
                Ledger(tmp_path / "leases.json"),
            ) as controller,
        ):
            await check(Scene(controller, proxies, network, processes))

    return lambda check: asyncio.run(run(check))


# What goes wrong at a call. Each is given the request, and a function that makes the call.


def failure(code: grpc.StatusCode) -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details="the test's")


async def refused(_switch: str, _request: Any, _make: Any) -> Any:
    raise failure(grpc.StatusCode.INTERNAL)


async def half_done(_switch: str, request: Any, make: Any) -> Any:
    """The first half of a Write's updates, and then an error."""
    if isinstance(request, p4r.WriteRequest):
        half = p4r.WriteRequest()
        half.CopyFrom(request)
        del half.updates[len(half.updates) // 2 :]
        await make(half)
    raise failure(grpc.StatusCode.INTERNAL)


async def done_and_refused(_switch: str, request: Any, make: Any) -> Any:
    await make(request)
    raise failure(grpc.StatusCode.INTERNAL)


async def gone_before(_switch: str, _request: Any, _make: Any) -> Any:
    raise failure(grpc.StatusCode.UNAVAILABLE)


async def gone_after(_switch: str, request: Any, make: Any) -> Any:
    await make(request)
    raise failure(grpc.StatusCode.UNAVAILABLE)


MANY = 40  # more calls than there are


@pytest.mark.few(1)
@pytest.mark.parametrize("mishap", [refused, half_done, done_and_refused])
def test_a_grant_that_one_switch_refuses_leaves_nothing_on_any(within: Within, mishap: Any) -> None:
    async def check(scene: Scene) -> None:
        before = await scene.state()
        for call in range(MANY):
            scene.proxies.at(call, mishap)
            try:
                lease = await scene.controller.grant(HOSTS)
            except ControllerError:
                assert await scene.state() == before
            else:
                assert not scene.proxies.calm()
                assert call > 5
                await lease.withdraw()
                return
        raise AssertionError("no grant came to its end")

    within(check)


@pytest.mark.few(1)
@pytest.mark.parametrize("mishap", [refused, half_done, done_and_refused])
def test_a_withdrawal_that_one_switch_refuses_is_remembered_until_it_is_done(
    within: Within, mishap: Any
) -> None:
    async def check(scene: Scene) -> None:
        before = await scene.state()
        for call in range(MANY):
            lease = await scene.controller.grant(HOSTS)
            scene.proxies.at(call, mishap)
            try:
                await lease.withdraw()
            except ControllerError:
                await lease.withdraw()
            else:
                assert not scene.proxies.calm()
                assert call > 4
                return
            assert await scene.state() == before
            with pytest.raises(ControllerError, match="is not in force"):
                await lease.withdraw()
        raise AssertionError("no withdrawal came to its end")

    within(check)


def test_slots_of_a_withdrawal_that_failed_are_free_again_for_the_next_grant(within: Within) -> None:
    async def check(scene: Scene) -> None:
        before = await scene.state()
        first = await scene.controller.grant(HOSTS)
        scene.proxies.at(0, refused)
        with pytest.raises(ControllerError):
            await first.withdraw()
        second = await scene.controller.grant(HOSTS)
        with pytest.raises(ControllerError, match="is not in force"):
            await first.withdraw()
        await second.withdraw()
        assert await scene.state() == before

    within(check)


@pytest.mark.few(1)
@pytest.mark.parametrize("mishap", [gone_before, gone_after])
def test_a_switch_that_does_not_answer_once_is_asked_again(within: Within, mishap: Any) -> None:
    async def check(scene: Scene) -> None:
        before = await scene.state()
        sizes = {name: len(held) for name, held in (await scene.state_with_a_lease()).items()}
        for call in range(MANY):
            scene.proxies.at(call, mishap)
            lease = await scene.controller.grant(HOSTS)
            assert {name: len(held) for name, held in (await scene.state()).items()} == sizes
            happened = scene.proxies.calm()
            scene.proxies.at(call, mishap)
            await lease.withdraw()
            scene.proxies.calm()
            assert await scene.state() == before
            if not happened:
                assert call > 5
                return
        raise AssertionError("no grant came to its end")

    within(check)


@pytest.mark.few(1)
@pytest.mark.parametrize("done", [False, True])
def test_a_grant_that_is_cancelled_at_any_call_leaves_nothing(within: Within, done: bool) -> None:
    async def check(scene: Scene) -> None:
        before = await scene.state()

        async def cancel(_switch: str, request: Any, make: Any) -> Any:
            """done: when the switch has done it, and before it says so."""
            if done:
                await make(request)
            grant.cancel()
            return await make(request) if not done else p4r.WriteResponse()

        for call in range(MANY):
            scene.proxies.at(call, cancel)
            grant = asyncio.create_task(scene.controller.grant(HOSTS))
            try:
                lease = await grant
            except asyncio.CancelledError:
                assert await scene.state() == before
            else:
                scene.proxies.calm()
                assert call > 5
                await lease.withdraw()
                return
        raise AssertionError("no grant came to its end")

    within(check)


@pytest.mark.few(1)
@pytest.mark.long
@pytest.mark.parametrize("when", range(0, 7, sized(3, 1)))
def test_a_switch_that_is_killed_in_the_middle_and_started_again_holds_what_it_should(
    within: Within, when: int
) -> None:
    """At each call of a grant, and then at each of its withdrawal: empty when it is back, without a program."""

    async def check(scene: Scene) -> None:
        before = await scene.state()
        sizes = {name: len(held) for name, held in (await scene.state_with_a_lease()).items()}

        async def die(switch: str, _request: Any, _make: Any) -> Any:
            await asyncio.to_thread(scene.processes[switch].restart)
            raise failure(grpc.StatusCode.UNAVAILABLE)

        scene.proxies.at(when, die)
        lease = await scene.controller.grant(HOSTS)
        assert {name: len(held) for name, held in (await scene.state()).items()} == sizes
        scene.proxies.at(when, die)
        await lease.withdraw()
        assert await scene.state() == before

    within(check)


def test_a_switch_that_stays_away_is_named_and_brought_into_step_when_it_is_back(
    within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fanin.controller.connection._ANSWER_SECONDS", 2.0)

    async def check(scene: Scene) -> None:
        before = await scene.state()
        first = await scene.controller.grant(["h1"], slots=8)
        with_first = await scene.state()
        leaf2 = scene.processes["leaf2"]
        leaf2.end()
        with pytest.raises(ControllerError, match="leaf2"):
            await scene.controller.grant(HOSTS, base=8, slots=8)
        rest = {name: held for name, held in with_first.items() if name != "leaf2"}
        assert await read_state(scene.network, without=["leaf2"]) == rest
        leaf2.start()
        leaf2.wait_ready()
        await scene.controller.reconcile(["leaf2"])
        assert await scene.state() == with_first
        await first.withdraw()
        assert await scene.state() == before

    within(check)


def test_a_restarted_switch_gets_its_program_routes_loss_and_leases_back(within: Within) -> None:
    async def check(scene: Scene) -> None:
        await scene.controller.set_loss(0.1, seed=3)
        await scene.controller.grant(HOSTS)
        held = await scene.state()
        for process in scene.processes.values():
            process.restart()
        await scene.controller.reconcile()
        assert await scene.state() == held

    within(check)


def _port_of(entity: p4r.Entity, scene: Scene) -> int | None:
    """The port to the host of leaf1, if that is what the entity says."""
    [host] = scene.network.hosts_of("leaf1")
    match = entity.table_entry.match
    if [field.lpm.prefix_len for field in match] != [32] or match[0].lpm.value != host.ip.packed:
        return None
    return int.from_bytes(entity.table_entry.action.action.params[-1].value)


async def until_free(scene: Scene) -> None:
    """Until the controller knows that no other client has a switch."""
    async with asyncio.timeout(30):
        while scene.controller.taken_over():
            await asyncio.sleep(0)


async def tamper(scene: Scene) -> None:
    """Somebody else takes leaf1 over, deletes half of what it holds, adds a group, and goes."""
    held = await read_entities(scene.network, "leaf1")
    group = p4r.MulticastGroupEntry(multicast_group_id=300)
    replication = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
    async with another_primary(scene.network, "leaf1", next(OTHERS)) as write_as_another:
        await write_as_another(p4r.Update.DELETE, held[::2])
        foreign = p4r.Entity(packet_replication_engine_entry=replication)
        await write_as_another(p4r.Update.INSERT, [foreign])


def test_what_somebody_else_has_written_or_deleted_is_put_right_when_asked_for(within: Within) -> None:
    async def check(scene: Scene) -> None:
        await scene.controller.grant(HOSTS)
        held = await scene.state()
        await tamper(scene)
        assert await scene.state() != held
        await scene.controller.reconcile(["leaf1"])
        assert await scene.state() == held

    within(check)


def test_repair_puts_back_what_was_deleted_and_leaves_what_was_added(within: Within) -> None:
    async def check(scene: Scene) -> None:
        await scene.controller.grant(HOSTS)
        held = await scene.state()
        await scene.controller.repair()
        assert scene.controller.losses() == []
        await tamper(scene)
        await until_free(scene)
        deleted = len(held["leaf1"] - (await scene.state())["leaf1"])
        await scene.controller.repair()
        assert scene.controller.losses() == [Loss("leaf1", deleted, len(held["leaf1"]), emptied=False)]
        assert scene.controller.losses() == []
        after = await scene.state()
        assert after["leaf1"] > held["leaf1"]
        assert len(after["leaf1"]) == len(held["leaf1"]) + 1

    within(check)


def test_repair_replaces_what_was_changed(within: Within) -> None:
    async def check(scene: Scene) -> None:
        held = await scene.state()
        entities = await read_entities(scene.network, "leaf1")
        [changed] = [each for each in entities if _port_of(each, scene) is not None]
        async with another_primary(scene.network, "leaf1", next(OTHERS)) as write_as_another:
            params = changed.table_entry.action.action.params
            params[-1].value = b"\x07"
            await write_as_another(p4r.Update.MODIFY, [changed])
            assert await scene.state() != held
        await until_free(scene)
        await scene.controller.repair()
        assert await scene.state() == held

    within(check)


def test_who_has_taken_a_switch_over_is_left_alone_by_repair(within: Within) -> None:
    async def check(scene: Scene) -> None:
        held = await scene.state()
        async with another_primary(scene.network, "leaf1", next(OTHERS)) as write_as_another:
            await write_as_another(p4r.Update.DELETE, await read_entities(scene.network, "leaf1"))
            async with asyncio.timeout(30):
                while not scene.controller.taken_over():
                    await asyncio.sleep(0)
            await scene.controller.repair()
            assert await read_entities(scene.network, "leaf1") == []
        await until_free(scene)
        await scene.controller.repair()
        assert await scene.state() == held
        assert [(loss.switch, loss.emptied) for loss in scene.controller.losses()] == [("leaf1", True)]

    within(check)


def test_who_was_asked_for_something_meanwhile_still_hears_that_the_other_client_has_gone(
    within: Within,
) -> None:
    async def check(scene: Scene) -> None:
        held = await scene.state()
        election = next(OTHERS)
        async with another_primary(scene.network, "leaf1", election) as write_as_another:
            await write_as_another(p4r.Update.DELETE, await read_entities(scene.network, "leaf1"))
            with pytest.raises(ControllerError, match="leaf1 has another primary controller; end that one"):
                await scene.controller.grant(HOSTS)
            assert scene.controller.taken_over() == {"leaf1": election}
        await until_free(scene)
        await scene.controller.repair()
        assert await scene.state() == held

    within(check)


def test_a_switch_that_does_nothing_is_named_and_the_others_are_repaired(
    within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fanin.controller.connection._ANSWER_SECONDS", 2.0)

    async def check(scene: Scene) -> None:
        held = await scene.state()
        await tamper(scene)
        await until_free(scene)
        scene.processes["leaf2"].pause()
        report = await scene.controller.tend(read_tables=True)
        assert "leaf2 has not answered" in report.trouble
        assert "leaf1" not in report.trouble
        assert [loss.switch for loss in report.losses] == ["leaf1"]
        scene.processes["leaf2"].go_on()
        report = await scene.controller.tend(read_tables=True)
        assert (report.trouble, list(report.losses)) == ("", [])
        assert (await scene.state())["leaf2"] == held["leaf2"]

    within(check)


def test_whoever_finds_that_a_switch_has_restarted_it_is_told(within: Within) -> None:
    async def check(scene: Scene) -> None:
        held = await scene.state()
        scene.processes["leaf2"].restart()
        lease = await scene.controller.grant(HOSTS)
        [loss] = scene.controller.losses()
        assert (loss.switch, loss.lacked, loss.emptied) == ("leaf2", len(held["leaf2"]), True)
        await lease.withdraw()
        scene.processes["spine1"].restart()
        await scene.controller.repair()
        assert [loss.switch for loss in scene.controller.losses()] == ["spine1"]
        assert await scene.state() == held

    within(check)


def test_a_controller_that_takes_over_keeps_leases_in_force_and_removes_half_of_one(
    fragile: tuple[Topology, dict[str, SwitchProcess]], program: tuple[p4i.P4Info, bytes], tmp_path: Path
) -> None:
    network, _ = fragile
    given = *program, Ledger(tmp_path / "leases.json")

    async def run() -> None:
        async with Controller(network, *given) as first:
            without = await read_state(network)
            kept = await first.grant(HOSTS, slots=8)
            held = await read_state(network)
            for call in range(3):  # what one that is killed in the middle leaves: a part of a lease
                half = await first.grant(HOSTS, base=8 * (call + 1), slots=8)
                [entry, *_] = first.planner.plan_aggregation(network, half.tree)["leaf1"].entries
                await first._connections["leaf1"].remove(SwitchPlan((entry,)))
        async with Controller(network, *given, in_force=[kept.tree]) as second:
            report = await second.tend(read_tables=False)
            assert (report.trouble, list(report.losses)) == ("", [])
            assert await read_state(network) == held
            with pytest.raises(ControllerError, match="overlap those of lease"):
                await second.grant(HOSTS, slots=8)
            another = await second.grant(HOSTS, base=8, slots=8)
            assert another.tree.job.lease not in (kept.id, half.id)
            await another.withdraw()
            [again] = second.in_force
            await again.withdraw()
            assert await read_state(network) == without

    asyncio.run(run())


def test_what_somebody_else_has_added_outlives_a_grant_and_its_withdrawal(within: Within) -> None:
    async def check(scene: Scene) -> None:
        group = p4r.MulticastGroupEntry(multicast_group_id=300)
        replication = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
        async with another_primary(scene.network, "leaf1", next(OTHERS)) as write_as_another:
            foreign = p4r.Entity(packet_replication_engine_entry=replication)
            await write_as_another(p4r.Update.INSERT, [foreign])
            with pytest.raises(ControllerError, match="leaf1 has another primary controller; end that one"):
                await scene.controller.grant(HOSTS)
        before = await scene.state()
        lease = await scene.controller.grant(HOSTS)
        await lease.withdraw()
        assert await scene.state() == before

    within(check)


def test_a_program_that_finsy_pushes_beside_it_stays_until_this_one_is_asked_for_something(
    within: Within, tmp_path: Path
) -> None:
    other = compile_once(Path(__file__).parents[1] / "p4switch" / "programs" / "forwarder.p4")
    info, config = tmp_path / "forwarder.p4info.txtpb", tmp_path / "forwarder.json"
    info.write_text(other.p4info_text())
    config.write_bytes(other.device_config())

    async def check(scene: Scene) -> None:
        before = await scene.state()
        leaf, election = scene.network.switch("leaf1"), next(OTHERS)
        options = fy.SwitchOptions(
            p4info=info, p4blob=config, device_id=leaf.device_id, initial_election_id=election
        )
        assert scene.controller.taken_over() == {}
        async with fy.Switch("leaf1", f"127.0.0.1:{leaf.grpc_port}", options) as switch:
            assert switch.is_primary
            async with asyncio.timeout(30):
                while not scene.controller.taken_over():
                    await asyncio.sleep(0)
            assert scene.controller.taken_over() == {"leaf1": election}
            with pytest.raises(ControllerError, match="leaf1 has another primary controller; end that one"):
                await scene.controller.grant(HOSTS)
            assert await read_entities(scene.network, "leaf1") == []  # the other's tables, as they are
        await (await scene.controller.grant(HOSTS)).withdraw()
        assert scene.controller.taken_over() == {}
        assert await scene.state() == before

    within(check)


def test_a_controller_that_has_left_is_nobody_s_rival(
    fragile: tuple[Topology, dict[str, SwitchProcess]], program: tuple[p4i.P4Info, bytes], tmp_path: Path
) -> None:
    network, _ = fragile

    async def run() -> None:
        for _ in range(3):
            ledger = Ledger(tmp_path / "leases.json")
            controller = Controller(network, *program, ledger)
            async with controller:
                await controller.grant(HOSTS)

    asyncio.run(run())
