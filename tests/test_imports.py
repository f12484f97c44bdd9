"""Tests import helpers, whose names say what they are, and never one another."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent

IMPORT = re.compile(r"^ *(?:from [\w.]+ )?import (?:\([^)]*\)|.*)", re.M)


def test_no_module_imports_a_test_module() -> None:
    wrong = {
        f"{file.relative_to(TESTS.parent)}: {statement}"
        for file in TESTS.rglob("*.py")
        for statement in IMPORT.findall(file.read_text())
        if re.search(r"\btest_", statement)
    }
    assert not wrong
