"""The table in docs/reference/p4runtime.md names tests that exist, and covers every module of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "p4runtime.md"
TESTS = Path(__file__).parent
ROW = re.compile(r"^\| (?P<section>[^|]+) \| (?P<requirement>[^|]+) \| (?P<tests>\[.*\)) \|$", re.MULTILINE)
LINK = re.compile(r"\[(\w+)\]\(\.\./\.\./(tests/p4switch/p4runtime/[\w/]+\.py)\)")

# What they test are clients, or the code and not the specification.
OTHERS = {"test_conformance", "test_finsy", "test_live", "test_registry", "test_requirements", "test_shell"}


def rows() -> list[tuple[str, str, list[tuple[str, str]]]]:
    return [
        (m["section"], m["requirement"], LINK.findall(m["tests"])) for m in ROW.finditer(PAGE.read_text())
    ]


@pytest.mark.parametrize(("section", "requirement", "tests"), rows())
def test_every_requirement_has_tests(section: str, requirement: str, tests: list[tuple[str, str]]) -> None:
    assert tests
    for name, path in tests:
        assert f"def test_{name}(" in (ROOT / path).read_text(), f"{section}: {requirement}"


def test_every_module_of_tests_is_in_the_table() -> None:
    named = {Path(path).stem for _, _, tests in rows() for _, path in tests}
    assert named == {path.stem for path in TESTS.rglob("test_*.py")} - OTHERS


def test_every_line_of_the_table_is_read() -> None:
    supported = PAGE.read_text().partition("## What is supported")[2].partition("## What is not")[0]
    assert len(rows()) == sum(line.startswith("| ") for line in supported.splitlines()) - 1
