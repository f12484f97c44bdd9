"""Typing of parameters, functions and actions (P4_16 specification, chapters 10 and 14)."""

from __future__ import annotations

from itertools import pairwise

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.check.conversions import is_constant
from fanin.p4compiler.check.expressions import ExpressionChecker
from fanin.p4compiler.check.scopes import Scopes
from fanin.p4compiler.check.statements import StatementChecker
from fanin.p4compiler.nodes import annotation_text
from fanin.p4compiler.source import error


class CallableChecker:
    """Type checker for functions and actions: their parameters and their bodies.

    Errors in the program are raised as CompileError.
    """

    def __init__(self, scopes: Scopes, expressions: ExpressionChecker, statements: StatementChecker) -> None:
        self.scopes = scopes
        self.expressions = expressions
        self.types = expressions.types
        self.conversions = expressions.conversions
        self.constants = expressions.constants
        self.statements = statements

    def parameters(
        self, parameters: tuple[nodes.Parameter, ...], constructor: bool = False
    ) -> tuple[ir.Variable, ...]:
        """Declare parameters in the current scope and return them as variables.

        Args:
            parameters: The parameters' syntax trees.
            constructor: True for the parameters of a constructor, whose values are known after instantiation.
        """
        result = []
        for p in parameters:
            of, annotations = (
                self.types.resolve(p.type),
                self.constants.annotations(p.annotations),
            )
            if isinstance(of, types.Int) and p.direction:
                hint = "leave the direction out, or give it a width: bit<32>"
                raise error(p.type.span, f"'{p.name}': a parameter of type int has no direction", hint)
            default = None
            if p.default is not None:
                value = self.conversions.coerce(self.expressions.expr(p.default), of)
                if not is_constant(value):
                    raise error(p.default.span, "a default value must be known when compiling")
                default = value
            variable = ir.Variable(p.name, of, p.span, p.direction, annotations, True, constructor, default)
            self.scopes.declare(p.name, p.name_span, variable)
            result.append(variable)
        return tuple(result)

    def function(self, node: nodes.Function) -> ir.Function:
        """Check a function."""
        if node.head.type_parameters:
            raise error(node.name_span, "generic functions are not supported")
        assert node.head.result is not None
        errors = len(self.scopes.reporter.errors)
        with self.scopes.nested():
            parameters = self.parameters(node.head.parameters)
            result = self.types.resolve(node.head.result)
            body = self.statements.function_body(node.body.statements, result)
        # After an error in the body, the missing return may be a consequence of it.
        sound = len(self.scopes.reporter.errors) == errors
        if sound and not isinstance(result, types.Void) and not _returns(body):
            hint = "every way through the function needs a return"
            raise error(node.name_span, f"function '{node.name}' may end without a value", hint)
        return ir.Function(node.name, parameters, result, body, node.name_span)

    def action(self, node: nodes.Action, top_level: bool) -> ir.Action:
        """Check an action.

        Args:
            node: The action's syntax tree.
            top_level: True if the action is declared outside of all controls.
        """
        with self.scopes.nested():
            parameters = self.parameters(node.parameters)
            for before, after in pairwise(parameters):
                if not before.direction and after.direction:
                    hint = "parameters without a direction (the control plane's) come last"
                    raise error(after.span, "a parameter with a direction after one without", hint)
            _check_data_names(parameters)
            body = self.statements.action_body(node.body.statements)
        return ir.Action(
            node.name,
            parameters,
            body,
            node.name_span,
            self.constants.annotations(node.annotations),
            top_level=top_level,
        )


def _check_data_names(parameters: tuple[ir.Variable, ...]) -> None:
    """Check that an action's parameters have different names in the control plane."""
    seen: dict[str, ir.Variable] = {}
    for parameter in (p for p in parameters if not p.direction):
        name = annotation_text(parameter.annotations, "name") or parameter.name
        first = seen.setdefault(name, parameter)
        if first is not parameter:
            message = f"two parameters are called '{name}' in the control plane"
            raise error(parameter.span, message, "give one of them another @name", other=first.span)


def _returns(body: tuple[ir.Stmt, ...]) -> bool:
    """Return whether every path through the statements ends with a return."""
    match body[-1] if body else None:
        case ir.Return():
            return True
        case ir.If(chosen=chosen, other=other):
            return _returns(chosen) and _returns(other)
    return False
