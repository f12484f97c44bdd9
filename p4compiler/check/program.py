"""Resolution and type checking: the syntax tree -> the typed program."""

from __future__ import annotations

from itertools import pairwise
from pathlib import PurePath

from p4compiler import ir, nodes, types
from p4compiler.check.statements import is_constant
from p4compiler.check.tables import TableChecker, annotation_text
from p4compiler.check.types import Scope, no_such
from p4compiler.source import CompileError, Reporter, Span, error

_PACKAGE = "V1Switch"
_ARCHITECTURE_FILES = ("core.p4", "v1model.p4")


def check(program: nodes.Program, reporter: Reporter) -> ir.Program:
    """The typed program; raises CompileError with every error found."""
    checker = _ProgramChecker(reporter)
    for node in program.declarations:
        try:
            checker.declaration(node)
        except CompileError as failure:
            reporter.add(failure)
            checker.define_for_recovery(node)
    reporter.check()
    if not checker.blocks:
        hint = f"end the program with {_PACKAGE}(...) main;"
        raise error(program.declarations[-1].span, "the program has no 'main' package", hint)
    own = [e for e in checker.enums if e.underlying is None and e.name not in checker.architecture_enums]
    controller = [
        h for h in checker.headers if annotation_text(h.annotations, "controller_header") is not None
    ]
    return ir.Program(
        checker.blocks, checker.instances, checker.errors, own, controller, checker.package_annotations
    )


class _ProgramChecker(TableChecker):
    def __init__(self, reporter: Reporter) -> None:
        super().__init__(reporter)
        self.blocks: dict[str, ir.Instance] = {}
        self.instances: list[ir.Instance] = []
        self.architecture_enums: set[str] = set()
        self.package_annotations: nodes.Annotations = ()
        self.block: ir.Block | None = None

    # Declarations

    def declaration(self, node: nodes.Declaration) -> None:
        if self.declare_type(node):
            if isinstance(node, nodes.Enum) and PurePath(node.span.file.path).name in _ARCHITECTURE_FILES:
                self.architecture_enums.add(node.name)
            return
        match node:
            case nodes.Constant():
                self.declare_constant(node)
            case nodes.Method():
                self.declare(node.name, node.name_span, [self.signature(node)])
            case nodes.Function():
                self.declare(node.name, node.name_span, self.function(node))
            case nodes.Action():
                self.declare(node.name, node.name_span, self.action(node))
            case nodes.Control() | nodes.Parser():
                self.declare_block(node)
            case nodes.Instance():
                self.top_instance(node)
            case _:
                raise error(node.span, "this cannot be declared here")

    def parameters(self, parameters: tuple[nodes.Parameter, ...]) -> tuple[ir.Variable, ...]:
        """Parameters as variables, declared in the current scope."""
        result = []
        for p in parameters:
            variable = ir.Variable(
                p.name,
                self.type(p.type),
                p.span,
                p.direction,
                self.annotations(p.annotations),
                parameter=True,
            )
            if p.default is not None:
                default = self.coerce(self.expr(p.default), variable.type)
                if not is_constant(default):
                    raise error(p.default.span, "a default value must be known when compiling")
                variable.default = default
            self.declare(p.name, p.span, variable)
            result.append(variable)
        return tuple(result)

    def function(self, node: nodes.Function) -> ir.Function:
        if node.head.type_parameters:
            raise error(node.name_span, "generic functions are not supported")
        assert node.head.result is not None
        self.scope = Scope(self.scope)
        try:
            parameters = self.parameters(node.head.parameters)
            self.result = self.type(node.head.result)
            body = self.statements(node.body.statements)
        finally:
            self.result = None
            self.scope = self.scope.outer or self.top
        function = ir.Function(node.name, parameters, self.type(node.head.result), body, node.name_span)
        if not isinstance(function.result, types.Void) and not _returns(body):
            hint = "every way through the function needs a return"
            raise error(node.name_span, f"function '{node.name}' may end without a value", hint)
        return function

    def action(self, node: nodes.Action) -> ir.Action:
        self.scope = Scope(self.scope)
        try:
            parameters = self.parameters(node.parameters)
            for before, after in pairwise(parameters):
                if not before.direction and after.direction:
                    hint = "parameters without a direction (the control plane's) come last"
                    raise error(after.span, "a parameter with a direction after one without", hint)
            body = self.statements(node.body.statements)
        finally:
            self.scope = self.scope.outer or self.top
        top_level = self.block is None
        return ir.Action(
            node.name,
            parameters,
            body,
            node.name_span,
            self.annotations(node.annotations),
            top_level=top_level,
        )

    # Parsers and controls

    def declare_block(self, node: nodes.Control | nodes.Parser) -> None:
        self.scope = Scope(self.top)
        block = ir.Block(
            node.head.kind, node.name, (), (), node.name_span, self.annotations(node.annotations)
        )
        self.block = block
        try:
            block.constructor = self.parameters(node.head.constructor or ())
            self.constructor_parameters = frozenset(block.constructor)
            block.parameters = self.parameters(node.head.parameters)
            prologue: list[ir.Stmt] = []
            for local in node.locals:
                try:
                    prologue += self.local(local, block)
                except CompileError as failure:
                    self.reporter.add(failure)
                    self.define_for_recovery(local)
            block.prologue = tuple(prologue)
            if isinstance(node, nodes.Control):
                block.body = self.statements(node.body.statements)
            else:
                self.states(node, block)
        finally:
            self.scope = self.top
            self.block = None
            self.constructor_parameters = frozenset()
        self.declare(node.name, node.name_span, block)

    def local(self, node: nodes.Node, block: ir.Block) -> list[ir.Stmt]:
        match node:
            case nodes.Variable():
                return [self.variable(node)]
            case nodes.Constant():
                self.declare_constant(node)
            case nodes.Instance():
                instance = self.instance(node)
                self.declare(node.name, node.name_span, instance)
            case nodes.Action():
                action = self.action(node)
                self.declare(node.name, node.name_span, action)
                block.actions.append(action)
                block.declared.append(action)
            case nodes.Table():
                table = self.table(node)
                self.declare(node.name, node.name_span, table)
                block.tables.append(table)
                block.declared.append(table)
            case nodes.ValueSet():
                self.declare_value_set(node, block)
            case _:
                raise error(node.span, "this cannot be declared here")
        return []

    def declare_value_set(self, node: nodes.ValueSet, block: ir.Block) -> None:
        of = self.type(node.type)
        if not isinstance(types.scalar(of), types.Bits | types.Struct):
            raise error(node.type.span, f"a value set of {of} is not supported")
        size = self.compile_time(node.size, "a value set's size")
        value_set = ir.ValueSet(node.name, of, size, node.name_span, self.annotations(node.annotations))
        self.declare(node.name, node.name_span, value_set)
        block.value_sets.append(value_set)

    def states(self, node: nodes.Parser, block: ir.Block) -> None:
        names = [s.name for s in node.states]
        if "start" not in names:
            raise error(node.name_span, f"parser '{node.name}' has no state 'start'")
        for state in node.states:
            if names.count(state.name) > 1 or state.name in ("accept", "reject"):
                raise error(state.name_span, f"state '{state.name}' is declared twice")
        for state in node.states:
            self.scope = Scope(self.scope)
            try:
                block.states.append(self.state(state, names))
            except CompileError as failure:
                self.reporter.add(failure)
            finally:
                self.scope = self.scope.outer or self.top

    def state(self, node: nodes.State, names: list[str]) -> ir.State:
        body: list[ir.Stmt] = []
        for statement in node.statements:
            body += self.statement(statement)
        targets = [*names, "accept", "reject"]
        transition = node.transition
        if not isinstance(transition, nodes.Select):
            target = transition.name if transition is not None else "reject"
            span = transition.span if transition is not None else node.name_span
            if target not in targets:
                raise no_such("state", target, span, targets)
            cases: tuple[ir.SelectCase, ...] = (ir.SelectCase((), target, span),)
            return ir.State(node.name, tuple(body), (), cases, node.name_span)
        subjects = [self.subject(s) for s in transition.subjects]
        cases = tuple(self.select_case(case, subjects, targets) for case in transition.cases)
        return ir.State(node.name, tuple(body), tuple(subjects), cases, node.name_span)

    def subject(self, node: nodes.Expr) -> ir.Expr:
        value = self.expr(node)
        if isinstance(value.type, types.Int) or types.width(value.type) is None:
            raise error(node.span, f"a select over {value.type} is not supported", "select over its fields")
        return value

    def select_case(
        self, node: nodes.SelectCase, subjects: list[ir.Expr], targets: list[str]
    ) -> ir.SelectCase:
        if node.state not in targets:
            raise no_such("state", node.state, node.state_span, targets)
        if len(node.keys) == 1 and isinstance(node.keys[0], nodes.Name):
            symbol = self.lookup(node.keys[0].name, node.keys[0].span)
            if isinstance(symbol, ir.ValueSet):
                return ir.SelectCase((ir.KeyValue(value_set=symbol),), node.state, node.span)
        return ir.SelectCase(self.key_values(node.keys, subjects, node.span), node.state, node.span)

    # Instances

    def instance(self, node: nodes.Instance) -> ir.Instance:
        """An extern object, parser or control; it is put into the block around it."""
        made = self.construct(node)
        if self.block is None:
            self.instances.append(made)
        else:
            self.block.instances.append(made)
            self.block.declared.append(made)
        return made

    def construct(self, node: nodes.Instance) -> ir.Instance:
        if not isinstance(node.type, nodes.NamedType):
            raise error(node.type.span, "this type has no constructor")
        call = nodes.Call(node.span, nodes.Name(node.span, node.name), (), node.arguments)
        symbol = self.lookup(node.type.name, node.type.span, node.type.rooted, "type")
        if isinstance(symbol, ir.Block):
            values = self.block_arguments(call, symbol.name, symbol.constructor)
            for value in values:
                if not self.known(value):
                    raise error(value.span, "a constructor's argument must be known when compiling")
            return ir.Instance(
                node.name,
                self.type(node.type),
                values,
                node.name_span,
                self.annotations(node.annotations),
                symbol,
            )
        of = self.type(node.type)
        if not isinstance(of, types.ExternInstance):
            raise error(node.type.span, f"{of} has no constructor")
        extern = of.extern
        bindings = dict(zip(extern.type_parameters, of.arguments, strict=True))
        constructors = extern.methods.get(extern.name, [])
        made, _ = self.extern_call(call, extern.name, None, constructors, bindings)
        return ir.Instance(node.name, of, made.arguments, node.name_span, self.annotations(node.annotations))

    def anonymous(self, block: ir.Block, named: nodes.NamedType) -> ir.Instance:
        assert self.block is not None
        taken = {i.name for i in self.block.instances}
        name, count = block.name, 0
        while name in taken:
            name, count = f"{block.name}_{count}", count + 1
        instance = ir.Instance(name, self.type(named), (), named.span, (), block)
        self.block.instances.append(instance)
        self.block.declared.append(instance)
        return instance

    def top_instance(self, node: nodes.Instance) -> None:
        symbol = (
            self.lookup(node.type.name, node.type.span) if isinstance(node.type, nodes.NamedType) else None
        )
        if isinstance(symbol, types.Block) and symbol.kind == "package":
            self.package(node, symbol)
        else:
            self.declare(node.name, node.name_span, self.instance(node))

    def package(self, node: nodes.Instance, package: types.Block) -> None:
        if package.name != _PACKAGE:
            raise error(
                node.type.span,
                f"package '{package.name}' is not supported",
                f"only {_PACKAGE} of v1model.p4 is",
            )
        if node.name != "main":
            raise error(node.name_span, f"the package's instance must be called 'main', not '{node.name}'")
        self.package_annotations = self.annotations(node.annotations)
        bindings: dict[str, types.Type] = {}
        if len(node.arguments) != len(package.parameters):
            hint = f"({', '.join(p.name for p in package.parameters)})"
            count = f"{len(package.parameters)} arguments, not {len(node.arguments)}"
            raise error(node.span, f"'{package.name}' takes {count}", hint)
        for position, argument in enumerate(node.arguments):
            by_name = [p for p in package.parameters if p.name == argument.name]
            parameter = by_name[0] if by_name else package.parameters[position]
            instance = self.package_argument(argument)
            assert isinstance(parameter.type, types.BlockInstance)
            _fit(argument.span, instance, parameter.type, bindings)
            self.blocks[parameter.name] = instance

    def package_argument(self, node: nodes.Argument) -> ir.Instance:
        value = node.value
        if isinstance(value, nodes.Name):
            symbol = self.lookup(value.name, value.span)
            if isinstance(symbol, ir.Instance) and symbol.block is not None:
                return symbol
        if isinstance(value, nodes.Call) and isinstance(value.function, nodes.TypeExpr):
            named = value.function.type
            if isinstance(named, nodes.NamedType) and isinstance(self.top.find(named.name), ir.Block):
                made = nodes.Instance(value.span, named.name, named.span, (), named, value.arguments)
                return self.construct(made)
        raise error(node.span, "a parser or control is needed here", "write its name and (): MyIngress()")


def _fit(
    span: Span, instance: ir.Instance, wanted: types.BlockInstance, bindings: dict[str, types.Type]
) -> None:
    """Check that a parser or control has the parameters that the architecture gives it."""
    block, of = instance.block, wanted.block
    assert block is not None
    own = dict(zip(of.type_parameters, wanted.arguments, strict=True))
    shape = ", ".join(f"{p.direction} {types.substitute(p.type, own)}".strip() for p in of.parameters)
    hint = f"its parameters are ({shape})"
    if block.kind != of.kind or len(block.parameters) != len(of.parameters):
        raise error(span, f"'{block.name}' is not the architecture's {of.name}", hint)
    for parameter, expected in zip(block.parameters, of.parameters, strict=True):
        needed = types.substitute(expected.type, own)
        if isinstance(needed, types.TypeVariable):
            needed = bindings.setdefault(needed.name, parameter.type)
        if needed != parameter.type or parameter.direction != expected.direction:
            found = f"{parameter.direction} {parameter.type}".strip()
            text = f"{expected.direction} {needed}".strip()
            raise error(
                parameter.span,
                f"'{block.name}' has '{found} {parameter.name}', the architecture gives '{text}'",
                hint,
            )


def _returns(body: tuple[ir.Stmt, ...]) -> bool:
    """Whether every way through the statements ends with a return."""
    match body[-1] if body else None:
        case ir.Return():
            return True
        case ir.If(chosen=chosen, other=other):
            return _returns(chosen) and _returns(other)
    return False
