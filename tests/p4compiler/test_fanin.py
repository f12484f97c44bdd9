"""The program of p4src compiles, and looks to the control plane as the rest of the project expects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fanin.p4compiler import Compiled, compile_file

pytestmark = pytest.mark.slow  # the fixture is

PROGRAM = Path(__file__).parents[2] / "p4src" / "fanin.p4"


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_file(PROGRAM)


def tables(compiled: Compiled) -> dict[str, dict[str, Any]]:
    return {t["name"]: t for p in compiled.json["pipelines"] for t in p["tables"]}


def test_it_compiles_without_a_warning(compiled: Compiled) -> None:
    assert compiled.warnings == ()


def test_every_value_of_a_block_has_a_register_of_its_own(compiled: Compiled) -> None:
    registers = {r["name"]: r for r in compiled.json["register_arrays"]}
    for block in range(4):
        names = [f"ingress.aggregation.block_{block}.r_{i}" for i in range(64)]
        assert {(registers[n]["bitwidth"], registers[n]["size"]) for n in names} == {(32, 2048)}


def test_an_addition_reads_saturates_and_writes_64_registers(compiled: Compiled) -> None:
    (add,) = (a for a in compiled.json["actions"] if a["name"] == "ingress.aggregation.block_2.add")
    ops = [p["op"] for p in add["primitives"]]
    assert (ops.count("register_read"), ops.count("register_write")) == (64, 64)
    assert "sat_cast" in str(add)
    assert {"values_2"} == {
        p["value"][0]
        for q in add["primitives"]
        for p in q["parameters"]
        if p["type"] == "field" and p["value"][0] != "scalars"
    }


def test_the_tables_are_those_of_the_controller(compiled: Compiled) -> None:
    names = {t.preamble.name for t in compiled.p4info.tables}
    assert names == {n for n in tables(compiled) if not n.startswith("tbl_")}
    assert {"ingress.aggregation.admission", "ingress.forwarding.ipv4_lpm", "egress.receivers"} <= names
    assert tables(compiled)["ingress.forwarding.ipv4_lpm"]["match_type"] == "lpm"


def test_every_node_leads_to_a_node_that_exists(compiled: Compiled) -> None:
    for pipeline in compiled.json["pipelines"]:
        nodes = {t["name"] for t in pipeline["tables"]} | {c["name"] for c in pipeline["conditionals"]}
        nexts = {pipeline["init_table"]}
        for table in pipeline["tables"]:
            nexts |= set(table["next_tables"].values()) | {table["base_default_next"]}
        for conditional in pipeline["conditionals"]:
            nexts |= {conditional["true_next"], conditional["false_next"]}
        assert nexts - {None} == nodes


def test_every_field_that_is_used_exists(compiled: Compiled) -> None:
    kinds = {t["name"]: {f[0] for f in t["fields"]} | {"$valid$"} for t in compiled.json["header_types"]}
    fields = {h["name"]: kinds[h["header_type"]] for h in compiled.json["headers"]}

    def look(part: object) -> None:
        if isinstance(part, dict):
            if part.get("type") == "field":
                header, name = part["value"]
                assert name in fields[header]
            for value in part.values():
                look(value)
        elif isinstance(part, list):
            for value in part:
                look(value)

    look([compiled.json["actions"], compiled.json["pipelines"], compiled.json["parsers"]])
