"""The analytical model of a job that shares file servers: reads of all workers at the same time, and checkpoints.

Workers ask a server at the same time, since sums keep their steps together. Its link then sends their batches at
the same rate, and all arrive when the last one does. The model knows no other traffic on the workers' links, not even
gradients.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from fanin.experiments.models.alone import Alone
from fanin.experiments.models.prediction import predicted_seconds, predicted_training_step
from fanin.experiments.models.timers import virtual_window
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.storage import Storage
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.simulator.storage import ASKING


def loaded_step_seconds(
    step: float, trip: float, sending: float, prefetch: int, barrier: float = 0.0
) -> float:
    """Return the seconds of a step that waits for its data, from the barrier before it to its last sum.

    Args:
        step: Seconds of a step that has its data.
        trip: Seconds from a question until the first packet of the answer has arrived, if nothing else is sent.
        sending: Seconds for which the server sends a batch to each of its workers, or a worker's link receives one, if
            that takes longer.
        prefetch: Batches for which a worker has asked before it needs them.
        barrier: Seconds from the end of a step to the end of the barrier; meanwhile, data arrives as well.
    """
    if not prefetch:
        return step + max(0.0, trip + sending - barrier)
    # Little's law: so many batches in the time of a read.
    return max(step, max(sending, (trip + sending) / prefetch) - barrier)


@dataclass(frozen=True, slots=True)
class PredictedStorage:
    """The predictions of a point; None if it has no such thing, or if links have no rates.

    Attributes:
        step_seconds: Time of a step, without checkpoints.
        checkpoint_seconds: Time until all workers have written a checkpoint.
        fed_workers: Most workers of a server for which steps need not wait if they ask early enough.
    """

    step_seconds: float | None
    checkpoint_seconds: float | None
    fed_workers: int | None


def predicted_storage(settings: Settings, storage: Storage) -> PredictedStorage:
    """Return the predictions of a point with the table `storage`."""
    alone, (worker, server) = Alone(settings), (settings.members[0], settings.file_servers[0])
    rates = [settings.network.links_of(name)[0].rate_bits_per_second for name in (worker, server)]
    if None in rates:
        return PredictedStorage(None, None, None)
    own, shared = (alone.packet_seconds(name) for name in (worker, server))
    sharing = storage.workers_of_a_server(len(settings.members))
    ask = alone.seconds(worker, server, ASKING)
    window = virtual_window(settings)
    step = predicted_training_step(settings, window) if storage.batch else None
    barrier = predicted_seconds(settings, ELEMENT_BYTES, window)
    loaded = fed = written = None
    if step is not None and barrier is not None:
        packets = ceil(storage.batch / settings.payload)
        trip = ask + alone.seconds(server, worker, min(storage.batch, settings.payload))
        sending = packets * max(sharing * shared, own)
        loaded = loaded_step_seconds(step, trip, sending, storage.prefetch, barrier)
        fed = int((step + barrier) / (packets * shared)) if step + barrier >= packets * own else 0
    if storage.checkpoint:
        packets, at_once = (
            ceil(storage.checkpoint / settings.payload),
            min(storage.writers or sharing, sharing),
        )
        trip = alone.seconds(server, worker, ASKING) + alone.seconds(worker, server, settings.payload)
        turns = ceil(sharing / at_once)
        written = 2 * ask + turns * trip + packets * max(sharing * shared, turns * own)
    return PredictedStorage(loaded, written, fed)
