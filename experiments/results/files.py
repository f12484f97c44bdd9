"""Rows of results in files: a journal with a line of JSON for each finished point, and the final result files."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from fanin.experiments.results.measured import Row
from fanin.experiments.results.usage import QUEUES, Usage, read_usage, write_usage
from fanin.native.files import naming, replacing, write_json
from fanin.native.text import printable

JOURNAL, JSON, PARQUET, CSV = "points.jsonl", "results.json", "results.parquet", "results.csv"


# The columns of a queue: the nodes that send and receive, the link's name, and times and depths of the samples.
QUEUE_COLUMNS = ("near", "far", "link", "sampled_seconds", "sampled_bytes")


class ResultsError(ValueError):
    """Results that cannot be read; the message names the file and the fix."""


class Journal:
    """The finished points of a sweep in `folder`; `append` returns when a point is durably on the disk."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / JOURNAL

    def __str__(self) -> str:
        return str(self._path)

    def rows(self) -> dict[str, Row]:
        """Return the last row of each point by its key; lines that an interruption cut off are skipped.

        Raises:
            ResultsError: If the file is not a journal.
        """
        found: dict[str, Row] = {}
        if self._path.exists():
            for line in _text(self._path).splitlines():
                with suppress(json.JSONDecodeError, RecursionError):
                    row = json.loads(line)
                    if not isinstance(row, dict) or "key" not in row:
                        raise ResultsError(f"{self._path}: is not a journal of a sweep; remove it")
                    found[row["key"]] = row
        return found

    def append(self, row: Row) -> None:
        """Add the row of a point."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with naming(self._path), self._path.open("a") as file:
            # Start a new line, as an interruption may have left an incomplete one.
            file.write("\n" + json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def clear(self) -> None:
        """Remove all points."""
        self._path.unlink(missing_ok=True)


def write_results(rows: Sequence[Row], about: Mapping[str, Any], folder: Path) -> None:
    """Write results.json, results.parquet and results.csv into `folder`, with a row for each run.

    In the CSV file, lists are JSON, and a text that spreadsheets would take for a formula begins with an apostrophe.
    The counts of links and workers go into separate files (usage.py).

    Args:
        rows: The rows.
        about: Further values for the JSON and Parquet files, such as the scenario.
        folder: The folder, which is made if necessary.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_usage({row["key"]: row["usage"] for row in rows if "usage" in row}, folder)
    rows = [{name: value for name, value in row.items() if name != "usage"} for row in rows]
    document = {**about, "rows": rows}
    write_json(document, folder / JSON, indent=1)
    table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in columns_of(rows)})
    table = table.replace_schema_metadata({name: json.dumps(value) for name, value in about.items()})
    with replacing(folder / PARQUET) as new:
        parquet.write_table(table, new)
    with replacing(folder / CSV) as new, new.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns_of(rows))
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)


_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # characters with which formulas begin in spreadsheets


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return json.dumps(value)
    if isinstance(value, str):
        return f"'{printable(value)}" if value.startswith(_FORMULA) else printable(value)
    return value


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a folder of results, or of one of its files.

    Raises:
        ResultsError: If there are none.
    """
    return read_results(path)[1]


def read_results(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """Return what write_results() got as `about`, and the rows, of a folder of results or of one of its files.

    Raises:
        ResultsError: If there are none.
    """
    if path.is_dir():
        found = next((path / name for name in (PARQUET, JSON, JOURNAL) if (path / name).exists()), None)
        if found is None:
            fix = "create it with fanin run or fanin sweep"
            if inside := sorted(one.parent for one in path.glob(f"*/{PARQUET}")):
                fix = f"name one of its folders, such as {inside[0]}"
            raise ResultsError(f"{path}: has no {PARQUET}; {fix}")
        path = found
    about: dict[str, Any] = {}
    try:
        match path.suffix:
            case ".parquet":
                table = parquet.read_table(path)
                rows: list[Row] = table.to_pylist()
                for name, value in (table.schema.metadata or {}).items():
                    with suppress(ValueError):  # metadata of other programs
                        about[name.decode()] = json.loads(value)
            case ".json":
                about = json.loads(_text(path))
                rows = about.pop("rows")
            case ".jsonl":
                rows = list(Journal(path.parent).rows().values())
            case _:
                if not path.exists():
                    what = f"there are no results; {_instead(path)}"
                elif path.suffix == ".toml":
                    what = f"is a scenario, not results; run it first: fanin run {path}"
                else:
                    what = f"is neither a folder of results nor one of {PARQUET}, {JSON} and {JOURNAL}"
                raise ResultsError(f"{path}: {what}")
    except ResultsError:
        raise
    except KeyError:
        raise ResultsError(f"{path}: has no rows of results; fanin run and fanin sweep write them") from None
    except (
        OSError,
        pa.ArrowInvalid,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ResultsError(f"{path}: cannot be read as results: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ResultsError(f"{path}: cannot be read as results: its rows are not a list of objects")
    if not rows:
        raise ResultsError(f"{path}: has no rows")
    return about, rows


def _instead(path: Path) -> str:
    """Return which results there are, the nearest names first, or how to make some."""
    there = sorted(
        {str(file.parent) for kind in ("*", "results/*") for file in Path().glob(f"{kind}/{JSON}")}
    )
    if not there:
        return "none are here either; fanin run SCENARIO.toml --results DIR writes some"
    names = {Path(one).name: one for one in there}
    close = get_close_matches(path.name, names, 3, 0.3) or list(names)[:3]
    return f"fanin run wrote some to {', '.join(names[name] for name in close)}"


def compute_of(about: Mapping[str, Any]) -> float | None:
    """Return the seconds for which a GPU computes between two all-reduces; None if the scenario has no key `compute`.

    Args:
        about: What write_results() got as `about`.
    """
    compute = about.get("compute_seconds")
    known = isinstance(compute, int | float) and not isinstance(compute, bool) and compute > 0
    return compute if known else None


def read_runs(path: Path) -> list[tuple[Row, Usage | None]]:
    """Return the rows like read_rows(), each with the counts of its links and workers; None if there are none.

    Raises:
        ResultsError: If there are no rows.
    """
    rows, folder = read_rows(path), path if path.is_dir() else path.parent
    try:
        usage = read_usage(folder)
        found = {row.get("key", ""): row.pop("usage", None) for row in rows}  # a journal's are in its rows
        usage |= {key: Usage.from_columns(one) for key, one in found.items() if one is not None}
    except (OSError, pa.ArrowInvalid, TypeError, KeyError, AttributeError) as error:
        raise ResultsError(f"{folder}: links.parquet or workers.parquet cannot be read: {error}") from None
    return [(row, usage.get(row.get("key", ""))) for row in rows]


def read_queues(path: Path) -> list[Row]:
    """Return a row for each sampled queue: its point's row with QUEUE_COLUMNS added.

    Raises:
        ResultsError: If there are none.
    """
    rows, folder = read_rows(path), path if path.is_dir() else path.parent
    if not (folder / QUEUES).exists():
        raise ResultsError(
            f"{folder}: has no {QUEUES}; run the scenario again with --set 'queue_samples=10 us'"
        )
    try:
        columns = parquet.read_table(folder / QUEUES).to_pydict()
        samples: dict[tuple[str, str, str], tuple[list[float], list[int]]] = {}
        names = ("key", "near", "far", "seconds", "bytes")
        for key, near, far, seconds, size in zip(*(columns[name] for name in names), strict=True):
            times, sizes = samples.setdefault((key, near, far), ([], []))
            times.append(seconds)
            sizes.append(size)
    except (OSError, pa.ArrowInvalid, TypeError, KeyError) as error:
        raise ResultsError(f"{folder / QUEUES}: cannot be read: {error}") from None
    points = {row["key"]: row for row in rows if "key" in row}
    return [
        points[key] | dict(zip(QUEUE_COLUMNS, (near, far, f"{near} → {far}", *found), strict=True))
        for (key, near, far), found in samples.items()
        if key in points
    ]


def _text(path: Path) -> str:
    """Return the contents of a file.

    Raises:
        ResultsError: If it is not text, or cannot be read.
    """
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"{path}: cannot be read as results: {error}") from None


def columns_of(rows: Iterable[Row]) -> list[str]:
    """Return all columns that any row has, in their order."""
    return list(dict.fromkeys(name for row in rows for name in row))
