"""What `import workers` offers."""

from workers.collective import Collective, CollectiveError, StallError, Statistics
from workers.communicator import Communicator, Handle
from workers.host_based.algorithm import Group
from workers.host_based.tcp import TcpAllReduce, TcpConfig
from workers.host_based.udp import UdpAllReduce, UdpGroupConfig
from workers.job.calls import AbortedError
from workers.job.membership import JoinError, LeftError, Member, join
from workers.lease import Lease
from workers.protocol import (
    InNetworkStatistics,
    LeaseExhaustedError,
    MismatchError,
    Outstanding,
    SaturationError,
    Worker,
)
from workers.recovery import Recovery
from workers.udp import InNetworkAllReduce, InNetworkConfig
from workers.values.compression import ErrorFeedback, Rounded, TopK

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
