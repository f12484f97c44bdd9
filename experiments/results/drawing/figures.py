"""The figures of the demo, and the style of all figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fanin.experiments.results.axes import value_text
from fanin.experiments.results.summary import Run
from fanin.experiments.training.sgd import Curve
from fanin.native.files import naming

IN_NETWORK, RING, LOSSY, REFERENCE = (
    "#0072b2",
    "#d55e00",
    "#56b4e9",
    "#666666",
)  # Okabe and Ito's palette for colour-blind readers

# Behind a number in a bar. Not quite white: on a dark page it takes the colour of the page, behind a light number.
NUMBER_BOX: dict[str, Any] = {"facecolor": "#fefefe", "edgecolor": "none", "pad": 1.5}
STYLE: dict[str, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "figure.dpi": 150,
    # Keep text as text: journals refuse fonts of type 3, and editors of SVG then find words instead of outlines.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "fanin",
}
# Metadata of files: leave out the date, so that the same figure gives the same bytes.
_UNDATED = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}


def save(figure: Figure, path: Path) -> None:
    """Save a figure in the format that the suffix of `path` names; the same figure gives the same bytes.

    Raises:
        ValueError: If the suffix is unknown.
    """
    with naming(path):
        figure.savefig(path, metadata=_UNDATED.get(path.suffix.lower()))


def colour(run: Run) -> str:
    """Return the colour of a run: one for each algorithm, and a lighter one under loss."""
    if run.settings.algorithm == "ring":
        return RING
    return LOSSY if run.settings.links.loss else IN_NETWORK


def _bars(axes: Axes, runs: Sequence[Run], values: Sequence[float], texts: Sequence[str]) -> None:
    positions = range(len(runs))
    colours = [colour(run) for run in runs]
    # Hollow if processors were the limit.
    faces = ["white" if run.measured.limit == "processors" else colour(run) for run in runs]
    bars = axes.bar(positions, values, color=faces, edgecolor=colours, width=0.6)
    axes.bar_label(bars, texts, padding=3)
    axes.set_xticks(positions, [run.label for run in runs])
    axes.margins(y=0.25)


def plot_comparison(runs: Sequence[Run], path: Path) -> None:
    """Draw the time and the bytes of one all-reduce side by side, for runs with the same vector size."""
    first = runs[0].settings
    vector = runs[0].measured.elements * 4 / 1e6
    with plt.style.context(STYLE):
        figure, (times, wire) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
        medians = [run.measured.median * 1e3 for run in runs]
        _bars(times, runs, medians, [f"{value:.0f} ms" for value in medians])
        times.set_title("Time of one all-reduce")
        times.set_ylabel("milliseconds, median")

        megabytes = [run.measured.wire_bytes_per_worker / 1e6 for run in runs]
        _bars(wire, runs, megabytes, [f"{value:.1f} MB" for value in megabytes])
        once_each_way = 2 * vector
        wire.axhline(once_each_way, color=REFERENCE, linestyle=":", label="the vector, once up and once down")
        wire.legend(frameon=False, loc="upper left")
        wire.set_title("On the wire, each worker")
        wire.set_ylabel("megabytes sent and received")
        rate = first.host_link.rate_bits_per_second
        links = "links unlimited" if rate is None else f"links of {value_text('rate', rate)}"
        title = f"{vector:.1f} MB of float32, {len(first.members)} workers, {links}"
        if any(run.measured.limit == "processors" for run in runs):
            title += " (hollow: limited by processors)"
        figure.suptitle(title, x=0.01, ha="left")
        save(figure, path)
        plt.close(figure)


def plot_training(runs: Sequence[Run], reference: Curve, path: Path) -> None:
    """Draw accuracy over time, where algorithms differ, and loss over steps, where they must not differ."""
    with plt.style.context(STYLE):
        figure, (time, steps) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
        for run in runs:
            if (curve := run.measured.curve) is not None:
                time.plot(curve.seconds, curve.accuracy, color=colour(run), label=run.label)
        time.set_title("Accuracy over time")
        time.set_xlabel("seconds of training")
        time.set_ylabel("test images recognized")
        time.yaxis.set_major_formatter("{x:.0%}")
        time.legend(frameon=False, loc="lower right")

        steps.plot(reference.loss, color=REFERENCE, linewidth=5, alpha=0.35, label="one process, no network")
        for run, dashes in zip(runs, ((None, None), (6, 3), (2, 2)), strict=False):
            if (curve := run.measured.curve) is not None:
                steps.plot(curve.loss, color=colour(run), dashes=dashes, label=run.label)
        steps.set_yscale("log")
        steps.set_title("Loss over steps")
        steps.set_xlabel("all-reduces")
        steps.set_ylabel("cross-entropy of the batch")
        steps.legend(frameon=False)
        save(figure, path)
        plt.close(figure)
