"""A protocol's server in a live network: the process on its host, and the run's end of it."""

from __future__ import annotations

import select
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from fanin.experiments.live.output import lines_out, write_line
from fanin.experiments.live.worker_group import RunError
from fanin.experiments.protocol import protocol_of
from fanin.native.python_file import telling
from fanin.testbed.worker_process import Start, WorkerProcess
from fanin.workers.lease import Lease
from fanin.workers.participant_udp import serve
from fanin.workers.recovery import Pace
from fanin.workers.udp import UdpSocket


@dataclass(frozen=True, slots=True)
class ServerTask:
    """The task of a server's process.

    Attributes:
        lease: The lease of the job.
        local: Address and port of the server.
        remote: Address and port of its leaf.
        pace: Segments and timers.
        protocol: The protocol, by name or folder.
        give_up: Seconds without progress after which a worker fails.
    """

    lease: Lease
    local: tuple[str, int]
    remote: tuple[str, int]
    pace: Pace
    protocol: str
    give_up: float


_TASK = TypeAdapter(ServerTask)


class ServerProcess:
    """A running server."""

    def __init__(self, process: WorkerProcess, log: Path) -> None:
        self._process, self._log = process, log

    @classmethod
    async def begin(cls, task: ServerTask, start: Start, log: Path) -> ServerProcess:
        """Start a server, and return it once it receives.

        Args:
            task: Its task.
            start: Starts a process on its host.
            log: Receives its output.

        Raises:
            RunError: If it does not start.
        """
        argv = [sys.executable, "-P", "-m", "fanin.experiments.live.server"]
        process = WorkerProcess(start, 0, argv, log)
        process.tell(_TASK.dump_json(task))
        if not await process.hear():
            raise RunError(f"the server at {task.local[0]}: {await process.end()}; see {log}")
        return cls(process, log)

    def check(self) -> None:
        """Raise an error if it has ended.

        Raises:
            RunError: It has ended.
        """
        if self._process.ended:
            raise RunError(f"the protocol's server has ended; see {self._log}")

    def kill(self) -> None:
        """End the process."""
        self._process.kill()


def main() -> int:
    """Do a task from standard input until that is closed."""
    lines_out()
    task = _TASK.validate_json(sys.stdin.buffer.readline())
    protocol, pace = protocol_of(task.protocol), task.pace
    assert protocol.make_server is not None
    server = protocol.make_server(task.lease, pace.recovery(task.give_up))
    socket = UdpSocket(
        task.local, task.remote, segments=pace.segments, offload=pace.offload, checksums=pace.checksums
    )
    write_line(b"{}")
    with telling(protocol.file):
        serve(server, socket, lambda: bool(select.select([sys.stdin], [], [], 0)[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
