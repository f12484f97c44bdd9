"""`fanin validate`: live and virtual all-reduces of the same work, and what is said where they differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fanin.assurance.validation.worlds import TOLERANCE
from fanin.experiments.results.files import read_rows
from tests.fanin.conftest import Fanin

pytestmark = pytest.mark.live


def test_two_workers_do_the_same_in_both_worlds_and_times_that_differ_are_told(
    fanin: Fanin, tmp_path: Path
) -> None:
    done = fanin("validate", "--workers", "2", "--results", str(tmp_path))
    lossless, lossy = json.loads((tmp_path / "summary.json").read_text())["points"]
    assert (lossless["loss"], lossy["loss"]) == (0.0, 0.01)
    for one in (lossless, lossy):
        assert one["workers"] == 2
        assert one["topology"] == "leaf-spine-0x1x2"
    # Of a lossless run nothing but its time may differ, and that if the machine is busy; if it is slow as well, workers
    # send packets again that were not lost.
    again = lossless["live"]["retransmissions"] > 0
    assert (lossless["live"]["wire_packets"] > lossless["virtual"]["wire_packets"]) is again
    assert (lossless["live"]["wire_bytes"] > lossless["virtual"]["wire_bytes"]) is again
    assert lossless["live"]["wire_packets"] >= lossless["virtual"]["wire_packets"]
    assert lossy["live"]["retransmissions"] > 0
    assert [one["agrees"] for one in (lossless, lossy)] == [
        abs(lossless["deviation"]) <= TOLERANCE,
        abs(lossy["deviation"]) <= TOLERANCE,
    ]
    differing = 2 - lossless["agrees"] - lossy["agrees"]
    assert done.stdout.count("DIFFER") == differing
    assert done.returncode == (1 if differing else 0), done.stderr
    assert [row["world"] for row in read_rows(tmp_path)] == ["live", "virtual"] * 2
    assert not any(row["violations"] for row in read_rows(tmp_path))


def test_a_number_of_workers_that_is_not_compared_is_refused(fanin: Fanin, tmp_path: Path) -> None:
    done = fanin("validate", "--workers", "3", "--results", str(tmp_path))
    assert (done.returncode, done.stderr) == (
        2,
        "fanin validate: --workers 3: no such points; choose from 2, 4, 8\n",
    )
    assert not list(tmp_path.iterdir())
