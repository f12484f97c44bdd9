"""`fanin bench`: measurements of speed on this machine."""

from __future__ import annotations

import typer

from fanin.verbs.benchmarks.allreduce import allreduce
from fanin.verbs.benchmarks.calls import calls
from fanin.verbs.benchmarks.collectives import collectives
from fanin.verbs.benchmarks.switch import inserts, start, switch
from fanin.verbs.benchmarks.virtual import virtual

bench = typer.Typer(
    help="""Measure the speed of switches, all-reduces and simulation.

    Each benchmark takes minutes. Close other programs before you start one.

    Examples:
        fanin bench switch
        fanin bench allreduce --workers 4 --sizes "64 KiB,10 MB"
    """,
    no_args_is_help=True,
    add_completion=False,
)
for _command in (virtual, switch, inserts, start, allreduce, calls, collectives):
    bench.command()(_command)
