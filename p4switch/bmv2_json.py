"""Reads BMv2 JSON (format 2.x) into a `Program`; what the switch cannot run is refused here, by name."""

from __future__ import annotations

import json
from typing import Any

from p4switch.primitives import check_call
from p4switch.program import (
    Action,
    ActionNode,
    ActionParameter,
    Advance,
    Argument,
    Binary,
    Boolean,
    Branch,
    Calculation,
    CalculationInput,
    Checksum,
    Conditional,
    Constant,
    ConstEntry,
    ConstMatch,
    CounterArray,
    DefaultAction,
    Deparser,
    ElementField,
    Expression,
    Extract,
    ExtractNext,
    Field,
    FieldType,
    Header,
    HeaderName,
    HeaderStack,
    HeaderType,
    LastField,
    Lookahead,
    MeterArray,
    Named,
    Node,
    Parameter,
    Parser,
    ParserCall,
    ParserOperation,
    ParserState,
    Pipeline,
    Primitive,
    Program,
    ProgramError,
    RegisterArray,
    RegisterValue,
    Set,
    Source,
    StackElement,
    StackName,
    Table,
    TableKey,
    Transition,
    Unary,
    Verify,
)

Json = dict[str, Any]

UNARY = {"not", "~", "-", "d2b", "b2d", "valid", "last_stack_index", "size_stack"}
BINARY = {
    *("+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or"),
    *("two_comp_mod", "sat_cast", "usat_cast"),
}
NAMED = {"calculation", "counter_array", "register_array", "meter_array", "extern", "string"}
MATCH_KINDS = {"exact", "lpm", "ternary", "range", "optional", "valid"}


def read_program(config: bytes) -> Program:
    """The program in a BMv2 JSON document; raises ProgramError naming what is malformed or unsupported."""
    try:
        document = json.loads(config)
    except ValueError as error:
        raise ProgramError(f"not a JSON document: {error}") from None
    if not isinstance(document, dict):
        raise ProgramError("not a BMv2 JSON document: its top level is not an object")
    try:
        return _Reader(document).program()
    except ProgramError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ProgramError(f"malformed BMv2 JSON ({type(error).__name__}: {error})") from error


def _integer(text: str | int) -> int:
    return text if isinstance(text, int) else int(text, 16)


def _text(item: Json, key: str) -> str:
    value = item[key]
    if not isinstance(value, str):
        raise ProgramError(f"{item.get('name', 'an item')}: {key} is {value!r}, not a name")
    return value


def _optional_text(item: Json, key: str) -> str | None:
    return None if item.get(key) is None else _text(item, key)


def _count(item: Json, key: str, default: int | None = None) -> int:
    value = item[key] if default is None else item.get(key, default)
    if type(value) is not int or not 0 <= value < 1 << 32:
        raise ProgramError(f"{item.get('name', 'an item')}: {key} is {value!r}, not a number in 0..2^32 - 1")
    return value


def _source(item: Json) -> Source | None:
    info = item.get("source_info")
    if not info:
        return None
    return Source(
        str(info.get("filename", "")), _count(info, "line", 0), str(info.get("source_fragment", ""))
    )


class _Reader:
    def __init__(self, document: Json) -> None:
        self.document = document
        self.header_types: dict[str, HeaderType] = {}
        self.headers: dict[str, Header] = {}
        self.stacks: dict[str, HeaderStack] = {}
        self.actions: dict[int, Action] = {}

    def items(self, key: str) -> list[Any]:
        value = self.document.get(key, [])
        if not isinstance(value, list):
            raise ProgramError(f"{key} is not an array")
        return value

    def program(self) -> Program:
        version = self.document.get("__meta__", {}).get("version")
        if not version or version[0] != 2:
            raise ProgramError(f"BMv2 JSON version 2.x is needed (__meta__.version), not {version}")
        for key in ("header_unions", "header_union_stacks", "parse_vsets", "extern_instances"):
            for item in self.items(key):
                raise ProgramError(f"{key}: {item.get('name')} is not supported")
        self.read_headers()
        self.actions = {_count(a, "id"): self.action(a) for a in self.items("actions")}
        parsers, deparsers = self.items("parsers"), self.items("deparsers")
        if len(parsers) != 1 or len(deparsers) != 1:
            raise ProgramError(
                f"one parser and one deparser are needed, not {len(parsers)}, {len(deparsers)}"
            )
        if deparsers[0].get("primitives"):
            raise ProgramError("primitives in the deparser are not supported")
        pipelines = {p["name"]: self.pipeline(p) for p in self.items("pipelines")}
        for name in ("ingress", "egress"):
            if name not in pipelines:
                raise ProgramError(f"pipeline {name} is missing")
        tables = [n for p in pipelines.values() for n in p.nodes.values() if isinstance(n, Table)]
        return Program(
            name=str(self.document.get("program", "") or "program"),
            header_types=self.header_types,
            headers=self.headers,
            stacks=self.stacks,
            errors={str(name): int(value) for name, value in self.items("errors")},
            parser=self.parser(parsers[0]),
            deparser=Deparser(
                _text(deparsers[0], "name"), tuple(self.header(h) for h in deparsers[0]["order"])
            ),
            ingress=pipelines["ingress"],
            egress=pipelines["egress"],
            tables={t.name: t for t in tables},
            actions=self.actions,
            counters={
                c["name"]: CounterArray(
                    _text(c, "name"),
                    _count(c, "id"),
                    _count(c, "size", 0),
                    _text(c, "binding") if c.get("is_direct") else None,
                )
                for c in self.items("counter_arrays")
            },
            registers={
                r["name"]: RegisterArray(
                    _text(r, "name"), _count(r, "id"), _count(r, "size"), _count(r, "bitwidth")
                )
                for r in self.items("register_arrays")
            },
            meters={
                m["name"]: MeterArray(
                    _text(m, "name"),
                    _count(m, "id"),
                    _count(m, "size", 0),
                    _text(m, "binding") if m.get("is_direct") else None,
                )
                for m in self.items("meter_arrays")
            },
            calculations={c["name"]: self.calculation(c) for c in self.items("calculations")},
            checksums=tuple(self.checksum(c) for c in self.items("checksums")),
            aliases={alias: Field(*target) for alias, target in self.items("field_aliases")},
        )

    # Headers

    def read_headers(self) -> None:
        for item in self.items("header_types"):
            self.header_types[item["name"]] = self.header_type(item)
        by_id: dict[int, str] = {}
        for item in self.items("headers"):
            kind = self.header_types.get(item["header_type"])
            if kind is None:
                raise ProgramError(f"header {item['name']}: type {item['header_type']} does not exist")
            name = _text(item, "name")
            self.headers[name] = Header(name, _count(item, "id"), kind, bool(item.get("metadata")))
            by_id[item["id"]] = name
        for item in self.items("header_stacks"):
            names = tuple(by_id[i] for i in item["header_ids"])
            self.stacks[_text(item, "name")] = HeaderStack(item["name"], names)

    def header_type(self, item: Json) -> HeaderType:
        fields: list[FieldType] = []
        offset = 0
        for entry in item["fields"]:
            name, width = str(entry[0]), entry[1]
            if type(width) is not int or not 0 <= width < 1 << 20:
                raise ProgramError(f"field {item['name']}.{name}: variable-length fields are not supported")
            fields.append(FieldType(name, width, len(entry) > 2 and bool(entry[2]), offset))
            offset += width
        return HeaderType(_text(item, "name"), tuple(fields), offset)

    def header(self, name: str) -> str:
        if name not in self.headers:
            raise ProgramError(f"header {name} does not exist")
        return name

    def stack(self, name: str) -> str:
        if name not in self.stacks:
            raise ProgramError(f"header stack {name} does not exist")
        return name

    def field(self, value: Any) -> Field:
        header, name = value
        self.header(header)
        if name != "$valid$" and self.headers[header].type.field(name) is None:
            raise ProgramError(f"field {header}.{name} does not exist")
        return Field(header, name)

    # Expressions

    def expression(self, item: Any, where: str) -> Expression:
        if not isinstance(item, dict) or "type" not in item:
            raise ProgramError(f"{where}: not an expression: {item!r}")
        kind: str = item["type"]
        value: Any = item.get("value")
        match kind:
            case "field":
                reference = self.field(value)
                if reference.name == "$valid$":
                    return Unary("b2d", Unary("valid", HeaderName(reference.header)))
                return reference
            case "hexstr":
                return Constant(_integer(value))
            case "bool":
                return Boolean(bool(value))
            case "local" | "runtime_data":
                return Parameter(value)
            case "header":
                return HeaderName(self.header(value))
            case "header_stack":
                return StackName(self.stack(value))
            case "stack_field":
                return LastField(self.stack(value[0]), value[1])
            case "lookahead":
                return Lookahead(value[0], value[1])
            case "register":
                return RegisterValue(value[0], self.expression(value[1], where))
            case "expression":
                return self.operation(value, where) if "op" in value else self.expression(value, where)
        raise ProgramError(f"{where}: operand type {kind} is not supported")

    def operation(self, item: Json, where: str) -> Expression:
        op: str = item["op"]
        left: Any = item.get("left")
        right: Any = item.get("right")
        if op == "?":
            return Conditional(
                self.expression(item["cond"], where),
                self.expression(left, where),
                self.expression(right, where),
            )
        if op == "dereference_header_stack":
            return StackElement(self.stack(left["value"]), self.expression(right, where))
        if op == "access_field":
            element = self.expression(left, where)
            if isinstance(element, HeaderName):
                return Field(element.name, self.headers[element.name].type.fields[right].name)
            if not isinstance(element, StackElement):
                raise ProgramError(f"{where}: access_field needs a header")
            return ElementField(element, right)
        if left is None or right is None:
            if op not in UNARY:
                raise ProgramError(f"{where}: operator {op} is not supported")
            return Unary(op, self.expression(right if left is None else left, where))
        if op not in BINARY:
            raise ProgramError(f"{where}: operator {op} is not supported")
        return Binary(op, self.expression(left, where), self.expression(right, where))

    def primitive(self, item: Json, where: str) -> Primitive:
        arguments: list[Argument] = []
        for parameter in item.get("parameters", []):
            if parameter["type"] in NAMED:
                arguments.append(Named(parameter["type"], _text(parameter, "value")))
            elif parameter["type"] == "parameters_vector":
                raise ProgramError(f"{where}: primitive {item['op']} is not supported")
            else:
                arguments.append(self.expression(parameter, where))
        check_call(_text(item, "op"), tuple(arguments), where)
        return Primitive(item["op"], tuple(arguments), _source(item))

    def action(self, item: Json) -> Action:
        where = f"action {item['name']}"
        return Action(
            _text(item, "name"),
            _count(item, "id"),
            tuple(
                ActionParameter(_text(p, "name"), _count(p, "bitwidth")) for p in item.get("runtime_data", [])
            ),
            tuple(self.primitive(p, where) for p in item.get("primitives", [])),
            _source(item),
        )

    # Parser

    def parser(self, item: Json) -> Parser:
        states = {_text(s, "name"): self.parser_state(s) for s in item["parse_states"]}
        initial = _optional_text(item, "init_state")
        if initial is not None and initial not in states:
            raise ProgramError(f"parser {item['name']}: initial state {initial} does not exist")
        for state in states.values():
            for transition in state.transitions:
                if transition.next_state is not None and transition.next_state not in states:
                    raise ProgramError(
                        f"parser state {state.name}: next state {transition.next_state} does not exist"
                    )
        return Parser(_text(item, "name"), initial, states)

    def parser_state(self, item: Json) -> ParserState:
        where = f"parser state {item['name']}"
        key = tuple(self.expression(k, where) for k in item.get("transition_key", []))
        widths = tuple(self.key_width(k, where) for k in key)
        return ParserState(
            _text(item, "name"),
            tuple(self.parser_operation(o, where) for o in item.get("parser_ops", [])),
            key,
            widths,
            tuple(self.transition(t, widths, where) for t in item.get("transitions", [])),
        )

    def key_width(self, key: Expression, where: str) -> int:
        match key:
            case Field(header, name):
                found = self.headers[header].type.field(name)
            case LastField(stack, name):
                found = self.headers[self.stacks[stack].headers[0]].type.field(name)
            case Lookahead(_, width):
                return width
            case Unary("b2d", _):
                return 1
            case _:
                raise ProgramError(f"{where}: transition key {key} is not supported")
        if found is None:
            raise ProgramError(f"{where}: transition key {key} does not exist")
        return found.width

    def transition(self, item: Json, widths: tuple[int, ...], where: str) -> Transition:
        kind = item.get("type", "default" if item["value"] == "default" else "hexstr")
        next_state = _optional_text(item, "next_state")
        if kind == "default":
            return Transition(None, None, next_state)
        if kind != "hexstr":
            raise ProgramError(f"{where}: transition type {kind} is not supported")
        values = _split(_integer(item["value"]), widths)
        mask = item.get("mask")
        masks = (None,) * len(widths) if mask is None else _split(_integer(mask), widths)
        return Transition(values, masks, next_state)

    def parser_operation(self, item: Json, where: str) -> ParserOperation:
        op, parameters = item["op"], item["parameters"]
        match op:
            case "extract":
                target = parameters[0]
                if target["type"] == "regular":
                    return Extract(self.header(target["value"]))
                if target["type"] == "stack":
                    return ExtractNext(self.stack(target["value"]))
                raise ProgramError(f"{where}: extraction into {target['type']} is not supported")
            case "set":
                return Set(self.expression(parameters[0], where), self.expression(parameters[1], where))
            case "verify":
                return Verify(self.expression(parameters[0], where), self.expression(parameters[1], where))
            case "advance":
                return Advance(self.expression(parameters[0], where))
            case "shift":
                return Advance(Constant(8 * parameters[0]))
            case "primitive":
                return ParserCall(self.primitive(parameters[0], where))
        raise ProgramError(f"{where}: parser operation {op} is not supported")

    # Match-action

    def pipeline(self, item: Json) -> Pipeline:
        for profile in item.get("action_profiles", []):
            raise ProgramError(f"action profile {profile['name']} is not supported")
        nodes: dict[str, Node] = {}
        for table in item.get("tables", []):
            nodes[table["name"]] = self.table(table)
        for branch in item.get("conditionals", []):
            condition = self.expression(branch["expression"], f"condition {branch['name']}")
            nodes[branch["name"]] = Branch(
                _text(branch, "name"),
                condition,
                _optional_text(branch, "true_next"),
                _optional_text(branch, "false_next"),
                _source(branch),
            )
        for call in item.get("action_calls", []):
            action = self.resolve_action(call["action_id"], f"action call {call['name']}")
            nodes[call["name"]] = ActionNode(
                _text(call, "name"), action, _optional_text(call, "next_node"), _source(call)
            )
        initial = _optional_text(item, "init_table")
        if initial is not None and initial not in nodes:
            raise ProgramError(f"pipeline {item['name']}: first node {initial} does not exist")
        pipeline = Pipeline(_text(item, "name"), initial, nodes)
        for node in nodes.values():
            for successor in successors(node):
                if successor is not None and successor not in nodes:
                    raise ProgramError(f"{node.name}: next node {successor} does not exist")
        return pipeline

    def resolve_action(self, action_id: int, where: str) -> Action:
        if action_id not in self.actions:
            raise ProgramError(f"{where}: action id {action_id} does not exist")
        return self.actions[action_id]

    def table(self, item: Json) -> Table:
        where = f"table {item['name']}"
        if item.get("type", "simple") != "simple":
            raise ProgramError(f"{where}: implementation {item['type']} is not supported")
        if item.get("direct_meters"):
            raise ProgramError(f"{where}: direct meters are not supported")
        keys = tuple(self.table_key(k, where) for k in item["key"])
        next_nodes = {name: _optional_text(item["next_tables"], name) for name in item.get("next_tables", {})}
        actions = self.table_actions(item, where)
        entries = item.get("entries")
        return Table(
            _text(item, "name"),
            _count(item, "id"),
            _text(item, "match_type"),
            keys,
            actions,
            _count(item, "max_size", 1024),
            bool(item.get("with_counters")),
            bool(item.get("support_timeout")),
            next_nodes,
            _optional_text(item, "base_default_next"),
            self.default_action(item.get("default_entry"), actions, where),
            None if entries is None else tuple(self.const_entry(e, keys, actions, where) for e in entries),
            _source(item),
        )

    def table_actions(self, item: Json, where: str) -> tuple[Action, ...]:
        if "action_ids" in item:
            return tuple(self.resolve_action(i, where) for i in item["action_ids"])
        named = {a.name: a for a in self.actions.values()}
        for name in item["actions"]:
            if name not in named:
                raise ProgramError(f"{where}: action {name} does not exist")
        return tuple(named[name] for name in item["actions"])

    def table_key(self, item: Json, where: str) -> TableKey:
        kind = item["match_type"]
        if kind not in MATCH_KINDS:
            raise ProgramError(f"{where}: match kind {kind} is not supported")
        if kind == "valid":
            name = item["target"] if isinstance(item["target"], str) else item["target"][0]
            target, width = Field(self.header(name), "$valid$"), 1
        else:
            target = self.field(item["target"])
            found = self.headers[target.header].type.field(target.name)
            width = found.width if found else 1
        mask = item.get("mask")
        return TableKey(
            str(item.get("name") or f"{target.header}.{target.name}"),
            kind,
            target,
            width,
            None if mask is None else _integer(mask),
        )

    def default_action(
        self, item: Json | None, actions: tuple[Action, ...], where: str
    ) -> DefaultAction | None:
        if item is None:
            return None
        action, data = self.call(item, actions, where)
        is_const = bool(item.get("action_const")) or bool(item.get("action_entry_const"))
        return DefaultAction(action.id, data, is_const)

    def call(self, item: Json, actions: tuple[Action, ...], where: str) -> tuple[Action, tuple[int, ...]]:
        action = self.resolve_action(item["action_id"], where)
        if action not in actions:
            raise ProgramError(f"{where}: action {action.name} is none of its actions")
        data = tuple(_integer(d) for d in item.get("action_data", []))
        if len(data) != len(action.parameters):
            raise ProgramError(f"{where}: action {action.name} needs {len(action.parameters)} arguments")
        for parameter, value in zip(action.parameters, data, strict=True):
            if not 0 <= value < 1 << parameter.width:
                raise ProgramError(
                    f"{where}: {parameter.name} = {value} of action {action.name} does not fit"
                )
        return action, data

    def const_entry(
        self, item: Json, keys: tuple[TableKey, ...], actions: tuple[Action, ...], where: str
    ) -> ConstEntry:
        matches = []
        if len(item["match_key"]) != len(keys):
            raise ProgramError(
                f"{where}: an entry with {len(item['match_key'])} match fields, not {len(keys)}"
            )
        for match in item["match_key"]:
            kind = match["match_type"]
            if kind == "range":
                matches.append(ConstMatch(kind, _integer(match["start"]), _integer(match["end"])))
            elif kind == "lpm":
                matches.append(ConstMatch(kind, _integer(match["key"]), match["prefix_length"]))
            elif kind == "ternary":
                matches.append(ConstMatch(kind, _integer(match["key"]), _integer(match["mask"])))
            elif kind in ("exact", "valid"):
                matches.append(ConstMatch(kind, _integer(match["key"]), 0))
            else:
                raise ProgramError(f"{where}: match kind {kind} in an entry is not supported")
        action, data = self.call(item["action_entry"], actions, where)
        return ConstEntry(tuple(matches), _count(item, "priority", 0), action.id, data)

    # Calculations

    def calculation(self, item: Json) -> Calculation:
        where = f"calculation {item['name']}"
        inputs: list[CalculationInput] = []
        for piece in item["input"]:
            match piece["type"]:
                case "field":
                    inputs.append(CalculationInput(self.field(piece["value"])))
                case "header":
                    inputs.append(CalculationInput(HeaderName(self.header(piece["value"]))))
                case "hexstr":
                    inputs.append(
                        CalculationInput(Constant(_integer(piece["value"])), _count(piece, "bitwidth"))
                    )
                case "payload":
                    inputs.append(CalculationInput(None))
                case kind:
                    raise ProgramError(f"{where}: input type {kind} is not supported")
        return Calculation(_text(item, "name"), _text(item, "algo"), tuple(inputs))

    def checksum(self, item: Json) -> Checksum:
        condition = item.get("if_cond")
        return Checksum(
            _text(item, "name"),
            self.field(item["target"]),
            _text(item, "calculation"),
            bool(item.get("update", True)),
            bool(item.get("verify", True)),
            None if condition is None else self.expression(condition, f"checksum {item['name']}"),
        )


def successors(node: Node) -> tuple[str | None, ...]:
    """The nodes that may run after this one; None is the end of the pipeline."""
    match node:
        case Table():
            return (*node.next_nodes.values(), node.default_next)
        case Branch():
            return (node.when_true, node.when_false)
        case ActionNode():
            return (node.next_node,)


def _split(value: int, widths: tuple[int, ...]) -> tuple[int, ...]:
    """The fields in a concatenation of byte-padded fields."""
    parts = []
    for width in reversed(widths):
        size = (width + 7) // 8 * 8
        parts.append(value & ((1 << size) - 1))
        value >>= size
    return tuple(reversed(parts))
