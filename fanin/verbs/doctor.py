"""`fanin doctor`: checks of this machine, and how to fix what is missing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from fanin.console import console
from fanin.experiments.scenario.tools import BMV2, P4C, packages

if TYPE_CHECKING:
    from fanin.checks import Finding, State

_MARKS: dict[State, str] = {"ok": "[green]✓[/]", "optional": "[yellow]–[/]", "missing": "[red]✗[/]"}

_COSTS = {BMV2.name: "--switch bmv2 does not work", P4C.name: "--compiler p4c does not work"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each check")] = False,
) -> None:
    """Check whether this machine can run fanin.

    Each line is something that fanin uses. For what is missing, you see the consequences and how to fix it. The exit
    status is 1 if live networks, or fanin as a whole, cannot run.

    Examples:
        fanin doctor
        fanin doctor --json
    """
    from fanin.checks import C_COMPILER, examine  # imports everything that it checks

    if as_json:
        from fanin.table import print_records

        findings = list(examine())
        print_records(map(asdict, findings))
        raise typer.Exit(any(finding.state == "missing" for finding in findings))
    missing: list[str] = []
    without: list[str] = []
    for finding in examine():
        if finding.state == "missing":
            missing.append(finding.name)
        if finding.name in _COSTS and finding.state != "ok":
            without.append(finding.name)
        _show(finding)
    if C_COMPILER in missing:
        console.print("\n[red]fanin cannot run here: there is no C compiler.[/]")
        raise typer.Exit(1)
    if missing:
        console.print(
            f"\n[red]Live networks cannot run here, because of: {', '.join(missing)}.[/]\n"
            "What needs none runs: lessons, labs, scenarios in virtual time, and P4 commands such as fanin stf.",
            highlight=False,
        )
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
