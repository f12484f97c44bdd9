"""What a gNMI stream sends when (gNMI specification 3.5.1.5.2).

Time is the caller's, in nanoseconds; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fanin.p4switch.gnmi.paths import Selected, text
from fanin.p4switch.gnmi.schema import LeafValue
from fanin.p4switch.p4runtime.errors import invalid
from fanin.p4switch.p4runtime.proto import gnmi

# Nobody tells of counters: where their changes are wanted, they are looked at so often.
COUNTERS_EVERY = 1_000_000_000
# Shorter ones become it: Stratum reads the number as milliseconds, and controllers write what Stratum understands.
SHORTEST_INTERVAL = 100_000_000

LeafValues = Mapping[Selected, LeafValue | None]


@dataclass
class Watch:
    """Leaves that are looked at together: every `period`, or when there is news (None).

    `redundant` ones are sent at every look, others if they have changed; all of them once in a `heartbeat`.
    """

    selected: Sequence[Selected]
    period: int | None = None
    redundant: bool = False
    heartbeat: int | None = None
    _next_look: int | None = None
    _next_beat: int | None = None
    _last: dict[Selected, LeafValue | None] = field(default_factory=dict)

    def start(self, now: int, values: LeafValues) -> None:
        """From now on, when these values are known."""
        self._last = {found: values[found] for found in self.selected}
        self._next_look = None if self.period is None else now + self.period
        self._next_beat = None if self.heartbeat is None else now + self.heartbeat

    @property
    def deadline(self) -> int | None:
        """When it is to look at the latest; None: at the next news."""
        return min((due for due in (self._next_look, self._next_beat) if due is not None), default=None)

    def look(self, now: int, values: LeafValues) -> dict[Selected, LeafValue | None]:
        """What is to be sent; None: the leaf is gone."""
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
    """What a subscription of a stream comes to; TARGET_DEFINED is ON_CHANGE.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT for a mode that does not exist.
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
