"""A report of results as one HTML page without dependencies: tables, figures, settings, and how to repeat the runs."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Any, TypeGuard

from pydantic import ValidationError

from fanin.experiments.models.cost import CLUSTERS, PRICE, idle_price
from fanin.experiments.report.overview import Point, points_of, sentences
from fanin.experiments.results.axes import column_label, scale, value_label, value_text
from fanin.experiments.results.drawing.plot import draw
from fanin.experiments.results.drawing.series import PlotError, select, series, varied
from fanin.experiments.results.drawing.steps import draw_steps
from fanin.experiments.results.files import compute_of
from fanin.experiments.results.measured import Row
from fanin.experiments.results.provenance import provenance
from fanin.experiments.results.remarks import remarks
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import KEYS
from fanin.experiments.scenario.tables.figure import Plot
from fanin.native.text import counted, printable

_TEMPLATE = Path(__file__).with_name("html_report.html")
_MEASURED = {
    "median_seconds": "median",
    "p95_seconds": "95th percentile",
    "closed_form_seconds": "analytical model",
    "step_seconds": "step",
    "exposed_seconds": "exposed in a step",
    "trace_step_seconds": "step in the trace",
    "gpu_idle_share": "idle",
    "goodput_bits_per_second": "goodput",
    "wire_bytes_per_worker": "on the wire, each",
    "retransmissions": "retransmissions",
    "limited_by": "limited by",
    "link_utilization": "busiest link",
    "processor_utilization": "processors",
    "other_job_seconds": "other job",
    "traffic_flows": "other flows",
    "traffic_p50_seconds": "their p50",
    "traffic_p99_seconds": "their p99",
    "traffic_p999_seconds": "their p99.9",
    "lost_share": "lost by failures",
    "predicted_lost_share": "lost, predicted",
    "steps_per_day": "steps a day",
    "achieved_flops": "FLOP/s",
    "roofline_flops": "roofline FLOP/s",
    "p99_seconds": "p99",
    "predicted_p99_seconds": "p99, predicted",
    "requests_in_progress": "in progress",
    "tokens_per_second": "tokens/s",
    "predicted_tokens_per_second": "tokens/s, predicted",
    "target_seconds": "to target",
    "accuracy": "accuracy",
    "data_wait_seconds": "data wait",
    "predicted_step_seconds": "step, predicted",
    "checkpoint_seconds": "checkpoint",
    "violations": "outside bound",
}

_MOST_STEPS = 12  # bars in the picture of steps
_LONG = 40  # characters of a cell that needs some width, on a phone too
_FEW = 3  # varying settings that a default figure can show


def _escaped(text: str) -> str:
    return escape(printable(text))


def page(
    about: Mapping[str, Any],
    runs: Sequence[tuple[Row, Usage | None]],
    place: str,
    price: float = PRICE,
    clusters: Sequence[int] = CLUSTERS,
) -> str:
    """Return a page about the results at `place`; the same results give the same page.

    Args:
        about: What write_results() got as `about`; it may contain a scenario.
        runs: The rows, each with the counts of its links and workers if there are any.
        place: The path of the results, for the commands that repeat them.
        price: $ per GPU and hour.
        clusters: Numbers of GPUs for which waiting is priced.
    """
    rows = [row for row, _ in runs]
    points = points_of(runs, _names(rows), compute_of(about))
    scenario = _scenario(about)
    wrong = sum(bool(row.get("violations")) or row.get("error") is not None for row in rows)
    outcome = counted(len(rows), "point")
    if wrong:
        outcome += f", of which {wrong} failed or have sums outside their bound"
    elif all("violations" in row for row in rows):
        share = min(
            (row.get("checked_share", 1.0) for row in rows), default=1.0
        )  # earlier versions checked all
        outcome += (
            ", and every sum lies within its bound"
            if share == 1
            else f", whose sums were not all checked. For a point, at least {share:.1%} of the elements were checked, "
            "and all of these lie within their bound"
        )
    return Template(_TEMPLATE.read_text(encoding="utf-8")).substitute(
        name=_escaped(str(about.get("name", "results"))),
        description=_escaped(str(scenario.get("description", ""))),
        state="wrong" if wrong else "faint",
        outcome=f"{outcome}.",
        overview="\n".join(f"<p>{_escaped(sentence)}</p>" for sentence in sentences(points, price, clusters)),
        step=_steps(points),
        diagnosis=_diagnosis(points),
        measured=_measured(rows) + _remarks(rows) + _failed(rows),
        figures=_figures(scenario, rows),
        prices=_prices(points, rows, price, clusters),
        again=_again(about, place),
        settings=_settings(rows),
        provenance=_values({name: _different([row.get(name) for row in rows]) for name in provenance()}),
    )


def _scenario(about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scenario file's contents; empty if there is none."""
    with suppress(tomllib.TOMLDecodeError):
        return tomllib.loads(str(about.get("scenario", "")))
    return {}


# -- tables ------------------------------------------------------------------------------------------------------


def _good(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.get("error") is None and row.get("median_seconds") is not None]


def _measured(rows: Sequence[Row]) -> str:
    """Return a table with a row for each point, with predictions next to measurements."""
    good = _good(rows)
    columns = _columns((*varied(rows), *_MEASURED), good)
    if any(row.get("closed_form_seconds") for row in good):
        columns["measured / analytical model"] = [_ratio(row) for row in good]
    columns["key"] = [row.get("key") for row in good]
    return _table(columns)


def _columns(names: Iterable[str], rows: Sequence[Row]) -> dict[str, list[object]]:
    """Return the columns in which rows have values, by heading."""
    there = [name for name in names if any(row.get(name) is not None for row in rows)]
    return {_heading(name, rows): _column(name, rows) for name in there}


def _heading(name: str, rows: Sequence[Row]) -> str:
    """Return the heading of a column, with the unit if it has one."""
    return _MEASURED.get(name, column_label(name)) + _unit(name, rows)[1]


def _column(name: str, rows: Sequence[Row]) -> list[object]:
    """Return the values of a column in the unit of its heading."""
    factor, _ = _unit(name, rows)
    values = [row.get(name) for row in rows]
    return [value / factor if _is_number(value) and factor != 1 else value for value in values]


def _unit(name: str, rows: Sequence[Row]) -> tuple[float, str]:
    """Return the divisor of a column and the unit after its name; predicted times have the unit of medians."""
    source = "median_seconds" if name in ("p95_seconds", "closed_form_seconds") else name
    numbers = [value for row in rows if _is_number(value := row.get(source))]
    if not numbers:
        return 1.0, ""
    factor, label = scale(source, numbers)
    return factor, label.removeprefix(column_label(source))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ratio(row: Row) -> float | None:
    expected = row.get("closed_form_seconds")
    return row["median_seconds"] / expected if expected else None


def _remarks(rows: Sequence[Row]) -> str:
    """Return why algorithms were chosen, and what became of faults, as `fanin run` prints them."""
    names = _names(rows)
    texts = [f"{name}: {remark}" for name, row in zip(names, rows, strict=True) for remark in remarks(row)]
    return "".join(f"<p>{_escaped(text)}.</p>\n" for text in texts)


def _failed(rows: Sequence[Row]) -> str:
    failed = [row for row in rows if row.get("error") is not None]
    if not failed:
        return ""
    return _table(_columns(varied(rows), failed) | {"failed with": [row["error"] for row in failed]})


def _prices(points: Sequence[Point], rows: Sequence[Row], price: float, clusters: Sequence[int]) -> str:
    """Return the prices of the time that GPUs wait, if it is known how long they compute."""
    known = [(row, point.idle) for row, point in zip(rows, points, strict=True) if point.idle is not None]
    if not known:
        return ""
    shares = [share for _, share in known]
    columns = _columns(varied(rows), [row for row, _ in known]) | {
        "idle": [f"{share:.1%}" for share in shares]
    }
    for gpus in clusters:
        hourly = [idle_price(share, gpus, price) for share in shares]
        columns[f"{gpus:,} GPUs, $ an hour"] = [round(dollars) for dollars in hourly]
        columns[f"{gpus:,} GPUs, $ a day"] = [round(24 * dollars) for dollars in hourly]
    steps = [point.gpu_hours for point in points if point.idle is not None]
    if any(steps):
        columns["1,000 steps, $"] = [
            "" if hours is None else f"{1000 * price * hours:,.3g}" for hours in steps
        ]
    return (
        "<h2>The price of waiting</h2>\n"
        f"<p>GPUs idle for this share of their time. The price is for all of them, at {price:g} $ an hour each. "
        "1,000 steps have the price of as many GPUs as the run has workers, whether they compute or idle; compare "
        "algorithms by this.</p>\n"
        f"{_table(columns)}"
    )


def _names(rows: Sequence[Row]) -> list[str]:
    """Return a name for each point, made of the settings in which points differ."""
    apart = _telling(rows)
    return [
        ", ".join(value_label(name, row[name]) for name in apart if row.get(name) is not None) or "the run"
        for row in rows
    ]


def _telling(rows: Sequence[Row]) -> list[str]:
    """Return the settings in which points differ, without those that only some of them have, such as a transport."""
    names = varied(rows)

    def kinds(columns: Sequence[str]) -> int:
        return len({tuple(value_text(name, row.get(name)) for name in columns) for row in rows})

    for name in reversed(names.copy()):
        others = [other for other in names if other != name]
        there = {value_text(name, row[name]) for row in rows if row.get(name) is not None}
        if len(there) == 1 and kinds(others) == kinds(names):
            names = others
    return names


def _steps(points: Sequence[Point]) -> str:
    """Return a picture of the points' steps, if it is known for how long workers compute."""
    steps = [point.step for point in points if point.step is not None]
    if not steps:
        return ""
    text = _svg(partial(draw_steps, steps[:_MOST_STEPS]), "step")
    left_out = (
        f" Of {len(steps)} points, it shows the first {_MOST_STEPS}." if len(steps) > _MOST_STEPS else ""
    )
    return (
        f'<figure aria-label="where the time of a step goes">\n{text}</figure>\n<p class="faint">The mean step, as the '
        "slowest worker spends it, with the share of each part. Behind the bar are its length and the shares of narrow "
        "parts. Data that moves while it computes costs nothing; how much that is follows from the busiest link. The "
        f"time in which it waits for sums includes the wait for other workers.{left_out}</p>\n"
    )


def _diagnosis(points: Sequence[Point]) -> str:
    """Return what `fanin diagnose` prints of all points."""
    columns: dict[str, list[object]] = {
        "point": [],
        "cause": [],
        "of the time": [],
        "evidence": [],
        "what to change": [],
    }

    def add(*cells: object) -> None:
        for column, cell in zip(columns.values(), cells, strict=True):
            column.append(cell)

    for point in points:
        if point.diagnosis is None:
            add(point.name, "not known", "", point.problem, "")
            continue
        found = point.diagnosis
        for finding in found.findings:
            add(point.name, finding.cause, f"{finding.share:.0%}", finding.evidence, finding.change)
        if not found.findings:
            add(point.name, found.cause, "", found.limit, "")
        for finding in found.minor:
            add(point.name, f"{finding.cause} (minor)", f"{finding.share:.0%}", finding.evidence, "")
        if found.unseen and found.cause != "nothing wrong":
            add(point.name, "cannot tell live", "", f"virtual time can: {', '.join(found.unseen)}", "")
    return _table(columns)


def _settings(rows: Sequence[Row]) -> str:
    apart = varied(rows)
    names = [name for name in (*KEYS, "topology", "hosts") if name not in apart]
    return _values({_heading(name, rows): _different(_column(name, rows)) for name in names})


def _different(values: Sequence[object]) -> str:
    return ", ".join(dict.fromkeys(_text(value) for value in values if value is not None))


def _values(values: Mapping[str, str]) -> str:
    """Return a table with a row for each value that is not empty."""
    there = {name: value for name, value in values.items() if value}
    return _table({"name": list(there), "value": list(there.values())})


def _table(columns: Mapping[str, Sequence[object]]) -> str:
    """Return an HTML table with these columns by heading.

    Together with `_cell` this is the only place where values become HTML, all of them escaped.
    """
    head = "".join(
        f"<th{_style(any(map(_is_number, values)))}>{_escaped(heading)}</th>"
        for heading, values in columns.items()
    )
    lines = zip(*columns.values(), strict=True)
    body = "\n".join(f"<tr>{''.join(map(_cell, line))}</tr>" for line in lines)
    return f"""<div class="scroll"><table><thead><tr>{head}</tr></thead>
<tbody>
{body}
</tbody></table></div>
"""


def _cell(value: object) -> str:
    text = _text(value)
    style = ' class="long"' if len(text) > _LONG else _style(_is_number(value))
    return f"<td{style}>{_escaped(text)}</td>"


def _style(number: bool) -> str:
    return ' class="number"' if number else ""


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if _is_number(value) else str(value)


# -- figures, and commands -----------------------------------------------------------------------------------------


def _figures(scenario: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Return the scenario's figure, or times over the first varied setting, and the bytes over the same."""
    try:
        plot = Plot.model_validate(scenario["plot"])
    except (KeyError, ValidationError):
        names = [name for name in _telling(rows) if name != "seed"]
        if not 1 <= len(names) <= _FEW:
            return ""
        good = _good(rows)
        x = next((name for name in names if all(_is_number(row.get(name)) for row in good)), names[0])
        y = "step_seconds" if all(row.get("step_seconds") for row in good) else "median_seconds"
        plot = Plot(x=x, y=y, by=tuple(name for name in names if name != x))
    plots = [plot]
    if plot.kind == "lines" and plot.y != "wire_bytes_per_worker":
        changes = {"y": "wire_bytes_per_worker", "closed_form": False}
        plots.append(plot.model_copy(update=changes))
    return "<h2>Figures</h2>\n" + "".join(_figure(one, rows, place) for place, one in enumerate(plots))


def _figure(plot: Plot, rows: Sequence[Row], place: int) -> str:
    """Return a figure for the page; the names of its parts are unique on the page."""
    try:
        picture = _svg(partial(draw, series(select(rows, plot.where), plot), plot), f"figure{place}")
    except PlotError as error:
        return f"<p>{_escaped(str(error))}</p>\n"
    label = _escaped(f"{column_label(plot.measured)} over {column_label(plot.x)}")
    return f'<figure aria-label="{label}">\n{picture}</figure>\n'


def _svg(make: Callable[[Path], None], prefix: str) -> str:
    """Return the SVG that `make` draws into a file, for a page; the names of its parts begin with `prefix`."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "figure.svg")
        make(path)
        text = path.read_text(encoding="utf-8")
    text = re.sub(r"<metadata>.*</metadata>", "", text, flags=re.DOTALL)
    return re.sub(r'(id="|url\(#|href="#)', rf"\1{prefix}-", text[text.index("<svg") :])


def _again(about: Mapping[str, Any], place: str) -> str:
    """Return the commands that repeat the runs, and the scenario that the second of them needs."""
    text = (
        "<p>Repeat all points from the rows alone, or with --point those of one key:</p>\n"
        f"<pre>{_escaped(shlex.join(['fanin', 'rerun', place]))}</pre>\n"
    )
    if not about.get("scenario"):
        return text
    file = f"{about.get('name', 'scenario')}.toml"
    changes = [f"--set={change}" for change in about.get("set") or ()]
    return (
        f"{text}<p>Or save this scenario as {_escaped(file)}</p>\n<pre>{_escaped(str(about['scenario']))}</pre>\n"
        f"<p>and run</p>\n<pre>{_escaped(shlex.join(['fanin', 'run', file, *changes]))}</pre>\n"
    )
