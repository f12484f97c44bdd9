"""Emulated links at a switch's ports, as data and as text. runtime/ports/link.h declares the same struct in C."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fanin.p4switch.engine.library import LinkSettings, LinkStatistics

_PICOSECONDS = 1e12  # in a second


class LinkError(ValueError):
    """Invalid property of a link. The message names it and its valid values."""


class Direction(StrEnum):
    """Direction of an emulated link: the packets that leave through the port, or those that arrive."""

    EGRESS = "egress"
    INGRESS = "ingress"


@dataclass(frozen=True, slots=True)
class Burst:
    """Loss in bursts after Gilbert and Elliott: a chain of two states, one step per packet; `loss` in the bad state."""

    begin: float
    end: float
    loss: float = 1.0


@dataclass(frozen=True, slots=True)
class LinkProperties:
    """Properties of one direction of a link.

    Attributes:
        rate: Bits per second. None means unlimited, without a queue.
        delay: Seconds from sending the last bit until the far end has it.
        jitter: The largest additional delay of a packet, in seconds. Packets do not overtake each other.
        queue_bytes: The size of the queue. A packet that does not fit is dropped. None means unlimited.
        ecn_bytes: An ECN-capable packet that finds more than this in the queue is marked (RFC 3168).
        loss: The probability that a packet is lost, independent for each packet, like the three below.
        corruption: The probability that one bit of a packet is flipped, anywhere from the Ethernet header on.
        duplication: The probability that a packet is duplicated.
        reordering: The probability that a packet is delayed so that others overtake it.
        displacement: The largest additional delay of a reordered packet or of a duplicate, in seconds.
        packet_rate: Packets per second, instead of `rate`. Then queue_bytes and ecn_bytes do not apply.
        queue_packets: The packets of each priority that wait at most before egress. None means unlimited.
        overhead: Bytes that each frame takes on the wire in addition to its own.
        seed: The seed of the random numbers.
        burst: Loss in bursts, or None.
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
    packet_rate: float | None = None
    queue_packets: int | None = None
    overhead: int = 0
    seed: int = 0

    def given(self) -> dict[str, Any]:
        """Return the properties that differ from the defaults, as `changed` takes them."""
        return {f.name: value for f in fields(self) if (value := _data(getattr(self, f.name))) != f.default}

    def for_runtime(self) -> LinkSettings:
        """Return the properties as the runtime takes them."""
        # Imported here because the command line is read before the switch is loaded.
        from fanin.p4switch.engine.library import LinkSettings

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
            packet_rate=self.packet_rate or 0,
            queue_packets=math.inf if self.queue_packets is None else self.queue_packets,
            overhead=self.overhead,
            seed=self.seed,
        )


def _data(value: Any) -> Any:
    return asdict(value) if isinstance(value, Burst) else value


def changed(properties: LinkProperties, given: Mapping[str, Any]) -> LinkProperties:
    """Return properties with some of them changed.

    Args:
        properties: The properties before.
        given: Numbers, or texts with units such as `100M`, `1ms` and `1%`. None restores the default.

    Raises:
        LinkError: If there is no such property, or it is out of range.
    """
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in _READERS:
            raise LinkError(f"{name}: unknown link property; there are {', '.join(_READERS)}")
        values[name] = _DEFAULTS[name] if value is None else _READERS[name](name, value)
    found = replace(properties, **values)
    if found.reordering and not found.displacement:
        raise LinkError(
            "reordering: needs a displacement, the largest delay of such a packet (displacement=1ms)"
        )
    if found.queue_bytes is not None and found.ecn_bytes is not None and found.ecn_bytes >= found.queue_bytes:
        raise LinkError(
            f"ecn_bytes: with {found.ecn_bytes} waiting of {found.queue_bytes} (queue_bytes) a packet is dropped, "
            "never marked: give less"
        )
    return found


def link_option(text: str) -> tuple[int, Direction, dict[str, str]]:
    """Parse `PORT[:ingress]:NAME=VALUE,…` into port, direction and properties.

    Raises:
        LinkError: If it has another form.
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
    """Return a link as data, with times in seconds. `statistics` is None while the switch has no program."""
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
    "packets/s": {**_DECIMAL, "pps": "1"},
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
    from decimal import Decimal  # not above: most switches have no link, and it takes 0.3 MB

    number = float(Decimal(match[1]) * Decimal(units[match[2]]))
    if not low <= number <= high:
        percent = (
            f"; for {value} percent, write {value}%"
            if "%" in units and not match[2] and 1 < number <= 100
            else ""
        )
        raise LinkError(f"{name}: {value} is not from {low:g} to {high:g}{percent}")
    return number


def _rate(name: str, value: Any) -> float:
    return _quantity(name, value, "bits/s", 1e3, 1e12)


def _packet_rate(name: str, value: Any) -> float:
    return _quantity(name, value, "packets/s", 1, 1e9)


def _packets(name: str, value: Any) -> int:
    return int(_quantity(name, value, "a whole number", 0, 1e9))


def _bytes(name: str, value: Any) -> int:
    return round(_quantity(name, value, "bytes", 0, 1e12))


def _seconds(name: str, value: Any) -> float:
    return _quantity(name, value, "seconds", 0, 3600)


def _probability(name: str, value: Any) -> float:
    return _quantity(name, value, "a probability", 0, 1)


def _seed(name: str, value: Any) -> int:
    # a larger number would lose digits in JSON
    return int(_quantity(name, value, "a whole number", 0, 2**53))


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
    "packet_rate": _packet_rate,
    "queue_packets": _packets,
    "overhead": _bytes,
    "seed": _seed,
}
_DEFAULTS = {field.name: field.default for field in fields(LinkProperties)}
