"""`fanin sweep`: a scenario with more settings varied; goes on where it was interrupted."""

from __future__ import annotations

from typing import Annotated

import typer

from fanin.points import Changes, Results, ScenarioFile, measure


def sweep(
    scenario: ScenarioFile,
    changes: Changes = [],  # noqa: B006 - typer's way
    results: Results = None,
    restart: Annotated[
        bool, typer.Option("--restart", help="measure again the points that are already there")
    ] = False,
) -> None:
    """Run the product of settings on all cores, as in: fanin sweep FILE --set loss=0,0.01 --set workers=2,4,8.

    What earlier sweeps into the same results have finished is not run again.
    """
    measure("sweep", scenario, changes, results, afresh=restart)
