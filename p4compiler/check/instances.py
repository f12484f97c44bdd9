"""Instances of externs, parsers and controls."""

from __future__ import annotations

from dataclasses import replace

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.check.conversions import known
from fanin.p4compiler.check.expressions import ExpressionChecker
from fanin.p4compiler.check.scopes import Scopes
from fanin.p4compiler.names import Names
from fanin.p4compiler.source import error


class InstanceChecker:
    """Type checker for instances.

    Errors in the program are raised as CompileError. `declared` lists the declarations of the enclosing block so far;
    None at the top level.
    """

    def __init__(self, scopes: Scopes, expressions: ExpressionChecker) -> None:
        self.scopes = scopes
        self.types = expressions.types
        self.constants = expressions.constants
        self.calls = expressions.calls
        self.top: list[ir.Instance] = []
        self.declared: list[ir.Declared] | None = None

    def instance(self, node: nodes.Instance) -> ir.Instance:
        """Check an instance of an extern, parser or control, and add it to the enclosing block."""
        made = self.construct(node)
        (self.top if self.declared is None else self.declared).append(made)
        return made

    def construct(self, node: nodes.Instance) -> ir.Instance:
        """Return the instance without adding it to the enclosing block."""
        if not isinstance(node.type, nodes.NamedType):
            raise error(node.type.span, "this type has no constructor")
        call = nodes.Call(node.span, nodes.Name(node.span, node.name), (), node.arguments)
        symbol = self.scopes.lookup(node.type.name, node.type.span, node.type.rooted, "type")
        if isinstance(symbol, ir.Block):
            values = self.calls.block_arguments(call, symbol.name, symbol.constructor)
            for value in values:
                if not known(value):
                    raise error(value.span, "a constructor's argument must be known when compiling")
            return ir.Instance(
                node.name,
                self.types.resolve(node.type),
                values,
                node.name_span,
                self.constants.annotations(node.annotations),
                symbol,
            )
        inferred = self._inferred_constructors(node.type, symbol)
        if inferred and isinstance(symbol, types.Extern):
            made, _ = self.calls.extern_call(call, symbol.name, None, inferred, {})
            of: types.Type = types.ExternInstance(symbol, made.type_arguments)
        else:
            of = self.types.resolve(node.type)
            if not isinstance(of, types.ExternInstance):
                raise error(node.type.span, f"{of} has no constructor")
            extern = of.extern
            bindings = dict(zip(extern.type_parameters, of.arguments, strict=True))
            constructors = extern.methods.get(extern.name, [])
            made, _ = self.calls.extern_call(call, extern.name, None, constructors, bindings)
        return ir.Instance(
            node.name,
            of,
            made.arguments,
            node.name_span,
            self.constants.annotations(node.annotations),
        )

    @staticmethod
    def _inferred_constructors(named: nodes.NamedType, symbol: object) -> list[types.Signature]:
        """Return the constructors whose arguments give the type arguments that the program leaves out."""
        if named.arguments or not isinstance(symbol, types.Extern) or not symbol.type_parameters:
            return []
        return [
            replace(signature, type_parameters=symbol.type_parameters)
            for signature in symbol.methods.get(symbol.name, [])
            if {str(p.type) for p in signature.parameters} >= set(symbol.type_parameters)
        ]

    def checksum_state(self, instance: ir.Instance) -> ir.Variable:
        """Return a new variable that holds the state of a checksum object of PSA."""
        state = ir.Variable(instance.name, types.Bits(16), instance.span)
        self.calls.checksum_states[instance] = state
        return state

    def anonymous(self, block: ir.Block, named: nodes.NamedType) -> ir.Instance:
        """Add a new instance of a control that the program applies without declaring one."""
        assert self.declared is not None
        name = Names(d.name for d in self.declared if isinstance(d, ir.Instance)).unique(block.name)
        instance = ir.Instance(name, self.types.resolve(named), (), named.span, (), block)
        self.declared.append(instance)
        return instance
