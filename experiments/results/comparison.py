"""Comparison of two sets of results, point by point: how much they differ, and whether that is more than chance."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from fanin.experiments.names import instead
from fanin.experiments.results.axes import value_text
from fanin.experiments.results.drawing.series import PLACES, given, values_of, varied
from fanin.experiments.results.files import ResultsError
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.settings import KeyPath, Settings

# A training's time is that of its steps, of which sums are a part.
MEASURES = (
    "step_seconds",
    "median_seconds",
    "wire_bytes_per_worker",
    "retransmissions",
    "traffic_mean_seconds",
    "traffic_p99_seconds",
)
ENOUGH = 3  # values that each side needs for a confidence interval
_RESAMPLES = 10_000
_SEED = 1

Group = list[Row]  # rows of a point that differ only in their seeds


@dataclass(frozen=True, slots=True)
class Difference:
    """A column of a point, before and after.

    Attributes:
        column: Name of the column.
        before: Median before.
        after: Median after.
        ratio: after / before; None if the median before is 0.
        interval: Confidence interval (95 %) of the ratio; None if there are fewer than `ENOUGH` values, some are 0, or
            nothing differs in virtual time with the same seeds.
        exact: Whether both are in virtual time with the same seeds, so that nothing depends on chance.
    """

    column: str
    before: float
    after: float
    ratio: float | None
    interval: tuple[float, float] | None
    exact: bool

    @property
    def beyond_noise(self) -> bool | None:
        """Return whether the difference is more than chance; None if that cannot be determined."""
        if self.interval is not None:
            return not self.interval[0] <= 1 <= self.interval[1]
        return self.before != self.after if self.exact else None


@dataclass(frozen=True, slots=True)
class PointComparison:
    """A point that is in both sets, with a row for its settings and differences in those MEASURES that both have."""

    row: Row
    differences: tuple[Difference, ...]

    @property
    def time(self) -> Difference:
        """Return the difference of the time of an all-reduce, or of a step if that has grown more, beyond noise."""
        by_column = {one.column: one for one in self.differences}
        time, step = by_column["median_seconds"], by_column.get("step_seconds")
        worse = step and step.beyond_noise and step.before and step.after / step.before > (time.ratio or 0)
        return step if step and worse else time


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        points: Points that are in both sets.
        only_before: A row of each point that is, or has a result, only before.
        only_after: A row of each point that is, or has a result, only after.
        varied: Columns in which points differ, except those that may differ between the two sets.
    """

    points: tuple[PointComparison, ...]
    only_before: tuple[Row, ...]
    only_after: tuple[Row, ...]
    varied: tuple[str, ...]

    def slower(self, limit: float) -> list[PointComparison]:
        """Return points whose time has grown by more than the share `limit`, and by more than chance."""
        return [
            one
            for one in self.points
            if one.time.beyond_noise and one.time.ratio is not None and one.time.ratio > 1 + limit
        ]


def compare(before: Sequence[Row], after: Sequence[Row], across: Sequence[str] = ()) -> Comparison:
    """Compare results, matching points by their settings; results with different seeds count as repetitions.

    Args:
        before: Rows of the first set.
        after: Rows of the second set.
        across: Settings that may differ between the sets, by their columns; "topology" stands for the whole network.
            Within a set, points that differ in nothing else are an error.

    Raises:
        ResultsError: If rows lack their settings, a setting is unknown, a set has several points where one is needed,
            or no point is in both sets.
    """
    places = _places(across)
    old, new = _points(before, places, "A"), _points(after, places, "B")
    both = [point for point in old if point in new]
    names = tuple(name for name in varied((*before, *after)) if name != "seed" and not _below(name, places))
    if not both:
        apart = [name for name in names if not _said(before, name) & _said(after, name)]
        why = (
            f"they differ in {', '.join(apart)}; to compare them nevertheless, add --across {','.join(apart)}"
            if apart
            else "some failed, or their settings differ"
        )
        raise ResultsError(f"no point has a result in both sets: {why}")
    return Comparison(
        points=tuple(_compare(old[point], new[point]) for point in both),
        only_before=tuple(rows[0] for point, rows in old.items() if point not in new),
        only_after=tuple(rows[0] for point, rows in new.items() if point not in old),
        varied=names,
    )


def ratio_interval(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """Return the confidence interval (95 %) of the ratio of medians: bootstrap, percentiles, a fixed seed.

    Efron and Tibshirani, "An introduction to the bootstrap", 1993, chapter 13.
    """
    draw = np.random.default_rng(_SEED)
    old, new = (
        np.median(draw.choice(values, (_RESAMPLES, len(values))), axis=1) for values in (before, after)
    )
    low, high = np.percentile(new / old, (2.5, 97.5))
    return float(low), float(high)


def _places(across: Sequence[str]) -> dict[str, KeyPath]:
    """Return the places of columns in the settings."""
    known: dict[str, KeyPath] = {**PLACES, "topology": ("topology",)}
    for name in across:
        if name not in known:
            there = instead(name, list(known), "settings", "see docs/reference/scenario-keys.md")
            raise ResultsError(f"--across {name}: no such setting{there}")
    return {name: known[name] for name in across}


def _below(name: str, places: Mapping[str, KeyPath]) -> bool:
    """Return whether the place of a column is one of the places, or inside one."""
    if name in places:
        return True
    mine = PLACES.get(name, ())
    return any(mine[: len(place)] == place for place in places.values())


def _points(rows: Sequence[Row], across: Mapping[str, KeyPath], side: str) -> dict[str, Group]:
    """Return rows with results, grouped by their settings without those at the places `across`."""
    found: defaultdict[str, Group] = defaultdict(list)
    for row in rows:
        if "settings" not in row:
            raise ResultsError(
                "rows lack their settings; compare results that fanin run or fanin sweep wrote"
            )
        if row.get("error") is None:
            found[_name(row["settings"], across)].append(row)
    for name in across:
        for group in found.values():
            if len(_said(group, name)) > 1:
                values = dict.fromkeys(value_text(name, row.get(name)) for row in group)
                raise ResultsError(
                    f"{side} has points with {name}={' and '.join(values)}, and --across {name} needs one value; "
                    f"choose it, such as --where-{side.lower()} {name}={next(iter(values))}"
                )
    return found


def _name(text: str, across: Mapping[str, KeyPath]) -> str:
    """Return the settings without the seed; settings that an older version lacks have their defaults."""
    try:
        said = {name: value for name, value in json.loads(text).items() if name != "seed"}
    except (ValueError, TypeError, AttributeError) as error:
        raise ResultsError(f"settings of a row cannot be read: {error}") from None
    with suppress(ValidationError):  # written by a version with other settings: equal only to itself
        said = Settings.model_validate_json(text).model_dump(mode="json", exclude={"seed"})
    for *tables, key in across.values():
        inner: Any = said
        for table in tables:
            inner = inner and inner.get(table)
        if inner:
            inner.pop(key, None)
    return json.dumps(_filled(said), sort_keys=True)


def _filled(value: Any) -> Any:
    """Return settings without those that are None, and without tables of which nothing is left."""
    if not isinstance(value, dict):
        return value
    filled = {name: _filled(inner) for name, inner in value.items()}
    return {name: inner for name, inner in filled.items() if inner not in (None, {})}


def _said(rows: Sequence[Row], name: str) -> set[object]:
    return {given(row, name) for row in rows}


def _compare(before: Group, after: Group) -> PointComparison:
    seeds = [sorted(row["seed"] for row in rows) for rows in (before, after)]
    exact = before[0].get("world") == "virtual" and seeds[0] == seeds[1]
    there = [name for name in MEASURES if all(row.get(name) is not None for row in (*before, *after))]
    return PointComparison(after[0], tuple(_difference(column, before, after, exact) for column in there))


def _difference(column: str, before: Group, after: Group, exact: bool) -> Difference:
    old, new = ([value for row in rows for value in values_of(row, column)] for rows in (before, after))
    middle, then = float(np.median(old)), float(np.median(new))
    same = exact and sorted(old) == sorted(new)
    enough = not same and min(len(old), len(new)) >= ENOUGH and min(old) > 0
    return Difference(
        column=column,
        before=middle,
        after=then,
        ratio=then / middle if middle else None,
        interval=ratio_interval(old, new) if enough else None,
        exact=exact,
    )
