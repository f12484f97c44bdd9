"""Commands `simple_switch` and `simple_switch_grpc`: our switch with BMv2's command line and defaults."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Literal

from fanin.bmv2_commands.port_rates import link_options
from fanin.native import libc
from fanin.p4switch.__main__ import main as run_switch

Command = Literal["simple_switch", "simple_switch_grpc"]

_THRIFT_PORT = 9090


def main(command: Command, argv: Sequence[str] | None = None) -> int:
    """Run the switch until SIGTERM or SIGINT.

    Args:
        command: The command, which `ps` and `pkill` then show as the name of the process.
        argv: The arguments; None uses the process's own.

    Returns:
        The exit status, as for `python -m fanin.p4switch`.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    with suppress(OSError):  # where the system does not allow it
        libc.set_process_name(command)
    libc.set_command_line([command, *arguments])
    return run_switch([*link_options(_ports(arguments)), *switch_arguments(command, arguments)], command)


def _ports(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the values of -i and --interface."""
    for option, value in pairwise((*arguments, "")):
        name, _, joined = option.partition("=")
        if option in ("-i", "--interface"):
            yield value
        elif name == "--interface":
            yield joined
        elif option.startswith("-i") and not option.startswith("--"):
            yield option[2:]


def switch_arguments(command: Command, arguments: Sequence[str]) -> list[str]:
    """Return the arguments for `python -m fanin.p4switch` that mean what these mean to BMv2."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    general, target = list(arguments[:at]), list(arguments[at:])
    for index, argument in enumerate(general):
        # BMv2 appends the suffix.
        if argument == "--log-file" and index + 1 < len(general):
            general[index + 1] += ".txt"
        elif argument.startswith("--log-file="):
            general[index] += ".txt"
    if not any(argument.partition("=")[0] in ("-L", "--log-level") for argument in general):
        general += ["--log-level", "trace"]
    has_port = any(argument.partition("=")[0] == "--thrift-port" for argument in general)
    # BMv2 ends if the port is taken. Several simple_switch_grpc without a Thrift client should just run.
    if not has_port and (command == "simple_switch" or _is_free(_THRIFT_PORT)):
        general += ["--thrift-port", str(_THRIFT_PORT)]
    if command == "simple_switch":
        general.append("--no-grpc")
    else:
        general.append("--no-empty-config")  # p4-utils sets the program if it cannot read one
    return general + target


def _is_free(port: int) -> bool:
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
