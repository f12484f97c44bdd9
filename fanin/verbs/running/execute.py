"""`fanin exec`: a command on a host of a running network."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from fanin.cli_errors import failing
from fanin.options import Network
from fanin.testbed.running import JOB_SERVICE, find_network
from fanin.topologies.errors import NetworkError
from fanin.workers.job.environment import HOST, SERVICE


def execute(
    node: Annotated[str, typer.Argument(help="Host, or a switch; all switches share one namespace")],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="Command and its arguments; without it, a shell"),
    ] = None,
    supervisor: Network = None,
) -> None:
    """Run a command or a shell on a host of a running network.

    A Python program on a host joins all-reduces with fanin.workers.join(). Write -- before a command that has options
    which fanin exec has as well.

    Examples:
        fanin exec h1 ip address
        fanin exec leaf1 -- ip link show
    """
    with failing("exec", NetworkError):
        network = find_network(node, supervisor)
        argv = network.inside(command or _shell(node), node if node in network.hosts else None)
        os.environ |= {HOST: node, SERVICE: str(network.run.folder / JOB_SERVICE)}
    os.execvp(argv[0], argv)


def _shell(node: str) -> list[str]:
    """Return a command that starts the user's bash with the node in its prompt."""
    reader, writer = os.pipe()
    os.write(writer, f"[ ! -r ~/.bashrc ] || . ~/.bashrc\nPS1='{node}:\\w\\$ '\n".encode())
    os.close(writer)
    os.set_inheritable(reader, True)
    return ["bash", "--rcfile", f"/dev/fd/{reader}"]
