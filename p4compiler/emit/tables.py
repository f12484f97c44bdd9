"""Pipelines in BMv2's JSON: tables, conditions, action profiles and the objects attached to tables."""

from __future__ import annotations

from fanin.p4compiler import ir, types
from fanin.p4compiler.emit.expressions import ExpressionWriter, Json, hexadecimal, source_info
from fanin.p4compiler.emit.lists import algorithm
from fanin.p4compiler.emit.numbers import Numbers
from fanin.p4compiler.graph import Graph, GraphProgram, IfNode, Node, TableNode
from fanin.p4compiler.source import Reporter, error

DEFAULT_TABLE_SIZE = 1024
_MATCH_ORDER = ("exact", "lpm", "ternary", "range")  # a table has the match type of its least exact key


class PipelineWriter:
    """Writer of ingress and egress."""

    def __init__(self, expressions: ExpressionWriter, numbers: Numbers, reporter: Reporter) -> None:
        self.expressions = expressions
        self.numbers = numbers
        self.reporter = reporter

    def pipeline(self, role: ir.Role, block: ir.Block, graph: Graph) -> Json:
        """Return a pipeline with its tables and conditions."""
        profiles = self._profiles(role, graph)
        nodes: dict[ir.Table, TableNode] = {}
        for node in graph.nodes:
            if isinstance(node, TableNode):
                nodes.setdefault(node.table, node)
        tables = [self.table(node) for node in nodes.values()]
        conditionals = [self._conditional(node) for node in graph.nodes if isinstance(node, IfNode)]
        return {
            "name": role.name.lower(),
            "id": ir.PIPELINES.index(role),
            "source_info": source_info(block.span),
            "init_table": _name(graph.first),
            "tables": tables,
            "action_profiles": profiles,
            "conditionals": conditionals,
        }

    def _conditional(self, node: IfNode) -> Json:
        return {
            "name": node.name,
            "id": self.numbers.conditionals[node],
            "source_info": source_info(node.span),
            "expression": self.expressions.value(node.condition),
            "true_next": _name(node.chosen),
            "false_next": _name(node.other),
        }

    # Tables

    def table(self, node: TableNode) -> Json:
        """Return the JSON of a table."""
        table = node.table
        made: Json = {
            "name": table.name,
            "id": self.numbers.tables[table],
            "source_info": source_info(table.span),
            "key": [self.key(k) for k in table.key if k.match_kind != "selector"],
            "match_type": _match_type(table),
        }
        self._implementation(table, made)
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
                table.default.span,
                "the default action has no effect in a table with an action profile",
                option="unsupported",
            )
        if table.entries is not None:
            made["entries"] = [self.entry(e, table) for e in table.entries]
            lowest = max((e.priority for e in table.entries), default=0)
            for entry, described in zip(table.entries, made["entries"], strict=True):
                if entry.control_priority != lowest + 1 - entry.priority:
                    described["p4runtime_priority"] = entry.control_priority
        return made

    def key(self, element: ir.KeyElement) -> Json:
        """Return one element of a key."""
        expr, mask = element.expr, None
        width = types.width(expr.type) or 0
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

    def _implementation(self, table: ir.Table, made: Json) -> None:
        if table.implementation is None:
            made["type"] = "simple"
            return
        made["type"] = "indirect_ws" if extern_name(table.implementation) == "action_selector" else "indirect"
        made["action_profile"] = table.implementation.name

    def _profiles(self, role: ir.Role, graph: Graph) -> list[Json]:
        """Return the action profiles and selectors of a pipeline's tables."""
        profiles: dict[str, Json] = {}
        for table in graph.tables:
            instance = table.implementation
            if instance is None:
                continue
            selector = extern_name(instance) == "action_selector"
            inputs = [self.expressions.left(k.expr) for k in table.key if k.match_kind == "selector"]
            if instance.name not in profiles:
                profile: Json = {
                    "name": instance.name,
                    "id": self.numbers.profiles[role, instance.name],
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
        return list(profiles.values())

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
        """Return one of the const entries."""
        keys = []
        for value, element in zip(entry.keys, table.key, strict=True):
            keys.append(_match_key(value, element))
        call = {"action_id": self.numbers.actions[entry.call.action], "action_data": self.data(entry.call)}
        return {
            "source_info": source_info(entry.span),
            "match_key": keys,
            "action_entry": call,
            "priority": entry.priority,
            **({"is_const": True} if entry.is_const and not table.entries_constant else {}),
        }

    def data(self, call: ir.ActionCall) -> list[str]:
        """Return the values of an action's data, with negative numbers in two's complement."""
        values = []
        for argument, parameter in zip(call.arguments, call.action.parameters, strict=True):
            assert isinstance(argument, ir.Constant)
            width = types.width(parameter.type) or 0
            values.append(hexadecimal(argument.value & ((1 << width) - 1)))
        return values


def attached_tables(program: GraphProgram) -> dict[ir.Instance, ir.Table]:
    """Return the table that each direct counter and meter belongs to.

    Raises:
        CompileError: If one belongs to two tables.
    """
    result: dict[ir.Instance, ir.Table] = {}
    for graph in program.graphs.values():
        for table in graph.tables:
            for instance in (table.counters, table.meters):
                if instance is not None and result.setdefault(instance, table) is not table:
                    hint = f"table '{result[instance].name}' has it already; declare another one"
                    raise error(table.span, f"'{instance.name}' can belong to one table only", hint)
    return result


def extern_name(instance: ir.Instance) -> str:
    """Return the name of an object's extern type; empty for parsers and controls."""
    return instance.type.extern.name if isinstance(instance.type, types.ExternInstance) else ""


def constant(e: ir.Expr) -> int:
    """Return the value of an expression that instantiation has made a constant.

    Raises:
        CompileError: If it is not a constant.
    """
    if not isinstance(e, ir.Constant):
        raise error(e.span, "this must be known when compiling")
    return e.value


def table_size(table: ir.Table) -> int:
    """Return the number of entries that a table can hold."""
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
    width = types.width(element.expr.type) or 0
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
