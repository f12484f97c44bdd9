from __future__ import annotations

import pytest

from fanin.p4compiler.parse.lex import NEWLINE, STRAY, parse_number, tokenize
from fanin.p4compiler.source import CompileError, SourceFile


def tokens(text: str) -> list[str]:
    return [t.text for t in tokenize(SourceFile("x.p4", tuple(text.split("\n")))) if t.kind != NEWLINE]


def number(text: str) -> tuple[int, int | None, bool, int]:
    (token, _) = tokenize(SourceFile("x.p4", (text,)))
    return tuple(parse_number(token))  # type: ignore[return-value]


def test_comments_and_white_space_separate_tokens() -> None:
    assert tokens("a/* x\n y */b // c\n\td") == ["a", "b", "d"]


def test_the_longest_operator_wins() -> None:
    assert tokens("a |+| b &&& c ++ d .. e") == ["a", "|+|", "b", "&&&", "c", "++", "d", "..", "e"]


def test_closing_angles_stay_apart_but_remember_that_they_touch() -> None:
    found = [t for t in tokenize(SourceFile("x", ("a>>b > > c",))) if t.text == ">"]
    assert [t.glued for t in found] == [True, True, False, False]


def test_places_are_lines_from_one_and_columns_from_zero() -> None:
    last = tokenize(SourceFile("x.p4", ("one", "  two")))[2]
    assert (last.text, last.span.line, last.span.column, last.span.end_column) == ("two", 2, 2, 5)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("10", (10, None, False, 10)),
        ("0xFF", (255, None, False, 16)),
        ("0b1010", (10, None, False, 2)),
        ("0o17", (15, None, False, 8)),
        ("0d12", (12, None, False, 10)),
        ("8w0x1F", (31, 8, False, 16)),
        ("4s7", (7, 4, True, 10)),
        ("32w1_000_000", (1000000, 32, False, 10)),
        ("0x_dead_beef", (0xDEADBEEF, None, False, 16)),
    ],
)
def test_numbers(text: str, meaning: tuple[int, int | None, bool, int]) -> None:
    assert number(text) == meaning


@pytest.mark.parametrize("text", ["12abc", "0x", "0b12", "8q3"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(CompileError, match=r"number|digits"):
        number(text)


def test_a_string_may_go_on_over_lines() -> None:
    string, semicolon, _, name, _ = tokenize(SourceFile("x", ('"one', 'two" ;', "name")))
    assert string.text == '"one\ntwo"'
    assert (string.span.line, string.span.end_line, string.span.end_column) == (1, 2, 4)
    assert (semicolon.text, semicolon.span.line, semicolon.span.column) == (";", 2, 5)
    assert (name.text, name.span.line, name.span.column) == ("name", 3, 0)


def test_a_string_ends_on_its_line_if_it_can() -> None:
    assert tokens('"one" x "two\n" "three"') == ['"one"', "x", '"two\n"', '"three"']


def test_a_stray_character_is_kept_for_whoever_reads_it() -> None:
    assert tokenize(SourceFile("x", ("'",)))[0].kind == STRAY


def test_an_open_comment_is_an_error_at_its_beginning() -> None:
    with pytest.raises(CompileError) as failure:
        tokens("a\n  /* b\n c")
    assert str(failure.value).startswith("x.p4:2:3: error: this comment is never closed")
