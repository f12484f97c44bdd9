"""A network in virtual time: links, switches and hosts as a deterministic discrete-event simulation."""

from topologies.virtual.history import History
from topologies.virtual.links import Burst, Faults, LinkModel, PauseThresholds
from topologies.virtual.network import Departures, HostModel, Station, SwitchProgram, VirtualNetwork
from topologies.virtual.units import SECOND

__all__ = [
    "SECOND",
    "Burst",
    "Departures",
    "Faults",
    "History",
    "HostModel",
    "LinkModel",
    "PauseThresholds",
    "Station",
    "SwitchProgram",
    "VirtualNetwork",
]
