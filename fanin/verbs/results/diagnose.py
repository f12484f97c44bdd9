"""`fanin diagnose`: the likely cause of slow runs, from their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import complain, failing, failure
from fanin.output import say

if TYPE_CHECKING:
    from fanin.experiments.diagnosis.diagnose import Diagnosis
    from fanin.experiments.diagnosis.finding import Finding


def diagnose(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder of results, or a file in it")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each point")] = False,
) -> None:
    """Find the likely cause of a slow run.

    The evidence is what its links and workers did. Each cause has the share of the time that it costs, and the setting
    to change. Causes that cost too little are mentioned, and so are those that a live run cannot show.

    Examples:
        fanin diagnose results/small-virtual
        fanin diagnose results/small-virtual --json
    """
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.experiments.diagnosis.diagnose import DiagnosisError
    from fanin.experiments.diagnosis.diagnose import diagnose as find_causes
    from fanin.experiments.results.drawing.series import varied
    from fanin.experiments.results.files import ResultsError, read_runs
    from fanin.run_points import point_name

    with failing("diagnose", ResultsError, status=2):
        runs = read_runs(results)
    settings = varied([row for row, _ in runs])
    found = {}
    for row, usage in runs:
        name = point_name(settings, row)
        try:
            found[name] = find_causes(row, usage)
        except DiagnosisError as error:
            complain("diagnose", f"{name}: {error}")
            continue
        if as_json:
            causes = [asdict(finding) for finding in found[name].findings]
            told = {"cause": found[name].cause, "findings": causes, "limit": found[name].limit}
            told["minor"] = [asdict(finding) for finding in found[name].minor]
            told["unseen"] = found[name].unseen
            say(json.dumps({"point": row.get("key"), "name": name, **told}))
    if not found:
        raise failure("diagnose", f"{results}: no point can be diagnosed")
    if not as_json:
        _show(found, alone=len(runs) == 1)


def _show(found: Mapping[str, Diagnosis], *, alone: bool) -> None:
    """Print all findings of one point, or a line for each of several points."""
    for name, diagnosis in found.items():
        if not alone:
            first = (
                _render(diagnosis.findings[0]) if diagnosis.findings else f"nothing wrong: {diagnosis.limit}"
            )
            say(f"{name}: {first}")
        else:
            _show_all(diagnosis.findings)
            if not diagnosis.findings:
                say(f"Nothing wrong: {diagnosis.limit}.")
            for finding in diagnosis.minor:
                say(
                    f"Too little to change anything: {finding.cause}, at most {_cost(finding)}: {finding.evidence}."
                )
            if diagnosis.unseen:
                say(f"Cannot tell live, which virtual time can: {', '.join(diagnosis.unseen)}.")


def _show_all(findings: Sequence[Finding]) -> None:
    for number, finding in enumerate(findings, start=1):
        say(f"{number}. {_render(finding)}.\n   What to change: {finding.change}.")


def _render(finding: Finding) -> str:
    return f"{finding.cause}, about {_cost(finding)}: {finding.evidence}"


def _cost(finding: Finding) -> str:
    return f"{finding.share:.0%} of the time" if finding.share >= 0.01 else "less than 1% of the time"
