"""The table of docs/measurements/protocols.md is what its command writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "docs" / "protocols.py"


def test_a_row_of_the_table_is_as_measured() -> None:
    spec = importlib.util.spec_from_file_location("docs_protocols", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    rows = [line for line in script.PAGE.read_text().splitlines() if line.startswith("| majority |")]
    assert f"| {' | '.join(script.cells('majority'))} |" == rows[0]
    assert {path.stem for path in script.SCENARIOS.glob("*.toml")} >= set(script.ROWS)
