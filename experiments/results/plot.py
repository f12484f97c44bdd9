"""Any column of results against any other."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from experiments.results.figures import STYLE
from experiments.results.files import columns_of
from experiments.results.measured import Row
from experiments.scenario.file import Plot
from experiments.scenario.settings import KEYS

# Okabe and Ito: told apart by every eye; each with a marker of its own, for print without colours.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", ":", "-.")
_HATCHES = ("", "//", "..", "xx")
_MAX_TICKS = 14

_LABELS = {
    "median_seconds": "time of an all-reduce, median",
    "p95_seconds": "time of an all-reduce, 95th percentile",
    "min_seconds": "time of an all-reduce, shortest",
    "max_seconds": "time of an all-reduce, longest",
    "goodput_bits_per_second": "goodput of each worker",
    "wire_bytes_per_worker": "on the wire, each worker",
    "size": "vector",
    "loss": "packets lost on each link",
    "oversubscription": "oversubscription of the uplinks",
}
_PREFIXES = {"G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}
_SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
_RATES = {f"{prefix}b/s": factor for prefix, factor in _PREFIXES.items()}
_BYTES = {f"{prefix}B": factor for prefix, factor in _PREFIXES.items()}
_SHARES = {"%": 0.01}
# Units by how a column's name ends, the largest first.
_UNITS: Mapping[str, Mapping[str, float]] = {
    **dict.fromkeys(("seconds", "delay", "jitter", "displacement", "rto", "coalescing"), _SECONDS),
    **dict.fromkeys(("bits_per_second", "rate"), _RATES),
    **dict.fromkeys(("bytes", "bytes_per_worker", "size"), _BYTES),
    **dict.fromkeys(("loss", "corruption", "duplication", "reordering", "accuracy"), _SHARES),
}


class PlotError(ValueError):
    """A figure that cannot be drawn: the message says what there is."""


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a figure: at each x the median of all rows there, and the smallest and the largest.

    group: what the rows have in the columns `plot.by`.
    """

    group: tuple[Hashable, ...]
    label: str
    x: Sequence[Any]
    median: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def select(rows: Sequence[Row], where: Mapping[str, Sequence[str]]) -> list[Row]:
    """The rows that gave a result and have, in each column of `where`, one of its values.

    Raises:
        PlotError: no such column, or no such row.
    """
    for name, wanted in where.items():
        _require(rows, name)
        there = sorted({str(row.get(name)) for row in rows})
        rows = [row for row in rows if any(_same(row.get(name), text) for text in wanted)]
        if not rows:
            raise PlotError(f"{name}={','.join(wanted)}: no row has it; there are {', '.join(there)}")
    good = [row for row in rows if row.get("error") is None]
    if not good:
        raise PlotError(f"all {len(rows)} rows failed; the first: {rows[0]['error']}")
    return good


def series(rows: Sequence[Row], plot: Plot) -> list[Series]:
    """A line for each combination of the columns `plot.by`, in the rows' order; x ascending.

    Raises:
        PlotError: no such column, or y is not a number.
    """
    for name in (plot.x, plot.y, *plot.by):
        _require(rows, name)
    groups: defaultdict[tuple[Hashable, ...], defaultdict[Any, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        x, y = row.get(plot.x), row.get(plot.y)
        if x is None or y is None:
            continue
        if isinstance(y, bool) or not isinstance(y, int | float):
            raise PlotError(f"{plot.y}: is {y!r}, not a number; draw it as --x or --by")
        groups[tuple(row.get(name) for name in plot.by)][x].append(y)
    if not groups:
        raise PlotError(f"no row has both {plot.x} and {plot.y}")
    found = []
    for group, points in groups.items():
        xs = sorted(points) if all(isinstance(x, int | float) for x in points) else list(points)
        values = [points[x] for x in xs]
        found.append(
            Series(
                group,
                ", ".join(_name(*pair) for pair in zip(plot.by, group, strict=True) if pair[1] is not None),
                xs,
                [float(np.median(y)) for y in values],
                [min(y) for y in values],
                [max(y) for y in values],
            )
        )
    return found


def mixed(rows: Sequence[Row], plot: Plot) -> list[str]:
    """Settings, but for the seed, in which rows differ that the figure takes for repetitions of one another.

    What a scenario leaves out may follow from where the seed has placed the workers: only what it says counts.
    """
    names = [*KEYS, "topology"]
    groups: defaultdict[tuple[Hashable, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row.get(name) for name in (plot.x, *plot.by))].append(row)
    return [
        name
        for name in names
        if name not in (plot.x, plot.y, *plot.by, "seed")
        and any(
            len({row.get(name) for row in group}) > 1 and len({_given(row, name) for row in group}) > 1
            for group in groups.values()
        )
    ]


def _given(row: Row, name: str) -> Hashable:
    """What the scenario says of a setting, as far as the row tells; None: nothing."""
    if "settings" not in row or name not in KEYS:
        return row.get(name)
    table: Any = json.loads(row["settings"])
    for part in KEYS[name]:
        table = table and table.get(part)
    return json.dumps(table)


def draw(lines: Sequence[Series], plot: Plot, path: Path) -> None:
    """The figure, in the format that the ending of `path` names.

    Raises:
        PlotError: an unknown ending.
    """
    with plt.style.context(STYLE):
        figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
        try:
            _draw(axes, lines, plot)
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path)
        except ValueError as error:
            raise PlotError(f"{path}: {error}") from None
        finally:
            plt.close(figure)


def _draw(axes: Axes, lines: Sequence[Series], plot: Plot) -> None:
    y_factor, y_label = _scale(plot.y, [y for line in lines for y in line.high])
    xs = list(dict.fromkeys(x for line in lines for x in line.x))
    if _numeric(xs):
        x_factor, x_label = _scale(plot.x, xs)
        _draw_lines(axes, lines, x_factor, y_factor)
        _number_x_axis(axes, sorted(x / x_factor for x in xs), "x" in plot.log)
    else:
        x_label = _label(plot.x)
        _draw_bars(axes, lines, xs, y_factor)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.set_title(plot.title or "")
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    if "y" in plot.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(_plain))
    else:
        axes.set_ylim(bottom=0)
    if plot.by:
        axes.legend(frameon=False)


def _draw_lines(axes: Axes, lines: Sequence[Series], x_factor: float, y_factor: float) -> None:
    for line, style in zip(lines, _styles(lines), strict=True):
        x = np.array(line.x) / x_factor
        median, low, high = (np.array(part) / y_factor for part in (line.median, line.low, line.high))
        looks: dict[str, Any] = {
            "color": style.colour,
            "linestyle": style.dashes,
            "marker": style.marker,
            "markersize": 5,
        }
        axes.plot(x, median, label=line.label, **looks)
        if (high > low).any():
            axes.fill_between(x, low, high, color=style.colour, alpha=0.15, linewidth=0)


@dataclass(frozen=True, slots=True)
class _Style:
    colour: str
    dashes: str
    marker: str
    hatch: str


def _styles(lines: Sequence[Series]) -> list[_Style]:
    """The first column of a group gives the colour, the others the rest."""
    colours = list(dict.fromkeys(line.group[:1] for line in lines))
    rests = list(dict.fromkeys(line.group[1:] for line in lines))
    several = len(rests) > 1
    styles = []
    for line in lines:
        first, rest = colours.index(line.group[:1]), rests.index(line.group[1:])
        marker = _MARKERS[(rest if several else first) % len(_MARKERS)]
        dashes, hatch = _DASHES[rest % len(_DASHES)], _HATCHES[rest % len(_HATCHES)]
        styles.append(_Style(_COLOURS[first % len(_COLOURS)], dashes, marker, hatch))
    return styles


def _draw_bars(axes: Axes, lines: Sequence[Series], names: Sequence[Any], y_factor: float) -> None:
    width = 0.8 / len(lines)
    for i, (line, style) in enumerate(zip(lines, _styles(lines), strict=True)):
        middle = (i - (len(lines) - 1) / 2) * width
        x = np.array([names.index(name) for name in line.x]) + middle
        median, low, high = (np.array(part) / y_factor for part in (line.median, line.low, line.high))
        axes.bar(
            x, median, width * 0.9, color=style.colour, hatch=style.hatch, edgecolor="white", label=line.label
        )
        if (high > low).any():
            axes.errorbar(x, median, [median - low, high - median], fmt="none", ecolor="black", capsize=3)
    axes.set_xticks(range(len(names)), [str(name) for name in names])


def _number_x_axis(axes: Axes, values: Sequence[float], logarithmic: bool) -> None:
    """With a tick at each value, where they are few and apart."""
    if logarithmic:
        _set_log_x(axes, values)
    apart = logarithmic or min(np.diff(values), default=1.0) * _MAX_TICKS >= values[-1] - values[0]
    if apart and len(values) <= _MAX_TICKS:
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(_plain))


def _set_log_x(axes: Axes, values: Sequence[float]) -> None:
    if values[0] > 0:
        axes.set_xscale("log")
    else:  # a zero has its place, left of the smallest value
        axes.set_xscale("symlog", linthresh=min((x for x in values if x > 0), default=1.0))


def _scale(name: str, values: Sequence[float]) -> tuple[float, str]:
    """What to divide by, and the axis's label with its unit."""
    endings = [ending for ending in _UNITS if name == ending or name.endswith(f"_{ending}")]
    if not endings:
        return 1.0, _label(name)
    units = _UNITS[max(endings, key=len)]
    largest = max(abs(value) for value in values)
    fitting = (unit for unit, factor in units.items() if largest >= factor)
    unit = next(fitting, list(units)[-1])
    return units[unit], f"{_label(name)} ({unit})"


def _name(column: str, value: object) -> str:
    """Of a line: words speak for themselves, numbers do not."""
    if isinstance(value, str):
        return value
    factor, label = _scale(column, [value]) if isinstance(value, int | float) else (1.0, column)
    return f"{label} {value / factor:g}" if isinstance(value, int | float) else f"{label} {value}"


def _label(name: str) -> str:
    return _LABELS.get(name, name.replace("_", " "))


def _plain(value: float, _position: int) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _same(value: Any, text: str) -> bool:
    if isinstance(value, int | float):
        try:
            return math.isclose(value, float(text))
        except ValueError:
            return False
    return str(value) == text


def _require(rows: Sequence[Row], name: str) -> None:
    there = columns_of(rows)
    if name not in there:
        close = get_close_matches(name, there, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise PlotError(f"{name}: no such column{hint}; there are {', '.join(there)}")
