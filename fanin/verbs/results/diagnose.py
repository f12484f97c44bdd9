"""`fanin diagnose`: the likely cause of slow runs, from their results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import complain, failing, failure
from fanin.options import Network
from fanin.output import say

if TYPE_CHECKING:
    from fanin.experiments.diagnosis.diagnose import Diagnosis
    from fanin.experiments.diagnosis.finding import Finding
    from fanin.experiments.results.measured import Row
    from fanin.testbed.monitoring.slow import SlowCause, Slowness


def diagnose(
    results: Annotated[
        str | None,
        typer.Argument(metavar="RESULTS", help="Folder of results, or a file in it; with --live, a job"),
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="Diagnose a job that runs, or all of them")] = False,
    seconds: Annotated[
        float, typer.Option("--interval", min=1.0, help="Seconds to observe jobs with --live")
    ] = 5.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each point, or job")
    ] = False,
    supervisor: Network = None,
) -> None:
    """Find the likely cause of a slow run or job.

    The evidence is what its links and workers did. Each cause has the share of the time that it costs, and the setting
    to change. Causes that cost too little are mentioned, and so are those that a live run cannot show.

    With --live, the evidence is what workers, links and processes do for some seconds; fanin why --slow has all of it.

    Examples:
        fanin diagnose results/small-virtual
        fanin diagnose --live
    """
    if live:
        _diagnose_live(results, seconds, supervisor, as_json)
        return
    if results is None:
        raise typer.BadParameter(
            "give a folder of results, or --live for a job that runs", param_hint="RESULTS"
        )
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.experiments.diagnosis.diagnose import DiagnosisError
    from fanin.experiments.diagnosis.diagnose import diagnose as find_causes
    from fanin.experiments.results.drawing.series import varied
    from fanin.experiments.results.files import ResultsError, compute_of, read_results, read_runs
    from fanin.run_points import point_name

    with failing("diagnose", ResultsError, status=2):
        about, _ = read_results(Path(results))
        runs = read_runs(Path(results))
    compute = compute_of(about)
    settings = varied([row for row, _ in runs])
    found = []
    for row, usage in runs:
        name = point_name(settings, row)
        try:
            diagnosis = find_causes(row, usage, compute)
        except DiagnosisError as error:
            complain("diagnose", f"{name}: {error}")
            continue
        found.append((row, diagnosis))
        if as_json:
            causes = [asdict(finding) for finding in diagnosis.findings]
            told = {"cause": diagnosis.cause, "findings": causes, "limit": diagnosis.limit}
            told["minor"] = [asdict(finding) for finding in diagnosis.minor]
            told["unseen"] = diagnosis.unseen
            say(json.dumps({"point": row.get("key"), "name": name, **told}))
    if not found:
        raise failure("diagnose", f"{results}: no point can be diagnosed")
    if as_json:
        return
    if len(runs) == 1:
        _show(found[0][1])
    else:
        _show_all(settings, found)


def _diagnose_live(job: str | None, seconds: float, supervisor: int | None, as_json: bool) -> None:
    """Observe jobs, and print what makes them slow."""
    from fanin.testbed.monitoring.observe import observe
    from fanin.testbed.monitoring.slow import UNSEEN
    from fanin.testbed.running import find_network
    from fanin.topologies.errors import NetworkError

    found = False
    with failing("diagnose", NetworkError):
        for name, slowness in observe(find_network(supervisor=supervisor), job, seconds):
            found = True
            if as_json:
                told = asdict(slowness)
                causes = {
                    key: told[key] for key in ("seconds", "calls", "summary", "groups", "causes", "unknown")
                }
                say(json.dumps({"job": name} | causes | {"unseen": UNSEEN}))
            elif slowness.unknown:
                say(f"{name}: what it spends its time on is unknown: {slowness.unknown}.")
            else:
                _show_live(name, slowness)
    if not found and not as_json:
        say("No job is running on the network; start one with: fanin launch train.py")


def _show_live(job: str, slowness: Slowness) -> None:
    from fanin.table import new_table, print_table
    from fanin.testbed.monitoring.slow import UNSEEN

    say(f"{job}, {slowness.calls} calls in {slowness.seconds:.1f} s. {slowness.summary}\n")
    for number, cause in enumerate(slowness.causes, start=1):
        say(f"{number}. {cause.cause}, about {_explained(cause)}")
    estimated = any(rank.estimated for rank in slowness.ranks)
    table = new_table(["bucket, or other call"], "times", "exposed", "ms each")
    for group in slowness.groups:
        each = f"{1e3 * (group.waiting_seconds + group.moving_seconds):,.3g}"
        table.add_row(group.what, str(group.count), f"{'≤ ' if estimated else ''}{group.exposed:.0%}", each)
    say("\nExposed is the share of the time in which programs wait for these calls:")
    print_table(table, 1)
    say(f"Cannot tell live: {', '.join(UNSEEN)}.")


def _show(diagnosis: Diagnosis) -> None:
    """Print everything about one point."""
    for number, finding in enumerate(diagnosis.findings, start=1):
        say(f"{number}. {finding.cause}, about {_explained(finding)}")
    if not diagnosis.findings:
        none = "Nothing wrong" if diagnosis.cause == "nothing wrong" else "No cause found"
        say(f"{none}: {diagnosis.limit}.")
    for finding in diagnosis.minor:
        say(f"Too little to change anything: {finding.cause}, at most {_cost(finding)}: {finding.evidence}.")
    if diagnosis.unseen:
        say(f"Cannot tell live, which virtual time can: {', '.join(diagnosis.unseen)}.")


def _show_all(settings: Sequence[str], found: Sequence[tuple[Row, Diagnosis]]) -> None:
    """Print the causes of several points, and each cause once where it costs most."""
    from fanin.run_points import point_name, setting_texts
    from fanin.table import new_table, print_table

    table = new_table([*settings, "causes"])
    worst: dict[str, tuple[Finding, Row]] = {}
    for row, diagnosis in found:
        causes, minor = (
            ", ".join(f"{finding.cause} {finding.share:.0%}" for finding in findings)
            for findings in (diagnosis.findings, diagnosis.minor)
        )
        nothing = f"{diagnosis.cause}; little: {minor}" if minor else diagnosis.cause
        table.add_row(*setting_texts(settings, row), causes or nothing)
        for finding in diagnosis.findings:
            if finding.cause not in worst or finding.share > worst[finding.cause][0].share:
                worst[finding.cause] = finding, row
    print_table(table, max(1, len(settings)))
    for finding, row in worst.values():
        say(f"\n{finding.cause}, most with {point_name(settings, row)}: about {_explained(finding)}")
    if unseen := [cause for _, diagnosis in found for cause in diagnosis.unseen]:
        say(f"\nCannot tell live, which virtual time can: {', '.join(dict.fromkeys(unseen))}.")


def _explained(finding: Finding | SlowCause) -> str:
    return f"{_cost(finding)}: {finding.evidence}.\n   What to change: {finding.change}."


def _cost(finding: Finding | SlowCause) -> str:
    return f"{finding.share:.0%} of the time" if finding.share >= 0.01 else "less than 1% of the time"
