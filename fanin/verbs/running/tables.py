"""`fanin tables`: the table entries of a running switch."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fanin.cli_errors import failing
from fanin.options import Network, SwitchName
from fanin.output import say
from fanin.testbed.running import find_switch
from fanin.topologies.errors import NetworkError

_COLUMNS = (
    "match",
    "member",
    "action",
    "group",
    "session",
    "members",
    "replicas",
    "priority",
    "packets",
    "bytes",
)
_NUMBERS = "priority", "packets", "bytes"


def tables(
    switch: SwitchName,
    table: Annotated[
        str | None,
        typer.Argument(help="Table, such as ingress.forwarding.ipv4_lpm or ipv4_lpm; all by default"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each entry, group and session")
    ] = False,
    supervisor: Network = None,
) -> None:
    """Show the table entries of a running switch.

    Entries, the members and groups of action profiles, multicast groups and clone sessions are shown with the names of
    the program. They are read over P4Runtime; the controller keeps control of the switch.

    Examples:
        fanin tables leaf1
        fanin tables leaf1 ipv4_lpm
    """
    from fanin.table import print_records

    with failing("tables", NetworkError):
        found = find_switch(switch, supervisor).observe("tables")
        if table is not None:
            found = _of_table(found, switch, table)
    if as_json:
        print_records(found)
    else:
        _show(found)


def _of_table(found: list[dict[str, Any]], switch: str, name: str) -> list[dict[str, Any]]:
    names = sorted({each["table"] for each in found if "table" in each})
    meant = [full for full in names if full == name or full.endswith(f".{name}")]
    if not meant:
        raise NetworkError(
            f"{switch} has no table {name} with entries; tables with entries are {', '.join(names)}"
        )
    return [each for each in found if each.get("table") in meant]


def _show(found: list[dict[str, Any]]) -> None:
    from fanin.table import new_table, print_table

    for title, rows in _by_table(found).items():
        used = [column for column in _COLUMNS if any(column in row for row in rows)]
        texts = [column for column in used if column not in _NUMBERS]
        numbers = [column for column in used if column in _NUMBERS]
        table = new_table(texts, *numbers, title=title)
        for row in rows:
            table.add_row(*(row.get(column, "") for column in (*texts, *numbers)))
        print_table(table)
        say("")


def _by_table(found: list[dict[str, Any]]) -> dict[str, list[dict[str, str]]]:
    rows: dict[str, list[dict[str, str]]] = {}
    for each in found:
        if "multicast_group" in each:
            rows.setdefault("multicast groups", []).append(
                _replicas_row("group", each["multicast_group"], each)
            )
        elif "clone_session" in each:
            rows.setdefault("clone sessions", []).append(
                _replicas_row("session", each["clone_session"], each)
            )
        elif "action_profile" in each:
            rows.setdefault(each["action_profile"], []).append(_profile_row(each))
        else:
            rows.setdefault(each["table"], []).append(_entry_row(each))
    return rows


def _entry_row(entry: dict[str, Any]) -> dict[str, str]:
    match = (
        ", ".join(f"{name}={_match_text(value)}" for name, value in entry["match"].items()) or "everything"
    )
    kinds = {"default": "everything else", "const": f"{match} (const)"}
    row = {"match": kinds.get(entry["kind"], match), "action": _action_text(entry)}
    if entry["priority"]:
        row["priority"] = str(entry["priority"])
    return row | {name: f"{entry[name]:,}" for name in ("packets", "bytes") if name in entry}


def _replicas_row(kind: str, number: int, found: dict[str, Any]) -> dict[str, str]:
    replicas = (f"port {port}, instance {instance}" for port, instance in found["replicas"])
    return {kind: str(number), "replicas": "; ".join(replicas)}


def _profile_row(found: dict[str, Any]) -> dict[str, str]:
    if "member" in found:
        return {"member": str(found["member"]), "action": _action_text(found)}
    members = ", ".join(f"{member} weight {weight}" for member, weight in found["members"])
    return {"group": str(found["group"]), "members": members or "none"}


def _match_text(match: Any) -> str:
    match match:
        case {"value": value, "mask": mask}:
            return f"{value} &&& {mask}"
        case {"low": low, "high": high}:
            return f"{low}..{high}"
    return str(match)


def _action_text(entry: dict[str, Any]) -> str:
    match entry:
        case {"action": name, "params": params}:
            return f"{name}({', '.join(f'{param}={value}' for param, value in params.items())})"
        case {"member": number}:
            return f"member {number}"
        case {"group": number}:
            return f"group {number}"
        case {"one_of": actions}:
            text = " or ".join(f"{_action_text(action)} weight {action['weight']}" for action in actions)
            return text + (", at random" if entry["random"] else "")
    return "none"
