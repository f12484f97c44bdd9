"""A release has one version, and a changelog that is ready to tag."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_citation_has_the_version_of_the_project() -> None:
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert "(CITATION.cff)" in (ROOT / "README.md").read_text()


def test_the_changelog_has_a_dated_section_for_the_version_below_the_unreleased_one() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.M)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(VERSION)}\] - \d{{4}}-\d\d-\d\d", headings[1])


def test_a_section_of_the_changelog_has_each_kind_of_change_once() -> None:
    for section in re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)[1:]:
        kinds = re.findall(r"^### (.*)$", section, re.M)
        assert len(kinds) == len(set(kinds))
        assert set(kinds) <= KINDS
