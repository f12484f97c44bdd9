"""`fanin import`: a scenario that replays a trace of a training, or that has the links which nccl-tests measured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import floor, log10
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fanin.cli_errors import failing, failure
from fanin.native.text import counted
from fanin.options import file_to_write
from fanin.output import say
from fanin.topologies.units import RATES, TIMES, exact_text, quantity_text

if TYPE_CHECKING:
    from fanin.experiments.workloads.nccl_tests import Calibration
    from fanin.experiments.workloads.trace import Trace

_MOST_BYTES = 500e6  # of all arrays of a rank; larger traces are scaled down
_LARGEST_SIZE = 1 << 24  # bytes of a row of nccl-tests that the scenario runs
_NOTICE = 4e-6  # most seconds of the latency that count as the time in which a host notices a packet


def import_trace(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Traces of one run, one for each rank"),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="SCENARIO.toml", parser=file_to_write, help="The scenario to write"
        ),
    ] = None,
    rate: Annotated[
        str, typer.Option(metavar="RATE", help="Rate of a host's link in the scenario, for traces")
    ] = "100 Gb/s",
    world_size: Annotated[
        int | None,
        typer.Option("--ranks", min=2, help="Number of ranks, if the output of nccl-tests does not state it"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each row")] = False,
) -> None:
    """Make a scenario of traces from PyTorch, Chakra or NCCL.

    It shows what the traces have: those of PyTorch's profiler (.json), execution traces of MLCommons Chakra (.et), and
    logs of NCCL, each of which may be compressed by gzip. For the output of nccl-tests, it finds the latency and the
    rate that explain the times. Edit the network of the scenario, and run it with `fanin run`: its table has the
    predicted time of a step next to the measured one.

    Examples:
        fanin import rank0.json rank1.json -o scenario.toml
        fanin import all_reduce_perf.txt -o scenario.toml
    """
    # Imported here to keep --help fast.
    from fanin.experiments.workloads.nccl_tests import Calibration
    from fanin.experiments.workloads.trace import TraceError
    from fanin.experiments.workloads.trace_files import load_calibration, load_trace
    from fanin.table import print_records
    from fanin.topologies.units import quantity

    if output is not None and output.exists():
        raise failure("import", f"{output} exists already; choose another name, or remove it", 2)
    try:
        host_rate = int(quantity(rate, RATES, "100 Gb/s"))
    except ValueError as error:
        raise failure("import", f"--rate {rate}: {error}", 2) from None
    with failing("import", TraceError, status=2):
        found = (load_calibration(files[0], world_size) if len(files) == 1 else None) or load_trace(files)
    name = "imported" if output is None else _scenario_name(output)
    folder = Path.cwd() if output is None else output.parent
    if isinstance(found, Calibration):
        lines = list(_calibrated(name, files[0], found))
    else:
        lines = list(_replayed(name, [os.path.relpath(file, folder) for file in files], found, host_rate))
    if output is not None:
        # Before anything is printed, since who reads it may stop reading.
        folder.mkdir(parents=True, exist_ok=True)
        output.write_text("\n".join(lines) + "\n")
    if as_json:
        if isinstance(found, Calibration):
            print_records(_sizes(found))
            return
        print_records([_times(found), *_operations(found)])
        for note in found.notes:
            say(note, err=True)
        return
    if isinstance(found, Calibration):
        _show_calibration(found)
    else:
        _show_trace(found)
    if output is None:
        say("\nWith -o SCENARIO.toml, a scenario is written.")
    else:
        say(f"\nwrote {output}; edit its network, and run it: fanin run {output}")


def _scenario_name(output: Path) -> str:
    """Return a name that a scenario may have."""
    plain = "".join(one if one.isascii() and one.isalnum() else "-" for one in output.stem.lower()).strip("-")
    return plain or "imported"


def _text(value: str) -> str:
    """Return a text as TOML writes it."""
    import json

    return json.dumps(value, ensure_ascii=False)


# -- traces ----------------------------------------------------------------------------------------------------------


def _times(trace: Trace) -> dict[str, Any]:
    """Return a record of the times: those of each measured step, and the mean computing of each rank in a step."""
    return {
        "ranks": len(trace.ranks),
        "steps": trace.steps,
        "step_seconds": list(trace.step_seconds),
        "compute_seconds": [sum(node.seconds for node in nodes) / trace.steps for nodes in trace.ranks],
    }


def _operations(trace: Trace) -> Iterator[dict[str, Any]]:
    """Yield a record of each operation of a trace: its calls, their bytes in all, and the groups that call it."""
    for operation, (calls, size) in trace.counts().items():
        groups = sum(
            any(("send" if send else call.operation) == operation for call in of_group)
            for (_, send), of_group in trace.groups.items()
        )
        yield {"operation": operation, "calls": calls, "bytes": size, "groups": groups}


def _show_trace(trace: Trace) -> None:
    from fanin.table import new_table, print_table

    times = _times(trace)
    computing = times["compute_seconds"]
    longest = max(range(len(computing)), key=computing.__getitem__)
    mean, most = (quantity_text(seconds, TIMES) for seconds in (fmean(computing), computing[longest]))
    measured = (
        f"{quantity_text(fmean(trace.step_seconds), TIMES)} as measured, " if trace.step_seconds else ""
    )
    say(f"{counted(times['ranks'], 'rank')}, {counted(times['steps'], 'step')}")
    slowest = f"the rank that computes longest is {longest}, with {most}"
    say(f"Mean step of all ranks: {measured}{mean} of computing; {slowest}\n")
    table = new_table(["operation"], "calls", "MB each", "groups")
    for each in _operations(trace):
        size = each["bytes"] / each["calls"] / 1e6
        table.add_row(each["operation"], f"{each['calls']:,}", f"{size:,.4g}", f"{each['groups']:,}")
    print_table(table, 1)
    if trace.notes:
        say("\nAssumptions:")
    for note in trace.notes:
        say(f"- {note}")


def _replayed(name: str, files: Sequence[str], trace: Trace, rate: int) -> Iterator[str]:
    """Yield the lines of a scenario that replays a trace."""
    from fanin.experiments.scenario.tables.workload import MOST_JOBS, groups_in_network
    from fanin.workers.collective_worker import IN_SWITCHES

    carried = bool(groups_in_network(trace, IN_SWITCHES))
    fits = len(groups_in_network(trace, {"all-reduce"})) <= MOST_JOBS
    algorithms = ["in-network", "ring"] if carried and fits else ["ring"]
    yield f"name = {_text(name)}"
    yield f"description = {_text('Replay of a training with ' + counted(len(trace.ranks), 'rank'))}"
    yield f"algorithm = [{', '.join(map(_text, algorithms))}]"
    yield ""
    yield "[workload]"
    yield f"trace = [{', '.join(map(_text, files))}]"
    total = sum(size for _, size in trace.counts().values())
    if total > _MOST_BYTES:
        share = _MOST_BYTES / total
        digit = 10 ** floor(log10(share))
        yield f"scale = {floor(share / digit) * digit:.3g}  # of all bytes and computing times: the trace is large"
    yield ""
    yield "# The fabric on which the training is replayed: change it as you like."
    yield "[topology.leaf_spine]"
    yield "spines = 0"
    yield "leaves = 1"
    yield f"hosts_per_leaf = {len(trace.ranks)}"
    yield f"rate = {_text(exact_text(rate, RATES))}"


# -- nccl-tests ------------------------------------------------------------------------------------------------------


def _sizes(found: Calibration) -> Iterator[dict[str, Any]]:
    """Yield a record of each measured size: the measured time, and that of the ring with the latency and rate found."""
    for size, seconds in zip(found.sizes, found.seconds, strict=True):
        yield {"size": size, "measured_seconds": seconds, "ring_seconds": found.predicted(size)}


def _show_calibration(found: Calibration) -> None:
    from fanin.table import new_table, print_table

    rate, latency = quantity_text(8 * found.bandwidth, RATES), quantity_text(found.latency, TIMES)
    say(
        f"{found.operation} of {found.ranks} ranks. Round a ring, {rate} and a latency of {latency} from rank "
        "to rank explain the times best:\n"
    )
    table = new_table(["size B"], "measured us", "ring us", "off by")
    for each in _sizes(found):
        measured, ring = each["measured_seconds"], each["ring_seconds"]
        table.add_row(
            f"{each['size']:,}", f"{1e6 * measured:,.4g}", f"{1e6 * ring:,.4g}", f"{ring / measured - 1:+.0%}"
        )
    print_table(table, 1)


def _calibrated(name: str, file: Path, found: Calibration) -> Iterator[str]:
    """Yield the lines of a scenario with the measured latency and rate, and the measured sizes."""
    from fanin.topologies.link import ETHERNET_OVERHEAD
    from fanin.workers.host_based.transport import HEADER_BYTES, PAYLOAD
    from fanin.workers.wire import HEADERS

    packet = ETHERNET_OVERHEAD + HEADERS + HEADER_BYTES + PAYLOAD
    rate = round(8 * found.bandwidth * packet / PAYLOAD)
    notice = min(_NOTICE, found.latency / 2)
    delay = max(0.0, (found.latency - notice) / 2 - 8 * packet / rate)
    unit = 4 * found.ranks
    sizes = sorted({size for size in found.sizes if size % unit == 0 and size <= _LARGEST_SIZE})
    yield f"name = {_text(name)}"
    yield f"description = {_text(f'Links as {file.name} has measured them with nccl-tests')}"
    yield 'algorithm = "ring"'
    if found.operation != "all-reduce":
        yield f"collective = {_text(found.operation)}"
    yield f"size = [{', '.join(_text(f'{size} B') for size in sizes or [unit])}]"
    yield f"coalescing = {_text(quantity_text(notice, TIMES))}"
    yield ""
    yield "[links]"
    yield f"delay = {_text(quantity_text(delay, TIMES))}  # with two links, two packets and coalescing: the latency"
    yield ""
    yield "[topology.leaf_spine]"
    yield "spines = 0"
    yield "leaves = 1"
    yield f"hosts_per_leaf = {found.ranks}"
    yield f"rate = {_text(exact_text(rate, RATES))}  # headers included"
