"""The layout of variables in BMv2: names of headers, of their stacks and unions, and of the fields of `scalars`."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from fanin.p4compiler import ir, types
from fanin.p4compiler.emit.uses import used_places
from fanin.p4compiler.graph import GraphProgram
from fanin.p4compiler.names import Names
from fanin.p4compiler.nodes import Annotations, annotation_text
from fanin.p4compiler.rewrite import Path
from fanin.p4compiler.source import error

SCALARS = "scalars"
STANDARD_METADATA = "standard_metadata"


@dataclass(slots=True)
class Layout:
    """Names of all places that the program uses.

    Attributes:
        places: The names, by place.
        scalars: Width in bits and signedness, by name. All dictionaries are in the order in which names were added.
        headers: The types of headers, by name.
        stacks: The types of header stacks, by name.
        unions: The types of header unions, by name.
        varbits: The types of varbit variables, by name.
        metadata: The type of the program's metadata.
    """

    places: dict[Path, str] = field(default_factory=dict)
    scalars: dict[str, tuple[int, bool]] = field(default_factory=dict)
    headers: dict[str, types.Header] = field(default_factory=dict)
    stacks: dict[str, types.Stack] = field(default_factory=dict)
    unions: dict[str, types.Union] = field(default_factory=dict)
    varbits: dict[str, types.Varbit] = field(default_factory=dict)
    metadata: types.Struct | None = None

    def add(self, where: Path, name: str, of: types.Type) -> None:
        """Give a place its name, and name the places inside it."""
        self.places[where] = name
        match of:
            case types.Header():
                self.headers[name] = of
            case types.Stack(element=element, size=size):
                self.stacks[name] = of
                for i in range(size):
                    self.add((*where, i), f"{name}[{i}]", element)
            case types.Union(fields=fields):
                self.unions[name] = of
                for member in fields:
                    self.add((*where, member.name), f"{name}.{member.name}", member.type)
            case types.Varbit():
                self.varbits[name] = of
            case _:
                bits = types.scalar(of)
                signed = isinstance(bits, types.Bits) and bits.signed
                self.scalars[name] = (types.width(of) or 0, signed)


def lay_out(program: GraphProgram) -> Layout:
    """Lay out the architecture's headers and metadata, then the local variables in the order of their use.

    Raises:
        CompileError: If the target does not support the program's headers or metadata.
    """
    layout = Layout()
    headers, metadata, standard = program.flat.roots
    for root in (headers, metadata):
        if not isinstance(root.type, types.Struct):
            raise error(root.span, f"the parser's {root.name} must be a struct, not {root.type}")
        for f in flat_fields(root.type):
            of_headers = root is headers and isinstance(f.type, types.Header | types.Union | types.Stack)
            layout.add((root, *f.path), f.name if of_headers else f"{root.type.name}.{f.name}", f.type)
    assert isinstance(standard.type, types.Struct)
    for name in standard.type.by_name:
        layout.places[(standard, name)] = name
    layout.metadata = standard.type
    names = Names((*layout.headers, *layout.stacks, *layout.unions))
    variables: dict[ir.Variable, str] = {}
    for used, of in used_places(program):
        if used not in layout.places:
            variable = used[0]
            assert isinstance(variable, ir.Variable)
            if variable not in variables:
                variables[variable] = names.unique(variable.name)
            layout.add(used, _name(variables[variable], used[1:]), of)
    return layout


def _name(variable: str, rest: Path) -> str:
    return variable + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)


@dataclass(frozen=True, slots=True)
class FlatField:
    """Field of a flattened struct: the path to it, and its single name in BMv2."""

    path: tuple[str, ...]
    name: str
    type: types.Type
    annotations: Annotations


@lru_cache(maxsize=256)
def flat_fields(of: types.Fields | types.Tuple) -> tuple[FlatField, ...]:
    """Return the fields of a struct, header or tuple, including those of nested structs, with p4c's names.

    Raises:
        CompileError: If @name gives two fields the same name.
    """
    nested = any(isinstance(f.type, types.Struct | types.Tuple) for f in of.fields)
    result = []
    for number, (path, f) in enumerate(_members((), of)):
        name = f"_{'_'.join(path)}{number}" if nested else annotation_text(f.annotations, "name") or f.name
        result.append(FlatField(path, name, f.type, f.annotations))
    _check_names(of, result)
    return tuple(result)


def _check_names(of: types.Fields | types.Tuple, fields: list[FlatField]) -> None:
    """Check that no @name gives a field the name of another one."""
    seen: dict[str, FlatField] = {}
    for field_ in fields:
        first = seen.setdefault(field_.name, field_)
        if first is not field_:
            place = next(a.span for f in (field_, first) for a in f.annotations if a.name == "name")
            message = (
                f"two fields of {of} have the name '{field_.name}': {first.path[0]} and {field_.path[0]}"
            )
            raise error(place, message, "leave out @name, or give another one")


def _members(
    path: tuple[str, ...], of: types.Fields | types.Tuple
) -> list[tuple[tuple[str, ...], types.Field]]:
    result = []
    for f in of.fields:
        if isinstance(f.type, types.Struct | types.Tuple):
            result += _members((*path, f.name), f.type)
        else:
            result.append(((*path, f.name), f))
    return result
