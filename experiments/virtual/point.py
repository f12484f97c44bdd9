"""A point of a scenario in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from fanin.experiments.models.alone import Alone
from fanin.experiments.models.prediction import predicted_seconds
from fanin.experiments.models.timers import (
    beside_workers,
    flows_round_trip,
    recovery,
    ring_recovery,
    virtual_window,
)
from fanin.experiments.results.checking import Errors, Oracle, Promise, oracle_of
from fanin.experiments.results.measured import FlowTimes, Measured, mean_window
from fanin.experiments.results.recording import Vector
from fanin.experiments.results.usage import FlowUse, Usage
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.decoding import FIRST_SUMS, Decoding
from fanin.experiments.schedule_file import use
from fanin.experiments.virtual.arrivals import run_arrivals
from fanin.experiments.virtual.chain import run_chain
from fanin.experiments.virtual.failures import train_for_long
from fanin.experiments.virtual.faults import Faults
from fanin.experiments.virtual.other_job import start_other_jobs
from fanin.experiments.virtual.outcome import (
    LIMIT,
    UnfinishedError,
    host_model,
    network_figures,
    worker_figures,
)
from fanin.experiments.virtual.parallelism import run_parallel
from fanin.experiments.virtual.replay import run_replay
from fanin.experiments.virtual.serving import run_serving
from fanin.experiments.virtual.steps import buckets, pauses, step_figures
from fanin.experiments.virtual.storage import FIRST_STEPS, data_waits, start_storage, storage_times
from fanin.experiments.virtual.traffic import Request, completed, requests
from fanin.experiments.virtual.training import run_training
from fanin.experiments.virtual.usage import LinkMeter, QueueSampler, workers_of
from fanin.native.python_file import telling
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import VirtualNetwork
from fanin.simulator.fabric import Cluster, Job
from fanin.simulator.fault_recovery import JobUnderFaults
from fanin.simulator.flows import Flows
from fanin.simulator.job_spec import ClusterSpec
from fanin.simulator.network import MakeNetwork, Observer
from fanin.workers.collective import Algorithm, Statistics
from fanin.workers.protocol import InNetworkStatistics


def run_virtual(
    settings: Settings,
    switch: Engine,
    prepare: Callable[[Cluster], None] = lambda _: None,
    observer: Observer | None = None,
    make_network: MakeNetwork = VirtualNetwork,
    cores: int = 1,
) -> Measured:
    """Run a point and check every sum.

    As in a live network, an all-reduce of one element precedes each vector as a barrier.

    Args:
        settings: The point.
        switch: The program of its switches.
        prepare: Called before the run to add more to the network, such as other jobs.
        observer: Called with everything that arrives.
        make_network: Builds the network, with the arguments of VirtualNetwork.
        cores: How many cores draw vectors, if the protocol does not draw its own. How many share the network is
            make_network's affair.

    Raises:
        TraceError: If the trace of a training cannot be read.
        CollectiveError: If a worker gives up.
        UnfinishedError: If the run does not end.
        DeadlockError: If links pause one another in a circle.
        ControllerError: If the controller fails.
        PythonFileError: If the user's worker or controller fails.
    """
    use(settings.algorithm)
    return _run_table(settings, switch, make_network) or _run_job(
        settings, switch, prepare, observer, make_network, cores
    )


def _run_table(settings: Settings, switch: Engine, make_network: MakeNetwork) -> Measured | None:
    """Run a point whose table replaces plain all-reduces, such as `serving`; return None if it has none."""
    if settings.workload is not None and settings.workload.trace:
        return run_replay(settings, settings.workload, switch, make_network)
    if settings.training is not None:
        summed = settings.as_vectors
        oracle = _oracle(summed, summed.algorithm)
        return run_training(settings.training, summed, switch, cluster_spec(summed), oracle, make_network)
    if settings.serving is not None:
        return run_serving(settings.as_vectors, settings.serving, switch, make_network)
    if settings.arrivals is not None:
        return run_arrivals(settings.as_vectors, settings.arrivals, switch, make_network)
    if settings.decoding is not None:
        return _decode(settings, settings.decoding, switch, make_network)
    if settings.parallelism is not None:
        return run_parallel(settings, settings.parallelism, switch, make_network)
    return None


def _run_job(
    settings: Settings,
    switch: Engine,
    prepare: Callable[[Cluster], None],
    observer: Observer | None,
    make_network: MakeNetwork,
    cores: int,
) -> Measured:
    """Run a job of all-reduces, and everything that its point puts next to it."""
    oracle = _oracle(settings, settings.algorithm)
    barrier = [np.zeros(1, np.float32) for _ in settings.members]
    inputs, promises = [], []
    for vectors in _vectors(settings, cores):
        inputs += [[x.copy() for x in barrier]]
        for part in buckets(settings):
            own = [x[part] for x in vectors]
            promises.append(oracle.promise(own, settings.collective))
            inputs.append(own)
    protocol, traffic = settings.implementation, requests(settings)
    with telling(protocol.worker):
        cluster = Cluster(
            cluster_spec(settings, _beside_workers(settings, traffic)),
            switch,
            inputs,
            None,
            protocol.make_worker,
            observer,
            make_server=protocol.make_server,
            in_place=True,
            planner=protocol.planner(settings.paths),
            make_network=make_network,
        )
        prepare(cluster)
        around = _Surroundings(settings, cluster, traffic)
        around.run()
    return _measured(settings, around, promises)


class _Surroundings:
    """A job's network with all that a point puts next to the job: other jobs, traffic, storage, faults, and meters.

    Attributes:
        links: What each link did, while the job ran and after that.
        of_workers: What the workers did while the job ran.
    """

    def __init__(self, settings: Settings, cluster: Cluster, wanted: Sequence[Request]) -> None:
        self.settings, self.cluster, self.wanted = settings, cluster, wanted
        self.others = start_other_jobs(settings, cluster)
        self.flows = _flows(settings, cluster, wanted)
        self.storage = start_storage(settings, cluster)
        jobs = [JobUnderFaults(cluster.job, settings.min_workers)]
        jobs += [JobUnderFaults(job, None) for job in self.others.jobs] if self.others else []
        self.faults = Faults(settings.faults, jobs, cluster)
        self._meter = LinkMeter(cluster, settings.priority)
        self.sampler = QueueSampler(cluster.network, settings.queue_samples)

    def run(self) -> None:
        """Run the job, and then the others to their ends."""
        if not self.faults.run(self.cluster.run, LIMIT):
            raise UnfinishedError(f"not finished after {LIMIT:g} s of virtual time")
        self.links = self._meter.end_phase("job")
        self.of_workers = worker_figures(self.settings, self.cluster)
        if self.others and not self.faults.run(self.others.run, LIMIT):
            raise UnfinishedError(f"other_job: not finished after {LIMIT:g} s of virtual time")
        if self.flows and not self.faults.run(self.flows.run, LIMIT):
            raise UnfinishedError(f"traffic: flows have not arrived after {LIMIT:g} s of virtual time")
        if self.storage and not self.storage.run(LIMIT):
            raise UnfinishedError(f"storage: checkpoints are not written after {LIMIT:g} s of virtual time")
        self.links += self._meter.end_phase("after")


def _measured(settings: Settings, around: _Surroundings, promises: list[Promise]) -> Measured:
    """Return the measurements of a job that has run; check its sums."""
    assert settings.elements is not None
    assert settings.size is not None
    cluster, flows, storage, others = around.cluster, around.flows, around.storage, around.others
    window = virtual_window(settings)
    per_step = 1 + len(buckets(settings))
    job, stations = cluster.job, cluster.stations
    began = np.max([station.began[1::per_step] for station in stations], axis=0)
    ended = np.max([station.ended[per_step - 1 :: per_step] for station in stations], axis=0)
    waits = [
        np.subtract(station.ended[per_step - 1 :: per_step], station.began[1::per_step])
        for station in stations
    ]
    outputs = (
        [station.outputs[index] for station in stations]
        for index in range(settings.repetitions * per_step)
        if index % per_step
    )
    steps_begun = np.max([one.ended[0::per_step] for one in stations], axis=0)
    data = (
        np.max([data_waits(one, per_step) for one in stations], axis=0)
        if storage
        else np.zeros(settings.repetitions)
    )
    left_out = FIRST_STEPS if storage else 0
    step_columns = step_figures(settings, steps_begun, ended, job.ranks, data, left_out)
    progress = None
    if settings.failures and flows:
        written = max(flow.start + flow.seconds for flow in completed(around.wanted, flows.completed))
        progress = train_for_long(settings, settings.failures, steps_begun, ended, written)
        step_columns["gpu_idle_share"] = 1 - (1 - step_columns["gpu_idle_share"]) * (1 - progress.lost_share)
    if job.changed:
        promises = _promises_kept(settings, job)
    held = (promise.hold(of_all) for promise, of_all in zip(promises, outputs, strict=True))
    errors = Errors.of_all([*held, *([others.errors] if others else [])])
    uses = tuple(_flow_uses(settings, flows)) if flows else ()
    return Measured(
        seconds=tuple((ended - began).tolist()),
        elements=settings.elements,
        retransmissions=sum(station.retransmissions for station in (*stations, *job.left)),
        closed_form_seconds=predicted_seconds(settings, settings.size, window),
        window=window,
        recovery=recovery(settings, _beside_workers(settings, around.wanted)),
        congestion_window=mean_window(
            [_congestion_window(station.worker.statistics) for station in stations]
        ),
        wait_seconds=float(np.mean(waits)),
        other_job_seconds=others.median_seconds if others else None,
        usage=Usage(around.links, tuple(workers_of(settings, cluster)), around.sampler.samples, uses),
        traffic=_times_of(around.wanted, flows, uses) if flows else None,
        progress=progress,
        storage=storage_times(settings, storage, data) if storage else None,
        workers_left=len(stations),
        faults=around.faults.outcomes(ended.tolist()),
        **errors.columns,
        **around.of_workers,
        **network_figures(cluster),
        **step_columns,
    )


def _decode(settings: Settings, decoding: Decoding, switch: Engine, make_network: MakeNetwork) -> Measured:
    """Return the measurements of a point with a table decoding; the columns of steps are those of a token."""
    summed = settings.as_vectors
    inputs = list(_vectors(summed))
    oracle = _oracle(summed, summed.algorithm)
    promises = [oracle.promise(vectors) for vectors in inputs]
    workers = len(settings.members)
    computing = np.full((workers, len(inputs)), decoding.compute_seconds(workers))
    spec = replace(cluster_spec(summed), until_sum=True)  # the next layer writes elsewhere
    _, measured = run_chain(
        summed, switch, spec, inputs, promises, computing, make_network, decoding.launch, FIRST_SUMS
    )
    assert measured.step_seconds is not None
    assert measured.exposed_seconds is not None
    return replace(
        measured,
        step_seconds=decoding.sums * measured.step_seconds,
        exposed_seconds=decoding.sums * measured.exposed_seconds,
    )


def _times_of(wanted: Sequence[Request], flows: Flows, uses: Sequence[FlowUse]) -> FlowTimes:
    """Return the completion times of all traffic of hosts outside the job; `uses` are those of its flows, in order."""
    found, alone = completed(wanted, flows.completed), (use.alone_seconds for use in uses)
    slowdowns = [
        flow.seconds / max(islice(alone, len(request))) for request, flow in zip(wanted, found, strict=True)
    ]
    return FlowTimes.of([flow.size for flow in found], [flow.seconds for flow in found], slowdowns)


def _flow_uses(settings: Settings, flows: Flows) -> Iterator[FlowUse]:
    """Yield every flow of hosts outside the job."""
    alone, network = Alone(settings), settings.network
    for flow in flows.completed:
        yield FlowUse(
            source=flow.source,
            destination=flow.destination,
            source_rank=network.host(flow.source).rank,
            destination_rank=network.host(flow.destination).rank,
            port=flow.kind,
            bytes=flow.size,
            start=flow.start,
            seconds=flow.seconds,
            alone_seconds=alone.seconds(flow.source, flow.destination, flow.size),
        )


def _flows(settings: Settings, cluster: Cluster, wanted: Sequence[Request]) -> Flows | None:
    """Return the traffic of hosts outside the job; None if there is none."""
    if settings.traffic is None or not wanted:
        return None
    queued = flows_round_trip(settings, _largest(wanted), settings.traffic.window)
    return Flows(
        cluster,
        [flow for request in wanted for flow in request],
        window=settings.traffic.window,
        transport=settings.traffic_transport or "selective-repeat",
        recovery=recovery(settings, queued, settings.traffic_transport),
        congestion_control=settings.congestion_control,
        payload=settings.payload,
        seed=settings.seed,
        priority=settings.traffic.priority,
    )


def _beside_workers(settings: Settings, wanted: Sequence[Request]) -> float:
    """Return the seconds for which packets of the job may wait behind traffic of their own hosts."""
    return beside_workers(settings, _largest(wanted), settings.traffic.window) if settings.traffic else 0.0


def _largest(wanted: Sequence[Request]) -> dict[tuple[str, str], int]:
    """Return the bytes of the largest flow from one host to another, by both."""
    largest: dict[tuple[str, str], int] = {}
    for flow in chain.from_iterable(wanted):
        pair = flow.source, flow.destination
        largest[pair] = max(largest.get(pair, 0), flow.size)
    return largest


def cluster_spec(settings: Settings, queued: float = 0.0) -> ClusterSpec:
    """Return the description of the job and its network for the simulator; `queued` is that of recovery()."""
    call = settings.compression.compressor or settings.collective
    return ClusterSpec(
        topology=settings.network,
        window=virtual_window(settings),
        window_per=settings.window_per,
        slots=settings.shared_slots if settings.algorithm == "in-network" else None,
        servers=settings.servers[: settings.trees] if settings.algorithm == "in-network" else (),
        values=settings.values,
        hosts=settings.members,
        trees=settings.trees,
        host=host_model(settings),
        recovery=recovery(settings, queued),
        seed=settings.seed,
        algorithm=settings.algorithm,
        transport=settings.transport or "selective-repeat",
        shards=settings.shards,
        pauses=pauses(settings),
        per_step=1 + len(buckets(settings)),
        flows=settings.flows_per_pair,
        congestion_control=settings.congestion_control,
        payload=settings.payload,
        calls=("all-reduce", *[call] * len(buckets(settings))),
        ring=bool(settings.faults),
        ring_recovery=ring_recovery(settings, queued),
        elastic=bool(settings.faults) and settings.min_workers is not None,
        priority=settings.priority,
        priorities=settings.prioritized,
        shares_card=settings.storage is not None,
        reconfiguration=settings.topology.reconfiguration,
        loopback=settings.loopback,
    )


def _promises_kept(settings: Settings, job: Job) -> list[Promise]:
    """Return the promises for the workers that took part in each all-reduce, and for how they did it.

    The vectors are drawn again, since sums have replaced them.
    """
    parts = buckets(settings)
    assert settings.elements is not None
    found = []
    for step, vectors in enumerate(_vectors(settings)):
        for number, part in enumerate(parts, start=1):
            ranks, algorithm = job.done_by(step * (1 + len(parts)) + number)
            oracle = _oracle(settings, algorithm)
            found.append(oracle.promise([vectors[rank][part] for rank in ranks], settings.collective))
    return found


def _oracle(settings: Settings, algorithm: Algorithm) -> Oracle:
    """Return the oracle of the job if this algorithm does it."""
    compressor = settings.compression.compressor
    return oracle_of(settings, algorithm, virtual_window(settings), compressor, settings.trees)


def _congestion_window(statistics: Statistics) -> float | None:
    return statistics.congestion_window if isinstance(statistics, InNetworkStatistics) else None


def _vectors(settings: Settings, cores: int = 1) -> Iterator[list[Vector]]:
    """Yield a vector of each worker for each all-reduce, the same as live workers draw (worker.py).

    Each worker has its own generator, so several cores draw the same vectors as one.
    """
    assert settings.elements is not None
    protocol, elements, sparsity = settings.implementation, settings.elements, settings.sparsity
    draws = [np.random.default_rng((settings.seed, rank)) for rank in range(len(settings.members))]
    with ThreadPoolExecutor(cores) as pool:  # makes threads only if it is used
        each = map if cores == 1 or protocol.draws_vectors else pool.map
        for _ in range(settings.repetitions):
            yield list(each(lambda draw: protocol.vector(draw, elements, sparsity), draws))
