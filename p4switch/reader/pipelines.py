"""Reader for pipelines: tables, branches and their successors."""

from __future__ import annotations

from fanin.native.text import counted
from fanin.p4switch.bmv2json.expressions import Field
from fanin.p4switch.bmv2json.program import (
    Action,
    ActionNode,
    ActionProfile,
    Branch,
    ConstEntry,
    ConstMatch,
    DefaultAction,
    Node,
    Pipeline,
    ProgramError,
    Table,
    TableKey,
)
from fanin.p4switch.reader.expressions import Expressions
from fanin.p4switch.reader.values import (
    Json,
    checked_name,
    count,
    integer,
    optional_text,
    source,
    text,
)
from fanin.p4switch.word_packing import word_count

_MAX_PRIORITY = (1 << 31) - 1  # in P4Runtime
_MAX_PRIORITY = (1 << 31) - 1  # in P4Runtime
_MAX_RANGE_WORDS = 64  # the runtime has a bit for each
MATCH_KINDS = {"exact", "lpm", "ternary", "range", "optional", "valid"}


class PipelineReader:
    """Reader for pipelines.

    `actions` are the program's, by id. `profiles` collects the action profiles of all pipelines read. Malformed or
    unsupported items are raised as ProgramError.
    """

    def __init__(self, expressions: Expressions, actions: dict[int, Action]) -> None:
        self.expressions = expressions
        self.names = expressions.names
        self.actions = actions
        self.profiles: dict[str, ActionProfile] = {}
        self.selectors: dict[str, Json] = {}

    def pipeline(self, item: Json) -> Pipeline:
        """Read a pipeline with all its nodes."""
        for profile in item.get("action_profiles", []):
            name = text(profile, "name")
            selector = f"{name}.selector" if profile.get("selector") else None
            self.profiles[name] = ActionProfile(
                name, count(profile, "id"), count(profile, "max_size", 0), selector
            )
            if selector:
                self.selectors[selector] = {**profile["selector"], "name": selector}
        nodes: dict[str, Node] = {}
        for table in item.get("tables", []):
            nodes[table["name"]] = self._table(table)
        for branch in item.get("conditionals", []):
            condition = self.expressions.expression(branch["expression"], f"condition {branch['name']}")
            nodes[branch["name"]] = Branch(
                text(branch, "name"),
                condition,
                optional_text(branch, "true_next"),
                optional_text(branch, "false_next"),
                source(branch),
            )
        for call in item.get("action_calls", []):
            action = self._resolve_action(call["action_id"], f"action call {call['name']}")
            nodes[call["name"]] = ActionNode(
                text(call, "name"), action, optional_text(call, "next_node"), source(call)
            )
        initial = optional_text(item, "init_table")
        if initial is not None and initial not in nodes:
            raise ProgramError(f"pipeline {item['name']}: first node {initial} does not exist")
        pipeline = Pipeline(text(item, "name"), initial, nodes)
        for node in nodes.values():
            for successor in node.successors:
                if successor is not None and successor not in nodes:
                    raise ProgramError(f"{node.name}: next node {successor} does not exist")
        return pipeline

    def _resolve_action(self, action_id: int, where: str) -> Action:
        if action_id not in self.actions:
            raise ProgramError(f"{where}: action id {action_id} does not exist")
        return self.actions[action_id]

    def _table(self, item: Json) -> Table:
        where = f"table {item['name']}"
        implementation = item.get("type", "simple")
        if implementation not in ("simple", "indirect", "indirect_ws"):
            raise ProgramError(f"{where}: implementation {implementation} is not supported")
        profile = None if implementation == "simple" else text(item, "action_profile")
        if profile is not None and profile not in self.profiles:
            raise ProgramError(f"{where}: action profile {profile} does not exist")
        keys = tuple(self._table_key(k, where) for k in item["key"])
        if sum(word_count(key.width) for key in keys if key.kind == "range") > _MAX_RANGE_WORDS:
            raise ProgramError(f"{where}: its range keys are over {64 * _MAX_RANGE_WORDS} bits together")
        next_nodes = {name: optional_text(item["next_tables"], name) for name in item.get("next_tables", {})}
        actions = self._table_actions(item, where)
        entries = item.get("entries")
        return Table(
            text(item, "name"),
            count(item, "id"),
            text(item, "match_type"),
            keys,
            actions,
            count(item, "max_size", 1024),
            bool(item.get("with_counters")),
            bool(item.get("support_timeout")),
            next_nodes,
            optional_text(item, "base_default_next"),
            self._default_action(item.get("default_entry"), actions, where),
            None if entries is None else self._const_entries(entries, keys, actions, where),
            source(item),
            profile,
            optional_text(item, "direct_meters"),
        )

    def _table_actions(self, item: Json, where: str) -> tuple[Action, ...]:
        if "action_ids" in item:
            return tuple(self._resolve_action(i, where) for i in item["action_ids"])
        named = {a.name: a for a in self.actions.values()}
        for name in item["actions"]:
            if name not in named:
                raise ProgramError(f"{where}: action {name} does not exist")
        return tuple(named[name] for name in item["actions"])

    def _table_key(self, item: Json, where: str) -> TableKey:
        kind = item["match_type"]
        if kind not in MATCH_KINDS:
            raise ProgramError(f"{where}: match kind {kind} is not supported")
        if kind == "valid":
            name = item["target"] if isinstance(item["target"], str) else item["target"][0]
            target, width, signed = Field(self.names.header(name), "$valid$"), 1, False
        else:
            target = self.names.field(item["target"])
            found = self.names.headers[target.header].type.field(target.name)
            width, signed = (found.width, found.signed) if found else (1, False)
        mask = item.get("mask")
        return TableKey(
            checked_name(item.get("name") or f"{target.header}.{target.name}", f"{where}: a key"),
            kind,
            target,
            width,
            None if mask is None else integer(mask),
            signed,
        )

    def _default_action(
        self, item: Json | None, actions: tuple[Action, ...], where: str
    ) -> DefaultAction | None:
        if item is None:
            return None
        action, data = self._call(item, actions, where)
        is_const = bool(item.get("action_const")) or bool(item.get("action_entry_const"))
        return DefaultAction(action.id, data, is_const)

    def _call(self, item: Json, actions: tuple[Action, ...], where: str) -> tuple[Action, tuple[int, ...]]:
        action = self._resolve_action(item["action_id"], where)
        if action not in actions:
            raise ProgramError(f"{where}: action {action.name} is not one of its actions")
        data = tuple(integer(d) for d in item.get("action_data", []))
        if len(data) != len(action.parameters):
            raise ProgramError(
                f"{where}: action {action.name} needs {counted(len(action.parameters), 'argument')}"
            )
        for parameter, value in zip(action.parameters, data, strict=True):
            if not 0 <= value < 1 << parameter.width:
                raise ProgramError(
                    f"{where}: {parameter.name} = {value} of action {action.name} does not fit"
                )
        return action, data

    def _const_entries(
        self, items: list[Json], keys: tuple[TableKey, ...], actions: tuple[Action, ...], where: str
    ) -> tuple[ConstEntry, ...]:
        """Return a program's entries with P4Runtime's priorities: N for the first of N, unless they are given.

        In the JSON a low number wins. p4c writes 1 to N for const entries.
        """
        lowest = max((count(item, "priority", 0) for item in items), default=0)
        if lowest >= _MAX_PRIORITY:
            raise ProgramError(f"{where}: an entry has the priority {lowest}, at most {_MAX_PRIORITY - 1}")
        return tuple(self._const_entry(item, lowest, keys, actions, where) for item in items)

    def _const_entry(
        self,
        item: Json,
        lowest: int,
        keys: tuple[TableKey, ...],
        actions: tuple[Action, ...],
        where: str,
    ) -> ConstEntry:
        matches = []
        if len(item["match_key"]) != len(keys):
            raise ProgramError(
                f"{where}: an entry with {len(item['match_key'])} match fields, not {len(keys)}"
            )
        for match in item["match_key"]:
            kind = match["match_type"]
            if kind == "range":
                matches.append(ConstMatch(kind, integer(match["start"]), integer(match["end"])))
            elif kind == "lpm":
                matches.append(ConstMatch(kind, integer(match["key"]), count(match, "prefix_length")))
            elif kind == "ternary":
                matches.append(ConstMatch(kind, integer(match["key"]), integer(match["mask"])))
            elif kind in ("exact", "valid"):
                matches.append(ConstMatch(kind, integer(match["key"]), 0))
            else:
                raise ProgramError(f"{where}: match kind {kind} in an entry is not supported")
        action, data = self._call(item["action_entry"], actions, where)
        priority = count(item, "p4runtime_priority", lowest + 1 - count(item, "priority", 0))
        if priority > _MAX_PRIORITY:
            raise ProgramError(f"{where}: an entry has the priority {priority}, at most {_MAX_PRIORITY}")
        return ConstEntry(tuple(matches), priority, action.id, data, item.get("is_const") is True)
