"""Ports for who listens on them later: no other process takes them meanwhile."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from itertools import count as numbers

# Below those that the kernel hands out itself (ip_local_port_range), which any connection may be given at any time;
# a range of its own for each process of pytest-xdist.
_EACH = 2_000
_FIRST = 10_000 + _EACH * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 11)
_TURN = numbers()


def free_port(host: str = "127.0.0.1", kind: socket.SocketKind = socket.SOCK_STREAM, count: int = 1) -> int:
    """The first of `count` ports on `host`, one after the other, that nobody has and nobody was told of lately."""
    while True:
        ports = [_FIRST + next(_TURN) % _EACH for _ in range(count)]
        with ExitStack() as stack:
            try:
                for port in range(ports[0], ports[0] + count):
                    stack.enter_context(socket.socket(socket.AF_INET, kind)).bind((host, port))
            except OSError:
                continue
        return ports[0]
