"""Messages between a worker process and its parent: the task, and the events that the worker sends.

Both are JSON documents, one a line. The first event reports that the worker is ready. The parent sends the task once
all workers are ready, so that a slow start does not count as time in which the others wait for packets.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from fanin.experiments.protocol import OURS
from fanin.experiments.training.sgd import Curve, TrainingConfig
from fanin.workers.collective import HostBasedAlgorithm, Transport, WindowScope
from fanin.workers.lease import Lease
from fanin.workers.recovery import Pace
from fanin.workers.values.compression import Compressor

DIGITS_FILE = "digits.npz"

GIVE_UP = 20.0  # seconds
_PACE = Pace(window=256, segments=62)


@dataclass(frozen=True, slots=True)
class InNetwork:
    """An all-reduce through the switches.

    Attributes:
        lease: The worker's lease.
        local: Address and port of the worker's end of the UDP flow.
        remote: Address and port of the switch's end.
        pace: Window, segments and timers.
        worker: A file with the user's own worker; None: ours.
    """

    lease: Lease
    local: tuple[str, int]
    remote: tuple[str, int]
    pace: Pace
    worker: Path | None = None


@dataclass(frozen=True, slots=True)
class HostBased:
    """An all-reduce between hosts.

    Attributes:
        algorithm: The algorithm.
        addresses: Address and port of each rank. Over UDP this is the first of as many ports as there are workers,
            times the flows between two.
        transport: "tcp", or a transport over UDP.
        shards: Number of servers of the parameter server.
        flows: Flows between two ranks.
        pace: Window, segments and timers of transports over UDP.
        window_per: Whether each connection or each host has a window.
        compressor: Compresses vectors; None: no compression.
    """

    algorithm: HostBasedAlgorithm
    addresses: tuple[tuple[str, int], ...]
    transport: Transport = "tcp"
    shards: int | None = None
    flows: int = 1
    pace: Pace = _PACE
    window_per: WindowScope = "connection"
    compressor: Compressor | None = None


@dataclass(frozen=True, slots=True)
class Vectors:
    """Work that is nothing but all-reduces of random vectors.

    The protocol draws them; `seed` and the rank seed them.
    """

    elements: int
    repetitions: int
    seed: int = 1
    protocol: str = OURS
    sparsity: float = 0.0


@dataclass(frozen=True, slots=True)
class Task:
    """One worker's part of a run.

    Attributes:
        rank: Number of the worker.
        workers: Number of workers.
        folder: Has the data set and receives the recording.
        collective: How vectors are summed.
        work: What the worker does.
        give_up: Seconds without progress after which the worker fails and reports what it waits for.
    """

    rank: int
    workers: int
    folder: Path
    collective: InNetwork | HostBased
    work: TrainingConfig | Vectors
    give_up: float = GIVE_UP


@dataclass(frozen=True, slots=True)
class Ready:
    """Event: the worker has started and waits for its task."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Event: the number of all-reduces done so far; 0 means that the worker is prepared and begins the first one."""

    step: int


@dataclass(frozen=True, slots=True)
class Done:
    """Event: the worker has finished, and its recording is complete.

    Attributes:
        retransmissions: Packets that it retransmitted.
        curve: The progress of its training.
        congestion_window: Its congestion window in packets, if it summed in the network.
    """

    retransmissions: int
    curve: Curve | None = None
    congestion_window: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """Event: the worker gave up; `error` explains what it waited for."""

    error: str


Event = Ready | Progress | Done | Failed

TASK = TypeAdapter(Task)
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
