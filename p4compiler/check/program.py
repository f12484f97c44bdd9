"""Resolution and type checking: the syntax tree -> the typed program."""

from __future__ import annotations

from pathlib import PurePath

from fanin.p4compiler import ir, nodes, types
from fanin.p4compiler.check.blocks import BlockChecker
from fanin.p4compiler.check.callables import CallableChecker
from fanin.p4compiler.check.expressions import ExpressionChecker
from fanin.p4compiler.check.instances import InstanceChecker
from fanin.p4compiler.check.scopes import Scopes
from fanin.p4compiler.check.statements import StatementChecker
from fanin.p4compiler.index import NameIndex
from fanin.p4compiler.nodes import annotation_text
from fanin.p4compiler.source import CompileError, Reporter, Span, error

_PACKAGE = "V1Switch"
_FRAME_PACKAGE = "psa_frame_t"  # of psa/frame.p4
_PSA_PACKAGES = ("IngressPipeline", "EgressPipeline", "PSA_Switch")
_ARCHITECTURE_FILES = ("core.p4", "v1model.p4", "psa.p4", "frame.p4")


def check(program: nodes.Program, reporter: Reporter, index: NameIndex | None = None) -> ir.Program:
    """Check a program and return it with types.

    Args:
        program: The program.
        reporter: Receives errors and warnings.
        index: Receives what the names in the program mean.

    Raises:
        CompileError: If the program has errors; it holds all of them.
    """
    _check_architecture(program)
    for node in (*program.declarations, *program.frame):
        _silence(node, reporter)
    checker = _ProgramChecker(reporter, index)
    for declarations in (program.declarations, program.frame):
        with checker.scopes.declaring(declarations):
            for node in declarations:
                try:
                    checker.declaration(node)
                except CompileError as failure:
                    reporter.add(failure)
                    checker.statements.define_for_recovery(node)
        reporter.check()
    if not checker.blocks:
        hint = f"end the program with {_PACKAGE}(...) main;"
        raise error(program.declarations[-1].span, "the program has no 'main' package", hint)
    types_ = checker.types
    own = tuple(e for e in types_.enums if e.underlying is None and e.name not in checker.architecture_enums)
    controller = tuple(
        h for h in types_.headers if annotation_text(h.annotations, "controller_header") is not None
    )
    return ir.Program(
        checker.blocks,
        tuple(checker.instances.top),
        types_.errors,
        own,
        controller,
        checker.package_annotations,
        "psa" if program.frame else "v1model",
    )


def _silence(node: nodes.Node, reporter: Reporter) -> None:
    """Remember the declarations with @noWarn("..."), in which this warning is not wanted."""
    if isinstance(node, nodes.Declaration):
        for annotation in node.annotations:
            if annotation.name == "noWarn" and annotation.arguments:
                [name, *_] = annotation.arguments
                if isinstance(name, nodes.String):
                    reporter.silenced.append((annotation.span.to(node.span), name.value))
    if isinstance(node, nodes.Control | nodes.Parser):
        inner = (*node.locals, *(node.states if isinstance(node, nodes.Parser) else ()))
        for part in inner:
            _silence(part, reporter)


def _check_architecture(program: nodes.Program) -> None:
    """Check that a program which ends with V1Switch(...) main; has a declaration of V1Switch."""
    if any(isinstance(node, nodes.Callable) and node.kind == "package" for node in program.declarations):
        return
    for node in program.declarations:
        if (
            isinstance(node, nodes.Instance)
            and isinstance(node.type, nodes.NamedType)
            and node.type.name == _PACKAGE
        ):
            hint = "write #include <v1model.p4> at the beginning of the program"
            raise error(node.type.span, f"there is no '{_PACKAGE}': v1model.p4 is not included", hint)


class _ProgramChecker:
    def __init__(self, reporter: Reporter, index: NameIndex | None) -> None:
        self.scopes = Scopes(reporter, index)
        self.expressions = ExpressionChecker(self.scopes)
        self.types = self.expressions.types
        self.constants = self.expressions.constants
        self.instances = InstanceChecker(self.scopes, self.expressions)
        self.statements = StatementChecker(self.scopes, self.expressions, self.instances)
        self.callables = CallableChecker(self.scopes, self.expressions, self.statements)
        self.block_checker = BlockChecker(
            self.scopes, self.expressions, self.instances, self.statements, self.callables
        )
        self.blocks: dict[ir.Role, ir.Instance] = {}
        self.architecture_enums: set[str] = set()
        self.package_annotations: nodes.Annotations = ()

    def declaration(self, node: nodes.Declaration) -> None:
        if self.types.declare(node):
            if isinstance(node, nodes.Enum) and PurePath(node.span.file.path).name in _ARCHITECTURE_FILES:
                self.architecture_enums.add(node.name)
            return
        match node:
            case nodes.Constant():
                self.statements.declare_constant(node)
            case nodes.Method():
                self.scopes.declare(node.name, node.name_span, [self.types.signature(node)])
            case nodes.Function():
                self.scopes.declare(node.name, node.name_span, self.callables.function(node))
            case nodes.Action():
                self.scopes.declare(node.name, node.name_span, self.callables.action(node, top_level=True))
            case nodes.Control() | nodes.Parser():
                self.scopes.declare(node.name, node.name_span, self.block_checker.block(node))
            case nodes.Instance():
                self.top_instance(node)
            case _:
                raise error(node.span, "this cannot be declared here")

    def top_instance(self, node: nodes.Instance) -> None:
        symbol = (
            self.scopes.lookup(node.type.name, node.type.span)
            if isinstance(node.type, nodes.NamedType)
            else None
        )
        if isinstance(symbol, types.Block) and symbol.kind == "package":
            self.package(node, symbol)
        elif isinstance(symbol, ir.Block):
            hint = f"declare it in the {symbol.kind} that applies it"
            message = f"a {symbol.kind} cannot be instantiated at the top level"
            raise error(node.name_span, message, hint)
        else:
            self.scopes.declare(node.name, node.name_span, self.instances.instance(node))

    def package(self, node: nodes.Instance, package: types.Block) -> None:
        if package.name in _PSA_PACKAGES:
            self.psa_package(node, package)
            return
        if package.name not in (_PACKAGE, _FRAME_PACKAGE):
            raise error(
                node.type.span,
                f"package '{package.name}' is not supported",
                f"only {_PACKAGE} of v1model.p4 and PSA_Switch of psa.p4 are",
            )
        if [p.name for p in package.parameters] != [role.value for role in ir.Role]:
            hint = "include <v1model.p4>"
            raise error(node.type.span, f"this '{_PACKAGE}' is not the one of v1model.p4", hint)
        if node.name != "main" and package.name == _PACKAGE:
            raise error(node.name_span, f"the package's instance must be called 'main', not '{node.name}'")
        self.package_annotations = self.constants.annotations(node.annotations)
        bindings: dict[str, types.Type] = {}
        if len(node.arguments) != len(package.parameters):
            hint = f"write {package.name}({', '.join(f'{name}()' for name in _order(package))}) main;"
            count = f"{len(package.parameters)} arguments, not {len(node.arguments)}"
            raise error(node.span, f"'{package.name}' takes {count}", hint)
        for position, argument in enumerate(node.arguments):
            by_name = [p for p in package.parameters if p.name == argument.name]
            parameter = by_name[0] if by_name else package.parameters[position]
            instance = self.package_argument(argument)
            assert isinstance(parameter.type, types.BlockInstance)
            self.fit(argument.span, instance, parameter.type, bindings, package)
            self.blocks[ir.Role(parameter.name)] = instance

    def psa_package(self, node: nodes.Instance, package: types.Block) -> None:
        """Check the blocks of a PSA pipeline; psa/expand.py has put them into the frame."""
        if package.name == "PSA_Switch":
            return
        bindings: dict[str, types.Type] = {}
        for position, argument in enumerate(node.arguments):
            by_name = [p for p in package.parameters if p.name == argument.name]
            parameter = by_name[0] if by_name else package.parameters[position]
            assert isinstance(parameter.type, types.BlockInstance)
            self.fit(argument.span, self.package_argument(argument), parameter.type, bindings, package)

    def package_argument(self, node: nodes.Argument) -> ir.Instance:
        value = node.value
        if isinstance(value, nodes.Call) and isinstance(value.function, nodes.TypeExpr):
            named = value.function.type
            if isinstance(named, nodes.NamedType) and isinstance(
                self.scopes.lookup(named.name, named.span), ir.Block
            ):
                made = nodes.Instance(value.span, named.name, named.span, (), named, value.arguments)
                return self.instances.construct(made)
        hint = (
            f"write {node.span.fragment()}()"
            if isinstance(value, nodes.TypeExpr)
            else "write its name and ()"
        )
        raise error(node.span, "a parser or control is needed here", hint)

    def fit(
        self,
        span: Span,
        instance: ir.Instance,
        wanted: types.BlockInstance,
        bindings: dict[str, types.Type],
        package: types.Block,
    ) -> None:
        """Check that a parser or control has the parameters that the architecture requires."""
        block, of = instance.block, wanted.block
        assert block is not None
        own = dict(zip(of.type_parameters, wanted.arguments, strict=True))
        shape = ", ".join(f"{p.direction} {types.substitute(p.type, own)}".strip() for p in of.parameters)
        hint = f"its parameters are ({shape})"
        if block.kind != of.kind or len(block.parameters) != len(of.parameters):
            hint += f"; the order is {', '.join(_order(package))}"
            raise error(span, f"'{block.name}' is not the architecture's {of.name}", hint)
        for parameter, expected in zip(block.parameters, of.parameters, strict=True):
            needed = types.substitute(expected.type, own)
            if isinstance(needed, types.TypeVariable):
                needed = bindings.setdefault(needed.name, parameter.type)
            if (
                isinstance(parameter.type, types.ExternInstance) and needed != parameter.type
            ):  # packets: another block
                hint += f"; the order is {', '.join(_order(package))}"
                raise error(span, f"'{block.name}' is not the architecture's {of.name}", hint)
            if needed != parameter.type or parameter.direction != expected.direction:
                self.scopes.reporter.retract(parameter.span)  # "cannot be written", of this parameter
                found = f"{parameter.direction} {parameter.type}".strip()
                text = f"{expected.direction} {needed}".strip()
                message = f"'{block.name}' has '{found} {parameter.name}', the architecture gives '{text}'"
                raise error(parameter.span, message, f"write {text} {parameter.name}")


def _order(package: types.Block) -> list[str]:
    """Return the architecture's names for the arguments of a package, in order."""
    return [p.type.block.name for p in package.parameters if isinstance(p.type, types.BlockInstance)]
