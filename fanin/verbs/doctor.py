"""`fanin doctor`: what this machine has, what it lacks, what that costs, and how to fix it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer
from rich.markup import escape

from experiments.scenario.tools import BMV2, P4C, packages
from fanin.console import console

if TYPE_CHECKING:
    from fanin.checks import Finding, State

_MARKS: dict[State, str] = {"ok": "[green]✓[/]", "optional": "[yellow]–[/]", "missing": "[red]✗[/]"}


def doctor() -> None:
    """Check the machine. The exit status is 1 if something is missing without which fanin does not run."""
    from fanin.checks import examine  # which imports of all that it looks at

    missing = 0
    without = []
    for finding in examine():
        missing += finding.state == "missing"
        if finding.name in (BMV2.name, P4C.name) and finding.state != "ok":
            without.append(finding.name)
        _show(finding)
    if missing:
        console.print(f"\n[red]fanin cannot run here: {missing} of what it needs is missing.[/]")
        raise typer.Exit(1)
    if not without:
        console.print("\nfanin runs here.")
        return
    console.print(
        f"\nfanin runs here, without {' and '.join(without)}: fanin demo --switch bmv2, --compiler p4c and fanin diff "
        f"need them; {escape(packages())}.",
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
