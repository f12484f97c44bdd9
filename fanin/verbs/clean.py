"""`fanin clean`: removal of what killed runs left behind."""

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
        typer.Option("--cache", help="Also remove compiled programs and the environment of p4runtime-shell"),
    ] = False,
) -> None:
    """Remove what killed runs left behind.

    That is their processes and temporary folders. Runs that are still active are left alone.

    Examples:
        fanin clean
        fanin clean --cache
    """
    runs = all_runs()
    for run in runs:
        if run.alive:
            say(f"the run of process {run.supervisor} is still active and was left alone")
        else:
            run.remove()
            say(f"removed {run.folder} and its processes")
    if all(run.alive for run in runs):
        say("Earlier runs left nothing behind.")
    with failing("clean", CacheError):
        _empty_cache() if cache else _show_cache()


def _show_cache() -> None:
    folder = cache_directory()
    if there := libraries(folder):
        size = quantity_text(sum(library.bytes for library in there), BYTES)
        most = quantity_text(MAX_BYTES, BYTES)
        say(
            f"{folder} holds {len(there)} compiled programs, {size}. Beyond {most}, the least recently used ones are "
            "removed. fanin clean --cache removes all of them."
        )


def _empty_cache() -> None:
    folder = cache_directory()
    gone = remove_unused(folder, keep=-1, recent=0.0)  # not even empty files
    size = quantity_text(sum(library.bytes for library in gone), BYTES)
    say(f"removed {len(gone)} compiled programs, {size}, from {folder}")
    for environment in shell_environment.remove_all():
        say(f"removed {environment}")
