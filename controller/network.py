"""The interface of a network that the controller uses; implemented by `fanin.topologies.model.Topology`."""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from typing import Protocol


class Server(Protocol):
    """A switch and the port of its P4Runtime server on this machine."""

    name: str
    device_id: int
    grpc_port: int


class Switch(Server, Protocol):
    """A switch with its own addresses."""

    ip: IPv4Address
    mac: str


class Host(Protocol):
    """A host."""

    name: str
    ip: IPv4Address
    prefix_length: int
    mac: str


class Network(Protocol):
    """A network of tiers: each host attaches to a switch of the lowest one, and links join neighbouring tiers."""

    @property
    def switches(self) -> Sequence[Switch]:
        """Return all switches."""
        ...

    @property
    def tiers(self) -> Sequence[Sequence[Switch]]:
        """Return the switches by tier, from the hosts up."""
        ...

    @property
    def leaves(self) -> Sequence[Switch]:
        """Return the lowest tier: the switches with hosts."""
        ...

    def hosts_of(self, leaf: str) -> Sequence[Host]:
        """Return the hosts of `leaf`, in the order of their ranks."""
        ...

    def neighbours(self, node: str) -> Mapping[int, str]:
        """Return the node at the far end of each port of `node`."""
        ...

    def port_towards(self, node: str, neighbour: str) -> int:
        """Return the port of `node` that leads to `neighbour`."""
        ...

    def interfaces(self, node: str) -> Mapping[int, str]:
        """Return the interface of each port of `node`."""
        ...

    def rate_towards(self, node: str, neighbour: str) -> int | None:
        """Return the rate of the link from `node` to `neighbour` in bits per second; None if it is unlimited."""
        ...
