"""A worker process: takes a task from standard input, does it, and reports its progress (worker_messages.py)."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np

from fanin.experiments.live.output import lines_out, write_line
from fanin.experiments.live.worker_messages import (
    DIGITS_FILE,
    EVENT,
    TASK,
    Done,
    Event,
    Failed,
    HostBased,
    InNetwork,
    Progress,
    Ready,
    Task,
    Vectors,
)
from fanin.experiments.protocol import make_worker_of, protocol_of
from fanin.experiments.results.recording import Recording, Vector
from fanin.experiments.schedule_file import use
from fanin.experiments.training.digits import Digits
from fanin.experiments.training.sgd import Curve, TrainingConfig, train
from fanin.native.python_file import PythonFileError, telling
from fanin.workers import (
    Collective,
    CollectiveError,
    Group,
    InNetworkAllReduce,
    InNetworkConfig,
    TcpAllReduce,
    TcpConfig,
    UdpAllReduce,
    UdpGroupConfig,
)
from fanin.workers.engines import native
from fanin.workers.host_based.exchange import Call
from fanin.workers.participant_udp import PluggedWorker
from fanin.workers.protocol import InNetworkStatistics
from fanin.workers.values.compression import ErrorFeedback


def say(event: Event) -> None:
    """Send one event to the process that started this one."""
    write_line(EVENT.dump_json(event))


def join(task: Task, feedback: ErrorFeedback | None = None) -> Collective:
    """Return this worker's end of the collective.

    Args:
        task: The worker's task.
        feedback: Compresses vectors between hosts; None: the task's compressor, if any.
    """
    match task.collective:
        case InNetwork(lease, local, remote, pace, worker):
            recovery = pace.recovery(task.give_up)
            config = InNetworkConfig(
                lease,
                local,
                remote,
                segments=pace.segments,
                offload=pace.offload,
                checksums=pace.checksums,
                recovery=recovery,
            )
            plugged = PluggedWorker(make_worker_of(worker)(lease, recovery)) if worker else None
            return InNetworkAllReduce(config, plugged)
        case HostBased():
            return _between_hosts(task, task.collective, feedback)


def _between_hosts(task: Task, how: HostBased, feedback: ErrorFeedback | None) -> Collective:
    give_up, pace = task.give_up, how.pace
    use(how.algorithm)
    call: Call = feedback or how.compressor or "all-reduce"
    if how.transport == "tcp":
        return TcpAllReduce(
            TcpConfig(
                task.rank,
                how.addresses,
                how.algorithm,
                how.shards,
                call,
                connect_timeout=give_up,
                give_up=give_up,
            )
        )
    return UdpAllReduce(
        UdpGroupConfig(
            Group(
                task.rank,
                task.workers,
                how.algorithm,
                how.transport,
                how.shards,
                pace.window,
                how.window_per,
                flows=how.flows,
                calls=(call,),
            ),
            how.addresses,
            segments=pace.segments,
            offload=pace.offload,
            recovery=pace.recovery(task.give_up),
        )
    )


def train_digits(
    config: TrainingConfig, task: Task, collective: Collective, feedback: ErrorFeedback | None
) -> Curve:
    """Train on the digits, data-parallel, and return the progress."""
    digits = Digits.load(task.folder / DIGITS_FILE)
    steps = config.steps(len(digits.train_labels))
    recording = Recording.create(task.folder, task.rank, steps, config.elements(digits))
    all_reduce = reporting(recording.wrap(collective.all_reduce, feedback.carried if feedback else None))
    say(Progress(0))
    return train(config, digits, task.rank, task.workers, all_reduce)


def sum_vectors(vectors: Vectors, task: Task, collective: Collective) -> None:
    """Do nothing but all-reduces, each of which all workers begin together."""
    recording = Recording.create(task.folder, task.rank, vectors.repetitions, vectors.elements)
    rng = np.random.default_rng((vectors.seed, task.rank))
    protocol = protocol_of(vectors.protocol)
    # Draw all vectors first: computing in between would delay the workers that share this worker's core.
    for vector in recording.inputs:
        vector[:] = protocol.vector(rng, vectors.elements, vectors.sparsity)
    all_reduce = reporting(recording.wrap(collective.all_reduce))
    say(Progress(0))
    for vector in recording.inputs:
        collective.all_reduce(np.zeros(1, np.float32))  # a barrier
        all_reduce(vector)


def reporting(all_reduce: Callable[[Vector], Vector]) -> Callable[[Vector], Vector]:
    """Wrap `all_reduce`, which takes a vector [elements], so that it sends an event after each call."""
    step = 0

    def reported(vector: Vector) -> Vector:
        nonlocal step
        result = all_reduce(vector)
        step += 1
        say(Progress(step))
        return result

    return reported


def main() -> int:
    """Do the task and return the exit status, 0 if it was done."""
    lines_out()
    native.library()  # the first worker on a machine compiles it
    say(Ready())
    task = TASK.validate_json(sys.stdin.buffer.readline())
    collective: Collective | None = None
    try:
        compressor = task.work.compressor if isinstance(task.work, TrainingConfig) else None
        feedback = ErrorFeedback(compressor) if compressor else None
        collective = join(task, feedback)
        curve = None
        with telling(task.collective.worker if isinstance(task.collective, InNetwork) else None):
            match task.work:
                case TrainingConfig():
                    curve = train_digits(task.work, task, collective, feedback)
                case Vectors():
                    sum_vectors(task.work, task, collective)
    except (CollectiveError, OSError, ValueError, PythonFileError) as error:
        say(Failed(f"{type(error).__name__}: {error}"))
        return 1
    finally:
        if collective is not None:
            collective.close()
    statistics = collective.statistics
    window = statistics.congestion_window if isinstance(statistics, InNetworkStatistics) else None
    say(Done(statistics.retransmissions, curve, window))
    return 0


if __name__ == "__main__":
    sys.exit(main())
