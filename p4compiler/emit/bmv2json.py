"""The whole program as BMv2's JSON (behavioral-model docs/JSON_format.md, format 2.23, as p4c writes it)."""

from __future__ import annotations

from fanin.p4compiler import ir, types
from fanin.p4compiler.emit.actions import ActionWriter
from fanin.p4compiler.emit.expressions import ExpressionWriter, Json, source_info
from fanin.p4compiler.emit.layout import SCALARS, STANDARD_METADATA, flat_fields, lay_out
from fanin.p4compiler.emit.lists import calculations, field_lists, learn_lists
from fanin.p4compiler.emit.numbers import number_all
from fanin.p4compiler.emit.parser import ParserWriter
from fanin.p4compiler.emit.tables import PipelineWriter, attached_tables, constant, extern_name, table_size
from fanin.p4compiler.emit.uses import CHECKSUMS, extern_calls
from fanin.p4compiler.graph import GraphProgram
from fanin.p4compiler.names import Names
from fanin.p4compiler.nodes import annotation_text
from fanin.p4compiler.rewrite import field_of
from fanin.p4compiler.source import Reporter, Span, error

VERSION = (2, 23)
_CHECKSUM_CALLS = {ir.Role.VERIFY_CHECKSUM: "verify_checksum", ir.Role.COMPUTE_CHECKSUM: "update_checksum"}
_METER_KINDS = ("packets", "bytes")


def emit_json(program: GraphProgram, path: str, reporter: Reporter) -> Json:
    """Return the JSON of a program. `path` is its name for itself."""
    return _Writer(program, path, reporter).program()


class _Writer:
    def __init__(self, program: GraphProgram, path: str, reporter: Reporter) -> None:
        self.source = program
        self.path = path
        self.reporter = reporter
        self.layout = lay_out(program)
        self.numbers = number_all(program)
        self.expressions = ExpressionWriter(
            self.layout, program.flat.roots.standard_metadata, self.numbers.data
        )
        self.field_lists, self.lists_of_calls = field_lists(program, self.layout, reporter)
        self.attached = attached_tables(program)

    def actions_of(self, role: ir.Role) -> ActionWriter:
        return ActionWriter(role, self.expressions, self.numbers, self.lists_of_calls)

    def program(self) -> Json:
        flat, graphs = self.source.flat, self.source.graphs
        parser = ParserWriter(self.actions_of(ir.Role.PARSER), self.reporter)
        states = parser.parser(flat.blocks[ir.Role.PARSER])
        value_sets = flat.blocks[ir.Role.PARSER].value_sets
        actions = [self.actions_of(role).action(a) for role, graph in graphs.items() for a in graph.actions]
        pipeline = PipelineWriter(self.expressions, self.numbers, self.reporter).pipeline
        pipelines = [pipeline(role, flat.blocks[role], graph) for role, graph in graphs.items()]
        instances = [*(i for role in graphs for i in flat.blocks[role].instances), *flat.instances]
        return {
            "header_types": self.header_types(),
            "headers": self.headers(),
            "header_stacks": self.stacks(),
            "header_union_types": self.union_types(),
            "header_unions": self.unions(),
            "header_union_stacks": self.union_stacks(),
            "field_lists": self.field_lists,
            "errors": [[name, number] for name, number in flat.source.errors.items()],
            "enums": [
                {"name": e.name, "entries": [[name, value] for name, value in e.members.items()]}
                for e in flat.source.enums
            ],
            "parsers": [states],
            "parse_vsets": [parser.value_set(v, i) for i, v in enumerate(value_sets)],
            "deparsers": [self.deparser(flat.blocks[ir.Role.DEPARSER])],
            "meter_arrays": self.meters(instances),
            "counter_arrays": self.counters(instances),
            "register_arrays": self.registers(instances),
            "calculations": calculations(self.expressions, self.numbers),
            "learn_lists": learn_lists(self.expressions, self.numbers),
            "actions": actions,
            "pipelines": pipelines,
            "checksums": self.checksums(),
            "force_arith": [],
            "extern_instances": [],
            "field_aliases": self.aliases(),
            "program": self.path,
            "__meta__": {"version": list(VERSION), "compiler": "fanin p4compiler"},
        }

    # Headers

    def header_types(self) -> list[Json]:
        assert self.layout.metadata is not None
        scalars: list[list[object]] = [
            [name, width, signed] for name, (width, signed) in self.layout.scalars.items()
        ]
        made = [("scalars_0", _padded(scalars, "_padding_0"), 0)]
        metadata: list[list[object]] = [
            [f.name, types.width(f.type), False] for f in self.layout.metadata.fields
        ]
        made.append((STANDARD_METADATA, _padded(metadata, "_padding"), 0))
        seen: dict[str, types.Header] = {}
        for header in self.layout.headers.values():
            name = type_name(header)
            first = seen.get(name)
            if first is None:
                seen[name] = header
                if any(name == known for known, _, _ in made):
                    message = f"'{name}' is the name of another type in BMv2's JSON"
                    raise error(header.span, message, "choose another name, or another @name")
                made.append((name, *_header_fields(header)))
            elif first is not header:
                message = f"two types of headers have the name '{name}'"
                raise error(header.span, message, "give one of them another @name", other=first.span)
        for width in dict.fromkeys(v.width for v in self.layout.varbits.values()):
            made.append((f"$varbit{width}", [["field", "*"]], width // 8))
        result = []
        for number, (name, fields, length) in enumerate(made):
            entry: Json = {"name": name, "id": number, "fields": fields}
            if length:
                entry["max_length"] = length
            result.append(entry)
        return result

    def headers(self) -> list[Json]:
        made = [(SCALARS, "scalars_0", True), (STANDARD_METADATA, STANDARD_METADATA, True)]
        made += [(name, type_name(header), False) for name, header in self.layout.headers.items()]
        made += [(name, f"$varbit{varbit.width}", True) for name, varbit in self.layout.varbits.items()]
        return [
            {"name": name, "id": number, "header_type": of, "metadata": metadata, "pi_omit": True}
            for number, (name, of, metadata) in enumerate(made)
        ]

    def header_numbers(self) -> dict[str, int]:
        return {header["name"]: header["id"] for header in self.headers()}

    def stacks(self) -> list[Json]:
        numbers = self.header_numbers()
        stacks = [(n, s) for n, s in self.layout.stacks.items() if isinstance(s.element, types.Header)]
        return [
            {
                "name": name,
                "id": number,
                "header_type": type_name(stack.element),
                "size": stack.size,
                "header_ids": [numbers[f"{name}[{i}]"] for i in range(stack.size)],
            }
            for number, (name, stack) in enumerate(stacks)
            if isinstance(stack.element, types.Header)
        ]

    def union_types(self) -> list[Json]:
        found = dict.fromkeys(self.layout.unions.values())
        return [
            {"name": u.name, "id": i, "headers": [[f.name, str(f.type)] for f in u.fields]}
            for i, u in enumerate(found)
        ]

    def unions(self) -> list[Json]:
        numbers = self.header_numbers()
        return [
            {
                "name": name,
                "id": number,
                "union_type": union.name,
                "header_ids": [numbers[f"{name}.{f.name}"] for f in union.fields],
                "pi_omit": True,
            }
            for number, (name, union) in enumerate(self.layout.unions.items())
        ]

    def union_stacks(self) -> list[Json]:
        numbers = {name: i for i, name in enumerate(self.layout.unions)}
        stacks = [(n, s) for n, s in self.layout.stacks.items() if isinstance(s.element, types.Union)]
        return [
            {
                "name": name,
                "id": number,
                "union_type": str(stack.element),
                "size": stack.size,
                "header_union_ids": [numbers[f"{name}[{i}]"] for i in range(stack.size)],
            }
            for number, (name, stack) in enumerate(stacks)
        ]

    def aliases(self) -> list[list[object]]:
        assert self.layout.metadata is not None
        found = [(annotation_text(f.annotations, "alias"), f.name) for f in self.layout.metadata.fields]
        return [[alias, [STANDARD_METADATA, name]] for alias, name in found if alias is not None]

    # Deparser and checksums

    def deparser(self, block: ir.Block) -> Json:
        order: list[str] = []
        for s in block.body:
            if not isinstance(s, ir.CallExtern) or s.name != "packet_out.emit":
                raise error(s.span, "only emit() is supported in a deparser", "compute in the egress control")
            order += self.emitted(s.arguments[0], s.span)
        return {
            "name": "deparser",
            "id": 0,
            "source_info": source_info(block.span),
            "order": order,
            "primitives": [],
        }

    def emitted(self, e: ir.Expr, call: Span) -> list[str]:
        """Return the headers in a value, in order; `call` is the place of the emit()."""
        match e.type:
            case types.Header():
                return [str(self.expressions.left(e)["value"])]
            case types.Struct(fields=fields) | types.Tuple(fields=fields) | types.Union(fields=fields):
                parts = [field_of(e, f.name, f.type, i) for i, f in enumerate(fields)]
            case types.Stack(element=element, size=size):
                index = [ir.Constant(types.Bits(32), e.span, i) for i in range(size)]
                parts = [ir.Element(element, e.span, e, i) for i in index]
            case _:
                what = (
                    f"field '{e.name}' of type {e.type}"
                    if isinstance(e, ir.Field)
                    else f"a value of type {e.type}"
                )
                raise error(call, f"{what} cannot be emitted", "emit the headers one by one")
        return [name for part in parts for name in self.emitted(part, call)]

    def checksums(self) -> list[Json]:
        result: list[Json] = []
        names = Names()
        for role in CHECKSUMS:
            wanted = _CHECKSUM_CALLS[role]
            for s in self.source.flat.blocks[role].body:
                if not isinstance(s, ir.CallExtern) or s.name.removesuffix("_with_payload") != wanted:
                    hint = "compute in the ingress or egress control"
                    raise error(s.span, f"only {wanted}() is supported here", hint)
                condition, _, target, _ = s.arguments
                result.append(
                    {
                        "name": names.unique("cksum"),
                        "id": len(result),
                        "source_info": source_info(s.span),
                        "target": self.expressions.left(target)["value"],
                        "type": "generic",
                        "calculation": self.numbers.calculations[s],
                        "verify": role == ir.Role.VERIFY_CHECKSUM,
                        "update": role == ir.Role.COMPUTE_CHECKSUM,
                        "if_cond": self.expressions.value(condition),
                    }
                )
        return result

    # Extern objects

    def counters(self, instances: list[ir.Instance]) -> list[Json]:
        result: list[Json] = []
        for instance in _of(instances, "counter", "direct_counter"):
            made: Json = {"name": instance.name, "id": len(result), "source_info": source_info(instance.span)}
            if extern_name(instance) == "counter":
                made |= {"size": constant(instance.arguments[0]), "is_direct": False}
            else:
                table = self.attached.get(instance)
                if table is None:
                    continue
                made |= {"is_direct": True, "binding": table.name}
            result.append(made)
        return result

    def meters(self, instances: list[ir.Instance]) -> list[Json]:
        result: list[Json] = []
        reads = (call for call in extern_calls(self.source) if call.name == "direct_meter.read")
        targets = {call.instance.name: call.arguments[0] for call in reads if call.instance is not None}
        for instance in _of(instances, "meter", "direct_meter"):
            made: Json = {"name": instance.name, "id": len(result), "source_info": source_info(instance.span)}
            kind = _METER_KINDS[constant(instance.arguments[-1])]
            if extern_name(instance) == "meter":
                made |= {
                    "is_direct": False,
                    "rate_count": 2,
                    "type": kind,
                    "size": constant(instance.arguments[0]),
                }
            else:
                table = self.attached.get(instance)
                target = targets.get(instance.name)
                if table is None or target is None:
                    if table is not None:
                        raise error(
                            instance.span, f"meter '{instance.name}' is never read", "read() it in an action"
                        )
                    continue
                made |= {"is_direct": True, "rate_count": 2, "type": kind, "size": table_size(table)}
                made |= {"binding": table.name, "result_target": self.expressions.left(target)["value"]}
            result.append(made)
        return result

    def registers(self, instances: list[ir.Instance]) -> list[Json]:
        result: list[Json] = []
        for instance in _of(instances, "register"):
            assert isinstance(instance.type, types.ExternInstance)
            of = types.scalar(instance.type.arguments[0])
            if not isinstance(of, types.Bits):
                raise error(
                    instance.span, f"a register of {of} is not supported on this target", "use bit<> or int<>"
                )
            if len(instance.arguments) > 1 and constant(instance.arguments[1]):
                message = "a register with an initial value is not supported on this target"
                raise error(instance.span, message, "let the control plane write it")
            size = constant(instance.arguments[0])
            if size == 0:
                raise error(
                    instance.span, "a register of size 0", "direct registers do not exist on this target"
                )
            where = source_info(instance.span)
            result.append(
                {
                    "name": instance.name,
                    "id": len(result),
                    "source_info": where,
                    "size": size,
                    "bitwidth": of.width,
                }
            )
        return result


def _of(instances: list[ir.Instance], *names: str) -> list[ir.Instance]:
    return [i for i in instances if extern_name(i) in names]


def type_name(header: types.Type) -> str:
    """Return a header type's name: the one @name gives, else the declared one."""
    assert isinstance(header, types.Header)
    return annotation_text(header.annotations, "name") or header.name


def _padded(fields: list[list[object]], name: str) -> list[list[object]]:
    rest = -sum(f[1] for f in fields if isinstance(f[1], int)) % 8
    return [*fields, [name, rest, False]] if rest else fields


def _header_fields(header: types.Header) -> tuple[list[list[object]], int]:
    fields: list[list[object]] = []
    total, varying = 0, 0
    for f in flat_fields(header):
        if isinstance(f.type, types.Varbit):
            fields.append([f.name, "*"])
            total += f.type.width
            varying += 1
            continue
        bits = types.scalar(f.type)
        width = types.width(f.type) or 0
        if bits == types.Bits(1, signed=True):
            raise error(
                header.span, f"field '{f.name}': BMv2 has no fields of type int<1>", "use bit<1>, or int<2>"
            )
        fields.append([f.name, width, isinstance(bits, types.Bits) and bits.signed])
        total += width
    if varying > 1:
        raise error(header.span, f"header {header} has more than one varbit field")
    if total % 8:
        raise error(
            header.span,
            f"header {header} has {total} bits, not whole bytes",
            "add a field that fills the last byte",
        )
    return fields, total // 8 if varying else 0
