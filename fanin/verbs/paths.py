"""`fanin paths`: the path of each flow of a scenario, and where flows share links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import complain, failing, failure
from fanin.native.text import counted
from fanin.options import Changes, ScenarioFile
from fanin.output import say

if TYPE_CHECKING:
    from fanin.experiments.models.flows import Flow, Hop
    from fanin.experiments.scenario.settings import Settings


def paths(
    scenario: ScenarioFile,
    changes: Changes = [],  # noqa: B006 - typer's way
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each flow")] = False,
) -> None:
    """Show the path of each flow through the switches.

    You also see how many flows share each link. Nothing is run: paths follow from the tables of the switches and the
    CRC-32 of each flow's five-tuple.

    Examples:
        fanin paths lesson:ecmp --set algorithm=ring --set seed=1
        fanin paths lesson:ecmp --set algorithm=ring --set seed=1 --json
    """
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.experiments.models.flows import NoFlowError, ways
    from fanin.experiments.models.prediction import predicted_call_seconds
    from fanin.experiments.scenario.file import ScenarioError, load_scenario
    from fanin.experiments.scenario.settings import setting_columns
    from fanin.experiments.scenario.shipped import scenario_file
    from fanin.run_points import point_name
    from fanin.table import print_records

    with failing("paths", ScenarioError, status=2):
        loaded = load_scenario(scenario_file(scenario), changes, predicted_call_seconds)
    shown = False
    for point in loaded.points:
        name = point_name(loaded.varied, setting_columns(point))
        try:
            found = ways(point)
        except NoFlowError as error:
            complain("paths", f"{name}: {error}")
            continue
        shown = True
        if as_json:
            print_records(
                {"point": point.key, **_flow(flow), "hops": list(map(_hop, hops))} for flow, hops in found
            )
        else:
            _show(name, point, found)
    if not shown:
        raise failure("paths", f"{scenario}: no point has flows with a single path each")


def _flow(flow: Flow) -> dict[str, str | int]:
    return {
        "source": flow.source.name,
        "destination": flow.destination.name,
        "source_address": str(flow.source.ip),
        "destination_address": str(flow.destination.ip),
        "protocol": 17,
        "source_port": flow.source_port,
        "destination_port": flow.destination_port,
    }


def _hop(hop: Hop) -> dict[str, str | int | None]:
    return {
        "switch": hop.switch,
        "hash": hop.hash,
        "paths": hop.paths,
        "port": hop.port,
        "neighbour": hop.neighbour,
    }


def _show(name: str, point: Settings, found: Sequence[tuple[Flow, Sequence[Hop]]]) -> None:
    """Print a point's flows, its links between switches, and how evenly switches spread flows."""
    from fanin.experiments.models.flows import loads, spreads
    from fanin.table import new_table, print_table

    say(f"{name}: {counted(len(found), 'flow')}")
    table = new_table(["flow", "five-tuple", "hash", "path"])
    for flow, hops in found:
        told = _flow(flow)
        hashes = [hop.hash for hop in hops if hop.hash is not None]
        table.add_row(
            f"{flow.source.name} → {flow.destination.name}",
            f"{told['source_address']}:{flow.source_port} → {told['destination_address']}:{flow.destination_port} UDP",
            f"{hashes[0]:08x}" if hashes else "",
            " ".join(
                [flow.source.name, *(f"→ {hop.switch}[{hop.port}]" for hop in hops), "→", hops[-1].neighbour]
            ),
        )
    print_table(table)
    names = {switch.name for switch in point.network.switches}
    between = {ends: count for ends, count in loads(found).items() if ends[1] in names}
    busy = new_table(["link"], "flows")
    for (near, far), count in sorted(between.items(), key=lambda one: (-one[1], one[0])):
        busy.add_row(f"{near} → {far}", str(count))
    if between:
        print_table(busy)
    spreading = new_table(["switch"], "flows", "paths", "most on one", "if even", "if random")
    for one in spreads(found):
        numbers = (one.flows, one.paths, one.most, one.even)
        spreading.add_row(one.switch, *map(str, numbers), f"{one.expected:.1f}")
    if spreading.row_count:
        print_table(spreading)
