"""A picture of training steps: for how long workers compute, wait for data, and wait for sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import pyplot as plt

from fanin.experiments.results.axes import scale
from fanin.experiments.results.drawing.figures import NUMBER_BOX, STYLE, save

_WIDTH = 7.5  # inches
_BAR = 0.62  # inches for each bar and its name above it
_THICK = 0.55  # of the room of a bar
_REST = 1.3  # inches for axis and legend
_CHARACTER = 0.014  # of the length of the axis, for a character behind a bar
_ROOM = 0.09  # share of the longest bar from which a part has room for a number

# Okabe and Ito's palette; the hatch tells the parts apart in print without colours. The last word is the short name.
_PARTS = (
    ("computing", "compute, no data moves", "#0072b2", "", "compute"),
    ("hidden", "compute while data moves (hidden)", "#56b4e9", "//", "hidden"),
    ("loading", "wait for training data", "#e69f00", "..", "data"),
    ("exposed", "wait for sums (exposed)", "#d55e00", "xx", "exposed"),
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
    """Draw a bar for each step, with the share of each part. Those of narrow parts are behind the bar."""
    longest = max(step.seconds for step in steps)
    factor, label = scale("step_seconds", [longest])
    with plt.style.context([STYLE]):
        figure, axes = plt.subplots(figsize=(_WIDTH, _REST + _BAR * len(steps)), layout="constrained")
        begins = [0.0] * len(steps)
        for part, meaning, colour, hatch, _ in _PARTS:
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
                "" if _is_narrow(step, part, longest) else f"{getattr(step, part) / step.seconds:.0%}"
                for step in steps
            ]
            for text in axes.bar_label(bars, texts, label_type="center"):
                text.set_bbox(NUMBER_BOX if text.get_text() else None)
            begins = [begin + width for begin, width in zip(begins, widths, strict=True)]
        unit = label[label.rindex("(") + 1 : -1]
        lengths = [
            "; ".join([f"{step.seconds / factor:.4g} {unit}", *_narrow_shares(step, longest)])
            for step in steps
        ]
        axes.bar_label(bars, lengths, padding=4)
        # Above the bars: beside them, a name would leave little room for them.
        for place, step in enumerate(steps):
            axes.annotate(step.name, (0, place - _THICK / 2), (4, 1), textcoords="offset points", va="bottom")
        axes.set_yticks([])
        axes.invert_yaxis()
        axes.margins(x=_CHARACTER * max(map(len, lengths)))
        axes.set_xlim(left=0)
        axes.set_xlabel(label)
        figure.legend(loc="outside lower center", ncols=2)
        save(figure, path)
        plt.close(figure)


def _is_narrow(step: MeanStep, part: str, longest: float) -> bool:
    return float(getattr(step, part)) < _ROOM * longest


def _narrow_shares(step: MeanStep, longest: float) -> list[str]:
    """Return the shares of the parts that have no room for a number, in one text; none if all have."""
    shares = [
        f"{name} {getattr(step, part) / step.seconds:.0%}"
        for part, *_, name in _PARTS
        if getattr(step, part) and _is_narrow(step, part, longest)
    ]
    return [", ".join(shares)] if shares else []
