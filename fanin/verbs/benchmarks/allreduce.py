"""`fanin bench allreduce`: all-reduces in the network, with a ring over TCP and with Gloo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.native.text import counted
from fanin.options import ResultsFolder, several
from fanin.output import say
from fanin.testbed.sandbox import SandboxError, enter
from fanin.verbs.benchmarks.options import AsJson, Sizes, sizes_in_bytes

if TYPE_CHECKING:
    from fanin.assurance.bench.allreduce import AllReduceCase


def _workers(texts: Sequence[str]) -> list[int]:
    """Return numbers of workers such as `4,8`, which are even because there are two leaves."""
    counts = []
    for text in several("--workers", texts):
        try:
            counts.append(int(text))
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number such as 8", param_hint="--workers") from None
        if not 2 <= counts[-1] <= 64 or counts[-1] % 2:
            raise typer.BadParameter(
                f"{text}: numbers of workers are even, from 2 to 64", param_hint="--workers"
            )
    return counts


def _loads(texts: Sequence[str]) -> list[str]:
    """Return the kinds of other work, each once."""
    from fanin.assurance.bench.neighbour import KINDS

    kinds = list(dict.fromkeys(several("--load", texts)))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(KINDS)}", param_hint="--load")
    return kinds


def allreduce(
    workers: Annotated[
        list[str], typer.Option(help="Even numbers of workers; may be repeated", metavar="N,…")
    ] = ["4", "8"],  # noqa: B006 - typer's way
    sizes: Sizes = ["1 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MB", "10 MB", "100 MB"],  # noqa: B006
    gloo_python: Annotated[
        Path | None,
        typer.Option(
            help="Python that has torch and numpy, for Gloo; $FANIN_TORCH_PYTHON or this one by default"
        ),
    ] = None,
    plain_frames: Annotated[
        bool,
        typer.Option(
            "--plain-frames", help="Also measure each network with plain frames instead of superframes"
        ),
    ] = False,
    load: Annotated[
        list[str],
        typer.Option(
            help="Other load on the machine: nothing, loop, bound-loop (bound to a core), cache-walk (over half of "
            "the largest cache); may be repeated",
            metavar="KIND,…",
        ),
    ] = ["nothing"],  # noqa: B006
    results: ResultsFolder = Path("results/bench"),
    as_json: AsJson = False,
) -> None:
    """Compare all-reduces in the network with a ring and Gloo.

    All of them take turns on the same hosts and links.

    Examples:
        fanin bench allreduce
        fanin bench allreduce --workers 4 --sizes "64 KiB,10 MB"
    """
    counts, lengths, kinds = _workers(workers), sizes_in_bytes(sizes), _loads(load)
    with failing("bench allreduce", SandboxError):
        enter()

    from fanin.assurance.bench.allreduce import (
        BenchError,
        by_network,
        cost_table,
        networks,
        time_table,
        write,
    )
    from fanin.assurance.bench.allreduce import bench as bench_allreduce
    from fanin.assurance.bench.host import host, in_words
    from fanin.assurance.bench.neighbour import KINDS, NOTHING, NeighbourError
    from fanin.assurance.bench.pythons import TORCH, PythonError, find_python
    from fanin.controller.errors import ControllerError
    from fanin.progress import Steps
    from fanin.table import new_table, print_records, print_table
    from fanin.topologies.errors import NetworkError

    def show(case: AllReduceCase) -> None:
        progress.advance(note=case.network)
        if as_json:
            print_records([asdict(case)])

    with failing("bench allreduce", PythonError, status=2):
        python = find_python(gloo_python, TORCH)
    if python is None:
        say("Gloo is not installed: give a Python that has torch with --gloo-python", err=as_json)
    say(in_words(machine := host()), err=as_json)
    total = len(networks(counts, plain_frames)) * len(lengths) * len(kinds)
    with (
        failing(
            "bench allreduce", BenchError, NeighbourError, NetworkError, ControllerError, KeyboardInterrupt
        ),
        Steps("cases", total, shown=not as_json) as progress,
    ):
        cases = bench_allreduce(counts, lengths, python, show, plain=plain_frames, beside=kinds)
    write(cases, python is not None, machine, results)
    if not as_json:
        for network, of_network in by_network(cases).items():
            say(f"\n{network}")
            if kinds != [NOTHING]:
                say("\n".join(f"{kind}: {KINDS[kind]}" for kind in kinds))
            times = time_table(of_network, with_load=kinds != [NOTHING])
            for (first, *headings), rows in (times, cost_table(of_network)):
                table = new_table([first], *headings)
                for row in rows:
                    table.add_row(*row)
                print_table(table)
                say("")
    say(f"{results}/allreduce.json", err=as_json)
    if wrong := sum(one.wrong for case in cases for one in case.measured.values()):
        raise failure("bench allreduce", f"{counted(wrong, 'element')} of sums outside the bound")
