"""Remarks on a point, next to its numbers: why an algorithm was chosen, and what became of faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fanin.experiments.results.axes import value_text
from fanin.experiments.results.measured import Row
from fanin.topologies.units import TIMES, quantity_text


def remarks(row: Row) -> Iterator[str]:
    """Yield the reason for the algorithm of a point, if it was chosen, and a text for each fault."""
    yield from _choice(row)
    yield from _faults(row)


def _choice(row: Row) -> Iterator[str]:
    predicted: list[str] = []
    impossible: defaultdict[str, list[str]] = defaultdict(list)
    columns = ("candidates", "candidate_seconds", "candidate_problems")
    for name, seconds, problem in zip(*(row.get(column) or () for column in columns), strict=True):
        if problem is None:
            predicted.append(f"{name} {quantity_text(seconds, TIMES)}")
        else:
            impossible[problem].append(name)
    if predicted:
        line = f"chose {row['algorithm']}; predicted: {', '.join(predicted)}"
        yield "; ".join([line, *(f"not {', '.join(names)}: {what}" for what, names in impossible.items())])


def _faults(row: Row) -> Iterator[str]:
    columns = ("faults", "fault_seconds", "fault_found_seconds", "fault_next_end_seconds")
    for what, *times in zip(*(row.get(column) or () for column in columns), strict=True):
        at, found, ended = (None if time is None else value_text("seconds", time) for time in times)
        said = f"at {at} {what}"
        said += f"; detected at {found}" if found else ""
        yield said + (f", the next all-reduce ended at {ended}" if ended else "")
