"""Running the points of scenarios, for `fanin run`, `fanin sweep`, `fanin rerun` and `fanin lesson`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanin.cli_errors import INTERRUPTED, complain, failing, failure
from fanin.experiments.results.axes import value_text
from fanin.experiments.scenario.file import Choice, Scenario, ScenarioError, load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.shipped import scenario_file
from fanin.native.text import counted
from fanin.output import say
from fanin.table import new_table, print_records, print_table
from fanin.testbed.sandbox import SandboxError, enter

if TYPE_CHECKING:
    from rich.table import Table

    from fanin.experiments.results.measured import Row


@dataclass(frozen=True, slots=True)
class Work:
    """Points to run, and how to report them.

    Attributes:
        name: The name of the progress bar and the figure.
        points: The points to run.
        varied: The columns in which the points differ.
        folder: The folder for the results.
        about: Facts about the results, written into their files.
        again: What to do after an interruption.
        wrong: Whether wrong sums are expected.
        fails: The beginning of an error with which points are expected to fail, or None.
        as_json: Print the rows as lines of JSON; tables are left out, and notes go to standard error.
        choices: The reasons for algorithms that were chosen, by the keys of points.
    """

    name: str
    points: Sequence[Settings]
    varied: Sequence[str]
    folder: Path
    about: dict[str, Any]
    again: str
    wrong: bool = False
    fails: str | None = None
    as_json: bool = False
    choices: Mapping[str, Choice] = field(default_factory=dict)

    def note(self, text: str) -> None:
        """Print something that is not a result."""
        say(text, err=self.as_json)


def load(verb: str, file: str, changes: Sequence[str]) -> Scenario:
    """Return a scenario whose figure can be drawn. Print a warning if its links lose all, or its timers do not fit.

    Another warning is for workers that wait for congestion marks which no link makes.

    Raises:
        typer.Exit: With status 2 if the scenario or its figure is wrong.
    """
    from fanin.experiments.models.prediction import predicted_call_seconds

    with failing(verb, ScenarioError, status=2):
        scenario = load_scenario(scenario_file(file), changes, predicted_call_seconds)
    enter_if_live(verb, scenario.points)

    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.experiments.models.timers import mistimed
    from fanin.experiments.results.drawing.rehearsal import rehearse
    from fanin.experiments.results.drawing.series import PlotError

    if scenario.frame.plot:
        try:
            rehearse(scenario.points, scenario.frame.plot, changed=bool(changes))
        except PlotError as error:
            raise failure(verb, f"{file}: plot: {error}", 2) from None
    if any(point.links.mean_loss == 1 for point in scenario.points):
        complain(verb, f"warning: {file}: links lose 100% of the packets; for 1 percent write 1% or 0.01")
    if warnings := [text for point in scenario.points if (text := mistimed(point))]:
        more = f" (and {len(warnings) - 1} more points like it)" if len(warnings) > 1 else ""
        complain(verb, f"warning: {file}: {warnings[0]}{more}")
    for point in scenario.points:
        marking = any(link.properties.ecn_bytes is not None for link in point.network.links)
        if point.algorithm == "in-network" and point.implementation.shares_slots and not marking:
            complain(
                verb,
                f"warning: {file}: workers of {point.implementation.name} send less only when packets have congestion "
                "marks, and no link makes any; set links.ecn_bytes, such as 20000",
            )
            break
    return scenario


def enter_if_live(verb: str, points: Sequence[Settings]) -> None:
    """Enter the sandbox if one of the points is live.

    Raises:
        typer.Exit: If this machine does not allow it.
    """
    if any(point.world == "live" for point in points):
        with failing(verb, SandboxError):
            enter()


def measure(
    verb: str,
    work: Work,
    *,
    afresh: bool,
    processes: int | None = None,
    scheduler: str | None = None,
    cores_each: int = 1,
) -> list[Row]:
    """Run points, print their table unless JSON is wanted, and write their results.

    Args:
        verb: The name of the verb.
        work: The points, and how to report them.
        afresh: Run points again that have earlier results in the folder.
        processes: The number of points to run at once in virtual time; None is one per core.
        scheduler: The address of a Dask scheduler that runs the points in virtual time, or None.
        cores_each: The number of cores that may share the work of a point in virtual time.

    Returns:
        A row for each point.

    Raises:
        typer.Exit: With status 1 if there is no program or no cluster; with 2 if vectors are larger than the memory, or
            both processes and a scheduler are given; with 130 after Ctrl-C.
    """
    if processes and scheduler:
        raise failure(
            verb,
            f"--processes counts points on this machine, but {scheduler} runs them: leave one of the two options out",
            2,
        )
    from fanin.controller.errors import ControllerError
    from fanin.experiments.dask_scheduler import SchedulerError
    from fanin.experiments.results.files import Journal, write_results
    from fanin.experiments.scenario.tools import ToolError
    from fanin.experiments.sweep import run_points, tight, too_large
    from fanin.native.python_file import PythonFileError
    from fanin.p4compiler import CompileError
    from fanin.progress import PointsProgress

    if scheduler is None:
        simulated = [point for point in work.points if point.world == "virtual"]
        if problem := next(filter(None, map(too_large, simulated)), None):
            raise failure(verb, problem, 2)
        if warning := next(filter(None, map(tight, simulated)), None):
            complain(verb, f"warning: {warning}")
    journal = Journal(work.folder)
    earlier = _written(work.folder) if afresh else None
    if afresh:
        journal.clear()
    try:
        with (
            failing(verb, PythonFileError, ToolError, CompileError, ControllerError, SchedulerError),
            PointsProgress(work.name, len(work.points), work.note, shown=not work.as_json) as progress,
        ):
            logs = work.folder / "logs"
            rows = run_points(work.points, journal, logs, progress, processes, scheduler, cores_each)
    except KeyboardInterrupt:
        raise failure(verb, f"interrupted; {work.again}", INTERRUPTED) from None
    rows = [row | work.choices[row["key"]].columns if row["key"] in work.choices else row for row in rows]
    good = [row for row in rows if row["error"] is None]
    if good or work.fails or not _has_good_rows(work.folder):
        write_results(rows, work.about, work.folder)
        if earlier:
            work.note(
                f"These replace the results of {earlier} in {work.folder}; to keep both, add --results DIR."
            )
    else:
        complain(verb, f"every point failed, so the earlier results stay in {work.folder}")
    if good and not work.as_json:
        print_table(_table(work.varied, good), max(1, len(work.varied)))
        _explain_steps(good)
        _show_remarks(work.varied, good)
    return rows


def _written(folder: Path) -> str | None:
    """Return when the results in a folder were written; None if it has none."""
    from datetime import datetime

    from fanin.experiments.results.files import PARQUET

    try:
        written = (folder / PARQUET).stat().st_mtime
    except FileNotFoundError:
        return None
    return f"{datetime.fromtimestamp(written):%Y-%m-%d %H:%M}"


def _has_good_rows(folder: Path) -> bool:
    """Return whether a folder has results of an earlier run of which a point did not fail."""
    from fanin.experiments.results.files import PARQUET, ResultsError, read_rows

    try:
        return any(row.get("error") is None for row in read_rows(folder / PARQUET))
    except ResultsError:
        return False


def conclude(verb: str, work: Work, rows: Sequence[Row]) -> None:
    """Print where the results are, and which points failed.

    Raises:
        typer.Exit: With status 1 if a point failed or a sum lies outside its bound.
    """
    work.note(f"Results: {work.folder}/results.json, .parquet and .csv")
    for kind, what in (("sample", "a sample of one packet in 16"), ("none", "nothing")):
        if some := sum(row.get("check") == kind and row["error"] is None for row in rows):
            work.note(f"Sums of {counted(some, 'point')}: {what} was checked (check = {kind!r})")
    for line in _grouped(_on_one_core(work.varied, rows)):
        work.note(line)
    complaints: dict[str, list[str]] = {}  # points by error
    meant: dict[str, list[str]] = {}  # points by expected error
    for row in rows:
        if row["error"] is not None and work.fails and row["error"].startswith(work.fails):
            meant.setdefault(row["error"], []).append(point_name(work.varied, row))
        elif row["error"] is not None:
            complaints.setdefault(row["error"], []).append(point_name(work.varied, row))
        elif row["violations"] and not work.wrong:
            wrong = f"{row['violations']} elements of sums lie outside their bound"
            complaints.setdefault(wrong, []).append(point_name(work.varied, row))
    for line in _grouped(meant):
        work.note(line)
    if complaints:
        failed = sum(map(len, complaints.values()))
        lines = [f"{failed} of {len(rows)} points failed", *_grouped(complaints)]
        programs = {row["program"] for row in rows if row.get("program") and row["error"] is not None}
        lines += [
            f"the program of these points may be wrong; test it with fanin stf {one} TEST.stf"
            for one in programs
        ]
        raise failure(verb, "\n".join(lines))


def _on_one_core(varied: Sequence[str], rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the points of which several cores could not share the work, by the reason."""
    found: dict[str, list[str]] = {}
    for row in rows:
        if reason := row.get("one_core_because"):
            found.setdefault(f"ran on one core: {reason}", []).append(point_name(varied, row))
    return found


def _grouped(points: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield a line for each message, with the first point."""
    for what, (first, *more) in points.items():
        yield f"{first}{f' (and {len(more)} more points)' if more else ''}: {what}"


def run_scenario(
    verb: str,
    file: str,
    scenario: Scenario,
    changes: Sequence[str],
    results: Path | None,
    *,
    afresh: bool,
    processes: int | None = None,
    scheduler: str | None = None,
    cores_each: int = 1,
    as_json: bool = False,
) -> None:
    """Run a scenario, print and write its results, and draw its figure.

    Args:
        verb: The name of the verb.
        file: The scenario as it was given on the command line.
        scenario: The scenario.
        changes: The settings that were given on the command line.
        results: The folder for the results; None is results/NAME.
        afresh: Run points again that have earlier results in the folder.
        processes: The number of points to run at once in virtual time; None is one per core.
        scheduler: The address of a Dask scheduler that runs the points in virtual time, or None.
        cores_each: The number of cores that may share the work of a point in virtual time.
        as_json: Print a line of JSON for each point.

    Raises:
        typer.Exit: With status 1 if a point failed or a sum is wrong, with 130 after Ctrl-C.
    """
    import shlex

    from fanin.experiments.results.drawing.plot import draw
    from fanin.experiments.results.drawing.series import PlotError, mixed, select, series

    lesson = scenario.frame.lesson
    where = [] if results is None else ["--results", str(results)]
    resume = ["fanin", "sweep", file, *(f"--set={change}" for change in changes), *where]
    work = Work(
        name=scenario.frame.name,
        points=scenario.points,
        varied=scenario.varied,
        folder=results or Path("results", scenario.frame.name),
        about={
            "name": scenario.frame.name,
            "scenario": scenario.text,
            "set": list(changes),
            "compute_seconds": scenario.frame.compute,
        },
        again=f"finished points are kept. To continue: {shlex.join(resume)}",
        wrong=lesson is not None and lesson.wrong,
        fails=lesson.fails if lesson else None,
        as_json=as_json,
        choices=scenario.choices,
    )
    rows = measure(verb, work, afresh=afresh, processes=processes, scheduler=scheduler, cores_each=cores_each)
    priced = [_priced(row, scenario.frame.compute) for row in rows]
    if as_json:
        print_records(priced)
    else:
        _show_prices(work.varied, priced, scenario.frame.compute)
    figure = scenario.frame.plot
    if figure and any(row["error"] is None for row in rows):
        path = work.folder / f"{work.name}.png"
        try:
            shown = select(rows, figure.where)
            draw(series(shown, figure), figure, path)
        except PlotError as error:
            raise failure(verb, f"{file}: plot: {error}", 2) from None
        work.note(f"Figure: {path}")
        if names := mixed(shown, figure):
            complain(
                verb,
                f"points of the figure mix rows that differ in {', '.join(names)}; "
                "separate them with by or where in [plot]",
            )
    if lesson:
        page = f"docs/tutorials/lessons/{scenario_file(file).stem}.md"
        work.note(f"\n{lesson.shown(changes)}\nExplanation and exercises: {page}\n")
    conclude(verb, work, rows)


def point_name(varied: Sequence[str], row: Row) -> str:
    """Return a name for a point, made of the settings in which points differ."""
    settings = [f"{name}={value_text(name, row[name])}" for name in varied if row.get(name) is not None]
    return ", ".join(settings) or "the run"


# Columns of the table that only some scenarios have, with their headers, and the format of their values.
_OF_TRAININGS = {
    "lost_share": ("lost", "{:.1%}"),
    "predicted_lost_share": ("predicted", "{:.1%}"),
    "steps_per_day": ("steps a day", "{:,.0f}"),
    "achieved_flops": ("FLOP/s", "{:.1e}"),
    "roofline_flops": ("roofline", "{:.1e}"),
    "p99_seconds": ("p99 s", "{:.3g}"),
    "predicted_p99_seconds": ("predicted", "{:.3g}"),
    "requests_in_progress": ("in progress", "{:.3g}"),
    "tokens_per_second": ("tokens/s", "{:.1f}"),
    "predicted_tokens_per_second": ("predicted", "{:.1f}"),
    "target_seconds": ("to target s", "{:.4g}"),
    "accuracy": ("accuracy", "{:.1%}"),
    "data_wait_seconds": ("data wait s", "{:.3g}"),
    "predicted_step_seconds": ("predicted step s", "{:.3g}"),
    "checkpoint_seconds": ("checkpoint s", "{:.3g}"),
}


def _table(varied: Sequence[str], rows: Sequence[Row]) -> Table:
    live = any(row["world"] == "live" for row in rows)
    limits = ("link", "cores", "limited by") if live else ()
    steps = ("step ms", "exposed ms") if any(row.get("step_seconds") for row in rows) else ()
    traced = ("in the trace ms", "off by") if any(row.get("trace_step_seconds") for row in rows) else ()
    other = ("other job ms",) if any(row.get("other_job_seconds") for row in rows) else ()
    with_flows = any(row.get("traffic_flows") for row in rows)
    flows = ("other flows", "their p50 ms", "p99 ms", "p99.9 ms") if with_flows else ()
    there = [name for name in _OF_TRAININGS if any(row.get(name) is not None for row in rows)]
    table = new_table(
        varied,
        "median ms",
        "p95 ms",
        "Mb/s",
        "kB each",
        "resent",
        "wrong",
        *steps,
        *traced,
        *other,
        *flows,
        *(_OF_TRAININGS[name][0] for name in there),
        *limits,
    )
    for row in rows:
        shares = (row.get("link_utilization"), row.get("processor_utilization"))
        texts = ("" if share is None else f"{share:.0%}" for share in shares)
        table.add_row(
            *setting_texts(varied, row),
            f"{row['median_seconds'] * 1e3:.4g}",
            f"{row['p95_seconds'] * 1e3:.4g}",
            f"{row['goodput_bits_per_second'] / 1e6:,.1f}",
            f"{row['wire_bytes_per_worker'] / 1e3:,.0f}",
            f"{row['retransmissions']:,}",
            "not checked" if row["violations"] is None else f"{row['violations']:,}",
            *(_milliseconds(row, "step_seconds", "exposed_seconds") if steps else ()),
            *(_against_trace(row) if traced else ()),
            *(_milliseconds(row, "other_job_seconds") if other else ()),
            *(_flow_texts(row) if with_flows else ()),
            *("" if row.get(name) is None else _OF_TRAININGS[name][1].format(row[name]) for name in there),
            *((*texts, row.get("limited_by")) if live else ()),
        )
    return table


def _against_trace(row: Row) -> Iterator[str]:
    """Yield the measured time of a step, and by how much the predicted one is off."""
    yield from _milliseconds(row, "trace_step_seconds")
    measured = row.get("trace_step_seconds")
    yield f"{row['step_seconds'] / measured - 1:+.0%}" if measured else ""


def _explain_steps(rows: Sequence[Row]) -> None:
    """Explain the columns of a table of training steps."""
    if not any(row.get("step_seconds") for row in rows):
        return
    say(
        "step ms: mean time of a step. exposed ms: the part in which even the slowest rank does not compute.\n"
        "median, p95 ms: time of all sums of a step, from the first call to the last result; in a replay or a\n"
        "pipeline, of the whole step. Mb/s: bytes that a rank sums in a step over the median time. kB each: what\n"
        "it sends and receives. resent: packets sent more than once. wrong: elements of sums outside their bound."
    )
    if any(row.get("trace_step_seconds") for row in rows):
        say(
            "in the trace ms: mean time of a step as measured. off by: how far step ms, the prediction, is from that."
        )


def _show_remarks(varied: Sequence[str], rows: Sequence[Row]) -> None:
    """Print why algorithms were chosen, and what became of faults."""
    from fanin.experiments.results.remarks import remarks

    for row in rows:
        for remark in remarks(row):
            say(f"{point_name(varied, row)}: {remark}")


def _flow_texts(row: Row) -> Iterator[str]:
    """Yield the number of other flows and their completion times."""
    yield f"{row.get('traffic_flows') or 0:,}"
    yield from _milliseconds(row, *(f"traffic_{share}_seconds" for share in ("p50", "p99", "p999")))


def _milliseconds(row: Row, *columns: str) -> Iterator[str]:
    for column in columns:
        seconds = row.get(column)
        yield "" if seconds is None else f"{1e3 * seconds:.4g}"


def _priced(row: Row, compute: float | None) -> Row:
    """Return a row of the results as --json prints it: without the counts of links, and with the price of idle GPUs.

    Args:
        row: The row.
        compute: Seconds of compute between two all-reduces, for points that do not measure `gpu_idle_share`, or None.
    """
    from fanin.experiments.models.cost import CLUSTERS, idle_price, price_of
    from fanin.experiments.results.measured import idle_share_and_step

    row = {name: value for name, value in row.items() if name != "usage"}
    if row["error"] is None:
        share, seconds = idle_share_and_step(row, compute)
        if share is not None:
            prices = {str(gpus): idle_price(share, gpus) for gpus in CLUSTERS}
            row |= {"gpu_idle_share": share, "idle_dollars_per_hour": prices}
            row["dollars_per_step"] = price_of(seconds, row["workers"]) if seconds else None
    return row


def _show_prices(varied: Sequence[str], rows: Sequence[Row], compute: float | None) -> None:
    """Print what idle GPUs cost while these all-reduces run; `rows` are those of _priced()."""
    from fanin.experiments.models.cost import CLUSTERS, PRICE
    from fanin.topologies.units import TIMES, quantity_text

    priced = [row for row in rows if "idle_dollars_per_hour" in row]
    if not priced:
        if compute is None and "algorithm" in varied:  # a comparison
            say(
                "To see what waiting GPUs cost, give the compute time between two\n"
                'all-reduces: --set "compute=50 ms"'
            )
        return
    steps = any(row["dollars_per_step"] for row in priced)
    own = ("1,000 steps",) if steps else ()
    table = new_table(varied, "idle", *own, *(f"{gpus:,} GPUs" for gpus in CLUSTERS))
    for row in priced:
        hourly = row["idle_dollars_per_hour"].values()
        prices = [f"{price:,.0f} / {24 * price:,.0f}" for price in hourly]
        if steps:
            prices.insert(0, f"{1000 * row['dollars_per_step']:,.3g}" if row["dollars_per_step"] else "")
        table.add_row(*setting_texts(varied, row), f"{row['gpu_idle_share']:.1%}", *prices)
    who = "GPUs"
    if compute is not None:
        who = f"GPUs that compute for {quantity_text(compute, TIMES)} between two all-reduces"
    say(
        f"{who} idle for this share of their time,\n"
        f"which costs $ an hour / a day, at {PRICE:g} $ for a GPU and an hour:"
    )
    print_table(table, max(1, len(varied)))
    if steps:
        say(
            "1,000 steps: $ for these steps, with as many GPUs as the run has workers. Compare algorithms by this."
        )


def setting_texts(varied: Sequence[str], row: Row) -> Iterator[str]:
    """Return the cells of a table for the settings, as written in scenarios."""
    return (value_text(name, row.get(name)) for name in varied)
