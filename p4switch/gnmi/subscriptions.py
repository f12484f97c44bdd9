"""The contents and times of a gNMI stream's messages (gNMI specification 3.5.1.5.2).

The caller passes the time, in nanoseconds. Nothing here waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fanin.p4switch.gnmi.paths import Selected, text
from fanin.p4switch.gnmi.proto import gnmi
from fanin.p4switch.gnmi.schema import LeafValue
from fanin.p4switch.p4runtime.errors import invalid

# Counters cause no notifications: where their changes are wanted, they are sampled at this interval.
COUNTERS_EVERY = 1_000_000_000
# Shorter intervals are raised to it: Stratum reads the number as milliseconds, and controllers are written for Stratum.
SHORTEST_INTERVAL = 100_000_000

LeafValues = Mapping[Selected, LeafValue | None]


@dataclass
class Watch:
    """Leaves of a subscription that are read together.

    Attributes:
        selected: The leaves.
        period: Nanoseconds between two readings. None means after each change.
        redundant: Whether values are sent even if they have not changed.
        heartbeat: Nanoseconds after which all values are sent in any case, or None.
    """

    selected: Sequence[Selected]
    period: int | None = None
    redundant: bool = False
    heartbeat: int | None = None
    _next_look: int | None = None
    _next_beat: int | None = None
    _last: dict[Selected, LeafValue | None] = field(default_factory=dict)

    def start(self, now: int, values: LeafValues) -> None:
        """Start at `now`, with these values known to the client."""
        self._last = {found: values[found] for found in self.selected}
        self._next_look = None if self.period is None else now + self.period
        self._next_beat = None if self.heartbeat is None else now + self.heartbeat

    @property
    def deadline(self) -> int | None:
        """Return the time of the next reading at the latest; None means at the next change."""
        return min((due for due in (self._next_look, self._next_beat) if due is not None), default=None)

    def look(self, now: int, values: LeafValues) -> dict[Selected, LeafValue | None]:
        """Return the values to send now; None for a leaf that no longer exists."""
        beat = self._next_beat is not None and now >= self._next_beat
        turn = self._next_look is not None and now >= self._next_look
        if self.period is not None and not turn and not beat:
            return {}
        if turn:
            self._next_look = now + (self.period or 0)
        if beat:
            self._next_beat = now + (self.heartbeat or 0)
        every = beat or (turn and self.redundant)
        sent = {
            found: values[found]
            for found in self.selected
            if values[found] != self._last[found] or (every and values[found] is not None)
        }
        self._last.update(sent)
        return sent


def watches(subscription: gnmi.Subscription, selected: Sequence[Selected]) -> Iterator[Watch]:
    """Yield the watches that a subscription of a stream needs. TARGET_DEFINED is treated as ON_CHANGE.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT for an unknown mode.
    """
    heartbeat = subscription.heartbeat_interval or None
    if heartbeat is not None:
        heartbeat = max(heartbeat, SHORTEST_INTERVAL)
    match subscription.mode:
        case gnmi.SAMPLE:
            interval = max(subscription.sample_interval, SHORTEST_INTERVAL)
            yield Watch(selected, interval, not subscription.suppress_redundant, heartbeat)
        case gnmi.ON_CHANGE | gnmi.TARGET_DEFINED:
            for period in None, COUNTERS_EVERY:
                leaves = [found for found in selected if found.leaf.is_counter == (period is not None)]
                if leaves:
                    yield Watch(leaves, period, heartbeat=heartbeat)
        case mode:
            raise invalid(f"{text(subscription.path.elem)}: subscription mode {mode} does not exist")
