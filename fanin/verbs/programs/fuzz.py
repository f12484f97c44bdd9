"""`fanin fuzz`: random programs and hostile packets in the switch, under sanitizers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import failing
from fanin.native.text import counted
from fanin.options import ResultsFolder
from fanin.output import say

if TYPE_CHECKING:
    from fanin.assurance.fuzz.campaign import Fuzzed


def fuzz(
    minutes: Annotated[float, typer.Option(min=0, help="Minutes to run")] = 10,
    first_seed: Annotated[
        int, typer.Option(min=0, help="Seed of the first program; the next ones count up")
    ] = 0,
    results: ResultsFolder = Path("results/fuzz"),
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
    from fanin.progress import Steps

    shown = time.monotonic()

    def show(so_far: Fuzzed) -> None:
        nonlocal shown
        now = time.monotonic()
        progress.advance(now - shown, f"{so_far.cases} programs")
        shown = now

    with (
        failing("fuzz", NoSanitizersError, CaseError, status=2),
        failing("fuzz", KeyboardInterrupt),
    ):
        if repeat is not None:
            said = campaign.repeat(repeat)
            say(said or "It passes.")
            raise typer.Exit(said is not None)
        with Steps("seconds", 60 * minutes) as progress:
            processes = os.cpu_count() or 1
            done = campaign.fuzz(first_seed, None, 60 * minutes, processes, results, show)
    say(f"{counted(done.cases, 'program')}, of which the switch accepted {done.taken}")
    if done.failed is not None:
        seed, said = done.failed
        say(f"seed {seed} fails:\n{said}\nrepeat: fanin fuzz --repeat {done.path}", err=True)
        raise typer.Exit(1)
    say("Nothing wrong.")
