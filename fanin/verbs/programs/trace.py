"""`fanin trace`: the path of each packet inside a switch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import complain, ending, failing, failure
from fanin.native.text import counted
from fanin.options import Network
from fanin.output import say
from fanin.programs import Define, Include, device_config
from fanin.testbed.running import find_switch
from fanin.topologies.errors import NetworkError

if TYPE_CHECKING:
    from fanin.controller.entry_files import Entries


def trace(
    program: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, help="BMv2 JSON, or P4_16 source to compile"),
    ] = None,
    packet: Annotated[list[str] | None, typer.Option(help="Packet in hexadecimal; may be repeated")] = None,
    capture: Annotated[
        Path | None,
        typer.Option("--read", "-r", exists=True, dir_okay=False, help="Packet capture to send (pcap)"),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=511, help="Port on which the packets arrive")] = 1,
    entries: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Table entries and multicast groups (docs/reference/entries.md)"
        ),
    ] = None,
    include: Include = None,
    define: Define = None,
    on: Annotated[
        str | None,
        typer.Option(
            help="Running switch to trace, such as leaf1; or one started by hand: its process id (see fanin ps), or "
            "HOST:PORT of its P4Runtime server"
        ),
    ] = None,
    supervisor: Network = None,
    conditions: Annotated[
        str,
        typer.Option(
            "--filter", help="Only packets that match all of these, such as port=1,ipv4.source=10.1.0.0/16"
        ),
    ] = "",
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many packets")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each packet")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also print assignments and the headers of outgoing packets"),
    ] = False,
) -> None:
    """Trace packets through the parser, tables and actions.

    For each packet you see the parser's path, table lookups, branches, register accesses, and where it went or why it
    was dropped. There are three ways to use it:

    - With a program and packets, the packets go through one switch in turn.

    - With --on, you see the packets of a running switch until Ctrl-C. It belongs to a network that you have started in
    another terminal, for instance with fanin up, or you have started it by hand; fanin ps lists both.

    - With --on and packets, the packets go through a copy of the running switch with its program and entries, but with
    empty registers and counters. Nothing is sent; to send a packet, use fanin packet.

    Examples:
        fanin trace PROGRAM.p4 --read CAPTURE.pcap
        fanin trace --on leaf1 --count 3
    """
    if (program is None) == (on is None):
        raise _refused("give either a program or --on with a running switch")
    packets = packet or []
    if on is not None and entries is not None:
        raise _refused("--on uses the entries of the running switch: leave --entries out")
    if on is not None and not packets and capture is None:
        lines = _of_switch(on, supervisor, conditions, as_json=as_json, verbose=verbose)
    elif not packets and capture is None:
        raise _refused("give packets with --packet HEX or --read CAPTURE")
    else:
        source = (
            _File(program, include, define, entries) if program is not None else _Switch(on or "", supervisor)
        )
        lines = _of_packets(source, packets, capture, port, conditions, as_json=as_json, verbose=verbose)
    nothing = True
    with ending(), closing(lines):
        for line in islice(lines, count):
            nothing = False
            say(line)
        if nothing:  # the traces of a running switch end only with Ctrl-C
            why = f"no packet meets --filter {conditions}" if conditions else f"{capture} has no packets"
            raise failure("trace", why)


_refused = partial(failure, "trace", status=2)


@dataclass(frozen=True, slots=True)
class _File:
    """A program in a file, and the entries of its tables."""

    program: Path
    include: Include
    define: Define
    entries: Path | None

    def read(self) -> tuple[bytes, Entries]:
        from fanin.controller.entry_files import Entries, read_entries

        config = device_config(self.program, self.include, self.define)
        return config, read_entries(self.entries) if self.entries else Entries()


@dataclass(frozen=True, slots=True)
class _Switch:
    """The program of a running switch, and the entries of its tables."""

    name: str
    supervisor: int | None

    def read(self) -> tuple[bytes, Entries]:
        from fanin.controller.entry_files import observed

        client = find_switch(self.name, self.supervisor)
        [program] = client.observe("program")
        return json.dumps(program).encode(), observed(client.observe("tables"))


def _of_packets(
    source: _File | _Switch,
    packets: list[str],
    capture: Path | None,
    port: int,
    conditions: str,
    *,
    as_json: bool,
    verbose: bool,
) -> Generator[str, None, None]:
    from fanin.assurance.differential.packets import read_packets
    from fanin.experiments.tracing import trace as traces
    from fanin.native.toolchain import ToolchainError
    from fanin.p4compiler import CompileError
    from fanin.p4switch.bmv2json.program import ProgramError
    from fanin.p4switch.trace.text import as_text
    from fanin.packets import packet_from_hex

    with (
        failing("trace", NetworkError, CompileError, ProgramError, ToolchainError),
        failing("trace", ValueError, status=2),  # wrong packets, entries or conditions
    ):
        sent = [(port, packet_from_hex(text)) for text in packets]
        if capture is not None:
            sent += read_packets(capture, port)
        for found in traces(*source.read(), sent, conditions):
            yield json.dumps(found.document()) if as_json else as_text(found, verbose=verbose)


def _of_switch(
    switch: str, supervisor: int | None, conditions: str, *, as_json: bool, verbose: bool
) -> Generator[str, None, None]:
    request = {"filter": conditions, "json": as_json, "verbose": verbose}
    with failing("trace", NetworkError):
        command = find_switch(switch, supervisor).management("Trace", request)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        try:
            for line in client.stdout:
                message = json.loads(line)
                if "ready" in message:
                    complain("trace", f"tracing {switch}; press Ctrl-C to stop")
                elif "lost" in message:
                    complain(
                        "trace",
                        f"{counted(message['lost'], 'packet was', 'packets were')} not traced: the buffer was full",
                    )
                else:
                    yield message["trace"]
            if said := client.stderr.read().strip():
                raise _refused(said.removeprefix("fanin.p4switch.management: "))
        finally:
            client.terminate()
