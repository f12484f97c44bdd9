"""`fanin ps`: the running networks and their processes, and switches that were started by hand."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from fanin.output import say
from fanin.testbed.own_switches import OwnSwitch, own_switches
from fanin.testbed.running import RunningNetwork, running_networks
from fanin.testbed.runs import command_line


def ps(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each network and each other switch")
    ] = False,
) -> None:
    """List running networks, and switches started by hand.

    Of a network, you see the switches, the hosts, and the processes on them. Where a command takes the name of a
    switch, it also takes the process id of one that was started by hand: as simple_switch_grpc, by the scripts of a
    course, or as python -m fanin.p4switch.

    Examples:
        fanin ps
        fanin ps --json
    """
    from fanin.table import print_records

    networks, switches = running_networks(), own_switches()
    if as_json:
        print_records([*map(_document, networks), *map(asdict, switches)])
        return
    for network in networks:
        _show(network)
    if switches:
        _show_own(switches)
    if not networks and not switches:
        say("No network is running; start one in another terminal: fanin up")


def _document(network: RunningNetwork) -> dict[str, object]:
    processes = network.processes()
    return {
        "process": network.run.supervisor,
        "seconds": round(network.run.age, 2),
        "command": command_line(network.run.supervisor),
        "switches": {name: asdict(switch) for name, switch in network.switches.items()},
        "hosts": {
            name: {"ip": host.ip, "processes": [asdict(process) for process in processes[name]]}
            for name, host in network.hosts.items()
        },
    }


def _show(network: RunningNetwork) -> None:
    from fanin.table import new_table, print_table

    process, age = network.run.supervisor, timedelta(seconds=int(network.run.age))
    say(f"process {process}, up for {age}: {_text(command_line(process))}")
    switches = new_table(["switch", "P4Runtime", "neighbours by port"], "device id")
    for name, switch in network.switches.items():
        neighbours = ", ".join(f"{port}: {peer}" for port, peer in sorted(switch.neighbours.items()))
        switches.add_row(name, f"127.0.0.1:{switch.grpc_port}", neighbours, str(switch.device_id))
    hosts = new_table(["host", "address", "processes"])
    running = network.processes()
    for name, host in network.hosts.items():
        listed = "\n".join(f"{found.process} {_text(found.command)}" for found in running[name])
        hosts.add_row(name, host.ip, listed)
    for table in (switches, hosts):
        print_table(table)
        say("")


def _show_own(switches: list[OwnSwitch]) -> None:
    from fanin.table import new_table, print_table

    say("switches started by hand")
    table = new_table(["process", "program", "P4Runtime", "Thrift", "interfaces by port"], "device id")
    for switch in switches:
        program = "BMv2" if switch.engine == "bmv2" else "fanin"
        thrift = "" if switch.thrift_port is None else f"127.0.0.1:{switch.thrift_port}"
        ports = ", ".join(f"{port}: {interface}" for port, interface in sorted(switch.ports.items()))
        row = str(switch.process), program, switch.address or "", thrift, ports, str(switch.device_id)
        table.add_row(*row)
    print_table(table)
    say("")


def _text(command: tuple[str, ...]) -> str:
    """Return a command line as one line of text."""
    return shlex.join(command).replace("\n", "; ").strip()
