"""`fanin clean`: removes what earlier runs left, which is nothing unless they were killed."""

from __future__ import annotations

import shutil
from typing import Annotated

import typer

from native.cache import cache_directory
from topologies.runs import all_runs


def clean(
    cache: Annotated[
        bool, typer.Option("--cache", help="also remove the cache of compiled switch programs")
    ] = False,
) -> None:
    """Remove what runs that were killed have left: processes and temporary folders. Runs that go on stay."""
    runs = all_runs()
    for run in runs:
        if run.alive:
            typer.echo(f"leaving alone the run of process {run.supervisor}, which goes on")
        else:
            run.remove()
            typer.echo(f"removed {run.folder} and its processes")
    if all(run.alive for run in runs):
        typer.echo("Nothing is left of earlier runs.")
    if cache and (folder := cache_directory()).is_dir():
        shutil.rmtree(folder)
        typer.echo(f"removed {folder}")
