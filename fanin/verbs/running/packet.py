"""`fanin packet`: one packet through a running switch, and its trace."""

from __future__ import annotations

from typing import Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.options import Network, SwitchName
from fanin.output import say
from fanin.testbed.running import RunningHost, find_network
from fanin.topologies.errors import NetworkError

_MAC = "02:00:00:00:00:00"


def packet(
    switch: SwitchName,
    port: Annotated[int, typer.Option(help="where it comes in, as if its neighbour there had sent it")] = 1,
    digits: Annotated[
        str | None, typer.Option("--hex", help="the packet in hexadecimal, from the Ethernet header on")
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="the packet as scapy writes it: Ether()/IP(dst='10.1.0.2')/UDP(dport=5005)/'hello'; the source is "
            "the host at the port unless given"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="a line of JSON")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="also assignments, and the headers that leave")
    ] = False,
    supervisor: Network = None,
) -> None:
    """Send one packet through a running switch, and print its trace as fanin trace does.

    What comes out of the switch goes on its way. An emulated link at the port neither delays nor loses it.
    """
    if (digits is None) == (layers is None):
        raise failure("packet", "give the packet, either by --hex or by --layers", status=2)
    with failing("packet", NetworkError):
        network = find_network(switch, supervisor)
        neighbours = network.switch(switch).neighbours
        if port not in neighbours:
            ports = ", ".join(map(str, sorted(neighbours)))
            raise NetworkError(f"{switch} has no port {port}; there are {ports}")
        data = _bytes(digits, layers, network.hosts.get(neighbours[port]))
        request = {"port": port, "packet": data.hex(), "json": as_json, "verbose": verbose}
        say(network.call(switch, "Inject", request)["trace"])


def _bytes(digits: str | None, layers: str | None, sender: RunningHost | None) -> bytes:
    from fanin.packets import PacketError, packet_from_hex, packet_from_layers

    # Without these scapy looks for addresses in this machine's own routes, and asks for them by ARP.
    address = sender.ip if sender else "0.0.0.0"
    defaults = {
        "Ether": {"src": _MAC, "dst": _MAC},
        "IP": {"src": address},
        "ARP": {"hwsrc": _MAC, "psrc": address},
    }
    with failing("packet", PacketError, status=2):
        return packet_from_hex(digits) if digits is not None else packet_from_layers(layers or "", defaults)
