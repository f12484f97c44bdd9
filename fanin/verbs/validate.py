"""`fanin validate`: virtual time compared with a live network, analytical models, theory, a simulator, or papers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fanin.cli_errors import failing, failure
from fanin.options import ResultsFolder
from fanin.output import say
from fanin.testbed.sandbox import SandboxError, enter
from fanin.topologies.errors import NetworkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from fanin.assurance.validation.worlds import WorldComparison
    from fanin.p4switch.engine.engine import Engine


def validate(
    tier: Annotated[
        Literal["live", "closed-form", "theory", "simulators", "papers"],
        typer.Option(
            help="Reference: a live network, models fitted at other sizes, theory of mechanisms, htsim, or papers"
        ),
    ] = "live",
    workers: Annotated[
        list[int], typer.Option(metavar="N", help="Only points with this many workers; may be repeated")
    ] = [],  # noqa: B006 - typer's way
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each row of the tables")
    ] = False,
    results: ResultsFolder = Path("results/validation"),
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
        tiers = {"closed-form": _closed_form, "theory": _theory, "simulators": _simulators, "papers": _papers}
        tiers[tier](results, as_json)
        return
    with failing("validate", SandboxError):
        enter()

    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.assurance.validation.worlds import POINTS, compare, write
    from fanin.controller.errors import ControllerError
    from fanin.controller.requirements import PROGRAM
    from fanin.experiments.live.worker_group import RunError
    from fanin.experiments.results.axes import value_text
    from fanin.experiments.scenario.compilers import compile_program
    from fanin.p4compiler import CompileError
    from fanin.progress import Steps
    from fanin.table import new_table, print_records, print_table

    counts = {len(point.live.members) for point in POINTS}
    if unknown := set(workers) - counts:
        there = ", ".join(map(str, sorted(counts)))
        raise failure("validate", f"--workers {min(unknown)}: no such points; choose from {there}", 2)
    chosen = [point for point in POINTS if not workers or len(point.live.members) in workers]

    table = new_table(
        ["algorithm", "network"],
        *("Mb/s", "kB", "loss", "live", "virtual", "by", "formula", "packets", ""),
    )

    def show(one: WorldComparison) -> None:
        settings, live, virtual = one.point.live, one.live, one.virtual
        assert virtual.closed_form_seconds is not None
        table.add_row(
            settings.algorithm,
            settings.network.name.removeprefix("leaf-spine-"),
            f"{(settings.network.slowest_rate or 0) / 1e6:.0f}",
            f"{4 * (settings.elements or 0) / 1e3:,.0f}",
            value_text("loss", settings.links.loss) if settings.links.loss else "",
            f"{live.median * 1e3:.1f}",
            f"{virtual.median * 1e3:.1f}",
            f"{one.deviation:+.1%}",
            f"{virtual.closed_form_seconds * 1e3:.1f}",
            _compared(live.packets_per_worker, virtual.packets_per_worker),
            "" if one.agrees else "DIFFER",
        )
        progress.advance()

    errors = (CompileError, RunError, NetworkError, ControllerError)
    with (
        failing("validate", *errors, KeyboardInterrupt),
        Steps("points", len(chosen), shown=not as_json) as progress,
    ):
        program = compile_program(PROGRAM, "embedded")
        found = compare(chosen, program, results / "logs", show)
    write(found, results)
    if as_json:
        print_records(one.columns for one in found)
    else:
        print_table(table)
        say(
            "Network: spines x leaves x hosts per leaf. Milliseconds of one all-reduce; the\n"
            "formula assumes no loss. Packets that a worker sent and received; if they\n"
            "differ, the deviation of virtual from live."
        )
    if not all(one.agrees for one in found):
        raise failure("validate", "live and virtual times differ at some points")


def _closed_form(results: Path, as_json: bool) -> None:
    """Fit alpha and beta of every algorithm at some sizes, and predict the other sizes."""
    from fanin.assurance.validation.calibration import TOLERANCE, calibrate, write
    from fanin.table import new_table, print_records, print_table

    found = _measured("predictions", calibrate, as_json)
    write(found, results)
    if as_json:
        print_records(one.columns for one in found)
    else:
        table = new_table(["algorithm"], "size", "", "virtual", "fit", "by", "formula", "by")
        for one in found:
            table.add_row(*one.cells)
        print_table(table, 2)
        say("Microseconds of one all-reduce with eight workers on one switch and links of\n100 Gb/s.")
    if not all(one.agrees for one in found if one.held_out):
        raise failure("validate", f"held-out sizes are not predicted within {TOLERANCE:.0%}")


def _theory(results: Path, as_json: bool) -> None:
    """Compare congestion control, pauses and paths with what theory derives."""
    from fanin.assurance.validation.theory.derived import write
    from fanin.assurance.validation.theory.values import values

    found = _measured("values", values, as_json)
    write(found, results)
    _show(found, ("value", "theory", "virtual", "by", "must be"), as_json)
    if apart := [one.what for one in found if not one.agrees]:
        raise failure("validate", f"differs from theory: {'; '.join(apart)}")


def _measured(of_what: str, measure: Callable[[Engine], Iterable[Any]], as_json: bool) -> list[Any]:
    """Return the values that `measure` finds with the aggregation program, with their progress on a terminal."""
    from fanin.controller.requirements import PROGRAM
    from fanin.experiments.scenario.compilers import compile_program
    from fanin.experiments.virtual.outcome import UnfinishedError
    from fanin.p4compiler import CompileError
    from fanin.p4switch.engine.engine import Engine
    from fanin.progress import Steps

    found = []
    with (
        failing("validate", CompileError, UnfinishedError, KeyboardInterrupt),
        Steps(of_what, None, shown=not as_json) as progress,
    ):
        for one in measure(Engine.load(compile_program(PROGRAM, "embedded").device_config)):
            found.append(one)
            progress.advance()
    return found


def _show(found: Sequence[Any], headings: Sequence[str], as_json: bool) -> None:
    """Print values as a table, or a line of JSON for each."""
    from fanin.table import new_table, print_records, print_table

    if as_json:
        print_records(one.columns for one in found)
        return
    first, *others = headings
    table = new_table([first], *others)
    for one in found:
        table.add_row(*one.cells)
    print_table(table)


def _simulators(results: Path, as_json: bool) -> None:
    """Compare flows between hosts in virtual time with htsim."""
    from fanin.assurance.validation import lossless_incast
    from fanin.assurance.validation.simulators import CASES, run, write
    from fanin.controller.requirements import PROGRAM
    from fanin.experiments.scenario.compilers import compile_program
    from fanin.experiments.virtual.outcome import UnfinishedError
    from fanin.p4compiler import CompileError
    from fanin.p4switch.engine.engine import Engine
    from fanin.progress import Steps
    from fanin.table import new_table, print_records, print_table

    found, victims = [], []
    with failing("validate", CompileError, UnfinishedError, KeyboardInterrupt):
        switch = Engine.load(compile_program(PROGRAM, "embedded").device_config)
        with Steps("cases", len(CASES) + len(lossless_incast.INCASTS), shown=not as_json) as progress:
            for case in CASES:
                progress.begin(case.name)
                found.append(run(case, switch))
                progress.advance()
            for incast in lossless_incast.INCASTS:
                progress.begin(f"incast: {incast.name}")
                victims.append(lossless_incast.run(incast, switch))
                progress.advance()
    write(found, victims, results)
    if as_json:
        print_records([one.columns for one in found] + [one.columns for one in victims])
    else:
        table = new_table(["flows of 2 MB"], "htsim", "virtual", "with its\nheaders", "by")
        for one in found:
            table.add_row(*one.cells)
        print_table(table)
        say("Microseconds until the last flow has arrived; links of 100 Gb/s and 1 us, fat\ntrees.\n")
        numbers = ("lasts", "share", "htsim", "below\nhalf", "by", "htsim", "below\n95%", "by")
        table = new_table(["incast, PFC"], *numbers)
        for victim in victims:
            table.add_row(*victim.cells)
        print_table(table)
        say(
            "Another flow could fill the link of the receiver's neighbour. Milliseconds in\n"
            "which that link carries less than half, and less than 95 %, of its capacity;\n"
            "share: flows of the incast on the other flow's path."
        )
    apart = [one.case.name for one in found if not one.agrees]
    apart += [f"incast, {victim.incast.name}" for victim in victims if not victim.agrees]
    if apart:
        raise failure("validate", f"virtual time deviates too much from htsim: {', '.join(apart)}")


def _papers(results: Path, as_json: bool) -> None:
    """Compare figures of papers with virtual time."""
    from fanin.assurance.validation.papers.figures import figures
    from fanin.assurance.validation.papers.published import write

    found = _measured("figures", figures, as_json)
    write(found, results)
    _show(found, ("figure", "published", "virtual", "must be"), as_json)
    if apart := [one.published.what for one in found if not one.agrees]:
        raise failure("validate", f"differs from the papers: {'; '.join(apart)}")


def _compared(live: float, virtual: float) -> str:
    return f"{live:,.0f}" if live == virtual else f"{virtual / live - 1:+.2%}"
