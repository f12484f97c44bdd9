"""Logs of NCCL (NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,COLL): the collectives of each rank, without times."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fanin.experiments.workloads.collective_names import operation_named
from fanin.experiments.workloads.trace import Node, RankTrace, TraceCall, TraceError
from fanin.native.text import printable

# host:pid:thread [device] NCCL INFO text; some versions repeat the device before a call
_LINE = re.compile(r"([\w.-]+):(\d+):\d+ \[(\d+)\] NCCL INFO (.*)")
_INIT = re.compile(r"(?:^|\s)comm (0x\w+) rank (\d+) nranks (\d+)(?:.* commId (0x\w+))?", re.I)
_CALL = re.compile(r"(?:\[\d+\] )?(\w+): opCount (\w+) (.*)")
_FIELDS = ("count", "datatype", "root", "comm", "nranks")
_VALUE = {name: re.compile(rf"\b{name}[ =](0x[0-9a-fA-F]+|\d+)") for name in _FIELDS}

# Bytes of NCCL's types, by their numbers: int8, uint8, int32, uint32, int64, uint64, float16, float32, float64,
# bfloat16, float8e4m3, float8e5m2.
_TYPE_BYTES = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
_BARRIER_BYTES = 4
_LONGEST_LINE = 1 << 16  # characters


class _Communicator(NamedTuple):
    """A communicator as a process has it: the rank of the process, the number of ranks, and its name in all logs."""

    rank: int
    ranks: int
    name: str | None


@dataclass(slots=True)
class _Process:
    """A rank of the training: its communicators by their pointers, and its calls with their line and communicator."""

    communicators: dict[str, _Communicator] = field(default_factory=dict)
    calls: list[tuple[int, str, dict[str, str], _Communicator | None]] = field(default_factory=list)


def is_nccl_log(text: str) -> bool:
    """Return whether the beginning of a file is that of such a log."""
    return "NCCL INFO" in text


class NcclLog:
    """A log whose calls have been read, but whose communicators do not know the ranks of other logs yet.

    Args:
        lines: The log.
        file: Its name, for messages.

    Attributes:
        groups: The ranks of each communicator that lines of this log name: ranks of the training, by ranks of the
            communicator.

    Raises:
        TraceError: If the log has no calls, or one that lacks a field.
    """

    def __init__(self, lines: Iterable[str], file: str) -> None:
        self._file = file
        processes: defaultdict[tuple[str, str, str], _Process] = defaultdict(_Process)
        for number, line in enumerate(lines, start=1):
            if match := _LINE.search(line[:_LONGEST_LINE]):
                self._keep(processes[match[1], match[2], match[3]], match[4], number)
        calling = [process for process in processes.values() if process.calls]
        if not calling:
            raise TraceError(
                f"{file}: has no calls of collectives; run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,COLL"
            )
        self._world = max(int(call["nranks"], 0) for process in calling for _, _, call, _ in process.calls)
        self._ranks: dict[int, _Process] = {}
        self.groups: dict[str, dict[int, int]] = {}
        for process in calling:
            rank = self._rank(process, len(calling))
            if rank in self._ranks:
                raise TraceError(f"{file}: two processes have rank {rank}: give the log of one run")
            self._ranks[rank] = process
            for one in process.communicators.values():
                if one.name is not None:
                    self.groups.setdefault(one.name, {})[one.rank] = rank

    def _keep(self, process: _Process, text: str, number: int) -> None:
        """Keep what a line states."""
        if init := _INIT.search(text):
            known = process.communicators.get(init[1])
            one = _Communicator(int(init[2]), int(init[3]), init[4])
            if one.name is None and known is not None and known[:2] == one[:2]:
                one = known  # only the first line of a split has the name
            process.communicators[init[1]] = one
        elif call := _CALL.match(text):
            found = {name: value[1] for name, pattern in _VALUE.items() if (value := pattern.search(call[3]))}
            for name in _FIELDS:
                if name not in found and (name, call[1]) != ("root", "AllReduce"):
                    raise TraceError(
                        f"{self._file}:{number}: field {name!r}: missing in {printable(call[1])}"
                    )
            process.calls.append((number, call[1], found, process.communicators.get(found["comm"])))

    def _rank(self, process: _Process, processes: int) -> int:
        """Return the rank of a process in the communicator of all ranks."""
        for one in process.communicators.values():
            if one.ranks == self._world:
                return one.rank
        if processes == 1:
            return 0
        number = process.calls[0][0]
        raise TraceError(
            f"{self._file}:{number}: field 'comm': the line 'comm … rank … nranks {self._world}' of this process is "
            "missing; log with NCCL_DEBUG_SUBSYS=INIT,COLL from the beginning"
        )

    def traces(self, groups: Mapping[str, Mapping[int, int]]) -> Iterator[RankTrace]:
        """Yield the trace of each rank.

        Args:
            groups: The ranks of each communicator, from all logs of the run.

        Raises:
            TraceError: If a call cannot be replayed.
        """
        for rank, process in sorted(self._ranks.items()):
            nodes: list[Node] = []
            for number, name, found, communicator in process.calls:
                after = (len(nodes) - 1,) if nodes else ()
                members = self._members(number, found, rank, communicator, groups)
                call = _call(number, name, found, rank, members, self._file)
                nodes.append(Node(f"{name} in line {number}", after, call=call))
            notes = ("an NCCL log has no times: nothing is computed",)
            yield RankTrace(self._file, rank, nodes, self._world, notes=notes)

    def _members(
        self,
        line: int,
        fields: Mapping[str, str],
        rank: int,
        communicator: _Communicator | None,
        groups: Mapping[str, Mapping[int, int]],
    ) -> tuple[int, ...]:
        """Return the ranks that take part in a call, in the order of the communicator."""
        count = int(fields["nranks"], 0)
        if count == self._world:
            return tuple(range(count))
        if count == 1:
            return (rank,)
        where = f"{self._file}:{line}: field 'nranks': is {count} of {self._world} ranks"
        if communicator is None or communicator.name is None:
            raise TraceError(
                f"{where}; the log does not tell which, as it has no commId of this communicator"
            )
        group = groups[communicator.name]
        if sorted(group) != list(range(count)):
            raise TraceError(f"{where}, and the logs have {len(group)} of them; give the log of each rank")
        return tuple(group[one] for one in range(count))


def nccl_traces(logs: Sequence[NcclLog]) -> Iterator[RankTrace]:
    """Yield the traces of all ranks in the logs of a run.

    Raises:
        TraceError: If a call cannot be replayed.
    """
    groups: dict[str, dict[int, int]] = {}
    for log in logs:
        for name, ranks in log.groups.items():
            groups.setdefault(name, {}).update(ranks)
    for log in logs:
        yield from log.traces(groups)


def _call(
    line: int, name: str, fields: Mapping[str, str], rank: int, members: tuple[int, ...], file: str
) -> TraceCall:
    kind, count = (int(fields[key], 0) for key in ("datatype", "count"))
    if kind >= len(_TYPE_BYTES):
        raise TraceError(f"{file}:{line}: field 'datatype': is {kind}, an unknown type of NCCL")
    size = count * _TYPE_BYTES[kind]
    if name in ("Send", "Recv"):
        peer = int(fields["root"], 0)
        if peer >= len(members) or members[peer] == rank:
            raise TraceError(
                f"{file}:{line}: field 'root': is {peer}, must be another of the {len(members)} ranks"
            )
        pair = (rank, members[peer]) if name == "Send" else (members[peer], rank)
        return TraceCall("broadcast", pair, max(size, _BARRIER_BYTES), send=True)
    try:
        operation = operation_named(name)
    except ValueError as error:
        raise TraceError(f"{file}:{line}: {error}") from None
    if operation in ("all-gather", "reduce-scatter", "all-to-all"):  # the count is that of a part
        size *= len(members)
    return TraceCall(operation, tuple(sorted(members)), max(size, _BARRIER_BYTES))
