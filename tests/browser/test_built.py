"""The built pages are there, complete, and as new as their sources in web/."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fanin.browser.server import BUILT
from fanin.testbed.patience import setting

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"


def sources() -> list[Path]:
    """Return the files that pages are built from, as vite.config.ts lists them."""
    found = (path for path in WEB.rglob("*") if path.is_file() and path.name != "README.md")
    return sorted(path for path in found if "node_modules" not in path.relative_to(WEB).parts)


def test_it_is_as_new_as_its_sources() -> None:
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(WEB)}" for path in sources()
    ]
    built = (BUILT / "sources.sha256").read_text().splitlines()
    assert sorted(built) == sorted(lines), "build the pages again: npm --prefix web run build"


def test_every_page_is_built_and_loads_only_what_is_there() -> None:
    pages = [path.parent.name for path in WEB.glob("*/index.html")]
    assert pages
    for page in pages:
        html = (BUILT / page / "index.html").read_text()
        loaded = re.findall(r'(?:src|href)="([^"]+)"', html)
        assert [each for each in loaded if each != "data:," and not (BUILT / each[1:]).is_file()] == []
        assert "<style" not in html
        assert not re.search(r"<script[^>]*>[^<]", html)


def test_the_lock_file_names_no_registry() -> None:
    assert "://" not in re.sub(r'"(url|funding)": "[^"]+"', "", (WEB / "package-lock.json").read_text())


@pytest.mark.few(0)
@pytest.mark.slow
def test_a_build_from_the_lock_file_gives_the_same_files(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    for path in sources():
        copy = tmp_path / "web" / path.relative_to(WEB)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        limit = 600 * setting()
        return subprocess.run(
            [npm, *words], cwd=tmp_path / "web", capture_output=True, text=True, timeout=limit, check=False
        )

    installed = run("ci")
    if re.search("ENOTFOUND|ECONNREFUSED|EAI_AGAIN|ETIMEDOUT|EBADENGINE", installed.stderr):
        pytest.skip("npm cannot reach a registry, or Node is too old")
    assert installed.returncode == 0, installed.stderr
    built = run("run", "build")
    assert built.returncode == 0, built.stdout + built.stderr

    def contents(folder: Path) -> dict[str, bytes]:
        return {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        }

    fresh, committed = contents(tmp_path / "browser" / "built"), contents(BUILT)
    assert fresh.keys() == committed.keys()
    assert [name for name in fresh if fresh[name] != committed[name]] == []
