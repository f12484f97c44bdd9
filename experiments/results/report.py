"""The table of runs that a person reads."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from experiments.results.summary import Run


def table(runs: Sequence[Run]) -> Table:
    """A row for each run, narrow enough for a terminal of 80 columns."""
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
        outside = f"\n[bold red]{run.violations} outside[/]" if run.violations else ""
        judged = run.accuracy is not None and run.reference_accuracy is not None
        result.add_row(
            run.name,
            run.algorithm,
            f"{run.loss:.1%}",
            f"{run.seconds.median * 1e3:.1f}\n{run.seconds.p95 * 1e3:.1f}",
            f"{run.goodput_bits_per_second / 1e6:.1f}",
            f"{run.wire_bytes_per_worker / 1e3:,.0f}",
            f"{run.retransmissions:,}",
            f"{run.max_abs_error:.1e}\n{run.error_bound:.1e}{outside}",
            f"{run.accuracy:.1%}\n{run.reference_accuracy:.1%}" if judged else "",
        )
    return result
