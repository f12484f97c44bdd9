"""Resolution of types and type declarations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.check.constants import ConstantChecker
from fanin.p4compiler.check.scopes import Scopes
from fanin.p4compiler.nodes import annotation_text
from fanin.p4compiler.source import Span, error

_Type = TypeVar("_Type", bound=types.Type)
_BASIC: dict[str, types.Type] = {
    "bool": types.Bool(),
    "int": types.Int(),
    "error": types.Error(),
    "string": types.String(),
    "void": types.Void(),
}
MAX_WIDTH = 1 << 16
# A few lines can declare a type with more values than fit into any memory: each struct has two of the one before.
MAX_PARTS = 1 << 14
MAX_NAME = 4096  # characters
MATCH_KIND = "match_kind"  # the owner of match kinds in an index


class TypeChecker:
    """Resolver of types, which collects the declared errors, match kinds, enums and headers.

    Errors in the program are raised as CompileError.
    """

    def __init__(self, scopes: Scopes, constants: ConstantChecker) -> None:
        self.scopes = scopes
        self.constants = constants
        self.errors: dict[str, int] = {}
        self.match_kinds: dict[str, None] = {}  # in the order of their declaration
        self.enums: list[types.Enum] = []
        self.headers: list[types.Header] = []

    def resolve(self, node: nodes.TypeNode) -> types.Type:
        """Return the type that a syntax tree denotes."""
        match node:
            case nodes.BitsType(span, kind, width):
                bits = self.constants.compile_time(width, "a width")
                least = 1 if kind == "int" else 0
                if not least <= bits <= MAX_WIDTH:
                    raise error(width.span, f"{kind}<{bits}>: a width is between {least} and {MAX_WIDTH}")
                return types.Varbit(bits) if kind == "varbit" else types.Bits(bits, kind == "int")
            case nodes.StackType(span, element, size):
                of = self.resolve(element)
                if not isinstance(of, types.Header | types.Union):
                    raise error(span, f"an array of {of} is not supported", "only headers can be stacked")
                count = self.constants.compile_time(size, "a stack's size")
                if count < 1:
                    raise error(size.span, "a header stack has at least one element")
                return _limited(types.Stack(of, count), span)
            case nodes.TupleType(span, elements):
                return _limited(types.Tuple(tuple(self.resolve(e) for e in elements)), span)
            case nodes.ListType(span, element):
                return types.List(self.resolve(element))
            case nodes.NamedType(span, name, arguments, rooted):
                if name in _BASIC:
                    return _BASIC[name]
                if name == "_":
                    return types.TypeVariable("_")
                return self._named_type(span, name, arguments, rooted)

    def _named_type(
        self, span: Span, name: str, arguments: tuple[nodes.TypeNode, ...], rooted: bool
    ) -> types.Type:
        symbol = self.scopes.lookup(name, span, rooted, "type")
        values = tuple(self.resolve(a) for a in arguments)
        match symbol:
            case types.Extern(type_parameters=parameters):
                likely = (
                    f"write {name}<{', '.join(['bit<32>'] * len(parameters))}>(...)" if parameters else None
                )
                self.check_count(span, name, len(parameters), len(values), likely)
                return types.ExternInstance(symbol, values)
            case types.Block(type_parameters=parameters):
                self.check_count(span, name, len(parameters), len(values))
                return types.BlockInstance(symbol, values)
            case types.Generic(type_parameters=parameters):
                likely = f"write {name}<{', '.join(['bit<32>'] * len(parameters))}>"
                self.check_count(span, name, len(parameters), len(values), likely)
                return symbol.of(values)
            case types.Type():
                self.check_count(span, name, 0, len(values))
                return symbol
            case ir.Block():
                return types.BlockInstance(_block_type(symbol), ())
        raise error(span, f"'{name}' is not a type")

    def check_count(self, span: Span, name: str, wanted: int, given: int, hint: str | None = None) -> None:
        """Check that the number of type arguments is right.

        Raises:
            CompileError: If it is wrong.
        """
        if wanted != given:
            plural = "s" * (wanted != 1)
            raise error(span, f"'{name}' takes {wanted} type argument{plural}, not {given}", hint)

    # Declarations of types

    def declare(self, node: nodes.Declaration) -> bool:
        """Declare a type. Return False if the declaration is not one of a type."""
        match node:
            case nodes.Typedef():
                base = self.resolve(node.type)
                if node.new:
                    if not isinstance(base, types.Bits | types.Bool | types.Enum | types.NewType):
                        raise error(node.type.span, f"a new type cannot be made of {base}")
                    annotations = self.constants.annotations(node.annotations)
                    _check_translation(annotations)
                    base = types.NewType(node.name, base, annotations)
                self.scopes.declare(node.name, node.name_span, base)
            case nodes.Composite():
                made = self.composite(node)
                self.scopes.declare(node.name, node.name_span, made.generic or made)
                for field in node.fields:
                    self.scopes.declare_member(made, field.name, field.name_span, made.by_name[field.name])
            case nodes.Enum():
                self._declare_enum(node)
            case nodes.Names(name="error"):
                for name, span in node.members:
                    if name in self.errors:
                        raise error(span, f"error.{name} is declared twice")
                    self.errors[name] = len(self.errors)
                    self.scopes.declare_member(_BASIC["error"], name, span, _BASIC["error"])
            case nodes.Names():
                self.match_kinds |= {name: None for name, _ in node.members}
                for name, span in node.members:
                    self.scopes.declare_member(MATCH_KIND, name, span, MATCH_KIND)
            case nodes.Extern():
                self._declare_extern(node)
            case nodes.Callable():
                with self._generic(node.type_parameters):
                    parameters = self.signature_parameters(node.parameters)
                block = types.Block(node.name, node.kind, node.type_parameters, parameters)
                self.scopes.declare(node.name, node.name_span, block)
            case _:
                return False
        return True

    def composite(self, node: nodes.Composite) -> types.Fields:
        """Check a header, struct or header union. A generic one is returned with its own type parameters."""
        if not node.type_parameters:
            return self._with_fields(node)
        outer = self.scopes.current
        made: dict[tuple[types.Type, ...], types.Fields] = {}

        def instance(arguments: tuple[types.Type, ...]) -> types.Fields:
            if arguments not in made:
                with self.scopes.nested(outer) as scope:
                    scope.names |= zip(node.type_parameters, arguments, strict=True)
                    made[arguments] = self._with_fields(node, generic, arguments)
            return made[arguments]

        generic = types.Generic(node.name, node.type_parameters, instance)
        return instance(tuple(map(types.TypeVariable, node.type_parameters)))

    def _with_fields(
        self,
        node: nodes.Composite,
        generic: types.Generic | None = None,
        arguments: tuple[types.Type, ...] = (),
    ) -> types.Fields:
        """Check the fields of a type. Those of a generic one may have type parameters as their types."""
        fields: dict[str, types.Field] = {}
        for field in node.fields:
            if field.name in fields:
                raise error(field.name_span, f"field '{field.name}' is declared twice")
            of = self.resolve(field.type)
            self._check_field(node, field, of)
            fields[field.name] = types.Field(field.name, of, self.constants.annotations(field.annotations))
        name = "_".join([node.name, *(re.sub(r"\W+", "", str(a)) for a in arguments)])  # p4c's name
        if len(name) > MAX_NAME:  # each argument may be a type whose arguments are twice as long
            raise error(
                node.name_span, f"the type arguments of {node.name} are too long to write", "declare fewer"
            )
        kind = {"header": types.Header, "header_union": types.Union}.get(node.kind, types.Struct)
        annotations = self.constants.annotations(node.annotations)
        made = _limited(
            kind(name, tuple(fields.values()), node.name_span, annotations, generic, arguments),
            node.name_span,
        )
        if isinstance(made, types.Header):
            self.headers.append(made)
        return made

    def _check_field(self, node: nodes.Composite, field: nodes.Field, of: types.Type) -> None:
        inner = of
        while isinstance(inner, types.NewType):
            inner = inner.base
        if isinstance(inner, types.TypeVariable):
            return  # checked where it is given
        if node.kind == "header":
            allowed = (
                _is_flat(inner)
                or isinstance(inner, types.Varbit)
                or (isinstance(inner, types.Enum) and inner.underlying is not None)
            )
        elif node.kind == "header_union":
            allowed = isinstance(inner, types.Header)
        else:
            allowed = _is_storable(inner)
        if not allowed:
            raise error(field.type.span, f"a {node.kind.replace('_', ' ')} cannot have a field of type {of}")

    def _declare_enum(self, node: nodes.Enum) -> None:
        underlying = None
        if node.underlying is not None:
            resolved = types.scalar(self.resolve(node.underlying))
            if not isinstance(resolved, types.Bits):
                raise error(node.underlying.span, "an enum's values are of type bit<> or int<>")
            underlying = resolved
        members: dict[str, int] = {}
        for name, value, span in node.members:
            if name in members:
                raise error(span, f"{node.name}.{name} is declared twice")
            members[name] = len(members) if value is None else self.constants.member_value(value, underlying)
        enum = types.Enum(node.name, members, underlying, self.constants.annotations(node.annotations))
        self.enums.append(enum)
        self.scopes.declare(node.name, node.name_span, enum)
        for name, _, span in node.members:
            self.scopes.declare_member(enum, name, span, enum)

    def _declare_extern(self, node: nodes.Extern) -> None:
        # psa.p4 says which extern of v1model does an extern's work
        target = annotation_text(node.annotations, "v1model") or node.name
        extern = types.Extern(target, node.type_parameters, {})
        self.scopes.declare(node.name, node.name_span, extern)
        with self._generic(node.type_parameters):
            for method in node.methods:
                name = target if method.name == node.name else method.name
                signatures = extern.methods.setdefault(name, [])
                signatures.append(self.signature(method))
                self.scopes.declare_member(extern, name, method.name_span, signatures)

    @contextmanager
    def _generic(self, type_parameters: tuple[str, ...]) -> Iterator[None]:
        """Open a scope in which these names are type variables."""
        with self.scopes.nested() as scope:
            scope.names |= {name: types.TypeVariable(name) for name in type_parameters}
            yield

    def signature(self, node: nodes.Method) -> types.Signature:
        """Return the signature of a function or method."""
        with self._generic(node.type_parameters):
            result = self.resolve(node.result) if node.result is not None else types.Void()
            parameters = self.signature_parameters(node.parameters)
        return types.Signature(node.name, node.type_parameters, parameters, result)

    def signature_parameters(self, parameters: tuple[nodes.Parameter, ...]) -> tuple[types.Parameter, ...]:
        """Resolve the types of a signature's parameters."""
        return tuple(
            types.Parameter(
                p.name, self.resolve(p.type), p.direction, any(a.name == "optional" for a in p.annotations)
            )
            for p in parameters
        )


def _limited(of: _Type, span: Span) -> _Type:
    """Return a type, unless a value of it would be too large."""
    if (count := types.parts(of)) > MAX_PARTS:
        what = of.name if isinstance(of, types.Named) else f"this {type(of).__name__.lower()}"
        most = f"{MAX_PARTS:,} are possible"
        raise error(span, f"{what} has {count:,} values; at most {most}", "declare fewer or smaller parts")
    return of


def _block_type(block: ir.Block) -> types.Block:
    parameters = tuple(types.Parameter(v.name, v.type, v.direction) for v in block.parameters)
    return types.Block(block.name, block.kind, (), parameters)


def _check_translation(annotations: nodes.Annotations) -> None:
    """Check the arguments of @p4runtime_translation."""
    for annotation in annotations:
        if annotation.name == "p4runtime_translation":
            match annotation.arguments:
                case nodes.String(), nodes.Integer():
                    continue
                case nodes.String(), nodes.TypeExpr(type=nodes.BitsType(kind="bit", width=nodes.Integer())):
                    continue
                case nodes.String(), nodes.TypeExpr(type=nodes.NamedType(name="string")):
                    continue
            message = "@p4runtime_translation needs a URI and the type that the control plane uses"
            hint = 'write ("...", bit<32>) or ("...", string)'
            raise error(annotation.span, message, hint)


def _is_storable(of: types.Type) -> bool:
    """Return whether a struct can have a field of this type."""
    if isinstance(of, types.Tuple):
        return all(map(_is_storable, of.elements))
    if isinstance(of, types.TypeVariable):
        return True
    return types.width(of) is not None or isinstance(of, types.Fields | types.Stack | types.Varbit)


def _is_flat(of: types.Type) -> bool:
    """Return whether a type consists of bits only, so that it can be part of a header."""
    if isinstance(of, types.Struct):
        return all(_is_flat(f.type) for f in of.fields)
    bits = types.scalar(of)
    return isinstance(bits, types.Bits | types.Bool) and not isinstance(of, types.Error)
