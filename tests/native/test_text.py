"""The parts of text from outside that may be shown."""

import pytest

from fanin.native.text import MAX_NAME, is_name, nearest, printable


@pytest.mark.parametrize("text", ["", "job-1", "two\nlines\tand a tab", "größer, 名前, ✓", "a\u00a0b\u202fc"])
def test_what_only_shows_stays(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    "act", [*map(chr, range(0x20)), "\x7f", "\x9b", "\u2028", "\u202e", "\u200b", "\udc80"]
)
def test_what_acts_is_replaced_one_by_one(act: str) -> None:
    if act not in "\n\t":
        assert printable(f"a{act}{act}b") == "a\ufffd\ufffdb"


def test_names_are_short_and_on_one_line() -> None:
    assert is_name("x" * MAX_NAME)
    assert not is_name("x" * (MAX_NAME + 1))
    assert not is_name("a\nb")
    assert not is_name("\x1b[2J")


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("lesson:none", ""),
        ("lesson:los", "; did you mean 'lesson:loss'?"),
        ("lesson:widow", "; did you mean 'lesson:window'?"),
        ("loss", ""),
        ("leaf4", "; did you mean 'leaf3', 'leaf2' or 'leaf1'?"),
        ("zebra", ""),
    ],
)
def test_names_are_suggested_that_are_like_the_unknown_one(name: str, question: str) -> None:
    there = ["lesson:ecn", "lesson:loss", "lesson:window", "leaf1", "leaf2", "leaf3", "spine1"]
    assert nearest(name, there) == question
    assert nearest(name, there, "there are 7") == (f"{question} There are 7" if question else "; there are 7")
