"""The controller against real switches: what it installs is there, what it removes is gone, what fails is named."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from finsy.proto import p4r, p4r_grpc

from fanin.controller import connection
from fanin.controller.connection import Count
from fanin.controller.controller import Controller
from fanin.controller.errors import ControllerError
from fanin.controller.jobs.ledger import LEASES, Ledger, NumberSpace
from fanin.controller.network import Network
from fanin.controller.plan import Plan, SwitchPlan, plan_forwarding
from fanin.controller.planner import Planner
from fanin.controller.telemetry import Event, Reason
from fanin.p4compiler import Compiled
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine, topology_from
from tests.controller.switches import read_state
from tests.free_ports import free_port

pytestmark = pytest.mark.slow

Within = Callable[[Callable[[Controller], Awaitable[None]]], None]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "leases.json")


def controller_of(network: Topology, fanin_p4: Compiled, ledger: Ledger) -> Controller:
    return Controller(network, fanin_p4.p4info, fanin_p4.device_config(), ledger)


@pytest.fixture
def within(network: Topology, fanin_p4: Compiled, ledger: Ledger) -> Within:
    """Calls a coroutine function with a controller of fresh switches."""

    async def run(check: Callable[[Controller], Awaitable[None]]) -> None:
        async with controller_of(network, fanin_p4, ledger) as controller:
            await check(controller)

    return lambda check: asyncio.run(run(check))


def test_after_entering_every_switch_routes_and_has_counted_nothing(
    within: Within, network: Topology
) -> None:
    async def check(controller: Controller) -> None:
        counts = await controller.counts()
        assert set(counts) == {"leaf1", "leaf2", "spine1", "spine2"}
        for name, counted in counts.items():
            assert set(counted.ports) == set(network.interfaces(name))
            assert all(port.received == port.sent == Count() for port in counted.ports.values())
            assert counted.drops == dict.fromkeys(Reason, Count())
            assert counted.events == dict.fromkeys(Event, Count())

    within(check)


def test_a_lease_is_installed_renewed_under_another_number_and_withdrawn(
    within: Within, network: Topology
) -> None:
    hosts = [host.name for host in network.hosts]

    async def check(controller: Controller) -> None:
        empty = await entries(network)
        lease = await controller.grant(hosts, slots=64)
        held = await entries(network)
        assert held["leaf1"] - empty["leaf1"] == 2 + 1 + 2 + 1  # admissions and receivers: hosts, parent
        assert held["spine1"] - empty["spine1"] == 2 + 2
        assert held["spine2"] == empty["spine2"]
        renewed = await lease.renew()
        assert renewed.id != lease.id
        job, before = renewed.tree.job, lease.tree.job
        assert job == replace(before, lease=job.lease, first_chunk=job.first_chunk, last_chunk=job.last_chunk)
        assert job.last_chunk - job.first_chunk == before.last_chunk - before.first_chunk
        assert await entries(network) == held
        with pytest.raises(ControllerError, match=f"lease {lease.id} is not in force"):
            await lease.withdraw()
        await renewed.withdraw()
        assert await entries(network) == empty

    within(check)


def test_jobs_share_a_switch_in_slots_of_their_own(within: Within) -> None:
    async def check(controller: Controller) -> None:
        first = await controller.grant(["h1", "h2"], base=0, slots=64)
        await controller.grant(["h3", "h4"], base=0, slots=64)  # the other leaf
        with pytest.raises(
            ControllerError, match=f"slots 63 to 72 overlap those of lease {first.id}, 0 to 63, on leaf1"
        ):
            await controller.grant(["h1"], base=63, slots=10)
        await controller.grant(["h1"], base=64, slots=10)

    within(check)


def test_loss_is_set_changed_and_taken_away(within: Within, network: Topology) -> None:
    async def check(controller: Controller) -> None:
        empty = await entries(network)
        for probability in (0.01, 0.02):
            await controller.set_loss(probability, seed=1)
            lossy = await entries(network)
            assert sum(lossy.values()) - sum(empty.values()) == 2 * len(network.links)
        await controller.set_loss(0)
        assert await entries(network) == empty

    within(check)


def test_there_is_no_end_of_leases(network: Topology, fanin_p4: Compiled, tmp_path: Path) -> None:
    """When all numbers have been handed out, the switches are programmed anew, and the first ones come again."""
    path = tmp_path / "leases.json"
    used_up = NumberSpace(LEASES, [2**32] * LEASES)

    async def run() -> None:
        with Ledger(path) as ledger:
            ledger._write(used_up)
        async with controller_of(network, fanin_p4, Ledger(path)) as controller:
            routes = await entries(network)
            await controller.set_loss(0.1)
            lossy = await entries(network)
            first = await controller.grant(["h1"], slots=16)
            assert (first.id, first.tree.job.first_chunk) == (1, 0)
            assert routes["leaf2"] < lossy["leaf2"] == (await entries(network))["leaf2"]

    asyncio.run(run())


def test_numbers_do_not_come_again_while_a_lease_is_in_force(
    network: Topology, fanin_p4: Compiled, tmp_path: Path
) -> None:
    path = tmp_path / "leases.json"

    async def run() -> None:
        with Ledger(path) as ledger:
            ledger._write(NumberSpace(0, [2**32 - 2**28] + [2**32] * (LEASES - 1)))
        async with controller_of(network, fanin_p4, Ledger(path)) as controller:
            last = await controller.grant(["h1"], slots=16)
            with pytest.raises(ControllerError, match=r"when no lease is in force: withdraw \[1\]"):
                await controller.grant(["h2"], base=16, slots=16)
            await last.withdraw()
            assert (await controller.grant(["h2"], base=16, slots=16)).tree.job.first_chunk == 0

    asyncio.run(run())


def test_a_job_that_cannot_be_placed_takes_no_numbers(within: Within, ledger: Ledger) -> None:
    async def check(controller: Controller) -> None:
        before = ledger._space
        with pytest.raises(ControllerError, match="no host is called h9"):
            await controller.grant(["h9"])
        assert ledger._space is before

    within(check)


def test_grants_at_the_same_time_get_slots_of_their_own_or_an_error(within: Within) -> None:
    async def check(controller: Controller) -> None:
        grants = [controller.grant(["h1", "h4"], base=base, slots=8) for base in (0, 4, 8)]
        outcomes = await asyncio.gather(*grants, return_exceptions=True)
        assert [isinstance(outcome, ControllerError) for outcome in outcomes] == [False, True, False]

    within(check)


def test_a_second_controller_is_refused_by_the_ledger_before_it_touches_a_switch(
    network: Topology, fanin_p4: Compiled, ledger: Ledger, tmp_path: Path
) -> None:
    async def run() -> None:
        async with controller_of(network, fanin_p4, ledger) as controller:
            await controller.grant(["h1", "h4"])
            held = await entries(network)
            with pytest.raises(ControllerError, match=r"leases\.json is in use by another controller"):
                await controller_of(network, fanin_p4, Ledger(tmp_path / "leases.json")).__aenter__()
            assert await entries(network) == held

    asyncio.run(run())


def test_entering_again_starts_from_a_fresh_program_and_with_other_numbers(
    network: Topology, fanin_p4: Compiled, ledger: Ledger
) -> None:
    async def run() -> None:
        granted = []
        for _ in range(3):
            async with controller_of(network, fanin_p4, ledger) as controller:
                empty = await entries(network)
                granted.append((await controller.grant(["h1", "h4"])).tree.job)
        assert len({(job.lease, job.first_chunk) for job in granted}) == 3
        async with controller_of(network, fanin_p4, ledger):
            assert await entries(network) == empty

    asyncio.run(run())


def test_an_entry_that_a_switch_refuses_is_named(within: Within, network: Topology) -> None:
    async def check(controller: Controller) -> None:
        twice = SwitchPlan(plan_forwarding(network)["leaf2"].entries[1:2])
        with pytest.raises(ControllerError) as caught:
            await controller._connections["leaf2"].insert(twice)
        assert "leaf2 refuses" in str(caught.value)
        assert str(twice.entries[0]) in str(caught.value)
        assert "ALREADY_EXISTS" in str(caught.value)

    within(check)


def test_an_entry_that_is_not_there_is_named_when_read_back(within: Within, network: Topology) -> None:
    async def check(controller: Controller) -> None:
        entry = plan_forwarding(network)["leaf1"].entries[1]
        altered = replace(entry, params={**entry.params, "port": 3})
        with pytest.raises(ControllerError) as caught:
            await controller._connections["leaf1"].verify(SwitchPlan((entry, altered)))
        assert str(caught.value) == f"leaf1 does not have what was installed: {altered}"

    within(check)


def test_an_entry_for_which_the_program_has_no_table_is_named(within: Within, network: Topology) -> None:
    async def check(controller: Controller) -> None:
        entry = replace(plan_forwarding(network)["leaf1"].entries[1], table="ingress.forwarding.ipv4_lpn")
        with pytest.raises(ControllerError, match=r"leaf1 has no place for ingress\.forwarding\.ipv4_lpn"):
            await controller._connections["leaf1"].insert(SwitchPlan((entry,)))

    within(check)


def test_a_switch_with_another_primary_controller_is_refused(
    network: Topology, fanin_p4: Compiled, ledger: Ledger, tmp_path: Path
) -> None:
    async def run() -> None:
        async with controller_of(network, fanin_p4, ledger):
            with pytest.raises(ControllerError, match="leaf1 refuses"):
                await controller_of(network, fanin_p4, Ledger(tmp_path / "other.json")).__aenter__()

    asyncio.run(run())


def test_a_switch_that_is_not_there_is_named_with_its_port(
    fanin_p4: Compiled, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_ANSWER_SECONDS", 0.2)
    data = leaf_spine(spines=0, leaves=1, hosts_per_leaf=1).model_dump(mode="json")
    port = data["switches"][0]["grpc_port"] = free_port()

    async def run() -> None:
        with pytest.raises(
            ControllerError, match=rf"leaf1 has not answered on 127\.0\.0\.1:{port} for 0\.2 s"
        ):
            await controller_of(topology_from(data), fanin_p4, ledger).__aenter__()

    asyncio.run(run())


def test_packets_and_new_leases_take_other_ways_when_links_are_down_and_come_back(
    within: Within, network: Topology
) -> None:
    async def check(controller: Controller) -> None:
        hosts = ["h1", "h3"]
        whole = await read_state(network)
        root = (await controller.grant(hosts, base=0, slots=8)).tree.root.switch
        with_lease = await read_state(network)
        usable = network.without(
            [link for link in network.links_of("leaf1") if link.far_end("leaf1").node == root]
        )
        await controller.reroute(usable)
        expected = await planned(controller, plan_forwarding(usable))
        assert {name: held - with_lease[name] for name, held in (await read_state(network)).items()} == {
            name: held - whole[name] for name, held in expected.items()
        }
        other = await controller.grant(hosts, base=8, slots=8)
        assert other.tree.root.switch != root
        await controller.repair()
        assert controller.losses() == []
        await controller.reroute(network)
        await other.withdraw()
        assert await read_state(network) == with_lease

    within(check)


async def planned(controller: Controller, plan: Plan) -> dict[str, frozenset[object]]:
    """As read_state has what switches hold."""
    return {
        name: frozenset(
            connection._canonical(controller._connections[name]._encode(item)) for item in part.items
        )
        for name, part in plan.items()
    }


def test_a_switch_to_reconcile_that_is_not_there_is_named(within: Within) -> None:
    async def check(controller: Controller) -> None:
        with pytest.raises(ControllerError, match="no switch is called leaf9; there are leaf1, leaf2"):
            await controller.reconcile(["leaf1", "leaf9"])
        await controller.reconcile()

    within(check)


def test_registers_can_be_looked_into(within: Within) -> None:
    async def check(controller: Controller) -> None:
        assert await controller.register("leaf1", "ingress.aggregation.lease") == [0] * 2048

    within(check)


async def entries(network: Topology) -> dict[str, int]:
    """How many table entries each switch holds, as another client reads them."""
    counted = {}
    for switch in network.switches:
        async with connection.grpc.aio.insecure_channel(f"127.0.0.1:{switch.grpc_port}") as channel:
            request = p4r.ReadRequest(
                device_id=switch.device_id, entities=[p4r.Entity(table_entry=p4r.TableEntry())]
            )
            responses = [r async for r in p4r_grpc.P4RuntimeStub(channel).Read(request)]
            counted[switch.name] = sum(len(response.entities) for response in responses)
    return counted


def test_what_switches_are_told_is_the_planners(
    network: Topology, fanin_p4: Compiled, ledger: Ledger
) -> None:
    hosts = [host.name for host in network.hosts]

    def only_leaves(network: Network) -> Plan:
        return {name: part for name, part in plan_forwarding(network).items() if name.startswith("leaf")}

    async def check() -> None:
        planner = Planner(plan_forwarding=only_leaves)
        made = (fanin_p4.p4info, fanin_p4.device_config(), ledger)
        async with Controller(network, *made, planner=planner) as controller:
            held = await entries(network)
            assert held["leaf1"] == len(only_leaves(network)["leaf1"].entries)
            assert held["spine1"] == held["spine2"] == 0
            await (await controller.grant(hosts, slots=64)).withdraw()
            assert await entries(network) == held

    asyncio.run(check())
