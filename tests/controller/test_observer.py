"""An observer tells what was written, in the program's names, while another controller is primary."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest
from finsy import P4Schema
from finsy.proto import p4r

from fanin.controller.connection import Connection
from fanin.controller.entry_files import Entries, observed, random_entries
from fanin.controller.errors import ControllerError
from fanin.controller.observer import Observer
from fanin.p4compiler import compile_file
from fanin.topologies.shapes import leaf_spine
from tests.controller.switches import SwitchProcess, running

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MATCHES = ROOT / "tests" / "p4switch" / "programs" / "tables.p4"


@pytest.fixture(scope="module")
def switch():
    with running(leaf_spine(spines=0, leaves=1, hosts_per_leaf=2)) as (topology, _):
        yield topology.switches[0]


@pytest.fixture
def observer(switch):
    with Observer(f"127.0.0.1:{switch.grpc_port}", switch.device_id) as found:
        yield found


def keys(entries: Entries, p4info) -> set[bytes]:
    return {entity.SerializeToString(deterministic=True) for entity in entries.encode(p4info)}


@pytest.mark.parametrize("path", [MATCHES, ROOT / "p4src" / "fanin.p4"], ids=lambda path: path.stem)
def test_what_was_written_is_read_back(switch, observer, path: Path) -> None:
    compiled = compile_file(path)
    config = compiled.json_text().encode()
    written = random_entries(compiled.p4info, random.Random(1))
    assert written.entries

    async def write() -> list[dict]:
        connection = Connection(switch, P4Schema(compiled.p4info, config))
        await connection.open()
        try:
            await connection.push_pipeline()
            entities = written.encode(compiled.p4info)
            await connection.write(p4r.Update.INSERT, entities, entities)
            return await asyncio.to_thread(lambda: list(observer.tables()))
        finally:
            await connection.close()

    found = asyncio.run(write())
    assert keys(observed(found), compiled.p4info) == keys(written, compiled.p4info)
    names = {table.preamble.name for table in compiled.p4info.tables if not table.implementation_id}
    assert {each["table"] for each in found if each.get("kind") == "default"} == names
    assert list(observer.program()) == [json.loads(config)]


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
            pytest.raises(ControllerError, match="no program yet"),
        ):
            list(observer.tables())
    finally:
        empty.end()
