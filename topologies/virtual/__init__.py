"""A network in virtual time: links, switches and hosts as a deterministic discrete-event simulation."""

from topologies.virtual.history import History
from topologies.virtual.network import Departures, HostModel, Station, SwitchProgram, VirtualNetwork
from topologies.virtual.units import SECOND

__all__ = [
    "SECOND",
    "Departures",
    "History",
    "HostModel",
    "Station",
    "SwitchProgram",
    "VirtualNetwork",
]
