"""An observer tells what was written, in the program's names, while another controller is primary."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from finsy import P4Schema
from finsy.proto import p4r
from typer.testing import CliRunner

from fanin.cli import app
from fanin.controller.connection import Connection
from fanin.controller.entry_files import (
    Entries,
    NamedAction,
    NamedChoice,
    NamedEntry,
    Profile,
    observed,
    random_entries,
)
from fanin.controller.errors import ControllerError
from fanin.controller.observer import Observer
from fanin.experiments.tracing import fill
from fanin.p4compiler import compile_file
from fanin.p4switch import entries as p4
from fanin.p4switch.engine.engine import Engine
from fanin.topologies.shapes import leaf_spine
from fanin.verbs.running import tables
from tests.controller.switches import SwitchProcess, running

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MATCHES = ROOT / "tests" / "p4switch" / "programs" / "tables.p4"
ENTITIES = ROOT / "tests" / "p4switch" / "programs" / "entities.p4"


@pytest.fixture(scope="module")
def switch():
    with running(leaf_spine(spines=0, leaves=1, hosts_per_leaf=2)) as (topology, _):
        yield topology.switches[0]


@pytest.fixture
def observer(switch):
    with Observer(f"127.0.0.1:{switch.grpc_port}", switch.device_id) as found:
        yield found


async def written(switch, observer, compiled, entities) -> list[dict]:
    """Return the entities that are read from a switch with this program after others have been written."""
    connection = Connection(switch, P4Schema(compiled.p4info, compiled.json_text().encode()))
    await connection.open()
    try:
        await connection.push_pipeline()
        await connection.write(p4r.Update.INSERT, entities, entities)
        return await asyncio.to_thread(lambda: list(observer.tables()))
    finally:
        await connection.close()


def keys(entries: Entries, p4info) -> set[bytes]:
    return {entity.SerializeToString(deterministic=True) for entity in entries.encode(p4info)}


@pytest.mark.parametrize("path", [MATCHES, ROOT / "p4src" / "fanin.p4"], ids=lambda path: path.stem)
def test_what_was_written_is_read_back(switch, observer, path: Path) -> None:
    compiled = compile_file(path)
    config = compiled.json_text().encode()
    written_entries = random_entries(compiled.p4info, random.Random(1))
    assert written_entries.entries
    found = asyncio.run(written(switch, observer, compiled, written_entries.encode(compiled.p4info)))
    read = observed(found)
    there = {table.preamble.name for table in compiled.p4info.tables}
    assert set(read.defaults) <= there
    assert keys(replace(read, defaults={}), compiled.p4info) == keys(written_entries, compiled.p4info)
    names = {table.preamble.name for table in compiled.p4info.tables if not table.implementation_id}
    assert {each["table"] for each in found if each.get("kind") == "default"} == names
    assert list(observer.program()) == [json.loads(config)]


PROFILES = Entries(
    [
        NamedEntry("Receive.paths", {"hdr.flow.destination": 7}, group=2),
        NamedEntry("Receive.marks", {"hdr.flow.destination": 8}, member=1),
    ],
    profiles={
        "Receive.path_choice": Profile(
            {4: NamedAction("Receive.forward", {"port": 4}), 5: NamedAction("Receive.forward", {"port": 5})},
            {2: {4: 3, 5: 1}},
        ),
        "Receive.mark_choice": Profile({1: NamedAction("Receive.mark", {"label": 9})}),
    },
)


def test_members_and_groups_of_action_profiles_are_read_back_and_shown(switch, observer, monkeypatch) -> None:
    compiled = compile_file(ENTITIES)
    found = asyncio.run(written(switch, observer, compiled, PROFILES.encode(compiled.p4info)))
    assert replace(observed(found), defaults={}) == PROFILES
    client = SimpleNamespace(observe=lambda _what: found)
    monkeypatch.setattr(tables, "find_switch", lambda *_: client)
    lines = [line.split() for line in CliRunner().invoke(app, ["tables", "s1"]).stdout.splitlines()]
    for line in (
        "Receive.path_choice",
        "4 Receive.forward(port=4)",
        "2 4 weight 3, 5 weight 1",
        "Receive.mark_choice",
    ):
        assert line.split() in lines, line


def forward(port: int, weight: int) -> NamedChoice:
    return NamedChoice("Receive.forward", {"port": port}, weight)


# More choices than the action profile could have members, which these are not.
SETS = Entries(
    [
        NamedEntry("Receive.paths", {"hdr.flow.destination": number}, one_of=[forward(4, 3), forward(5, 1)])
        for number in range(40)
    ]
    + [NamedEntry("Receive.paths", {"hdr.flow.destination": 99}, one_of=[forward(6, 1)], random=True)],
    sessions={3: ((2, 1),)},
    defaults={"Receive.rates": NamedAction("Receive.metered")},
)


def test_a_copy_of_a_switch_does_what_the_switch_does(switch, observer) -> None:
    """With action sets, clone sessions and default actions, which a controller has written."""
    compiled = compile_file(ENTITIES)
    read = observed(asyncio.run(written(switch, observer, compiled, SETS.encode(compiled.p4info))))
    assert (
        replace(read, entries=sorted(read.entries, key=lambda each: each.match["hdr.flow.destination"]))
        == SETS
    )
    engine = Engine.load(compiled.device_config())
    fill(engine, read)
    forwarding = [p4.ActionCall("Receive.forward", (port,)) for port in (4, 5)]
    entries = {each.key.match: each.action for each in engine.table("Receive.paths").entries()}
    assert entries[(p4.Exact(7),)] == p4.OneShot(((forwarding[0], 3), (forwarding[1], 1)))
    assert entries[(p4.Exact(99),)] == p4.OneShot(((p4.ActionCall("Receive.forward", (6,)), 1),), random=True)
    assert engine.table("Receive.rates").default() == p4.ActionCall("Receive.metered")
    assert engine.sessions.all()[3] == (p4.Replica(2, 1),)


def test_a_switch_that_is_not_there_is_named() -> None:
    with (
        Observer("127.0.0.1:1", 1) as observer,
        pytest.raises(ControllerError, match="no switch answers at"),
    ):
        list(observer.counters())


def test_a_switch_without_a_program_says_so() -> None:
    empty = SwitchProcess(7)
    try:
        empty.wait_ready()
        with (
            Observer(f"127.0.0.1:{empty.grpc_port}", 7) as observer,
            pytest.raises(ControllerError, match="no pipeline yet"),
        ):
            list(observer.tables())
    finally:
        empty.end()
