"""The main job: a model trained through the switches and by ring, and one large all-reduce both ways."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from experiments.live.crew import Observe
from experiments.live.run import RunSpec, open_network
from experiments.live.work import DIGITS_FILE, Vectors
from experiments.results.figures import plot_comparison, plot_training
from experiments.results.summary import Run, write_curves, write_summary
from experiments.scenario.compilers import CompiledProgram
from experiments.scenario.targets import EMBEDDED, Target
from experiments.training.digits import load_digits
from experiments.training.sgd import Curve, TrainingConfig, train
from topologies.mininet_net import MininetNetwork
from topologies.model import Topology
from topologies.runs import scratch


@dataclass(frozen=True, slots=True)
class Demo:
    """What `run_demo` measured, and the training that it is held against."""

    runs: Sequence[Run]
    reference: Curve

    @property
    def training(self) -> Sequence[Run]:
        """The runs that train."""
        return [run for run in self.runs if run.curve is not None]

    @property
    def vectors(self) -> Sequence[Run]:
        """The runs of one large vector: in-network, then ring."""
        return [run for run in self.runs if run.curve is None]

    @property
    def violations(self) -> Sequence[Run]:
        """The runs in which a sum lies outside its bound."""
        return [run for run in self.runs if run.violations]

    def write(self, folder: Path) -> None:
        """summary.json, runs.csv, curves.csv, comparison.png and training.png into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        write_summary(self.runs, folder)
        write_curves(self.runs, folder)
        plot_comparison(self.vectors, folder / "comparison.png")
        plot_training(self.training, self.reference, folder / "training.png")


class Observer(Protocol):
    """Is told what the demo is doing."""

    def stage(self, text: str) -> None:
        """Something that takes a moment has begun."""

    def awaits(self, who: str) -> None:
        """It goes on once `who` is ready."""

    def run(self, spec: RunSpec, steps: int) -> Observe:
        """A run of `steps` all-reduces has begun, which tells how it goes on."""


def specs(training: TrainingConfig, vector: Vectors, loss: float) -> list[RunSpec]:
    """The demo's runs, in order."""
    size = f"{vector.elements * 4 / 1e6:g} MB"
    return [
        RunSpec("training", "in-network", training),
        RunSpec("training", "ring", training),
        RunSpec("training", "in-network", training, loss=loss),
        RunSpec(size, "in-network", vector),
        RunSpec(size, "ring", vector),
    ]


def run_demo(
    topology: Topology,
    program: CompiledProgram,
    loss: float,
    logs: Path,
    observer: Observer,
    target: Target = EMBEDDED,
    training: TrainingConfig | None = None,
    captures: Path | None = None,
) -> Demo:
    """Build the network, do every run on it, and take it down; the switches' output goes to `logs`.

    training: the target's own where none is given. captures: where a pcap file of each port of the switches goes.

    Raises:
        RunError: a run did not finish. NetworkError, ControllerError: the network is not what it should be.
    """
    training = training or target.training
    observer.stage("training the reference in one process")
    digits = load_digits()
    reference = train(training, digits, 0, 1, lambda vector: vector)
    with tempfile.TemporaryDirectory(prefix="demo-", dir=scratch()) as name:
        folder = Path(name)
        digits.save(folder / DIGITS_FILE)
        observer.stage(f"starting {len(topology.switches)} switches and {len(topology.hosts)} hosts")
        with MininetNetwork(topology, target.launcher, logs, captures, observer.awaits) as network:

            async def run_all() -> list[Run]:
                p4info, config = program.p4info, program.device_config
                async with open_network(network, p4info, config, folder, target) as live:
                    runs = []
                    for spec in specs(training, target.vector, loss):
                        steps = (
                            spec.work.repetitions
                            if isinstance(spec.work, Vectors)
                            else spec.work.steps(len(digits.train_labels))
                        )
                        runs.append(await live.run(spec, observer.run(spec, steps)))
                    return runs

            runs = asyncio.run(run_all())
    accuracy = reference.accuracy[-1]
    judged = [run if run.curve is None else replace(run, reference_accuracy=accuracy) for run in runs]
    return Demo(judged, reference)
