"""`fanin clean`: removes what earlier runs left, which is nothing unless they were killed."""

from __future__ import annotations

from typing import Annotated

import typer

from fanin import shell_environment
from fanin.cli_errors import failing
from fanin.native.cache import MAX_BYTES, CacheError, cache_directory, libraries, remove_unused
from fanin.output import say
from fanin.testbed.runs import all_runs
from fanin.topologies.units import BYTES, quantity_text


def clean(
    cache: Annotated[
        bool,
        typer.Option(
            "--cache", help="also empty the cache: compiled programs, p4runtime-shell's environment"
        ),
    ] = False,
) -> None:
    """Remove what runs that were killed have left: processes and temporary folders. Runs that go on stay."""
    runs = all_runs()
    for run in runs:
        if run.alive:
            say(f"leaving alone the run of process {run.supervisor}, which goes on")
        else:
            run.remove()
            say(f"removed {run.folder} and its processes")
    if all(run.alive for run in runs):
        say("Nothing is left of earlier runs.")
    with failing("clean", CacheError):
        _empty_cache() if cache else _tell_of_cache()


def _tell_of_cache() -> None:
    folder = cache_directory()
    if there := libraries(folder):
        size = quantity_text(sum(library.bytes for library in there), BYTES)
        most = quantity_text(MAX_BYTES, BYTES)
        say(
            f"{folder} keeps {len(there)} compiled programs, {size}; of more than {most} those go that have not "
            "been used for longest. fanin clean --cache removes all."
        )


def _empty_cache() -> None:
    folder = cache_directory()
    gone = remove_unused(folder, keep=-1, recent=0.0)  # not even what takes no room
    size = quantity_text(sum(library.bytes for library in gone), BYTES)
    say(f"removed {len(gone)} compiled programs, {size}, from {folder}")
    for environment in shell_environment.remove_all():
        say(f"removed {environment}")
