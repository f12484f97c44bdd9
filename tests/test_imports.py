"""What is imported, by tests and by fanin."""

from __future__ import annotations

import re
from collections import Counter
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


# Public classes of one package that share a name, and why.
SHARED_NAMES = {
    "labs": "the skeleton and the solution of a lab have the same classes, and labs have packets of the same kind",
    "p4compiler": "the syntax tree, the typed program and the types each have a node for the same construct",
    "p4switch": "Replica is a struct of C, and what the control plane gives",
    "workers": "Progress and Work are structs of C, and PyTorch has a Work",
}


def test_public_classes_of_a_package_have_names_of_their_own() -> None:
    root = TESTS.parent
    packages = {path.name for path in (root / "fanin").iterdir() if path.is_symlink()}
    shared = set()
    for package in packages:
        found = Counter(
            name
            for file in (root / package).rglob("*.py")
            for name in re.findall(r"^class ([A-Z]\w*)", file.read_text(), re.M)
        )
        shared |= {package for count in found.values() if count > 1}
    assert shared == set(SHARED_NAMES)
