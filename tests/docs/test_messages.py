"""docs/reference/messages.md: its examples produce its messages, and it lists every warning."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fanin.p4compiler import WARNINGS, CompileError, compile_file

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "messages.md").read_text()
ROUTER = (ROOT / "tests" / "p4compiler" / "mistakes" / "router.p4").read_text()


def block(kind: str, text: str) -> str:
    """The first block of this kind in a section of the page."""
    return text.partition(f"```{kind}\n")[2].partition("```")[0]


SECTIONS = dict(section.split("\n", 1) for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:])
EXAMPLES = {title: (block("diff", text), block("text", text)) for title, text in SECTIONS.items()}


def changed(diff: str) -> str:
    """The router with an example's changes. A line `...` separates changes in several places."""
    text = ROUTER
    for part in diff.strip("\n").split("\n...\n"):
        old, new = ("".join(f"{line[2:]}\n" for line in part.split("\n") if line[0] != sign) for sign in "+-")
        assert old in text
        text = text.replace(old, new, 1)
    return text


@pytest.mark.slow
@pytest.mark.few(20)
@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_produces_its_message_and_no_other(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    diff, messages = EXAMPLES[title]
    Path("router.p4").write_text(changed(diff))
    try:
        found = "\n".join(map(str, compile_file("router.p4").warnings))
    except CompileError as failure:
        found = str(failure)
    assert found == messages.strip("\n")


def test_every_warning_is_listed_and_shown() -> None:
    listed = [title.strip("`") for title in EXAMPLES if title.startswith("`")]
    assert listed == list(WARNINGS)
    assert all(f"={name}]" in EXAMPLES[f"`{name}`"][1] for name in listed)
