"""Recordings as JSON, which the theatre plays; docs/reference/recordings.md describes every key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fanin.experiments.virtual.recording import PacketRecording
from fanin.native.text import printable
from fanin.simulator.units import SECOND

VERSION = 1

Document = dict[str, Any]


def recording_document(name: str, description: str, recordings: Sequence[PacketRecording]) -> Document:
    """Return recordings that are to be played on one clock.

    Args:
        name: What the recordings show.
        description: The same in a sentence, or "".
        recordings: One recording for each point.
    """
    return {
        "format": "fanin-recording",
        "version": VERSION,
        "name": printable(name),
        "description": printable(description),
        "points": [_point(each) for each in recordings],
    }


def _point(recording: PacketRecording) -> Document:
    network = recording.network
    streams = _Numbers()
    kinds, reasons, repeats = _Numbers(), _Numbers(), _Numbers()
    reasons.of(""), repeats.of("")
    flights = {
        "link": [one.link for one in recording.flights],
        "joined": [_picoseconds(one.joined) for one in recording.flights],
        "begin": [_picoseconds(one.begin) for one in recording.flights],
        "sent": [_picoseconds(one.sent) for one in recording.flights],
        "end": [_picoseconds(one.end) for one in recording.flights],
        "bytes": [one.size for one in recording.flights],
        "kind": [kinds.of(one.kind) for one in recording.flights],
        "stream": [streams.of(one.stream) for one in recording.flights],
        "number": [one.number for one in recording.flights],
        "again": [repeats.of(one.again) for one in recording.flights],
        "lost": [reasons.of(one.lost) for one in recording.flights],
    }
    switches = [switch.name for switch in network.switches]
    changes = {
        "time": [_picoseconds(one.time) for one in recording.changes],
        "switch": [switches.index(one.switch) for one in recording.changes],
        "slot": [one.slot for one in recording.changes],
        "version": [one.version for one in recording.changes],
        "stream": [streams.of(one.stream) for one in recording.changes],
        "chunk": [one.chunk for one in recording.changes],
        "seen": [one.seen for one in recording.changes],
        "done": [int(one.done) for one in recording.changes],
    }
    return {
        "title": printable(recording.title),
        "operation": recording.operation,
        "duration": _picoseconds(recording.seconds),
        "hosts": [host.name for host in network.ranked_hosts],
        "switches": switches,
        "tiers": [[switch.name for switch in tier] for tier in network.tiers],
        "links": [[link.a.node, link.b.node, link.rate_bits_per_second] for link in network.links],
        "workers": list(recording.workers),
        "aggregators": [{"switch": one.switch, "children": one.children} for one in recording.aggregators],
        "calls": [
            [one.rank, _picoseconds(one.begin), _picoseconds(one.end), one.bucket, one.size]
            for one in recording.calls
        ],
        "kinds": kinds.names,
        "repeats": repeats.names,
        "reasons": reasons.names,
        "streams": streams.names,
        "flights": flights,
        "changes": changes,
    }


class _Numbers:
    """Numbers of names, in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of(self, name: str) -> int:
        """Return the number of a name."""
        return self._numbers.setdefault(name, len(self._numbers))

    @property
    def names(self) -> list[str]:
        """Return all names, by their numbers."""
        return [*self._numbers]


def _picoseconds(seconds: float) -> int:
    return round(seconds * SECOND)
