"""The inspector of real switches, without ports and packets: counters, leases, cells; and what is not there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4r

from fanin.controller.controller import Controller
from fanin.controller.errors import ControllerError
from fanin.controller.jobs.ledger import Ledger
from fanin.controller.telemetry import Telemetry
from fanin.p4compiler import Compiled
from fanin.testbed.monitoring import inspector as inspecting
from fanin.testbed.monitoring.inspector import Inspector
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from tests.controller.switches import SwitchProcess, running

pytestmark = pytest.mark.slow

JOB = {
    "name": "train",
    "state": "in network",
    "place": 0,
    "why": "",
    "aborted": "",
    "since": time.time(),
    "hosts": ["h1", "h2"],
}


class Service:
    """In place of a job service with one job, on both leaves."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    @property
    def jobs(self) -> Service:
        return self

    def documents(self) -> list[dict[str, Any]]:
        return self.found

    def forming(self) -> list[dict[str, Any]]:
        return []


Check = Callable[[Inspector, Controller, Service, dict[str, SwitchProcess]], Awaitable[None]]


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Topology, dict[str, SwitchProcess]]]:
    """Two leaves below a spine."""
    with running(leaf_spine(spines=1, leaves=2, hosts_per_leaf=1, rate=1_000_000)) as network:
        yield network


@pytest.fixture
def within(
    started: tuple[Topology, dict[str, SwitchProcess]], fanin_p4: Compiled, tmp_path: Path
) -> Callable[[Check], None]:
    """Calls a coroutine function with an inspector of the switches, and a lease of their hosts."""

    async def run(check: Check) -> None:
        network, processes = started
        made = network, fanin_p4.p4info, fanin_p4.device_config(), Ledger(tmp_path / "leases.json")
        async with Controller(*made) as controller, Telemetry(*made[:3]) as telemetry:
            service: Any = Service()
            inspector = Inspector(network, telemetry, service)
            grant = await controller.grant(["h1", "h2"], base=8, slots=4)
            tree = [
                {"switch": part.switch, "children": part.children, "parent": part.parent}
                for part in grant.tree.aggregators
            ]
            service.found.append(JOB | {"workers": [], "lease": grant.id, "slots": [8, 11], "tree": tree})
            await check(inspector, controller, service, processes)

    return lambda check: asyncio.run(run(check))


def test_a_look_has_switches_links_and_slots(within: Callable[[Check], None]) -> None:
    async def check(inspector: Inspector, _c: Any, _s: Any, _p: Any) -> None:
        look = await inspector.look()
        assert {
            name: (view.slots, view.received, view.error) for name, view in look.switches.items()
        } == dict.fromkeys(("leaf1", "leaf2", "spine1"), (4, 0, ""))
        ways = {(link.sender, link.receiver): link for link in look.links}
        assert set(ways) == {
            way
            for a, b in (("h1", "leaf1"), ("h2", "leaf2"), ("leaf1", "spine1"), ("leaf2", "spine1"))
            for way in ((a, b), (b, a))
        }
        assert all((link.rate, link.packets, link.up) == (1_000_000, 0, None) for link in look.links)
        assert look.jobs[0].name == "train"

    within(check)


def test_cells_are_those_of_the_job_s_slots(within: Callable[[Check], None]) -> None:
    async def check(inspector: Inspector, controller: Controller, _s: Any, _p: Any) -> None:
        connection = controller._connections["leaf1"]
        values = {"lease": 7, "chunk": 1234, "seen": 1, "done": 1}
        entities = []
        for name, value in values.items():
            register = connection._schema.registers[f"ingress.aggregation.{name}"]
            data = register.type_spec.encode_data(value)
            place = {"register_id": register.id, "index": p4r.Index(index=19)}
            entities.append(p4r.Entity(register_entry=p4r.RegisterEntry(**place, data=data)))
        await connection.write(p4r.Update.MODIFY, entities, entities)
        found = await inspector.cells("train")
        assert set(found) == {"leaf1", "leaf2", "spine1"}
        assert set(found["leaf1"].cells) == set(range(16, 24))
        assert found["leaf1"].cells[19].model_dump() == values | {"done": True}
        assert found["leaf2"].cells[19].model_dump() == {"lease": 0, "chunk": 0, "seen": 0, "done": False}
        with pytest.raises(ControllerError, match="no job is called tarin"):
            await inspector.cells("tarin")

    within(check)


def test_a_switch_that_has_gone_is_told_beside_the_others(within: Callable[[Check], None]) -> None:
    async def check(inspector: Inspector, _c: Any, _s: Any, processes: dict[str, SwitchProcess]) -> None:
        processes["leaf2"].end()
        look = await inspector.look()
        assert look.switches["leaf2"].error.startswith("leaf2 is not there")
        assert not look.switches["leaf1"].error
        found = await inspector.cells("train")
        assert "leaf2 is not there" in found["leaf2"].error
        assert found["leaf1"].cells
        processes["leaf2"].start()
        processes["leaf2"].wait_ready()

    within(check)


def test_registers_that_a_switch_does_not_tell_are_not_known(
    within: Callable[[Check], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(inspector: Inspector, _c: Any, _s: Any, _p: Any) -> None:
        async def refuse(_telemetry: Telemetry, switch: str, _name: str) -> list[int]:
            raise ControllerError(f"{switch} refuses: UNIMPLEMENTED Register reads are not supported yet")

        monkeypatch.setattr(Telemetry, "register", refuse)
        assert (await inspector.cells("train"))["leaf1"].error.startswith(
            "not known, as on BMv2 (leaf1 refuses"
        )

    within(check)


def test_a_command_that_does_not_end_is_killed_and_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(inspecting, "_COMMAND_SECONDS", 1)
    number = tmp_path / "pid"
    assert asyncio.run(inspecting._json_of("sh", "-c", f"echo $$ > {number}; exec sleep 1000")) == []
    assert not Path("/proc", number.read_text().strip()).exists()
