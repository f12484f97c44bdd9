"""An optical circuit switch between hosts: a host's data leaves only over a circuit to one other host at a time.

Optical switches have no buffers, so hosts hold what they send until their circuit is there. Each fibre is switched by
itself: a host may send to one host and receive from another. Acknowledgements and small messages, such as barriers, are
taken to travel over a small packet network, as in hybrid networks: they need no circuit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from math import inf

_AGAIN = 1e-6  # seconds after which a host asks again for a circuit of which an end is in use

# Returns until when a host still sends to another, in seconds: infinity while it has more; called with the other host
# and the time.
InUse = Callable[[IPv4Address, float], float]


@dataclass(slots=True)
class _Circuit:
    destination: IPv4Address
    up_at: float


class Circuits:
    """The circuits of an optical switch.

    Args:
        reconfiguration: Seconds in which the switch replaces circuits by another one, which then is dark.

    Attributes:
        changes: How many circuits have been set up.
    """

    def __init__(self, reconfiguration: float) -> None:
        self.changes = 0
        self._reconfiguration = reconfiguration
        self._in_use: dict[IPv4Address, InUse] = {}
        self._from: dict[IPv4Address, _Circuit] = {}  # by source
        self._to: dict[IPv4Address, IPv4Address] = {}  # the source, by destination

    def attach(self, host: IPv4Address, in_use: InUse) -> None:
        """Add a host."""
        self._in_use[host] = in_use

    def up_at(self, source: IPv4Address, destination: IPv4Address, now: float) -> float:
        """Return when data may leave for the destination, in seconds, or when to ask again; set up a circuit if needed.

        Circuits that one end or the other has are kept until nobody sends over them.
        """
        own = self._from.get(source)
        if own is not None and own.destination == destination:
            return own.up_at
        begin = now
        if own is not None:
            begin = max(begin, own.up_at, self._in_use[source](own.destination, now))
        other = self._to.get(destination)
        if other is not None:
            begin = max(begin, self._from[other].up_at, self._in_use[other](destination, now))
        if begin == inf:
            return now + _AGAIN
        if own is not None:
            del self._to[own.destination]
        if other is not None:
            del self._from[other]
        self._from[source] = _Circuit(destination, begin + self._reconfiguration)
        self._to[destination] = source
        self.changes += 1
        return self._from[source].up_at
