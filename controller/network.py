"""What the controller needs to know of a network; `topologies.model.Topology` is one."""

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
    """A leaf-spine network: each host hangs on one leaf, each leaf on every spine."""

    @property
    def switches(self) -> Sequence[Switch]:
        """All leaves and spines."""
        ...

    @property
    def leaves(self) -> Sequence[Switch]:
        """The switches with hosts."""
        ...

    @property
    def spines(self) -> Sequence[Switch]:
        """The switches that join the leaves."""
        ...

    def hosts_of(self, leaf: str) -> Sequence[Host]:
        """The hosts below `leaf`, in the order of their ranks."""
        ...

    def port_towards(self, node: str, neighbour: str) -> int:
        """The port of `node` that leads to `neighbour`."""
        ...

    def interfaces(self, node: str) -> Mapping[int, str]:
        """The interface of each port of `node`."""
        ...
