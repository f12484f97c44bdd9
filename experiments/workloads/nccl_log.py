"""Logs of NCCL (NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,COLL): the collectives of each rank, without times."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fanin.experiments.workloads.collective_names import operation_named
from fanin.experiments.workloads.trace import Node, RankTrace, TraceCall, TraceError
from fanin.native.text import printable

# host:pid:thread [device] NCCL INFO text
_LINE = re.compile(r"([\w.-]+):(\d+):\d+ \[(\d+)\] NCCL INFO (.*)")
_INIT = re.compile(r"(?:^|\s)comm (0x\w+) rank (\d+) nranks (\d+)", re.I)
_CALL = re.compile(r"(\w+): opCount (\w+) (.*)")
_FIELDS = ("count", "datatype", "root", "comm", "nranks")
_VALUE = {name: re.compile(rf"\b{name}[ =](0x[0-9a-fA-F]+|\d+)") for name in _FIELDS}

# Bytes of NCCL's types, by their numbers: int8, uint8, int32, uint32, int64, uint64, float16, float32, float64,
# bfloat16, float8e4m3, float8e5m2.
_TYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
_BARRIER_BYTES = 4
_LONGEST_LINE = 1 << 16  # characters


@dataclass(slots=True)
class _Process:
    """A rank of the training: its place in each communicator, and its calls with their line."""

    ranks: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # own rank and number of ranks, by communicator
    calls: list[tuple[int, str, dict[str, str]]] = field(default_factory=list)


def is_nccl_log(text: str) -> bool:
    """Return whether the beginning of a file is that of such a log."""
    return "NCCL INFO" in text


def read_nccl_log(lines: Iterable[str], file: str) -> Iterator[RankTrace]:
    """Yield the trace of each rank in a log.

    Raises:
        TraceError: If the log has no calls, or one that cannot be replayed.
    """
    processes: defaultdict[tuple[str, str, str], _Process] = defaultdict(_Process)
    for number, line in enumerate(lines, start=1):
        match = _LINE.search(line[:_LONGEST_LINE])
        if match is None:
            continue
        process = processes[match[1], match[2], match[3]]
        if init := _INIT.search(match[4]):
            process.ranks[init[1]] = int(init[2]), int(init[3])
        elif call := _CALL.match(match[4]):
            found = {name: value[1] for name, pattern in _VALUE.items() if (value := pattern.search(call[3]))}
            for name in _FIELDS:
                if name not in found and (name, call[1]) != ("root", "AllReduce"):
                    raise TraceError(f"{file}:{number}: field {name!r}: missing in {printable(call[1])}")
            process.calls.append((number, call[1], found))
    calling = {key: process for key, process in processes.items() if process.calls}
    if not calling:
        raise TraceError(
            f"{file}: has no calls of collectives; run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL"
        )
    world = max(int(call["nranks"], 0) for process in calling.values() for _, _, call in process.calls)
    by_rank: dict[int, tuple[str, str, str]] = {}
    for key, process in calling.items():
        rank = _rank(process, world, len(calling), file)
        if rank in by_rank:
            raise TraceError(f"{file}: two processes have rank {rank}: give the log of one run")
        by_rank[rank] = key
    for rank, key in sorted(by_rank.items()):
        process = calling[key]
        nodes: list[Node] = []
        for number, name, found in process.calls:
            after = (len(nodes) - 1,) if nodes else ()
            nodes.append(
                Node(f"{name} in line {number}", after, call=_call(number, name, found, rank, world, file))
            )
        yield RankTrace(file, rank, nodes, world, notes=("an NCCL log has no times: nothing is computed",))


def _rank(process: _Process, world: int, processes: int, file: str) -> int:
    """Return the rank of a process in the communicator of all ranks."""
    for rank, ranks in process.ranks.values():
        if ranks == world:
            return rank
    if processes == 1:
        return 0
    number = process.calls[0][0]
    raise TraceError(
        f"{file}:{number}: field 'comm': the line 'comm … rank … nranks {world}' of this process is missing; log with "
        "NCCL_DEBUG_SUBSYS=INIT,COLL from the beginning"
    )


def _call(line: int, name: str, fields: dict[str, str], rank: int, world: int, file: str) -> TraceCall:
    kind, count, ranks = (int(fields[key], 0) for key in ("datatype", "count", "nranks"))
    if kind >= len(_TYPE_BYTES):
        raise TraceError(f"{file}:{line}: field 'datatype': is {kind}, an unknown type of NCCL")
    if ranks != world:
        raise TraceError(
            f"{file}:{line}: field 'nranks': is {ranks} of {world} ranks; a log does not tell which these are"
        )
    size = count * _TYPE_BYTES[kind]
    everyone = tuple(range(world))
    if name in ("Send", "Recv"):
        peer = int(fields["root"], 0)
        if peer >= world or peer == rank:
            raise TraceError(f"{file}:{line}: field 'root': is {peer}, must be another of the {world} ranks")
        pair = (rank, peer) if name == "Send" else (peer, rank)
        return TraceCall("broadcast", pair, max(size, _BARRIER_BYTES), send=True)
    try:
        operation = operation_named(name)
    except ValueError as error:
        raise TraceError(f"{file}:{line}: {error}") from None
    if operation in ("all-gather", "reduce-scatter", "all-to-all"):  # the count is that of a part
        size *= world
    return TraceCall(operation, everyone, max(size, _BARRIER_BYTES))
