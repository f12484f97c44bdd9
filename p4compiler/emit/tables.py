"""Pipelines as BMv2's JSON has them: tables, conditions, action profiles and what is attached to tables."""

from __future__ import annotations

from dataclasses import dataclass, field

from p4compiler import ir, types
from p4compiler.emit.actions import ActionWriter, algorithm
from p4compiler.emit.expressions import Json, hexadecimal, source_info
from p4compiler.emit.graph import Graph, IfNode, Node, TableNode
from p4compiler.source import Reporter, error

DEFAULT_TABLE_SIZE = 1024
_MATCH_ORDER = ("exact", "lpm", "ternary", "range")  # a table has the match type of its least exact key


@dataclass(slots=True)
class Numbers:
    """Identifiers, which are unique in the whole program."""

    tables: int = 0
    conditionals: int = 0
    profiles: int = 0
    actions: dict[ir.Action, int] = field(default_factory=dict)


class PipelineWriter:
    """Writes ingress and egress."""

    def __init__(self, actions: ActionWriter, numbers: Numbers, reporter: Reporter) -> None:
        self.expressions = actions.expressions
        self.numbers = numbers
        self.reporter = reporter
        self.counter_tables: dict[ir.Instance, ir.Table] = {}
        self.meter_tables: dict[ir.Instance, ir.Table] = {}

    def pipeline(self, name: str, number: int, block: ir.Block, graph: Graph) -> Json:
        """A pipeline with its tables and conditions."""
        tables: list[Json] = []
        conditionals: list[Json] = []
        profiles: dict[str, Json] = {}
        done: set[ir.Table] = set()
        for node in graph.nodes:
            if isinstance(node, IfNode):
                conditionals.append(self._conditional(node))
            elif node.table not in done:
                done.add(node.table)
                tables.append(self.table(node, profiles))
        return {
            "name": name,
            "id": number,
            "source_info": source_info(block.span),
            "init_table": _name(graph.first),
            "tables": tables,
            "action_profiles": list(profiles.values()),
            "conditionals": conditionals,
        }

    def _conditional(self, node: IfNode) -> Json:
        self.numbers.conditionals += 1
        return {
            "name": node.name,
            "id": self.numbers.conditionals - 1,
            "source_info": source_info(node.span),
            "expression": self.expressions.value(node.condition),
            "true_next": _name(node.chosen),
            "false_next": _name(node.other),
        }

    # Tables

    def table(self, node: TableNode, profiles: dict[str, Json]) -> Json:
        """A table."""
        table = node.table
        self.numbers.tables += 1
        made: Json = {
            "name": table.name,
            "id": self.numbers.tables - 1,
            "source_info": source_info(table.span),
            "key": [self.key(k) for k in table.key if k.match_kind != "selector"],
            "match_type": _match_type(table),
        }
        self._implementation(table, made, profiles)
        made["max_size"] = len(table.entries) if table.entries else table_size(table)
        made["with_counters"] = table.counters is not None
        made["support_timeout"] = table.support_timeout
        made["direct_meters"] = table.meters.name if table.meters is not None else None
        made["action_ids"] = [self.numbers.actions[call.action] for call in table.actions]
        made["actions"] = [call.action.name for call in table.actions]
        self._successors(node, made)
        if table.implementation is None:
            made["default_entry"] = {
                "action_id": self.numbers.actions[table.default.action],
                "action_const": table.default_constant,
                "action_data": self.data(table.default),
                "action_entry_const": table.default_constant,
            }
        elif table.default.action.name != "NoAction":
            self.reporter.warn(
                table.default.span, "the default action has no effect in a table with an action profile"
            )
        if table.entries is not None:
            made["entries"] = [self.entry(e, table) for e in table.entries]
        self._attach(table)
        return made

    def _attach(self, table: ir.Table) -> None:
        for instance, tables in ((table.counters, self.counter_tables), (table.meters, self.meter_tables)):
            if instance is not None:
                other = tables.setdefault(instance, table)
                if other is not table:
                    hint = f"table '{other.name}' has it already; declare another one"
                    raise error(table.span, f"'{instance.name}' can belong to one table only", hint)

    def key(self, element: ir.KeyElement) -> Json:
        """One element of a key."""
        expr, mask = element.expr, None
        width = types.width(expr.type) or 1
        match expr:
            case ir.Binary(op="&", left=left, right=ir.Constant(value=bits)):
                expr, mask = left, hexadecimal(bits, width)
            case ir.Binary(op="&", left=ir.Constant(value=bits), right=right):
                expr, mask = right, hexadecimal(bits, width)
        if isinstance(expr, ir.IsValid):
            target = [self.expressions.left(expr.header)["value"], "$valid$"]
        else:
            target = self.expressions.left(expr)["value"]
        kind = "ternary" if element.match_kind == "optional" else element.match_kind
        return {"match_type": kind, "name": element.name, "target": target, "mask": mask}

    def _implementation(self, table: ir.Table, made: Json, profiles: dict[str, Json]) -> None:
        instance = table.implementation
        if instance is None:
            made["type"] = "simple"
            return
        assert isinstance(instance.type, types.ExternInstance)
        selector = instance.type.extern.name == "action_selector"
        made["type"] = "indirect_ws" if selector else "indirect"
        made["action_profile"] = instance.name
        inputs = [self.expressions.left(k.expr) for k in table.key if k.match_kind == "selector"]
        if instance.name not in profiles:
            self.numbers.profiles += 1
            profile: Json = {
                "name": instance.name,
                "id": self.numbers.profiles - 1,
                "source_info": source_info(instance.span),
                "max_size": constant(instance.arguments[1 if selector else 0]),
            }
            if selector:
                profile["selector"] = {"algo": algorithm(instance.arguments[0]), "input": inputs}
            profiles[instance.name] = profile
        elif selector and profiles[instance.name]["selector"]["input"] != inputs:
            raise error(
                table.span, f"all tables of selector '{instance.name}' must have the same selector keys"
            )

    def _successors(self, node: TableNode, made: Json) -> None:
        if node.on_hit:
            made["base_default_next"] = None
            made["next_tables"] = {"__HIT__": _name(node.hit), "__MISS__": _name(node.miss)}
            return
        otherwise = _name(node.by_action[None])
        made["base_default_next"] = otherwise
        made["next_tables"] = {
            call.action.name: _name(node.by_action[call.action])
            if call.action in node.by_action
            else otherwise
            for call in node.table.actions
        }

    def entry(self, entry: ir.Entry, table: ir.Table) -> Json:
        """One of the const entries."""
        keys = []
        for value, element in zip(entry.keys, table.key, strict=True):
            keys.append(_match_key(value, element))
        call = {"action_id": self.numbers.actions[entry.call.action], "action_data": self.data(entry.call)}
        return {
            "source_info": source_info(entry.span),
            "match_key": keys,
            "action_entry": call,
            "priority": entry.priority,
        }

    def data(self, call: ir.ActionCall) -> list[str]:
        """Values of an action's data; a negative number as the bits that stand for it."""
        values = []
        for argument, parameter in zip(call.arguments, call.action.parameters, strict=True):
            assert isinstance(argument, ir.Constant)
            width = types.width(parameter.type) or 1
            values.append(hexadecimal(argument.value & ((1 << width) - 1)))
        return values


def constant(e: ir.Expr) -> int:
    """The value of an expression that instantiation has made a constant."""
    if not isinstance(e, ir.Constant):
        raise error(e.span, "this must be known when compiling")
    return e.value


def table_size(table: ir.Table) -> int:
    """How many entries a table can hold."""
    return (constant(table.size) if table.size is not None else 0) or DEFAULT_TABLE_SIZE


def _name(node: Node | None) -> str | None:
    return node.name if node is not None else None


def _match_type(table: ir.Table) -> str:
    kinds = [
        "ternary" if k.match_kind == "optional" else k.match_kind
        for k in table.key
        if k.match_kind != "selector"
    ]
    if kinds.count("lpm") > 1:
        raise error(table.span, f"table '{table.name}' has more than one lpm key", "BMv2 allows one")
    return max(kinds, key=_MATCH_ORDER.index, default="exact")


def _match_key(value: ir.KeyValue, element: ir.KeyElement) -> Json:
    width = types.width(element.expr.type) or 1
    full = (1 << width) - 1
    mask = full if value.mask is None else value.mask
    match element.match_kind:
        case "lpm":
            prefix = bin(mask).count("1")
            return {"match_type": "lpm", "key": hexadecimal(value.value, width), "prefix_length": prefix}
        case "ternary" | "optional":
            return {
                "match_type": "ternary",
                "key": hexadecimal(value.value, width),
                "mask": hexadecimal(mask, width),
            }
        case "range":
            low, high = (
                (0, full)
                if value.anything
                else (value.value, value.value if value.high is None else value.high)
            )
            return {"match_type": "range", "start": hexadecimal(low, width), "end": hexadecimal(high, width)}
    return {"match_type": element.match_kind, "key": hexadecimal(value.value, width)}
