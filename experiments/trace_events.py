"""Recordings as traces that Perfetto and Chrome show, in the JSON trace-event format.

The format: docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times are in microseconds.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from fanin.experiments.virtual.recording import Call, CellChange, Flight, PacketRecording

_PICOSECONDS = 10**12  # in a second; all times of virtual time are whole picoseconds
_MICROSECOND = 10**6  # picoseconds

Event = dict[str, Any]


def trace_events(recordings: Sequence[PacketRecording]) -> dict[str, Any]:
    """Return a JSON document with processes for each recording: its workers, buckets, links, and each switch's slots.

    Each worker is a thread with its calls, and each bucket one with its sums. Each link and direction is a thread with
    the packets that are being sent on it, each version of a slot one with the chunks that it holds.
    """
    events: list[Event] = []
    numbers = itertools.count(1)
    for recording in recordings:
        events += _workers(next(numbers), recording)
        events += _buckets(next(numbers), recording)
        events += _links(next(numbers), recording)
        for switch in dict.fromkeys(change.switch for change in recording.changes):
            events += _slots(next(numbers), recording, switch)
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


def _buckets(process: int, recording: PacketRecording) -> Iterator[Event]:
    """Yield for each bucket when it was summed: from the first worker's call to the last worker's result."""
    yield _named("process_name", process, 0, f"{recording.title}: buckets")
    spans: defaultdict[tuple[int, int], list[Call]] = defaultdict(list)
    for call in recording.calls:
        if call.bucket:  # otherwise it is a barrier
            spans[call.bucket, call.repetition].append(call)
    named = set()
    for (bucket, repetition), calls in sorted(spans.items()):
        if bucket not in named:
            named.add(bucket)
            yield _named("thread_name", process, bucket, f"bucket {bucket}")
        begin = min(_picoseconds(call.begin) for call in calls)
        end = max(_picoseconds(call.end) for call in calls)
        facts = {"bytes": calls[0].size, "last worker": max(calls, key=lambda call: call.begin).rank}
        yield _complete(f"step {repetition + 1}", "bucket", (process, bucket), begin, end - begin, facts)


def _slots(process: int, recording: PacketRecording, switch: str) -> Iterator[Event]:
    """Yield what each cell of a switch held, and from when to when."""
    yield _named("process_name", process, 0, f"{recording.title}: slots of {switch}")
    over = max(_picoseconds(call.end) for call in recording.calls)
    cells: defaultdict[tuple[int, int], list[CellChange]] = defaultdict(list)
    for change in recording.changes:
        if change.switch == switch:
            cells[change.slot, change.version].append(change)
    for thread, ((slot, version), changes) in enumerate(sorted(cells.items()), start=1):
        yield _named("thread_name", process, thread, f"slot {slot}, version {version}")
        ends = [*(_picoseconds(change.time) for change in changes[1:]), over]
        for change, end in zip(changes, ends, strict=True):
            begin, parts = _picoseconds(change.time), change.seen.bit_count()
            held = "result" if change.done else f"{parts} part{'' if parts == 1 else 's'}"
            if end > begin:
                facts = {change.stream: change.chunk, "children": parts}
                yield _complete(
                    f"chunk {change.chunk}: {held}", "slot", (process, thread), begin, end - begin, facts
                )


def _links(process: int, recording: PacketRecording) -> Iterator[Event]:
    yield _named("process_name", process, 0, f"{recording.title}: links")
    carried = defaultdict(list)
    for flight in recording.flights:
        carried[flight.link].append(flight)
    for link, flights in sorted(carried.items()):
        track = process, link + 1
        yield _named("thread_name", *track, f"{flights[0].sender} → {flights[0].receiver}")
        for flight in sorted(flights, key=lambda each: (each.begin, each.sent)):
            if flight.again != "copy":  # the link sends once what it duplicates
                yield _sending(track, flight)


def _sending(track: tuple[int, int], flight: Flight) -> Event:
    begin, end = _picoseconds(flight.begin), _picoseconds(flight.end)
    facts: dict[str, Any] = {"bytes": flight.size, flight.stream: flight.number}
    if flight.lost == "queue drop":
        return _instant(f"{flight.kind}: {flight.lost}", track, begin, facts)
    facts |= {"queued": (begin - _picoseconds(flight.joined)) / _MICROSECOND}
    facts |= {"lost": flight.lost} if flight.lost else {"arrives": end / _MICROSECOND}
    return _complete(flight.kind, "packet", track, begin, _picoseconds(flight.sent) - begin, facts)


def _complete(
    name: str, category: str, track: tuple[int, int], begin: int, duration: int, facts: dict[str, Any]
) -> Event:
    """Return a complete event, with times in picoseconds."""
    process, thread = track
    times = {"ts": begin / _MICROSECOND, "dur": duration / _MICROSECOND}
    return {"name": name, "cat": category, "ph": "X", **times, "pid": process, "tid": thread, "args": facts}


def _instant(name: str, track: tuple[int, int], time: int, facts: dict[str, Any]) -> Event:
    """Return an event without a duration, with its time in picoseconds."""
    process, thread = track
    where = {"pid": process, "tid": thread, "s": "t"}  # the arrow is as high as the track of the thread
    return {"name": name, "cat": "drop", "ph": "i", "ts": time / _MICROSECOND, **where, "args": facts}


def _named(what: str, process: int, thread: int, name: str) -> Event:
    """Return a metadata event that names a process or a thread."""
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _picoseconds(seconds: float) -> int:
    return round(seconds * _PICOSECONDS)
