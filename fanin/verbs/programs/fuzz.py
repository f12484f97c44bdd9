"""`fanin fuzz`: random programs and hostile packets in the switch, under sanitizers."""

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
    minutes: Annotated[float, typer.Option(min=0, help="Minutes to run")] = 10,
    first_seed: Annotated[
        int, typer.Option(min=0, help="Seed of the first program; the next ones count up")
    ] = 0,
    results: Annotated[Path, typer.Option(file_okay=False, help="Folder for a program that fails")] = Path(
        "results/fuzz"
    ),
    repeat: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="File of a failed program to run again")
    ] = None,
) -> None:
    """Run random P4 programs and packets under AddressSanitizer.

    The packets are hostile: too short, too long, or wrong in their fields. The first failure ends the run and is shrunk
    to a small program, which is written to the results.

    Examples:
        fanin fuzz --minutes 1
        fanin fuzz --repeat CASE.json
    """
    # Imported here to keep --help and the refusal of wrong options fast.
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
            processes = os.cpu_count() or 1
            done = campaign.fuzz(first_seed, None, 60 * minutes, processes, results, show)
    console.print(f"{done.cases} programs, of which the switch accepted {done.taken}")
    if done.failed is not None:
        seed, said = done.failed
        say(f"seed {seed} fails:\n{said}\nrepeat: fanin fuzz --repeat {done.path}", err=True)
        raise typer.Exit(1)
    console.print("Nothing wrong.")
