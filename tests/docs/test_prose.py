"""The checker of prose finds what it should, where it is, and nothing in code."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from docs import prose

LONG = " ".join(["word"] * prose.LONGEST)


def findings(text: str, path: str = "README.md", *, docstring: bool = False) -> list[tuple[int, int, str]]:
    piece = prose.Text(path, 1, 1, text, docstring)
    return [(found.line, found.column, found.found) for found in prose.check(piece)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A list in the place of a table.", "in the place of"),
        ("It waits for ever.", "for ever"),
        ("The packet is sent again.", "is sent again"),
        ("All-reduce by ring is slower.", "by ring"),
        ("Run a STF test.", "a STF"),
        ("Libraries as NCCL do this.", "Libraries as NCCL"),
        ("It is fast beside BMv2.", "beside"),
        ("The worker is told.", "is told"),
        ("Hosts hang on leaves.", "hang on"),
        ("This is what is meant.", "what is meant"),
        ("For who knows Python.", "For who"),
    ],
)
def test_a_banned_phrase_is_found_where_it_begins(text: str, found: str) -> None:
    assert findings(f"# Title\n\n{text}\n") == [(3, text.index(found) + 1, f'"{found}"')]


@pytest.mark.parametrize(
    "text",
    [
        "Libraries such as NCCL do this. Run an STF test.",
        "The text `by ring` is a command's.",
        "```\nit is told for ever\n```",
        "Text.\n\n    it is told for ever\n    and anew\n\nText.",
        "[a link](jobs.md#for-ever)",
        "<!-- beside -->",
        "The network goes on to the next round.",
    ],
)
def test_good_text_code_and_links_have_no_finding(text: str) -> None:
    assert findings(text) == []


@pytest.mark.parametrize("between", [". Then ", "\n\n", "\n- ", "\n| ", "\n1. "])
def test_a_sentence_ends_at_its_end(between: str) -> None:
    half = " ".join(["Word"] * (prose.LONGEST // 2 + 2))
    assert findings(f"{half}{between}{half}") == []
    assert findings(f"{half} and {half}")


def test_a_sentence_may_begin_with_our_name_or_a_link() -> None:
    half = " ".join(["Word"] * (prose.LONGEST // 2 + 2))
    assert findings(f"{half}. fanin {half[5:]}. [link](README.md) {half[10:]}") == []


def test_a_long_sentence_is_found_at_its_first_word() -> None:
    assert findings(f"{LONG}.") == []
    assert findings(f"Short one. And {LONG}.") == [(1, 12, f"sentence of {prose.LONGEST + 1} words")]


def test_inline_code_is_one_word() -> None:
    assert findings(" ".join(["`a b c d`"] * prose.LONGEST)) == []


@pytest.mark.parametrize("word", prose.FRAGMENTS)
def test_a_docstring_begins_with_a_verb_or_a_noun(word: str) -> None:
    text = f"{word} is in the network."
    assert findings(text, docstring=True)[-1] == (1, 1, f'docstring begins with "{word}"')
    assert findings(text) == []
    assert findings(f"{word}land is a country.", docstring=True) == []


def test_docstrings_and_help_texts_of_python_are_read_at_their_places() -> None:
    source = '''"""Whether it runs."""
app = Option(help="it goes on anew")
verbs = {"a": Verb("place", "Run by ring.")}
text = "for ever"
class A:
    def f(self):
        """Return it.

        It is told.
        """
'''
    found = sorted(
        (finding.line, finding.column, finding.found)
        for piece in prose.python_texts("a.py", source)
        for finding in prose.check(piece)
    )
    assert found == [
        (1, 4, 'docstring begins with "Whether"'),
        (2, 23, '"goes on"'),
        (2, 31, '"anew"'),
        (3, 34, '"by ring"'),
        (9, 12, '"is told"'),
    ]


def test_counts_may_only_go_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "README.md"
    counts = tmp_path / "prose.json"
    counts.write_text(json.dumps({"README.md": 1}))
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "COUNTS", counts)
    monkeypatch.setattr(prose, "listed_files", lambda: ["README.md"])
    page.write_text("It is told.")
    assert prose.main([]) == 0
    page.write_text("It is told anew.")
    assert prose.main([]) == 1
    prose.main(["--update"])
    assert json.loads(counts.read_text()) == {"README.md": 1}
    page.write_text("It is reported.")
    assert prose.main([]) == 0
    prose.main(["--update"])
    assert json.loads(counts.read_text()) == {}


def test_a_path_without_a_count_has_no_findings() -> None:
    found = Counter({"docs/reference/stf.md": 1, "docs/how-to/jobs.md": 1})
    assert prose.verdict(found, {"docs/how-to/jobs.md": 3}) == {"docs/reference/stf.md": 0}


def test_an_update_gives_no_path_a_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("It is told.")
    counts = tmp_path / "prose.json"
    counts.write_text("{}")
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "COUNTS", counts)
    monkeypatch.setattr(prose, "listed_files", lambda: ["README.md"])
    assert prose.main(["--update"]) == 0
    assert json.loads(counts.read_text()) == {}
    assert prose.main([]) == 1


def test_every_document_and_package_is_read() -> None:
    files = prose.listed_files()
    assert {"README.md", "SECURITY.md", "docs/reference/protocol.md", "workers/communicator.py"} <= set(files)
    assert not [name for name in files if name.startswith("tests/")]


def test_a_finding_names_its_place_and_what_to_write() -> None:
    [finding] = prose.check(prose.Text("README.md", 3, 1, "a STF test"))
    assert str(finding) == 'README.md:3:1: "a STF": write an STF'
