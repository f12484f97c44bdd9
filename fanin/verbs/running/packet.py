"""`fanin packet`: one packet through a running switch, with its trace."""

from __future__ import annotations

from typing import Annotated

import typer

from fanin.cli_errors import failing, failure
from fanin.options import Network, SwitchName
from fanin.output import say
from fanin.testbed.running import find_switch
from fanin.topologies.errors import NetworkError

_MAC = "02:00:00:00:00:00"


def packet(
    switch: SwitchName,
    port: Annotated[
        int, typer.Option(help="Port on which the packet arrives, as if the neighbour there had sent it")
    ] = 1,
    digits: Annotated[
        str | None, typer.Option("--hex", help="Packet in hexadecimal, beginning with the Ethernet header")
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(
            help="Packet in scapy's notation, such as Ether()/IP(dst='10.1.0.2')/UDP(dport=5005)/'hello'; the host at "
            "the port is the source by default"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also print assignments and the headers of outgoing packets"),
    ] = False,
    supervisor: Network = None,
) -> None:
    """Send one packet through a running switch and trace it.

    The switch forwards the packet as any other. The emulated link of the port on which it arrives neither delays nor
    drops it.

    Examples:
        fanin packet leaf1 --layers "Ether()/IP(dst='10.1.0.2')/UDP(dport=5005)"
        fanin packet leaf1 --port 2 --layers "Ether()/IP(dst='10.1.0.1')/ICMP()"
    """
    if (digits is None) == (layers is None):
        raise failure("packet", "give the packet, with either --hex or --layers", status=2)
    with failing("packet", NetworkError):
        client = find_switch(switch, supervisor)
        data = _bytes(digits, layers, client.addresses.get(port, "0.0.0.0"))
        request = {"port": port, "packet": data.hex(), "json": as_json, "verbose": verbose}
        say(client.call("Inject", request)["trace"])


def _bytes(digits: str | None, layers: str | None, address: str) -> bytes:
    from fanin.packets import PacketError, packet_from_hex, packet_from_layers

    # Without these, scapy looks addresses up in this machine's routes and with ARP.
    defaults = {
        "Ether": {"src": _MAC, "dst": _MAC},
        "IP": {"src": address},
        "ARP": {"hwsrc": _MAC, "psrc": address},
    }
    with failing("packet", PacketError, status=2):
        return packet_from_hex(digits) if digits is not None else packet_from_layers(layers or "", defaults)
