"""`fanin validate`: live and virtual time side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.failing import failing, failure
from topologies.errors import NetworkError
from topologies.sandbox import SandboxError, enter

if TYPE_CHECKING:
    from experiments.models.validation import Comparison


def validate(
    workers: Annotated[
        list[int], typer.Option(metavar="N", help="only with so many workers; may be given several times")
    ] = [],  # noqa: B006 - typer's way
    results: Annotated[Path, typer.Option(file_okay=False, help="where the results go")] = Path(
        "results/validation"
    ),
) -> None:
    """All-reduce 0.8 MB with 2 to 8 workers live and in virtual time, and compare times, packets and bytes."""
    with failing("validate", SandboxError):
        enter()

    # Not above: what precedes enter() runs twice, and these take a second to import.
    from rich.table import Table

    from controller.errors import ControllerError
    from experiments.live.crew import RunError
    from experiments.models.validation import POINTS, compare, write
    from experiments.results.axes import value_text
    from experiments.scenario.compilers import PROGRAM, compile_program
    from fanin.console import console
    from p4compiler import CompileError

    counts = {len(point.live.members) for point in POINTS}
    if unknown := set(workers) - counts:
        there = ", ".join(map(str, sorted(counts)))
        raise failure("validate", f"--workers {min(unknown)}: no such points; there are {there}", 2)
    chosen = [point for point in POINTS if not workers or len(point.live.members) in workers]

    columns = ("network", "workers", "loss", "live", "virtual", "by", "formula", "packets", "bytes", "")
    table = Table(*columns, box=None)  # without lines it fits 80 columns

    def show(one: Comparison) -> None:
        settings, live, virtual = one.point.live, one.live, one.virtual
        assert virtual.closed_form_seconds is not None
        table.add_row(
            settings.network.name.removeprefix("leaf-spine-"),
            str(len(settings.members)),
            value_text("loss", settings.links.loss) if settings.links.loss else "",
            f"{live.median * 1e3:.1f}",
            f"{virtual.median * 1e3:.1f}",
            f"{one.deviation:+.1%}",
            f"{virtual.closed_form_seconds * 1e3:.1f}",
            _compared(live.packets_per_worker, virtual.packets_per_worker),
            _compared(live.wire_bytes_per_worker, virtual.wire_bytes_per_worker),
            "" if one.agrees else "DIFFER",
        )
        console.print(f"[dim]{settings.network.name} …[/]")

    errors = (CompileError, RunError, NetworkError, ControllerError)
    with failing("validate", *errors, KeyboardInterrupt):
        program = compile_program(PROGRAM, "embedded")
        found = compare(chosen, program, results / "logs", show)
    write(found, results)
    console.print(table)
    console.print(
        "[dim]Network: spines x leaves x hosts on each. Milliseconds of one all-reduce; the formula assumes no loss. "
        "Packets and bytes of a worker, sent and received; where they differ, virtual from live.[/]"
    )
    if not all(one.agrees for one in found):
        raise failure("validate", "live and virtual times differ at some points")


def _compared(live: float, virtual: float) -> str:
    return f"{live:,.0f}" if live == virtual else f"{virtual / live - 1:+.2%}"
