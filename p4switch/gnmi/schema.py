"""The part of OpenConfig's tree that the switch supports: the leaves of an interface, and their values.

openconfig-interfaces with the augmentations openconfig-if-ethernet and openconfig-p4rt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from fanin.p4switch.ports.counters import PortCounters
from fanin.p4switch.ports.interfaces import Interface

LeafValue = bool | int | str

INTERFACES, ETHERNET, P4RT = "openconfig-interfaces", "openconfig-if-ethernet", "openconfig-p4rt"
MODULES = {INTERFACES: "3.7.1", ETHERNET: "2.14.0", P4RT: "1.0.0"}

_SPEEDS = {
    **{mb: f"SPEED_{mb}MB" for mb in (10, 100, 2500)},
    **{1000 * gb: f"SPEED_{gb}GB" for gb in (1, 5, 10, 25, 40, 50, 100, 200, 400, 600, 800)},
}


@dataclass(frozen=True, slots=True)
class PortState:
    """State of a port at one moment; `interface` is None if the interface does not exist."""

    number: int
    name: str
    interface: Interface | None
    counters: PortCounters
    since: int  # when it last went up or down, nanoseconds since 1970


class LeafKind(Enum):
    """Kind of a leaf's encoding: RFC 7951 makes wide numbers strings, and prefixes identities."""

    TEXT = auto()
    IDENTITY = auto()
    BOOLEAN = auto()
    NUMBER = auto()
    NUMBER64 = auto()


@dataclass(frozen=True, slots=True)
class Leaf:
    """Leaf of /interfaces/interface[name=*].

    Attributes:
        path: The elements below the interface.
        kind: The encoding of its value.
        value: Returns the value for a port, or None if there is none at present.
        module: The module of an identity.
    """

    path: tuple[str, ...]
    kind: LeafKind
    value: Callable[[PortState], LeafValue | None]
    module: str = ""

    @property
    def is_counter(self) -> bool:
        """Return whether it changes with every packet, so that no changes are reported."""
        return "counters" in self.path

    @property
    def is_config(self) -> bool:
        """Return whether it is read-write in its module; the list's key counts as such."""
        return self.path[0] in ("config", "name")

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the module of each element of the path."""
        if self.path[0] == "ethernet":
            return (ETHERNET,) * len(self.path)
        return tuple(P4RT if name == "id" else INTERFACES for name in self.path)


def _leaves() -> Iterator[Leaf]:
    yield Leaf(("name",), LeafKind.TEXT, lambda port: port.name)
    for place in "config", "state":
        yield Leaf((place, "name"), LeafKind.TEXT, lambda port: port.name)
        yield Leaf((place, "type"), LeafKind.IDENTITY, lambda _: "ethernetCsmacd", module="iana-if-type")
        yield Leaf((place, "enabled"), LeafKind.BOOLEAN, _enabled)
        yield Leaf((place, "id"), LeafKind.NUMBER, lambda port: port.number)
    yield Leaf(("state", "ifindex"), LeafKind.NUMBER, lambda port: port.number)
    yield Leaf(("state", "admin-status"), LeafKind.TEXT, lambda port: "UP" if _enabled(port) else "DOWN")
    yield Leaf(("state", "oper-status"), LeafKind.TEXT, _oper_status)
    yield Leaf(("state", "last-change"), LeafKind.NUMBER64, lambda port: port.since)
    for way in "in", "out":
        for what in "octets", "pkts", "unicast-pkts", "multicast-pkts", "broadcast-pkts", "discards":
            yield _counter(f"{way}-{what}", _crossed(f"{way}_{what}".replace("-", "_")))
    yield _counter("in-errors", _of_interface(lambda interface: interface.in_errors))
    yield _counter("in-fcs-errors", _of_interface(lambda interface: interface.in_crc_errors))
    yield _counter("out-errors", _of_interface(lambda interface: interface.out_errors))
    yield _counter("carrier-transitions", _of_interface(lambda interface: interface.carrier_changes))
    speed = _of_interface(lambda interface: _SPEEDS.get(interface.speed or 0))
    yield Leaf(("ethernet", "state", "port-speed"), LeafKind.IDENTITY, speed, module=ETHERNET)
    address = _of_interface(lambda interface: interface.address or None)
    yield Leaf(("ethernet", "state", "mac-address"), LeafKind.TEXT, address)


def _counter(name: str, value: Callable[[PortState], LeafValue | None]) -> Leaf:
    return Leaf(("state", "counters", name), LeafKind.NUMBER64, value)


def _crossed(attribute: str) -> Callable[[PortState], LeafValue]:
    return lambda port: int(getattr(port.counters, attribute))


def _of_interface(value: Callable[[Interface], LeafValue | None]) -> Callable[[PortState], LeafValue | None]:
    return lambda port: None if port.interface is None else value(port.interface)


def _enabled(port: PortState) -> bool:
    return port.interface is not None and port.interface.up


def _oper_status(port: PortState) -> str:
    if port.interface is None:
        return "NOT_PRESENT"
    return "UP" if port.interface.running else "DOWN"


LEAVES = tuple(_leaves())
ENABLED = next(leaf for leaf in LEAVES if leaf.path == ("config", "enabled"))
