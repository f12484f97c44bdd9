"""Typing of calls: functions, methods of headers and externs, constructors; inference of type arguments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.check.conversions import Conversions, check_assignable, known
from fanin.p4compiler.check.scopes import Scopes, no_such
from fanin.p4compiler.check.types import TypeChecker
from fanin.p4compiler.names import Names
from fanin.p4compiler.psa import externs as psa
from fanin.p4compiler.source import CompileError, Span, error, suggestion

HEADER_METHODS = ("isValid", "setValid", "setInvalid")
_PACKET_METHODS = ("extract", "lookahead", "advance", "emit")
_STACK_METHODS = ("push_front", "pop_front")
_SIZE_METHODS = ("minSizeInBits", "minSizeInBytes", "maxSizeInBits", "maxSizeInBytes")
# Calls of earlier versions of v1model and P4, with what replaces them; {0} and {1} are the arguments.
_FORMER = {
    "clone3": "clone_preserving_field_list({0}, {1}, 1);",
    "resubmit": "resubmit_preserving_field_list(1);",
    "recirculate": "recirculate_preserving_field_list(1);",
    "drop": "mark_to_drop({standard_metadata});",
    "valid": "{0}.isValid()",
    "isValid": "{0}.isValid()",
    "setValid": "{0}.setValid();",
    "setInvalid": "{0}.setInvalid();",
    "add_header": "{0}.setValid();",
    "remove_header": "{0}.setInvalid();",
    "copy_header": "{0} = {1};",
    "modify_field": "{0} = {1};",
    "add_to_field": "{0} = {0} + {1};",
    "subtract_from_field": "{0} = {0} - {1};",
    "apply": "{0}.apply();",
    "extract": "{packet_in}.extract({0});",
    "emit": "{packet_out}.emit({0});",
    "no_op": "NoAction();",
}
_KEEP_METADATA = ("clone3", "resubmit", "recirculate")


class CallChecker:
    """Resolver of calls and their arguments.

    Errors in the program are raised as CompileError. `evaluate`, given to the constructor, checks an expression.
    """

    def __init__(
        self,
        scopes: Scopes,
        types_: TypeChecker,
        conversions: Conversions,
        evaluate: Callable[[nodes.Expr], ir.Expr],
    ) -> None:
        self.scopes = scopes
        self.types = types_
        self.conversions = conversions
        self.evaluate = evaluate
        self.names = Names(first=1)  # for the variables that `_` stands for
        # "an action" or "a loop" while the body of one is being checked in a control; else empty
        self.inside = ""
        self.checksum_states: dict[ir.Instance, ir.Variable] = {}  # of PSA's InternetChecksum

    # Calls for a value

    def call(self, node: nodes.Call) -> ir.Expr:
        """Check a call whose result is used as a value."""
        self.check_returns(node, None)
        self.check_former(node)
        function = node.function
        if isinstance(function, nodes.Member):
            if self.applied_table(node) is not None:
                text = node.span.fragment()
                hint = f"write {text}.hit, {text}.miss, or switch ({text}.action_run)"
                raise error(node.span, "the result of a table's apply is not a value", hint)
            header = self.header_method(node, function)
            if header is not None:
                if function.name != "isValid":
                    raise error(node.span, f"{function.name}() returns no value")
                return ir.IsValid(types.Bool(), node.span, header)
            size = self.size_method(node, function)
            if size is not None:
                return size
            call, result = self.extern_method(node, function)
            if call.name == "packet_in.lookahead":
                return ir.Lookahead(result, node.span)
            value = psa.value(call, result, self.checksum_states)
            if value is not None:
                return value
            raise error(node.span, f"{call.name}() is not supported as a value")
        symbol = self.called(function)
        if isinstance(symbol, ir.Function):
            if isinstance(symbol.result, types.Void):
                raise error(node.span, f"function '{symbol.name}' returns no value")
            return ir.Call(
                symbol.result, node.span, symbol, self.block_arguments(node, symbol.name, symbol.parameters)
            )
        if isinstance(symbol, list):
            extern, _ = self.extern_call(node, symbol[0].name, None, symbol, {})
            if extern.name == "static_assert":
                return self.static_assert(extern)
            raise error(node.span, f"{extern.name}() is not supported as a value")
        raise error(function.span, "this cannot be called for a value")

    def static_assert(self, call: ir.CallExtern) -> ir.Expr:
        """Return the condition of a static_assert, or raise an error if it is not true."""
        condition = call.arguments[0]
        if not isinstance(condition, ir.Constant):
            raise error(condition.span, "the condition of static_assert must be known when compiling")
        if not condition.value:
            message = call.arguments[1] if len(call.arguments) > 1 else None
            text = f": {message.value}" if isinstance(message, ir.Text) else ""
            raise error(call.span, f"static assertion failed{text}")
        return condition

    def check_former(self, node: nodes.Call) -> None:
        """Check that a call is none of an earlier version of v1model or P4.

        Raises:
            CompileError: If it is one. Its hint is the call that replaces it, with the same arguments.
        """
        function = node.function
        if not isinstance(function, nodes.Name) or function.name not in _FORMER:
            return
        if self.scopes.current.find(function.name) is not None or function.name in self.scopes.places:
            return
        given = [a.span.fragment() for a in node.arguments]
        if function.name == "clone3" and len(given) < 2:
            given = ["CloneType.I2E", "500"]
        if "{0}" in _FORMER[function.name] and not given:
            return
        values = {
            name: self._only_variable(name, name) for name in ("standard_metadata", "packet_in", "packet_out")
        }
        hint = f"write {_FORMER[function.name].format(*given, '...', **values)}"
        if function.name in _KEEP_METADATA:
            hint += f" and mark each metadata field that is to be kept: {self._marked_field(node)}"
            message = f"v1model no longer has {function.name}()"
        else:
            message = f"P4_16 has no {function.name}()"
        raise error(function.span, message, hint)

    def _marked_field(self, node: nodes.Call) -> str:
        """Return the declaration of a metadata field that the call names, marked to be kept."""
        todo = [a.value for a in node.arguments if a.value is not None][-1:]
        while todo:
            value = todo.pop(0)
            if isinstance(value, nodes.Tuple):
                todo += value.elements
                continue
            try:
                found = self.evaluate(value)
            except CompileError:
                continue
            if isinstance(found, ir.Field) and types.width(found.type) is not None:
                return f"@field_list(1) {found.type} {found.name};"
            fields = found.type.fields if isinstance(found.type, types.Struct) else ()
            for field in fields:
                if types.width(field.type) is not None and not (
                    isinstance(found.type, types.Struct) and found.type.name == "standard_metadata_t"
                ):
                    return f"@field_list(1) {field.type} {field.name};"
        return "@field_list(1) bit<32> field;"

    def check_returns(self, node: nodes.Expr, target: Span | None) -> None:
        """Check that a call returns a value, and does not write its result to its first argument.

        Args:
            node: The expression.
            target: The place of what the value is assigned to, or None.

        Raises:
            CompileError: If the call returns nothing.
        """
        if not isinstance(node, nodes.Call):
            return
        function, symbol = node.function, None
        if isinstance(function, nodes.Name):
            symbol = self.scopes.current.find(function.name)
        elif isinstance(function, nodes.Member) and isinstance(function.base, nodes.Name):
            found = self.scopes.current.find(function.base.name)
            of = found.type if isinstance(found, ir.Instance | ir.Variable) else None
            symbol = of.extern.methods.get(function.name) if isinstance(of, types.ExternInstance) else None
        if not isinstance(symbol, list) or not all(_writes_result(s) for s in symbol):
            return
        count = len(symbol[0].parameters)
        given = [a.span.fragment() for a in node.arguments]
        given = (
            given
            if len(given) >= count
            else [target.fragment() if target is not None else "variable", *given]
        )
        text = function.span.fragment()
        hint = f"write {text}({', '.join(given)});"
        if target is None:
            hint += " before this, and use the variable here"
        raise error(node.span, f"{text}() returns no value: it writes its result to its first argument", hint)

    def called(self, function: nodes.Expr) -> object:
        """Return the function or action that a call names."""
        if isinstance(function, nodes.Name):
            return self.scopes.lookup(function.name, function.span, function.rooted, "function or action")
        if isinstance(function, nodes.TypeExpr):
            raise error(function.span, "constructor calls stand only in declarations of instances")
        raise error(function.span, "this cannot be called")

    def applied_table(self, call: nodes.Call) -> ir.Table | None:
        """Return the table if the call is `table.apply()`, else None."""
        function = call.function
        if (
            isinstance(function, nodes.Member)
            and function.name == "apply"
            and isinstance(function.base, nodes.Name)
        ):
            table = self.scopes.lookup(function.base.name, function.base.span, function.base.rooted)
            if isinstance(table, ir.Table):
                if call.arguments:
                    raise error(call.arguments[0].span, "a table is applied without arguments")
                self.check_may_apply(call.span, "a table")
                return table
        return None

    def check_may_apply(self, span: Span, what: str) -> None:
        """Check that a table or control may be applied here.

        Raises:
            CompileError: If the call is inside an action or a loop.
        """
        if self.inside:
            hint = f"apply it in a control's apply block, before or after the {self.inside.split()[-1]}"
            raise error(span, f"{what} cannot be applied in {self.inside}", hint)

    # Methods

    def header_method(self, node: nodes.Call, function: nodes.Member) -> ir.Expr | None:
        """Check a call of a built-in method of a header or stack; return None for any other method."""
        if function.name not in (*HEADER_METHODS, *_STACK_METHODS):
            return None
        base = self.evaluate(function.base)
        wanted = types.Stack if function.name in _STACK_METHODS else types.Header | types.Union
        if not isinstance(base.type, wanted):
            raise error(
                function.span, f"{base.type} has no method '{function.name}'", _on_a_header(base, function)
            )
        if isinstance(base.type, types.Union) and function.name != "isValid":
            raise error(function.span, f"{function.name}() of a header union", "use it on one of its headers")
        count = 1 if function.name in _STACK_METHODS else 0
        if len(node.arguments) != count:
            raise error(node.span, f"{function.name}() takes {count} arguments, not {len(node.arguments)}")
        if function.name != "isValid":
            check_assignable(base)
        return base

    def size_method(self, node: nodes.Call, function: nodes.Member) -> ir.Constant | None:
        """Return the size that `x.minSizeInBits()` and its relatives give; None for any other method.

        `x` is a value or a type. The least size of a varbit is 0; a header union has the size of its largest header.
        """
        if function.name not in _SIZE_METHODS:
            return None
        base = function.base
        if isinstance(base, nodes.TypeExpr):
            of = self.types.resolve(base.type)
        else:
            if isinstance(base, nodes.Name) and isinstance(
                self.scopes.lookup(base.name, base.span, base.rooted), ir.Instance
            ):
                return None  # a method of an extern with this name
            of = self.evaluate(base).type
        bits = types.total_width(of, longest=function.name.startswith("max"))
        if bits is None:
            raise error(function.span, f"a value of type {of} has no size")
        if node.arguments or node.types:
            raise error(node.span, f"{function.name}() takes no arguments")
        return ir.Constant(
            types.Int(), node.span, bits if function.name.endswith("Bits") else (bits + 7) // 8
        )

    def extern_method(self, node: nodes.Call, function: nodes.Member) -> tuple[ir.CallExtern, types.Type]:
        """Check a call of a method of an extern object, or of a parameter of extern type.

        Returns:
            The call and the type of its result.
        """
        instance: ir.Instance | ir.Variable | None = None
        of: types.Type | None = None
        if isinstance(function.base, nodes.Name):
            name = function.base.name
            if function.name in _PACKET_METHODS and self.scopes.current.find(name) is None:
                where = (
                    "headers are emitted in the deparser"
                    if function.name == "emit"
                    else "packets are read in the parser"
                )
                raise error(function.base.span, f"there is no packet '{name}' here", where)
            symbol = self.scopes.lookup(function.base.name, function.base.span, function.base.rooted)
            if isinstance(symbol, ir.Instance):
                instance, of = symbol, symbol.type
            elif isinstance(symbol, ir.Variable):
                of = symbol.type
                instance = symbol if isinstance(of, types.ExternInstance) and not is_packet(of) else None
        if not isinstance(of, types.ExternInstance):
            found = self.evaluate(function.base).type if of is None else of
            hint = suggestion(function.name, HEADER_METHODS) if isinstance(found, types.Header) else None
            raise error(function.span, f"a value of type {found} has no method '{function.name}'", hint)
        extern = of.extern
        signatures = extern.methods.get(function.name)
        self.scopes.use_member(extern, function.name, function.name_span)
        if signatures is None or function.name == extern.name:
            known = [m for m in extern.methods if m != extern.name]
            raise no_such(f"method of {extern.name}", function.name, function.name_span, known)
        bindings = dict(zip(extern.type_parameters, of.arguments, strict=True))
        return self.extern_call(node, f"{extern.name}.{function.name}", instance, signatures, bindings)

    def extern_call(
        self,
        node: nodes.Call,
        name: str,
        instance: ir.Instance | ir.Variable | None,
        signatures: list[types.Signature],
        bindings: dict[str, types.Type],
    ) -> tuple[ir.CallExtern, types.Type]:
        """Check a call against the signatures that have the right number of parameters.

        Returns:
            The call and the type of its result.
        """
        if not signatures:
            raise error(node.span, f"{name} has no constructor", "only the architecture makes it")
        fitting = [s for s in signatures if len(s.parameters) == len(node.arguments)]
        if not fitting:
            counts = [len(s.parameters) for s in signatures]
            wanted = f"{' or '.join(map(str, counts))} argument{'s' * (counts != [1])}"
            nearest = min(signatures, key=lambda s: abs(len(s.parameters) - len(node.arguments)))
            likely = ", ".join(self._likely_arguments(nearest, node.arguments))
            hint = f"write {name.rpartition('.')[2]}({likely})"
            listed = [p for p in nearest.parameters if p.name == "data"]
            if listed and len(node.arguments) > max(counts):
                hint = f"put the values of data in braces: {name}({likely.replace('data', '{ a, b, c }')})"
            raise error(node.span, f"{name}() takes {wanted}, not {len(node.arguments)}", hint)
        signature = fitting[0]
        bindings = dict(bindings)
        if node.types:
            self.types.check_count(node.span, name, len(signature.type_parameters), len(node.types))
            bindings |= zip(signature.type_parameters, map(self.types.resolve, node.types), strict=True)
        free = {p: bindings[p] for p in signature.type_parameters if p in bindings}
        values = self.arguments(node, name, signature.parameters, bindings)
        for parameter in signature.type_parameters:
            if parameter not in bindings:
                hint = f"write {name.rpartition('.')[2]}<...>(...)"
                raise error(
                    node.span, f"the type argument '{parameter}' of {name}() cannot be inferred", hint
                )
            free[parameter] = bindings[parameter]
        directions = tuple(p.direction for p in signature.parameters)
        given = tuple(free[p] for p in signature.type_parameters)
        call = ir.CallExtern(node.span, name, instance, values, directions, given)
        return call, types.substitute(signature.result, bindings)

    def _likely_arguments(self, signature: types.Signature, given: tuple[nodes.Argument, ...]) -> list[str]:
        """Return likely arguments: those given, where their types fit, and a guess for the others."""
        rest = [a for a in given if a.value is not None]
        likely = []
        for parameter in signature.parameters:
            if rest and len(given) < len(signature.parameters) and self._fits(rest[0].value, parameter.type):
                likely.append(rest.pop(0).span.fragment())
            else:
                likely.append(self._likely(parameter))
        return likely

    def _fits(self, node: nodes.Expr | None, wanted: types.Type) -> bool:
        try:
            found = self.evaluate(node).type if node is not None else None
        except CompileError:
            return False
        return found == wanted or (isinstance(found, types.Int) and isinstance(wanted, types.Bits))

    def _likely(self, parameter: types.Parameter) -> str:
        """Return the likely argument for a parameter: the only variable of its declared type, or its name."""
        if isinstance(parameter.type, types.Enum):
            return f"{parameter.type}.{next(iter(parameter.type.members))}"
        if not isinstance(parameter.type, types.Named):
            return parameter.name
        return self._only_variable(str(parameter.type), parameter.name)

    def _only_variable(self, of: str, otherwise: str) -> str:
        """Return the only visible variable of the type with this name, with or without its _t."""
        scope = self.scopes.current
        symbols = {name: scope.find(name) for name in scope.all_names()}
        same = [
            name
            for name, s in symbols.items()
            if isinstance(s, ir.Variable) and str(s.type) in (of, f"{of}_t")
        ]
        return same[0] if len(same) == 1 else otherwise

    # Arguments

    def arguments(
        self,
        node: nodes.Call,
        name: str,
        parameters: tuple[types.Parameter, ...],
        bindings: dict[str, types.Type],
    ) -> tuple[ir.Expr, ...]:
        """Return the arguments in the parameters' order, converted; add the inferred type variables to `bindings`."""
        given = ordered(node, name, [p.name for p in parameters])
        found = [self.evaluate(a.value) if a is not None and a.value is not None else None for a in given]
        for parameter, value in zip(parameters, found, strict=True):
            if value is not None and isinstance(parameter.type, types.TypeVariable) and _is_open(value.type):
                raise error(value.span, "this does not say of which type it is", "cast it: (T){ ... }")
        # a literal without a width decides a type variable only if no other argument does
        for literals in (False, True):
            for parameter, value in zip(parameters, found, strict=True):
                if value is not None and isinstance(value.type, types.Int) == literals:
                    _unify(parameter.type, value.type, bindings)
        values = [
            v if v is not None else self._unused(node.span, types.substitute(p.type, bindings), p.direction)
            for v, p in zip(found, parameters, strict=True)
        ]
        return tuple(
            self.argument(p, value, types.substitute(p.type, bindings))
            for p, value in zip(parameters, values, strict=True)
        )

    def argument(self, parameter: types.Parameter, value: ir.Expr, wanted: types.Type) -> ir.Expr:
        """Convert an argument to the type of its parameter, and check that an out or inout argument can be written."""
        if parameter.direction in ("out", "inout"):
            check_assignable(value)
            if value.type != wanted:
                hint = "the types must be equal: nothing is converted on the way back"
                raise error(value.span, f"'{parameter.name}' writes {wanted}, not {value.type}", hint)
            return value
        value = self.conversions.coerce(value, wanted)
        if not parameter.direction and not known(value):
            raise error(
                value.span, f"'{parameter.name}' must be known when compiling", "use a literal or a const"
            )
        return value

    def block_arguments(
        self, node: nodes.Call | nodes.ActionRef, name: str, parameters: Sequence[ir.Variable]
    ) -> tuple[ir.Expr, ...]:
        """Return the converted arguments for a function, action, parser or control."""
        values: list[ir.Expr] = []
        optional = {p.name for p in parameters if p.default is not None}
        for argument, parameter in zip(
            ordered(node, name, [p.name for p in parameters], optional), parameters, strict=True
        ):
            value: ir.Expr
            if argument is not None and argument.name is not None and self.scopes.index is not None:
                self.scopes.index.use_variable(parameter, argument.name, argument.span)
            if argument is None and parameter.default is not None:
                value = parameter.default
            elif argument is None or argument.value is None:
                value = self._unused(
                    argument.span if argument else node.span, parameter.type, parameter.direction
                )
            elif isinstance(parameter.type, types.BlockInstance | types.ExternInstance):
                value = self.object(argument.value, parameter.type)
            else:
                value = self.evaluate(argument.value)
            if parameter.direction in ("out", "inout"):
                check_assignable(value)
                if value.type != parameter.type:
                    hint = "the types must be equal: nothing is converted on the way back"
                    raise error(
                        value.span, f"'{parameter.name}' writes {parameter.type}, not {value.type}", hint
                    )
                values.append(value)
            else:
                values.append(self.conversions.coerce(value, parameter.type))
        return tuple(values)

    def object(self, node: nodes.Expr, wanted: types.Type) -> ir.Expr:
        """Return the extern object, parser or control that an argument names."""
        symbol = (
            self.scopes.lookup(node.name, node.span, node.rooted) if isinstance(node, nodes.Name) else None
        )
        if isinstance(symbol, ir.Variable) and is_packet(symbol.type):
            return ir.Ref(symbol.type, node.span, symbol)
        if not isinstance(symbol, ir.Instance | ir.Variable):
            raise error(node.span, f"a {wanted} is needed", "name an instance of it")
        given = symbol.type
        if isinstance(given, types.BlockInstance) and isinstance(wanted, types.BlockInstance):
            if given.block.fits(wanted.block):
                return ir.Object(wanted, node.span, symbol)
        elif given == wanted:
            return ir.Object(wanted, node.span, symbol)
        raise error(node.span, f"a {wanted} is needed, not {given}")

    def _unused(self, span: Span, of: types.Type, direction: str) -> ir.Expr:
        """Return a new variable for the argument `_`, which discards what is written to it."""
        if direction != "out" or isinstance(of, types.TypeVariable):
            raise error(span, "'_' stands only for an out argument whose type is known", "give a variable")
        return ir.Ref(of, span, ir.Variable(self.names.serial("unused"), of, span))


def _is_open(of: types.Type) -> bool:
    """Return whether a value has no type of its own, and takes the type of what it initializes."""
    return isinstance(of, types.InvalidHeader) or (isinstance(of, types.Tuple | types.Record) and of.rest)


def _writes_result(signature: types.Signature) -> bool:
    """Return whether an extern writes its result to its first parameter instead of returning it."""
    parameters = signature.parameters
    return isinstance(signature.result, types.Void) and bool(parameters) and parameters[0].direction == "out"


def is_packet(of: types.Type) -> bool:
    """Return whether a type is packet_in or packet_out: parameters of the architecture, without an instance."""
    return isinstance(of, types.ExternInstance) and of.extern.name in ("packet_in", "packet_out")


def ordered(
    node: nodes.Call | nodes.ActionRef, name: str, parameters: list[str], optional: Collection[str] = ()
) -> list[nodes.Argument | None]:
    """Return the arguments in the order of the parameters. None stands for an optional one that was left out.

    Raises:
        CompileError: If an argument is missing, is given twice, or matches no parameter, or if only some have names.
    """
    given: dict[str, nodes.Argument] = {}
    arguments = node.arguments or ()
    for argument in arguments:
        if (argument.name is None) != (arguments[0].name is None):
            hint = f"write {name}({', '.join(f'{p} = ...' for p in parameters)})"
            raise error(argument.span, "either all arguments have names, or none has", hint)
    for position, argument in enumerate(arguments):
        if argument.name is not None:
            key = argument.name
            if key not in parameters:
                raise no_such(f"parameter of {name}", key, argument.span, parameters)
        elif position < len(parameters):
            key = parameters[position]
        else:
            break
        if key in given:
            raise error(argument.span, f"parameter '{key}' is given twice")
        given[key] = argument
    if len(given) != len(arguments) or any(p not in given and p not in optional for p in parameters):
        wanted = f"{len(parameters)} argument{'s' * (len(parameters) != 1)}"
        hint = f"write {name}({', '.join(parameters)})"
        raise error(node.span, f"'{name}' takes {wanted}, not {len(arguments)}", hint)
    return [given.get(p) for p in parameters]


def _on_a_header(base: ir.Expr, function: nodes.Member) -> str:
    """Return what to write instead of a header's method on a value of another type."""
    of, text = base.type, function.base.span.fragment()
    if isinstance(of, types.Fields):
        headers = [f"{text}.{f.name}" for f in of.fields if isinstance(f.type, types.Header)]
        if headers:
            return f"only headers have it: write {headers[0]}.{function.name}()"
    return "only headers have it"


def _unify(wanted: types.Type, given: types.Type, bindings: dict[str, types.Type]) -> None:
    """Bind the type variables in `wanted` to the types in `given`. The later conversion reports what does not fit."""
    match wanted:
        case types.TypeVariable(name=name):
            bindings.setdefault(name, given)
        case types.Tuple(elements=inner) if isinstance(given, types.Tuple):
            for a, b in zip(inner, given.elements, strict=False):
                _unify(a, b, bindings)
        case types.Fields(generic=types.Generic() as generic, arguments=inner):
            if isinstance(given, types.Fields) and given.generic is generic:
                for a, b in zip(inner, given.arguments, strict=True):
                    _unify(a, b, bindings)
