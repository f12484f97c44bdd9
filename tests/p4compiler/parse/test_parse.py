from __future__ import annotations

from collections.abc import Iterator

import pytest

from fanin.p4compiler import nodes
from fanin.p4compiler.parse.lex import NEWLINE, tokenize
from fanin.p4compiler.parse.program import parse
from fanin.p4compiler.source import CompileError, SourceFile


def program(text: str) -> tuple[nodes.Declaration, ...]:
    file = SourceFile("x.p4", tuple(text.split("\n")))
    return parse([t for t in tokenize(file) if t.kind != NEWLINE]).declarations


def expression(text: str) -> nodes.Expr:
    (constant,) = program(f"const bit<8> c = {text};")
    assert isinstance(constant, nodes.Constant)
    return constant.value


def shape(node: nodes.Expr) -> object:
    """The expression as nested tuples."""
    match node:
        case nodes.Binary(op=op, left=left, right=right):
            return (op, shape(left), shape(right))
        case nodes.Unary(op=op, operand=operand):
            return (op, shape(operand))
        case nodes.Ternary(condition=c, chosen=a, other=b):
            return ("?", shape(c), shape(a), shape(b))
        case nodes.Cast(operand=operand):
            return ("cast", shape(operand))
        case nodes.Integer(value=value):
            return value
        case nodes.Name(name=name):
            return name
        case nodes.Member(base=base, name=name):
            return (".", shape(base), name)
        case nodes.Slice(base=base, high=high, low=low):
            return ("[:]", shape(base), shape(high), shape(low))
        case nodes.Call(function=function, types=types, arguments=arguments):
            return (
                "call",
                shape(function),
                len(types),
                *(shape(a.value) for a in arguments if a.value is not None),
            )
    raise AssertionError(node)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a + b * c", ("+", "a", ("*", "b", "c"))),
        ("a - b - c", ("-", ("-", "a", "b"), "c")),
        ("a == b && c != d || e", ("||", ("&&", ("==", "a", "b"), ("!=", "c", "d")), "e")),
        ("a | b ^ c & d", ("|", "a", ("^", "b", ("&", "c", "d")))),
        ("a & b == c", ("==", ("&", "a", "b"), "c")),
        ("a << 1 + b", ("<<", "a", ("+", 1, "b"))),
        ("a >> 2 > b", (">", (">>", "a", 2), "b")),
        ("-a |+| ~b", ("|+|", ("-", "a"), ("~", "b"))),
        ("c ? a : d ? b : e", ("?", "c", "a", ("?", "d", "b", "e"))),
        ("a ++ b[3:0]", ("++", "a", ("[:]", "b", 3, 0))),
        ("(bit<8>)a + b", ("+", ("cast", "a"), "b")),
        ("a < b", ("<", "a", "b")),
        ("f<bit<8>>(a)", ("call", "f", 1, "a")),
        ("f(a).b", (".", ("call", "f", 0, "a"), "b")),
    ],
)
def test_operators_bind_as_the_specification_says(text: str, tree: object) -> None:
    assert shape(expression(text)) == tree


def test_two_lists_of_type_arguments_may_close_together() -> None:
    (_, instance) = program("extern register<T> { register(bit<32> n); }\nregister<bit<8>>(4) r;")
    assert isinstance(instance, nodes.Instance)
    assert instance.name == "r"


def test_a_cast_to_a_declared_type_is_told_from_parentheses() -> None:
    *_, cast = program("typedef bit<8> t;\nconst bit<8> a = (t)1;")
    assert isinstance(cast, nodes.Constant)
    assert isinstance(cast.value, nodes.Cast)


def test_a_table_with_everything() -> None:
    text = """control c() { table t {
        key = { a: exact; b[3:0]: lpm @name("b"); }
        actions = { x; @defaultonly y(); }
        const default_action = y();
        const entries = { (1, _): x(); default: y(); }
        size = 4;
    } apply { } }"""
    (control,) = program(text)
    assert isinstance(control, nodes.Control)
    (table,) = control.locals
    assert isinstance(table, nodes.Table)
    assert [k.match_kind for k in table.key] == ["exact", "lpm"]
    assert [a.name for a in table.actions] == ["x", "y"]
    assert table.default_constant
    assert table.entries is not None
    assert [len(e.keys) for e in table.entries] == [2, 1]
    assert [p.name for p in table.properties] == ["size"]


def test_a_select_with_masks_ranges_and_tuples() -> None:
    text = """parser p() { state start { transition select(a, b) {
        (1, 2 &&& 3): accept; (4 .. 5, _): start; default: reject; } } }"""
    (parser,) = program(text)
    assert isinstance(parser, nodes.Parser)
    transition = parser.states[0].transition
    assert isinstance(transition, nodes.Select)
    assert [case.state for case in transition.cases] == ["accept", "start", "reject"]
    assert [len(case.keys) for case in transition.cases] == [2, 2, 1]


def test_spans_run_from_the_first_to_the_last_token() -> None:
    (declared,) = program("const bit<8> c =\n   1;")
    assert (declared.span.line, declared.span.column, declared.span.end_line, declared.span.end_column) == (
        1,
        0,
        2,
        5,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("const bit<8> c = ;", "x.p4:1:18: error: expected an expression, found ';'"),
        ("header h { bit<8> a }", "x.p4:1:20: error: missing ';'"),
        ("control c() { apply { x = 1 } }", "x.p4:1:28: error: missing ';'"),
        (
            "control c() { bit<8> x; }",
            "x.p4:1:25: error: expected an apply block before the end of the control",
        ),
        ("control c() { apply { for (;;) { } } }", "x.p4:1:29: error: expected an expression, found ';'"),
        ("control c() { apply { while (x) { } } }", "x.p4:1:23: error: P4 has no while"),
        ("control c() { apply { for (h x in y) { } } }", "x.p4:1:28: error: there is no type 'h'"),
        ("control c() { apply { if (x += 1) { } } }", "x.p4:1:29: error: expected ')', found '+='"),
        ("control c() { apply { x; } }", "x.p4:1:23: error: this is not a statement"),
        ("control c() { apply { foo x; } }", "x.p4:1:23: error: there is no type 'foo'"),
        ("control c() { table t { key = { } } apply { } }", "x.p4:1:21: error: table 't' has no actions"),
        ("struct action { }", "x.p4:1:8: error: expected the struct's name, but 'action' is a reserved word"),
        ("control c() { apply {", "x.p4:1:21: error: this '{' is never closed"),
        ("control c() { apply { } } }", "x.p4:1:27: error: this '}' closes nothing"),
        ("control c() { apply { if (x = 1) { } } }", "x.p4:1:29: error: '=' assigns"),
        ("control c() { apply { if (y && x = 1) { } } }", "x.p4:1:34: error: '=' assigns"),
        ("control c() { apply { y = (x = 1); } }", "x.p4:1:30: error: '=' assigns"),
        ("varbit x;", "x.p4:1:1: error: varbit needs its greatest width"),
        ("1", "x.p4:1:1: error: expected a declaration, found '1'"),
    ],
)
def test_syntax_errors(text: str, message: str) -> None:
    with pytest.raises(CompileError) as failure:
        program(text)
    assert str(failure.value).startswith(message)


def test_loops() -> None:
    text = """control c() { apply {
        for (bit<8> i = 0, bit<8> j = 1; i < 3; i = i + 1, j <<= 1) { break; }
        for (; x > 1; ) continue;
        for (bit<8> k in 1 .. 2) { } } }"""
    (control,) = program(text)
    assert isinstance(control, nodes.Control)
    classic, bare, ranged = control.body.statements
    assert isinstance(classic, nodes.For)
    assert [type(s) for s in classic.first] == [nodes.Variable, nodes.Variable]
    assert shape(classic.condition) == ("<", "i", 3)
    assert [s.op for s in classic.update if isinstance(s, nodes.Assignment)] == ["", "<<"]
    assert isinstance(classic.body, nodes.Block)
    assert [type(s) for s in classic.body.statements] == [nodes.Break]
    assert isinstance(bare, nodes.For)
    assert (bare.first, bare.update, type(bare.body)) == ((), (), nodes.Continue)
    assert isinstance(ranged, nodes.ForIn)
    assert (ranged.variable.name, shape(ranged.values)) == ("k", ("..", 1, 2))


@pytest.mark.parametrize(
    "op", ["", "+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "|+|", "|-|"], ids=lambda op: op or "plain"
)
def test_assignments_with_an_operator(op: str) -> None:
    (control,) = program(f"control c() {{ apply {{ x {op}= y; }} }}")
    assert isinstance(control, nodes.Control)
    [assignment] = control.body.statements
    assert isinstance(assignment, nodes.Assignment)
    assert (assignment.op, shape(assignment.target), shape(assignment.value)) == (op, "x", "y")


BRACES = """\
struct s {
    bit<8> x;
}
parser p() {
    state start {
        transition select(x) {
            1: accept;
        }
    }
}
control c() {
    action a() { x = 1; }
    table t {
        key = { x: exact; }
        actions = {
            a;
        }
    }
    apply {
        if (x == 1) {
            t.apply();
        }
        else {
            x = 2;
        }
    }
}
"""


def closing_braces() -> Iterator[tuple[int, int]]:
    """Where each `{` of BRACES is (as 1-based line and column), and where its `}` (as a place in the text)."""
    opened = []
    for place, character in enumerate(BRACES):
        if character == "{":
            line = BRACES.count("\n", 0, place) + 1
            opened.append((line, place - BRACES.rfind("\n", 0, place)))
        elif character == "}":
            yield (*opened.pop(), place)


@pytest.mark.parametrize(("line", "column", "place"), list(closing_braces()))
def test_a_brace_that_is_never_closed_is_the_one_named(line: int, column: int, place: int) -> None:
    with pytest.raises(CompileError) as failure:
        program(BRACES[:place] + BRACES[place + 1 :] + "const bit<8> y = 1;\n")
    assert str(failure.value).startswith(f"x.p4:{line}:{column}: error: this '{{' is never closed")


def test_an_unclosed_brace_tells_what_went_wrong_with_it() -> None:
    with pytest.raises(CompileError) as failure:
        program("control c() {\n    action a() { x = 1;\n    table t { }\n    apply { }\n}")
    assert str(failure.value).endswith(
        "what follows is wrong from line 3 on: tables are declared outside of statements"
    )


def test_a_name_that_hides_a_type_is_a_value_until_its_scope_ends() -> None:
    text = """typedef bit<8> counter;
        control c(inout bit<8> counter) { apply { counter = (counter) + 1; { bit<8> other = (counter) - 2; } } }
        const counter x = (counter)3;"""
    *_, control, constant = program(text)
    assert isinstance(control, nodes.Control)
    assignment = control.body.statements[0]
    assert isinstance(assignment, nodes.Assignment)
    assert shape(assignment.value) == ("+", "counter", 1)
    assert isinstance(constant, nodes.Constant)
    assert isinstance(constant.value, nodes.Cast)


@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [
        ("@joke(it's { not } P4\\: $)", "joke", "it ' s { not } P4 \\ : $"),
        ("@pragma name value", "name", "value"),
        ("@pragma stage 3", "stage", "3"),
        ("@pragma unused", "unused", ""),
        ('@pragma many 1 "two" (three)', "many", '1 "two" ( three )'),
    ],
)
def test_the_text_of_an_annotation_is_free_and_a_pragma_ends_with_its_line(
    text: str, name: str, rest: str
) -> None:
    (declared,) = program(f"{text}\nconst bit<8> x = 1;")
    assert [(a.name, a.text) for a in declared.annotations] == [(name, rest)]


def test_a_block_may_have_annotations() -> None:
    plain = (
        "control C() {{ action a() {0}{{ }} apply {0}{{ {0}{{ a(); }} if (true) {0}{{ }} else {0}{{ }} }} }}"
    )
    (annotated,) = program(plain.format('@x("y") @pure '))
    (without,) = program(plain.format(""))
    assert isinstance(annotated, nodes.Control)
    assert isinstance(without, nodes.Control)
    assert len(annotated.body.statements) == len(without.body.statements) == 2
