"""The imports, class names and docstrings of tests and of fanin."""

from __future__ import annotations

import re
from collections import defaultdict
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
    "p4compiler": {
        "Names": "the declaration of a list of names, and the generator of unused ones",
        "Scope": "the part of a program that a return leaves, and the names that the checker knows",
    },
    "p4switch": {
        "Client": "P4Runtime and BMv2's runtime interface both have clients",
        "Replica": "a struct of C, and what the control plane gives",
    },
    "workers": {
        "Work": "a struct of C, and PyTorch's name for an operation that is under way",
        "Worker": "a struct of C, and the worker itself",
    },
}
# Modules that may share all names: the syntax tree, the typed program and the types each have a node for a construct.
SAME_LANGUAGE = {"p4compiler": {"nodes.py", "ir.py", "types.py"}}


def test_public_classes_of_a_package_have_names_of_their_own() -> None:
    root = TESTS.parent
    packages = {path.name for path in (root / "fanin").iterdir() if path.is_symlink()} | {"fanin"}
    packages.remove("labs")  # the skeleton and the solution of a lab have the same names
    shared = []
    for package in sorted(packages):
        places: defaultdict[str, set[str]] = defaultdict(set)
        for file in (root / package).rglob("*.py"):  # which follows no symbolic links
            place = str(file.relative_to(root / package))
            language = "the language" if place in SAME_LANGUAGE.get(package, ()) else place
            for name in re.findall(r"^class ([A-Z]\w*)", file.read_text(), re.M):
                places[name].add(language)
        shared += [
            f"{package}: {name} in {', '.join(sorted(where))}"
            for name, where in places.items()
            if len(where) > 1 and name not in SHARED_NAMES.get(package, {})
        ]
    assert not shared, "rename all but one, or state in SHARED_NAMES why they share a name"


def test_what_is_called_sum_in_workers_is_one_thing() -> None:
    """`comm.allreduce(x)` passes through classes of which ten had a method `sum`, each of another thing."""
    files = (TESTS.parent / "workers").rglob("*.py")
    found = [str(file) for file in files for _ in re.findall(r"^ +def sum\(", file.read_text(), re.M)]
    assert len(found) <= 3, found


def test_docstrings_begin_with_a_verb_or_their_subject() -> None:
    """`docs/prose.py` checks those of the packages."""
    fragment = re.compile(r'^ *"""(?:Of|By|What|Who|Whether|Those)\b.*', re.M)
    assert not [
        f"{file}:{found}" for file in TESTS.rglob("*.py") for found in fragment.findall(file.read_text())
    ]
