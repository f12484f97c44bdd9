"""Training steps of a model that is cut among workers, in virtual time.

The model is cut into parts of layers and stages. Each worker computes micro-batches in the order of its stage
(models/pipeline.py) and sends the results to its neighbours in the pipeline. It sums each part of a layer with its
tensor group, and its gradients with the workers that have the same part of the model. Gradients are summed bucket by
bucket, each as soon as the last micro-batch has come back through the layers of the bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from fanin.experiments.models.cut_model import predicted_step_seconds
from fanin.experiments.models.pipeline import passes
from fanin.experiments.models.step import bucket_slices, filled_buckets
from fanin.experiments.models.timers import recovery, virtual_window
from fanin.experiments.results.checking import (
    Errors,
    Promise,
    oracle_of,
)
from fanin.experiments.results.measured import Measured
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.parallelism import Parallelism
from fanin.experiments.scenario.tables.step import slowness
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES
from fanin.experiments.virtual.rank_station import Channel, Ends, RankStation, Scaled, run_ranks
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Fabric, Job
from fanin.simulator.hosts.stations import PeerPort, WorkerStation, addresses
from fanin.simulator.job_spec import JobSpec
from fanin.simulator.network import MakeNetwork
from fanin.workers.collective import Operation
from fanin.workers.host_based.engine import fastest
from fanin.workers.host_based.participant import Group
from fanin.workers.host_based.transport import FIRST_PEER_PORT

_ACTIVATIONS = 3  # separates their random numbers from those of gradients

_Kind = Literal["tensor", "forward", "backward"]


class _Member(NamedTuple):
    """A rank in a group of one of these kinds, and its place in it: a sender has 0 and a receiver 1, others have 0."""

    kind: _Kind
    place: int
    rank: int


def run_parallel(
    settings: Settings, parallelism: Parallelism, switch: Engine, make_network: MakeNetwork
) -> Measured:
    """Run a point with a table parallelism and check all sums and all vectors that are sent.

    Args:
        settings: The point.
        parallelism: Its table.
        switch: The program of its switches.
        make_network: Builds the network, with the arguments of VirtualNetwork.

    Raises:
        CollectiveError: If a worker gives up.
        UnfinishedError: If the run does not end.
        DeadlockError: If links pause one another in a circle.
        ControllerError: If the controller fails.
        PythonFileError: If the user's worker or controller fails.
    """
    measured = run_ranks(settings, switch, make_network, lambda fabric: _Model(settings, parallelism, fabric))
    return replace(measured, closed_form_seconds=predicted_step_seconds(settings, virtual_window(settings)))


class _Model:
    """A model cut among the workers of a fabric: its groups, and a station on each host.

    Attributes:
        stations: The stations by rank.
        computing: Seconds of computing, [workers, steps].
    """

    def __init__(self, settings: Settings, parallelism: Parallelism, fabric: Fabric) -> None:
        self._settings, self._parallelism, self._fabric = settings, parallelism, fabric
        self._workers = len(settings.members)
        assert settings.elements is not None
        self._elements = settings.elements // parallelism.model  # whose gradients a worker has
        self._jobs: list[tuple[Job, list[Promise]]] = []
        copies = parallelism.copies(self._workers)
        # UDP ports for packets from the first rank of a group. Gradients between hosts have the lowest ports.
        begin, flows = FIRST_PEER_PORT + copies * settings.flows_per_pair, settings.flows_per_pair
        self._first_ports: dict[_Kind, int] = {
            "forward": begin,
            "backward": begin + 2 * flows,
            "tensor": begin + 4 * flows,
        }
        gradients = self._gradients()
        channels = self._channels()
        slow = slowness(parallelism.stragglers, settings.members)
        each = parallelism.micro_batches_each(self._workers)
        step = each * (parallelism.forward + parallelism.backward) / parallelism.model
        self.window = virtual_window(settings)
        self.computing = np.outer(slow, np.full(settings.repetitions, step))
        layers = parallelism.chunk_layers
        filled = filled_buckets(self._elements, parallelism.bucket_elements, parallelism.chunks * layers)
        by_chunk = [filled[first : first + layers] for first in range(0, len(filled), layers)]
        self.stations = [
            RankStation(
                passes(
                    parallelism.schedule,
                    parallelism.coordinates(rank, self._workers).stage,
                    parallelism.pipeline,
                    each,
                    parallelism.chunks,
                ),
                {way: slow[rank] * parallelism.seconds(way) for way in ("forward", "backward")},
                parallelism.tensor_calls,
                by_chunk,
                Ends(
                    tensor=channels.get(_Member("tensor", 0, rank)),
                    data=gradients.get(rank),
                    sends={way: channels.get(_Member(way, 0, rank)) for way in ("forward", "backward")},
                    receives={way: channels.get(_Member(way, 1, rank)) for way in ("forward", "backward")},
                ),
                settings.repetitions,
            )
            for rank in range(self._workers)
        ]

    def errors(self) -> Iterator[Errors]:
        """Yield the errors of what stations receive, then those of gradients' sums, by step and bucket."""
        yield from (station.errors for station in self.stations)
        for job, promises in self._jobs:
            for call, promise in enumerate(promises):
                yield promise.hold(station.outputs[call] for station in job.stations)

    # -- gradients -------------------------------------------------------------------------------------------

    def _gradients(self) -> dict[int, Channel]:
        """Start a job for each group with the same part of the model, and return each rank's channel to its group."""
        settings, found = self._settings, {}
        for ranks in self._parallelism.data_groups(self._workers):
            if len(ranks) == 1:
                continue
            job = self._start(ranks)
            for own, (rank, station) in enumerate(zip(ranks, job.stations, strict=True)):
                ports = [granted.udp_port for granted in job.granted]
                if not ports:
                    ports = _ports(FIRST_PEER_PORT, len(ranks), own, settings.flows_per_pair)
                found[rank] = Channel(station, ports)
        return found

    def _start(self, ranks: Sequence[int]) -> Job:
        settings, window = self._settings, virtual_window(self._settings)
        spec = JobSpec(
            hosts=tuple(settings.members[rank] for rank in ranks),
            trees=settings.trees,
            window=window,
            window_per=settings.window_per,
            values=settings.values,
            recovery=recovery(settings),
            algorithm=settings.algorithm,
            transport=settings.transport or "selective-repeat",
            shards=settings.shards,
            flows=settings.flows_per_pair,
            congestion_control=settings.congestion_control,
            payload=settings.payload,
            priority=settings.priority,
            on_call=True,
        )
        draws = [np.random.default_rng((settings.seed, rank)) for rank in ranks]
        buckets = bucket_slices(self._elements, self._parallelism.bucket_elements)
        steps = [
            [settings.implementation.vector(draw, self._elements) for draw in draws]
            for _ in range(settings.repetitions)
        ]
        inputs = [[gradients[bucket] for gradients in of_all] for of_all in steps for bucket in buckets]
        protocol = settings.implementation
        oracle = oracle_of(settings, settings.algorithm, window, trees=settings.trees)
        promises = [oracle.promise(of_all) for of_all in inputs]
        job = self._fabric.start(spec, inputs, make_worker=protocol.make_worker, in_place=True)
        self._jobs.append((job, promises))
        return job

    # -- channels that passes use ----------------------------------------------------------------------------

    def _channels(self) -> dict[_Member, Channel]:
        found = {}
        for number, (kind, ranks) in enumerate(self._groups()):
            ends = self._open(kind, ranks, len(self._fabric.jobs) + number)
            for own, (rank, channel) in enumerate(zip(ranks, ends, strict=True)):
                found[_Member(kind, 0 if kind == "tensor" else own, rank)] = channel
        return found

    def _groups(self) -> Iterator[tuple[_Kind, list[int]]]:
        parallelism, workers = self._parallelism, self._workers
        for rank in range(workers):
            at = parallelism.coordinates(rank, workers)
            if at.stage or parallelism.chunks > 1:
                before = parallelism.rank(at._replace(stage=(at.stage - 1) % parallelism.pipeline), workers)
                yield "forward", [before, rank]
                yield "backward", [rank, before]
            if at.tensor == 0 and parallelism.tensor > 1:
                yield "tensor", list(range(rank, rank + parallelism.tensor))

    def _open(self, kind: _Kind, ranks: Sequence[int], session: int) -> list[Channel]:
        """Return a channel for each rank of a group; a send is a broadcast to one other rank."""
        settings, parallelism = self._settings, self._parallelism
        assert parallelism.activations is not None
        operation: Operation = "all-reduce" if kind == "tensor" else "broadcast"
        calls = settings.repetitions * parallelism.micro_batches_each(self._workers)
        calls *= parallelism.chunks  # an upper bound: the last stage sends to the first once less
        if kind == "tensor":
            calls *= 2 * parallelism.tensor_calls
        elements = parallelism.activations // ELEMENT_BYTES
        bases = [
            np.random.default_rng((settings.seed, rank, _ACTIVATIONS)).standard_normal(elements, np.float32)
            for rank in ranks
        ]
        promise = oracle_of(settings, "ring", 0).promise(bases, operation)

        def scaled(call: int) -> Promise:
            factor = Scaled.factor(call)
            return replace(promise, exact=promise.exact * factor, bound=promise.bound * factor)

        if operation == "broadcast":
            bases[1] = np.zeros_like(bases[1])
        first, flows = self._first_ports[kind], settings.flows_per_pair
        return [
            Channel(
                WorkerStation(
                    self._port(ranks, own, operation, session, first),
                    Scaled(base, calls),
                    in_place=True,
                    called=0,
                ),
                _ports(first, len(ranks), own, flows),
                scaled,
            )
            for own, base in enumerate(bases)
        ]

    def _port(
        self, ranks: Sequence[int], own: int, operation: Operation, session: int, first_port: int
    ) -> PeerPort:
        settings, topology = self._settings, self._fabric.topology
        members = [settings.members[rank] for rank in ranks]
        host = topology.host(members[own])
        group = Group(
            own,
            len(ranks),
            transport=settings.transport or "selective-repeat",
            window=virtual_window(settings),
            window_per=settings.window_per,
            session=session,
            flows=settings.flows_per_pair,
            calls=(operation,),
            make_control=settings.congestion_control(topology, host.name),
            payload=settings.payload,
        )
        return PeerPort(
            fastest(group, recovery(settings)),
            host,
            topology.switch(host.leaf).mac,
            addresses(topology.host(name) for name in members),
            self._fabric.card(host.name),
            settings.priority,
            first_port,
        )


def _ports(first: int, workers: int, own: int, flows: int) -> list[int]:
    """Return the UDP ports to which the other ranks of a group send."""
    return [first + rank * flows + flow for rank in range(workers) if rank != own for flow in range(flows)]
