"""Points on all cores: finished ones are kept, failed ones told, and the others go on."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from fanin.experiments import sweep
from fanin.experiments.results.files import Journal, ResultsError, read_rows, write_results
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.sweep import run_points, too_large
from tests.experiments.calls import die
from tests.experiments.points import SCENARIO, points
from tests.experiments.watch import Watch

pytestmark = pytest.mark.slow


def run(folder: Path, wanted: tuple[Settings, ...], watch: Watch | None = None) -> list[Row]:
    return run_points(wanted, Journal(folder), folder / "logs", watch or Watch())


def test_rows_come_in_the_order_of_the_points_with_what_was_measured(tmp_path: Path) -> None:
    wanted = points(tmp_path, "size=4 kB,20 kB")
    rows = run(tmp_path, wanted)
    assert [row["key"] for row in rows] == [point.key for point in wanted]
    for row, point in zip(rows, wanted, strict=True):
        assert row["error"] is None
        assert row["violations"] == row["retransmissions"] == 0
        assert 0 < row["min_seconds"] <= row["median_seconds"] <= row["p95_seconds"] <= row["max_seconds"]
        assert Settings.model_validate_json(row["settings"]) == point
        assert {"commit", "fanin", "processor", "python"} <= set(row)


def test_the_same_point_gives_the_same_row(tmp_path: Path) -> None:
    (first,) = run(tmp_path / "a", points(tmp_path, "seed=7", "loss=0.05"))
    (second,) = run(tmp_path / "b", points(tmp_path, "seed=7", "loss=0.05"))
    assert first["link_lost"] > 0
    assert {k: v for k, v in first.items() if k != "run_seconds"} == {
        k: v for k, v in second.items() if k != "run_seconds"
    }


def test_an_interrupted_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    wanted = points(tmp_path, "seed=1,2,3,4,5")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, wanted, Watch(patience=2))
    watch = Watch()
    rows = run(tmp_path, wanted, watch)
    assert (watch.there, len(watch.rows), len(rows)) == (2, 3, 5)


def test_a_failed_point_is_told_and_tried_again_and_the_others_go_on(tmp_path: Path) -> None:
    wanted = points(tmp_path, "seed=1", "loss=1,0")
    failed, good = run(tmp_path, wanted)
    assert failed["error"].startswith("StallError: ")
    assert failed["loss"] == 1
    assert good["error"] is None
    watch = Watch()
    run(tmp_path, wanted, watch)
    assert [row["key"] for row in watch.rows] == [failed["key"]]


def test_a_process_that_dies_is_a_failed_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "run_point", die)
    rows = run(tmp_path, points(tmp_path))
    assert all("ProcessEndedError: SIGKILL" in row["error"] for row in rows)


def test_a_torn_line_of_the_journal_is_passed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append({"key": "a", "error": None})
    path = tmp_path / "points.jsonl"
    path.write_text(path.read_text() + '{"key": "b", "err')
    journal.append({"key": "c", "error": None})
    assert list(journal.rows()) == ["a", "c"]


@pytest.mark.few(0)
def test_results_are_the_same_in_both_files_and_hold_the_scenario(tmp_path: Path) -> None:
    rows = run(tmp_path, points(tmp_path, "loss=1,0"))
    write_results(rows, {"scenario": SCENARIO, "set": ["loss=1,0"]}, tmp_path)
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["scenario"] == SCENARIO
    table = parquet.read_table(tmp_path / "results.parquet")
    assert json.loads(table.schema.metadata[b"scenario"]) == SCENARIO
    for theirs, ours in zip(table.to_pylist(), document["rows"], strict=True):
        assert {name: ours.get(name) for name in theirs} == theirs
    assert table["median_seconds"].null_count == 2


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["", "results.json", "results.parquet", "points.jsonl"])
def test_rows_are_read_from_a_folder_and_from_each_of_its_files(tmp_path: Path, name: str) -> None:
    rows = run(tmp_path, points(tmp_path))
    write_results(rows, {}, tmp_path)
    read = read_rows(tmp_path / name)
    assert np.array_equal([row["median_seconds"] for row in read], [row["median_seconds"] for row in rows])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("results.json", "{}", "has no rows of results; fanin run and fanin sweep write them"),
        ("results.parquet", "no", "cannot be read as results"),
        ("results.json", '{"rows": []}', "has no rows"),
        ("results.txt", "", "is neither a folder of results"),
        ("try.toml", "", r"is a scenario, not results; run it first: fanin run .*try\.toml"),
    ],
)
def test_what_are_no_results_is_refused_by_name(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ResultsError, match=words):
        read_rows(tmp_path / name)


def test_a_folder_without_results_and_one_that_is_not_there_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"has no results\.parquet; create it with fanin run"):
        read_rows(tmp_path)
    with pytest.raises(ResultsError, match="none: there are no results"):
        read_rows(tmp_path / "none")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "results.parquet").touch()
    with pytest.raises(
        ResultsError, match=r"has no results\.parquet; name one of its folders, such as .*/mine$"
    ):
        read_rows(tmp_path)


def test_only_vectors_that_a_run_holds_at_once_are_too_large(tmp_path: Path) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4096 * 4096
    shape = {"leaves": 1, "spines": 0, "hosts_per_leaf": 8, "rate": "1 Gb/s"}
    vector = {"topology": {"leaf_spine": shape}, "size": f"{memory // 2} B"}
    assert "8 workers with a vector" in (too_large(Settings.model_validate(vector)) or "")
    cut = {
        "tensor": 8,
        "forward": "1 ms",
        "backward": "1 ms",
        "activations": "4 kB",
    }  # of which each worker has an eighth
    assert too_large(Settings.model_validate(vector | {"parallelism": cut})) is None
    (tmp_path / "jobs.csv").write_text(f"arrival,workers,size,rounds\n0,2,{memory // 4},1\n")
    arrivals = {"topology": {"leaf_spine": shape}, "arrivals": {"trace": tmp_path / "jobs.csv"}}
    assert too_large(Settings.model_validate(arrivals)) is None


@pytest.mark.parametrize(
    ("cores", "most", "works", "shares"),
    [
        (8, 1, [5.0], [1]),
        (8, 4, [5.0], [4]),
        (2, 4, [5.0], [2]),
        (8, 8, [1.0, 1.0], [4, 4]),
        (2, 2, [1.0, 1.0, 1.0], [1, 1, 1]),
        (2, 2, [1.0, 9.0, 0.5], [1, 2, 1]),
        (2, 2, [0.0, 0.0], [1, 1]),  # unknown
    ],
)
def test_cores_are_divided_by_work(cores: int, most: int, works: list[float], shares: list[int]) -> None:
    assert sweep.divided(cores, most, [(each, 1.0) for each in works], 1000.0) == shares


def test_points_that_do_not_fit_into_memory_together_get_the_cores_of_those_that_wait() -> None:
    assert sweep.divided(4, 4, [(1.0, 60.0)] * 8, 100.0) == [4] * 8
    assert sweep.divided(4, 4, [(1.0, 40.0)] * 8, 100.0) == [2] * 8


def test_points_that_run_side_by_side_have_a_core_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "cores", lambda: 2)
    wanted = points(tmp_path, "size=4 kB,20 kB")
    rows = run_points(wanted, Journal(tmp_path), tmp_path / "logs", Watch(), cores_each=2)
    assert [row["key"] for row in rows] == [point.key for point in wanted]
    assert {row["one_core_because"] for row in rows} == {
        "the other cores run other points, or there are none"
    }


def test_the_longest_point_begins_first(tmp_path: Path) -> None:
    watch = Watch()
    wanted = points(tmp_path, "size=4 kB,20 kB,8 kB", "algorithm=ring", "transport=selective-repeat")
    rows = run_points(wanted, Journal(tmp_path), tmp_path / "logs", watch, jobs=1)
    assert [row["key"] for row in rows] == [point.key for point in wanted]
    begun = [row["size"] for row in watch.rows]
    assert begun == sorted(begun, reverse=True) != [row["size"] for row in rows]
