"""Figures of results: lines, bars, boxes, and cumulative distributions."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
    PercentFormatter,
)

from fanin.experiments.results.axes import column_label, plain, scale
from fanin.experiments.results.drawing.figures import NUMBER_BOX, STYLE, save
from fanin.experiments.results.drawing.series import PlotError, Series, every_repetition
from fanin.experiments.scenario.styles import Spread, Style
from fanin.experiments.scenario.tables.figure import Plot

# Okabe and Ito's palette for colour-blind readers; each colour has a different marker for print without colours.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", ":", "-.")
_HATCHES = ("", "//", "..", "xx")
_MAX_TICKS = 14
_FEW_DECADES = (
    1000.0  # ratio of highest to lowest value above which each decade has only one number on the axis
)
_MAX_INSIDE = 4  # entries of a legend inside the axes; longer legends are below the figure
_MAX_BELOW = 3  # lines of a legend below the figure for which the figure has room; it grows for others
_WIDEST_INSIDE = 0.65  # width of a legend inside the axes, as a share of the figure's
_LETTER = 0.55  # mean width of a letter, as a share of the font's size
_HANDLE = 5  # letters that fit into the line or the patch next to a name
_DOTTED = (0, (1, 1.2))
_MOST_LABELLED = 8  # bars of a figure; more have no room for numbers
_BAR_TO_BAR = 0.9  # width of a bar or a box, as a share of its room

_STYLES: dict[Style, tuple[tuple[float, float], dict[str, Any]]] = {
    "page": ((6.4, 4.0), {}),
    "column": (
        (3.4, 2.5),
        {
            "font.size": 8,
            "axes.titlesize": 8,
            "legend.fontsize": 7,
            "lines.linewidth": 1.0,
            "lines.markersize": 3.5,
            "axes.linewidth": 0.6,
            "figure.dpi": 300,
        },
    ),
    "slide": (
        (10.0, 5.6),
        {
            "font.size": 17,
            "legend.fontsize": 15,
            "lines.linewidth": 2.5,
            "lines.markersize": 9,
            "axes.linewidth": 1.2,
        },
    ),
}

_SPREADS: dict[Spread, str] = {
    "minmax": "smallest to largest",
    "iqr": "middle half",
    "ci95": "95 % confidence interval of the median",
    "none": "",
}


def draw(lines: Sequence[Series], plot: Plot, path: Path) -> None:
    """Draw a figure in the format that the suffix of `path` names.

    Raises:
        PlotError: If the suffix is unknown, or there is no prediction to draw.
    """
    inches, looks = _STYLES[plot.style]
    with plt.style.context([STYLE | {"lines.markersize": 5} | looks]):
        figure, axes = plt.subplots(figsize=plot.size or inches, layout="constrained")
        try:
            _draw(figure, axes, lines, plot)
            path.parent.mkdir(parents=True, exist_ok=True)
            save(figure, path)
        except PlotError:
            raise
        except ValueError as error:
            raise PlotError(f"{path}: {error}") from None
        finally:
            plt.close(figure)


@dataclass(frozen=True, slots=True)
class _Looks:
    colour: str
    dashes: str
    marker: str
    hatch: str


def _looks(lines: Sequence[Series]) -> list[_Looks]:
    """Return the looks of lines: the first column of a group determines the colour, the others the rest."""
    colours = list(dict.fromkeys(line.group[:1] for line in lines))
    rests = list(dict.fromkeys(line.group[1:] for line in lines))
    several = len(rests) > 1
    looks = []
    for line in lines:
        first, rest = colours.index(line.group[:1]), rests.index(line.group[1:])
        marker = _MARKERS[(rest if several else first) % len(_MARKERS)]
        dashes, hatch = _DASHES[rest % len(_DASHES)], _HATCHES[rest % len(_HATCHES)]
        looks.append(_Looks(_COLOURS[first % len(_COLOURS)], dashes, marker, hatch))
    return looks


def _draw(figure: Figure, axes: Axes, lines: Sequence[Series], plot: Plot) -> None:
    if plot.closed_form and not np.isfinite([y for line in lines for y in line.closed_form]).any():
        raise PlotError(
            "closed_form: no row has a prediction, as links are unlimited; give the topology a rate"
        )
    xs = list(dict.fromkeys(x for line in lines for x in (*line.x, *line.failed)))
    factor, label = scale(plot.measured, [y for line in lines for y in line.high])
    if plot.kind == "cdf":
        notes = _draw_distributions(axes, lines, plot, factor)
        axes.set_xlabel(label)
        axes.set_ylabel(f"share of {'all-reduces' if every_repetition(plot.x) else 'runs'}")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    else:
        notes = _draw_places(axes, lines, plot, xs, factor)
        axes.set_ylabel(label)
        if "y" in plot.log:
            _set_log_y(axes)
        else:
            axes.set_ylim(bottom=0)
    title = axes.set_title(plot.title or "")
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    _draw_legend(figure, axes, plot, notes)
    _fold_texts(figure, axes, title)


def _draw_legend(figure: Figure, axes: Axes, plot: Plot, notes: Sequence[str]) -> None:
    """Draw the legend with the lines, if they have names, and the notes."""
    handles = axes.get_legend_handles_labels()[0] if plot.by else []
    if not handles and not notes:
        return
    looks: dict[str, Any] = {
        "handles": handles,
        "frameon": False,
        "alignment": "left",
        "title_fontsize": plt.rcParams["legend.fontsize"],
    }
    size = _points(plt.rcParams["legend.fontsize"])
    letters = int(figure.get_figwidth() * 72 / (_LETTER * size))  # in a line
    narrow = all(len(note) <= _WIDEST_INSIDE * letters for note in notes)
    if narrow and len(handles) + len(notes) <= _MAX_INSIDE:
        axes.legend(**looks, title="\n".join(notes))
        return
    widest = max((len(str(handle.get_label())) for handle in handles), default=0)
    columns = max(1, min(letters // (widest + _HANDLE), len(handles)))
    title = textwrap.fill("; ".join(notes), letters)
    figure.legend(**looks, title=title, loc="outside lower center", ncols=columns)
    lines = -(-len(handles) // columns) + len(title.splitlines())
    if plot.size is None and lines > _MAX_BELOW:
        more = (lines - _MAX_BELOW) * size * (1 + plt.rcParams["legend.labelspacing"]) / 72
        figure.set_figheight(figure.get_figheight() + more)


def _fold_texts(figure: Figure, axes: Axes, title: Text) -> None:
    """Fold the title and the labels of the axes where they would not fit into the figure."""
    title.set_visible(False)  # else a long title leaves no width for the axes
    figure.draw_without_rendering()  # computes the layout
    title.set_visible(True)
    _fold(title, figure.bbox.x1 - axes.bbox.x0)
    _fold(axes.xaxis.label, _centred_room(axes.bbox.intervalx, (0.0, figure.bbox.x1)))
    figure.draw_without_rendering()
    below = max((legend.get_window_extent().y1 for legend in figure.legends), default=0.0)
    _fold(axes.yaxis.label, _centred_room(axes.bbox.intervaly, (below, figure.bbox.y1)))


def _centred_room(axis: Sequence[float], edges: tuple[float, float]) -> float:
    """Return how long a text in the middle of an axis can be between two edges; all in pixels."""
    middle = sum(axis) / 2
    return 2 * min(middle - edges[0], edges[1] - middle)


def _fold(text: Text, room: float) -> None:
    """Break a text into as few lines, of about the same length, as fit into `room` pixels."""
    words, count = text.get_text(), 1
    while _length(text) > room and count < len(words.split()):
        count += 1
        widths = range(1, len(words) + 1)
        folded = (
            textwrap.wrap(words, width, break_long_words=False, break_on_hyphens=False) for width in widths
        )
        text.set_text("\n".join(next(lines for lines in folded if len(lines) <= count)))


def _length(text: Text) -> float:
    """Return the length of a text's longest line in pixels, which is the height of an upright label."""
    box = text.get_window_extent()
    return float(box.height if text.get_rotation() else box.width)


def _points(size: str | float) -> float:
    return FontProperties(size=size).get_size_in_points()


def _name(line: Series, plot: Plot) -> str:
    return plot.labels.get(line.label, line.label)


# -- over x ------------------------------------------------------------------------------------------------------


def _draw_places(
    axes: Axes, lines: Sequence[Series], plot: Plot, xs: Sequence[Any], y_factor: float
) -> list[str]:
    """Draw lines, bars or boxes over the values of x, and return the notes of the legend."""
    numeric = all(isinstance(x, int | float) for x in xs)
    if numeric and plot.kind == "lines":
        x_factor, x_label = scale(plot.x, xs)
        notes = _draw_lines(axes, lines, plot, x_factor, y_factor)
        _number_x_axis(axes, sorted(x / x_factor for x in xs), "x" in plot.log)
        places = [[x / x_factor for x in line.failed] for line in lines]
        axes.set_xlabel(x_label)
        return notes + _mark_failed(axes, lines, places)
    factor, label = scale(plot.x, xs) if numeric else (1.0, column_label(plot.x))
    first = {name: place for place, name in enumerate(plot.order)}
    ordered = sorted(xs) if numeric else sorted(xs, key=lambda x: first.get(str(x), len(first)))
    width = 0.8 / len(lines)
    middles = [(i - (len(lines) - 1) / 2) * width for i in range(len(lines))]
    columns = _Columns({x: place for place, x in enumerate(ordered)}, width * _BAR_TO_BAR, y_factor)
    draw_columns = columns.boxes if plot.kind == "box" else columns.bars
    notes = draw_columns(axes, lines, plot, middles)
    names = [f"{x / factor:g}" if numeric else plot.labels.get(str(x), str(x)) for x in ordered]
    axes.set_xticks(range(len(ordered)), names)
    axes.set_xlabel(label)
    failed = [columns.at(line.failed, middle) for line, middle in zip(lines, middles, strict=True)]
    return notes + _mark_failed(axes, lines, failed)


def _draw_lines(
    axes: Axes, lines: Sequence[Series], plot: Plot, x_factor: float, y_factor: float
) -> list[str]:
    shaded = barred = False
    for line, looks in zip(lines, _looks(lines), strict=True):
        x = np.array(line.x) / x_factor
        median, low, high = (np.array(part) / y_factor for part in (line.median, line.low, line.high))
        axes.plot(
            x,
            median,
            color=looks.colour,
            linestyle=looks.dashes,
            marker="" if line.steps else looks.marker,
            drawstyle="steps-post" if line.steps else "default",
            label=_name(line, plot),
        )
        hollow = np.array(line.by_processors, np.bool_)
        axes.plot(
            *(x[hollow], median[hollow]),
            color=looks.colour,
            linestyle="none",
            marker=looks.marker,
            markerfacecolor="white",
            zorder=3,
        )
        if plot.closed_form:
            axes.plot(x, np.array(line.closed_form) / y_factor, color=looks.colour, linestyle=_DOTTED)
        if (high > low).any() and len(x) > 1:
            shaded = True
            axes.fill_between(x, low, high, color=looks.colour, alpha=0.15, linewidth=0)
        elif (high > low).any():  # a shaded area would have no width
            barred = True
            errors = [median - low, high - median]
            axes.errorbar(x, median, errors, fmt="none", ecolor=looks.colour, capsize=3)
    marks = [name for name, there in (("shaded", shaded), ("bars", barred)) if there]
    notes = [*_spread_note(lines, plot, " and ".join(marks)), *_closed_form_note(plot)]
    return [*notes, *_processors_note(lines)]


@dataclass(frozen=True, slots=True)
class _Columns:
    """Bars or boxes side by side: the place of each value of x, their width, and the divisor of y."""

    place: dict[Any, int]
    width: float
    y_factor: float

    def at(self, xs: Sequence[Any], middle: float) -> list[float]:
        """Return the positions of a line's columns, whose middles have this distance from those of the places."""
        return [self.place[x] + middle for x in xs]

    def bars(self, axes: Axes, lines: Sequence[Series], plot: Plot, middles: Sequence[float]) -> list[str]:
        """Draw medians as bars, and return the notes of the legend."""
        notes: list[str] = []
        for line, looks, middle in zip(lines, _looks(lines), middles, strict=True):
            x = self.at(line.x, middle)
            median, low, high = (
                np.array(part) / self.y_factor for part in (line.median, line.low, line.high)
            )
            style: dict[str, Any] = {"color": looks.colour, "hatch": looks.hatch, "edgecolor": "white"}
            bars = axes.bar(x, median, self.width, label=_name(line, plot), **style)
            _hollow(bars.patches, line, looks)
            if len(lines) * len(self.place) <= _MOST_LABELLED:
                for text in axes.bar_label(bars, fmt="%.4g", label_type="center"):
                    text.set_bbox(NUMBER_BOX)
            self._closed_form(axes, line, x)
            if (high > low).any():
                errors = [median - low, high - median]
                axes.errorbar(x, median, errors, fmt="none", ecolor="black", capsize=3, elinewidth=1)
                notes = _spread_note(lines, plot, "error bars")
        return notes + _closed_form_note(plot) + _processors_note(lines)

    def boxes(self, axes: Axes, lines: Sequence[Series], plot: Plot, middles: Sequence[float]) -> list[str]:
        """Draw Tukey's box plots, and return the notes of the legend."""
        for line, looks, middle in zip(lines, _looks(lines), middles, strict=True):
            x = self.at(line.x, middle)
            drawn = axes.boxplot(
                [np.array(values) / self.y_factor for values in line.samples],
                positions=x,
                widths=self.width,
                manage_ticks=False,
                patch_artist=True,
                boxprops={
                    "facecolor": looks.colour,
                    "alpha": 0.5,
                    "hatch": looks.hatch,
                    "edgecolor": "black",
                },
                medianprops={"color": "black"},
                flierprops={"marker": ".", "markersize": 4, "markerfacecolor": looks.colour},
            )
            for box in drawn["boxes"][:1]:
                box.set_label(_name(line, plot))
            _hollow(drawn["boxes"], line, looks)
            self._closed_form(axes, line, x)
        axes.set_xlim(-0.5, len(self.place) - 0.5)
        note = f"box: middle half of {_count(lines)}, and median; whiskers: up to 1.5 boxes; dots: beyond"
        return [note, *_closed_form_note(plot), *_processors_note(lines)]

    def _closed_form(self, axes: Axes, line: Series, x: Sequence[float]) -> None:
        half = self.width / 2
        for place, y in zip(x, line.closed_form, strict=False):  # there are none, or one at each place
            axes.plot([place - half, place + half], [y / self.y_factor] * 2, color="black", linestyle=_DOTTED)


def _number_x_axis(axes: Axes, values: Sequence[float], logarithmic: bool) -> None:
    """Put a tick at each value, if they are few and far enough apart."""
    if logarithmic:
        _set_log_x(axes, values)
    places = np.log(values) if logarithmic and values[0] > 0 else np.array(values)
    close = min(np.diff(places), default=1.0) * _MAX_TICKS < places[-1] - places[0]
    apart = not close or (logarithmic and values[0] <= 0)
    if apart and len(values) <= _MAX_TICKS:
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_minor_locator(NullLocator())
        # A linear axis cannot show how far 1 B is from 0 when it reaches to megabytes.
        smallest = 0.0 if logarithmic else 1e-4 * max(map(abs, values))
        axes.xaxis.set_major_formatter(
            FuncFormatter(lambda x, place: plain(x if abs(x) >= smallest else 0.0, place))
        )


def _set_log_y(axes: Axes) -> None:
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1.0, 2.0, 5.0) if high < _FEW_DECADES * low else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(FuncFormatter(plain))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _set_log_x(axes: Axes, values: Sequence[float]) -> None:
    if values[0] > 0:
        if len(values) == 1:  # matplotlib cannot derive limits from a single value
            axes.set_xlim(values[0] / 2, values[0] * 2)
        axes.set_xscale("log")
    else:  # shows a zero to the left of the smallest value
        axes.set_xscale("symlog", linthresh=min((x for x in values if x > 0), default=1.0))


# -- distributions -------------------------------------------------------------------------------------------------


def _draw_distributions(axes: Axes, lines: Sequence[Series], plot: Plot, x_factor: float) -> list[str]:
    """Draw the share of values that are no larger than x, and return the notes of the legend."""
    for line, looks in zip(lines, _looks(lines), strict=True):
        if not line.samples:
            continue
        values = np.array(line.samples[0]) / x_factor
        axes.ecdf(values, color=looks.colour, linestyle=looks.dashes, label=_name(line, plot))
        for x in line.closed_form:
            axes.axvline(x / x_factor, color=looks.colour, linestyle=_DOTTED)
    if "x" in plot.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(plain))
    axes.set_ylim(0, 1.02)
    failed = [_name(line, plot) for line in lines if line.failed]
    notes = [f"{_count(lines)} values each", *_closed_form_note(plot)]
    if by_processors := [_name(line, plot) for line in lines if any(line.by_processors)]:
        notes.append(f"limited by processors: {', '.join(by_processors)}".rstrip(": "))
    return [*notes, f"runs failed: {', '.join(failed)}".rstrip(": ")] if failed else notes


# -- marks and notes -------------------------------------------------------------------------------------------------


def _mark_failed(axes: Axes, lines: Sequence[Series], places: Sequence[Sequence[float]]) -> list[str]:
    """Draw a cross on the x axis for each place at which a run failed."""
    for looks, xs in zip(_looks(lines), places, strict=True):
        if xs:
            axes.plot(
                *(xs, [0.0] * len(xs)),
                color=looks.colour,
                linestyle="none",
                marker="x",
                markeredgewidth=2,
                transform=axes.get_xaxis_transform(),
                clip_on=False,
                zorder=3,
            )
    return ["cross: a run failed"] if any(places) else []


def _spread_note(lines: Sequence[Series], plot: Plot, mark: str) -> list[str]:
    """Return the note that explains a mark, if there is one."""
    return [f"{mark}: {_SPREADS[plot.spread]} of {_count(lines)}"] if mark else []


def _count(lines: Sequence[Series]) -> str:
    """Return how many values a place has."""
    counts = [len(values) for line in lines for values in line.samples]
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _hollow(patches: Sequence[Patch], line: Series, looks: _Looks) -> None:
    """Make the bars or boxes of runs hollow that processors limited."""
    for patch, hollow in zip(patches, line.by_processors, strict=True):
        if hollow:
            patch.set(facecolor="white", edgecolor=looks.colour, alpha=1.0, linewidth=1.5)


def _processors_note(lines: Sequence[Series]) -> list[str]:
    there = any(any(line.by_processors) for line in lines)
    return ["hollow: limited by processors, not links"] if there else []


def _closed_form_note(plot: Plot) -> list[str]:
    return ["dotted: analytical model"] if plot.closed_form else []
