"""`fanin validate --tier closed-form` refuses what has no effect on it."""

from __future__ import annotations

from pathlib import Path

from tests.fanin.conftest import Fanin


def test_numbers_of_workers_are_for_the_live_tier(fanin: Fanin, tmp_path: Path) -> None:
    done = fanin("validate", "--tier", "closed-form", "--workers", "2", "--results", str(tmp_path))
    assert (done.returncode, done.stderr) == (
        2,
        "fanin validate: --workers: only with --tier live; leave it out\n",
    )
    assert not list(tmp_path.iterdir())
