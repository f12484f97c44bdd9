"""A training in virtual time: real gradients, and models that change when the simulated network has summed them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.results.checking import Oracle, Promise
from fanin.experiments.results.measured import Measured
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.training import Training
from fanin.experiments.training.digits import CLASSES, Digits, load_digits
from fanin.experiments.training.perceptron import Perceptron, Vector
from fanin.experiments.training.sgd import Curve
from fanin.experiments.virtual.chain import run_chain
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Cluster
from fanin.simulator.hosts.stations import WorkerStation
from fanin.simulator.job_spec import ClusterSpec
from fanin.simulator.network import MakeNetwork

_MOMENTUM = np.float32(0.9)
_SHARING, _BATCHES, _STALLING = 6, 7, 8  # separate their random numbers from others of the same seed


class _Learner:
    """A worker with its own images. It trains alone for some steps, and then takes the mean of all models.

    This is local SGD (Stich, "Local SGD converges fast and communicates little", ICLR 2019), or federated averaging of
    all clients (McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS
    2017). Each worker keeps its momentum. With one local step, all models are what synchronous SGD makes of them.
    """

    def __init__(self, training: Training, seed: int, digits: Digits, rank: int, workers: int) -> None:
        self.model = Perceptron(digits.train_images.shape[1], training.hidden, CLASSES, seed)
        own = _shares(training, seed, digits, workers)[rank]
        self._images, self._labels = digits.train_images[own], digits.train_labels[own]
        self._batch, self._steps = training.batch // workers, training.local_steps
        self._rate, self._workers = np.float32(training.learning_rate), workers
        self._draw = np.random.default_rng((seed, _BATCHES, rank))
        self._order = np.empty(0, np.int64)
        self._velocity = np.zeros_like(self.model.parameters)

    def train(self) -> Vector:
        """Train alone, and return this worker's share of the change of the mean model, float32 [size]."""
        begun = self.model.parameters
        for _ in range(self._steps):
            if len(self._order) < self._batch:
                self._order = self._draw.permutation(len(self._labels))
            batch, self._order = self._order[: self._batch], self._order[self._batch :]
            _, gradient = self.model.loss_and_gradient(self._images[batch], self._labels[batch])
            self._velocity = _MOMENTUM * self._velocity - self._rate * gradient / np.float32(self._batch)
            self.model.parameters = self.model.parameters + self._velocity
        change = (self.model.parameters - begun) / np.float32(self._workers)
        self.model.parameters = begun
        return change

    def take(self, change: Vector) -> None:
        """Change the model as all workers together have."""
        self.model.parameters = self.model.parameters + change


def _shares(training: Training, seed: int, digits: Digits, workers: int) -> Sequence[Any]:
    """Return the indices of each worker's images, as many for each."""
    if training.split == "by-label":
        order = np.argsort(digits.train_labels, kind="stable")
    else:
        order = np.random.default_rng((seed, _SHARING)).permutation(len(digits.train_labels))
    return np.split(order[: len(order) // workers * workers], workers)


def _computing(training: Training, seed: int, workers: int) -> NDArray[np.float64]:
    """Return the seconds for which each worker computes or stalls in each round, [workers, rounds]."""
    shape = training.rounds(workers), training.local_steps
    times = np.full((workers, shape[0]), training.local_steps * training.compute_time)
    for rank in range(workers) if training.stalls else ():
        draw = np.random.default_rng((seed, _STALLING, rank))
        stalled = draw.random(shape) < training.stalls
        times[rank] += (stalled * draw.uniform(0.5, 2.0, shape)).sum(axis=1) * training.stall_time
    return times


class _Rounds(Sequence[Sequence[Vector]]):
    """The vectors of a training by round and rank. Each is made when its worker begins to send it.

    Attributes:
        promises: The promise of each sum.
        stations: The workers' stations, which have the sums.
        accuracy: Share of the test images that the mean model gets right, after each round.
    """

    def __init__(self, learners: Sequence[_Learner], rounds: int, digits: Digits, oracle: Oracle) -> None:
        self.promises: list[Promise] = []
        self.stations: Sequence[WorkerStation[Any]] = ()
        self.accuracy: list[float] = []
        self._learners, self._rounds, self._digits, self._oracle = learners, rounds, digits, oracle
        # What was sent, by round and rank. A rank may begin a round before others do, if results may lack workers.
        self._sent: dict[int, dict[int, Vector]] = defaultdict(dict)

    def __len__(self) -> int:
        return self._rounds

    def __getitem__(self, call: Any) -> Any:
        return _Round(self, call, len(self._learners))

    def vector(self, call: int, rank: int) -> Vector:
        """Return what a rank sends in a round; called once for each."""
        if call:
            self.take(call - 1, rank)
        self._sent[call][rank] = sent = self._learners[rank].train()
        if len(self._sent[call]) == len(self._learners):
            of_all = self._sent.pop(call)
            self.promises.append(self._oracle.promise([of_all[one] for one in range(len(self._learners))]))
        return sent.copy()

    def take(self, call: int, rank: int) -> None:
        """Let a rank change its model by the sum of a round."""
        learner = self._learners[rank]
        learner.take(self.stations[rank].outputs[call])
        if rank == 0:
            self.accuracy.append(learner.model.accuracy(self._digits.test_images, self._digits.test_labels))


class _Round(Sequence[Vector]):
    """The vectors of a round by rank."""

    def __init__(self, rounds: _Rounds, call: int, workers: int) -> None:
        self._rounds, self._call, self._workers = rounds, call, workers

    def __len__(self) -> int:
        return self._workers

    def __getitem__(self, rank: Any) -> Any:
        return self._rounds.vector(self._call, rank)


def run_training(
    training: Training,
    settings: Settings,
    switch: Engine,
    spec: ClusterSpec,
    oracle: Oracle,
    make_network: MakeNetwork,
) -> Measured:
    """Train in virtual time, and check every sum. There are no barriers.

    Args:
        training: The table of the scenario.
        settings: The point, with the training's vectors (Settings.as_vectors).
        switch: The program of its switches.
        spec: The job and its network.
        oracle: The oracle of its sums.
        make_network: Builds the network, with the arguments of VirtualNetwork.

    Raises:
        CollectiveError: If a worker gives up.
        UnfinishedError: If the run does not end.
        DeadlockError: If links pause one another in a circle.
        ControllerError: If the controller fails.
    """
    workers, digits = len(settings.members), load_digits()
    learners = [_Learner(training, settings.seed, digits, rank, workers) for rank in range(workers)]
    rounds = _Rounds(learners, settings.repetitions, digits, oracle)

    def watch(cluster: Cluster) -> None:
        rounds.stations = cluster.stations

    computing = _computing(training, settings.seed, workers)
    cluster, measured = run_chain(
        settings, switch, spec, rounds, rounds.promises, computing, make_network, prepare=watch
    )
    rounds.take(len(rounds) - 1, 0)
    ended = np.max([station.ended for station in cluster.stations], axis=0)
    return replace(measured, curve=Curve(seconds=ended.tolist(), accuracy=rounds.accuracy))
