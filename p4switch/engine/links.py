"""Emulated links at a switch's ports, as data and as text; runtime/ports/link.h has the other side."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from decimal import Decimal
from enum import StrEnum
from typing import Any

from fanin.p4switch.engine.library import LinkSettings, LinkStatistics

_PICOSECONDS = 1e12  # in a second


class LinkError(ValueError):
    """Properties that no link can have; names the property and what it may be."""


class Direction(StrEnum):
    """Which packets an emulated link carries: those that leave by the port, or those that come in."""

    EGRESS = "egress"
    INGRESS = "ingress"


@dataclass(frozen=True, slots=True)
class Burst:
    """Loss in bursts after Gilbert and Elliott: a chain of two states, a step a packet; `loss` in the bad one."""

    begin: float
    end: float
    loss: float = 1.0


@dataclass(frozen=True, slots=True)
class LinkProperties:
    """One direction of a link.

    rate: bits/s; None: unlimited, and nothing waits.
    delay: seconds from the last bit sent to the far end's having it.
    jitter: up to this many seconds more for each packet, which does not overtake the one before.
    queue_bytes: a packet that finds no room is dropped; None: there always is.
    ecn_bytes: a packet that finds more waiting is marked, if it is ECN-capable (RFC 3168).
    loss, corruption, duplication, reordering: probabilities, for each packet by itself. In a corrupted packet one bit
    is flipped, anywhere from the Ethernet header on.
    displacement: seconds that a reordered packet, or the copy of a duplicated one, may come later.
    overhead: bytes that a frame takes on the wire besides its own.
    seed: of what is drawn.
    """

    rate: float | None = None
    delay: float = 0.0
    jitter: float = 0.0
    queue_bytes: int | None = None
    ecn_bytes: int | None = None
    loss: float = 0.0
    corruption: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    displacement: float = 0.0
    burst: Burst | None = None
    overhead: int = 0
    seed: int = 0

    def given(self) -> dict[str, Any]:
        """The properties that are not the default ones, as `changed` takes them."""
        return {f.name: value for f in fields(self) if (value := _data(getattr(self, f.name))) != f.default}

    def for_runtime(self) -> LinkSettings:
        """As the runtime takes them."""
        burst = self.burst or Burst(0, 1)
        return LinkSettings(
            rate=self.rate or 0,
            delay=self.delay,
            jitter=self.jitter,
            queue_bytes=math.inf if self.queue_bytes is None else self.queue_bytes,
            ecn_bytes=math.inf if self.ecn_bytes is None else self.ecn_bytes,
            loss=self.loss,
            corruption=self.corruption,
            duplication=self.duplication,
            reordering=self.reordering,
            displacement=self.displacement,
            burst_begin=burst.begin,
            burst_end=burst.end,
            burst_loss=burst.loss,
            overhead=self.overhead,
            seed=self.seed,
        )


def _data(value: Any) -> Any:
    return asdict(value) if isinstance(value, Burst) else value


def changed(properties: LinkProperties, given: Mapping[str, Any]) -> LinkProperties:
    """Properties with some of them changed: numbers, or texts with units such as `100M`, `1ms` and `1%`; None: default.

    Raises:
        LinkError: one does not exist, or is out of range.
    """
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _READERS:
            raise LinkError(f"{name}: unknown link property; there are {', '.join(_READERS)}")
        values[name] = _DEFAULTS[name] if value is None else _READERS[name](name, value)
    found = replace(properties, **values)
    if found.reordering and not found.displacement:
        raise LinkError(
            "reordering: needs a displacement, how much later such a packet may come (displacement=1ms)"
        )
    if found.queue_bytes is not None and found.ecn_bytes is not None and found.ecn_bytes >= found.queue_bytes:
        raise LinkError(
            f"ecn_bytes: with {found.ecn_bytes} waiting of {found.queue_bytes} (queue_bytes) a packet is dropped, "
            "never marked: give less"
        )
    return found


def link_option(text: str) -> tuple[int, Direction, dict[str, str]]:
    """Port, direction and properties in `PORT[:ingress]:NAME=VALUE,…`.

    Raises:
        LinkError: it is not written so.
    """
    place, _, listed = text.rpartition(":")
    number, _, direction = place.partition(":")
    pairs = [item.partition("=") for item in listed.split(",")]
    if (
        not number.isdecimal()
        or direction not in ("", *Direction)
        or not all(equals for _, equals, _ in pairs)
    ):
        raise LinkError(
            "write PORT:NAME=VALUE,… or PORT:ingress:NAME=VALUE,…, for example 1:delay=1ms,loss=1%"
        )
    return int(number), Direction(direction or "egress"), {name: value for name, _, value in pairs}


def report(properties: LinkProperties, statistics: LinkStatistics | None) -> dict[str, Any]:
    """A link as data; times in seconds. `statistics` are None while the switch has no program."""
    answer: dict[str, Any] = {"properties": properties.given()}
    if statistics is not None:
        answer |= {
            "queue_bytes": statistics.queue_bytes,
            "highest_queue_bytes": statistics.highest_bytes,
            "on_the_way": statistics.held,
            "offered": statistics.offered,
            "sent": statistics.sent,
            "sent_bytes": statistics.sent_bytes,
            "drops": {
                "loss": statistics.lost,
                "burst": statistics.burst_lost,
                "queue": statistics.queue_dropped,
                "memory": statistics.memory_dropped,
            },
            "marked": statistics.marked,
            "corrupted": statistics.corrupted,
            "duplicated": statistics.duplicated,
            "reordered": statistics.reordered,
            "lateness": {
                "mean": statistics.lateness_sum / max(1, statistics.sent) / _PICOSECONDS,
                "most": statistics.lateness_most / _PICOSECONDS,
                "late": statistics.late,
            },
        }
    return answer


# Properties from numbers and texts

_DECIMAL = {"": "1", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12"}
_BINARY = {"Ki": "1024", "Mi": "1048576"}
_UNITS = {
    "bits/s": {p + unit: n for p, n in _DECIMAL.items() for unit in ("", "bit", "b/s", "bit/s")},
    "bytes": {p + unit: n for p, n in (_DECIMAL | _BINARY).items() for unit in ("", "B")},
    "seconds": {"": "1", "s": "1", "ms": "1e-3", "us": "1e-6", "µs": "1e-6", "ns": "1e-9"},
    "a probability": {"": "1", "%": "0.01"},
    "a whole number": {"": "1"},
}
_NUMBER = re.compile(r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\s*(\S*)")


def _quantity(name: str, value: Any, kind: str, low: float = 0, high: float = math.inf) -> float:
    match = _NUMBER.fullmatch(str(value).strip())
    units = _UNITS[kind]
    if isinstance(value, bool) or match is None or match[2] not in units:
        known = ", ".join(unit for unit in units if unit)
        raise LinkError(
            f"{name}: {value!r} is not a number of {kind}" + (f" (units: {known})" if known else "")
        )
    number = float(Decimal(match[1]) * Decimal(units[match[2]]))
    if not low <= number <= high:
        raise LinkError(f"{name}: {value} is not from {low:g} to {high:g}")
    return number


def _rate(name: str, value: Any) -> float:
    return _quantity(name, value, "bits/s", 1e3, 1e12)


def _bytes(name: str, value: Any) -> int:
    return round(_quantity(name, value, "bytes", 0, 1e12))


def _seconds(name: str, value: Any) -> float:
    return _quantity(name, value, "seconds", 0, 3600)


def _probability(name: str, value: Any) -> float:
    return _quantity(name, value, "a probability", 0, 1)


def _seed(name: str, value: Any) -> int:
    return int(_quantity(name, value, "a whole number", 0, 2**53))  # more does not arrive whole over JSON


def _burst(name: str, value: Any) -> Burst:
    if isinstance(value, Burst):
        value = asdict(value)
    if isinstance(value, str):
        value = dict(zip(("begin", "end", "loss"), value.split("/", 2), strict=False))
    if not isinstance(value, Mapping) or not {"begin", "end"} <= value.keys() <= {"begin", "end", "loss"}:
        raise LinkError(f"{name}: write BEGIN/END or BEGIN/END/LOSS, three probabilities, not {value}")
    return Burst(**{part: _probability(f"{name}.{part}", number) for part, number in value.items()})


_READERS = {
    "rate": _rate,
    "delay": _seconds,
    "jitter": _seconds,
    "queue_bytes": _bytes,
    "ecn_bytes": _bytes,
    "loss": _probability,
    "corruption": _probability,
    "duplication": _probability,
    "reordering": _probability,
    "displacement": _seconds,
    "burst": _burst,
    "overhead": _bytes,
    "seed": _seed,
}
_DEFAULTS = {field.name: field.default for field in fields(LinkProperties)}
