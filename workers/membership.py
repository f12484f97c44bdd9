"""How a worker on a network that is up joins a job: from the job service it gets its rank, its lease and its place.

A script that `fanin exec` runs on a host says `workers.join()` and has the host's part in an all-reduce.
"""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workers.collective import CollectiveError
from workers.lease import Lease
from workers.recovery import Recovery
from workers.udp import InNetworkAllReduce, InNetworkConfig

HOST = "FANIN_HOST"  # in the environment of what runs on a host: its name
SERVICE = "FANIN_JOB_SERVICE"  # and where the network's job service is


class JoinError(CollectiveError):
    """There is no job to be part of; the text says why."""


class Member(InNetworkAllReduce):
    """One worker's part in a job, whose lease ends with its last member's."""

    def __init__(self, config: InNetworkConfig, membership: socket.socket) -> None:
        super().__init__(config)
        self._membership = membership

    @property
    def rank(self) -> int:
        """This worker's number, from 0 on."""
        return self.config.lease.rank

    @property
    def workers(self) -> int:
        """How many the job has."""
        return self.config.lease.workers

    def close(self) -> None:
        """Release the port, and leave the job."""
        super().close()
        self._membership.close()


def join(
    hosts: Sequence[str] | int | None = None, *, timeout: float | None = None, **settings: Any
) -> Member:
    """This host's part in a job of `hosts` (names, or how many; None: all of the network), once all have joined.

    timeout: seconds to wait for the others; None: for ever. settings: fields of InNetworkConfig, in place of those that
    suit the network.

    Raises:
        JoinError: no network, a place that is taken, or others that did not come.
    """
    membership = _connect()
    try:
        membership.settimeout(timeout)
        asked = hosts if hosts is None or isinstance(hosts, int) else list(hosts)
        request = {"host": os.environ[HOST], "process": os.getpid(), "hosts": asked}
        membership.sendall(json.dumps(request).encode() + b"\n")
        return Member(_config(_assignment(membership, timeout), settings), membership)
    except BaseException:
        membership.close()
        raise


def _connect() -> socket.socket:
    if HOST not in os.environ or SERVICE not in os.environ:
        raise JoinError(
            f"{HOST} and {SERVICE} are not set: this is not a host of a network. Start one with `fanin up`, and this "
            "program with `fanin exec h1 …`"
        )
    path = Path(os.environ[SERVICE])
    membership = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            membership.connect(f"/proc/self/fd/{folder}/{path.name}")  # the path itself may be too long
        finally:
            os.close(folder)
    except OSError as error:
        membership.close()
        raise JoinError(
            f"no job service answers at {path} ({error.strerror}): only a network of `fanin up` has one"
        ) from None
    return membership


def _assignment(membership: socket.socket, timeout: float | None) -> Mapping[str, Any]:
    """What the service says in the end."""
    missing: list[str] = []
    with membership.makefile("rb") as lines:
        while True:
            try:
                line = lines.readline()
            except TimeoutError:
                raise JoinError(f"no worker has joined on {', '.join(missing)} for {timeout:g} s") from None
            if not line:
                raise JoinError("the network has ended")
            match json.loads(line):
                case {"waiting_for": list(missing)}:
                    pass
                case {"error": str(why)}:
                    raise JoinError(why)
                case dict(assignment):
                    return assignment


def _config(assignment: Mapping[str, Any], settings: Mapping[str, Any]) -> InNetworkConfig:
    given = {
        **assignment,
        "lease": Lease(**assignment["lease"]),
        "local": tuple(assignment["local"]),
        "remote": tuple(assignment["remote"]),
        "recovery": Recovery(**assignment["recovery"]),
    }
    return InNetworkConfig(**{**given, **settings})
