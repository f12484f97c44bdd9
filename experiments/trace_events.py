"""Recordings as traces that Perfetto and Chrome show, in the JSON trace-event format.

The format: docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times are in microseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from fanin.experiments.virtual.recording import Flight, PacketRecording

_PICOSECONDS = 10**12  # in a second; all times of virtual time are whole picoseconds
_MICROSECOND = 10**6  # picoseconds

Event = dict[str, Any]


def trace_events(recordings: Sequence[PacketRecording]) -> dict[str, Any]:
    """Return a JSON document with two processes for each recording: its workers and its links.

    Each worker is a thread with its calls, each link and direction one with the packets that are being sent on it.
    """
    events: list[Event] = []
    for number, recording in enumerate(recordings):
        events += _workers(2 * number + 1, recording)
        events += _links(2 * number + 2, recording)
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _workers(process: int, recording: PacketRecording) -> Iterator[Event]:
    yield _named("process_name", process, 0, f"{recording.title}: workers")
    for rank, host in enumerate(recording.workers):
        yield _named("thread_name", process, rank + 1, f"worker {rank} on {host}")
    buckets = max((call.bucket for call in recording.calls), default=0)
    for call in recording.calls:
        name = f"{recording.operation}, bucket {call.bucket}" if buckets > 1 else recording.operation
        begin = _picoseconds(call.begin)
        yield _complete(
            "barrier" if call.bucket == 0 else name,
            "call",
            (process, call.rank + 1),
            begin,
            _picoseconds(call.end) - begin,
            {"repetition": call.repetition + 1, "bytes": call.size},
        )


def _links(process: int, recording: PacketRecording) -> Iterator[Event]:
    yield _named("process_name", process, 0, f"{recording.title}: links")
    carried = defaultdict(list)
    for flight in recording.flights:
        carried[flight.link].append(flight)
    for link, flights in sorted(carried.items()):
        yield _named("thread_name", process, link + 1, f"{flights[0].sender} → {flights[0].receiver}")
        yield from reversed([*_sending(process, flights)])


def _sending(process: int, flights: Sequence[Flight]) -> Iterator[Event]:
    """Yield a link's packets, the last one first.

    A link sends one packet at a time. Where jitter or reordering makes packets seem to overlap, each is sent as late as
    its arrival and the packets behind it allow.
    """
    free_until = None
    for flight in sorted(flights, key=lambda each: (each.sent, each.begin), reverse=True):
        duration = _picoseconds(flight.sent - flight.begin)
        sent = _picoseconds(flight.sent)
        sent = sent if free_until is None else min(sent, free_until)
        free_until = sent - duration
        yield _complete(
            flight.kind,
            "packet",
            (process, flight.link + 1),
            free_until,
            duration,
            {"bytes": flight.size, "arrives": _picoseconds(flight.end) / _MICROSECOND},
        )


def _complete(
    name: str, category: str, track: tuple[int, int], begin: int, duration: int, facts: dict[str, Any]
) -> Event:
    """Return a complete event, with times in picoseconds."""
    process, thread = track
    times = {"ts": begin / _MICROSECOND, "dur": duration / _MICROSECOND}
    return {"name": name, "cat": category, "ph": "X", **times, "pid": process, "tid": thread, "args": facts}


def _named(what: str, process: int, thread: int, name: str) -> Event:
    """Return a metadata event that names a process or a thread."""
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _picoseconds(seconds: float) -> int:
    return round(seconds * _PICOSECONDS)
