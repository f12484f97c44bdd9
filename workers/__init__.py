"""Workers: all-reduce through the switches and its host-based baselines."""

from workers.collective import Collective, CollectiveError, StallError, Statistics
from workers.protocol import (
    InNetworkStatistics,
    Lease,
    LeaseExhaustedError,
    Outstanding,
    SaturationError,
    Worker,
)
from workers.recovery import Recovery
from workers.ring import RingAllReduce, RingConfig
from workers.udp import InNetworkAllReduce, InNetworkConfig

__all__ = [
    "Collective",
    "CollectiveError",
    "InNetworkAllReduce",
    "InNetworkConfig",
    "InNetworkStatistics",
    "Lease",
    "LeaseExhaustedError",
    "Outstanding",
    "Recovery",
    "RingAllReduce",
    "RingConfig",
    "SaturationError",
    "StallError",
    "Statistics",
    "Worker",
]
