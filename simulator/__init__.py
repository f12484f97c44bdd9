"""Networks in virtual time: links, switches, hosts and jobs as a deterministic discrete-event simulation."""

from fanin.simulator.history import History
from fanin.simulator.network import HostModel, Station, SwitchProgram, VirtualNetwork
from fanin.simulator.units import SECOND

__all__ = [
    "SECOND",
    "History",
    "HostModel",
    "Station",
    "SwitchProgram",
    "VirtualNetwork",
]
