"""`fanin bench`: measurements of speed on this machine."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.options import several, vector_sizes
from fanin.testbed.sandbox import SandboxError, enter
from fanin.topologies.units import BYTES, TIMES, quantity_text

if TYPE_CHECKING:
    from fanin.assurance.bench import calls as bench_calls
    from fanin.assurance.bench.allreduce import AllReduceCase
    from fanin.assurance.bench.virtual import BenchPoint

_LARGEST_SIZE = 10**9  # bytes

Sizes = Annotated[list[str], typer.Option(help="Sizes of the vectors; may be repeated", metavar="SIZE,…")]

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


@bench.command("virtual")
def virtual(
    most: Annotated[int, typer.Option(help="Largest number of workers")] = 1024,
    ns3_python: Annotated[
        Path | None,
        typer.Option(help="Python that has ns-3; $FANIN_NS3_PYTHON or this one by default"),
    ] = None,
    results: Annotated[Path, typer.Option(file_okay=False, help="Folder for the results")] = Path(
        "results/bench"
    ),
) -> None:
    """Measure the simulator with 8 to 1,024 workers, and compare it with ns-3.

    The workers all-reduce 4 MiB in racks of 32. The comparison with ns-3 uses flows between hosts.

    Examples:
        fanin bench virtual
        fanin bench virtual --most 64
    """
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.assurance.bench.ns3.beside import Ns3Error, Run
    from fanin.assurance.bench.ns3.beside import bench as bench_ns3
    from fanin.assurance.bench.pythons import NS3, PythonError, find_python
    from fanin.assurance.bench.virtual import WORKERS, write
    from fanin.assurance.bench.virtual import bench as bench_virtual
    from fanin.console import console

    def show(point: BenchPoint) -> None:
        console.print(
            f"{point.workers:5} workers: {point.packet_hops:9,} packet-hops in {point.seconds:6.1f} s, "
            f"{point.packet_hops_per_second:9,.0f}/s ({point.packet_hops_per_processor_second:,.0f} per second "
            f"of processor time, ×{point.ratio:.1f} a loop of numpy); {quantity_text(point.peak_bytes, BYTES)}; "
            f"{quantity_text(point.virtual_seconds, TIMES)} of virtual time"
            + ("" if point.exact else "; SUMS ARE WRONG")
        )

    def show_run(name: str, run: Run) -> None:
        console.print(
            f"{name:12} {run.packet_hops:9,} packet-hops and {run.events:9,} events in {run.processor_seconds:6.2f} s "
            f"of processor time: {run.events_per_processor_second:9,.0f} events per second; flows took "
            f"{quantity_text(run.median_seconds, TIMES)}, the longest {quantity_text(run.longest_seconds, TIMES)}",
            highlight=False,
            soft_wrap=True,
        )

    with failing("bench virtual", PythonError, status=2):
        python = find_python(ns3_python, NS3)
    points = bench_virtual([count for count in WORKERS if count <= most], show)
    write(points, results)
    console.print(f"{results}/virtual.json")
    if python is None:
        console.print(
            "ns-3 is not installed: pip install ns3, or give a Python that has it with --ns3-python"
        )
    else:
        with failing("bench virtual", Ns3Error):
            console.print(f"{bench_ns3(python, show_run, results)}", highlight=False, soft_wrap=True)
    if not all(point.exact for point in points):
        raise typer.Exit(1)


@bench.command("switch")
def switch(
    results: Annotated[Path, typer.Option(file_okay=False, help="Folder for the results")] = Path(
        "results/bench"
    ),
) -> None:
    """Measure the switch, and compare it with a bare loop in C, with BMv2 and with its goals.

    This takes two minutes. BMv2 is left out if it is not installed.

    Examples:
        fanin bench switch
        fanin bench switch --results results/today
    """
    with failing("bench switch", SandboxError):
        enter()

    from fanin.assurance.bench.switch.bench import Effort, SwitchOutcome, write
    from fanin.assurance.bench.switch.bench import bench as bench_switch
    from fanin.assurance.bench.switch.errors import SwitchBenchError
    from fanin.console import console

    def show(outcome: SwitchOutcome) -> None:
        case, spent = outcome.case, ""
        if outcome.nanoseconds is not None:
            theirs = outcome.baseline_nanoseconds
            spent = f"   {outcome.nanoseconds:,.0f}" + (f" / {theirs:,.0f} ns" if theirs else " ns")
        console.print(
            f"{case.name:63} {case.pps:12,.1f}   {case.baseline:31} {case.baseline_pps:12,.1f}   ×{case.ratio:.2f}, "
            f"goal ×{outcome.goal:g} {'is met' if outcome.is_met else 'IS NOT MET'}{spent}",
            highlight=False,
            soft_wrap=True,
        )

    console.print(
        "packets per second, those of a baseline, the ratio and its goal, processor time", style="bold"
    )
    load = os.getloadavg()
    with failing("bench switch", SwitchBenchError, KeyboardInterrupt):
        outcomes, skipped = bench_switch(Effort(), show)
    for line in skipped:
        console.print(f"not run: {line}", highlight=False, soft_wrap=True)
    console.print(f"{write(outcomes, skipped, load, results)}", highlight=False, soft_wrap=True)


@bench.command("inserts")
def inserts(
    count: Annotated[int, typer.Option(min=1000, max=1_000_000, help="Entries in each table")] = 100_000,
) -> None:
    """Measure how fast the switch takes table entries by P4Runtime.

    The baseline parses and reads the same messages and does nothing else. Entries come in batches of 1,000.

    Examples:
        fanin bench inserts
        fanin bench inserts --count 10000
    """
    from fanin.assurance.bench.switch.inserts import insert_outcome
    from fanin.assurance.bench.switch.tables import Routes
    from fanin.console import console

    for kind in ("lpm", "exact"):
        found = insert_outcome(Routes(kind, count))
        console.print(
            f"{found.routes}: {count / found.seconds:,.0f} per second of processor time, "
            f"×{found.ratio:.1f} the time of only reading their messages",
            highlight=False,
            soft_wrap=True,
        )


def _workers(texts: Sequence[str]) -> list[int]:
    """Return numbers of workers such as `4,8`, which are even because there are two leaves."""
    counts = []
    for text in several(texts):
        try:
            counts.append(int(text))
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number such as 8", param_hint="--workers") from None
        if not 2 <= counts[-1] <= 64 or counts[-1] % 2:
            raise typer.BadParameter(
                f"{text}: numbers of workers are even, from 2 to 64", param_hint="--workers"
            )
    return counts


def _sizes(texts: Sequence[str]) -> list[int]:
    """Return sizes in bytes, the smallest first."""
    sizes = sorted(vector_sizes(texts))
    if sizes[-1] > _LARGEST_SIZE:
        raise typer.BadParameter(
            f"{quantity_text(sizes[-1], BYTES)}: the largest size is {quantity_text(_LARGEST_SIZE, BYTES)}",
            param_hint="--sizes",
        )
    return sizes


def _loads(texts: Sequence[str]) -> list[str]:
    """Return the kinds of other work, each once."""
    from fanin.assurance.bench.neighbour import KINDS

    kinds = list(dict.fromkeys(several(texts)))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise typer.BadParameter(f"{unknown[0]!r} is not one of {', '.join(KINDS)}", param_hint="--load")
    return kinds


@bench.command("allreduce")
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
    results: Annotated[Path, typer.Option(file_okay=False, help="Folder for the results")] = Path(
        "results/bench"
    ),
) -> None:
    """Measure all-reduces in the network, with a ring over TCP and with Gloo.

    All of them take turns on the same hosts and links.

    Examples:
        fanin bench allreduce
        fanin bench allreduce --workers 4 --sizes "64 KiB,10 MB"
    """
    counts, lengths, kinds = _workers(workers), _sizes(sizes), _loads(load)
    with failing("bench allreduce", SandboxError):
        enter()

    from fanin.assurance.bench.allreduce import BenchError, write
    from fanin.assurance.bench.allreduce import bench as bench_allreduce
    from fanin.assurance.bench.host import host, in_words
    from fanin.assurance.bench.neighbour import KINDS, NOTHING, NeighbourError
    from fanin.assurance.bench.pythons import TORCH, PythonError, find_python
    from fanin.console import console
    from fanin.controller.errors import ControllerError
    from fanin.topologies.errors import NetworkError

    heading = ""

    def show(case: AllReduceCase) -> None:
        nonlocal heading
        network = f"{case.network}, {'superframes' if case.superframes else 'plain frames'}"
        if network != heading:
            heading = network
            console.print(f"{network}: ms, multiple of in-network, Gb/s of in-network", style="bold")
        console.print(
            _row(case) + (f", with {KINDS[case.beside]}" if kinds != [NOTHING] else ""), highlight=False
        )
        console.print(_where(case), highlight=False, style="dim")

    with failing("bench allreduce", PythonError, status=2):
        python = find_python(gloo_python, TORCH)
    with failing(
        "bench allreduce", BenchError, NeighbourError, NetworkError, ControllerError, KeyboardInterrupt
    ):
        if python is None:
            console.print("Gloo is not installed: give a Python that has torch with --gloo-python")
        console.print(in_words(machine := host()), highlight=False, soft_wrap=True)
        cases = bench_allreduce(counts, lengths, python, show, plain=plain_frames, beside=kinds)
    write(cases, python is not None, machine, results)
    console.print(f"{results}/allreduce.json")
    if wrong := sum(one.wrong for case in cases for one in case.measured.values()):
        raise failure("bench allreduce", f"{wrong} elements of sums lie outside their bound")


def _row(case: AllReduceCase) -> str:
    """Return the size, the median of every algorithm, its multiple of in-network, and the goodput of in-network."""
    size = _size(case.bytes)
    times = ""
    for name, one in case.measured.items():
        ratio = f" ×{case.ratios[name]:<5.2f}" if name in case.ratios else ""
        times += f"  {name} {one.seconds * 1e3:8.2f}{ratio}"
    ours = case.measured["in-network"]
    resent = f", {ours.retransmissions} retransmissions" if ours.retransmissions else ""
    return f"{size:>8}{times}  {ours.goodput_bits_per_second / 1e9:.3f}{resent}"


def _size(size: int) -> str:
    return f"{size / 1024:g} KiB" if size < 10**6 else f"{size / 10**6:g} MB"


def _where(case: AllReduceCase) -> str:
    """Return the shares of a worker's time, the processor time of all processes, and the limit."""
    split, ours = case.split, case.measured["in-network"]
    total = sum(split.worker.values())
    parts = ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in split.worker.items())
    return (
        f"        a worker's time: {parts}; processor, ms: workers {ours.user * 1e3:.2f} and "
        f"{ours.system * 1e3:.2f} in the kernel, switches {split.switches * 1e3:.2f}; limit: {split.limit}"
    )


@bench.command("calls")
def calls(
    workers: Annotated[int, typer.Option(min=2, help="Number of workers, attached to one switch")] = 4,
    sizes: Sizes = ["1 KiB", "64 KiB", "10 MB"],  # noqa: B006
    torch_python: Annotated[
        Path | None,
        typer.Option(help="Python that has torch and numpy; $FANIN_TORCH_PYTHON or this one by default"),
    ] = None,
    results: Annotated[Path, typer.Option(file_okay=False, help="Folder for the results")] = Path(
        "results/bench"
    ),
) -> None:
    """Measure what the calls of fanin.init() and of PyTorch add to a bare all-reduce.

    Examples:
        fanin bench calls
        fanin bench calls --workers 2 --sizes "64 KiB"
    """
    lengths = _sizes(sizes)

    from fanin.assurance.bench import calls as of
    from fanin.assurance.bench.allreduce_worker import Order
    from fanin.assurance.bench.host import host, in_words
    from fanin.assurance.bench.pythons import TORCH, PythonError, find_python
    from fanin.console import console
    from fanin.temporary_network import own_network
    from fanin.testbed.interrupt import run_until_interrupted
    from fanin.topologies.errors import NetworkError

    with failing("bench calls", PythonError, status=2):
        python = find_python(torch_python, TORCH)
    console.print(in_words(machine := host()), highlight=False, soft_wrap=True)
    if python is None:
        console.print("PyTorch is not installed: give a Python that has it with --torch-python")
    orders = [Order(size // 4, of.repetitions(size)) for size in lengths]
    with (
        failing("bench calls", NetworkError, OSError, KeyboardInterrupt),
        tempfile.TemporaryDirectory() as name,
    ):
        file = Path(name) / "network.toml"
        file.write_text(of.topology(workers))
        with own_network(["--topology", str(file), "--logs", name]) as network:
            cases = run_until_interrupted(of.measure(network, python or Path(sys.executable), orders))
    for case in cases:
        heading = (
            f"{_size(case.bytes)}, {case.repetitions} times: µs in total; in one worker; its processor time"
        )
        console.print(heading, style="bold")
        for way, one in case.measured.items():
            console.print(_call(way, one, case.measured["bare"]), highlight=False, soft_wrap=True)
    console.print(f"{of.write(cases, machine, results)}", highlight=False, soft_wrap=True)
    if wrong := sum(one.wrong for case in cases for one in case.measured.values()):
        raise failure("bench calls", f"{wrong} elements of sums lie outside their bound")


def _call(way: str, one: bench_calls.WayToCall, bare: bench_calls.WayToCall) -> str:
    """Return each time, and by how much it exceeds that of the bare all-reduce."""

    def part(time: bench_calls.Time) -> str:
        added = time.added and f"{time.added.seconds * 1e6:+7.1f} ± {time.added.margin * 1e6:.1f}"
        return f"{time.seconds * 1e6:9.1f} {added or '':18}"

    ratio = one.whole.added and f"×{one.whole.seconds / bare.whole.seconds:.3f}"
    return f"  {way:17} {part(one.whole)} {ratio or '':7} {part(one.own)} {part(one.processor)}".rstrip()
