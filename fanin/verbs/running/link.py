"""`fanin link`: the emulated links of a running network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from fanin.cli_errors import failing, failure
from fanin.options import Network, several
from fanin.testbed.running import RunningNetwork, find_network
from fanin.topologies.errors import NetworkError
from fanin.topologies.units import BYTES, RATES, TIMES, percent_text, quantity_text

_refused = partial(failure, "link", status=2)

# A bare number would mean seconds or bits/s here, which few users intend.
_NEED_UNITS = {"delay": "5ms", "jitter": "100us", "displacement": "5ms", "rate": "100Mb/s"}
_BARE = re.compile(r"\d+(\.\d*)?([eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class _OneWay:
    """One direction of a link, and the switch port that emulates it."""

    sender: str
    receiver: str
    switch: str
    port: int
    direction: str


def link(
    node: Annotated[str, typer.Argument(help="Switch or host of a running network, such as leaf1")],
    other: Annotated[
        str | None, typer.Argument(help="Node at the other end, such as h1, or a port; all links by default")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Properties to change: NAME=VALUE,…, such as delay=1ms,loss=1%"),
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Remove all properties that --set does not give")
    ] = False,
    one_way: Annotated[
        bool, typer.Option("--one-way", help="Only in the direction from NODE to OTHER")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each direction")] = False,
    supervisor: Network = None,
) -> None:
    """Show or change the emulated links of a running network.

    You see the properties of the links, and what they have sent and dropped. Changes apply to both directions and take
    effect immediately. Properties: rate, delay, jitter, queue_bytes, ecn_bytes, loss, corruption, duplication,
    reordering, displacement, burst=BEGIN/END/LOSS, overhead, seed.

    Examples:
        fanin link leaf1
        fanin link leaf1 h1 --set loss=1%
    """
    given = _given(changes or [], clear)
    if given and other is None:
        raise _refused("give the other end of the link to change")
    with failing("link", NetworkError):
        network = find_network(node, supervisor)
        ways = list(_ways(network, node, other, one_way))
    if given:
        with failing("link", NetworkError, status=2):
            for way in ways:
                place = {"port": way.port, "direction": way.direction}
                network.client(way.switch).call("SetLink", place | {"properties": given})
    with failing("link", NetworkError):
        ports = {switch: network.client(switch).call("Links", {}) for switch in {way.switch for way in ways}}
    found = []
    for way in ways:
        [port] = [port for port in ports[way.switch]["ports"] if port["port"] == way.port]
        found.append((way, _state(port, way.direction)))
    if as_json:
        from fanin.table import print_records

        for way, state in found:
            place = {"from": way.sender, "to": way.receiver, "switch": way.switch, "port": way.port}
            print_records([place | {"direction": way.direction} | state])
    else:
        _show(found)


def _given(changes: list[str], clear: bool) -> dict[str, str | None]:
    from fanin.topologies.emulation import SWITCH_PROPERTIES

    given: dict[str, str | None] = {}
    if clear:
        given |= dict.fromkeys(SWITCH_PROPERTIES)
    for item in several("--set", changes):
        name, equals, value = item.partition("=")
        if not equals:
            raise _refused(f"--set {item}: write NAME=VALUE, for example loss=1%")
        if (example := _NEED_UNITS.get(name.strip())) and _BARE.fullmatch(value.strip()) and float(value):
            raise _refused(f"--set {item}: write the unit as well, such as {name}={example}")
        given[name] = value
    return given


def _ways(network: RunningNetwork, node: str, other: str | None, one_way: bool) -> Iterator[_OneWay]:
    """Yield both directions of a link of `node`, or of all its links."""
    ends = {
        (switch, peer): port
        for switch, running in network.switches.items()
        for port, peer in running.neighbours.items()
    }
    if other is not None and other.isdecimal():
        at = network.switches[node].neighbours if node in network.switches else {}
        if int(other) not in at:
            raise NetworkError(
                f"{node} has no port {other}; its ports are {', '.join(map(str, at)) or 'none'}"
            )
        other = at[int(other)]
    peers = sorted({b for a, b in ends if a == node} | {a for a, b in ends if b == node})
    if other is not None and other not in peers:
        raise NetworkError(f"{node} has no link to {other}; it has links to {', '.join(peers)}")
    for peer in peers if other is None else [other]:
        for sender, receiver in ((node, peer),) if one_way else ((node, peer), (peer, node)):
            if (sender, receiver) in ends:
                yield _OneWay(sender, receiver, sender, ends[sender, receiver], "egress")
            else:  # from a host: its leaf emulates the link before its program receives the packet
                yield _OneWay(sender, receiver, receiver, ends[receiver, sender], "ingress")


def _state(port: dict[str, Any], direction: str) -> dict[str, Any]:
    """Return a direction of a link as its switch reports it; packets count from when the switch got its program.

    The switch counts packets at an emulated link only since that had its first properties, and at a port always.
    """
    state: dict[str, Any] = port.get(direction, {"properties": {}})
    if "sent" not in port:  # the switch has no program yet
        return state
    offered, sent = state.get("offered", 0), state.get("sent", 0)
    before = port["sent"] - sent if direction == "egress" else port["received"] - offered
    return state | {"offered": before + offered, "sent": before + sent}


def _show(found: list[tuple[_OneWay, dict[str, Any]]]) -> None:
    from fanin.table import new_table, print_table

    table = new_table(
        ["from", "to", "properties", "dropped"],
        *("sent", "corrupted", "queue kB\nmost kB", "late us\nmost us"),
    )
    for way, state in found:
        does = ", ".join(
            f"{name}={_text(name, value)}" for name, value in sorted(state["properties"].items())
        )
        row = [way.sender, way.receiver, does or "none"]
        if "drops" not in state:
            row += ["0", f"{state['sent']:,}"] if "sent" in state else []
        else:
            drops = ", ".join(f"{count:,} {kind}" for kind, count in state["drops"].items() if count)
            waiting = (f"{state[name] / 1e3:,.4g}" for name in ("queue_bytes", "highest_queue_bytes"))
            late = (f"{1e6 * state['lateness'][name]:,.4g}" for name in ("mean", "most"))
            row += [drops or "0", f"{state['sent']:,}", f"{state['corrupted']:,}"]
            row += ["\n".join(waiting), "\n".join(late)]
        table.add_row(*row)
    print_table(table, 2)


def _text(name: str, value: Any) -> str:
    """Return the text of a property as --set accepts it."""
    if isinstance(value, dict):  # a burst
        return "/".join(percent_text(value[part]) for part in ("begin", "end", "loss"))
    match name:
        case "rate":
            return quantity_text(value, RATES)
        case "delay" | "jitter" | "displacement":
            return quantity_text(value, TIMES)
        case "queue_bytes" | "ecn_bytes" | "overhead":
            return quantity_text(value, BYTES)
        case "seed":
            return str(value)
    return percent_text(value)
