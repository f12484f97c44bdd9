"""Typed programs as text that looks like P4, with places in the source as comments."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from fanin.p4compiler import ir, nodes
from fanin.p4compiler.dump.expressions import of_annotations, of_arguments, of_call, of_expression
from fanin.p4compiler.reach import reachable
from fanin.p4compiler.rewrite import bodies
from fanin.p4compiler.source import Span

_INDENT = "    "


def dump_checked(program: ir.Program) -> str:
    """Format a checked program: everything that its six blocks use, each before its first use."""
    instances = [line for i in program.instances for line in _instance(i)]
    parts = [instances, *map(_declared, reachable(program))]
    arguments = (f"{role.value} = {of_instance(i)}" for role, i in program.blocks.items())
    parts.append([f"V1Switch({', '.join(arguments)}) main;"])
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def dump_flat(program: ir.FlatProgram) -> str:
    """Format a program of flat blocks."""
    parts = [[line for i in program.instances for line in _instance(i)]]
    parts += [[f"// {role.value}", *_block(block)] for role, block in program.blocks.items()]
    return "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"


def of_action(action: ir.Action) -> list[str]:
    """Format an action."""
    head = f"{of_annotations(action.annotations)}action {action.name}({_parameters(action.parameters)})"
    return _braces(head, action.span, _statements(action.body))


def of_instance(instance: ir.Instance) -> str:
    """Format the type of an instance with its constructor's arguments."""
    return f"{instance.type}({of_arguments(instance.arguments)})"


def place(span: Span) -> str:
    """Format a place in the source as a comment."""
    return f"  // {PurePath(span.file.path).name}:{span.line}"


def _declared(declared: ir.Function | ir.Action | ir.Block) -> list[str]:
    match declared:
        case ir.Function(name=name, parameters=parameters, result=result, body=body, span=span):
            return _braces(f"{result} {name}({_parameters(parameters)})", span, _statements(body))
        case ir.Action():
            return of_action(declared)
    return _block(declared)


def _block(block: ir.Block) -> list[str]:
    head = f"{of_annotations(block.annotations)}{block.kind} {block.name}({_parameters(block.parameters)})"
    if block.constructor:
        head += f"({_parameters(block.constructor)})"
    body: list[str] = []
    for declared in block.declared:
        match declared:
            case ir.Instance():
                body += _instance(declared)
            case ir.Action():
                body += of_action(declared)
            case ir.Table():
                body += _table(declared)
    for v in block.value_sets:
        body.append(f"{of_annotations(v.annotations)}value_set<{v.type}>({v.size}) {v.name};{place(v.span)}")
    body += _statements(block.prologue)
    if block.kind == "control":
        body += _braces("apply", None, _statements(block.body))
    for state in block.states:
        body += _state(state)
    return _braces(head, block.span, body)


def _instance(instance: ir.Instance) -> list[str]:
    annotations = of_annotations(instance.annotations)
    return [f"{annotations}{of_instance(instance)} {instance.name};{place(instance.span)}"]


def _table(table: ir.Table) -> list[str]:
    body = []
    if table.key:
        key = [
            f'{of_expression(k.expr)}: {k.match_kind} @name("{k.name}") {_further(k.annotations)}'
            for k in table.key
        ]
        body += _braces("key =", None, [f"{element.rstrip()};" for element in key])
    actions = [f"{of_annotations(c.annotations)}{of_call(c)};" for c in table.actions]
    body += _braces("actions =", None, actions)
    constant = "const " * table.default_constant
    body.append(f"{constant}default_action = {of_call(table.default)};")
    if table.entries is not None:
        entries = [f"{_keys(e.keys)}: {of_call(e.call)};  // priority {e.priority}" for e in table.entries]
        body += _braces(f"{'const ' * table.entries_constant}entries =", None, entries)
    if table.size is not None:
        body.append(f"size = {of_expression(table.size)};")
    attached = {"counters": table.counters, "meters": table.meters, "implementation": table.implementation}
    body += [f"{name} = {i.name};" for name, i in attached.items() if i is not None]
    if table.support_timeout:
        body.append("support_timeout = true;")
    return _braces(f"{of_annotations(table.annotations)}table {table.name}", table.span, body)


def _further(annotations: nodes.Annotations) -> str:
    return of_annotations(tuple(a for a in annotations if a.name != "name"))


def _state(state: ir.State) -> list[str]:
    body = _statements(state.body)
    if not state.subjects:
        body.append(f"transition {state.cases[0].target};")
    else:
        cases = [f"{_keys(c.keys)}: {c.target};" for c in state.cases]
        body += _braces(f"transition select({of_arguments(state.subjects)})", None, cases)
    return _braces(f"state {state.name}", state.span, body)


def _keys(keys: tuple[ir.KeyValue, ...]) -> str:
    return f"({', '.join(map(_key, keys))})"


def _key(key: ir.KeyValue) -> str:
    if key.value_set is not None:
        return key.value_set.name
    if key.anything:
        return "_"
    if key.high is not None:
        return f"{key.value} .. {key.high}"
    return f"{key.value}" if key.mask is None else f"{key.value} &&& 0x{key.mask:x}"


def _parameters(parameters: tuple[ir.Variable, ...]) -> str:
    texts = (f"{of_annotations(p.annotations)}{p.direction} {p.type} {p.name}".strip() for p in parameters)
    return ", ".join(texts)


# Statements


def _statements(statements: Iterable[ir.Stmt]) -> list[str]:
    return [line for s in statements for line in _statement(s)]


def _statement(s: ir.Stmt) -> list[str]:
    inner = [_statements(body) for body in bodies(s)]
    match s:
        case ir.If(condition=condition, other=other):
            lines = _braces(f"if ({of_expression(condition)})", s.span, inner[0])
            return lines + _braces("else", None, inner[1]) if other else lines
        case ir.Scope():
            return _braces("scope", s.span, inner[0])
        case ir.Loop():
            return _braces("loop", s.span, inner[0]) + (_braces("update", None, inner[1]) if inner[1] else [])
        case ir.SwitchValue(subject=subject, cases=cases):
            values = [_labels(of_expression(v) if v is not None else None for v in c) for c, _ in cases]
            return _switch(f"switch ({of_expression(subject)})", s.span, values, inner)
        case ir.ApplyTable(table=table, cases=cases) if cases:
            names = [_labels(a.name if a is not None else None for a in c) for c, _ in cases]
            return _switch(f"switch ({table.name}.apply().action_run)", s.span, names, inner)
    return [f"{_simple(s)};{place(s.span)}"]


def _labels(labels: Iterable[str | None]) -> str:
    return ", ".join(label or "default" for label in labels)


def _switch(head: str, span: Span, labels: list[str], inner: list[list[str]]) -> list[str]:
    cases = [
        line for label, body in zip(labels, inner, strict=True) for line in _braces(f"{label}:", None, body)
    ]
    return _braces(head, span, cases)


def _simple(s: ir.Stmt) -> str:
    match s:
        case ir.Declare(variable=variable, initial=initial):
            value = f" = {of_expression(initial)}" if initial is not None else ""
            return f"{of_annotations(variable.annotations)}{variable.type} {variable.name}{value}"
        case ir.Assign(target=target, value=value):
            return f"{of_expression(target)} = {of_expression(value)}"
        case ir.Return(value=value):
            return f"return {of_expression(value)}" if value is not None else "return"
        case ir.Exit() | ir.Break() | ir.Continue():
            return type(s).__name__.lower()
        case ir.ApplyTable(table=table):
            return f"{table.name}.apply()"
        case ir.CallAction(action=action, arguments=arguments):
            return f"{action.name}({of_arguments(arguments)})"
        case ir.CallFunction(call=call):
            return of_expression(call)
        case ir.ApplyBlock(instance=instance, arguments=arguments):
            return f"{instance.name}.apply({of_arguments(arguments)})"
        case ir.CallExtern(name=name, instance=instance, arguments=arguments, type_arguments=given):
            called = name if instance is None else f"{instance.name}.{name.rpartition('.')[2]}"
            parameters = f"<{', '.join(map(str, given))}>" if given else ""
            return f"{called}{parameters}({of_arguments(arguments)})"
        case ir.CallHeader(header=header, method=method, count=count):
            return f"{of_expression(header)}.{method}({count or ''})"
    raise AssertionError(s)


def _braces(head: str, span: Span | None, body: list[str]) -> list[str]:
    where = place(span) if span is not None else ""
    if not body:
        return [f"{head} {{}}{where}"]
    return [f"{head} {{{where}", *(f"{_INDENT}{line}" for line in body), "}"]
