"""The demo: a model trained through the switches and with a ring, and one large all-reduce each way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from fanin.experiments.live.run import run_live, work_of
from fanin.experiments.live.worker_group import Observe
from fanin.experiments.protocol import OURS, ProtocolError, protocol_of
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
from fanin.native.text import counted
from fanin.topologies.link import LinkModel


@dataclass(frozen=True, slots=True)
class Work:
    """The demo's work: a training, and `repetitions` all-reduces of a vector of `elements` values."""

    training: Training
    elements: int
    repetitions: int


# The size that a switch handles in a minute or two.
WORK: Mapping[SwitchKind, Work] = {
    "embedded": Work(Training(), 1_000_000, 5),
    "bmv2": Work(Training(epochs=6, hidden=64), 50_000, 3),
}


@dataclass(frozen=True, slots=True)
class Demo:
    """The measurements of `run_demo`, and the reference training in one process."""

    runs: Sequence[Run]
    reference: Curve

    @property
    def training(self) -> Sequence[Run]:
        """Return the runs that train."""
        return [run for run in self.runs if run.settings.training is not None]

    @property
    def vectors(self) -> Sequence[Run]:
        """Return the runs with one large vector: in-network, then ring."""
        return [run for run in self.runs if run.settings.training is None]

    @property
    def violations(self) -> Sequence[Run]:
        """Return the runs in which a sum lies outside its bound."""
        return [run for run in self.runs if run.measured.violations]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return a row of results for each run, with the accuracy of the same training in one process."""
        return [
            {
                "run": run.name,
                **row(run.settings, run.measured),
                "reference_accuracy": run.reference_accuracy,
            }
            for run in self.runs
        ]

    def write(self, folder: Path) -> None:
        """Write rows of results, summary.json, runs.csv, curves.csv, comparison.png and training.png to `folder`."""
        common = provenance()
        write_results(
            [row(run.settings, run.measured, **common) for run in self.runs], {"name": "demo"}, folder
        )
        write_summary(self.runs, folder)
        write_curves(self.runs, folder)
        plot_comparison(self.vectors, folder / "comparison.png")
        plot_training(self.training, self.reference, folder / "training.png")


class DemoObserver(Protocol):
    """A receiver of the demo's progress."""

    def stage(self, text: str) -> None:
        """Report that something begins that takes a moment."""

    def awaits(self, who: str) -> None:
        """Report that the demo waits for `who`."""

    def run(self, settings: Settings, steps: int) -> Observe:
        """Report that a run of `steps` all-reduces begins, and return the observer of its progress."""


def demo_points(
    topology: TopologySettings,
    loss: float = 0.01,
    switch: SwitchKind = "embedded",
    compiler: Compiler = "embedded",
    work: Work | None = None,
    protocol: str = OURS,
    **files: Path | None,
) -> list[Settings]:
    """Return the points of the demo, in order.

    Args:
        topology: The network.
        loss: Probability that a link loses a packet, in the run with loss.
        switch: The switch software.
        compiler: The P4 compiler.
        work: Sizes of the training and of the vectors; None: those that suit the switch.
        protocol: A protocol that comes with fanin, or its folder.
        files: The user's own files, by the settings that name them.

    Raises:
        ProtocolError: If the protocol needs a host for its server, and only two hosts or fewer are there.
    """
    work = work or WORK[switch]
    workers = None
    if protocol_of(protocol).make_server:
        workers = len(topology.network.hosts) - 1
        if workers < 2:
            raise ProtocolError(
                f"{protocol}: its server needs a host next to two workers; ask for 3 hosts or more"
            )

    def point(**settings: object) -> Settings:
        return Settings.model_validate(
            {
                "world": "live",
                "topology": topology,
                "switch": switch,
                "compiler": compiler,
                "protocol": protocol,
                "workers": workers,
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
    observer: DemoObserver,
    captures: Path | None = None,
) -> Demo:
    """Build the network, do every run on it, and take it down; see run_live.

    Args:
        points: The runs, as demo_points() returns them.
        program: The compiled program.
        logs: Folder for the switches' output.
        observer: Receives the progress.
        captures: Folder for a pcap file of each switch port; None: no captures.

    Raises:
        RunError: If a run does not finish.
        NetworkError: If the network cannot be built or breaks.
        ControllerError: If a switch cannot be programmed.
    """
    training, topology = work_of(points[0]), points[0].network
    assert isinstance(training, TrainingConfig)
    observer.stage("training the reference in one process")
    digits = load_digits()
    reference = train(training, digits, 0, 1, lambda vector: vector)
    observer.stage(
        f"starting {counted(len(topology.switches), 'switch', 'switches')} and {counted(len(topology.hosts), 'host')}"
    )

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
