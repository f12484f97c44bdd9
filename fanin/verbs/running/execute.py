"""`fanin exec`: a command on a host of a network that is up."""

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
    node: Annotated[str, typer.Argument(help="a host, or a switch: all switches are in one namespace")],
    command: Annotated[
        list[str] | None,
        typer.Argument(help="such as: ping 10.2.0.1; left out, a shell whose prompt names the host"),
    ] = None,
    supervisor: Network = None,
) -> None:
    """Run a command on a host of a network that is up, or a shell.

    A Python program there takes part in all-reduces by `workers.join()`.
    """
    with failing("exec", NetworkError):
        network = find_network(node, supervisor)
        argv = network.inside(command or _shell(node), node if node in network.hosts else None)
        os.environ |= {HOST: node, SERVICE: str(network.run.folder / JOB_SERVICE)}
    os.execvp(argv[0], argv)


def _shell(node: str) -> list[str]:
    """The user's bash, but for the prompt."""
    reader, writer = os.pipe()
    os.write(writer, f"[ ! -r ~/.bashrc ] || . ~/.bashrc\nPS1='{node}:\\w\\$ '\n".encode())
    os.close(writer)
    os.set_inheritable(reader, True)
    return ["bash", "--rcfile", f"/dev/fd/{reader}"]
