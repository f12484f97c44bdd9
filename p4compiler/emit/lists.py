"""Field lists that primitives refer to: inputs of calculations, contents of digests, fields that clones preserve."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.emit.expressions import ExpressionWriter, Json, hexadecimal, source_info
from fanin.p4compiler.emit.layout import SCALARS, Layout
from fanin.p4compiler.emit.numbers import Numbers
from fanin.p4compiler.emit.uses import extern_calls
from fanin.p4compiler.graph import GraphProgram
from fanin.p4compiler.nodes import annotation_text
from fanin.p4compiler.rewrite import Path, leaves
from fanin.p4compiler.source import Reporter, error

_HASHES = (
    "crc32",
    "crc32_custom",
    "crc16",
    "crc16_custom",
    "random",
    "identity",
    "csum16",
    "xor16",
)  # by the number of the HashAlgorithm constant

_PSA_HASHES = ("identity", "crc32", "crc32_custom", "crc16", "crc16_custom", "csum16", "crc16")


def algorithm(e: ir.Expr) -> str:
    """Return BMv2's name of a constant of type HashAlgorithm."""
    assert isinstance(e, ir.Constant)
    return (_PSA_HASHES if str(e.type) == "PSA_HashAlgorithm_t" else _HASHES)[e.value]


def calculations(expressions: ExpressionWriter, numbers: Numbers) -> list[Json]:
    """Return the calculations of hash() and of the checksum externs, in the order of their numbers."""
    result = []
    for number, (call, name) in enumerate(numbers.calculations.items()):
        hash_, data = (
            (call.arguments[1], call.arguments[3]) if call.name == "hash" else call.arguments[3:0:-2]
        )
        inputs = _inputs(call, data, expressions)
        if call.name.endswith("_with_payload"):
            inputs.append({"type": "payload", "value": None})
        made: Json = {"name": name, "id": number, "algo": algorithm(hash_), "input": inputs}
        if call.name != "hash":
            made["source_info"] = source_info(call.span)
        result.append(made)
    return result


def learn_lists(expressions: ExpressionWriter, numbers: Numbers) -> list[Json]:
    """Return the contents of digests, in the order of their numbers."""
    result = []
    for call, number in numbers.learn_lists.items():
        data = call.arguments[1]
        result.append(
            {
                "id": number,
                "name": digest_name(call) or "digest",
                "source_info": source_info(data.span),
                "elements": [_input(e, expressions) for e in leaves(data)],
            }
        )
    return result


def digest_name(call: ir.CallExtern) -> str:
    """Return the control plane's name of a digest: that of PSA's object or of the data's type, else empty."""
    if isinstance(call.instance, ir.Instance):
        return call.instance.name
    of = call.type_arguments[0]
    return type_name(of) if isinstance(of, types.Struct | types.Header) else ""


def type_name(of: types.Fields | types.NewType | types.Enum) -> str:
    """Return the control plane's name of a type, which @name gives."""
    return (annotation_text(of.annotations, "name") or of.name).removeprefix(".")


def _inputs(call: ir.CallExtern, data: ir.Expr, expressions: ExpressionWriter) -> list[Json]:
    """Return the fields in the data of a calculation."""
    if not isinstance(data.type, types.Fields | types.Tuple):  # as p4c
        hint = f"write {{ {data.span.fragment()} }}"
        raise error(data.span, f"{call.name}() needs a list of fields, not a value of {data.type}", hint)
    return [_input(e, expressions) for e in leaves(data)]


def _input(e: ir.Expr, expressions: ExpressionWriter) -> Json:
    match e:
        case ir.Constant(type=of, value=number):
            width = types.width(of)
            if width is None:
                raise error(e.span, "a number in a list of fields needs a width", f"write 16w{number}")
            return {"type": "hexstr", "value": hexadecimal(number, width), "bitwidth": width}
        case ir.Ref(variable=variable) if variable in expressions.data:
            hint = "copy it to a variable of the control"
            raise error(e.span, "an action's data cannot be in a list of fields on this target", hint)
        case ir.Ref() | ir.Field() | ir.Element():
            return expressions.left(e)
    raise error(e.span, "only fields, headers and constants can be in a list of fields", "use a variable")


def field_lists(
    program: GraphProgram, layout: Layout, reporter: Reporter
) -> tuple[list[Json], dict[ir.CallExtern, int]]:
    """Return the lists of fields that calls preserve.

    The lists that @field_list marks come first, then an empty one for each call that names none.

    Returns:
        The lists, and the number of the list for each call.
    """
    lists = _annotated_lists(program, layout)
    by_name = {made["name"]: made["id"] for made in lists}
    by_call: dict[ir.CallExtern, int] = {}
    for call in extern_calls(program):
        if call.name != "clone" and not call.name.endswith("_preserving_field_list"):
            continue
        index = call.arguments[-1]
        name = f"field_list{index.value}" if call.name != "clone" and isinstance(index, ir.Constant) else ""
        # In a program without lists, 0 is the usual way to preserve nothing: the call needs some number.
        if name and name not in by_name and (by_name or name != "field_list0"):
            assert isinstance(index, ir.Constant)
            message = f"no metadata field is marked @field_list({index.value}): nothing is preserved"
            hint = f"write @field_list({index.value}) before the fields to preserve"
            reporter.warn(index.span, message, hint, option="invalid")
        if name not in by_name:
            number = len(lists) + 1
            lists.append({"id": number, "name": f"fl_{number}", "elements": []})
        by_call[call] = by_name.get(name, len(lists))
    return lists, by_call


def _annotated_lists(program: GraphProgram, layout: Layout) -> list[Json]:
    """Return the lists of metadata fields that @field_list marks, in the order of their numbers."""
    metadata = program.flat.roots.meta
    made: dict[int, Json] = {}
    assert isinstance(metadata.type, types.Struct)
    for where, annotation in _marked(metadata.type, (metadata,), ()):
        numbers = [a.value for a in annotation.arguments if isinstance(a, nodes.Integer)]
        if not numbers or len(numbers) < len(annotation.arguments):
            raise error(annotation.span, "@field_list needs numbers", "write @field_list(1)")
        for number in numbers:
            entry = made.setdefault(
                number, {"id": len(made) + 1, "name": f"field_list{number}", "elements": []}
            )
            element = {"type": "field", "value": [SCALARS, layout.places[where]]}
            if element not in entry["elements"]:
                entry["elements"].append(element)
    return list(made.values())


def _marked(
    of: types.Fields | types.Tuple, where: Path, around: nodes.Annotations
) -> Iterator[tuple[Path, nodes.Annotation]]:
    """Yield the scalar fields that @field_list marks, each with its own mark or that of an enclosing struct.

    Raises:
        CompileError: If a header, a field of one, or a varbit is marked.
    """
    for f in of.fields:
        inner = (*where, f.name)
        marks = (*around, *(a for a in f.annotations if a.name == "field_list"))
        match f.type:
            case types.Struct() | types.Tuple():
                yield from _marked(f.type, inner, marks)
            case types.Header() | types.Union():
                marks = (*marks, *(mark for _, mark in _marked(f.type, inner, ())))
                _check_unmarked(inner, marks, "headers")
            case types.Stack(element=types.Fields() as element):
                marks = (*marks, *(mark for _, mark in _marked(element, inner, ())))
                _check_unmarked(inner, marks, "headers")
            case types.Varbit():
                _check_unmarked(inner, marks, "varbits")
            case _:
                yield from ((inner, mark) for mark in marks)


def _check_unmarked(where: Path, marks: nodes.Annotations, kind: str) -> None:
    if marks:
        name = ".".join(map(str, where[1:]))
        message = f"'{name}' in a field list: {kind} are not preserved"
        raise error(
            marks[0].span, message, f"copy the value to a metadata field outside of {kind}, and mark that one"
        )
