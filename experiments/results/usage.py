"""Counts of each link and each worker in a run, from counters and clocks alone.

It is written to links.parquet, workers.parquet and, where queues were sampled, queues.parquet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from fanin.native.files import replacing

LINKS, WORKERS, QUEUES = "links.parquet", "workers.parquet", "queues.parquet"

Phase = Literal["job", "after"]

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """One direction of a link in one phase, from the node `near` to the node `far`. None: nobody has counted it.

    phase: "job", from the beginning of the run until the job's last sum; "after", until the last of what else is sent.
    The sums over both are those of the run. seconds: how long the phase was.
    bytes: of frames. wire_bytes: with what Ethernet adds. busy_seconds, paused_seconds: for how long it sent, and was
    told to wait (the sum over its priorities). storms, watchdog_drops: how often a watchdog took that for one that does
    not end, and packets that it dropped. overtaken_seconds: for how long it sent packets of a higher priority while
    some of the job's waited; lower_bytes: of wire_bytes, those of packets of a lower priority than the job's.
    waited_seconds: the sum over packets of the time until they began to be sent. mean_queue, longest_queue: bytes on
    the wire in the queue at its near end, with what is left of the packet that is being sent. queue_drops: packets that
    found no room there. lost: packets, on the link.
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

    @property
    def name(self) -> str:
        """As users read it."""
        return f"{self.near} → {self.far}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUse:
    """A worker: seconds at which it called for each all-reduce and had its sum, [all-reduces]; packets sent again.

    computing_seconds: in all steps of a model that is cut, whose all-reduces these are; None: nobody has counted it.
    """

    rank: int
    host: str
    began: tuple[float, ...]
    ended: tuple[float, ...]
    retransmissions: int
    computing_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSample:
    """The bytes on the wire in the queue of the link from `near` to `far`, `seconds` after the run began.

    A queue has a sample whenever it is not empty, and one of 0 bytes when it is found empty again. So each sample
    holds until the next one of its queue, and before the first one the queue is empty.
    """

    near: str
    far: str
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The counts of one run: links that carried or dropped something, workers by rank, and samples of queues.

    Diagnosis needs no samples: from_columns() and read_usage() leave them out.
    """

    links: tuple[LinkUse, ...]
    workers: tuple[WorkerUse, ...]
    queues: tuple[QueueSample, ...] = ()

    @property
    def seconds(self) -> float:
        """Of all all-reduces together, each from the first call to the last result."""
        return float(spans(self.workers).sum())

    def as_columns(self) -> dict[str, list[Row]]:
        """For JSON."""
        return {
            "links": [asdict(link) for link in self.links],
            "workers": [asdict(worker) for worker in self.workers],
            "queues": [asdict(sample) for sample in self.queues],
        }

    @classmethod
    def from_columns(cls, columns: Mapping[str, Sequence[Row]]) -> Usage:
        """What as_columns() made, or a table of rows.

        Raises:
            TypeError, KeyError: it is something else.
        """
        workers = sorted(columns["workers"], key=lambda one: one["rank"])
        return cls(
            tuple(LinkUse(**link) for link in columns["links"]),
            tuple(
                WorkerUse(**one | {"began": tuple(one["began"]), "ended": tuple(one["ended"])})
                for one in workers
            ),
        )


def spans(workers: Sequence[WorkerUse]) -> NDArray[np.float64]:
    """Of each all-reduce, from the first call to the last result, in seconds: [all-reduces]."""
    began, ended = (np.array([getattr(one, name) for one in workers]) for name in ("began", "ended"))
    return np.asarray(ended.max(axis=0) - began.min(axis=0))


def write_usage(found: Mapping[str, Mapping[str, Sequence[Row]]], folder: Path) -> None:
    """Write the usage of points, by their keys, as tables; nothing is left there of earlier ones."""
    for part, name in (("links", LINKS), ("workers", WORKERS), ("queues", QUEUES)):
        rows = [{"key": key, **row} for key, usage in found.items() for row in usage.get(part, ())]
        (folder / name).unlink(missing_ok=True)
        if rows:
            with replacing(folder / name) as new:
                parquet.write_table(pa.Table.from_pylist(rows), new)


def read_usage(folder: Path) -> dict[str, Usage]:
    """Of the points of a folder of results, by their keys; empty, where it has none.

    Raises:
        OSError, pyarrow.ArrowInvalid, TypeError, KeyError: a file that cannot be read, or is something else.
    """
    if not (folder / WORKERS).exists():
        return {}
    columns: dict[str, dict[str, list[Row]]] = {}
    for part, name in (("links", LINKS), ("workers", WORKERS)):
        path = folder / name
        for row in parquet.read_table(path).to_pylist() if path.exists() else ():
            columns.setdefault(row.pop("key"), {"links": [], "workers": []})[part].append(row)
    return {key: Usage.from_columns(parts) for key, parts in columns.items()}
