"""The public names of `fanin.workers`."""

from fanin.workers.collective import Collective, CollectiveError, StallError, Statistics
from fanin.workers.communicator import Communicator, Handle
from fanin.workers.host_based.participant import Group
from fanin.workers.host_based.tcp import TcpAllReduce, TcpConfig
from fanin.workers.host_based.udp import UdpAllReduce, UdpGroupConfig
from fanin.workers.job.calls import AbortedError
from fanin.workers.job.membership import JoinError, LeftError, Member, join
from fanin.workers.lease import Lease
from fanin.workers.protocol import (
    InNetworkStatistics,
    LeaseExhaustedError,
    MismatchError,
    Outstanding,
    SaturationError,
    Worker,
)
from fanin.workers.recovery import Recovery
from fanin.workers.udp import InNetworkAllReduce, InNetworkConfig
from fanin.workers.values.compression import ErrorFeedback, Rounded, TopK

__all__ = [
    "AbortedError",
    "Collective",
    "CollectiveError",
    "Communicator",
    "ErrorFeedback",
    "Group",
    "Handle",
    "InNetworkAllReduce",
    "InNetworkConfig",
    "InNetworkStatistics",
    "JoinError",
    "Lease",
    "LeaseExhaustedError",
    "LeftError",
    "Member",
    "MismatchError",
    "Outstanding",
    "Recovery",
    "Rounded",
    "SaturationError",
    "StallError",
    "Statistics",
    "TcpAllReduce",
    "TcpConfig",
    "TopK",
    "UdpAllReduce",
    "UdpGroupConfig",
    "Worker",
    "join",
]
