"""The reports of workers to the job service (workers/job/reporting.py), and when the last one arrived."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from fanin.native.text import MAX_NAME, is_name, printable

_MAX_OPEN = 1 << 15  # chunks: the slot numbers of the protocol

_MAX_REASONS = 64  # reasons for ignored packets in a report
_MAX_TIMES = 512  # calls of a worker whose times are kept
_MAX_WHAT = 200  # characters of a call


def _checked_name(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"a name has at most {MAX_NAME} characters, all printable")
    return text


Name = Annotated[str, AfterValidator(_checked_name)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Chunks = Annotated[float, Field(ge=0, allow_inf_nan=False)]  # average number in flight
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
        """Check that the ranges have few chunks together, since code that explains them looks at each."""
        sizes = [last + 1 - first for first, last in chunks]
        if min(sizes, default=1) < 1 or sum(sizes) > _MAX_OPEN:
            raise ValueError(f"chunks are ranges of at most {_MAX_OPEN:,} chunks together")
        return chunks


class Report(_Frozen):
    """A worker's totals since its job began: InNetworkStatistics of workers/protocol.py.

    `waiting` is None if the worker waits for no result.
    """

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
    """The known state of a worker.

    Attributes:
        host: Its host.
        process: Its process id.
        joined: When it joined, in seconds of the Unix epoch.
        left: Whether it has left.
        heard: When its last report arrived, in seconds of the Unix epoch. None before the first one.
        report: Its last report. None before the first one, and for all but the first worker of a host, which alone uses
            the network.
        local: Its number among the workers of its host.
        call: Number of the last call that it is known to have come to; 0 if there is none.
    """

    host: str
    process: int
    joined: float
    left: bool
    heard: float | None
    report: Report | None
    local: int = 0
    call: Count = 0


class CallTime(_Frozen):
    """Times of one call of a worker, in seconds of the Unix epoch (workers/job/calls.py).

    Attributes:
        number: The call's number, the same at all workers.
        what: The call, shortened.
        submitted: When the program made the call.
        waited: Since when the program waited for it. None if it did not, or if that is not known.
        began: When the call was carried out, after those before.
        ended: When it had ended.
    """

    number: Count
    what: Annotated[str, Field(max_length=_MAX_WHAT), AfterValidator(printable)]
    submitted: Seconds
    waited: Seconds | None
    began: Seconds
    ended: Seconds


class _CallTimes(_Frozen):
    calls: tuple[CallTime, ...] = Field(max_length=_MAX_TIMES)


@dataclass(slots=True)
class Heard:
    """The reports of one worker since it joined, and the times of its last calls."""

    joined: float = field(default_factory=time.time)
    heard: float | None = None
    report: Report | None = None
    times: deque[CallTime] = field(default_factory=lambda: deque(maxlen=_MAX_TIMES))

    def take(self, document: object) -> None:
        """Store a report that has arrived.

        Raises:
            ValueError: If it is not a valid report.
        """
        self.report = Report.model_validate(document)
        self.heard = time.time()

    def take_times(self, document: object) -> None:
        """Store the times of calls that have arrived.

        Raises:
            ValueError: If they are not valid.
        """
        self.times.extend(_CallTimes.model_validate(document).calls)


class Reporting(Protocol):
    """A worker that is connected.

    Attributes:
        local: Its number among the workers of its host.
        call: The call in which it last waited: number and text.
    """

    host: str
    process: int
    local: int
    call: tuple[int, str]
    left: asyncio.Event
    heard: Heard


def state_of(worker: Reporting) -> Mapping[str, Any]:
    """Return what is known of a worker, in the form of WorkerState."""
    heard = worker.heard
    return {
        "host": worker.host,
        "process": worker.process,
        "joined": heard.joined,
        "left": worker.left.is_set(),
        "heard": heard.heard,
        "report": None if heard.report is None else heard.report.model_dump(),
        "local": worker.local,
        "call": max(worker.call[0], heard.times[-1].number if heard.times else 0),
    }
