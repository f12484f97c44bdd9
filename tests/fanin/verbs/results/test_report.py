"""`fanin report`: a page beside the results, or where it is wanted."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.experiments.results.files import write_results
from tests.experiments.results.runs import made

pytestmark = pytest.mark.slow


def invoke(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["report", *map(str, arguments)])
    return done.exit_code, done.output.strip()


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_results([made([0.002]), made([0.003], algorithm="ring")], {"name": "try"}, tmp_path / "try")
    return tmp_path / "try"


def test_the_page_is_beside_the_results_unless_said_otherwise(results: Path, tmp_path: Path) -> None:
    assert invoke(results) == (0, str(results / "report.html"))
    assert invoke(results / "results.json") == (0, str(results / "report.html"))
    assert invoke(results, "-o", tmp_path / "page.html") == (0, str(tmp_path / "page.html"))
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text == (invoke(results) and (results / "report.html").read_text(encoding="utf-8"))
    assert f"fanin rerun {results}" in text


def test_prices_are_those_of_ones_own_gpus(tmp_path: Path) -> None:
    rows = [made([0.002]) | {"gpu_idle_share": 0.5, "step_seconds": 0.004}]
    write_results(rows, {"name": "try"}, tmp_path)
    assert invoke(tmp_path, "--price", "2.5", "--gpus", "64")[0] == 0
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "64 GPUs, $ a day" in text
    assert "1,024 GPUs" not in text
    assert "2.5 $ an hour" in text


def test_what_cannot_be_read_or_written_is_named(results: Path, tmp_path: Path) -> None:
    status, output = invoke(tmp_path / "none")
    assert (status, output.startswith(f"fanin report: {tmp_path / 'none'}: ")) == (2, True)
    (tmp_path / "empty.json").write_text('{"rows": []}')
    assert invoke(tmp_path / "empty.json") == (2, f"fanin report: {tmp_path / 'empty.json'}: has no rows")
    status, output = invoke(results, "-o", tmp_path)
    assert (status, "is a folder; name a file in it" in output) == (2, True)
