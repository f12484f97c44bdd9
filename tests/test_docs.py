"""Whatever the documentation and the code name exists: files, and headings of files."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = (
    "assurance",
    "controller",
    "docs",
    "examples",
    "experiments",
    "fanin",
    "native",
    "p4compiler",
    "p4src",
    "p4switch",
    "scenarios",
    "simulator",
    "testbed",
    "tests",
    "topologies",
    "vm",
    "workers",
)

LINK = re.compile(r"\]\(([^)\s]+)\)")
# A file of a folder by its path, in prose, code or a comment.
PATH = re.compile(rf"(?<![\w./-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w\.(?:c|h|json|md|p4|png|py|sh|toml))\b")
# A document by its name alone.
DOCUMENT = re.compile(r"(?<![\w./-])([A-Z][A-Z_]+\.md|[a-z][a-z-]+\.md)\b(?!\()")

# Of BMv2's repository.
OTHERS = {"docs/JSON_format.md", "docs/simple_switch.md"}


def _files(*suffixes: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a clone: which files belong to the project is not known")
    return [
        path
        for name in listed.stdout.splitlines()
        if (path := ROOT / name).suffix in suffixes and path.exists()
    ]


def _anchors(document: Path) -> set[str]:
    """Return the anchors of its headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.M | re.S)
    headings = re.findall(r"^#+ +(.*)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _broken_links(document: Path) -> Iterator[str]:
    for target in LINK.findall(document.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = document.parent / name if name else document
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
            yield target


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    broken = {
        str(document.relative_to(ROOT)): links
        for document in _files(".md")
        if (links := list(_broken_links(document)))
    }
    assert not broken


def test_the_list_of_documents_has_all_of_them() -> None:
    """Each page is in docs/README.md, or below a page that lists its own: the lessons, the decisions."""
    docs = ROOT / "docs"
    listed = {docs / target for target in LINK.findall((docs / "README.md").read_text())}
    below = (docs / "tutorials/lessons", docs / "explanation/decisions")
    pages = {path for path in docs.rglob("*.md") if path.parent not in below and path != docs / "README.md"}
    assert len(pages) > 20
    assert not pages - listed - _standing()


def _standing() -> set[Path]:
    """Return the pages of the site that stand for a file of the top folder (docs/conf.py)."""
    return {*(ROOT / "docs").glob("*.md")} - {ROOT / "docs/README.md"}


def test_every_page_names_its_readers_in_its_first_lines() -> None:
    pages = {*(ROOT / "docs").rglob("*.md"), ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"} - _standing()
    decisions = ROOT / "docs" / "explanation" / "decisions"  # their index does it for all of them
    assert not [
        str(page.relative_to(ROOT))
        for page in pages
        if not (page.parent == decisions and page.name != "README.md")
        and not re.search(r"\b(?:is|are) for\b", page.read_text()[:1000])
    ]


def test_every_file_that_documentation_or_code_names_exists() -> None:
    missing = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in _files(".md", ".py", ".p4", ".c", ".h", ".sh", ".toml")
        for name in PATH.findall(file.read_text())
        if name not in OTHERS and not (ROOT / name).exists()
    }
    assert not missing


def test_every_document_that_code_names_exists() -> None:
    known = {path.name for path in _files(".md")}
    missing = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in _files(".py", ".p4", ".c", ".h", ".sh")
        if file != Path(__file__)
        for name in DOCUMENT.findall(file.read_text())
        if name not in known
    }
    assert not missing


def test_make_help_lists_every_target() -> None:
    done = subprocess.run(["make", "-s", "help"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    [targets] = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert sorted(re.findall(r"^make ([\w-]+): ", done.stdout, re.M)) == sorted(targets.split())


def test_each_package_has_a_readme_that_fits_a_screen() -> None:
    """40 lines are enough for what it is for, what it may import, and where to start a change."""
    packages = [path.parent.name for path in ROOT.glob("*/__init__.py")]
    lengths = {name: len((ROOT / name / "README.md").read_text().splitlines()) for name in packages}
    assert not {name: length for name, length in lengths.items() if length > 40}
