"""`fanin fuzz`: random programs and hostile packets through the switch, under sanitizers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from fanin.cli_errors import failing
from fanin.output import say

if TYPE_CHECKING:
    from fanin.assurance.fuzz.campaign import Fuzzed


def fuzz(
    minutes: Annotated[float, typer.Option(min=0, help="for how long")] = 10,
    first_seed: Annotated[int, typer.Option(min=0, help="of the first program; the others follow")] = 0,
    results: Annotated[
        Path, typer.Option(file_okay=False, help="where a program that fails is written")
    ] = Path("results/fuzz"),
    repeat: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="run one that was written")
    ] = None,
) -> None:
    """Run random P4 programs on hostile packets under AddressSanitizer; stop at the first finding and shrink it."""
    # Not above: it takes a second, for which --help and a wrong option should not wait.
    from fanin.assurance.fuzz import campaign
    from fanin.assurance.fuzz.campaign import NoSanitizersError
    from fanin.assurance.fuzz.case import CaseError
    from fanin.console import console

    def show(so_far: Fuzzed) -> None:
        progress.update(task, description=f"{so_far.cases} programs")

    with (
        failing("fuzz", NoSanitizersError, CaseError, status=2),
        failing("fuzz", KeyboardInterrupt),
    ):
        if repeat is not None:
            said = campaign.repeat(repeat)
            console.print(said or "It passes.", markup=False)
            raise typer.Exit(said is not None)
        with Progress(TextColumn("{task.description}"), TimeElapsedColumn(), console=console) as progress:
            task = progress.add_task("0 programs")
            jobs = os.cpu_count() or 1
            done = campaign.fuzz(first_seed, None, 60 * minutes, jobs, results, show)
    console.print(f"{done.cases} programs, of which the switch took {done.taken}")
    if done.failed is not None:
        seed, said = done.failed
        say(f"seed {seed} fails:\n{said}\nagain: fanin fuzz --repeat {done.path}", err=True)
        raise typer.Exit(1)
    console.print("Nothing wrong.")
