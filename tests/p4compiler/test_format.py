"""`fanin format` changes white space only, and a second time nothing."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fanin.p4compiler import CompileError, compile_file
from fanin.p4compiler.format import format_text
from fanin.p4compiler.parse.lex import TOKEN, Token, tokenize
from fanin.p4compiler.source import SourceFile
from tests.sizes import sized

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in (
        *("assurance", "examples", "fanin/templates", "labs", "p4compiler", "p4src", "scenarios", "tests"),
    )
    for path in sorted((ROOT / folder).rglob("*.p4"))
}
MODELS = ("examples/", "fanin/templates/", "labs/", "p4src/", "scenarios/")


def tokens(text: str) -> list[Token]:
    return tokenize(SourceFile("x.p4", tuple(text.split("\n"))))


def meaning(text: str) -> list[tuple[str, str, bool]]:
    """Return the tokens that the compiler sees, and which > is a part of a >>; line ends only around directives."""
    found = tokens(text)
    kept: list[tuple[str, str, bool]] = []
    directive = False
    for before, token in pairwise([Token("newline", "\n", found[0].span), *found] if found else []):
        directive = (
            directive or (token.text == "#" and before.kind == "newline")
        ) and token.kind != "newline"
        ended = token.kind == "newline" and kept and kept[-1][0] == "directive"
        if token.kind != "newline" or ended:
            shift = before.text == ">" and token.text.startswith(">") and token.glued
            kept.append(("directive" if directive else token.kind, token.text, shift))
    return kept


def comments(text: str) -> list[str]:
    found = (m.group() for m in TOKEN.finditer(text) if m.lastgroup == "space")
    return [re.sub(r"\s*\n\s*", "\n", c).rstrip() for c in found if c.startswith("/")]


def check_laws(text: str) -> str:
    made = format_text(text, "x.p4")
    assert meaning(made) == meaning(text)
    assert comments(made) == comments(text)
    assert format_text(made, "x.p4") == made
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_keeps_its_tokens_and_comments(name: str) -> None:
    made = check_laws(PROGRAMS[name])
    if name.startswith(MODELS):
        assert made == PROGRAMS[name], f"run: fanin format {name}"


SEPARATORS = st.sampled_from(
    ["", "", " ", "  ", "\t", "\n", "\n\n\n", " // why\n", "\n/* a\n    b */\n", "/**/", "\\\n"]
)


@settings(max_examples=sized(25, 1000), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_program_with_other_white_space_keeps_its_tokens(data: st.DataObject) -> None:
    written = tokens(PROGRAMS[data.draw(st.sampled_from(sorted(PROGRAMS)))])
    begin = data.draw(st.integers(0, len(written)))
    text, directive = "", False
    for before, token in pairwise(written[begin : begin + 200]):
        directive = (directive or token.text == "#") and token.kind != "newline"
        gap = "" if token.glued else " "
        if not directive and before.kind != "newline" and token.kind != "newline":
            drawn = data.draw(SEPARATORS)
            joined = TOKEN.match(before.text + token.text)
            alike = joined is not None and joined.end() == len(before.text)
            gap = gap if ">" in before.text + token.text or (drawn == "" and not alike) else drawn
        text += gap + token.text
    with suppress(CompileError):
        check_laws(text)


SLIPS = st.sampled_from(
    [
        *'{}()[];,<>:?#@"\n\r\fé',
        *("/*", "//", "\\\n", "else", "if", "switch", "enum", "key = {", "{#}", "...", "::", "&&&"),
        *("\n#if X\n", "\n#else\n", "\n#endif\n", "A(x)\n"),
    ]
)


@settings(max_examples=sized(40, 5000), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_program_with_slips_is_formatted_or_refused(data: st.DataObject) -> None:
    text = PROGRAMS[data.draw(st.sampled_from(sorted(PROGRAMS)))]
    begin = data.draw(st.integers(0, len(text)))
    text = text[begin : begin + data.draw(st.sampled_from([20, 100, 1000]))]
    for _ in range(data.draw(st.integers(1, 4))):
        place, removed = data.draw(st.integers(0, len(text))), data.draw(st.sampled_from([0, 0, 1, 5]))
        text = text[:place] + data.draw(SLIPS) + text[place + removed :]
    with suppress(CompileError):
        check_laws(text)


def test_the_compiled_program_is_the_same(tmp_path: Path) -> None:
    def compiled(text: str) -> object:
        (tmp_path / "x.p4").write_text(text)
        document = re.sub(r"x\d+\b", "x", compile_file(tmp_path / "x.p4").json_text())  # named after lines
        return json.loads(document, object_hook=lambda o: {k: v for k, v in o.items() if k != "source_info"})

    text = PROGRAMS["tests/p4compiler/mistakes/router.p4"]
    crowded = re.sub(r"\n\s*(?!#)(?=[^#]*\n)", "\n", text)
    assert format_text(crowded, "x.p4") != crowded
    assert compiled(format_text(crowded, "x.p4")) == compiled(text)


STYLE = {
    "one statement a line": (
        "action a() { x=1;\ny=2; z = 3; }",
        "action a() {\n    x = 1;\n    y = 2;\n    z = 3;\n}\n",
    ),
    "a block on one line": ("key={hdr.a:exact;}", "key = { hdr.a: exact; }\n"),
    "a brace of its own line": ("control c()\n{\napply\n{\n}\n}", "control c() {\n    apply { }\n}\n"),
    "else": ("if(a){\nb();\n}\nelse{\nc();\n}", "if (a) {\n    b();\n} else {\n    c();\n}\n"),
    "an alignment": ("f(a,\nb + g(c,\n d));", "f(a,\n  b + g(c,\n        d));\n"),
    "a step": ("f(a,\n    b,\n    c);", "f(a,\n    b,\n    c);\n"),
    "a bracket that ends its line": ("f(\na,\nb\n);", "f(\n    a,\n    b\n);\n"),
    "without a bracket": ("x = a +\nb;", "x = a +\n    b;\n"),
    "operators": ("x=-a+~b<<2>>c==!d?e:f[3:0]++1w0;", "x = -a + ~b << 2 >> c == !d ? e : f[3:0] ++ 1w0;\n"),
    "types": ("register< bit < 32 > >(4)r;", "register<bit<32> >(4) r;\n"),
    "comparisons": ("x=(a<b)&&(c>d);", "x = (a < b) && (c > d);\n"),
    "casts": ("x = (bit<8>) y + (port_t) z + (a) + b;", "x = (bit<8>)y + (port_t)z + (a) + b;\n"),
    "empty lines": ("\n\na();\n\n\nb();\n\n\n", "a();\n\nb();\n"),
    "empty lines in a block": ("apply {\n\n\na();\n\n}", "apply {\n    a();\n}\n"),
    "comments after code": ("a();// x\nbcd();   // y\n", "a();   // x\nbcd(); // y\n"),
    "comments alone": (
        "apply{\n// x\n/* y\n * z */\na();\n// w\n}",
        "apply {\n    // x\n    /* y\n     * z */\n    a();\n    // w\n}\n",
    ),
    "directives": (
        "apply {\n  #ifdef A\na();\n  #define B(x) \\\n   y\n#endif\n}",
        "apply {\n#ifdef A\n    a();\n#define B(x) \\\n   y\n#endif\n}\n",
    ),
    "branches with a brace each": (
        "#if A\nif (a) {\n#else\nif (b) {\n#endif\nc();\n}",
        "#if A\nif (a) {\n#else\nif (b) {\n#endif\n    c();\n}\n",
    ),
    "macros": (
        "control c() {\nREPEAT(X)\naction a() { }\n}",
        "control c() {\n    REPEAT(X)\n    action a() { }\n}\n",
    ),
    "annotations": ('@name( "x" )\ntable t{ actions={a;} }', '@name("x")\ntable t { actions = { a; } }\n'),
    "labels": (
        "switch (t.apply().action_run) {\na:\nb: { c(); }\n}",
        "switch (t.apply().action_run) {\n    a:\n    b: { c(); }\n}\n",
    ),
    "lists of names": ("enum e {\nA, B,\nC\n}", "enum e {\n    A, B,\n    C\n}\n"),
    "a block too long for a line": (f"action a() {{ b({'c' * 110}); }}", f"action a() {{\n    b({'c' * 110});\n}}\n"),
    "an invalid header": ("h = { # };", "h = {#};\n"),
    "rooted names": ("x = .a.b(.c);", "x = .a.b(.c);\n"),
    "line ends of Windows": ("a(); // x\r\nb();\r\n", "a(); // x\nb();\n"),
    "nothing": ("\n\n", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", STYLE)
def test_the_style(case: str) -> None:
    written, wanted = STYLE[case]
    assert check_laws(written) == wanted


def test_the_page_shows_the_style() -> None:
    page = (ROOT / "docs" / "reference" / "format.md").read_text()
    [shown] = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert check_laws(shown) == shown


@pytest.mark.parametrize(
    ("text", "place"),
    [("a(;", "1:2"), ("a();\n}", "2:1"), ("(]", "1:2"), ("/* a", "1:1"), ("a = €;", "1:5"), ("a # b", "1:3")],
)
def test_what_cannot_be_formatted_is_refused_with_its_place(text: str, place: str) -> None:
    with pytest.raises(CompileError, match=re.escape(f"x.p4:{place}: error:")):
        format_text(text, "x.p4")
