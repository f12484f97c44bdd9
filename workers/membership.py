"""How a worker on a network that is up joins a job: from the job service it gets its rank, its lease and its place.

A script that `fanin exec` runs on a host says `workers.join()` and has the host's part in an all-reduce.
"""

import json
import os
import select
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from workers.collective import CollectiveError
from workers.lease import Lease
from workers.recovery import Recovery
from workers.udp import InNetworkAllReduce, InNetworkConfig

HOST = "FANIN_HOST"  # in the environment of what runs on a host: its name
SERVICE = "FANIN_JOB_SERVICE"  # and where the network's job service is

_LEFT_SECONDS = (
    1.0  # that what a worker sent before it ended may be on the way, and sent again, without anything new
)


class JoinError(CollectiveError):
    """There is no job to be part of; the text says why."""


class LeftError(CollectiveError):
    """A worker of the job has ended, and the others wait for it in vain."""


class _Service:
    """The connection to the job service: a line of JSON for each message. As long as it is open, one is a member."""

    def __init__(self) -> None:
        if HOST not in os.environ or SERVICE not in os.environ:
            raise JoinError(
                f"{HOST} and {SERVICE} are not set: this is not a host of a network. Start this program with "
                "`fanin launch`; or start a network with `fanin up`, and this program with `fanin exec h1 …`"
            )
        path = Path(os.environ[SERVICE])
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._heard = b""
        try:
            folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
            try:
                self._socket.connect(f"/proc/self/fd/{folder}/{path.name}")  # the path itself may be too long
            finally:
                os.close(folder)
        except OSError as error:
            self._socket.close()
            raise JoinError(
                f"no job service answers at {path} ({error.strerror}): only a network of `fanin up` has one"
            ) from None

    def say(self, message: Mapping[str, Any]) -> None:
        """Send a message."""
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, timeout: float | None) -> Any:
        """The next message.

        Raises:
            TimeoutError: none within `timeout` seconds. JoinError: the service has ended.
        """
        while b"\n" not in self._heard:
            if not select.select([self._socket], [], [], timeout)[0]:
                raise TimeoutError
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                raise JoinError("the network has ended")
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def close(self) -> None:
        """Leave."""
        self._socket.close()


class Member(InNetworkAllReduce):
    """One worker's part in a job, whose lease ends with its last member's.

    addresses: (IPv4 address, TCP port) where each rank may listen for the others, by rank.
    """

    def __init__(
        self, config: InNetworkConfig, addresses: Sequence[tuple[str, int]], service: _Service
    ) -> None:
        super().__init__(config)
        self.addresses = tuple(addresses)
        self._service = service
        self._left: list[str] = []
        self._left_at = 0.0

    @property
    def rank(self) -> int:
        """This worker's number, from 0 on."""
        return self.config.lease.rank

    @property
    def workers(self) -> int:
        """How many the job has."""
        return self.config.lease.workers

    def left(self, timeout: float = 0.0) -> list[str]:
        """Which other workers of the job have ended, as far as is known after waiting `timeout` seconds for news.

        Raises:
            JoinError: the network has ended.
        """
        with suppress(TimeoutError):
            while True:
                match self._service.hear(0.0 if self._left else timeout):
                    case {"left": {"rank": rank, "host": host, "process": process}}:
                        self._left.append(f"rank {rank} (process {process} on {host})")
                        self._left_at = time.monotonic()
        return self._left

    def _send(self) -> None:
        """Without those who have ended there are no new sums; of what they had sent before, there may be."""
        super()._send()
        if not self.left():
            return
        now = time.monotonic()
        waiting = self.worker.outstanding(now)
        if waiting and min(now - self._left_at, waiting.silent) >= _LEFT_SECONDS:
            raise LeftError(f"{' and '.join(self._left)} ended while others wait: {waiting}")

    def close(self) -> None:
        """Release the port, and leave the job."""
        super().close()
        self._service.close()


def join(
    hosts: Sequence[str] | int | None = None,
    *,
    timeout: float | None = None,
    give_up: float | None = None,
    **settings: Any,
) -> Member:
    """This host's part in a job of `hosts` (names, or how many; None: all of the network), once all have joined.

    timeout: seconds to wait for the others; None: for ever. give_up: seconds without anything new after which an
    all-reduce fails; settings: fields of InNetworkConfig; both in place of those that suit the network.

    Raises:
        JoinError: no network, a place that is taken, or others that did not come.
    """
    service = _Service()
    try:
        asked = hosts if hosts is None or isinstance(hosts, int) else list(hosts)
        service.say({"host": os.environ[HOST], "process": os.getpid(), "hosts": asked})
        assignment = _assignment(service, timeout)
        addresses = [(str(address), int(port)) for address, port in assignment.pop("addresses")]
        if give_up is not None:
            assignment["recovery"]["give_up"] = give_up
        return Member(_config(assignment, settings), addresses, service)
    except BaseException:
        service.close()
        raise


def _assignment(service: _Service, timeout: float | None) -> dict[str, Any]:
    """What the service says in the end."""
    missing: list[str] = []
    while True:
        try:
            said = service.hear(timeout)
        except TimeoutError:
            raise JoinError(f"no worker has joined on {', '.join(missing)} for {timeout:g} s") from None
        match said:
            case {"waiting_for": list(missing)}:
                pass
            case {"left": _}:  # and soon it will say that there is no job
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
