"""Typing of tables (P4_16 specification, 14.2)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.check.conversions import known
from fanin.p4compiler.check.expressions import ExpressionChecker
from fanin.p4compiler.check.instances import InstanceChecker
from fanin.p4compiler.check.keys import key_name, key_values, spread
from fanin.p4compiler.check.scopes import Scopes, no_such
from fanin.p4compiler.check.types import MATCH_KIND
from fanin.p4compiler.nodes import annotation_text
from fanin.p4compiler.rewrite import same
from fanin.p4compiler.source import Span, error, suggestion

_MAX_PRIORITY = (1 << 31) - 2  # one less than P4Runtime has, as they are raised by one where an entry has 0
_OF_ENTRIES = ("largest_priority_wins", "priority_delta")
_PROPERTIES = ("size", "counters", "meters", "implementation", "support_timeout", *_OF_ENTRIES)
# PSA's names of properties that v1model has, too
_PSA_PROPERTIES = {
    "psa_direct_counter": "counters",
    "psa_direct_meter": "meters",
    "psa_implementation": "implementation",
}
_ATTACHED = {
    "counters": ("direct_counter",),
    "meters": ("direct_meter",),
    "implementation": ("action_profile", "action_selector"),
}


class TableChecker:
    """Type checker for tables.

    Errors in the program are raised as CompileError.
    """

    def __init__(self, scopes: Scopes, expressions: ExpressionChecker, instances: InstanceChecker) -> None:
        self.scopes = scopes
        self.expressions = expressions
        self.types = expressions.types
        self.constants = expressions.constants
        self.calls = expressions.calls
        self.instances = instances

    def table(self, node: nodes.Table) -> ir.Table:
        """Check a table with its key, actions, entries and properties."""
        key = tuple(self._key_element(k) for k in node.key)
        _check_key_names(key)
        calls = [self._listed_action(ref) for ref in node.actions]
        names = [call.action.name for call in calls]
        for ref, name in zip(node.actions, names, strict=True):
            if names.count(name) > 1:
                raise error(ref.span, f"action '{name}' is listed twice")
        default = self.default_action(node, calls)
        table = ir.Table(
            node.name,
            key,
            tuple(calls),
            default,
            node.default_constant,
            None,
            node.name_span,
            self.constants.annotations(node.annotations),
        )
        if node.entries is not None:
            entries = self.entries(node, table)
            table = replace(table, entries=entries, entries_constant=node.entries_constant)
        for property_ in node.properties:
            table = self._with_property(property_, table)
        if any(k.match_kind == "selector" for k in key) and table.implementation is None:
            self.scopes.reporter.warn(
                node.name_span,
                "a selector key without an action_selector has no effect",
                "add implementation = ...;",
                option="no-implementation",
            )
        return table

    def _key_element(self, node: nodes.KeyElement) -> ir.KeyElement:
        if node.match_kind not in self.types.match_kinds:
            raise no_such("match kind", node.match_kind, node.match_span, self.types.match_kinds)
        self.scopes.use_member(MATCH_KIND, node.match_kind, node.match_span)
        value = self.expressions.expr(node.expression)
        if isinstance(value.type, types.Int) or types.width(value.type) is None:
            raise error(node.expression.span, f"a value of type {value.type} cannot be a key")
        given = annotation_text(node.annotations, "name")
        name = given if given is not None else key_name(value)
        if name is None:
            hint = f'write ...: {node.match_kind} @name("...");'
            raise error(
                node.expression.span, "a key that is computed needs a name for the control plane", hint
            )
        return ir.KeyElement(
            value,
            node.match_kind,
            name,
            node.expression.span,
            self.constants.annotations(node.annotations),
        )

    # Actions

    def _find_action(self, ref: nodes.ActionRef, likely: Collection[str] = ()) -> ir.Action:
        symbol = self.scopes.lookup(ref.name, ref.span, ref.rooted, "action", likely)
        if not isinstance(symbol, ir.Action):
            raise error(ref.span, f"'{ref.name}' is not an action")
        return symbol

    def _listed_action(self, ref: nodes.ActionRef) -> ir.ActionCall:
        action = self._find_action(ref)
        directed = [p for p in action.parameters if p.direction]
        given = ref.arguments or ()
        if len(given) > len(directed):
            listed = ", ".join(a.span.fragment() for a in given[: len(directed)])
            hint = f"write {ref.name}{f'({listed})' if listed else ''};"
            raise error(ref.span, f"'{ref.name}' is listed with values that the control plane gives", hint)
        if directed and not given:
            first = directed[0]
            message = f"'{ref.name}' is listed without values for its parameters with a direction"
            hint = f"leave out {first.direction} before {first.name}, or write {ref.name}(value)"
            raise error(ref.span, message, hint)
        values = self.calls.block_arguments(ref, action.name, directed)
        return ir.ActionCall(action, values, ref.span, self.constants.annotations(ref.annotations))

    def default_action(self, node: nodes.Table, calls: list[ir.ActionCall]) -> ir.ActionCall:
        """Return the default action: the one written, else NoAction."""
        if node.default is None:
            symbol = self.scopes.top.find("NoAction")
            if not isinstance(symbol, ir.Action):
                raise error(node.name_span, f"table '{node.name}' has no default_action", "include <core.p4>")
            call = next((c for c in calls if c.action is symbol), None)
            if call is None:
                only = nodes.Annotation(node.name_span, "defaultonly", (), "")
                call = ir.ActionCall(symbol, (), node.name_span, (only,))
                calls.append(call)
            return ir.ActionCall(symbol, (), node.name_span)
        return self.bound_action(node.default, calls, "tableonly")

    def bound_action(
        self,
        ref: nodes.ActionRef,
        calls: list[ir.ActionCall] | tuple[ir.ActionCall, ...],
        excluded: str,
    ) -> ir.ActionCall:
        """Check an action and the arguments for its parameters without direction.

        The arguments for parameters with a direction are those in the table's list.

        Args:
            ref: The action as written.
            calls: The table's list of actions.
            excluded: The annotation in the list that forbids this use, such as `defaultonly`.
        """
        names = [c.action.name for c in calls if not any(a.name == excluded for a in c.annotations)]
        action = self._find_action(ref, names)
        listed = next((c for c in calls if c.action is action), None)
        if listed is None:
            hint = suggestion(ref.name, names) or f"add {ref.name} to the table's actions"
            raise error(ref.span, f"'{ref.name}' is not in the table's list of actions", hint)
        if any(a.name == excluded for a in listed.annotations):
            what = "the default action" if excluded == "tableonly" else "an entry's action"
            hint = f"leave out @{excluded}, or choose another action"
            message = f"'{ref.name}' is marked @{excluded}: it cannot be {what}"
            raise error(ref.span, message, hint, other=listed.span)
        data = tuple(p for p in action.parameters if not p.direction)
        parameters = data if len(ref.arguments or ()) <= len(data) else action.parameters
        values = self.calls.block_arguments(ref, action.name, parameters)
        directed = [v for v, p in zip(values, parameters, strict=True) if p.direction]
        for value, other in zip(directed, listed.arguments, strict=False):
            if not same(value, other):
                hint = f"leave it out: {ref.name}({', '.join(p.name for p in data)})"
                raise error(value.span, "this argument is not the one in the table's list of actions", hint)
        constants = [v for v, p in zip(values, parameters, strict=True) if not p.direction]
        for value in constants:
            if not isinstance(value, ir.Constant):
                raise error(
                    value.span, "an action's data must be known when compiling", "use a literal or a const"
                )
        return ir.ActionCall(action, tuple(constants), ref.span)

    # Properties

    def _with_property(self, node: nodes.Property, table: ir.Table) -> ir.Table:
        node = replace(node, name=_PSA_PROPERTIES.get(node.name, node.name))
        match node.name:
            case "size":
                size = self.expressions.expr(node.value)
                if not isinstance(size.type, types.Int | types.Bits) or not known(size):
                    raise error(node.value.span, "a table's size must be a number known when compiling")
                return replace(table, size=size)
            case "support_timeout":
                value = self.constants.constant(node.value, types.Bool(), "support_timeout").value
                return replace(table, support_timeout=bool(value))
            case "psa_idle_timeout":
                chosen = self.expressions.expr(node.value)
                notify = isinstance(chosen, ir.Constant) and chosen.value == 1
                return replace(table, support_timeout=notify)
            case "counters":
                return replace(table, counters=self.attached(node, table.name))
            case "meters":
                return replace(table, meters=self.attached(node, table.name))
            case "implementation":
                return replace(table, implementation=self.attached(node, table.name))
            case "largest_priority_wins" | "priority_delta":
                pass  # read together with the entries
            case _:
                hint = suggestion(node.name, (*_PROPERTIES, "key", "actions", "default_action", "entries"))
                self.scopes.reporter.warn(
                    node.span,
                    f"table property '{node.name}' is unknown and has no effect",
                    hint,
                    option="unknown-property",
                )
        return table

    def attached(self, node: nodes.Property, table: str) -> ir.Instance:
        """Return the extern object that a property names or creates. The table's name is its default prefix."""
        wanted = " or ".join(_ATTACHED[node.name])
        value = node.value
        if isinstance(value, nodes.Call) and isinstance(value.function, nodes.TypeExpr):
            name = annotation_text(node.annotations, "name")
            annotations = tuple(a for a in node.annotations if a.name != "name")
            if name is None:
                name = f"{table}_{node.name}"
                hint = f'name it: @name("...") {node.name} = ...;'
                message = (
                    f"an object without a name is '{name}' for the control plane; p4c leaves it out of P4Info"
                )
                self.scopes.reporter.warn(value.span, message, hint, option="unnamed-object")
            else:  # an absolute name: not prefixed with the control's
                rooted = (nodes.String(value.span, f".{name}"),)
                annotations = (nodes.Annotation(value.span, "name", rooted, ""), *annotations)
            made = nodes.Instance(
                value.span, name, value.span, annotations, value.function.type, value.arguments
            )
            instance = self.instances.instance(made)
        else:
            symbol = (
                self.scopes.lookup(value.name, value.span, value.rooted)
                if isinstance(value, nodes.Name)
                else None
            )
            if not isinstance(symbol, ir.Instance):
                raise error(value.span, f"'{node.name}' needs a {wanted}")
            instance = symbol
        of = instance.type
        if not isinstance(of, types.ExternInstance) or of.extern.name not in _ATTACHED[node.name]:
            raise error(value.span, f"'{node.name}' needs a {wanted}, not {of}")
        return instance

    # Entries and keys

    def entries(self, node: nodes.Table, table: ir.Table) -> tuple[ir.Entry, ...]:
        """Return the entries with priorities (P4_16 specification, 14.2.1.4), also converted so that the smallest wins.

        P4Runtime has no priority 0. If an entry has it, all priorities are one higher in the control plane.
        """
        written = node.entries or ()
        if written and not table.key:
            hint = "leave the entries out, and write default_action = ...;"
            raise error(written[0].span, f"table '{node.name}' has no key that an entry could match", hint)
        _check_priorities_allowed(node, table)
        given = {p.name: p.value for p in node.properties}
        delta = 1
        if "priority_delta" in given:
            delta = self.constants.compile_time(given["priority_delta"], "priority_delta")
            if delta <= 0:
                raise error(given["priority_delta"].span, f"priority_delta is {delta}: it must be positive")
        largest = given.get("largest_priority_wins")
        largest_wins = largest is None or bool(
            self.constants.constant(largest, types.Bool(), "largest_priority_wins").value
        )
        priority = (len(written) - 1) * delta + 1 if largest_wins else 1
        priorities: list[int] = []
        for place, entry in enumerate(written):
            if entry.priority is not None:
                priority = self.constants.compile_time(entry.priority, "a priority")
            elif place:
                priority += -delta if largest_wins else delta
            if priority < 0:
                raise error(
                    entry.span,
                    f"the priority of this entry is {priority}: it cannot be negative",
                    "give the first entry a larger one" if entry.priority is None else None,
                )
            if priority > _MAX_PRIORITY:
                message = f"the priority of this entry is {priority}: P4Runtime's are at most {_MAX_PRIORITY}"
                raise error(entry.span, message)
            if priority in priorities:
                message = f"two entries have the priority {priority}: where both match, either may win"
                first = written[priorities.index(priority)].span
                self.scopes.reporter.warn(
                    entry.span,
                    message,
                    "give one of them another",
                    option="duplicate-priorities",
                    other=first,
                )
            priorities.append(priority)
        highest = max(priorities, default=0)
        places = [highest + 1 - p for p in priorities] if largest_wins else priorities
        for at, entry in enumerate(written):
            if given_place := [a for a in entry.annotations if a.name == "priority" and a.arguments]:
                places[at] = self.constants.compile_time(given_place[0].arguments[0], "a priority")
                largest_wins = False
        if not largest_wins:
            priorities = [max(places) + 1 - place for place in places]
        more = 0 in priorities
        numbered = zip(written, places, priorities, strict=True)
        return tuple(self.entry(e, table, place, priority + more) for e, place, priority in numbered)

    def entry(self, node: nodes.Entry, table: ir.Table, priority: int, control_priority: int) -> ir.Entry:
        """Check one entry."""
        keys = key_values(self.constants, node.keys, [k.expr for k in table.key], node.span)
        for value, element, written in zip(keys, table.key, spread(node.keys, len(keys)), strict=True):
            _check_kind(value, element, written.span)
            self._warn_of_notation(value, element, written)
        call = self.bound_action(node.action, table.actions, "defaultonly")
        return ir.Entry(keys, call, node.span, priority, control_priority, node.is_const)

    def _warn_of_notation(self, value: ir.KeyValue, element: ir.KeyElement, written: nodes.Expr) -> None:
        """Warn of a prefix written as a division, and of a range written as a subtraction."""
        match element.match_kind, written:
            case "lpm", nodes.Binary(op="/", left=left, right=nodes.Integer(value=length)):
                width = types.width(element.expr.type) or 0
                mask = ((1 << width) - 1) & ~((1 << max(width - length, 0)) - 1)
                hint = f"write the prefix with a mask: {left.span.fragment()} &&& {mask:#x}"
                message = f"this is a division, so that the key is {value.value}"
            case "range", nodes.Binary(op="-", left=left, right=right):
                hint = f"write {left.span.fragment()} .. {right.span.fragment()}"
                message = f"this is a subtraction, so that the key is {value.value}"
            case _:
                return
        self.scopes.reporter.warn(written.span, message, hint, option="mismatch")


def _check_key_names(key: tuple[ir.KeyElement, ...]) -> None:
    """Check that key elements have different names in the control plane, except those of match kind selector."""
    seen: dict[str, ir.KeyElement] = {}
    for element in key:
        first = seen.setdefault(element.name, element) if element.match_kind != "selector" else element
        if first is not element:
            hint = f'write ...: {element.match_kind} @name("...");'
            message = f"two elements of the key are called '{element.name}' in the control plane"
            raise error(element.span, message, hint, other=first.span)


def _check_priorities_allowed(node: nodes.Table, table: ir.Table) -> None:
    """Check that priorities are given only where the specification allows them, and then for the first entry, too."""
    written = node.entries or ()
    first = next((e for e in written if e.priority is not None), None)
    if first is None or first.priority is None:
        return
    if node.entries_constant:
        hint = "leave the priority out: of const entries the first that matches wins; or leave out const"
        raise error(first.priority.span, "const entries cannot have priorities", hint)
    if all(k.match_kind in ("exact", "lpm", "selector") for k in table.key):
        hint = "leave the priority out: only one entry can match, or the longest prefix wins"
        message = f"entries of table '{node.name}' cannot have priorities: its keys are exact or lpm"
        raise error(first.priority.span, message, hint)
    if first is not written[0]:
        message = "the first entry has no priority, though a later one does"
        raise error(written[0].span, message, "write priority = ...: before its keys", other=first.span)


def _check_kind(value: ir.KeyValue, element: ir.KeyElement, span: Span) -> None:
    kind = element.match_kind
    width = types.width(element.expr.type) or 0
    full = (1 << width) - 1
    if value.high is not None and kind != "range":
        raise error(span, f"a range cannot be the value of a key of kind {kind}")
    if value.mask is not None and kind in ("exact", "selector"):
        hint = "change the key's kind to ternary or optional, or use default_action for all other packets"
        raise error(span, f"a key of kind {kind} needs a value", hint)
    if value.mask not in (None, 0) and kind in ("optional", "range"):
        raise error(span, f"a mask cannot be the value of a key of kind {kind}")
    if value.mask is not None and kind == "lpm":
        rest = ~value.mask & full
        if rest & (rest + 1):
            raise error(span, "the mask of an lpm key is a prefix: ones, then zeros")
