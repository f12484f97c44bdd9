"""Processes on several hosts, as mpirun and torchrun start them: each knows its rank, and all end together."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from fanin.testbed import runs, time_slices
from fanin.testbed.patience import setting
from fanin.testbed.running import JOB_SERVICE, RunningNetwork
from fanin.topologies.errors import NetworkError
from fanin.topologies.model import Endpoint
from fanin.workers.job.environment import HOST, JOB, MIN_WORKERS, SERVICE, SLOTS, STOPPED_BY

_INTERFACES = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")  # of PyTorch's collectives, and of its RPC
_FIRST_MASTER_PORT = 29500  # as torchrun has it
_GRACE_SECONDS = 3.0  # between SIGTERM and SIGKILL
_LOOK_SECONDS = 0.5  # between checks that the network is still up
_ANSWER_SECONDS = 10.0  # for the ports of a host
_DRAIN_SECONDS = 1.0  # for the output of children that have left the process group
_LONGEST_LINE = 1 << 16  # bytes; a longer one is cut

# One thread per rank, as in torchrun: ranks that all use all cores for linear algebra would only delay one another.
_DEFAULTS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "RES_OPTIONS": "timeout:1 attempts:1",  # there is no name server, and PyTorch looks up the names of its peers
}


@dataclass(frozen=True, slots=True)
class Launch:
    """The processes to start: `argv` on each of `hosts` of a running network.

    Attributes:
        network: The network.
        hosts: Names of the hosts.
        argv: The command.
        job: Name of the job on the network.
        slots: Number of slots to ask for. None asks for as many as suit the network.
        output: Folder for rank-0.out, rank-0.err and so on. None passes everything on to standard output and error,
            each line prefixed with its rank.
        min_workers: The others continue while this many are left. None ends all when one has failed.
        restarts: How often a failed rank is started again.
        per_host: Number of processes on each host. Their ranks follow each other.
    """

    network: RunningNetwork
    hosts: Sequence[str]
    argv: Sequence[str]
    job: str
    slots: int | None = None
    output: Path | None = None
    min_workers: int | None = None
    restarts: int = 0
    per_host: int = 1

    @property
    def ranks(self) -> int:
        """Return the number of processes."""
        return len(self.hosts) * self.per_host

    def environment(self, master_port: int) -> dict[str, str]:
        """Return the environment variables common to all ranks: those of torchrun, and ours."""
        return {
            **_DEFAULTS,
            **os.environ,
            "PYTHONUNBUFFERED": "1",
            "WORLD_SIZE": str(self.ranks),
            "LOCAL_WORLD_SIZE": str(self.per_host),
            "MASTER_ADDR": self.network.hosts[self.hosts[0]].ip,
            "MASTER_PORT": str(master_port),
            SERVICE: str(self.network.run.folder / JOB_SERVICE),
            JOB: self.job,
            **({} if self.slots is None else {SLOTS: str(self.slots)}),
            **({} if self.min_workers is None else {MIN_WORKERS: str(self.min_workers)}),
        }


async def run(
    launch: Launch,
    check: Callable[[], None],
    report: Callable[[str], None],
    absent: Callable[[str], contextlib.AbstractContextManager[None]] = lambda _: contextlib.nullcontext(),
) -> int:
    """Start all ranks and wait for them.

    The first rank that fails ends the others, as does any exception of `check`. With a minimum number of workers, it is
    the first after which too few are left. A failure does not count if the rank is started again.

    Args:
        launch: What to start.
        check: Called about twice a second. Raises to end the ranks.
        report: Called with a message on how a rank ended.
        absent: Called with the host of a rank without which the others continue. Returns a context that is held until
            all ranks have ended.

    Returns:
        0 if all ranks have ended with 0, or the exit status of the one that ended the others. For a rank killed by a
        signal this is 128 plus the signal's number.
    """
    time_slices.shorten()  # like all processes of the network; this one is outside of it
    if launch.output is not None:
        launch.output.mkdir(parents=True, exist_ok=True)
    ranks: list[_Rank] = []
    unread = asyncio.get_running_loop().create_future()
    with (
        tempfile.TemporaryDirectory(prefix="fanin-launch-") as folder,
        ThreadPoolExecutor(launch.ranks) as waiting,
        contextlib.ExitStack() as absences,
        _master_port(launch.network, launch.hosts[0]) as master_port,
    ):
        environment = launch.environment(master_port)

        def start(number: int) -> None:
            again = any(rank.number == number for rank in ranks)
            stopped_by = Path(folder, str(len(ranks)))
            ranks.append(_Rank(launch, number, environment, waiting, unread, again, stopped_by))

        try:
            for number in range(launch.ranks):
                start(number)
            return await _failure(
                launch, ranks, start, check, report, lambda host: absences.enter_context(absent(host)), unread
            )
        finally:
            try:
                await _end(ranks, report)
            finally:
                for rank in ranks:  # after a second Ctrl-C, which does not wait
                    rank.send(signal.SIGKILL)
                # Children may have left the groups of their ranks, as torchrun's workers do.
                runs.end(lambda: runs.with_variables({name: environment[name] for name in (JOB, SERVICE)}))


async def _failure(
    launch: Launch,
    ranks: Sequence[_Rank],
    start: Callable[[int], None],
    check: Callable[[], None],
    report: Callable[[str], None],
    absent: Callable[[str], None],
    unread: asyncio.Future[None],
) -> int:
    spare = 0 if launch.min_workers is None else len(ranks) - launch.min_workers
    restarts = dict.fromkeys(range(len(ranks)), 0)
    while left := [rank for rank in ranks if not rank.told]:
        relays = [relay for rank in left for relay in rank.relays if not relay.done()]
        waited: list[asyncio.Future[Any]] = [*(rank.end for rank in left), *relays, unread]
        done, _ = await asyncio.wait(waited, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # raises, for instance if a disk is full
        if unread.done():
            raise BrokenPipeError
        check()
        for rank in await _causes_first(left):
            rank.told = True
            if status := rank.end.result():
                failed = f"{rank} failed: {_how(status)}"
                if restarts[rank.number] < launch.restarts:
                    restarts[rank.number] += 1
                    report(f"{failed}; it is started again ({restarts[rank.number]} of {launch.restarts})")
                    start(rank.number)
                    continue
                if spare > 0:
                    spare -= 1
                    report(f"{failed}; the others continue")
                    await asyncio.to_thread(absent, rank.host)  # it may not have joined yet
                    continue
                report(failed)
                return status if status > 0 else 128 - status
    return 0


async def _causes_first(ranks: Sequence[_Rank]) -> list[_Rank]:
    """Return the ranks that have ended, those first whose failure has stopped others of them.

    They may end later than those that they have stopped, and are waited for.
    """
    numbers = {number for rank in ranks if rank.ended for number in rank.causes()}
    causes = [rank for rank in ranks if rank.number in numbers]
    if causes:
        ends = [rank.end for rank in causes]
        await asyncio.wait(ends, timeout=_GRACE_SECONDS * setting(), return_when=asyncio.FIRST_COMPLETED)
    return sorted((rank for rank in ranks if rank.ended), key=lambda rank: rank not in causes)


async def _end(ranks: Sequence[_Rank], report: Callable[[str], None]) -> None:
    """End the ranks that are still running, and pass on their last output."""
    before = [rank for rank in ranks if not rank.ended]
    for rank in before:
        rank.send(signal.SIGTERM)
    if ends := [rank.end for rank in before]:
        _, late = await asyncio.wait(ends, timeout=_GRACE_SECONDS)
        for rank in before:
            if rank.end in late:
                rank.send(signal.SIGKILL)
        await asyncio.wait(ends)
    if relays := [relay for rank in ranks for relay in rank.relays]:
        _, open_still = await asyncio.wait(relays, timeout=_DRAIN_SECONDS)
        for relay in open_still:
            relay.cancel()
    for rank in ranks:
        if rank in before or (rank.end.result() and not rank.told):
            report(f"{rank} ended with the others: {_how(rank.end.result())}")


class _Rank:
    """A rank's process and its output.

    Attributes:
        end: Future of its exit status, as Popen.returncode has it.
        told: Whether its end has been reported, if that was to be.
    """

    def __init__(
        self,
        launch: Launch,
        number: int,
        environment: Mapping[str, str],
        waiting: ThreadPoolExecutor,
        unread: asyncio.Future[None],
        again: bool,
        stopped_by: Path,
    ) -> None:
        self.number = number
        place, local = divmod(number, launch.per_host)
        self.host = launch.hosts[place]
        self.told = False
        self._stopped_by = stopped_by
        self._lock = threading.Lock()
        self._reaped = False
        with contextlib.ExitStack() as files:
            out: int | IO[bytes] = subprocess.PIPE
            err: int | IO[bytes] = subprocess.PIPE
            if launch.output is not None:
                mode = "ab" if again else "wb"
                out = files.enter_context((launch.output / f"rank-{number}.out").open(mode))
                err = files.enter_context((launch.output / f"rank-{number}.err").open(mode))
            self._process = subprocess.Popen(
                # They are killed when the launcher is killed.
                launch.network.inside(["setpriv", "--pdeathsig", "KILL", "--", *launch.argv], self.host),
                stdin=None if number == 0 else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={
                    **environment,
                    "RANK": str(number),
                    "LOCAL_RANK": str(local),
                    HOST: self.host,
                    STOPPED_BY: str(stopped_by),
                    # Without these, PyTorch resolves this machine's name to an address outside of the network.
                    **dict.fromkeys(_INTERFACES, Endpoint(node=self.host, port=0).interface),
                },
                start_new_session=True,  # so that a terminal's Ctrl-C reaches only the launcher, which ends all
            )
        self.end = asyncio.get_running_loop().run_in_executor(waiting, self._wait)
        pipes = ((self._process.stdout, sys.stdout.buffer), (self._process.stderr, sys.stderr.buffer))
        self.relays = [
            asyncio.create_task(_relay(pipe, f"[{number}] ".encode(), to, unread))
            for pipe, to in pipes
            if pipe
        ]

    def _wait(self) -> int:
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self.send(signal.SIGKILL)
        with self._lock:
            self._reaped = True
            return self._process.wait()

    def causes(self) -> set[int]:
        """Return the numbers of the ranks whose failure has stopped this one, as far as it has said so."""
        with contextlib.suppress(OSError, ValueError):
            return {int(number) for number in self._stopped_by.read_text().split()}
        return set()

    @property
    def ended(self) -> bool:
        """Return whether the process has ended."""
        return self.end.done()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process, unless it has ended, and to its children."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if not self._reaped:  # until it is reaped, no other group can have its number
                os.killpg(self._process.pid, number)

    def __str__(self) -> str:
        return f"rank {self.number} on {self.host}"


async def _relay(pipe: IO[bytes], prefix: bytes, to: BinaryIO, unread: asyncio.Future[None]) -> None:
    """Pass on whole lines, so that those of several ranks do not mix.

    When their reader is gone, `unread` is resolved and further lines are discarded. With a closed pipe, a
    process would print an error of its own before it is ended.
    """
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        rest = b""
        while data := await reader.read(_LONGEST_LINE):
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) >= _LONGEST_LINE:
                lines.append(rest)
                rest = b""
            _write(lines, prefix, to, unread)
        _write([rest] if rest else [], prefix, to, unread)
    finally:
        transport.close()


def _write(lines: Sequence[bytes], prefix: bytes, to: BinaryIO, unread: asyncio.Future[None]) -> None:
    if unread.done():
        return
    try:
        to.write(b"".join(prefix + line + b"\n" for line in lines))
        to.flush()
    except BrokenPipeError:
        unread.set_result(None)
        # Otherwise Python would flush the buffer to the closed pipe when it exits, print an error and exit with 120.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), to.fileno())


def _how(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


@contextlib.contextmanager
def _master_port(network: RunningNetwork, host: str) -> Iterator[int]:
    """Keep a free TCP port of `host`, the first from torchrun's on, from other launches on the network.

    Rank 0 listens there only after it has imported its libraries, which takes seconds.

    Raises:
        NetworkError: The network is gone, or the host does not answer.
    """
    used = _used_ports(network, host)
    for port in range(_FIRST_MASTER_PORT, 1 << 16):
        if port not in used:
            with (network.run.folder / f"master-port-{host}-{port}").open("w") as kept:
                try:
                    fcntl.flock(kept, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield port
                return
    raise NetworkError(
        f"{host}: no TCP port from {_FIRST_MASTER_PORT} on is free; end the programs that use them"
    )


def _used_ports(network: RunningNetwork, host: str) -> set[int]:
    """Return the TCP ports of `host` that are in use."""
    try:
        tables = subprocess.run(
            network.inside(["cat", "/proc/net/tcp", "/proc/net/tcp6"], host),
            capture_output=True,
            text=True,
            check=False,  # a kernel without IPv6 has no tcp6
            timeout=_ANSWER_SECONDS * setting(),
        )
    except subprocess.TimeoutExpired as late:
        raise NetworkError(
            f"{host}: its open ports are not read within {late.timeout:g} s; end the network and start it again"
        ) from None
    lines = (line.split() for line in tables.stdout.splitlines())
    return {int(words[1].rpartition(":")[2], 16) for words in lines if words[0].endswith(":")}
