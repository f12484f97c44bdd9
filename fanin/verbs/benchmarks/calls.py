"""`fanin bench calls`: what the calls of fanin.init() and of PyTorch cost."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.native.text import counted
from fanin.options import ResultsFolder
from fanin.output import say
from fanin.verbs.benchmarks.options import AsJson, Sizes, sizes_in_bytes


def calls(
    workers: Annotated[int, typer.Option(min=2, help="Number of workers, attached to one switch")] = 4,
    sizes: Sizes = ["1 KiB", "64 KiB", "10 MB"],  # noqa: B006
    torch_python: Annotated[
        Path | None,
        typer.Option(help="Python that has torch and numpy; $FANIN_TORCH_PYTHON or this one by default"),
    ] = None,
    results: ResultsFolder = Path("results/bench"),
    as_json: AsJson = False,
) -> None:
    """Measure what calls from Python add to an all-reduce.

    These are calls of fanin.init() and of PyTorch, compared with a bare all-reduce.

    Examples:
        fanin bench calls
        fanin bench calls --workers 2 --sizes "64 KiB"
    """
    lengths = sizes_in_bytes(sizes)

    from fanin.assurance.bench import calls as of
    from fanin.assurance.bench.allreduce import size_text
    from fanin.assurance.bench.allreduce_worker import Order
    from fanin.assurance.bench.host import host, in_words
    from fanin.assurance.bench.pythons import TORCH, PythonError, find_python
    from fanin.progress import Steps
    from fanin.table import new_table, print_records, print_table
    from fanin.temporary_network import own_network
    from fanin.testbed.interrupt import run_until_interrupted
    from fanin.topologies.errors import NetworkError

    with failing("bench calls", PythonError, status=2):
        python = find_python(torch_python, TORCH)
    say(in_words(machine := host()), err=as_json)
    if python is None:
        say("PyTorch is not installed: give a Python that has it with --torch-python", err=as_json)
    orders = [Order(size // 4, of.repetitions(size)) for size in lengths]
    with (
        failing("bench calls", NetworkError, OSError, KeyboardInterrupt),
        tempfile.TemporaryDirectory() as name,
        Steps("calls", None, shown=not as_json),
    ):
        file = Path(name) / "network.toml"
        file.write_text(of.topology(workers))
        with own_network(["--topology", str(file), "--logs", name]) as network:
            cases = run_until_interrupted(of.measure(network, python or Path(sys.executable), orders))
    if as_json:
        print_records(asdict(case) for case in cases)
    else:
        for case in cases:
            say(
                f"\n{size_text(case.bytes)}, {case.repetitions} times: µs, and µs more than the bare all-reduce"
            )
            table = new_table(["call"], *of.HEADINGS)
            for way, one in case.measured.items():
                table.add_row(way, *of.cells(one, case.measured["bare"]))
            print_table(table)
    say(of.write(cases, machine, results), err=as_json)
    if wrong := sum(one.wrong for case in cases for one in case.measured.values()):
        raise failure("bench calls", f"{counted(wrong, 'element')} of sums outside the bound")
