"""Counts of each link and each worker in a run, from counters and clocks alone.

They are written to links.parquet, workers.parquet and, if there are any, queues.parquet and flows.parquet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from fanin.native.files import replacing

LINKS, WORKERS, QUEUES, FLOWS = "links.parquet", "workers.parquet", "queues.parquet", "flows.parquet"
FCT = "fct"  # a folder with a text file for each point that has flows

Phase = Literal["job", "after"]

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """The counts of one direction of a link in one phase. None means that something was not counted.

    The sums over both phases are those of the run.

    Attributes:
        near: The node that sends.
        far: The node that receives.
        phase: "job" lasts from the beginning of the run until the job's last sum, "after" until all other traffic has
            been sent.
        seconds: Length of the phase.
        packets: Packets sent.
        bytes: Bytes of their frames.
        wire_bytes: Bytes including Ethernet's overhead.
        busy_seconds: Time for which the link sent.
        paused_seconds: Time for which it was paused (the sum over its priorities).
        pauses: Number of pauses.
        storms: How often a watchdog took a pause for one that does not end.
        watchdog_drops: Packets that a watchdog dropped.
        overtaken_seconds: Time for which it sent packets of a higher priority while some of the job's waited.
        lower_bytes: The part of wire_bytes in packets of a lower priority than the job's.
        waited_seconds: Sum over packets of the time until their sending began.
        mean_queue: Mean bytes on the wire in the queue at the near end, with the rest of the packet that is being sent.
        longest_queue: Most bytes on the wire in that queue.
        queue_drops: Packets dropped at the full queue.
        marks: Packets that were marked.
        lost: Packets lost on the link.
        duplicated: Packets that it delivered twice.
    """

    near: str
    far: str
    phase: Phase = "job"
    seconds: float | None = None
    packets: int
    bytes: int
    wire_bytes: int
    busy_seconds: float
    paused_seconds: float | None = None
    pauses: int | None = None
    storms: int | None = None
    watchdog_drops: int | None = None
    overtaken_seconds: float | None = None
    lower_bytes: int = 0
    waited_seconds: float | None = None
    mean_queue: float | None = None
    longest_queue: float | None = None
    queue_drops: int | None = None
    marks: int | None = None
    lost: int = 0
    duplicated: int = 0

    @property
    def name(self) -> str:
        """Return the name that users see."""
        return f"{self.near} → {self.far}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUse:
    """The counts of a worker.

    Attributes:
        rank: Its rank.
        host: Its host.
        began: When it called for each all-reduce, or when each step began, in seconds [all-reduces or steps].
        ended: When it had each sum, or the last one of each step, in seconds [all-reduces or steps].
        retransmissions: Its retransmissions.
        computing_seconds: Time of computing in all steps; None if it was not counted.
        loading_seconds: Time of waiting for data in all steps; None if it was not counted.
        own_seconds: How long it did something else before each call, after the barrier had let it go: lateness that the
            network does not explain [all-reduces]. None if it was not counted.
        step_computing_seconds: How long it computed in each training step [steps]; None if it was not counted.
        stopped_seconds: For how long it was stopped by a fault, in all of them; None if it was not counted.
    """

    rank: int
    host: str
    began: tuple[float, ...]
    ended: tuple[float, ...]
    retransmissions: int
    computing_seconds: float | None = None
    loading_seconds: float | None = None
    own_seconds: tuple[float, ...] | None = None
    step_computing_seconds: tuple[float, ...] | None = None
    stopped_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSample:
    """The bytes on the wire in the queue of the link from `near` to `far`, `seconds` after the run began.

    A queue has a sample whenever it is not empty, and one of 0 bytes when it is found empty again. So each sample holds
    until the next one of its queue, and before the first one the queue is empty.
    """

    near: str
    far: str
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowUse:
    """A flow outside of jobs that has arrived.

    Attributes:
        source: The host that sent it.
        destination: The host that received it.
        source_rank: Rank of the source.
        destination_rank: Rank of the destination.
        port: Its destination port in the trace; 100, that of ordinary flows in HPCC's simulations, without one.
        bytes: Bytes of payload.
        start: When it began, in seconds from the beginning of the run.
        seconds: Time until its last byte had arrived.
        alone_seconds: The time that it takes alone on its links (models/alone.py).
    """

    source: str
    destination: str
    source_rank: int
    destination_rank: int
    port: int
    bytes: int
    start: float
    seconds: float
    alone_seconds: float


@dataclass(frozen=True, slots=True)
class Usage:
    """The counts of one run: links that carried or dropped something, workers by rank, samples of queues, and flows.

    Diagnosis needs neither samples nor flows: from_columns() and read_usage() leave them out.
    """

    links: tuple[LinkUse, ...]
    workers: tuple[WorkerUse, ...]
    queues: tuple[QueueSample, ...] = ()
    flows: tuple[FlowUse, ...] = ()

    @property
    def seconds(self) -> float:
        """Return the time of all all-reduces together in seconds, each from the first call to the last result."""
        return float(spans(self.workers).sum())

    def as_columns(self) -> dict[str, list[Row]]:
        """Return the counts as values for JSON."""
        return {
            "links": _rows(LinkUse, self.links),
            "workers": _rows(WorkerUse, self.workers),
            "queues": _rows(QueueSample, self.queues),
            "flows": _rows(FlowUse, self.flows),
        }

    @classmethod
    def from_columns(cls, columns: Mapping[str, Sequence[Row]]) -> Usage:
        """Return the counts from the result of as_columns(), or from tables of rows.

        Raises:
            TypeError: If the columns are something else.
            KeyError: If columns are missing.
        """
        workers = sorted(columns["workers"], key=lambda one: one["rank"])
        return cls(
            tuple(LinkUse(**link) for link in columns["links"]),
            tuple(
                WorkerUse(**one | {name: tuple(one[name]) for name in _LISTS if one.get(name) is not None})
                for one in workers
            ),
        )


def _rows(kind: type[Any], counts: Sequence[Any]) -> list[Row]:
    """Return the fields of counts of one kind; asdict() would also look into each value."""
    names = [field.name for field in fields(kind)]
    return [{name: getattr(one, name) for name in names} for one in counts]


_LISTS = ("began", "ended", "own_seconds", "step_computing_seconds")  # of WorkerUse


def spans(workers: Sequence[WorkerUse]) -> NDArray[np.float64]:
    """Return the time of each all-reduce from the first call to the last result in seconds, [all-reduces]."""
    began, ended = (np.array([getattr(one, name) for one in workers]) for name in ("began", "ended"))
    return np.asarray(ended.max(axis=0) - began.min(axis=0))


def write_usage(found: Mapping[str, Mapping[str, Sequence[Row]]], folder: Path) -> None:
    """Write the counts of points, by their keys, as tables that replace earlier ones in the folder."""
    for part, name in (("links", LINKS), ("workers", WORKERS), ("queues", QUEUES), ("flows", FLOWS)):
        rows = [{"key": key, **row} for key, usage in found.items() for row in usage.get(part, ())]
        (folder / name).unlink(missing_ok=True)
        if rows:
            with replacing(folder / name) as new:
                parquet.write_table(pa.Table.from_pylist(rows), new)
    for earlier in (folder / FCT).glob("*.txt"):
        earlier.unlink()
    for key, usage in found.items():
        if flows := usage.get("flows"):
            (folder / FCT).mkdir(exist_ok=True)
            with replacing(folder / FCT / f"{key}.txt") as new:
                new.write_text(_fct_lines(flows))


def _fct_lines(flows: Sequence[Row]) -> str:
    """Return a line for each flow in the order of their ends, as HPCC's scripts read them.

    The columns are the addresses of source and destination, their ports (0 for the source), bytes, and in ns when the
    flow began, how long it took, and how long it takes alone.
    """
    return "".join(
        f"{_address(flow['source_rank'])} {_address(flow['destination_rank'])} 0 {flow['port']} {flow['bytes']} "
        f"{1e9 * flow['start']:.0f} {1e9 * flow['seconds']:.0f} {1e9 * flow['alone_seconds']:.0f}\n"
        for flow in sorted(flows, key=lambda flow: flow["start"] + flow["seconds"])
    )


def _address(rank: int) -> str:
    """Return the address that HPCC's simulator gives to the host with this number: 11.x.y.1, as hexadecimal digits."""
    return f"{0x0B000001 + (rank // 256 << 16) + (rank % 256 << 8):08x}"


def read_usage(folder: Path) -> dict[str, Usage]:
    """Return the counts of the points in a folder of results, by their keys; empty if it has none.

    Raises:
        OSError: If a file cannot be read.
        pyarrow.ArrowInvalid: If a file is not a Parquet file.
        TypeError: If a file has other columns.
        KeyError: If a file lacks columns.
    """
    if not (folder / WORKERS).exists():
        return {}
    columns: dict[str, dict[str, list[Row]]] = {}
    for part, name in (("links", LINKS), ("workers", WORKERS)):
        path = folder / name
        for row in parquet.read_table(path).to_pylist() if path.exists() else ():
            columns.setdefault(row.pop("key"), {"links": [], "workers": []})[part].append(row)
    return {key: Usage.from_columns(parts) for key, parts in columns.items()}
