"""The demo's table of runs."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from fanin.experiments.results.axes import value_text
from fanin.experiments.results.summary import Run


def table(runs: Sequence[Run]) -> Table:
    """Return a table with a row for each run, narrow enough for a terminal of 80 columns."""
    result = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), leading=1)
    result.add_column("run")
    result.add_column("algorithm")
    for heading in (
        "loss",
        "median\np95 ms",
        "goodput\nMb/s",
        "wire\nkB each",
        "re-\nsent",
        "error\nbound",
        "accuracy\nalone",
    ):
        result.add_column(heading, justify="right")
    for run in runs:
        measured = run.measured
        outside = f"\n[bold red]{measured.violations} outside[/]" if measured.violations else ""
        judged = measured.accuracy is not None and run.reference_accuracy is not None
        result.add_row(
            run.name,
            run.settings.algorithm,
            value_text("loss", run.settings.links.loss),
            f"{measured.median * 1e3:.1f}\n{measured.p95 * 1e3:.1f}",
            f"{measured.goodput_bits_per_second / 1e6:.1f}",
            f"{measured.wire_bytes_per_worker / 1e3:,.0f}",
            f"{measured.retransmissions:,}",
            f"{measured.max_abs_error:.1e}\n{measured.error_bound:.1e}{outside}",
            f"{measured.accuracy:.1%}\n{run.reference_accuracy:.1%}" if judged else "",
        )
    return result
