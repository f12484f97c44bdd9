"""`fanin compare`: its table, what is only in one, and exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.experiments.results.files import write_results
from tests.experiments.results.runs import LIVE, made


def invoke(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["compare", *map(str, arguments)], env={"COLUMNS": "200"})
    return done.exit_code, " ".join(done.output.split())


@pytest.fixture
def before(tmp_path: Path) -> Path:
    rows = [made([1.0, 1.01, 1.02, 1.03], **LIVE), made([1.0] * 4, algorithm="ring", **LIVE)]
    write_results(rows, {}, tmp_path / "before")
    return tmp_path / "before"


@pytest.fixture
def after(tmp_path: Path) -> Path:
    rows = [made([1.2, 1.21, 1.22, 1.23], **LIVE), made([1.0] * 4, algorithm="ring", **LIVE)]
    write_results(rows, {}, tmp_path / "after")
    return tmp_path / "after"


def test_each_point_has_its_ratios_and_whether_they_are_beyond_noise(before: Path, after: Path) -> None:
    status, output = invoke(before, after / "results.json")
    assert status == 0
    assert "in-network ms 1,015 1,215 1.197" in output
    assert "beyond noise ring" not in output
    assert "ring tcp ms 1,000 1,000 1.000 1.000 to 1.000 within noise" in output
    assert "1 of 6 medians differ beyond noise." in output


def test_a_folder_without_results_leads_to_those_that_have_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_results([made([1.0])], {}, Path("before"))
    assert "irn: there are no results; fanin run wrote some to before" in invoke("irn", "roce")[1]
    for name in ("paper-irn", "paper-irn-roce", "small"):
        write_results([made([1.0])], {}, Path("results", name))
    status, output = invoke("irn", "roce")
    assert status == 2
    assert "irn: there are no results; fanin run wrote some to results/paper-irn, " in output
    monkeypatch.chdir("/")
    assert "none are here either; fanin run SCENARIO.toml --results DIR writes some" in invoke("a", "b")[1]


def test_as_json_each_median_has_a_line(before: Path, after: Path) -> None:
    done = CliRunner().invoke(app, ["compare", str(before), str(after), "--json"])
    assert done.exit_code == 0
    found = {(one["point"], one["column"]): one for one in map(json.loads, done.output.splitlines())}
    assert len(found) == 6
    slower = found["algorithm=in-network", "median_seconds"]
    assert (slower["before"], slower["after"]) == pytest.approx((1.015, 1.215))
    assert slower["beyond_noise"] is True
    assert slower["interval"][0] < slower["ratio"] < slower["interval"][1]


def test_slower_points_make_the_status_1_where_that_is_asked(before: Path, after: Path) -> None:
    status, output = invoke(before, after, "--fail-if-slower", "10%")
    assert status == 1
    assert "algorithm=in-network: takes 1.197 times as long, beyond noise" in output
    assert invoke(before, after, "--fail-if-slower", "0.3")[0] == 0
    assert invoke(after, before, "--fail-if-slower", "10%")[0] == 0


def test_two_algorithms_of_the_same_results_are_compared(before: Path) -> None:
    sides = ("--where-a", "algorithm=in-network", "--where-b", "algorithm=ring")
    refused, output = invoke(before, before, *sides)
    assert refused == 2
    assert "add --across algorithm,transport" in output
    status, output = invoke(before, before, *sides, "--across", "algorithm,transport")
    assert status == 0
    assert "ms 1,015 1,000 0.985" in output
    assert f"A: {before}, algorithm=in-network B: {before}, algorithm=ring" in output


def test_rows_that_there_are_not_are_refused_with_those_that_there_are(before: Path) -> None:
    status, output = invoke(before, before, "--where-b", "algorithm=rings")
    assert status == 2
    assert f"fanin compare: {before}: algorithm=rings: no row has it; there are in-network, ring" in output


def test_points_that_are_gone_are_listed_and_fail(before: Path, tmp_path: Path) -> None:
    write_results([made([1.0] * 4, algorithm="ring", **LIVE)], {}, tmp_path / "less")
    status, output = invoke(before, tmp_path / "less")
    assert (status, "Only in A, or failed in B: algorithm=in-network" in output) == (0, True)
    assert invoke(before, tmp_path / "less", "--fail-if-slower", "10%")[0] == 1
    assert invoke(tmp_path / "less", before, "--fail-if-slower", "10%")[0] == 0


def test_a_column_that_older_rows_lack_is_left_out_of_their_names(before: Path, tmp_path: Path) -> None:
    older = made([1.0] * 4, algorithm="halving-doubling", **LIVE)
    del older["transport"]
    write_results([made([1.0] * 4, algorithm="ring", **LIVE), older], {}, tmp_path / "older")
    status, output = invoke(before, tmp_path / "older" / "results.json")
    assert status == 0
    assert output.endswith("Only in B, or failed in A: algorithm=halving-doubling")


def test_what_cannot_be_judged_is_not_passed(tmp_path: Path) -> None:
    write_results([made([1.0], **LIVE)], {}, tmp_path / "once")
    assert invoke(tmp_path / "once", tmp_path / "once")[0] == 0
    status, output = invoke(tmp_path / "once", tmp_path / "once", "--fail-if-slower", "10%")
    assert status == 2
    assert "raise repetitions, or add seeds" in output


def test_wrong_files_and_shares_are_asked_wrongly(before: Path, tmp_path: Path) -> None:
    assert invoke(before, tmp_path / "none")[0] == 2
    status, output = invoke(before, before, "--fail-if-slower", "ten")
    assert status == 2
    assert "write a number from 0 to 1" in output
