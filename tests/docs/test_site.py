"""The documentation site builds without a warning, needs no other server, and has what is generated from the code."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.cli import VERBS

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    for package in ("sphinx", "myst_parser", "furo", "sphinx_design"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(ROOT / "docs"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loads = re.compile(
        r"""<(?:script|img|iframe)[^>]*\bsrc="https?:|<link[^>]*\bhref="https?:|url\(["']?https?:|@import"""
    )
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(pages) > 40
    assert not [str(page.relative_to(site)) for page in pages if loads.search(page.read_text())]


def test_it_begins_at_index_and_can_be_searched(site: Path) -> None:
    assert (site / "index.html").read_text() == (site / "README.html").read_text()
    index = (site / "searchindex.js").read_text()
    titles = json.loads(re.sub(r"^Search\.setIndex\((.*)\)$", r"\1", index.strip()))["titles"]
    assert "The aggregation protocol" in titles


def test_every_command_and_every_scenario_key_is_listed(site: Path) -> None:
    commands = (site / "reference" / "commands.html").read_text()
    assert [name for name in VERBS if f'id="fanin-{name}"' not in commands] == []
    assert "--set KEY=VALUE" in re.sub(r"<[^>]+>", "", commands)
    keys = (site / "reference" / "scenario-keys.html").read_text()
    schema = json.loads((ROOT / "scenarios" / "scenario.schema.json").read_text())
    tables = [schema, *schema["$defs"].values()]
    assert [key for table in tables for key in table.get("properties", {}) if f">{key}<" not in keys] == []


def test_the_exceptions_and_the_messages_are_listed(site: Path) -> None:
    collectives = (site / "reference" / "collectives.html").read_text()
    for name in ("Communicator.allreduce", "Communicator.regroup", "StallError", "JoinError", "RegroupError"):
        assert f">{name}<" in collectives
    messages = (site / "reference" / "job-service.html").read_text()
    proto = (ROOT / "controller" / "job_service" / "jobs.proto").read_text()
    assert [
        name for name in re.findall(r"^message (\w+)", proto, re.M) if f"<h2>{name}<a" not in messages
    ] == []


def test_links_to_source_files_lead_to_copies(site: Path) -> None:
    page = site / "reference" / "protocol.html"
    [copy] = set(re.findall(r'href="([^"]+/protocol\.py)"', page.read_text()))
    assert (page.parent / copy).read_text() == (ROOT / "workers" / "protocol.py").read_text()


def test_documents_of_the_root_folder_are_pages_with_links(site: Path) -> None:
    index = (site / "index.html").read_text()
    assert {"overview.html", "contributing.html", "security.html", "code-of-conduct.html"} <= set(
        re.findall(r'href="([^"#]+)', index)
    )
    assert 'href="overview.html#quick-start"' in index
    overview = (site / "overview.html").read_text()
    assert "git clone" in re.sub(r"<[^>]+>", "", overview)
    assert "allreduce.svg" in overview
    page = (site / "contributing.html").read_text()
    assert "Tasks for newcomers" in page
    targets = set(re.findall(r'href="([^"]+)"', page))
    assert {"security.html#reporting", "code-of-conduct.html", "explanation/architecture.html"} <= targets
    assert any(target.endswith("/sizes.py") for target in targets)
