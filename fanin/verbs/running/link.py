"""`fanin link`: emulated links of a network that is up, read and changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from fanin.failing import failing
from fanin.options import Run
from topologies.errors import NetworkError
from topologies.running import RunningNetwork, find_network


@dataclass(frozen=True, slots=True)
class _OneWay:
    """A direction of a link, and where it is emulated."""

    sender: str
    receiver: str
    switch: str
    port: int
    direction: str


def link(
    node: Annotated[str, typer.Argument(help="a switch or a host of a network that is up, such as leaf1")],
    other: Annotated[
        str | None, typer.Argument(help="what is at the far end, such as h1, or a port; left out, all links")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=VALUE,…, such as delay=1ms,loss=1%; the other properties stay"),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="forget all other properties")] = False,
    one_way: Annotated[bool, typer.Option("--one-way", help="only from NODE to OTHER")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="a line of JSON for each direction")] = False,
    run: Run = None,
) -> None:
    """Show what the emulated links of a running switch do and have done, or change it, both ways.

    Properties: rate, delay, jitter, queue_bytes, ecn_bytes, loss, corruption, duplication, reordering,
    displacement, burst=BEGIN/END/LOSS, overhead, seed. They take effect at once.
    """
    with failing("link", NetworkError, status=2):
        given = _given(changes or [], clear)
        network = find_network(node, run)
        ways = list(_ways(network, node, other, one_way))
        if given:
            if other is None:
                raise NetworkError("name the other end of the link that is to change")
            for way in ways:
                place = {"port": way.port, "direction": way.direction}
                network.call(way.switch, "SetLink", place | {"properties": given})
        ports = {switch: network.call(switch, "Links", {}) for switch in {way.switch for way in ways}}
    found = []
    for way in ways:
        [port] = [port for port in ports[way.switch]["ports"] if port["port"] == way.port]
        found.append((way, port.get(way.direction, {"properties": {}})))
    if as_json:
        for way, state in found:
            place = {"from": way.sender, "to": way.receiver, "switch": way.switch, "port": way.port}
            typer.echo(json.dumps(place | {"direction": way.direction} | state))
    else:
        _show(found)


def _given(changes: list[str], clear: bool) -> dict[str, str | None]:
    from topologies.emulation import SWITCH_PROPERTIES

    given: dict[str, str | None] = {}
    if clear:
        given |= dict.fromkeys(SWITCH_PROPERTIES)
    for item in ",".join(changes).split(","):
        name, equals, value = item.partition("=")
        if item and not equals:
            raise NetworkError(f"--set {item}: write NAME=VALUE, for example loss=1%")
        if item:
            given[name] = value
    return given


def _ways(network: RunningNetwork, node: str, other: str | None, one_way: bool) -> Iterator[_OneWay]:
    """Both directions of a link of `node`, or of all its links."""
    ends = {
        (switch, peer): port
        for switch, running in network.switches.items()
        for port, peer in running.neighbours.items()
    }
    if other is not None and other.isdecimal():
        at = network.switches[node].neighbours if node in network.switches else {}
        if int(other) not in at:
            raise NetworkError(f"{node} has no port {other}; there are {', '.join(map(str, at)) or 'none'}")
        other = at[int(other)]
    peers = sorted({b for a, b in ends if a == node} | {a for a, b in ends if b == node})
    if other is not None and other not in peers:
        raise NetworkError(f"{node} has no link to {other}; there are links to {', '.join(peers)}")
    for peer in peers if other is None else [other]:
        for sender, receiver in ((node, peer),) if one_way else ((node, peer), (peer, node)):
            if (sender, receiver) in ends:
                yield _OneWay(sender, receiver, sender, ends[sender, receiver], "egress")
            else:  # from a host: its leaf emulates the link before the program sees the packet
                yield _OneWay(sender, receiver, receiver, ends[receiver, sender], "ingress")


def _show(found: list[tuple[_OneWay, dict[str, Any]]]) -> None:
    from rich.table import Table

    from fanin.console import console

    table = Table(
        "from", "to", "does", "sent", "dropped", "corrupted", "waiting, most", "late by, most", box=None
    )
    for way, state in found:
        does = " ".join(f"{name}={_short(value)}" for name, value in sorted(state["properties"].items()))
        row = [way.sender, way.receiver, does or "nothing"]
        if "sent" in state:
            drops = ", ".join(f"{count:,} {kind}" for kind, count in state["drops"].items() if count)
            late = state["lateness"]
            row += [
                f"{state['sent']:,}",
                drops or "0",
                f"{state['corrupted']:,}",
                f"{state['queue_bytes']:,}, {state['highest_queue_bytes']:,} B",
                f"{late['mean'] * 1e6:.0f}, {late['most'] * 1e6:,.0f} us",
            ]
        table.add_row(*row)
    console.print(table, highlight=False)


def _short(value: Any) -> str:
    if isinstance(value, dict):  # a burst
        return f"{value['begin']:g}/{value['end']:g}/{value['loss']:g}"
    return f"{value:g}"
