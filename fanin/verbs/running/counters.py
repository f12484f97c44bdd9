"""`fanin counters`: the counters of a running switch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from fanin.cli_errors import failing
from fanin.options import Network, SwitchName
from fanin.output import say
from fanin.testbed.running import find_switch
from fanin.topologies.errors import NetworkError


def counters(
    switch: SwitchName,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each cell")] = False,
    supervisor: Network = None,
) -> None:
    """Show the counters of a running switch.

    Cells that are 0 are left out. The counters are read over P4Runtime; the controller keeps control of the switch.

    Examples:
        fanin counters leaf1
        fanin counters leaf1 --json
    """
    from fanin.table import print_records

    with failing("counters", NetworkError):
        client = find_switch(switch, supervisor)
        found = client.observe("counters")
    named = [cell | {"name": _cell_name(cell, client.neighbours)} for cell in found]
    if as_json:
        print_records(named)
    elif named:
        _show(named)
    else:
        say(f"{switch} has counted nothing yet.")


def _cell_name(cell: dict[str, Any], neighbours: Mapping[int, str]) -> str | None:
    """Return the name of a cell in our program: a reason, an event or a neighbour; None if it has none."""
    from fanin.controller.telemetry import CELLS, PORT_COUNTERS

    index: int = cell["index"]
    if cell["counter"] in PORT_COUNTERS:
        return neighbours.get(index)
    names = CELLS.get(cell["counter"], ())
    # Other programs may have a counter with the same name.
    return names(index).name if isinstance(names, type) and len(names) == cell["size"] else None


def _show(cells: list[dict[str, Any]]) -> None:
    from fanin.table import new_table, print_table

    table = new_table(["counter", "name"], "index", "packets", "bytes")
    for cell in cells:
        counted = (f"{cell[name]:,}" for name in ("packets", "bytes"))
        table.add_row(cell["counter"], cell["name"] or "", str(cell["index"]), *counted)
    print_table(table, 2)
