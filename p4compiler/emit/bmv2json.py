"""The whole program as BMv2's JSON (behavioral-model docs/JSON_format.md, format 2.23, as p4c writes it)."""

from __future__ import annotations

from p4compiler import ir, nodes, types
from p4compiler.check.tables import annotation_text
from p4compiler.emit.actions import ActionWriter, Lists, algorithm
from p4compiler.emit.expressions import ExpressionWriter, Json, source_info
from p4compiler.emit.graph import Graph, TableNode
from p4compiler.emit.layout import SCALARS, STANDARD_METADATA, Layout, flat_fields, lay_out
from p4compiler.emit.parser import ParserWriter
from p4compiler.emit.tables import Numbers, PipelineWriter, constant, table_size
from p4compiler.inline.program import FlatProgram
from p4compiler.source import Reporter, error

VERSION = (2, 23)
_PIPELINES = (("ig", "ingress"), ("eg", "egress"))
_CHECKSUM_CALLS = {"vr": ("verify_checksum", "verify"), "ck": ("update_checksum", "update")}
_METER_KINDS = ("packets", "bytes")


def emit_json(program: FlatProgram, graphs: dict[str, Graph], path: str, reporter: Reporter) -> Json:
    """The JSON of a lowered program whose pipelines (ig, eg) have these graphs."""
    return _Writer(program, graphs, path, reporter).program()


class _Writer:
    def __init__(self, program: FlatProgram, graphs: dict[str, Graph], path: str, reporter: Reporter) -> None:
        self.source = program
        self.graphs = graphs
        self.path = path
        self.layout = lay_out(program)
        self.expressions = ExpressionWriter(self.layout, program.roots[STANDARD_METADATA])
        self.lists = Lists(_field_lists(program, self.layout))
        self.actions = ActionWriter(self.expressions, self.lists)
        self.numbers = Numbers()
        self.parser = ParserWriter(self.actions, reporter)
        self.pipelines = PipelineWriter(self.actions, self.numbers, reporter)

    def program(self) -> Json:
        blocks = self.source.blocks
        parser = self.parser.parser(blocks["p"])
        value_sets = [self.parser.value_set(v, i) for i, v in enumerate(blocks["p"].value_sets)]
        actions = self.all_actions()
        pipelines = []
        for number, (role, name) in enumerate(_PIPELINES):
            pipelines.append(self.pipelines.pipeline(name, number, blocks[role], self.graphs[role]))
        deparser = self.deparser(blocks["dep"])
        checksums = [*self.checksums("ck"), *self.checksums("vr")]
        for number, checksum in enumerate(checksums):
            checksum |= {"name": "cksum" if number == 0 else f"cksum_{number - 1}", "id": number}
        instances = [i for role, _ in _PIPELINES for i in blocks[role].instances] + self.source.instances
        # The layout is complete only now: locals get their places when they are used.
        return {
            "header_types": self.header_types(),
            "headers": self.headers(),
            "header_stacks": self.stacks(),
            "header_union_types": self.union_types(),
            "header_unions": self.unions(),
            "header_union_stacks": self.union_stacks(),
            "field_lists": self.lists.field_lists,
            "errors": [[name, number] for name, number in self.source.source.errors.items()],
            "enums": [
                {"name": e.name, "entries": [[name, value] for name, value in e.members.items()]}
                for e in self.source.source.enums
            ],
            "parsers": [parser],
            "parse_vsets": value_sets,
            "deparsers": [deparser],
            "meter_arrays": self.meters(instances),
            "counter_arrays": self.counters(instances),
            "register_arrays": self.registers(instances),
            "calculations": self.lists.calculations,
            "learn_lists": self.lists.learn_lists,
            "actions": actions,
            "pipelines": pipelines,
            "checksums": checksums,
            "force_arith": [],
            "extern_instances": [],
            "field_aliases": self.aliases(),
            "program": self.path,
            "__meta__": {"version": list(VERSION), "compiler": "fanin p4compiler"},
        }

    def all_actions(self) -> list[Json]:
        result = []
        for role, _ in _PIPELINES:
            self.actions.role = role
            for action in used_actions(self.graphs[role]):
                number = self.numbers.actions[action] = len(self.numbers.actions)
                result.append(self.actions.action(action, number))
        return result

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
            if seen.setdefault(name, header) is header and all(name != known for known, _, _ in made):
                made.append((name, *_header_fields(header)))
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
            order += self.emitted(s.arguments[0])
        return {
            "name": "deparser",
            "id": 0,
            "source_info": source_info(block.span),
            "order": order,
            "primitives": [],
        }

    def emitted(self, e: ir.Expr) -> list[str]:
        match e.type:
            case types.Header():
                return [str(self.expressions.left(e)["value"])]
            case types.Struct(fields=fields) | types.Union(fields=fields):
                parts: list[ir.Expr] = [ir.Field(f.type, e.span, e, f.name) for f in fields]
            case types.Tuple() if isinstance(e, ir.Aggregate):
                parts = list(e.elements)
            case types.Stack(element=element, size=size):
                index = [ir.Constant(types.Bits(32), e.span, i) for i in range(size)]
                parts = [ir.Element(element, e.span, e, i) for i in index]
            case _:
                raise error(e.span, f"a value of type {e.type} cannot be emitted", "emit headers")
        return [name for part in parts for name in self.emitted(part)]

    def checksums(self, role: str) -> list[Json]:
        name, what = _CHECKSUM_CALLS[role]
        result = []
        for s in self.source.blocks[role].body:
            if not isinstance(s, ir.CallExtern) or s.name.removesuffix("_with_payload") != name:
                raise error(
                    s.span, f"only {name}() is supported here", "compute in the ingress or egress control"
                )
            condition, data, target, hash_ = s.arguments
            payload = s.name.endswith("_with_payload")
            where = source_info(s.span)
            calculation = self.actions.calculation(algorithm(hash_), data, payload, where)
            result.append(
                {
                    "name": "",
                    "id": 0,
                    "source_info": where,
                    "target": self.expressions.left(target)["value"],
                    "type": "generic",
                    "calculation": calculation,
                    "verify": what == "verify",
                    "update": what == "update",
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
                table = self.pipelines.counter_tables.get(instance)
                if table is None:
                    continue
                made |= {"is_direct": True, "binding": table.name}
            result.append(made)
        return result

    def meters(self, instances: list[ir.Instance]) -> list[Json]:
        result: list[Json] = []
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
                table = self.pipelines.meter_tables.get(instance)
                target = self.actions.meter_targets.get(instance.name)
                if table is None or target is None:
                    if table is not None:
                        raise error(
                            instance.span, f"meter '{instance.name}' is never read", "read() it in an action"
                        )
                    continue
                made |= {"is_direct": True, "rate_count": 2, "type": kind, "size": table_size(table)}
                made |= {"binding": table.name, "result_target": target}
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


def used_actions(graph: Graph) -> list[ir.Action]:
    """The actions of all tables of a graph, each once."""
    tables = [node.table for node in graph.nodes if isinstance(node, TableNode)]
    return list(dict.fromkeys(call.action for table in tables for call in table.actions))


def extern_name(instance: ir.Instance) -> str:
    """The name of the extern that an object is an instance of."""
    return instance.type.extern.name if isinstance(instance.type, types.ExternInstance) else ""


def _of(instances: list[ir.Instance], *names: str) -> list[ir.Instance]:
    return [i for i in instances if extern_name(i) in names]


def type_name(header: types.Type) -> str:
    """A header type's name, as @name gives it or as declared."""
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


def _field_lists(program: FlatProgram, layout: Layout) -> list[Json]:
    """The lists of metadata fields that @field_list marks, by their numbers."""
    metadata = program.roots["meta"]
    made: dict[int, Json] = {}
    assert isinstance(metadata.type, types.Struct)
    for f in metadata.type.fields:
        for annotation in f.annotations:
            if annotation.name != "field_list":
                continue
            for argument in annotation.arguments:
                if not isinstance(argument, nodes.Integer):
                    raise error(annotation.span, "@field_list needs numbers", "write @field_list(1)")
                number = argument.value
                entry = made.setdefault(
                    number, {"id": len(made) + 1, "name": f"field_list{number}", "elements": []}
                )
                for member in flat_fields(metadata.type):
                    if member.path[0] != f.name:
                        continue
                    if isinstance(member.type, types.Header | types.Stack | types.Union):
                        raise error(
                            annotation.span,
                            f"'{'.'.join(member.path)}' in a field list: headers are not preserved",
                            "mark metadata fields that have their values",
                        )
                    name = layout.place((metadata, *member.path), member.type)
                    entry["elements"].append({"type": "field", "value": [SCALARS, name]})
    return list(made.values())
