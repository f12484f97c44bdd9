"""What workers report of themselves to the job service (workers/job/reporting.py), and when they were heard last."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from fanin.native.text import MAX_NAME, is_name

_MAX_OPEN = 1 << 15  # chunks: the slot numbers of the protocol

_MAX_REASONS = 64  # for which a worker ignores packets


def _checked_name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"a name has at most {MAX_NAME} characters, all printable")
    return text


Name = Annotated[str, AfterValidator(_checked_name)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Chunks = Annotated[float, Field(ge=0, allow_inf_nan=False)]  # in flight, on average
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Waiting(_Frozen):
    """The results that a worker waited for when it reported: Outstanding of workers/protocol.py, without the lease."""

    all_reduce: Count
    elements: Count
    announcing: bool
    accepted: Count
    total: Count
    chunks: tuple[tuple[Count, Count], ...]
    sent: tuple[Count, Count]
    waiting: Seconds
    silent: Seconds

    @field_validator("chunks")
    @classmethod
    def _are_few(cls, chunks: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
        """Whoever explains them looks at each."""
        sizes = [last + 1 - first for first, last in chunks]
        if min(sizes, default=1) < 1 or sum(sizes) > _MAX_OPEN:
            raise ValueError(f"chunks are ranges of {_MAX_OPEN:,} chunks at most together")
        return chunks


class Report(_Frozen):
    """A worker's totals since its job began: InNetworkStatistics of workers/protocol.py. waiting: None: for nothing."""

    all_reduces: Count
    bytes_sent: Count
    bytes_received: Count
    retransmissions: Count
    datagrams_sent: Count
    datagrams_received: Count
    accepted: Count
    timeouts: Count
    saturated: Count
    ignored: dict[Name, Count] = Field(max_length=_MAX_REASONS)
    smoothed_rtt: Seconds | None
    rto: Seconds
    congestion_window: Chunks
    waiting: Waiting | None


class WorkerState(_Frozen):
    """What is known of a worker. joined, heard: in seconds of the Unix epoch; heard: None: it has not reported yet."""

    host: str
    process: int
    joined: float
    left: bool
    heard: float | None
    report: Report | None


@dataclass(slots=True)
class Heard:
    """Of one worker, since it joined."""

    joined: float = field(default_factory=time.time)
    heard: float | None = None
    report: Report | None = None

    def take(self, document: object) -> None:
        """A report has come.

        Raises:
            ValueError: it is none.
        """
        self.report = Report.model_validate(document)
        self.heard = time.time()


class Reporting(Protocol):
    """A worker that is connected."""

    host: str
    process: int
    left: asyncio.Event
    heard: Heard


def state_of(worker: Reporting) -> Mapping[str, Any]:
    """What is known of it, as WorkerState takes it."""
    heard = worker.heard
    return {
        "host": worker.host,
        "process": worker.process,
        "joined": heard.joined,
        "left": worker.left.is_set(),
        "heard": heard.heard,
        "report": None if heard.report is None else heard.report.model_dump(),
    }
