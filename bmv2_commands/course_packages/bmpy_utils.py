"""BMv2's module of this name, for clients of its Thrift interface: connections, and the program's JSON."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn, TextIO

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TMultiplexedProtocol import TMultiplexedProtocol
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TBufferedTransport, TTransportException


def thrift_connect(
    thrift_ip: str,
    thrift_port: int | str,
    services: Iterable[tuple[str, Callable[[Any], Any] | None]],
    out: TextIO = sys.stdout,
) -> list[Any]:
    """Connect to a switch.

    Args:
        thrift_ip: The switch's address.
        thrift_port: The port of its Thrift server.
        services: The name of each service, and the class of its clients. None gives None instead of a client.
        out: Where to say why there is no connection. Then the process exits with status 1.

    Returns:
        A client for each service. They share one connection.
    """
    transport = TBufferedTransport(TSocket(thrift_ip, int(thrift_port)))
    try:
        transport.open()
    except TTransportException:
        _fail(f"Could not connect to thrift client on port {thrift_port}", out)
    protocol = TBinaryProtocol(transport)
    return [client and client(TMultiplexedProtocol(protocol, name)) for name, client in services]


def thrift_connect_standard(thrift_ip: str, thrift_port: int | str, out: TextIO = sys.stdout) -> Any:
    """Connect to a switch, and return a client of its service `standard`, as `thrift_connect` does."""
    # Where courses import this module, fanin is not there to be imported from, but this package is.
    from bm_runtime.standard import Standard  # type: ignore[import-not-found]

    return thrift_connect(thrift_ip, thrift_port, [("standard", Standard.Client)], out)[0]


def check_JSON_md5(client: Any, json_src: str, out: TextIO = sys.stdout) -> None:  # noqa: N802 # BMv2's name
    """Exit with status 1 unless the switch runs the program of a file.

    Args:
        client: A client of the service `standard`.
        json_src: The file with the program's JSON.
        out: Where to say what differs.
    """
    ours = hashlib.md5(Path(json_src).read_bytes()).digest()  # the interface's checksum
    if client.bm_get_config_md5() != ours:
        _fail(
            f"{json_src} is not the program that the switch runs: leave the file out to use the switch's", out
        )


def get_json_config(
    standard_client: Any = None, json_path: str | None = None, out: TextIO = sys.stdout
) -> str:
    """Return the program's JSON: the switch's own, or that of a file, which must be the same if both are given."""
    if json_path is None:
        return str(standard_client.bm_get_config())
    if standard_client is not None:
        check_JSON_md5(standard_client, json_path, out)
    return Path(json_path).read_text()


def _fail(why: str, out: TextIO) -> NoReturn:
    print(why, file=out)
    sys.exit(1)
