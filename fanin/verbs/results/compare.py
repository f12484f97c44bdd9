"""`fanin compare`: two sets of results, compared point by point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.native.text import counted
from fanin.options import pairs, probability, several
from fanin.output import say
from fanin.topologies.units import percent_text

if TYPE_CHECKING:
    from rich.table import Table

    from fanin.experiments.results.comparison import Comparison, Difference
    from fanin.experiments.results.measured import Row

_MEASURES = {
    "step_seconds": ("ms a step", 1e-3),
    "median_seconds": ("ms", 1e-3),
    "wire_bytes_per_worker": ("kB each", 1e3),
    "retransmissions": ("resent", 1),
    "traffic_mean_seconds": ("others' mean ms", 1e-3),
    "traffic_p99_seconds": ("their p99 ms", 1e-3),
}


def compare(
    before: Annotated[Path, typer.Argument(metavar="A", help="Folder of results, or a file in it")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Results to compare with A")],
    across: Annotated[
        list[str],
        typer.Option(
            metavar="KEY,…", help="Settings that may differ between A and B; topology is the whole network"
        ),
    ] = [],  # noqa: B006 - typer's way
    where_a: Annotated[
        list[str], typer.Option(metavar="COLUMN=VALUE,…", help="Only rows of A with these values")
    ] = [],  # noqa: B006
    where_b: Annotated[
        list[str], typer.Option(metavar="COLUMN=VALUE,…", help="Only rows of B with these values")
    ] = [],  # noqa: B006
    fail_if_slower: Annotated[
        float | None,
        typer.Option(
            parser=probability,
            metavar="SHARE",
            help="Exit with status 1 if a point became slower by more than this share and beyond noise",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each median of each point")
    ] = False,
) -> None:
    """Compare two sets of results point by point.

    The table has the ratios of medians and whether they are beyond noise. Points with the same settings are compared;
    their seeds count as repetitions. With --across, the two sides may be two transports or two networks; A and B can
    be the same results.

    Examples:
        fanin compare results/before results/after --fail-if-slower 10%
        fanin compare results/before results/after --across topology
    """
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.experiments.results.comparison import compare
    from fanin.experiments.results.drawing.series import PlotError
    from fanin.experiments.results.files import ResultsError
    from fanin.run_points import point_name
    from fanin.table import print_records

    with failing("compare", ResultsError, PlotError, status=2):
        old = _selected(before, pairs("compare", "--where-a", where_a, "COLUMN=VALUE"))
        new = _selected(after, pairs("compare", "--where-b", where_b, "COLUMN=VALUE"))
        found = compare(old, new, several("--across", across))
    if as_json:
        for point in found.points:
            name = point_name(found.varied, point.row)
            print_records(
                {"point": name, **asdict(one), "beyond_noise": one.beyond_noise} for one in point.differences
            )
    else:
        _show(
            found, *(", ".join([str(side), *where]) for side, where in ((before, where_a), (after, where_b)))
        )
    if fail_if_slower is None:
        return
    if unknown := [one for one in found.points if one.time.beyond_noise is None]:
        names = [point_name(found.varied, one.row) for one in unknown]
        text = "these points have fewer than 3 values, too few to judge; raise repetitions, or add seeds"
        raise failure("compare", "\n".join([f"--fail-if-slower: {text}", *names]), 2)
    complaints = [
        *(
            f"{point_name(found.varied, one.row)}: takes {one.time.ratio:.3f} times as long, beyond noise"
            for one in found.slower(fail_if_slower)
        ),
        *(f"{point_name(found.varied, row)}: has no result in {after}" for row in found.only_before),
    ]
    if complaints:
        limit = percent_text(fail_if_slower)
        points = counted(len(complaints), "point is", "points are")
        count = f"{points} slower than --fail-if-slower {limit} allows, or missing"
        raise failure("compare", "\n".join([count, *complaints]))


def _selected(results: Path, where: Mapping[str, Sequence[str]]) -> list[Row]:
    """Return the rows of results that have these values."""
    from fanin.experiments.results.drawing.series import PlotError, select
    from fanin.experiments.results.files import read_rows

    rows = read_rows(results)
    try:
        return select(rows, where)
    except PlotError as error:
        raise failure("compare", f"{results}: {error}", 2) from None


def _show(found: Comparison, before: str, after: str) -> None:
    from fanin.run_points import point_name
    from fanin.table import print_table

    print_table(_table(found), len(found.varied) + 1)
    judged = [one.beyond_noise for point in found.points for one in point.differences]
    unknown = judged.count(None)
    why = (
        f" {unknown} cannot be judged: an interval needs 3 values above 0 on either side." if unknown else ""
    )
    say(f"A: {before}\nB: {after}\n{judged.count(True)} of {len(judged)} medians differ beyond noise.{why}")
    for rows, here, there in ((found.only_before, "A", "B"), (found.only_after, "B", "A")):
        for row in rows:
            say(f"Only in {here}, or failed in {there}: {point_name(found.varied, row)}")


def _table(found: Comparison) -> Table:
    from fanin.run_points import setting_texts
    from fanin.table import new_table

    table = new_table([*found.varied, ""], "A", "B", "B/A", "95 % interval", "")
    for point in found.points:
        for one in point.differences:
            table.add_row(
                *setting_texts(found.varied, point.row),
                _MEASURES[one.column][0],
                *(f"{value / _MEASURES[one.column][1]:,.4g}" for value in (one.before, one.after)),
                "" if one.ratio is None else f"{one.ratio:.3f}",
                "" if one.interval is None else f"{one.interval[0]:.3f} to {one.interval[1]:.3f}",
                _verdict(one),
            )
    return table


def _verdict(one: Difference) -> str:
    if one.beyond_noise is None:
        return "too few values"
    if one.interval is None:
        return "exact" if one.beyond_noise else "the same"
    return "beyond noise" if one.beyond_noise else "within noise"
