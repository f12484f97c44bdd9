"""What a worker process is asked to do and what it says on the way: the seam between `live` and `worker`.

Events come out as JSON documents, one a line. The first says that the worker is ready; then its task goes in, one JSON
document: once all are, so that the time some need to start is no time that the others wait for packets.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from fanin.experiments.training.sgd import Curve, TrainingConfig
from fanin.workers.collective import HostBasedAlgorithm, Transport, WindowScope
from fanin.workers.lease import Lease
from fanin.workers.recovery import Pace
from fanin.workers.values.compression import Compressor

DIGITS_FILE = "digits.npz"

GIVE_UP = 20.0  # seconds
_PACE = Pace(window=256, segments=62)

LiveTransport = Transport | Literal["tcp"]


@dataclass(frozen=True, slots=True)
class InNetwork:
    """All-reduce through the switches: a lease and the two ends of the UDP flow. worker: a file of the user's."""

    lease: Lease
    local: tuple[str, int]
    remote: tuple[str, int]
    pace: Pace
    worker: Path | None = None


@dataclass(frozen=True, slots=True)
class HostBased:
    """All-reduce between hosts: everybody's address, by rank. pace: of transports over UDP; shards: parameter server's.

    Over UDP an address has the first port of as many as there are workers, times the flows between two.
    """

    algorithm: HostBasedAlgorithm
    addresses: tuple[tuple[str, int], ...]
    transport: LiveTransport = "tcp"
    shards: int | None = None
    flows: int = 1
    pace: Pace = _PACE
    window_per: WindowScope = "connection"
    compressor: Compressor | None = None


@dataclass(frozen=True, slots=True)
class Vectors:
    """All-reduce random vectors (normal, of this seed and the rank) and do nothing else."""

    elements: int
    repetitions: int
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """One worker's part of a run; `folder` holds the data set and takes the recording.

    A worker that receives nothing new for `give_up` seconds fails and says what it waits for.
    """

    rank: int
    workers: int
    folder: Path
    collective: InNetwork | HostBased
    work: TrainingConfig | Vectors
    give_up: float = GIVE_UP


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker has started and waits for its task."""


@dataclass(frozen=True, slots=True)
class Progress:
    """All-reduces done so far; 0 is said when the worker has all that it needs, and begins with the first."""

    step: int


@dataclass(frozen=True, slots=True)
class Done:
    """The worker has finished; its recording is complete. congestion_window: in packets, of one in the network."""

    retransmissions: int
    curve: Curve | None = None
    congestion_window: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The worker gave up; the text says what it waited for."""

    error: str


Event = Ready | Progress | Done | Failed

TASK = TypeAdapter(Task)
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
