"""Reads BMv2 JSON (format 2.x) into a `Program`; what the switch cannot run is refused here, by name."""

from __future__ import annotations

import json
from typing import Any

from p4switch.program import (
    Calculation,
    CalculationInput,
    Checksum,
    Constant,
    CounterArray,
    Deparser,
    Field,
    HeaderName,
    MeterArray,
    Program,
    ProgramError,
    RegisterArray,
    Table,
)
from p4switch.reader.expressions import Expressions
from p4switch.reader.headers import Headers
from p4switch.reader.parsers import ParserReader
from p4switch.reader.pipelines import PipelineReader
from p4switch.reader.values import Json, count, integer, text


def read_program(config: bytes) -> Program:
    """The program in a BMv2 JSON document; raises ProgramError naming what is malformed or unsupported."""
    try:
        document = json.loads(config)
    except ValueError as error:
        raise ProgramError(f"not a JSON document: {error}") from None
    if not isinstance(document, dict):
        raise ProgramError("not a BMv2 JSON document: its top level is not an object")
    try:
        return _Document(document).program()
    except ProgramError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ProgramError(f"malformed BMv2 JSON ({type(error).__name__}: {error})") from error


class _Document:
    def __init__(self, document: Json) -> None:
        self.document = document

    def items(self, key: str) -> list[Any]:
        """A top-level array."""
        value = self.document.get(key, [])
        if not isinstance(value, list):
            raise ProgramError(f"{key} is not an array")
        return value

    def program(self) -> Program:
        """Every section, in the order in which they refer to each other."""
        version = self.document.get("__meta__", {}).get("version")
        if not version or version[0] != 2:
            raise ProgramError(f"BMv2 JSON version 2.x is needed (__meta__.version), not {version}")
        for key in ("header_unions", "header_union_stacks", "parse_vsets", "extern_instances"):
            for item in self.items(key):
                raise ProgramError(f"{key}: {item.get('name')} is not supported")
        names = Headers(self.items("header_types"), self.items("headers"), self.items("header_stacks"))
        expressions = Expressions(names)
        actions = {count(a, "id"): expressions.action(a) for a in self.items("actions")}
        parsers, deparsers = self.items("parsers"), self.items("deparsers")
        if len(parsers) != 1 or len(deparsers) != 1:
            raise ProgramError(
                f"one parser and one deparser are needed, not {len(parsers)}, {len(deparsers)}"
            )
        if deparsers[0].get("primitives"):
            raise ProgramError("primitives in the deparser are not supported")
        reader = PipelineReader(expressions, actions)
        pipelines = {p["name"]: reader.pipeline(p) for p in self.items("pipelines")}
        for name in ("ingress", "egress"):
            if name not in pipelines:
                raise ProgramError(f"pipeline {name} is missing")
        tables = [n for p in pipelines.values() for n in p.nodes.values() if isinstance(n, Table)]
        return Program(
            name=str(self.document.get("program", "") or "program"),
            header_types=names.header_types,
            headers=names.headers,
            stacks=names.stacks,
            errors={str(name): int(value) for name, value in self.items("errors")},
            parser=ParserReader(expressions).parser(parsers[0]),
            deparser=Deparser(
                text(deparsers[0], "name"), tuple(names.header(h) for h in deparsers[0]["order"])
            ),
            ingress=pipelines["ingress"],
            egress=pipelines["egress"],
            tables={t.name: t for t in tables},
            actions=actions,
            counters={
                c["name"]: CounterArray(
                    text(c, "name"),
                    count(c, "id"),
                    count(c, "size", 0),
                    text(c, "binding") if c.get("is_direct") else None,
                )
                for c in self.items("counter_arrays")
            },
            registers={
                r["name"]: RegisterArray(
                    text(r, "name"), count(r, "id"), count(r, "size"), count(r, "bitwidth")
                )
                for r in self.items("register_arrays")
            },
            meters={
                m["name"]: MeterArray(
                    text(m, "name"),
                    count(m, "id"),
                    count(m, "size", 0),
                    text(m, "binding") if m.get("is_direct") else None,
                )
                for m in self.items("meter_arrays")
            },
            calculations={c["name"]: _calculation(c, names) for c in self.items("calculations")},
            checksums=tuple(_checksum(c, expressions) for c in self.items("checksums")),
            aliases={alias: Field(*target) for alias, target in self.items("field_aliases")},
        )


def _calculation(item: Json, names: Headers) -> Calculation:
    where = f"calculation {item['name']}"
    inputs: list[CalculationInput] = []
    for piece in item["input"]:
        match piece["type"]:
            case "field":
                inputs.append(CalculationInput(names.field(piece["value"])))
            case "header":
                inputs.append(CalculationInput(HeaderName(names.header(piece["value"]))))
            case "hexstr":
                inputs.append(CalculationInput(Constant(integer(piece["value"])), count(piece, "bitwidth")))
            case "payload":
                inputs.append(CalculationInput(None))
            case kind:
                raise ProgramError(f"{where}: input type {kind} is not supported")
    return Calculation(text(item, "name"), text(item, "algo"), tuple(inputs))


def _checksum(item: Json, expressions: Expressions) -> Checksum:
    condition = item.get("if_cond")
    return Checksum(
        text(item, "name"),
        expressions.names.field(item["target"]),
        text(item, "calculation"),
        bool(item.get("update", True)),
        bool(item.get("verify", True)),
        None if condition is None else expressions.expression(condition, f"checksum {item['name']}"),
    )
