"""File servers in virtual time: the use that a job's workers make of them, and its times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.models.alone import Alone
from fanin.experiments.models.storage import predicted_storage
from fanin.experiments.models.timers import recovery
from fanin.experiments.results.measured import StorageTimes
from fanin.experiments.scenario.settings import Settings
from fanin.simulator.fabric import Cluster
from fanin.simulator.hosts.stations import WorkerStation
from fanin.simulator.messages import Connections
from fanin.simulator.storage import Storage, StorageUse

FIRST_STEPS = 1  # that do not count: nobody could ask for the data of the first step before it


def start_storage(settings: Settings, cluster: Cluster) -> Storage | None:
    """Start the file servers of a point next to its job; None if it has none."""
    table = settings.storage
    if table is None:
        return None
    use = StorageUse(
        batch=table.batch,
        prefetch=table.prefetch,
        checkpoint=table.checkpoint,
        every=table.every,
        writers=table.writers,
        steps=settings.repetitions,
    )
    packets = min(table.window, -(-max(table.batch, table.checkpoint) // settings.payload))
    sharing = table.workers_of_a_server(len(settings.members))
    queued = sharing * packets * Alone(settings).packet_seconds(settings.file_servers[0])
    connections = Connections(
        fabric=cluster,
        transport=table.transport,
        window=table.window,
        recovery=recovery(settings, queued, table.transport),
        congestion_control=settings.congestion_control,
        payload=settings.payload,
    )
    return Storage(
        cluster,
        cluster.job,
        settings.file_servers,
        use,
        connections,
        priority=table.priority,
        seed=settings.seed,
    )


def data_waits(station: WorkerStation[Any], per_step: int) -> NDArray[np.float64]:
    """Return the seconds of each step for which a worker waits for the data that it reads from a server, [steps].

    Args:
        station: The worker.
        per_step: All-reduces of a step, of which the first is a barrier.
    """
    released = station.ended[0::per_step]
    return np.asarray(np.maximum(np.subtract(station.loaded or released, released), 0.0))


def storage_times(settings: Settings, storage: Storage, waits: NDArray[np.float64]) -> StorageTimes:
    """Return the times of reads and checkpoints; `waits` are those of data_waits()."""
    table = settings.storage
    assert table is not None
    predicted, written = predicted_storage(settings, table), storage.checkpoint_seconds
    reads = storage.read_seconds(FIRST_STEPS)
    return StorageTimes(
        data_wait_seconds=float(waits[FIRST_STEPS:].mean()) if reads else None,
        read_seconds=float(np.mean(reads)) if reads else None,
        predicted_step_seconds=None if written else predicted.step_seconds,
        fed_workers=predicted.fed_workers,
        checkpoint_seconds=float(np.mean(written)) if written else None,
        predicted_checkpoint_seconds=predicted.checkpoint_seconds if written else None,
        storage_retransmissions=storage.counts.retransmissions,
    )
