"""`fanin trace`: what happens to each packet inside the switch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from fanin.failing import complain, failing, failure
from fanin.options import Run
from topologies.errors import NetworkError
from topologies.running import find_network


def trace(
    program: Annotated[
        Path | None,
        typer.Argument(exists=True, dir_okay=False, help="BMv2 JSON, or P4_16 source to be compiled"),
    ] = None,
    packet: Annotated[
        list[str] | None, typer.Option(help="a packet in hexadecimal; again for the next one")
    ] = None,
    pcap: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="a capture whose packets are sent")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=511, help="where the packets come in")] = 1,
    entries: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="table entries and multicast groups, as fanin diff reads them"
        ),
    ] = None,
    include: Annotated[list[Path] | None, typer.Option("-I", help="another folder for #include")] = None,
    on: Annotated[
        str | None, typer.Option(help="a switch of a network that is up, such as leaf1, and its packets")
    ] = None,
    run: Run = None,
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

    Either of a program and packets of yours, between which the switch keeps its state; or of a running switch (--on),
    until Ctrl-C.
    """
    if (program is None) == (on is None):
        raise _refused("give a program, or --on a running switch")
    if on is not None:
        if packet or pcap or entries:
            raise _refused("with --on the packets and entries are the running switch's own")
        lines = _of_switch(on, run, conditions, as_json=as_json, verbose=verbose)
    else:
        assert program is not None
        lines = _of_program(
            program, packet or [], pcap, port, entries, include or [], conditions, as_json, verbose
        )
    with suppress(KeyboardInterrupt), closing(lines):
        for line in islice(lines, count):
            typer.echo(line)


_refused = partial(failure, "trace", status=2)


def _of_program(
    program: Path,
    packets: list[str],
    pcap: Path | None,
    port: int,
    entries: Path | None,
    include: list[Path],
    conditions: str,
    as_json: bool,
    verbose: bool,
) -> Generator[str, None, None]:
    from experiments.differential.entries import Entries, read_entries
    from experiments.differential.packets import read_packets
    from experiments.tracing import trace as traces
    from native.toolchain import ToolchainError
    from p4compiler import CompileError, compile_file
    from p4switch.bmv2json.program import ProgramError
    from p4switch.trace import as_text

    if not packets and pcap is None:
        raise _refused("give packets: --packet HEX, or --pcap FILE")
    try:
        sent = [(port, bytes.fromhex(text)) for text in packets]
    except ValueError as error:
        raise _refused(f"--packet takes hexadecimal digits: {error}") from None
    with failing("trace", CompileError, ProgramError, ToolchainError, ValueError, status=2):
        if pcap is not None:
            sent += read_packets(pcap, port)
        if program.suffix == ".p4":
            config = compile_file(program, include_dirs=tuple(include)).json_text().encode()
        else:
            config = program.read_bytes()
        for found in traces(config, read_entries(entries) if entries else Entries(), sent, conditions):
            yield json.dumps(found.document()) if as_json else as_text(found, verbose=verbose)


def _of_switch(
    switch: str, run: int | None, conditions: str, *, as_json: bool, verbose: bool
) -> Generator[str, None, None]:
    request = {"filter": conditions, "json": as_json, "verbose": verbose}
    with failing("trace", NetworkError, status=2):
        command = find_network(switch, run).management(switch, "Trace", request)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stderr is not None
        try:
            for line in client.stdout:
                message = json.loads(line)
                if "lost" in message:
                    complain("trace", f"{message['lost']} more packets were not traced: the buffer was full")
                else:
                    yield message["trace"]
            if said := client.stderr.read().strip():
                raise _refused(said.removeprefix("p4switch.management: "))
        finally:
            client.terminate()
