"""Expansion of a PSA program: the frame that carries it out on v1model, with the program's blocks and types in it."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from pathlib import Path

from fanin.p4compiler import ir, nodes
from fanin.p4compiler.parse.lex import NEWLINE, Token, tokenize
from fanin.p4compiler.parse.program import parse
from fanin.p4compiler.rewrite import bodies
from fanin.p4compiler.source import SourceFile, error

PACKAGE = "PSA_Switch"
FRAME = Path(__file__).parent / "frame.p4"

# For each pipeline of PSA: its package, and for each of its blocks its name in the frame and its parameter's name.
_PIPELINES = (
    ("ingress", "IngressPipeline", ("ip", "ig", "id")),
    ("egress", "EgressPipeline", ("ep", "eg", "ed")),
)
# The types that the frame uses: the block and the position of its parameter of this type, in PSA's order.
_TYPES = {
    "ih": ("ip", 1),
    "im": ("ip", 2),
    "resubm": ("ip", 4),
    "recircm": ("ip", 5),
    "eh": ("ep", 1),
    "em": ("ep", 2),
    "nm": ("ep", 4),
    "ci2em": ("ep", 5),
    "ce2em": ("ep", 6),
}
# What deparsers hand over, of these types: the deparser and the position of its parameter.
_HANDED_OVER = {
    "ci2em": ("id", 1),
    "resubm": ("id", 2),
    "nm": ("id", 3),
    "ce2em": ("ed", 1),
    "recircm": ("ed", 2),
}
_DECLARES_TYPE = (
    nodes.Typedef, nodes.Composite, nodes.Enum, nodes.Extern, nodes.Callable, nodes.Parser, nodes.Control,
)  # fmt: skip
_PARAMETERS = {"ip": 6, "ig": 4, "id": 7, "ep": 7, "eg": 4, "ed": 7}


def expand(program: nodes.Program) -> nodes.Program:
    """Add the frame to a PSA program; return a program for v1model unchanged.

    Raises:
        CompileError: If `main` is a PSA_Switch without the two pipelines and their blocks.
    """
    instances = {d.name: d for d in program.declarations if isinstance(d, nodes.Instance)}
    main = instances.get("main")
    if main is None or _type_name(main.type) != PACKAGE:
        return program
    whole = {d.name: d for d in program.declarations if isinstance(d, nodes.Parser | nodes.Control)}
    declared = {name: body.head for name, body in whole.items()}
    blocks: dict[str, nodes.Call] = {}
    heads: dict[str, nodes.Callable] = {}
    for position, (name, package, parts) in enumerate(_PIPELINES):
        pipeline = _pipeline(_argument(main, name, 2 * position), package, instances)
        for number, part in enumerate(parts):
            call = _argument(pipeline, part, number)
            head = declared.get(_called(call))
            if not isinstance(call, nodes.Call) or head is None:
                hint = "write its name and (): MyIngress()"
                raise error(call.span, "a parser or control of the program is needed here", hint)
            if len(head.parameters) != _PARAMETERS[part]:
                message = f"'{head.name}' has {len(head.parameters)} parameters, PSA's {part} has {_PARAMETERS[part]}"
                raise error(head.name_span, message)
            blocks[part], heads[part] = call, head
    composites = {d.name: d for d in program.declarations if isinstance(d, nodes.Composite)}
    undefined: set[str] = set()  # types of which no deparser writes a value: there is nothing to preserve
    for name, (part, at) in _HANDED_OVER.items():
        of = heads[part].parameters[at].type
        if not _has_header(of, composites):
            continue
        if _mentions(whole[_called(blocks[part])], heads[part].parameters[at].name):
            message = (
                f"{of.span.fragment()} has a header: headers cannot be handed over between the pipelines"
            )
            raise error(of.span, message, "copy its fields to a struct")
        undefined.add(f"psa_frame_{name}_t")
    typedefs = tuple(
        nodes.Typedef(of.span, f"psa_frame_{name}_t", of.span, (), of, False)
        for name, of in ((name, heads[part].parameters[at].type) for name, (part, at) in _TYPES.items())
    )
    names = {d.name for d in (*program.declarations, *typedefs) if isinstance(d, _DECLARES_TYPE)}
    names |= {f"psa_frame_{part}_t" for part in blocks}
    frame = parse(_tokens(), names).declarations
    return replace(program, frame=(*typedefs, *(_filled(d, blocks, undefined) for d in frame)))


def divide_deparsers(program: ir.FlatProgram) -> ir.FlatProgram:
    """Leave only emits in the deparser of an expanded program, and no emits in its pipelines.

    Raises:
        CompileError: If a header is emitted on a condition.
    """
    blocks = dict(program.blocks)
    for role in ir.PIPELINES:
        blocks[role] = replace(blocks[role], body=_without_emits(blocks[role].body))
    deparser = blocks[ir.Role.DEPARSER]
    blocks[ir.Role.DEPARSER] = replace(deparser, body=_emits(deparser.body), declared=())
    return replace(program, blocks=blocks)


def is_frame(program: ir.FlatProgram) -> bool:
    """Return whether a program is an expanded one."""
    return program.source.architecture == "psa"


def _emits(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
    result: list[ir.Stmt] = []
    for s in body:
        if isinstance(s, ir.Scope):
            result += _emits(s.body)
        elif _is_emit(s):
            result.append(s)
        else:
            for inner in bodies(s):
                for emit in _emits(inner):
                    hint = (
                        "emit() leaves out a header that is not valid: make it invalid in the control before"
                    )
                    raise error(emit.span, "emit() on a condition is not supported", hint)
    return tuple(result)


def _without_emits(body: tuple[ir.Stmt, ...]) -> tuple[ir.Stmt, ...]:
    result: list[ir.Stmt] = []
    for s in body:
        match s:
            case ir.If(span=span, condition=condition, chosen=chosen, other=other):
                result.append(ir.If(span, condition, _without_emits(chosen), _without_emits(other)))
            case ir.Scope(span=span, body=inner):
                result.append(ir.Scope(span, _without_emits(inner)))
            case _ if not _is_emit(s):
                result.append(s)
    return tuple(result)


def _is_emit(s: ir.Stmt) -> bool:
    return isinstance(s, ir.CallExtern) and s.name == "packet_out.emit"


@cache
def _tokens() -> list[Token]:
    file = SourceFile("psa/frame.p4", tuple(FRAME.read_text().split("\n")))
    return [token for token in tokenize(file) if token.kind != NEWLINE]


def _type_name(of: nodes.TypeNode) -> str:
    return of.name if isinstance(of, nodes.NamedType) else ""


def _called(value: nodes.Expr) -> str:
    """Return the type that a constructor call names; empty for another expression."""
    if isinstance(value, nodes.Call) and isinstance(value.function, nodes.TypeExpr):
        return _type_name(value.function.type)
    return ""


def _argument(call: nodes.Instance | nodes.Call, name: str, position: int) -> nodes.Expr:
    """Return the argument with this name, or the one at this position."""
    for argument in call.arguments:
        if argument.name == name and argument.value is not None:
            return argument.value
    if position < len(call.arguments):
        value = call.arguments[position].value
        if value is not None and call.arguments[position].name is None:
            return value
    raise error(call.span, f"the argument '{name}' is missing")


def _has_header(of: nodes.TypeNode, composites: dict[str, nodes.Composite]) -> bool:
    """Return whether a value of this type has headers."""
    if isinstance(of, nodes.StackType):
        return True
    composite = composites.get(_type_name(of))
    if composite is None:
        return False
    return composite.kind != "struct" or any(_has_header(f.type, composites) for f in composite.fields)


def _pipeline(
    value: nodes.Expr, package: str, instances: dict[str, nodes.Instance]
) -> nodes.Instance | nodes.Call:
    """Return the instance or the constructor call of a pipeline."""
    if isinstance(value, nodes.Name) and value.name in instances:
        made = instances[value.name]
        if _type_name(made.type) == package:
            return made
    if isinstance(value, nodes.Call) and _called(value) == package:
        return value
    raise error(value.span, f"an {package} is needed here", f"declare one: {package}(...) name;")


def _mentions(tree: nodes.Node, name: str) -> bool:
    """Return whether an expression in the tree has this name."""
    todo: list[object] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, nodes.Name) and node.name == name:
            return True
        if isinstance(node, tuple):
            todo += node
        elif isinstance(node, nodes.Node):
            todo += [getattr(node, f.name) for f in fields(node)]
    return False


def _filled(
    declaration: nodes.Declaration, blocks: dict[str, nodes.Call], undefined: set[str]
) -> nodes.Declaration:
    """Return a declaration of the frame with the program's blocks instead of the frame's names for them.

    Args:
        declaration: The declaration.
        blocks: The calls that instantiate the program's blocks, by the frame's names for them.
        undefined: Names of types in the metadata whose values are not preserved.
    """
    if isinstance(declaration, nodes.Composite):
        kept = (
            replace(f, annotations=()) if _type_name(f.type) in undefined else f for f in declaration.fields
        )
        return replace(declaration, fields=tuple(kept))
    if not isinstance(declaration, nodes.Parser | nodes.Control):
        return declaration
    filled: list[nodes.Node] = []
    for local in declaration.locals:
        if isinstance(local, nodes.Instance):
            part = _type_name(local.type).removeprefix("psa_frame_").removesuffix("_t")
            call = blocks[part]
            assert isinstance(call.function, nodes.TypeExpr)
            name = nodes.String(local.span, f".{_type_name(call.function.type)}")
            named = nodes.Annotation(local.span, "name", (name,), "")
            local = replace(local, type=call.function.type, arguments=call.arguments, annotations=(named,))
        filled.append(local)
    return replace(declaration, locals=tuple(filled))
