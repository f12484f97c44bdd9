"""All-reduces in virtual time that follow one another without barriers; between two, every worker computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.models.prediction import predicted_seconds
from fanin.experiments.results.checking import Errors, Promise
from fanin.experiments.results.measured import Measured
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.outcome import LIMIT, UnfinishedError, network_figures, worker_figures
from fanin.experiments.virtual.steps import computing_figures
from fanin.experiments.virtual.usage import LinkMeter, QueueSampler, workers_of
from fanin.native.python_file import telling
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Cluster
from fanin.simulator.hosts.stations import Vector
from fanin.simulator.job_spec import ClusterSpec
from fanin.simulator.network import MakeNetwork


def run_chain(
    settings: Settings,
    switch: Engine,
    spec: ClusterSpec,
    inputs: Sequence[Sequence[Vector]],
    promises: Sequence[Promise],
    computing: NDArray[np.float64],
    make_network: MakeNetwork,
    waiting: float = 0.0,
    left_out: int = 0,
    prepare: Callable[[Cluster], None] = lambda _: None,
) -> tuple[Cluster, Measured]:
    """Run all-reduces, each of which a worker calls after computing and waiting, and check every sum.

    Args:
        settings: The point, with the vectors that are summed (Settings.as_vectors).
        switch: The program of its switches.
        spec: The job and its network.
        inputs: For each all-reduce one vector per worker, [all-reduces][workers].
        promises: The promise of each sum. They may be added while the chain runs.
        computing: Seconds for which each worker computes before each all-reduce, [workers, all-reduces].
        make_network: Builds the network, with the arguments of VirtualNetwork.
        waiting: Seconds for which every worker does nothing after that.
        left_out: All-reduces at the beginning that do not count as steps.
        prepare: Called before the run.

    Returns:
        The cluster, and its measurements. The columns of steps are those of one all-reduce and what precedes it.

    Raises:
        CollectiveError: If a worker gives up.
        UnfinishedError: If the run does not end.
        DeadlockError: If links pause one another in a circle.
        ControllerError: If the controller fails.
        PythonFileError: If the user's worker or controller fails.
    """
    assert settings.size is not None
    assert settings.elements is not None
    pauses = computing + waiting
    protocol = settings.implementation
    with telling(protocol.worker):
        cluster = Cluster(
            replace(spec, pauses=tuple(map(tuple, pauses.tolist())), per_step=1, calls=("all-reduce",)),
            switch,
            inputs,
            pauses[:, 0].tolist(),
            protocol.make_worker,
            make_server=protocol.make_server,
            planner=protocol.planner(settings.paths),
            make_network=make_network,
        )
        prepare(cluster)
        meter = LinkMeter(cluster, settings.priority)
        sampler = QueueSampler(cluster.network, settings.queue_samples)
        if not cluster.run(LIMIT):
            raise UnfinishedError(f"not finished after {LIMIT:g} s of virtual time")
    stations = cluster.stations
    began, ended = (
        np.max([getattr(station, name) for station in stations], axis=0) for name in ("began", "ended")
    )
    errors = Errors.of_all(
        promise.hold(station.outputs[call] for station in stations) for call, promise in enumerate(promises)
    )
    lengths = np.diff(ended, prepend=0.0)[left_out:]
    waits = [np.subtract(station.ended, station.began) for station in stations]
    return cluster, Measured(
        seconds=tuple((ended - began).tolist()),
        elements=settings.elements,
        retransmissions=sum(station.retransmissions for station in stations),
        closed_form_seconds=predicted_seconds(
            settings, settings.size, spec.window, acknowledged=not spec.until_sum
        ),
        window=spec.window,
        recovery=spec.recovery,
        wait_seconds=float(np.mean(waits)),
        usage=Usage(
            meter.end_phase("job"), tuple(workers_of(settings, cluster, barriers=False)), sampler.samples
        ),
        workers_left=len(stations),
        **errors.columns,
        **worker_figures(settings, cluster),
        **network_figures(cluster),
        **computing_figures(lengths, computing[:, left_out:]),
    )
