"""Training with compressed gradients on a live network: the scenario that comes with fanin, small."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.fanin.command import run
from tests.fanin.network import TIMEOUT

pytestmark = pytest.mark.live

SMALL = ("hosts_per_leaf=1", "spines=1", "epochs=6", "hidden=64")


@pytest.mark.few(0)
@pytest.mark.parametrize("transport", ["tcp", "selective-repeat"])
def test_whatever_is_sent_of_gradients_it_learns(transport: str, tmp_path: Path) -> None:
    settings = (*SMALL, f"transport={transport}")
    changes = [word for change in settings for word in ("--set", change)]
    done = run("run", "scenario:compressed-training", *changes, "--results", tmp_path, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    whole, *rounded, largest = rows
    assert [row["compression_kind"] for row in rows] == ["none", "8-bit", "4-bit", "top-k"]
    for row in rounded:
        assert row["accuracy"] == pytest.approx(whole["accuracy"], abs=0.02)
    assert largest["accuracy"] > 0.6  # one that only guesses: 0.1
    for fewer, more in pairwise(reversed(rows)):
        assert fewer["violations"] == 0
        assert fewer["wire_bytes_per_worker"] < more["wire_bytes_per_worker"]
