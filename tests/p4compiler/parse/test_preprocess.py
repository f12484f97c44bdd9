from __future__ import annotations

from pathlib import Path

import pytest

from fanin.p4compiler.parse.lex import Token
from fanin.p4compiler.parse.preprocess import preprocess
from fanin.p4compiler.source import CompileError, Reporter


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(text: str, **defines: str) -> list[Token]:
    Path("x.p4").write_text(text)
    return preprocess(Path("x.p4"), (Path("lib"),), defines, Reporter())


def expand(text: str, **defines: str) -> str:
    return " ".join(t.text for t in run(text, **defines))


def fails(text: str) -> str:
    with pytest.raises(CompileError) as failure:
        run(text)
    return str(failure.value)


def test_object_macros_are_replaced_until_nothing_is_left_to_replace() -> None:
    assert expand("#define A B c\n#define B 1\nA x A") == "1 c x 1 c"


def test_a_macro_is_not_replaced_inside_itself() -> None:
    assert expand("#define A A b\nA") == "A b"


def test_function_macros_take_arguments_also_over_lines_and_with_parentheses() -> None:
    assert expand("#define F(a, b) a - b\nF(f(1,\n 2), 3)") == "f ( 1 , 2 ) - 3"


def test_a_function_macro_without_arguments_stays_a_name() -> None:
    assert expand("#define F(a) a\nF;") == "F ;"


def test_a_macro_given_as_an_argument_is_called_by_the_other() -> None:
    text = "#define TWICE(X) X(0) X(1)\n#define FIELD(i) v##i;\nTWICE(FIELD)"
    assert expand(text) == "v0 ; v1 ;"


def test_pasted_tokens_are_one_and_are_not_expanded_before() -> None:
    assert expand("#define N 5\n#define V(i) r_##i N\nV(N)") == "r_N 5"


def test_stringizing() -> None:
    assert expand('#define S(x) #x\nS(a + "b")') == '"a + \\"b\\""'


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("#define CALL(T) do_##T##(x)\nCALL(add)", "do_add ( x )"),  # as cpp -x assembler-with-cpp does
        ("#define P(a) a##+\nP(-)", "- +"),
        ("#define P(a, b) x a##b\nP(, y)", "x y"),
        ("#define P(a, b, c) x a##b##c\nP(,, y) P(y,,) P(y,, z)", "x y x y x yz"),
        ("#define JOIN(a, b) a##b(1)\n#define f_g(n) n + 2\nJOIN(f_, g)", "1 + 2"),
    ],
)
def test_what_makes_no_token_stands_side_by_side(text: str, expanded: str) -> None:
    assert expand(text) == expanded


def test_a_definition_goes_on_after_a_backslash() -> None:
    assert expand("#define A 1 \\\n + 2\nA") == "1 + 2"


def test_conditions_choose_one_branch() -> None:
    text = "#if A > 2 && defined(B)\nbig\n#elif A == 2\ntwo\n#else\nother\n#endif"
    assert expand(text, A="3", B="") == "big"
    assert expand(text, A="2") == "two"
    assert expand(text) == "other"


def test_what_is_left_out_may_be_no_p4_at_all() -> None:
    assert expand("#if 0\ndon't #bad\n#error no\n#if 1\n#endif\n#else\nyes\n#endif") == "yes"


@pytest.mark.parametrize(
    ("condition", "value"),
    [
        ("1 + 2 * 3 == 7", True),
        ("(1 << 4) >> 3 == 2", True),
        ("-7 / 2 == -3 && -7 % 2 == -1", True),
        ("!defined X || X", True),
        ("~0 == -1", True),
        ("0x10 == 16 ? 0 : 1", False),
        ("unknown", False),
    ],
)
def test_arithmetic_in_conditions_is_that_of_c(condition: str, value: bool) -> None:
    assert (expand(f"#if {condition}\nyes\n#endif") == "yes") is value


def test_includes_look_beside_the_file_and_then_in_the_directories() -> None:
    Path("lib").mkdir()
    Path("lib/a.p4").write_text("from_lib")
    assert expand('#include "a.p4"\n#include <a.p4>') == "from_lib from_lib"
    Path("a.p4").write_text("beside")
    assert expand('#include "a.p4"\n#include <a.p4>') == "beside from_lib"


def test_include_guards() -> None:
    Path("g.p4").write_text("#ifndef G\n#define G\nonce\n#endif")
    assert expand('#include "g.p4"\n#include "g.p4"') == "once"


def test_tokens_keep_the_place_where_they_were_written() -> None:
    Path("inc.p4").write_text("\n   inner")
    inner, outer = run('#include "inc.p4"\nouter')
    assert (inner.span.file.path, inner.span.line, inner.span.column) == ("inc.p4", 2, 3)
    assert (outer.span.file.path, outer.span.line, outer.span.column) == ("x.p4", 2, 0)


def test_what_a_macro_wrote_is_placed_at_its_call_and_knows_where_it_is_spelled() -> None:
    token = run("#define A 1 +\n\n  A")[1]
    assert (token.text, token.span.line, token.span.column) == ("+", 3, 2)
    assert token.span.expansion is not None
    assert (token.span.expansion.macro, token.span.expansion.line, token.span.expansion.column) == (
        "A",
        1,
        12,
    )


def test_an_argument_keeps_its_own_place() -> None:
    token = run("#define F(x) x\nF( here )")[0]
    assert (token.span.line, token.span.column, token.span.expansion) == (2, 3, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#if 1\nx", "x.p4:1:2: error: this #if is never closed"),
        ("#endif", "x.p4:1:2: error: #endif without an #if before it"),
        ("#else", "x.p4:1:2: error: #else without an #if before it"),
        ('a\n#include "no.p4"', "x.p4:2:10: error: no such file: no.p4"),
        ("#error stop here", "x.p4:1:2: error: #error stop here"),
        ("#inclde <core.p4>", "x.p4:1:2: error: unknown directive #inclde"),
        ("#endfi", "x.p4:1:2: error: unknown directive #endfi"),
        ("#define F(a) a\nF(1, 2)", "x.p4:2:1: error: macro 'F' takes 1 argument, not 2"),
        ("#define F(a) a\nF(1", "x.p4:2:1: error: the call of macro 'F' is never closed"),
        ("#if 1 +\n#endif", "x.p4:1:2: error: this preprocessor condition ends too early"),
        ("#if 1 / 0\n#endif", "x.p4:1:7: error: division by zero in a preprocessor condition"),
        ("it's", 'x.p4:1:3: error: unexpected character "\'"'),
    ],
)
def test_errors_name_the_place(text: str, message: str) -> None:
    assert fails(text).startswith(message)


def test_a_file_that_includes_itself_is_an_error() -> None:
    assert "does a file include itself?" in fails('#include "x.p4"')


def test_defining_a_macro_anew_with_another_meaning_is_a_warning() -> None:
    reporter = Reporter()
    Path("x.p4").write_text("#define A 1\n#define A 1\n#define A 2\n")
    preprocess(Path("x.p4"), (), {}, reporter)
    assert [w.span.line for w in reporter.warnings] == [3]


@pytest.mark.parametrize("marker", ['# 100 "other.p4"', '#line 100 "other.p4"', '# 100 "other.p4" 2 3'])
def test_line_markers_say_where_lines_come_from(marker: str) -> None:
    first, second, third = run(f"a\n{marker}\nb\n  c\n")
    assert (first.span.file.path, first.span.line) == ("x.p4", 1)
    assert (second.span.file.path, second.span.line, second.span.fragment()) == ("other.p4", 100, "b")
    assert (third.span.file.path, third.span.line, third.span.fragment()) == ("other.p4", 101, "c")


def test_a_line_marker_without_a_file_numbers_the_lines_of_this_one() -> None:
    [token] = run("\n#line 7\na")
    assert (token.span.file.path, token.span.line, token.span.fragment()) == ("x.p4", 7, "a")


def test_an_error_behind_a_line_marker_shows_its_line() -> None:
    assert fails('# 2000000000 "other.p4"\n\n  \'\n') == "\n".join(
        ['other.p4:2000000001:3: error: unexpected character "\'"', "    '", "    ^"]
    )


def test_a_string_in_a_directive_ends_on_its_line() -> None:
    assert fails('#include "core.p4\nx "y"').startswith(
        "x.p4:1:10: error: a string in a directive ends on its line"
    )


@pytest.mark.parametrize(
    "line",
    ["# this is a comment", "#", "#-----", "# don't", '# 5" wide', '# a "quoted" word', "#!shebang", "  # a"],
)
def test_a_line_that_begins_with_a_hash_and_no_directive_is_ignored(line: str) -> None:
    reporter = Reporter()
    Path("x.p4").write_text(f'a\n{line}\nb "c\n d"\n')
    assert [t.text for t in preprocess(Path("x.p4"), (), {}, reporter)] == ["a", "b", '"c\n d"']
    assert not reporter.warnings


def test_an_unknown_directive_is_ignored_with_a_warning() -> None:
    reporter = Reporter()
    Path("x.p4").write_text("#frobnicate it\na\n")
    assert [t.text for t in preprocess(Path("x.p4"), (), {}, reporter)] == ["a"]
    assert [(w.span.line, w.message) for w in reporter.warnings] == [
        (1, "#frobnicate is no directive: the line is ignored")
    ]


IN_A_STRING = """@entry_restriction("
  a == 1;
#if defined(WIDE) && N > 1
  b == 2;
# ifdef DEEP
  c == 3;
# endif
#else
  d == 4;
#endif
  # no directive
  e == 5;
")"""


@pytest.mark.parametrize(
    ("defines", "kept"),
    [
        ({}, ["a == 1;", "d == 4;"]),
        ({"WIDE": "", "N": "2"}, ["a == 1;", "b == 2;"]),
        ({"WIDE": "", "N": "2", "DEEP": ""}, ["a == 1;", "b == 2;", "c == 3;"]),
    ],
)
def test_conditions_hold_inside_a_string_of_several_lines(defines: dict[str, str], kept: list[str]) -> None:
    string = run(IN_A_STRING, **defines)[3]
    lines = string.text.split("\n")
    assert [line.strip() for line in lines if line.strip()] == [
        '"',
        *kept,
        "# no directive",
        "e == 5;",
        '"',
    ]
    assert len(lines) == IN_A_STRING.count("\n") + 1  # places in the string stay what they were


def test_a_condition_inside_a_string_ends_in_it() -> None:
    assert "x.p4:2:2: error: this #if is never closed" in fails('f("\n#if 1\n")\n#endif')
    assert "x.p4:3:2: error: #endif without an #if before it" in fails('#if 1\nf("\n#endif\n")\n#endif')


def test_a_string_that_is_skipped_is_not_looked_at() -> None:
    assert expand('#if 0\nf("\n#endif\n")\n#endif\nx') == "x"
