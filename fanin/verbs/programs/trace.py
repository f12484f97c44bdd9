"""`fanin trace`: what happens to each packet inside the switch."""

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
from fanin.options import Network
from fanin.output import say
from fanin.programs import Define, Include, device_config
from fanin.testbed.running import find_network
from fanin.topologies.errors import NetworkError

if TYPE_CHECKING:
    from fanin.controller.entry_files import Entries


def trace(
    program: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, help="BMv2 JSON, or P4_16 source to be compiled"),
    ] = None,
    packet: Annotated[
        list[str] | None, typer.Option(help="a packet in hexadecimal; again for the next one")
    ] = None,
    capture: Annotated[
        Path | None,
        typer.Option(
            "--read", "-r", exists=True, dir_okay=False, help="a capture whose packets are sent (pcap)"
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=511, help="where the packets come in")] = 1,
    entries: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="table entries and multicast groups, as fanin diff reads them"
        ),
    ] = None,
    include: Include = None,
    define: Define = None,
    on: Annotated[
        str | None, typer.Option(help="a switch of a network that is up, such as leaf1, and its packets")
    ] = None,
    supervisor: Network = None,
    conditions: Annotated[
        str,
        typer.Option("--filter", help="only packets that match all: port=1,ipv4.source=10.1.0.0/16"),
    ] = "",
    count: Annotated[int | None, typer.Option(min=1, help="stop after this many packets")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="a line of JSON for each packet")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="also assignments, and the headers that leave")
    ] = False,
) -> None:
    """Print for each packet the parser's path, look-ups, branches, registers, and where it went or why it was dropped.

    Of a program and packets of yours, between which the switch keeps its state; of the packets of a running switch
    (--on), until Ctrl-C; or, with --on and packets of yours, of what its program and entries would do with them: these
    are not sent, and begin with empty registers and counters (fanin packet sends one).
    """
    if (program is None) == (on is None):
        raise _refused("give a program, or --on a running switch")
    packets = packet or []
    if on is not None and entries is not None:
        raise _refused("with --on the entries are the running switch's own")
    if on is not None and not packets and capture is None:
        lines = _of_switch(on, supervisor, conditions, as_json=as_json, verbose=verbose)
    elif not packets and capture is None:
        raise _refused("give packets: --packet HEX, or --read CAPTURE")
    else:
        source = (
            _File(program, include, define, entries) if program is not None else _Switch(on or "", supervisor)
        )
        lines = _of_packets(source, packets, capture, port, conditions, as_json=as_json, verbose=verbose)
    with ending(), closing(lines):
        for line in islice(lines, count):
            say(line)


_refused = partial(failure, "trace", status=2)


@dataclass(frozen=True, slots=True)
class _File:
    """A program in a file, and what its tables are to hold."""

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
    """The program of a running switch, and what its tables hold."""

    name: str
    supervisor: int | None

    def read(self) -> tuple[bytes, Entries]:
        from fanin.controller.entry_files import observed

        network = find_network(self.name, self.supervisor)
        [program] = network.observe(self.name, "program")
        return json.dumps(program).encode(), observed(network.observe(self.name, "tables"))


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
    from fanin.p4switch.trace import as_text
    from fanin.packets import packet_from_hex

    with (
        failing("trace", NetworkError, CompileError, ProgramError, ToolchainError),
        failing("trace", ValueError, status=2),  # of packets, entries and conditions
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
        command = find_network(switch, supervisor).management(switch, "Trace", request)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        try:
            for line in client.stdout:
                message = json.loads(line)
                if "ready" in message:
                    complain("trace", f"{switch} is traced from now on; Ctrl-C ends it")
                elif "lost" in message:
                    complain("trace", f"{message['lost']} more packets were not traced: the buffer was full")
                else:
                    yield message["trace"]
            if said := client.stderr.read().strip():
                raise _refused(said.removeprefix("fanin.p4switch.management: "))
        finally:
            client.terminate()
