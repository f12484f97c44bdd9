"""A picture of training steps: for how long workers compute, wait for data, and wait for sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import pyplot as plt

from fanin.experiments.results.axes import scale
from fanin.experiments.results.drawing.figures import STYLE, save

_WIDTH = 7.5  # inches
_BAR = 0.62  # inches for each bar and its name above it
_THICK = 0.55  # of the room of a bar
_REST = 1.3  # inches for axis and legend
_ROOM = 0.09  # share of the longest bar from which a part has room for a number

# Okabe and Ito's palette; the hatch tells the parts apart in print without colours.
_PARTS = (
    ("computing", "compute, no data moves", "#0072b2", ""),
    ("hidden", "compute while data moves (hidden)", "#56b4e9", "//"),
    ("loading", "wait for training data", "#e69f00", ".."),
    ("exposed", "wait for sums (exposed)", "#d55e00", "xx"),
)


@dataclass(frozen=True, slots=True)
class MeanStep:
    """The mean step of one point, in seconds.

    Attributes:
        name: Name of the point.
        computing: Time in which the slowest worker computes and no data moves.
        hidden: Time in which it computes while data moves.
        loading: Time in which it waits for its data.
        exposed: Time in which it waits for sums, and for other workers.
    """

    name: str
    computing: float
    hidden: float
    loading: float
    exposed: float

    @property
    def seconds(self) -> float:
        """Return the length of the step."""
        return self.computing + self.hidden + self.loading + self.exposed


def draw_steps(steps: Sequence[MeanStep], path: Path) -> None:
    """Draw a bar for each step, with the length of each part and its share in the legend's order."""
    longest = max(step.seconds for step in steps)
    factor, label = scale("step_seconds", [longest])
    with plt.style.context([STYLE]):
        figure, axes = plt.subplots(figsize=(_WIDTH, _REST + _BAR * len(steps)), layout="constrained")
        begins = [0.0] * len(steps)
        for part, meaning, colour, hatch in _PARTS:
            widths = [getattr(step, part) / factor for step in steps]
            if not any(widths):
                continue
            bars = axes.barh(
                range(len(steps)),
                widths,
                height=_THICK,
                left=begins,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                label=meaning,
            )
            texts = [
                f"{width * factor / step.seconds:.0%}" if width * factor >= _ROOM * longest else ""
                for step, width in zip(steps, widths, strict=True)
            ]
            # Not quite white: on a dark page it takes the colour of the page, behind a light number.
            box = {"facecolor": "#fefefe", "edgecolor": "none", "pad": 1.5}
            for text in axes.bar_label(bars, texts, label_type="center"):
                text.set_bbox(box if text.get_text() else None)
            begins = [begin + width for begin, width in zip(begins, widths, strict=True)]
        unit = label[label.rindex("(") + 1 : -1]
        axes.bar_label(bars, [f"{step.seconds / factor:.4g} {unit}" for step in steps], padding=4)
        # Above the bars: beside them, a name would leave little room for them.
        for place, step in enumerate(steps):
            axes.annotate(step.name, (0, place - _THICK / 2), (4, 1), textcoords="offset points", va="bottom")
        axes.set_yticks([])
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_xlim(left=0)
        axes.set_xlabel(label)
        figure.legend(loc="outside lower center", ncols=2)
        save(figure, path)
        plt.close(figure)
