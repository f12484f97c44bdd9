"""`fanin bench`: measurements of speed on this machine."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.options import Network, ResultsFolder, several, vector_sizes
from fanin.output import say
from fanin.testbed.sandbox import SandboxError, enter
from fanin.topologies.units import BYTES, quantity_text

if TYPE_CHECKING:
    from rich.table import Table

    from fanin.assurance.bench import calls as bench_calls
    from fanin.assurance.bench.allreduce import AllReduceCase
    from fanin.assurance.bench.collectives import CollectiveTime
    from fanin.assurance.bench.virtual import BenchPoint
    from fanin.workers.collective import Operation

_LARGEST_SIZE = 10**9  # bytes

Sizes = Annotated[list[str], typer.Option(help="Sizes of the vectors; may be repeated", metavar="SIZE,…")]

AsJson = Annotated[bool, typer.Option("--json", help="Print a line of JSON for each measurement")]

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
    results: ResultsFolder = Path("results/bench"),
    as_json: AsJson = False,
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
    from fanin.progress import Steps
    from fanin.table import new_table, print_records, print_table

    table = new_table(
        ["workers"],
        *("packet-hops", "s", "hops/s", "hops/\nCPU s", "MB", "virtual\nms", "sums"),
    )

    def show(point: BenchPoint) -> None:
        progress.advance()
        table.add_row(
            str(point.workers),
            f"{point.packet_hops:,}",
            f"{point.seconds:.1f}",
            f"{point.packet_hops_per_second:,.0f}",
            f"{point.packet_hops_per_processor_second:,.0f}",
            f"{point.peak_bytes / 1e6:,.0f}",
            f"{point.virtual_seconds * 1e3:,.4g}",
            "right" if point.exact else "WRONG",
        )
        if as_json:
            print_records([asdict(point)])

    runs = new_table(
        ["simulator"], "packet-hops", "events", "CPU s", "events/\nCPU s", "median ms", "longest ms"
    )

    def show_run(name: str, run: Run) -> None:
        runs.add_row(
            name,
            f"{run.packet_hops:,}",
            f"{run.events:,}",
            f"{run.processor_seconds:.2f}",
            f"{run.events_per_processor_second:,.0f}",
            f"{run.median_seconds * 1e3:,.4g}",
            f"{run.longest_seconds * 1e3:,.4g}",
        )
        if as_json:
            print_records([{"simulator": name, **asdict(run)}])

    with failing("bench virtual", PythonError, status=2):
        python = find_python(ns3_python, NS3)
    counts = [count for count in WORKERS if count <= most]
    with Steps("numbers of workers", len(counts), shown=not as_json) as progress:
        points = bench_virtual(counts, show)
    write(points, results)
    if not as_json:
        print_table(table)
    say(f"{results}/virtual.json", err=as_json)
    if python is None:
        say(
            "ns-3 is not installed: pip install ns3, or give a Python that has it with\n--ns3-python",
            err=as_json,
        )
    else:
        with failing("bench virtual", Ns3Error):
            written = bench_ns3(python, show_run, results)
        if not as_json:
            print_table(runs)
        say(written, err=as_json)
    if not all(point.exact for point in points):
        raise typer.Exit(1)


@bench.command("switch")
def switch(
    results: ResultsFolder = Path("results/bench"),
    as_json: AsJson = False,
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
    from fanin.progress import Steps
    from fanin.table import new_table, print_records, print_table

    table = new_table(
        ["case", "baseline"],
        *("packets/s\nbaseline's", "ratio\ngoal", "", "CPU ns\nbaseline's"),
    )

    def show(outcome: SwitchOutcome) -> None:
        progress.advance()
        case, times = outcome.case, (outcome.nanoseconds, outcome.baseline_nanoseconds)
        table.add_row(
            case.name,
            case.baseline,
            f"{case.pps:,.1f}\n{case.baseline_pps:,.1f}",
            f"{case.ratio:.2f}\n{outcome.goal:g}",
            "met" if outcome.is_met else "NOT MET",
            "\n".join("" if time is None else f"{time:,.0f}" for time in times),
        )
        if as_json:
            print_records([outcome.columns])

    load = os.getloadavg()
    with (
        failing("bench switch", SwitchBenchError, KeyboardInterrupt),
        Steps("cases", None, shown=not as_json) as progress,
    ):
        outcomes, skipped = bench_switch(Effort(), show)
    if not as_json:
        print_table(table, 2)
    for line in skipped:
        say(f"not run: {line}", err=as_json)
    say(write(outcomes, skipped, load, results), err=as_json)


@bench.command("inserts")
def inserts(
    count: Annotated[int, typer.Option(min=1000, max=1_000_000, help="Entries in each table")] = 100_000,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each table")] = False,
) -> None:
    """Measure how fast the switch takes table entries by P4Runtime.

    The baseline parses and reads the same messages and does nothing else. Entries come in batches of 1,000.

    Examples:
        fanin bench inserts
        fanin bench inserts --count 10000
    """
    from fanin.assurance.bench.switch.inserts import insert_outcome
    from fanin.assurance.bench.switch.tables import Routes
    from fanin.table import new_table, print_records, print_table

    found = {kind: insert_outcome(Routes(kind, count)) for kind in ("lpm", "exact")}
    if as_json:
        print_records(
            {"table": kind, "entries": count, "seconds": one.seconds, "ratio": one.ratio}
            for kind, one in found.items()
        )
        return
    table = new_table(["table"], "entries a second", "times only reading")
    for kind, one in found.items():
        table.add_row(kind, f"{count / one.seconds:,.0f}", f"{one.ratio:.1f}")
    print_table(table)


@bench.command("start")
def start(
    repeats: Annotated[int, typer.Option(min=1, max=1000, help="Starts of each program")] = 9,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each program")] = False,
) -> None:
    """Measure what a switch uses until it is ready, if its program is in the cache.

    The baseline is a Python process that only loads gRPC and P4Runtime's messages. Figures are medians.

    Examples:
        fanin bench start
        fanin bench start --repeats 3
    """
    from fanin.assurance.bench.switch.errors import SwitchBenchError
    from fanin.assurance.bench.switch.start import start_outcome
    from fanin.assurance.bench.switch.tables import Routes
    from fanin.controller.requirements import PROGRAM
    from fanin.p4compiler import compile_once
    from fanin.table import new_table, print_records, print_table

    programs = {"lpm": Routes("lpm", 1).program, "fanin": compile_once(PROGRAM)}
    with failing("bench start", SwitchBenchError, KeyboardInterrupt):
        found = {name: start_outcome(each.device_config(), repeats) for name, each in programs.items()}
    if as_json:
        print_records(
            {
                "program": name,
                "seconds": one.seconds,
                "baseline_seconds": one.baseline_seconds,
                "ratio": one.ratio,
                "bytes": one.bytes,
                "baseline_bytes": one.baseline_bytes,
            }
            for name, one in found.items()
        )
        return
    table = new_table(["program"], "processor s\nbaseline's", "ratio", "MB\nbaseline's")
    for name, one in found.items():
        table.add_row(
            name,
            f"{one.seconds:.2f}\n{one.baseline_seconds:.2f}",
            f"{one.ratio:.2f}",
            f"{one.bytes / 1e6:.0f}\n{one.baseline_bytes / 1e6:.0f}",
        )
    print_table(table)


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
    results: ResultsFolder = Path("results/bench"),
    as_json: AsJson = False,
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

    from fanin.assurance.bench.allreduce import BenchError, networks, write
    from fanin.assurance.bench.allreduce import bench as bench_allreduce
    from fanin.assurance.bench.host import host, in_words
    from fanin.assurance.bench.neighbour import KINDS, NOTHING, NeighbourError
    from fanin.assurance.bench.pythons import TORCH, PythonError, find_python
    from fanin.controller.errors import ControllerError
    from fanin.progress import Steps
    from fanin.table import print_records, print_table
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
        for network, of_network in _by_network(cases).items():
            say(f"\n{network}")
            if kinds != [NOTHING]:
                say("\n".join(f"{kind}: {KINDS[kind]}" for kind in kinds))
            for table in _allreduce_tables(of_network, with_load=kinds != [NOTHING]):
                print_table(table)
                say("")
    say(f"{results}/allreduce.json", err=as_json)
    if wrong := sum(one.wrong for case in cases for one in case.measured.values()):
        raise failure("bench allreduce", f"{wrong} elements of sums lie outside their bound")


def _by_network(cases: Sequence[AllReduceCase]) -> dict[str, list[AllReduceCase]]:
    found: dict[str, list[AllReduceCase]] = {}
    for case in cases:
        frames = "superframes" if case.superframes else "plain frames"
        found.setdefault(f"{case.network}, {frames}", []).append(case)
    return found


def _allreduce_tables(cases: Sequence[AllReduceCase], *, with_load: bool) -> tuple[Table, Table]:
    """Return the times of the algorithms, and where the time of in-network aggregation goes.

    Args:
        cases: The sizes of one network.
        with_load: Show the other load on the machine.
    """
    from fanin.table import new_table

    names = list(dict.fromkeys(name for case in cases for name in case.measured))
    headings = [f"{name} ms" if name == "in-network" else f"{name} ms\nmultiple" for name in names]
    times = new_table(["size"], *headings, "Gb/s", "resent", *(["load"] if with_load else []))
    parts = list(dict.fromkeys(part for case in cases for part in case.split.worker))
    costs = new_table(["size"], *parts, "CPU ms\nin kernel", "switches\nCPU ms", "limit")
    for case in cases:
        ours, total = case.measured["in-network"], sum(case.split.worker.values())
        cells = []
        for name in names:
            time = f"{case.measured[name].seconds * 1e3:.2f}" if name in case.measured else ""
            cells.append(time if name == "in-network" else f"{time}\n{_ratio(case.ratios.get(name))}")
        goodput = f"{ours.goodput_bits_per_second / 1e9:.3f}"
        load = [case.beside] if with_load else []
        times.add_row(_size(case.bytes), *cells, goodput, f"{ours.retransmissions:,}", *load)
        costs.add_row(
            _size(case.bytes),
            *(f"{case.split.worker.get(part, 0) / total:.0%}" for part in parts),
            f"{ours.user * 1e3:.2f}\n{ours.system * 1e3:.2f}",
            f"{case.split.switches * 1e3:.2f}",
            case.split.limit,
        )
    return times, costs


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"×{ratio:.2f}"


def _size(size: int) -> str:
    return f"{size / 1024:g} KiB" if size < 10**6 else f"{size / 10**6:g} MB"


@bench.command("calls")
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
    ):
        file = Path(name) / "network.toml"
        file.write_text(of.topology(workers))
        with own_network(["--topology", str(file), "--logs", name]) as network:
            cases = run_until_interrupted(of.measure(network, python or Path(sys.executable), orders))
    if as_json:
        print_records(asdict(case) for case in cases)
    else:
        for case in cases:
            say(f"\n{_size(case.bytes)}, {case.repetitions} times: µs, and µs more than the bare all-reduce")
            table = new_table(["call"], "in total", "more", "ratio", "in a\nworker", "more", "CPU", "more")
            for way, one in case.measured.items():
                table.add_row(way, *_call(one, case.measured["bare"]))
            print_table(table)
    say(of.write(cases, machine, results), err=as_json)
    if wrong := sum(one.wrong for case in cases for one in case.measured.values()):
        raise failure("bench calls", f"{wrong} elements of sums lie outside their bound")


def _call(one: bench_calls.WayToCall, bare: bench_calls.WayToCall) -> list[str]:
    """Return the cells of a way to call: each time, and by how much it exceeds that of the bare all-reduce."""

    def part(time: bench_calls.Time) -> tuple[str, str]:
        added = time.added and f"{time.added.seconds * 1e6:+.1f} ± {time.added.margin * 1e6:.1f}"
        return f"{time.seconds * 1e6:.1f}", added or ""

    ratio = one.whole.added and f"×{one.whole.seconds / bare.whole.seconds:.3f}"
    return [*part(one.whole), ratio or "", *part(one.own), *part(one.processor)]


@bench.command("collectives")
def collectives(
    operations: Annotated[
        list[str],
        typer.Option(
            help="all-reduce, reduce-scatter, all-gather, broadcast; in virtual time also all-to-all",
            metavar="OPERATION,…",
        ),
    ] = ["all-reduce"],  # noqa: B006 - typer's way
    sizes: Sizes = ["1 KiB", "64 KiB", "1 MiB"],  # noqa: B006
    repetitions: Annotated[int, typer.Option(min=1, help="Repetitions of each size, after one warm-up")] = 5,
    scenario: Annotated[
        str | None,
        typer.Option(help="Measure in virtual time, on the network of the first point of this scenario"),
    ] = None,
    supervisor: Network = None,
    as_json: AsJson = False,
) -> None:
    """Measure collectives, and print the columns of nccl-tests.

    They run on a network that is up, or with --scenario in virtual time, each all-reduce in the network and with a
    ring. Sizes are those of whole arrays, `time` is the mean of all repetitions, and `#wrong` counts elements outside
    their bound.

    Examples:
        fanin bench collectives --scenario scenario:small-virtual
        fanin bench collectives --scenario scenario:small-virtual --sizes "1 MiB"
    """
    from typing import get_args

    from fanin.assurance.bench import collectives as of
    from fanin.assurance.bench.collectives_worker import CollectiveOrder
    from fanin.table import new_table, print_records, print_table
    from fanin.testbed.running import find_network
    from fanin.topologies.errors import NetworkError
    from fanin.workers.collective import Operation

    known: tuple[Operation, ...] = get_args(Operation) if scenario else of.LIVE
    wanted: list[Operation] = []
    for name in several(operations):
        operation = next((each for each in known if each == name), None)
        if operation is None:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(known)}", param_hint="--operations")
        wanted.append(operation)
    found: list[of.CollectiveTime] = []

    def show(time: of.CollectiveTime) -> None:
        found.append(time)
        if as_json:
            bandwidths = {
                "algorithm_bytes_per_second": time.algorithm_bandwidth,
                "bus_bytes_per_second": time.bus_bandwidth,
            }
            print_records([asdict(time) | bandwidths])

    lengths = _sizes(sizes)
    if scenario is None:
        with failing("bench collectives", NetworkError):
            network = find_network(supervisor=supervisor)
            whole = 4 * len(network.hosts)  # each rank has a part of the same size
            orders = [
                CollectiveOrder(name, max(whole, size // whole * whole) // 4, repetitions)
                for name in wanted
                for size in lengths
            ]
            of.measure_live(network, orders, show)
    else:
        _virtual_collectives(scenario, wanted, lengths, repetitions, show)
    if not as_json:
        table = new_table(["operation", "algorithm"], *of.HEADINGS)
        for time in found:
            table.add_row(time.operation, time.algorithm, *time.cells)
        print_table(table, 2)
    if wrong := sum(time.wrong for time in found):
        raise failure("bench collectives", f"{wrong} elements lie outside their bound")


def _virtual_collectives(
    scenario: str,
    operations: Sequence[Operation],
    sizes: Sequence[int],
    repetitions: int,
    done: Callable[[CollectiveTime], None],
) -> None:
    from fanin.assurance.bench.collectives import measure_virtual
    from fanin.experiments.scenario.file import ScenarioError, load_scenario
    from fanin.experiments.scenario.shipped import scenario_file
    from fanin.simulator.fabric import load_switch

    with failing("bench collectives", ScenarioError, status=2):
        settings = load_scenario(scenario_file(scenario)).points[0]
    if settings.world == "live" or settings.parallelism is not None:
        raise failure(
            "bench collectives",
            f"{scenario}: is {'live' if settings.world == 'live' else 'a model that is cut'}; give a scenario in "
            "virtual time that only sums",
            status=2,
        )
    switch = load_switch()
    for operation in operations:
        for algorithm in ("in-network", "ring") if operation == "all-reduce" else ("ring",):
            for size in sizes:
                done(measure_virtual(settings, switch, operation, algorithm, size, repetitions))
