"""Command `simple_switch_CLI`: what BMv2's command line tool does, over the same interface (Thrift)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TMultiplexedProtocol import TMultiplexedProtocol
from thrift.Thrift import TApplicationException
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException

from fanin.bmv2_commands.runtime_cli import cells, replication, switch, tables  # noqa: F401 - register commands
from fanin.bmv2_commands.runtime_cli.prompt import RuntimeCli
from fanin.bmv2_commands.runtime_cli.words import CliError
from fanin.native.text import printable
from fanin.p4switch.bmv2_runtime import interface as bm
from fanin.p4switch.bmv2_runtime.types import Client, Service


def main(argv: Sequence[str] | None = None) -> int:
    """Read commands from the standard input, or at a prompt, until its end.

    Args:
        argv: The arguments; None uses the process's own.

    Returns:
        The exit status: 0, or 1 if there is no switch.
    """
    parser = argparse.ArgumentParser(
        prog="simple_switch_CLI", description="Read and write the tables of a running switch."
    )
    parser.add_argument("--thrift-port", type=int, default=9090, metavar="PORT", help="default 9090")
    parser.add_argument("--thrift-ip", default="localhost", metavar="HOST", help="default localhost")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the program; by default the switch's")
    parser.add_argument(
        "--pre", choices=("None", "SimplePre", "SimplePreLAG"), default="SimplePreLAG", help="accepted"
    )
    arguments = parser.parse_args(argv)
    try:
        with connected(arguments.thrift_ip, arguments.thrift_port) as cli:
            cli.load(arguments.json.read_text() if arguments.json else cli.standard.bm_get_config())
            cli.run()
    except CliError as error:
        print(error, file=sys.stderr)
        return 1
    except (TTransportException, TApplicationException, OSError) as error:
        print(f"simple_switch_CLI: {printable(str(error))}", file=sys.stderr)
        return 1
    return 0


@contextmanager
def connected(host: str, port: int) -> Iterator[RuntimeCli]:
    """Connect to a switch.

    Raises:
        CliError: If there is none.
    """
    transport = TBufferedTransport(TSocket(host, port))
    try:
        transport.open()
    except TTransportException:
        raise CliError(
            f"Could not connect to a switch at {host}:{port}: start it with "
            f"--thrift-port {port}, or give its port here with --thrift-port"
        ) from None
    protocol = TBinaryProtocol(transport)

    def client(service: Service) -> Client:
        kind: type[Client] = type("Client", (Client,), {"service": service})
        return kind(TMultiplexedProtocol(protocol, service.name))

    try:
        yield RuntimeCli(client(bm.STANDARD), client(bm.SIMPLE_PRE_LAG), client(bm.SIMPLE_SWITCH))
    finally:
        transport.close()
