"""What the controller needs to know of a network; `fanin.topologies.model.Topology` is one."""

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
    """A network of tiers: each host hangs on a switch of the lowest one, links join neighbouring tiers."""

    @property
    def switches(self) -> Sequence[Switch]:
        """All of them."""
        ...

    @property
    def tiers(self) -> Sequence[Sequence[Switch]]:
        """The same by tier, from the hosts up."""
        ...

    @property
    def leaves(self) -> Sequence[Switch]:
        """The lowest tier: the switches with hosts."""
        ...

    def hosts_of(self, leaf: str) -> Sequence[Host]:
        """The hosts below `leaf`, in the order of their ranks."""
        ...

    def neighbours(self, node: str) -> Mapping[int, str]:
        """What is at the far end of each port of `node`."""
        ...

    def port_towards(self, node: str, neighbour: str) -> int:
        """The port of `node` that leads to `neighbour`."""
        ...

    def interfaces(self, node: str) -> Mapping[int, str]:
        """The interface of each port of `node`."""
        ...

    def rate_towards(self, node: str, neighbour: str) -> int | None:
        """Of the link from `node` to `neighbour`, in bits a second; None: unlimited."""
        ...
