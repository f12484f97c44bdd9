"""The checker of prose finds what it should, where it is, and nothing in code."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs import prose

LONG = " ".join(["word"] * prose.LONGEST)


def findings(text: str, path: str = "README.md", kind: prose.Kind = "text") -> list[tuple[int, int, str]]:
    piece = prose.Text(path, 1, 1, text, kind)
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
        ("It has no lease any more.", "any more"),
        ("It begins after so many seconds.", "after so many"),
        ("The message says why.", "says"),
        ("Files that are no documents.", "that are no documents"),
        ("A checksum misses one case in 32.", "one case in 32"),
        ("It sends again and again.", "again and again"),
        ("The seam between packages.", "seam"),
    ],
)
def test_a_banned_phrase_is_found_where_it_begins(text: str, found: str) -> None:
    assert findings(f"# Title\n\n{text}\n") == [(3, text.index(found) + 1, f'"{found}"')]


def test_what_a_merge_left_unresolved_is_found_in_code_too() -> None:
    found = "the mark of a merge conflict"
    assert findings("```\n<<<<<<< HEAD\na\n=======\nb\n>>>>>>> topic\n```\n") == [
        (2, 1, found),
        (6, 1, found),
    ]


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
    assert findings(text, kind="docstring")[-1] == (1, 1, f'docstring begins with "{word}"')
    assert findings(text) == []
    assert findings(f"{word}land is a country.", kind="docstring") == []


@pytest.mark.parametrize("word", prose.NO_VERBS)
def test_the_docstring_of_a_function_begins_with_a_verb(word: str) -> None:
    text = f"{word} network."
    assert findings(text, kind="function")[-1] == (1, 1, f'docstring begins with "{word}"')
    assert findings(text, kind="docstring") == []
    assert findings("All-reduce a vector.", kind="function") == []


def test_an_entry_below_args_ends_a_sentence_and_its_name_is_code() -> None:
    half = " ".join(["word"] * (prose.LONGEST // 2 + 2))
    text = f"Do it.\n\n    Args:\n        beside: {half}\n        first, other: {half}\n    "
    assert findings(text, "a.py", "function") == []
    found = [found for _, _, found in findings(text.replace(": ", " "), "a.py", "function")]
    assert found[1] == '"beside"'
    assert found[0].startswith("sentence of ")


def test_a_message_is_checked_for_phrases_alone() -> None:
    assert findings(LONG + " word", kind="message") == []
    assert findings("the job goes on", kind="message") == [(1, 9, '"goes on"')]


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
        raise ValueError("it waits for ever")
    @property
    def g(self):
        """The one."""
def h():
    """The other."""
    return "name", "it is told", ["a b", "for"]
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
        (4, 9, '"for ever"'),
        (9, 12, '"is told"'),
        (11, 36, '"for ever"'),
        (16, 8, 'docstring begins with "The"'),
        (17, 24, '"is told"'),
    ]


def test_what_is_raised_or_printed_is_read_as_sentences_with_a_word_for_each_value() -> None:
    half = " ".join(["word"] * (prose.LONGEST // 2))
    source = f'''
raise ValueError(f"{half} {{size}} {half} {{size + len('for ever')}}")
say("{half} {half} word, and one more")
other = "{half} {half} word, and one more"
'''
    found = [
        (finding.line, finding.found)
        for piece in prose.python_texts("a.py", source)
        for finding in prose.check(piece)
    ]
    assert found == [(2, "sentence of 36 words"), (2, '"for ever"'), (3, "sentence of 38 words")]


@pytest.mark.parametrize(
    ("path", "source", "places"),
    [
        ("a.toml", "#:schema for ever\nx = 1  # for ever\n", [(2, 10)]),
        ("a.toml", 'see = """\nIt is\nfor ever."""\ntitle = "for ever # anew"', [(3, 1), (4, 10), (4, 21)]),
        (
            "a.p4",
            "#include <for ever>\n// It is,\n// for\n// ever.\nx = y; // anew, again\n",
            [(3, 4), (5, 11)],
        ),
        ("a.p4", "/* It is\n * for ever.\n */\n", [(2, 4)]),
    ],
)
def test_comments_and_strings_of_settings_and_of_p4_are_read(
    path: str, source: str, places: list[tuple[int, int]]
) -> None:
    pieces = prose.comments_and_strings(path, source)
    assert [(each.line, each.column) for piece in pieces for each in prose.check(piece)] == places


def test_lines_of_comments_are_one_text() -> None:
    words = " ".join(["word"] * (prose.LONGEST - 1))
    [piece] = prose.comments_and_strings("a.p4", f"    // One {words}\n    // and more.\n")
    [finding] = prose.check(piece)
    assert (finding.line, finding.found) == (1, "sentence of 37 words")


def test_the_exit_status_tells_whether_there_are_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "README.md"
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "listed_files", lambda: ["README.md", "SECURITY.md"])
    (tmp_path / "SECURITY.md").write_text("It is reported.")
    page.write_text("It is told.")
    assert prose.main([]) == 1
    assert capsys.readouterr().out.startswith('README.md:1:4: "is told": ')
    assert prose.main(["SECURITY"]) == 0
    page.write_text("It is reported.")
    assert prose.main([]) == 0
    assert capsys.readouterr().out == ""


def test_every_document_and_package_is_read() -> None:
    files = prose.listed_files()
    assert {
        "README.md",
        "docs/reference/protocol.md",
        "workers/communicator.py",
        "labs/01-forwarding/README.md",
        "labs/01-forwarding/lab.toml",
        "fanin/templates/project/scenario.toml",
        "scenarios/lessons/loss.toml",
        "p4src/fanin.p4",
        "experiments/report/html_report.html",
        ".github/ISSUE_TEMPLATE/bug.yml",
        "provision.sh",
    } <= set(files)
    assert not [name for name in files if name.startswith(("tests/", "browser/built/"))]


def test_a_finding_names_its_place_and_what_to_write() -> None:
    [finding] = prose.check(prose.Text("README.md", 3, 1, "a STF test"))
    assert str(finding) == 'README.md:3:1: "a STF": write an STF'
