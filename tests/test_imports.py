"""What is imported, by tests and by fanin."""

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


def test_packages_are_imported_by_their_names_below_fanin() -> None:
    """From a clone `import workers` works as well, and makes a second copy of what `fanin.workers` is."""
    root = TESTS.parent
    packages = [path.name for path in (root / "fanin").iterdir() if path.is_symlink()]
    other = re.compile(rf"^ *(?:import|from) (?:{'|'.join(packages)})\b", re.M)
    folders = [*(root / name for name in packages), root / "fanin", root / "docs", TESTS]
    files = {file for folder in folders for suffix in ("py", "md") for file in folder.rglob(f"*.{suffix}")}
    assert not [f"{file}: {found}" for file in files for found in other.findall(file.read_text())]
