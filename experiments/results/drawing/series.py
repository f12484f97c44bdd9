"""Rows of results as the lines of a figure."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fanin.experiments.names import instead
from fanin.experiments.results.axes import number, value_label, value_text
from fanin.experiments.results.files import columns_of
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.settings import KEYS, KeyPath
from fanin.experiments.scenario.styles import Spread
from fanin.experiments.scenario.tables.figure import Plot

_TIMES = ("median_seconds", "seconds", "min_seconds", "max_seconds", "p95_seconds")
_GOODPUT = "goodput_bits_per_second"
_PREDICTED = {
    "lost_share": "predicted_lost_share",
    "achieved_flops": "roofline_flops",
    "tokens_per_second": "predicted_tokens_per_second",
    "p99_seconds": "predicted_p99_seconds",
    "step_seconds": "predicted_step_seconds",
    "checkpoint_seconds": "predicted_checkpoint_seconds",
}
PLACES: Mapping[str, KeyPath] = {**KEYS, "hosts": ("hosts",)}  # the places of columns in the settings


class PlotError(ValueError):
    """A figure that cannot be drawn; the message explains what there is to draw."""


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a figure: the values at each x, their median, and their spread from low to high.

    Attributes:
        group: The values of the rows in the columns `plot.by`.
        label: The line's name.
        x: The values of x.
        samples: The values at each x: for times and goodput those of all repetitions, for other columns one for each
            row.
        median: The median at each x.
        low: The lower end of the spread at each x.
        high: The upper end of the spread at each x.
        closed_form: The prediction of the analytical model at each x; NaN if there is none.
        failed: Each x at which a run failed.
        by_processors: At each x, whether processors and not links limited a run (bottleneck.py).
        steps: Whether a value holds until the next x.
    """

    group: tuple[Hashable, ...]
    label: str
    x: Sequence[Any]
    samples: Sequence[Sequence[float]]
    median: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    closed_form: Sequence[float]
    failed: Sequence[Any]
    by_processors: Sequence[bool]
    steps: bool = False


def select(rows: Sequence[Row], where: Mapping[str, Sequence[str]]) -> list[Row]:
    """Return the rows that have, in each column of `where`, one of its values, including failed runs.

    Raises:
        PlotError: If there is no such column or row, or all of the rows failed.
    """
    for name, wanted in where.items():
        require(name, columns_of(rows))
        there = sorted({value_text(name, row.get(name)) or "None" for row in rows})
        rows = [row for row in rows if any(_same(name, row.get(name), text) for text in wanted)]
        if not rows:
            raise PlotError(f"{name}={','.join(wanted)}: no row has it; there are {', '.join(there)}")
    if all(row.get("error") is not None for row in rows):
        raise PlotError(f"all {len(rows)} rows failed; the first: {rows[0]['error']}")
    return list(rows)


def series(rows: Sequence[Row], plot: Plot) -> list[Series]:
    """Return a line for each combination of the columns `plot.by`, with ascending x.

    Lines are in the order of `plot.order`, then of the rows.

    Raises:
        PlotError: If a column is missing or is not a number, or there are too few values for `plot.spread`.
    """
    for name in plot.columns:
        require(name, columns_of(rows))
    groups: defaultdict[tuple[Hashable, ...], defaultdict[Any, list[Row]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for row in rows:
        x = "" if plot.kind == "cdf" else row.get(plot.x)
        failed = row.get("error") is not None
        if x is not None and (failed or row.get(plot.measured) is not None):
            groups[tuple(row.get(name) for name in plot.by)][x].append(row)
    found = [_one(group, at, plot) for group, at in groups.items()]
    if not any(line.x for line in found):
        raise PlotError(f"no row has {' and '.join(dict.fromkeys((plot.x, plot.measured)))}")
    return _ordered(found, plot)


def _ordered(found: Sequence[Series], plot: Plot) -> list[Series]:
    places = {label: place for place, label in enumerate(plot.order)}
    return sorted(found, key=lambda line: places.get(line.label, len(places)))


def queue_series(rows: Sequence[Row], plot: Plot) -> list[Series]:
    """Return the depth of each queue over time, the deepest queue first after those of `plot.order`.

    Args:
        rows: Rows of queues, as read_queues() returns them.
        plot: Its x and y are sampled_seconds and sampled_bytes; `by` distinguishes the queues.

    Raises:
        PlotError: If there is no such column.
    """
    for name in plot.columns:
        require(name, columns_of(rows))
    found = []
    for row in sorted(rows, key=lambda row: -max(row[plot.measured])):
        group = tuple(row.get(name) for name in plot.by)
        depths = [0.0, *map(float, row[plot.measured])]
        found.append(
            Series(
                group=group,
                label=_label(plot, group),
                x=[0.0, *row[plot.x]],
                samples=(),
                median=depths,
                low=depths,
                high=depths,
                closed_form=(),
                failed=(),
                by_processors=[False] * len(depths),
                steps=True,
            )
        )
    return _ordered(found, plot)


def _one(group: tuple[Hashable, ...], at: Mapping[Any, list[Row]], plot: Plot) -> Series:
    good = {x: [row for row in rows if row.get("error") is None] for x, rows in at.items()}
    failed = [x for x, rows in at.items() if len(good[x]) < len(rows)]
    xs = [x for x, rows in good.items() if rows]
    if all(isinstance(x, int | float) for x in xs):
        xs.sort()
    label = _label(plot, group)
    samples = [[value for row in good[x] for value in values_of(row, plot.measured)] for x in xs]
    bounds = [
        spread(values, plot.spread, f"{label} at {plot.x}={x}".removeprefix(" at "))
        for x, values in zip(xs, samples, strict=True)
    ]
    expected = [_expected(good[x], plot.measured) for x in xs] if plot.closed_form else []
    return Series(
        group=group,
        label=label,
        x=xs,
        samples=samples,
        median=[float(np.median(values)) for values in samples],
        low=[low for low, _ in bounds],
        high=[high for _, high in bounds],
        closed_form=expected,
        failed=failed,
        by_processors=[any(row.get("limited_by") == "processors" for row in good[x]) for x in xs],
    )


def _label(plot: Plot, group: Sequence[Hashable]) -> str:
    return ", ".join(value_label(*pair) for pair in zip(plot.by, group, strict=True) if pair[1] is not None)


def every_repetition(column: str) -> bool:
    """Return whether a row has a value of this column for each of its all-reduces."""
    return column in ("median_seconds", "seconds", _GOODPUT)


def values_of(row: Row, column: str) -> list[float]:
    """Return the values of a column in a row: one for each repetition, or the only one.

    Raises:
        PlotError: If it is not a number.
    """
    if every_repetition(column) and (repetitions := row.get("seconds")):
        if column == _GOODPUT:
            return [32 * row["elements"] / seconds for seconds in repetitions]
        return list(repetitions)
    value = row[column]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PlotError(f"{column}: is {value!r}, not a number; draw it as --x or --by")
    return [value]


def _expected(rows: Iterable[Row], column: str) -> float:
    """Return the prediction of the analytical model for a column; NaN if there is none."""
    if column in _PREDICTED:
        known = [value for row in rows if (value := row.get(_PREDICTED[column])) is not None]
        return float(np.median(known)) if known else math.nan
    found = [seconds for row in rows if (seconds := row.get("closed_form_seconds")) is not None]
    if column in _TIMES:
        return float(np.median(found)) if found else math.nan
    if column != _GOODPUT:
        raise PlotError(
            f"closed_form: cannot predict {column}; draw {', '.join((*_TIMES, _GOODPUT, *_PREDICTED))}"
        )
    sizes = [32 * row["elements"] for row in rows]
    return float(np.median(sizes) / np.median(found)) if found else math.nan


# -- spread ------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float], kind: Spread, place: str) -> tuple[float, float]:
    """Return the range in which the values at one place of a figure lie.

    "ci95" is the interval between two of the values that contains the median of their distribution, whatever that is,
    with a probability of at least 95 %.

    Args:
        values: The values.
        kind: The kind of range.
        place: The place, for the error message.

    Raises:
        PlotError: If there are too few values.
    """
    match kind:
        case "minmax":
            return min(values), max(values)
        case "iqr":
            low, high = np.percentile(values, (25, 75))
            return float(low), float(high)
        case "ci95":
            ordered, rank = sorted(values), _outer_rank(len(values))
            if rank is None:
                raise PlotError(
                    f"spread=ci95: needs 6 values at each place, and {place} has {len(values)}; "
                    "raise repetitions, add seeds, or set spread=minmax"
                )
            return ordered[rank], ordered[-1 - rank]
        case "none":
            middle = float(np.median(values))
            return middle, middle


def _outer_rank(count: int) -> int | None:
    """Return how many of `count` values can be left out at either end; None if there are too few.

    Each value is below the median with a probability of one half, so the number of values below it is binomial.
    """
    outside, rank = 0.0, None
    for left_out in range(count // 2):
        outside += 2 * math.comb(count, left_out) / 2**count
        if outside > 0.05:
            break
        rank = left_out
    return rank


# -- columns and lines that are missing ------------------------------------------------------------------------------


def mixed(rows: Sequence[Row], plot: Plot) -> list[str]:
    """Return settings other than the seed in which rows differ although the figure treats them as repetitions.

    Values that a scenario leaves out may depend on where the seed has placed the workers. Therefore only values that it
    sets count.
    """
    places = plot.by if plot.kind == "cdf" else (plot.x, *plot.by)
    groups: defaultdict[tuple[Hashable, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.get("error") is None:
            groups[tuple(row.get(name) for name in places)].append(row)
    return [
        name
        for name in (*PLACES, "topology")
        if name not in (*places, plot.measured, "seed")
        and any(
            len({row.get(name) for row in group}) > 1 and len({given(row, name) for row in group}) > 1
            for group in groups.values()
        )
    ]


def varied(rows: Sequence[Row]) -> list[str]:
    """Return the settings in which rows differ, as far as their scenarios set them."""
    # The name of a leaf_spine network repeats its keys.
    names = PLACES if all(row.get("leaves") is not None for row in rows) else (*PLACES, "topology")
    return [name for name in names if len({given(row, name) for row in rows}) > 1]


def given(row: Row, name: str) -> Hashable:
    """Return the scenario's value of a setting, or the column's value if the row lacks its settings; None if unset."""
    if name not in PLACES:
        return row.get(name)
    try:
        table: Any = json.loads(row["settings"])
        for part in PLACES[name]:
            table = table and table.get(part)
    except (KeyError, TypeError, ValueError, AttributeError):  # rows of other programs, or edited by hand
        return row.get(name)
    return json.dumps(table)


def require(name: str, there: Sequence[str]) -> None:
    """Check that rows have a column.

    Raises:
        PlotError: If they do not.
    """
    if name not in there:
        how = "type fanin plot RESULTS --columns, or see docs/reference/results.md"
        raise PlotError(f"{name}: no such column{instead(name, there, 'columns', how)}")


def require_lines(plot: Plot, lines: Iterable[Series]) -> None:
    """Check that `plot.order` and `plot.labels` name lines, or words on the horizontal axis.

    Raises:
        PlotError: If they name something else.
    """
    lines = list(lines)
    words = {x for line in lines for x in (*line.x, *line.failed) if isinstance(x, str)}
    there = dict.fromkeys(name for name in (*(line.label for line in lines), *sorted(words)) if name)
    for key, names in (("order", plot.order), ("labels", plot.labels)):
        for name in names:
            if name not in there:
                raise PlotError(f"{key}: there is no line {name!r}; there are {', '.join(map(repr, there))}")


def _same(name: str, value: Any, text: str) -> bool:
    if isinstance(value, bool):
        return str(value).lower() == text.lower()
    if isinstance(value, int | float):
        try:
            return math.isclose(value, number(name, text))
        except ValueError:
            return False
    return str(value) == text
