"""`fanin doctor`: what this machine has, what it lacks, what that costs, and how to fix it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from fanin.console import console
from fanin.experiments.scenario.tools import BMV2, P4C, packages

if TYPE_CHECKING:
    from fanin.checks import Finding, State

_MARKS: dict[State, str] = {"ok": "[green]✓[/]", "optional": "[yellow]–[/]", "missing": "[red]✗[/]"}

_COSTS = {BMV2.name: "--switch bmv2 cannot run", P4C.name: "--compiler p4c cannot run"}


def doctor() -> None:
    """Check the machine. The exit status is 1 if something is missing without which fanin does not run."""
    from fanin.checks import examine  # which imports of all that it looks at

    missing = 0
    without: list[str] = []
    for finding in examine():
        missing += finding.state == "missing"
        if finding.name in _COSTS and finding.state != "ok":
            without.append(finding.name)
        _show(finding)
    if missing:
        console.print(f"\n[red]fanin cannot run here: {missing} of what it needs is missing.[/]")
        raise typer.Exit(1)
    if not without:
        console.print("\nfanin runs here.")
        return
    costs = [_COSTS[name] for name in without]
    if len(costs) == len(_COSTS):
        costs.append("fanin diff has nothing to compare")
    console.print(
        f"\nfanin runs here, without {' and '.join(without)}: {', '.join(costs)}; {escape(packages())}.",
        highlight=False,
        soft_wrap=True,
    )


def _show(finding: Finding) -> None:
    console.print(
        f"{_MARKS[finding.state]} [bold]{finding.name}[/]  {escape(finding.detail)}", highlight=False
    )
    for heading, text in (("costs", finding.costs), ("fix", finding.fix)):
        if text:
            console.print(f"    {heading}: {escape(text)}", highlight=False, style="dim")
