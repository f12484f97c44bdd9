"""Scopes, and what the types and type declarations of a program mean."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from p4compiler import ir, nodes, types
from p4compiler.source import CompileError, Reporter, Span, error

Symbol = (
    types.Type | ir.Constant | ir.Text | ir.Aggregate | ir.Variable | ir.Action | ir.Table | ir.Instance | ir.Function
    | ir.Block | ir.ValueSet | list[types.Signature]
)  # fmt: skip

_BASIC: dict[str, types.Type] = {
    "bool": types.Bool(),
    "int": types.Int(),
    "error": types.Error(),
    "string": types.String(),
    "void": types.Void(),
}
MAX_WIDTH = 1 << 16
MAX_LISTED = 8  # names that a hint lists


class Scope:
    """Names and what they mean, inside an outer scope."""

    def __init__(self, outer: Scope | None = None) -> None:
        self.outer = outer
        self.names: dict[str, Symbol] = {}

    def find(self, name: str) -> Symbol | None:
        """What the name means here, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def all_names(self) -> Iterable[str]:
        """Every name that can be seen from here."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names
            scope = scope.outer


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """A hint with the known name that is most like this one."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean '{close[0]}'?" if close else None


def no_such(what: str, name: str, span: Span, known: Iterable[str]) -> Exception:
    """The error for a name that does not exist."""
    return error(span, f"there is no {what} '{name}'", suggestion(name, known))


def no_member(of: str, what: str, name: str, span: Span, known: Collection[str]) -> Exception:
    """The error for a member that something does not have."""
    few = f"it has {', '.join(known)}" if 0 < len(known) <= MAX_LISTED else None
    return error(span, f"{of} has no {what} '{name}'", suggestion(name, known) or few)


class TypeChecker:
    """Resolves names and types; the base of the checkers of expressions, statements and declarations."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.top = Scope()
        self.scope = self.top
        self.broken: set[str] = set()  # names whose declarations have errors
        self.errors: dict[str, int] = {}
        self.match_kinds: set[str] = set()
        self.enums: list[types.Enum] = []
        self.headers: list[types.Header] = []

    # Names

    def declare(self, name: str, span: Span, symbol: Symbol) -> None:
        """Give a name its meaning in the current scope."""
        old = self.scope.names.get(name)
        if isinstance(old, list) and isinstance(symbol, list):
            old += symbol  # another signature of the same extern function
            return
        if old is not None:
            raise error(span, f"'{name}' is declared twice", "choose another name for one of them")
        self.scope.names[name] = symbol

    def lookup(self, name: str, span: Span, rooted: bool = False, what: str = "name") -> Symbol:
        """What a name means; an error if it means nothing."""
        scope = self.top if rooted else self.scope
        symbol = scope.find(name)
        if symbol is None and name in self.broken:
            raise CompileError([])  # the error is in its declaration, and reported there
        if symbol is None:
            raise no_such(what, name, span, scope.all_names())
        return symbol

    # Types

    def type(self, node: nodes.TypeNode) -> types.Type:
        """The type that a syntactic type means."""
        match node:
            case nodes.BitsType(span, kind, width):
                bits = self.compile_time(width, "a width")
                least = 0 if kind == "varbit" else 1
                if not least <= bits <= MAX_WIDTH:
                    raise error(width.span, f"{kind}<{bits}>: a width is between {least} and {MAX_WIDTH}")
                return types.Varbit(bits) if kind == "varbit" else types.Bits(bits, kind == "int")
            case nodes.StackType(span, element, size):
                of = self.type(element)
                if not isinstance(of, types.Header | types.Union):
                    raise error(span, f"an array of {of} is not supported", "only headers can be stacked")
                count = self.compile_time(size, "a stack's size")
                if count < 1:
                    raise error(size.span, "a header stack has at least one element")
                return types.Stack(of, count)
            case nodes.TupleType(span, elements):
                return types.Tuple(tuple(self.type(e) for e in elements))
            case nodes.NamedType(span, name, arguments, rooted):
                if name in _BASIC:
                    return _BASIC[name]
                if name == "_":
                    return types.TypeVariable("_")
                return self._named_type(span, name, arguments, rooted)

    def _named_type(
        self, span: Span, name: str, arguments: tuple[nodes.TypeNode, ...], rooted: bool
    ) -> types.Type:
        symbol = self.lookup(name, span, rooted, "type")
        values = tuple(self.type(a) for a in arguments)
        match symbol:
            case types.Extern(type_parameters=parameters):
                self.check_count(span, name, len(parameters), len(values))
                return types.ExternInstance(symbol, values)
            case types.Block(type_parameters=parameters):
                self.check_count(span, name, len(parameters), len(values))
                return types.BlockInstance(symbol, values)
            case types.Type():
                self.check_count(span, name, 0, len(values))
                return symbol
            case ir.Block():
                return types.BlockInstance(_block_type(symbol), ())
        raise error(span, f"'{name}' is not a type")

    def check_count(self, span: Span, name: str, wanted: int, given: int) -> None:
        """Raise an error unless the number of type arguments is right."""
        if wanted != given:
            plural = "s" * (wanted != 1)
            raise error(span, f"'{name}' takes {wanted} type argument{plural}, not {given}")

    def compile_time(self, node: nodes.Expr, what: str) -> int:
        """The value of an expression that must be known when compiling."""
        raise NotImplementedError

    def annotations(self, annotations: nodes.Annotations) -> nodes.Annotations:
        """Annotations with what is known when compiling computed."""
        raise NotImplementedError

    # Declarations of types

    def declare_type(self, node: nodes.Declaration) -> bool:
        """Declare what a declaration declares, if it is one of a type; False if it is another declaration."""
        match node:
            case nodes.Typedef():
                base = self.type(node.type)
                if node.new:
                    if not isinstance(base, types.Bits | types.Bool | types.Enum | types.NewType):
                        raise error(node.type.span, f"a new type cannot be made of {base}")
                    base = types.NewType(node.name, base, self.annotations(node.annotations))
                self.declare(node.name, node.name_span, base)
            case nodes.Composite():
                self.declare(node.name, node.name_span, self.composite(node))
            case nodes.Enum():
                self._declare_enum(node)
            case nodes.Names(name="error"):
                for name, span in node.members:
                    if name in self.errors:
                        raise error(span, f"error.{name} is declared twice")
                    self.errors[name] = len(self.errors)
            case nodes.Names():
                self.match_kinds |= {name for name, _ in node.members}
            case nodes.Extern():
                self._declare_extern(node)
            case nodes.Callable():
                generic = Scope(self.scope)
                generic.names |= {name: types.TypeVariable(name) for name in node.type_parameters}
                self.scope = generic
                parameters = self.signature_parameters(node.parameters)
                assert generic.outer is not None
                self.scope = generic.outer
                block = types.Block(node.name, node.kind, node.type_parameters, parameters)
                self.declare(node.name, node.name_span, block)
            case _:
                return False
        return True

    def composite(self, node: nodes.Composite) -> types.Fields:
        """A header, struct or header union."""
        fields: dict[str, types.Field] = {}
        for field in node.fields:
            if field.name in fields:
                raise error(field.name_span, f"field '{field.name}' is declared twice")
            of = self.type(field.type)
            self._check_field(node, field, of)
            fields[field.name] = types.Field(field.name, of, self.annotations(field.annotations))
        made = tuple(fields.values())
        match node.kind:
            case "header":
                header = types.Header(node.name, made, node.name_span, self.annotations(node.annotations))
                self.headers.append(header)
                return header
            case "header_union":
                return types.Union(node.name, made, node.name_span, self.annotations(node.annotations))
        return types.Struct(node.name, made, node.name_span, self.annotations(node.annotations))

    def _check_field(self, node: nodes.Composite, field: nodes.Field, of: types.Type) -> None:
        inner = of
        while isinstance(inner, types.NewType):
            inner = inner.base
        if node.kind == "header":
            allowed = (
                _is_flat(inner)
                or isinstance(inner, types.Varbit)
                or (isinstance(inner, types.Enum) and inner.underlying is not None)
            )
        elif node.kind == "header_union":
            allowed = isinstance(inner, types.Header)
        else:
            allowed = types.width(inner) is not None or isinstance(
                inner, types.Fields | types.Stack | types.Varbit
            )
        if not allowed:
            raise error(field.type.span, f"a {node.kind.replace('_', ' ')} cannot have a field of type {of}")

    def _declare_enum(self, node: nodes.Enum) -> None:
        underlying = None
        if node.underlying is not None:
            resolved = types.scalar(self.type(node.underlying))
            if not isinstance(resolved, types.Bits):
                raise error(node.underlying.span, "an enum's values are of type bit<> or int<>")
            underlying = resolved
        members: dict[str, int] = {}
        for name, value, span in node.members:
            if name in members:
                raise error(span, f"{node.name}.{name} is declared twice")
            members[name] = len(members) if value is None else self.member_value(value, underlying)
        enum = types.Enum(node.name, members, underlying)
        self.enums.append(enum)
        self.declare(node.name, node.name_span, enum)

    def member_value(self, node: nodes.Expr, underlying: types.Bits | None) -> int:
        """The value of a member of a serializable enum."""
        raise NotImplementedError

    def _declare_extern(self, node: nodes.Extern) -> None:
        extern = types.Extern(node.name, node.type_parameters, {})
        self.declare(node.name, node.name_span, extern)
        self.scope = Scope(self.scope)
        self.scope.names |= {name: types.TypeVariable(name) for name in node.type_parameters}
        for method in node.methods:
            extern.methods.setdefault(method.name, []).append(self.signature(method))
        assert self.scope.outer is not None
        self.scope = self.scope.outer

    def signature(self, node: nodes.Method) -> types.Signature:
        """What a function's head says."""
        self.scope = Scope(self.scope)
        self.scope.names |= {name: types.TypeVariable(name) for name in node.type_parameters}
        result = self.type(node.result) if node.result is not None else types.Void()
        parameters = self.signature_parameters(node.parameters)
        assert self.scope.outer is not None
        self.scope = self.scope.outer
        return types.Signature(node.name, node.type_parameters, parameters, result)

    def signature_parameters(self, parameters: tuple[nodes.Parameter, ...]) -> tuple[types.Parameter, ...]:
        """Parameters as a signature has them."""
        return tuple(
            types.Parameter(
                p.name, self.type(p.type), p.direction, any(a.name == "optional" for a in p.annotations)
            )
            for p in parameters
        )


def _block_type(block: ir.Block) -> types.Block:
    parameters = tuple(types.Parameter(v.name, v.type, v.direction) for v in block.parameters)
    return types.Block(block.name, block.kind, (), parameters)


def _is_flat(of: types.Type) -> bool:
    """Whether a struct has only bits in it, so that it can be a part of a header."""
    if isinstance(of, types.Struct):
        return all(_is_flat(f.type) for f in of.fields)
    bits = types.scalar(of)
    return isinstance(bits, types.Bits | types.Bool) and not isinstance(of, types.Error)
