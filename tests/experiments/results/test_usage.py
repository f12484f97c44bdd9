"""The use of links and workers, written to files next to the rows and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fanin.controller.connection import Count
from fanin.controller.telemetry import PortCounts, SwitchCounts
from fanin.experiments.live.usage import usage_of
from fanin.experiments.results.files import Journal, ResultsError, read_rows, read_runs, write_results
from fanin.experiments.results.recording import Recording
from fanin.experiments.results.usage import LINKS, WORKERS
from fanin.topologies.shapes import leaf_spine
from tests.experiments.results.runs import USAGE, made


def test_the_time_goes_from_the_first_call_to_the_last_result() -> None:
    assert USAGE.seconds == 2.5


def test_files_beside_the_rows_have_it_and_rows_do_not(tmp_path: Path) -> None:
    bare = made([2.0])
    rows = [made([1.0], algorithm="ring") | {"usage": USAGE.as_columns()}, bare]
    write_results(rows, {}, tmp_path)
    assert all("usage" not in row for row in read_rows(tmp_path))
    assert [usage for _, usage in read_runs(tmp_path)] == [USAGE, None]
    assert [usage for _, usage in read_runs(tmp_path / "results.json")] == [USAGE, None]
    write_results([bare], {}, tmp_path)
    assert not (tmp_path / LINKS).exists()
    assert not (tmp_path / WORKERS).exists()


def test_an_interrupted_sweep_has_it_in_its_journal(tmp_path: Path) -> None:
    Journal(tmp_path).append(made([1.0]) | {"usage": USAGE.as_columns()})
    ((row, usage),) = read_runs(tmp_path)
    assert usage == USAGE
    assert "usage" not in row


def test_a_file_that_is_something_else_is_named(tmp_path: Path) -> None:
    write_results([made([1.0]) | {"usage": USAGE.as_columns()}], {}, tmp_path)
    (tmp_path / LINKS).write_text("nothing")
    with pytest.raises(ResultsError, match=r"links\.parquet"):
        read_runs(tmp_path)


def test_switches_counters_say_it_of_a_live_network(tmp_path: Path) -> None:
    network = leaf_spine(0, 1, 2, rate=10**6)
    up, down = Count(10, 1000), Count(20, 2000)
    ports = {1: PortCounts(up, down, Count(3), Count(4)), 2: PortCounts(Count(), Count(), Count(), Count())}
    recordings = [Recording.create(tmp_path, rank, 1, 1) for rank in range(2)]
    for recording, (start, end) in zip(recordings, [(1.0, 2.0), (1.5, 2.5)], strict=True):
        recording.starts[:], recording.ends[:] = start, end
    usage = usage_of(network, {"leaf1": SwitchCounts(ports, {}, {})}, ("h1", "h2"), recordings, [5, 0])
    assert usage.seconds == 1.5
    assert [(link.name, link.packets, link.lost) for link in usage.links] == [
        ("h1 → leaf1", 10, 3),
        ("leaf1 → h1", 20, 4),
    ]
    assert usage.links[1].busy_seconds == pytest.approx(8 * 2000 / 10**6)
    assert [worker.retransmissions for worker in usage.workers] == [5, 0]
    assert np.isclose(usage.workers[1].began, 1.5)
