"""The program's P4Info (P4Runtime specification, chapter 6), as p4c makes it."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4i, p4t

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.emit.layout import flat_fields
from fanin.p4compiler.emit.lists import digest_name, type_name
from fanin.p4compiler.emit.p4info_ids import Symbols, annotation_number, field_ids
from fanin.p4compiler.emit.restrictions import check_placement, check_references, check_restriction
from fanin.p4compiler.emit.tables import constant, extern_name, table_size
from fanin.p4compiler.emit.uses import calls_in
from fanin.p4compiler.graph import GraphProgram
from fanin.p4compiler.nodes import annotation_text
from fanin.p4compiler.source import error
from fanin.p4constraints.annotations import (
    ACTION_RESTRICTION,
    ENTRY_RESTRICTION,
    action_types,
    entry_types,
)

P4Info = p4i.P4Info
_IDS = p4i.P4Ids
_KINDS = {
    "counter": _IDS.COUNTER,
    "direct_counter": _IDS.DIRECT_COUNTER,
    "meter": _IDS.METER,
    "direct_meter": _IDS.DIRECT_METER,
    "register": _IDS.REGISTER,
    "action_profile": _IDS.ACTION_PROFILE,
    "action_selector": _IDS.ACTION_PROFILE,
}
_MATCHES = {
    "exact": p4i.MatchField.EXACT,
    "lpm": p4i.MatchField.LPM,
    "ternary": p4i.MatchField.TERNARY,
    "range": p4i.MatchField.RANGE,
    "optional": p4i.MatchField.OPTIONAL,
}
_COUNTER_UNITS = (p4i.CounterSpec.PACKETS, p4i.CounterSpec.BYTES, p4i.CounterSpec.BOTH)  # by CounterType
_METER_UNITS = (p4i.MeterSpec.PACKETS, p4i.MeterSpec.BYTES)  # by MeterType
_PACKAGE = ("name", "version", "organization", "contact", "url", "arch")  # keys of @pkginfo
_OF_SELECTORS = ("max_group_size", "selector_size_semantics", "max_member_weight")
_DEDICATED_FIELDS = ("name", "id", "brief", "description")  # annotations that have fields of their own


def emit_p4info(program: GraphProgram) -> P4Info:
    """Return the P4Info of a program, without hidden objects."""
    return _Writer(program).info


class _Writer:
    def __init__(self, program: GraphProgram) -> None:
        flat, graphs = program.flat, program.graphs
        self.info = P4Info()
        self.symbols = Symbols()
        self.instances = [*flat.instances, *(i for role in graphs for i in flat.blocks[role].instances)]
        self.tables: list[ir.Table] = []
        self.actions: dict[str, ir.Action] = {}
        for role, graph in graphs.items():
            used: set[ir.Declared] = {*graph.tables, *graph.actions}
            seen = [d for d in flat.blocks[role].declared if d in used and not _is_hidden(d.annotations)]
            self.tables += (d for d in seen if isinstance(d, ir.Table))
            for action in (d for d in seen if isinstance(d, ir.Action)):
                self.actions.setdefault(action.name, action)
        statements = [block.body for role, block in flat.blocks.items() if role not in graphs]
        statements += [action.body for graph in graphs.values() for action in graph.actions]
        # Calls of extern functions; those of extern objects' methods are left out.
        self.calls = [
            call
            for body in statements
            for call in calls_in(body)
            if call.name == "digest" or (call.instance is None and not call.name.startswith("packet_"))
        ]
        self.digests = _digests(self.calls)
        self.errors = flat.source.errors
        self.value_sets = flat.blocks[ir.Role.PARSER].value_sets
        self.controller_headers = flat.source.controller_headers
        self.annotations = flat.source.annotations
        self.architecture = flat.source.architecture
        self.collect()
        self.write()

    def collect(self) -> None:
        add = self.symbols.add
        for table in self.tables:
            add(_IDS.TABLE, table.name, table.annotations)
        for action in self.actions.values():
            add(_IDS.ACTION, action.name, action.annotations)
        for action in (call.action for table in self.tables for call in table.actions):
            add(_IDS.ACTION, action.name, action.annotations)  # a hidden one: tables refer to it, too
        for instance in self.instances:
            if extern_name(instance) in _KINDS:
                add(_KINDS[extern_name(instance)], instance.name, instance.annotations)
        for name, call in self.digests.items():
            add(_IDS.DIGEST, name, _digest_annotations(call))
        for value_set in self.value_sets:
            add(_IDS.VALUE_SET, value_set.name, value_set.annotations)
        for header in self.controller_headers:
            add(
                _IDS.CONTROLLER_HEADER,
                annotation_text(header.annotations, "name") or header.name,
                header.annotations,
            )
        self.symbols.assign()

    def write(self) -> None:
        self.package()
        calls = (
            self.digests if self.architecture == "psa" else self.calls
        )  # the others are those of PSA's frame
        if self.tables or self.instances or calls or self.controller_headers:
            self.info.type_info.SetInParent()  # p4c has it, if empty, wherever a type might have been
        for action in self.actions.values():
            self.action(action)
        for table in self.tables:
            self.table(table)
        self.check_references()
        for instance in self.instances:
            self.instance(instance)
        for name, call in self.digests.items():
            made = self.info.digests.add()
            self.preamble(made.preamble, _IDS.DIGEST, name, _digest_annotations(call))
            made.type_spec.CopyFrom(self.type_spec(call.type_arguments[0]))
        for value_set in self.value_sets:
            self.value_set(value_set)
        for header in self.controller_headers:
            self.controller_header(header)

    def package(self) -> None:
        """Write what @pkginfo(name="...", version="...") and similar annotations say about the program."""
        package = self.info.pkg_info
        package.arch = self.architecture
        for annotation in self.annotations:
            for record in annotation.arguments:
                if not isinstance(record, nodes.Record):
                    continue
                for key, value in record.fields:
                    if annotation.name == "pkginfo" and isinstance(value, nodes.String) and key in _PACKAGE:
                        setattr(package, key, value.value)
                    elif annotation.name == "platform_property" and isinstance(value, nodes.Integer):
                        setattr(package.platform_properties, key, value.value)

    # Parts

    def preamble(
        self,
        made: p4i.Preamble,
        kind: int,
        name: str,
        annotations: nodes.Annotations,
        leave: tuple[str, ...] = (),
    ) -> None:
        made.id = self.symbols.id(kind, name)
        made.name = name
        made.alias = self.symbols.alias(name)
        _annotate(made, annotations, leave)
        _document(made, annotations)

    def action(self, action: ir.Action) -> None:
        made = self.info.actions.add()
        self.preamble(made.preamble, _IDS.ACTION, action.name, action.annotations)
        numbers = field_ids([p.annotations for p in action.parameters])
        for parameter, number in zip(action.parameters, numbers, strict=True):
            field = made.params.add()
            field.id = number
            field.name = annotation_text(parameter.annotations, "name") or parameter.name
            _annotate(field, parameter.annotations)
            _document(field, parameter.annotations)
            self.typed(field, parameter.type)

        check_placement(action.annotations, of_table=False)
        check_restriction(action.annotations, ACTION_RESTRICTION, action_types(made))

    def check_references(self) -> None:
        """Check `@refers_to`, which may name any table."""
        for table in self.tables:
            for element in table.key:
                check_references(element.annotations, self.info)
        for action in self.actions.values():
            for parameter in action.parameters:
                check_references(parameter.annotations, self.info)

    def typed(self, field: Any, of: types.Type) -> None:
        """Write the width of a field or parameter, and the name of its type if the control plane should know it."""
        field.bitwidth = _runtime_width(of)
        self.type_spec(of)
        if isinstance(of, types.NewType):
            field.type_name.name = type_name(of)

    def table(self, table: ir.Table) -> None:
        made = self.info.tables.add()
        self.preamble(made.preamble, _IDS.TABLE, table.name, table.annotations)
        for element, number in zip(table.key, field_ids([k.annotations for k in table.key]), strict=True):
            if element.match_kind == "selector":
                continue
            field = made.match_fields.add()
            field.id = number
            field.name = element.name
            field.match_type = _MATCHES[element.match_kind]
            _annotate(field, element.annotations)
            _document(field, element.annotations)
            self.typed(field, element.expr.type)
        for call in table.actions:
            ref = made.action_refs.add()
            ref.id = self.symbols.id(_IDS.ACTION, call.action.name)
            _annotate(ref, call.annotations)
            scopes = {a.name for a in call.annotations}
            if "defaultonly" in scopes:
                ref.scope = p4i.ActionRef.DEFAULT_ONLY
            elif "tableonly" in scopes:
                ref.scope = p4i.ActionRef.TABLE_ONLY
        self.default_action(made, table)
        made.size = table_size(table)
        made.is_const_table = table.entries is not None and table.entries_constant
        made.has_initial_entries = bool(table.entries)
        if table.implementation is not None:
            made.implementation_id = self.symbols.id(_IDS.ACTION_PROFILE, table.implementation.name)
        for instance, kind in ((table.counters, _IDS.DIRECT_COUNTER), (table.meters, _IDS.DIRECT_METER)):
            if instance is not None:
                made.direct_resource_ids.append(self.symbols.id(kind, instance.name))
        if table.support_timeout:
            made.idle_timeout_behavior = p4i.Table.NOTIFY_CONTROL
        check_placement(table.annotations, of_table=True)
        check_restriction(table.annotations, ENTRY_RESTRICTION, entry_types(made))

    def default_action(self, made: p4i.Table, table: ir.Table) -> None:
        action = table.default.action
        number = self.symbols.id(_IDS.ACTION, action.name)
        if table.default_constant:
            made.const_default_action_id = number
        made.initial_default_action.action_id = number
        numbers = field_ids([p.annotations for p in action.parameters])
        for value, parameter, of in zip(table.default.arguments, numbers, action.parameters, strict=True):
            argument = made.initial_default_action.arguments.add()
            argument.param_id = parameter
            argument.value = _bytes(constant(value), types.width(of.type) or 1)

    # Extern objects

    def index_type(self, made: Any, name: str, of: types.Type) -> None:
        """Write the name of the type of an array's indices, if the program has declared one."""
        assert isinstance(of, types.ExternInstance)
        if name in ("counter", "meter", "register") and len(of.arguments) > (name == "register"):
            index = of.arguments[-1]
            if isinstance(index, types.NewType):
                self.type_spec(index)
                made.index_type_name.name = type_name(index)

    def instance(self, instance: ir.Instance) -> None:
        name = extern_name(instance)
        table = next((t for t in self.tables if instance in (t.counters, t.meters)), None)
        made: Any
        match name:
            case "counter":
                made = self.info.counters.add()
                made.spec.unit = _COUNTER_UNITS[constant(instance.arguments[1])]
                made.size = _size(instance)
            case "meter":
                made = self.info.meters.add()
                made.spec.unit = _METER_UNITS[constant(instance.arguments[1])]
                made.size = _size(instance)
            case "register":
                made = self.info.registers.add()
                assert isinstance(instance.type, types.ExternInstance)
                made.type_spec.CopyFrom(self.type_spec(instance.type.arguments[0]))
                made.size = _size(instance)
            case "direct_counter" if table is not None:
                made = self.info.direct_counters.add()
                made.spec.unit = _COUNTER_UNITS[constant(instance.arguments[0])]
                made.direct_table_id = self.symbols.id(_IDS.TABLE, table.name)
            case "direct_meter" if table is not None:
                made = self.info.direct_meters.add()
                made.spec.unit = _METER_UNITS[constant(instance.arguments[0])]
                made.direct_table_id = self.symbols.id(_IDS.TABLE, table.name)
            case "action_profile" | "action_selector":
                made = self.info.action_profiles.add()
                selector = name == "action_selector"
                made.with_selector = selector
                made.size = constant(instance.arguments[1 if selector else 0])
                if selector:
                    _selector_size(made, instance.annotations)
                names = sorted(t.name for t in self.tables if t.implementation is instance)
                made.table_ids.extend(self.symbols.id(_IDS.TABLE, n) for n in names)
            case _:
                return
        self.index_type(made, name, instance.type)
        self.preamble(made.preamble, _KINDS[name], instance.name, instance.annotations, _OF_SELECTORS)

    def value_set(self, value_set: ir.ValueSet) -> None:
        made = self.info.value_sets.add()
        self.preamble(made.preamble, _IDS.VALUE_SET, value_set.name, value_set.annotations)
        made.size = value_set.size
        if not isinstance(value_set.type, types.Struct | types.Tuple):
            match = made.match.add()
            match.id, match.bitwidth, match.match_type = (
                1,
                types.width(value_set.type) or 0,
                p4i.MatchField.EXACT,
            )
            return
        fields = flat_fields(value_set.type)
        for field, number in zip(fields, field_ids([f.annotations for f in fields]), strict=True):
            match = made.match.add()
            match.id, match.name = number, ".".join(field.path)
            match.bitwidth = types.width(field.type) or 0
            given = next((a for a in field.annotations if a.name == "match"), None)
            match.match_type = _MATCHES[given.text if given is not None else "exact"]

    def controller_header(self, header: types.Header) -> None:
        made = self.info.controller_packet_metadata.add()
        name = annotation_text(header.annotations, "controller_header") or header.name
        made.preamble.id = self.symbols.id(
            _IDS.CONTROLLER_HEADER, annotation_text(header.annotations, "name") or header.name
        )
        made.preamble.name = made.preamble.alias = name
        _annotate(made.preamble, header.annotations)
        _document(made.preamble, header.annotations)
        fields = flat_fields(header)
        for field, number in zip(fields, field_ids([f.annotations for f in fields]), strict=True):
            if _is_hidden(field.annotations):
                continue
            metadata = made.metadata.add()
            metadata.id = number
            metadata.name = annotation_text(field.annotations, "name") or ".".join(field.path)
            _annotate(metadata, field.annotations)
            self.typed(metadata, field.type)

    # Types

    def type_spec(self, of: types.Type) -> p4t.P4DataTypeSpec:
        """Return P4Info's description of a type, and enter named types in type_info."""
        spec = p4t.P4DataTypeSpec()
        match of:
            case types.Bits(width=width, signed=True):
                spec.bitstring.int.bitwidth = width
            case types.Bits(width=width):
                spec.bitstring.bit.bitwidth = width
            case types.Varbit(width=width):
                spec.bitstring.varbit.max_bitwidth = width
            case types.Bool():
                spec.bool.SetInParent()
            case types.Error():
                spec.error.SetInParent()
                self.info.type_info.error.members[:] = list(self.errors)
            case types.Tuple(elements=elements):
                for element in elements:
                    spec.tuple.members.add().CopyFrom(self.type_spec(element))
            case types.Struct(fields=fields):
                name = type_name(of)
                spec.struct.name = name
                if name not in self.info.type_info.structs:
                    members = self.info.type_info.structs[name].members
                    for field in fields:
                        member = members.add()
                        member.name = field.name
                        member.type_spec.CopyFrom(self.type_spec(field.type))
            case types.Header(fields=fields):
                name = type_name(of)
                spec.header.name = name
                if name not in self.info.type_info.headers:
                    header = self.info.type_info.headers[name].members
                    for field in fields:
                        part = header.add()
                        part.name = field.name
                        part.type_spec.CopyFrom(self.type_spec(types.scalar(field.type)).bitstring)
            case types.NewType():
                spec.new_type.name = type_name(of)
                self.new_type(of)
            case types.Enum(members=values, underlying=None):
                name = type_name(of)
                spec.enum.name = name
                if name not in self.info.type_info.enums:
                    for value in values:
                        self.info.type_info.enums[name].members.add().name = value
            case types.Enum(members=values, underlying=types.Bits(width=width)):
                name = type_name(of)
                spec.serializable_enum.name = name
                if name not in self.info.type_info.serializable_enums:
                    enum = self.info.type_info.serializable_enums[name]
                    enum.underlying_type.bitwidth = width
                    for value, number in values.items():
                        entry = enum.members.add()
                        entry.name, entry.value = value, _bytes(number, width)
        return spec

    def new_type(self, of: types.NewType) -> None:
        if type_name(of) in self.info.type_info.new_types:
            return
        made = self.info.type_info.new_types[type_name(of)]
        _annotate(made, of.annotations, ("p4runtime_translation",))
        translation = _translation(of)
        if translation is None:
            base: types.Type = of
            while isinstance(base, types.NewType):
                base = base.base
            made.original_type.CopyFrom(self.type_spec(base))
            return
        made.translated_type.uri, width = translation
        if width:
            made.translated_type.sdn_bitwidth = width
        else:
            made.translated_type.sdn_string.SetInParent()


def _translation(of: types.NewType) -> tuple[str, int] | None:
    """Return the URI and width in bits that @p4runtime_translation gives, or None. Width 0 means a string."""
    for annotation in of.annotations:
        if annotation.name == "p4runtime_translation" and len(annotation.arguments) == 2:
            match annotation.arguments:
                case nodes.String(value=uri), nodes.Integer(value=width):
                    return uri, width
                case nodes.String(value=uri), nodes.TypeExpr(
                    type=nodes.BitsType(width=nodes.Integer(value=width))
                ):
                    return uri, width
                case nodes.String(value=uri), _:
                    return uri, 0
    return None


def _runtime_width(of: types.Type) -> int:
    """Return the width in bits of a value in the control plane; 0 means a string."""
    if isinstance(of, types.NewType):
        translation = _translation(of)
        return types.width(of.base) or 0 if translation is None else translation[1]
    return 0 if isinstance(of, types.Error) else types.width(of) or 0


def _bytes(value: int, width: int) -> bytes:
    return (value & ((1 << width) - 1)).to_bytes((width + 7) // 8, "big")


def _selector_size(made: p4i.ActionProfile, annotations: nodes.Annotations) -> None:
    """Write the limit on the size of a selector's groups (P4Runtime specification, 6.4.2)."""
    made.max_group_size = annotation_number(annotations, "max_group_size") or 0
    match (annotation_text(annotations, "selector_size_semantics") or "").lower():
        case "sum_of_weights":
            made.sum_of_weights.SetInParent()
        case "sum_of_members":
            made.sum_of_members.max_member_weight = annotation_number(annotations, "max_member_weight") or 0


def _is_hidden(annotations: nodes.Annotations) -> bool:
    return any(a.name == "hidden" for a in annotations)


def _annotate(made: Any, annotations: nodes.Annotations, leave: tuple[str, ...] = ()) -> None:
    for a in annotations:
        if a.structured:
            _structured(made.structured_annotations.add(), a)
        if a.name not in _DEDICATED_FIELDS and a.name not in leave and not a.structured:
            made.annotations.append(f"@{a.name}({a.text})" if a.text else f"@{a.name}")


def _structured(made: Any, annotation: nodes.Annotation) -> None:
    made.name = annotation.name
    for argument in annotation.arguments:
        if isinstance(argument, nodes.Record):
            for key, value in argument.fields:
                pair = made.kv_pair_list.kv_pairs.add()
                pair.key = key
                _literal(pair.value, value)
        else:
            _literal(made.expression_list.expressions.add(), argument)


def _literal(made: Any, value: nodes.Expr) -> None:
    match value:
        case nodes.Integer(value=number):
            made.int64_value = number
        case nodes.Boolean(value=truth):
            made.bool_value = truth
        case nodes.String(value=text):
            made.string_value = text
        case _:
            raise error(value.span, "a structured annotation has only numbers, strings and bools")


def _document(made: Any, annotations: nodes.Annotations) -> None:
    for a in annotations:
        if a.name in ("brief", "description") and a.arguments and isinstance(a.arguments[0], nodes.String):
            setattr(made.doc, a.name, a.arguments[0].value)


def _digests(calls: list[ir.CallExtern]) -> dict[str, ir.CallExtern]:
    """Return a call for each digest that the program sends, by name. An unnamed type is numbered."""
    found: dict[str, ir.CallExtern] = {}
    for call in calls:
        if call.name == "digest":
            found[digest_name(call) or f"digest_{len(found)}"] = call
    return found


def _digest_annotations(call: ir.CallExtern) -> nodes.Annotations:
    """Return the annotations of a digest: of PSA's object, or of the struct that is its data."""
    if isinstance(call.instance, ir.Instance):
        return call.instance.annotations
    of = call.type_arguments[0]
    return of.annotations if isinstance(of, types.Struct) else ()


def _size(instance: ir.Instance) -> int:
    """Return the number of cells of a counter, meter or register.

    Raises:
        CompileError: P4Info has no room for it.
    """
    argument = instance.arguments[0]
    size = constant(argument)
    written = argument.span.fragment()
    if size >= 1 << 31 and written.startswith("-"):
        raise error(argument.span, f"the size {written} is negative, and {size} as bit<32>")
    if not 0 <= size < 1 << 31:
        raise error(argument.span, f"a size of {size}: it must be less than 2^31")
    return size
