"""`fanin rerun`: points of earlier results, repeated and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import complain, failure
from fanin.options import Processes, Scheduler

if TYPE_CHECKING:
    from fanin.experiments.results.measured import Row
    from fanin.experiments.scenario.settings import Settings
    from fanin.run_points import Work


def rerun(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder of results, or a file in it")],
    point: Annotated[
        list[str], typer.Option(metavar="KEY", help="Key of the only row to repeat; may be repeated")
    ] = [],  # noqa: B006 - typer's way
    into: Annotated[
        Path | None,
        typer.Option("--results", help="Folder for the new results; RESULTS/rerun by default"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each point, with both times")
    ] = False,
    processes: Processes = None,
    scheduler: Scheduler = None,
) -> None:
    """Repeat points of earlier results and compare.

    The rows of the results contain all settings; the scenario is not needed. A point in virtual time gives the same
    result to the last bit with the same version of fanin. If it does not, the exit status is 1.

    Examples:
        fanin rerun results/small-virtual
        fanin rerun results/small-virtual/results.json --point KEY
    """
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.experiments.results.files import ResultsError, read_rows
    from fanin.experiments.scenario.file import varied_in
    from fanin.run_points import Work, conclude, enter_if_live, measure

    try:
        rows = read_rows(results)
    except ResultsError as error:
        raise failure("rerun", error, 2) from None
    old = {row["key"]: row for row in rows if {"key", "settings"} <= row.keys()}
    if not old:
        raise failure("rerun", f"{results}: has no rows from fanin run or fanin sweep", 2)
    old = _chosen(old, point)
    points = [_settings(row) for row in old.values()]
    enter_if_live("rerun", points)

    folder = into or (results if results.is_dir() else results.parent) / "rerun"
    work = Work(
        name="rerun",
        points=points,
        varied=varied_in(points),
        folder=folder,
        about={"name": "rerun", "of": str(results)},
        again="nothing was compared; run it again",
        as_json=as_json,
    )
    rows = measure("rerun", work, afresh=True, processes=processes, scheduler=scheduler)
    differ = _compare(work, old, rows)
    conclude("rerun", work, rows)
    if differ:
        raise typer.Exit(1)


def _chosen(found: dict[str, Row], keys: Sequence[str]) -> dict[str, Row]:
    """Return the rows with these keys, or all rows, by key."""
    for key in keys:
        if key not in found:
            there = ", ".join(found)
            raise failure("rerun", f"--point {key}: no row has this key; the keys are {there}", 2)
    return {key: found[key] for key in keys or found}


def _settings(row: Row) -> Settings:
    from pydantic import ValidationError

    from fanin.experiments.scenario.settings import Settings

    try:
        return Settings.model_validate_json(row["settings"])
    except ValidationError as error:
        wrong = error.errors()[0]
        place = ".".join(map(str, wrong["loc"]))
        writer = f"fanin {row.get('fanin')} (commit {row.get('commit')})"
        message = (
            f"row {row['key']}: this fanin does not accept the settings of {writer}: {place}: {wrong['msg']}"
        )
        raise failure("rerun", message, 2) from None


def _compare(work: Work, old: Mapping[str, Row], rows: Sequence[Row]) -> bool:
    """Print both times of each point, and return whether a point in virtual time differs."""
    from fanin.experiments.scenario.settings import FILES
    from fanin.run_points import point_name, setting_texts
    from fanin.table import new_table, print_records, print_table

    table = new_table(work.varied, "before ms", "now ms", "")
    records, different = [], []
    for before, row in zip(old.values(), rows, strict=True):  # keys change when settings are renamed
        if row["error"] is not None or before["error"] is not None:
            continue
        same = list(row["seconds"]) == list(before["seconds"])
        change = row["median_seconds"] / before["median_seconds"] - 1
        record = {
            "key": row["key"],
            "point": point_name(work.varied, row),
            "world": row["world"],
            "before_median_seconds": before["median_seconds"],
            "median_seconds": row["median_seconds"],
            "change": change,
            "same": same,
        }
        records.append(record)
        table.add_row(
            *setting_texts(work.varied, row),
            f"{record['before_median_seconds'] * 1e3:.4g}",
            f"{record['median_seconds'] * 1e3:.4g}",
            "same" if same else f"{change:+.2%}",
        )
        if not same and row["world"] == "virtual":
            changed = [name for name in FILES if row[f"{name}_sha256"] != before.get(f"{name}_sha256")]
            different.append(
                f"{point_name(work.varied, row)}: fanin was {before['commit']} and is {row['commit']}"
                + "".join(f"; {row[name]} has changed" for name in changed)
            )
    if work.as_json:
        print_records(records)
    else:
        print_table(table, max(1, len(work.varied)))
    if different:
        complain("rerun", "\n".join(["points in virtual time differ", *different]))
    return bool(different)
