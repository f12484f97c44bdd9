"""Reader from BMv2 JSON (format 2.x) to a `Program`. Unsupported elements are rejected here, by name."""

from __future__ import annotations

import json
import re
from typing import Any

from fanin.native.collector import without_collector
from fanin.p4switch.bmv2json.expressions import Constant, Field, HeaderName
from fanin.p4switch.bmv2json.program import (
    Calculation,
    CalculationInput,
    Checksum,
    CounterArray,
    Deparser,
    FieldList,
    MeterArray,
    Parser,
    Program,
    ProgramError,
    RegisterArray,
    Table,
    TableKey,
    ValueSet,
)
from fanin.p4switch.reader.expressions import Expressions
from fanin.p4switch.reader.headers import Headers
from fanin.p4switch.reader.parsers import ParserReader
from fanin.p4switch.reader.pipelines import PipelineReader
from fanin.p4switch.reader.values import (
    Json,
    bit_width,
    checked_name,
    count,
    integer,
    item_being_read,
    text,
)

MAX_CONFIG_BYTES = 64 << 20

# The folder in a source file's name. Parsing and writing the document would take 40 times as long.
_FOLDER = re.compile(rb"""("(?:program|filename)"\s*:\s*")(?:[^"\\]|\\.)*/""")


def read_program(config: bytes) -> Program:
    """Read the program in a BMv2 JSON document.

    Raises:
        ProgramError: If something is malformed or unsupported. The message names it.
    """
    if len(config) > MAX_CONFIG_BYTES:
        raise ProgramError(f"the JSON document has {len(config)} bytes, and may have {MAX_CONFIG_BYTES}")
    with without_collector():
        return _program_in(config)


def _program_in(config: bytes) -> Program:
    try:
        document = json.loads(config)
    except ValueError as error:
        raise ProgramError(f"not a JSON document: {error}") from None
    except RecursionError:
        raise ProgramError("the JSON document is nested too deeply") from None
    if not isinstance(document, dict):
        raise ProgramError("not a BMv2 JSON document: its top level is not an object")
    try:
        return _Document(document).program()
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        place, said = item_being_read(document, error), f"{type(error).__name__}: {error}"
        raise ProgramError(f"malformed BMv2 JSON at {place} ({said})") from error


def without_folders(config: bytes) -> bytes:
    """Return the part of BMv2 JSON that determines a program's C: everything but the folders of its source files."""
    return _FOLDER.sub(rb"\1", config)


class _Document:
    def __init__(self, document: Json) -> None:
        self.document = document

    def items(self, key: str) -> list[Any]:
        """Return a top-level array; empty if it is missing."""
        value = self.document.get(key, [])
        if not isinstance(value, list):
            raise ProgramError(f"{key} is not an array")
        return value

    def only(self, key: str) -> Any:
        """Return the only item of a top-level array."""
        items = self.items(key)
        if len(items) != 1:
            raise ProgramError(f"one of {key} is needed, not {len(items)}")
        return items[0]

    def check_head(self) -> None:
        """Reject other format versions, and programs for other targets."""
        version = self.document.get("__meta__", {}).get("version")
        if not version or version[0] != 2:
            raise ProgramError(f"BMv2 JSON version 2.x is needed (__meta__.version), not {version}")
        for item in self.items("extern_instances"):
            raise ProgramError(f"extern {item.get('name')} is not supported")

    def program(self) -> Program:
        """Read every section, in the order in which they refer to each other."""
        self.check_head()
        names = Headers(
            *(
                self.items(key)
                for key in (
                    "header_types",
                    "headers",
                    "header_stacks",
                    "header_unions",
                    "header_union_stacks",
                )
            )
        )
        expressions = Expressions(names)
        actions = {count(a, "id"): expressions.action(a) for a in self.items("actions")}
        reader = PipelineReader(expressions, actions)
        pipelines = {p["name"]: reader.pipeline(p) for p in self.items("pipelines")}
        for name in ("ingress", "egress"):
            if name not in pipelines:
                raise ProgramError(f"pipeline {name} is missing")
        tables = [n for p in pipelines.values() for n in p.nodes.values() if isinstance(n, Table)]
        parser = ParserReader(expressions).parser(self.only("parsers"))
        return Program(
            name=checked_name(self.document.get("program") or "program", "the program"),
            header_types=names.header_types,
            headers=names.headers,
            stacks=names.stacks,
            errors={checked_name(n, "an error"): integer(value) for n, value in self.items("errors")},
            parser=parser,
            deparser=_deparser(self.only("deparsers"), expressions),
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
                    text(r, "name"), count(r, "id"), count(r, "size"), bit_width(r, "bitwidth")
                )
                for r in self.items("register_arrays")
            },
            meters={m["name"]: _meter(m, names) for m in self.items("meter_arrays")},
            calculations={
                c["name"]: _calculation(c, names)
                for c in (*self.items("calculations"), *reader.selectors.values())
            },
            checksums=tuple(_checksum(c, expressions) for c in self.items("checksums")),
            unions=names.unions,
            value_sets={v["name"]: _value_set(v, parser) for v in self.items("parse_vsets")},
            profiles=reader.profiles,
            field_lists=_field_lists(self.items("field_lists"), expressions),
            digests=_field_lists(self.items("learn_lists"), expressions),
            aliases={
                checked_name(alias, "an alias"): names.field(target)
                for alias, target in self.items("field_aliases")
            },
        )


def _deparser(item: Json, expressions: Expressions) -> Deparser:
    return Deparser(
        text(item, "name"),
        tuple(expressions.names.header(h) for h in item["order"]),
        tuple(expressions.primitive(p, "deparser") for p in item.get("primitives", [])),
    )


def _meter(item: Json, names: Headers) -> MeterArray:
    target = item.get("result_target")
    kind = text(item, "type")
    rates = count(item, "rate_count", 2)
    if kind not in ("packets", "bytes") or rates > 2:
        raise ProgramError(f"meter {item['name']}: {rates} rates of {kind} are not supported")
    return MeterArray(
        text(item, "name"),
        count(item, "id"),
        count(item, "size", 0),
        rates,
        kind == "bytes",
        text(item, "binding") if item.get("is_direct") else None,
        None if target is None else names.field(target),
    )


def _value_set(item: Json, parser: Parser) -> ValueSet:
    """Read a value set, stored as a table whose keys are those of the parser states that use it."""
    name = text(item, "name")
    widths = {s.key_widths for s in parser.states.values() if any(t.value_set == name for t in s.transitions)}
    if len(widths) > 1:
        raise ProgramError(f"value set {name}: parser states compare it with keys of different widths")
    keys = tuple(
        TableKey(f"{name}[{number}]", "ternary", Field("", ""), width, None)
        for number, width in enumerate(widths.pop() if widths else ())
    )
    size = count(item, "max_size", 1024)
    table = Table(name, count(item, "id"), "ternary", keys, (), size, False, False, {}, None, None, None)
    return ValueSet(name, count(item, "id"), table)


def _field_lists(items: list[Json], expressions: Expressions) -> dict[int, FieldList]:
    lists = (
        FieldList(
            count(item, "id"),
            text(item, "name"),
            tuple(expressions.expression(e, f"field list {item['name']}") for e in item["elements"]),
        )
        for item in items
    )
    return {found.id: found for found in lists}


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
                inputs.append(
                    CalculationInput(Constant(integer(piece["value"])), bit_width(piece, "bitwidth"))
                )
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
