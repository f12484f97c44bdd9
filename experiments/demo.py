"""The main job: a model trained through the switches and by ring, and one large all-reduce both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fanin.experiments.live.run import run_live, work_of
from fanin.experiments.live.worker_group import Observe
from fanin.experiments.results.drawing.figures import plot_comparison, plot_training
from fanin.experiments.results.files import write_results
from fanin.experiments.results.measured import row
from fanin.experiments.results.provenance import provenance
from fanin.experiments.results.summary import Run, write_curves, write_summary
from fanin.experiments.scenario.compilers import CompiledProgram
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.topology import TopologySettings
from fanin.experiments.scenario.tables.training import Training
from fanin.experiments.scenario.tools import Compiler, SwitchKind
from fanin.experiments.training.digits import load_digits
from fanin.experiments.training.sgd import Curve, TrainingConfig, train
from fanin.topologies.link import LinkModel


@dataclass(frozen=True, slots=True)
class Work:
    """A training, and all-reduces of a large vector."""

    training: Training
    elements: int
    repetitions: int


# Of a size that the switch does in a minute or two.
WORK: Mapping[SwitchKind, Work] = {
    "embedded": Work(Training(), 1_000_000, 5),
    "bmv2": Work(Training(epochs=6, hidden=64), 50_000, 3),
}


@dataclass(frozen=True, slots=True)
class Demo:
    """What `run_demo` measured, and the training that it is compared with."""

    runs: Sequence[Run]
    reference: Curve

    @property
    def training(self) -> Sequence[Run]:
        """The runs that train."""
        return [run for run in self.runs if run.settings.training is not None]

    @property
    def vectors(self) -> Sequence[Run]:
        """The runs of one large vector: in-network, then ring."""
        return [run for run in self.runs if run.settings.training is None]

    @property
    def violations(self) -> Sequence[Run]:
        """The runs in which a sum lies outside its bound."""
        return [run for run in self.runs if run.measured.violations]

    def write(self, folder: Path) -> None:
        """Rows of results as of any scenario, and summary.json, runs.csv, curves.csv, comparison.png, training.png."""
        common = provenance()
        write_results(
            [row(run.settings, run.measured, **common) for run in self.runs], {"name": "demo"}, folder
        )
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

    def run(self, settings: Settings, steps: int) -> Observe:
        """A run of `steps` all-reduces has begun, which tells how it goes on."""


def demo_points(
    topology: TopologySettings,
    loss: float = 0.01,
    switch: SwitchKind = "embedded",
    compiler: Compiler = "embedded",
    work: Work | None = None,
    **files: Path | None,
) -> list[Settings]:
    """The demo's runs, in order; work: the switch's own where none is given. files: by the keys that name them."""
    work = work or WORK[switch]

    def point(**settings: object) -> Settings:
        return Settings.model_validate(
            {
                "world": "live",
                "topology": topology,
                "switch": switch,
                "compiler": compiler,
            }
            | files
            | settings
        ).settled

    training = {"training": work.training}
    vector = {"size": f"{work.elements} elements", "repetitions": work.repetitions}
    return [
        point(algorithm="in-network", **training),
        point(algorithm="ring", **training),
        point(algorithm="in-network", **training, links=LinkModel(loss=loss)),
        point(algorithm="in-network", **vector),
        point(algorithm="ring", **vector),
    ]


def run_demo(
    points: Sequence[Settings],
    program: CompiledProgram,
    logs: Path,
    observer: Observer,
    captures: Path | None = None,
) -> Demo:
    """Build the network, do every run on it, and take it down; see run_live.

    Raises:
        RunError: a run did not finish. NetworkError, ControllerError: the network is not what it should be.
    """
    training, topology = work_of(points[0]), points[0].network
    assert isinstance(training, TrainingConfig)
    observer.stage("training the reference in one process")
    digits = load_digits()
    reference = train(training, digits, 0, 1, lambda vector: vector)
    observer.stage(f"starting {len(topology.switches)} switches and {len(topology.hosts)} hosts")

    def begun(settings: Settings) -> Observe:
        work = work_of(settings)
        samples = len(digits.train_labels)
        return observer.run(
            settings, work.steps(samples) if isinstance(work, TrainingConfig) else work.repetitions
        )

    measured = run_live(points, program, logs, begun, observer.awaits, captures)
    return Demo(
        [
            Run(settings, found, reference.accuracy[-1] if settings.training else None)
            for settings, found in zip(points, measured, strict=True)
        ],
        reference,
    )
