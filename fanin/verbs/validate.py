"""`fanin validate`: virtual time compared with a live network, analytical models, a simulator, or papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fanin.cli_errors import failing, failure
from fanin.testbed.sandbox import SandboxError, enter
from fanin.topologies.errors import NetworkError

if TYPE_CHECKING:
    from fanin.assurance.validation.worlds import WorldComparison


def validate(
    tier: Annotated[
        Literal["live", "closed-form", "simulators", "papers"],
        typer.Option(help="Reference: a live network, models fitted at other sizes, htsim, or papers"),
    ] = "live",
    workers: Annotated[
        list[int], typer.Option(metavar="N", help="Only points with this many workers; may be repeated")
    ] = [],  # noqa: B006 - typer's way
    results: Annotated[Path, typer.Option(file_okay=False, help="Folder for the results")] = Path(
        "results/validation"
    ),
) -> None:
    """Check virtual time against live runs, models and papers.

    The exit status is 1 if the times differ by more than they may (docs/explanation/validation.md).

    Examples:
        fanin validate
        fanin validate --tier closed-form
    """
    if tier != "live":
        if workers:
            raise failure("validate", "--workers: works only with --tier live; leave it out", 2)
        {"closed-form": _closed_form, "simulators": _simulators, "papers": _papers}[tier](results)
        return
    with failing("validate", SandboxError):
        enter()

    # Imported here to keep --help and the refusal of wrong options fast.
    from rich.table import Table

    from fanin.assurance.validation.worlds import POINTS, compare, write
    from fanin.console import console
    from fanin.controller.errors import ControllerError
    from fanin.controller.requirements import PROGRAM
    from fanin.experiments.live.worker_group import RunError
    from fanin.experiments.results.axes import value_text
    from fanin.experiments.scenario.compilers import compile_program
    from fanin.p4compiler import CompileError

    counts = {len(point.live.members) for point in POINTS}
    if unknown := set(workers) - counts:
        there = ", ".join(map(str, sorted(counts)))
        raise failure("validate", f"--workers {min(unknown)}: no such points; choose from {there}", 2)
    chosen = [point for point in POINTS if not workers or len(point.live.members) in workers]

    columns = ("network", "workers", "loss", "live", "virtual", "by", "formula", "packets", "bytes", "")
    table = Table(*columns, box=None)  # without lines it fits 80 columns

    def show(one: WorldComparison) -> None:
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
        "[dim]Network: spines x leaves x hosts per leaf. Milliseconds of one all-reduce; the formula assumes no loss. "
        "Packets and bytes sent and received by a worker; if they differ, the deviation of virtual from live.[/]"
    )
    if not all(one.agrees for one in found):
        raise failure("validate", "live and virtual times differ at some points")


def _closed_form(results: Path) -> None:
    """Fit alpha and beta of every algorithm at some sizes, and predict the other sizes."""
    from rich.table import Table

    from fanin.assurance.validation.calibration import TOLERANCE, calibrate, write
    from fanin.console import console
    from fanin.controller.requirements import PROGRAM
    from fanin.experiments.scenario.compilers import compile_program
    from fanin.p4compiler import CompileError
    from fanin.p4switch.engine.engine import Engine

    with failing("validate", CompileError, KeyboardInterrupt):
        found = list(calibrate(Engine.load(compile_program(PROGRAM, "embedded").device_config)))
    write(found, results)
    table = Table("algorithm", "size", "", "virtual", "fit", "by", "formula", "by", box=None)
    for one in found:
        table.add_row(*one.cells)
    console.print(table)
    console.print(
        "[dim]Microseconds of one all-reduce with eight workers on one switch and links of 100 Gb/s.[/]"
    )
    if not all(one.agrees for one in found if one.held_out):
        raise failure("validate", f"held-out sizes are not predicted within {TOLERANCE:.0%}")


def _simulators(results: Path) -> None:
    """Compare flows between hosts in virtual time with htsim."""
    from rich.table import Table

    from fanin.assurance.validation import lossless_incast
    from fanin.assurance.validation.simulators import CASES, run, write
    from fanin.console import console
    from fanin.controller.requirements import PROGRAM
    from fanin.experiments.scenario.compilers import compile_program
    from fanin.experiments.virtual.outcome import UnfinishedError
    from fanin.p4compiler import CompileError
    from fanin.p4switch.engine.engine import Engine

    found, victims = [], []
    with failing("validate", CompileError, UnfinishedError, KeyboardInterrupt):
        switch = Engine.load(compile_program(PROGRAM, "embedded").device_config)
        for case in CASES:
            console.print(f"[dim]{case.name} …[/]")
            found.append(run(case, switch))
        for incast in lossless_incast.INCASTS:
            console.print(f"[dim]incast: {incast.name} …[/]")
            victims.append(lossless_incast.run(incast, switch))
    write(found, victims, results)
    table = Table("flows of 2 MB", "htsim", "virtual", "with its headers", "by", box=None)
    for one in found:
        table.add_row(*one.cells)
    console.print(table)
    console.print(
        "[dim]Microseconds until the last flow has arrived; links of 100 Gb/s and 1 us, fat trees.[/]"
    )
    columns = ("incast, PFC", "lasts", "share", "htsim", "below half", "by", "htsim", "below 95%", "by")
    table = Table(*columns, box=None)
    for victim in victims:
        table.add_row(*victim.cells)
    console.print(table)
    console.print(
        "[dim]Another flow could fill the link of the receiver's neighbour. Milliseconds in which that link carries "
        "less than half, and less than 95 %, of its capacity; share: flows of the incast on the other flow's path.[/]"
    )
    apart = [one.case.name for one in found if not one.agrees]
    apart += [f"incast, {victim.incast.name}" for victim in victims if not victim.agrees]
    if apart:
        raise failure("validate", f"virtual time deviates too much from htsim: {', '.join(apart)}")


def _papers(results: Path) -> None:
    """Compare figures of papers with virtual time."""
    from rich.table import Table

    from fanin.assurance.validation.papers.figures import figures
    from fanin.assurance.validation.papers.published import write
    from fanin.console import console
    from fanin.controller.requirements import PROGRAM
    from fanin.experiments.scenario.compilers import compile_program
    from fanin.experiments.virtual.outcome import UnfinishedError
    from fanin.p4compiler import CompileError
    from fanin.p4switch.engine.engine import Engine

    found = []
    with failing("validate", CompileError, UnfinishedError, KeyboardInterrupt):
        for one in figures(Engine.load(compile_program(PROGRAM, "embedded").device_config)):
            console.print(f"[dim]{one.published.what} …[/]")
            found.append(one)
    write(found, results)
    table = Table("figure", "published", "virtual", "must be", box=None)
    for one in found:
        table.add_row(*one.cells)
    console.print(table)
    if apart := [one.published.what for one in found if not one.agrees]:
        raise failure("validate", f"differs from the papers: {'; '.join(apart)}")


def _compared(live: float, virtual: float) -> str:
    return f"{live:,.0f}" if live == virtual else f"{virtual / live - 1:+.2%}"
