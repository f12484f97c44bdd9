"""Jobs of real processes on the loopback: a job service, a model switch for each lease, workers that can be killed."""

from __future__ import annotations

import asyncio
import os
import pickle
import select
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from fanin.controller.errors import ControllerError
from fanin.controller.job_service.json_lines_server import serving_workers
from fanin.controller.jobs.lifecycle import JobRequest
from fanin.controller.jobs.membership import JobService
from fanin.workers import Lease, Recovery
from fanin.workers.communicator import Communicator
from fanin.workers.engines import native
from fanin.workers.job import environment
from fanin.workers.job.elastic import Elastic
from fanin.workers.job.local_ranks import LocalMember, listen, local_address
from fanin.workers.job.membership import Outsider, Service, _assignment, addresses_of, member_of
from fanin.workers.reducer import Membership
from tests.workers.loopback import HOST, WINDOW, everywhere, free_address, free_tcp_addresses
from tests.workers.model_switch import ModelSwitch

Do = Callable[[Communicator, Callable[[Any], None]], None]

PATIENCE = 20.0  # seconds: far more than anything here takes
SWITCH_PORT = 0xBEE5


class Switch:
    """A UDP port behind which each lease has a model of a switch, by source and lease."""

    def __init__(self) -> None:
        self.address = (HOST, SWITCH_PORT)
        self._models: dict[int, tuple[ModelSwitch, list[tuple[str, int]]]] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self._socket.bind(self.address)
        self._wake, self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._forward)
        self._thread.start()

    def admit(self, lease: int, workers: list[tuple[str, int]]) -> None:
        model = ModelSwitch(children=len(workers), root=True, lease=lease, slots=range(WINDOW))
        self._models[lease] = model, workers

    def withdraw(self, lease: int) -> None:
        self._models.pop(lease, None)

    def _forward(self) -> None:
        while self._wake not in select.select([self._socket, self._wake], [], [])[0]:
            datagram, source = self._socket.recvfrom(2048)
            model, workers = self._models.get(datagram[1], (None, []))
            if model is None or source not in workers:
                continue
            for port, packet in model.receive(workers.index(source), datagram):
                self._socket.sendto(packet, workers[port])

    def close(self) -> None:
        self._stop.send(b".")
        self._thread.join()
        for each in (self._socket, self._wake, self._stop):
            each.close()


@dataclass
class JobLease:
    """The outcome of a job; see fanin.controller.jobs.lifecycle.JobLease."""

    grants: Grants
    request: JobRequest
    number: int = 0

    def __post_init__(self) -> None:
        self.local = {host: free_address() for host in self.request.hosts}
        self.addresses = free_tcp_addresses(len(self.request.hosts))

    async def grant(self) -> None:
        if self.grants.refuses:
            raise ControllerError("leaf1 refuses")
        self.grants.granted.append(self.request.hosts)
        self.number = len(self.grants.granted)
        self.grants.switch.admit(self.number, list(self.local.values()))

    def assignment(self, host: str) -> Mapping[str, Any]:
        hosts = self.request.hosts
        rank = hosts.index(host)
        config = {
            "lease": asdict(Lease(self.number or 1, rank, len(hosts), WINDOW)),
            "local": self.local[host],
            "remote": self.grants.switch.address,
            "segments": 8,
            "offload": False,
            "recovery": asdict(Recovery(initial_rto=0.1, min_rto=0.05, max_rto=0.2, give_up=PATIENCE)),
        }
        return {"rank": rank, "addresses": self.addresses, "config": config if self.number else None}

    def lease(self) -> Mapping[str, Any]:
        return {"lease": self.number or None}

    async def withdraw(self) -> None:
        self.grants.switch.withdraw(self.number)
        self.number = 0

    def close(self) -> None:
        pass


@dataclass
class Grants:
    """In place of a controller. granted: the hosts of each lease. refuses: it grants nothing.

    revoke: has the job service revoke a job's lease. jobs: what it tells of its jobs to those who ask.
    """

    switch: Switch
    refuses: bool = False
    granted: list[tuple[str, ...]] = field(default_factory=list)
    revoke: Callable[[str], None] = field(init=False)
    jobs: Callable[[], Sequence[Mapping[str, Any]]] = field(init=False)

    def open(self, request: JobRequest) -> JobLease:
        return JobLease(self, request)


class Process:
    """A worker: `do` is given its communicator, and what it tells is in `told`, up to its last word if it is killed.

    dies_at: as for die_at().
    """

    def __init__(
        self, path: Path, host: str, do: Do, init: Callable[[], Communicator], dies_at: int = 0
    ) -> None:
        self.host = host
        self.told: list[Any] = []
        self.killed = False
        begin, self._begin = os.pipe()
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self.id = os.fork()
        if not self.id:
            try:
                os.read(begin, 1)
                os.environ |= {environment.HOST: host, environment.SERVICE: str(path)}
                _work(do, init, dies_at, self._file)
            finally:
                os._exit(0)
        os.close(begin)

    def begin(self) -> None:
        os.write(self._begin, b".")
        os.close(self._begin)

    def kill(self) -> None:
        os.kill(self.id, signal.SIGKILL)

    def hear(self) -> list[Any]:
        """All that it has told, once it has ended."""
        end = os.pidfd_open(self.id)
        if not select.select([end], [], [], 3 * PATIENCE)[0]:
            self.kill()
        os.close(end)
        self.killed = os.WIFSIGNALED(os.waitpid(self.id, 0)[1])
        with self._file as said, suppress(EOFError):
            said.seek(0)
            while True:
                self.told.append(pickle.load(said))
        return self.told


@contextmanager
def communicators(
    path: Path, hosts: Sequence[str], least: int | None = None, timeout: float = PATIENCE, per_host: int = 1
) -> Iterator[list[Communicator]]:
    """A job of the service at `path` whose workers, on each of `hosts`, are all in this process; by rank."""
    if per_host > 1:
        with _local_communicators(path, hosts, timeout, per_host) as comms:
            yield comms
        return
    request = {"hosts": len(hosts), "job": None, "slots": None, "ring": True, "min_workers": least}
    services = []
    for host in hosts:
        os.environ |= {environment.HOST: host, environment.SERVICE: str(path)}
        services.append(Service())
        services[-1].send({**request, "host": host, "process": os.getpid()})
    comms: list[Communicator] = []
    with ExitStack() as members:
        for service in services:
            assignment = _assignment(service, timeout)
            if least is not None:
                place: Membership = Elastic(service, assignment, timeout)
            elif assignment["config"] is None:
                place = Outsider(assignment["rank"], addresses_of(assignment), "no lease", service)
            else:
                place = member_of(service, assignment, timeout, {}, ring=True)
            comms.append(Communicator(place, timeout))
        members.callback(lambda: everywhere(comms, Communicator.close))  # each may wait for the others
        yield comms


@contextmanager
def _local_communicators(
    path: Path, hosts: Sequence[str], timeout: float, per_host: int
) -> Iterator[list[Communicator]]:
    request = {"hosts": len(hosts), "job": None, "slots": None, "ring": True, "per_host": per_host}
    places = [(host, local) for host in hosts for local in range(per_host)]
    addresses, services = {}, []
    with ExitStack() as open_ones:
        listeners = {}
        for host, local in places:
            os.environ |= {environment.HOST: host, environment.SERVICE: str(path)}
            if not local:
                addresses[host] = local_address(os.getpid())
                listeners[host] = open_ones.enter_context(listen(addresses[host]))
            services.append(Service())
            services[-1].send({**request, "host": host, "process": os.getpid(), "local": local})

        def member(rank: int) -> Communicator:
            (host, local), service = places[rank], services[rank]
            assignment = _assignment(service, timeout)
            place: Any
            if assignment["config"] is None:
                place = Outsider(rank // per_host, addresses_of(assignment), "no lease", service)
            else:
                place = member_of(service, assignment, timeout, {}, ring=True)
            processes, listener = [os.getpid()] * per_host, None if local else listeners[host]
            first = rank - local
            return Communicator(
                LocalMember(
                    place, service, local, processes, addresses[host], first, len(places), listener, timeout
                ),
                timeout,
            )

        with ThreadPoolExecutor(len(places)) as pool:
            comms = list(pool.map(member, range(len(places))))
        open_ones.callback(lambda: everywhere(comms, Communicator.close))
        yield comms


def _work(do: Do, init: Callable[[], Communicator], dies_at: int, told: IO[bytes]) -> None:
    native.library = lambda: None  # type: ignore[assignment]  # so that Python sends what is sent

    def tell(what: Any) -> None:
        pickle.dump(what, told)
        told.flush()

    if dies_at:
        die_at(dies_at)
    try:
        with init() as comm:
            do(comm, tell)
    except Exception as error:
        tell(f"{type(error).__name__}: {error}")


def die_at(count: int) -> None:
    """Has this process killed as it is about to make its so-manieth call that sends, connects or accepts."""
    left = count

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return method(*arguments)

        return call

    for name in ("send", "sendall", "connect", "accept"):
        setattr(socket.socket, name, counted(getattr(socket.socket, name)))


@contextmanager
def network(
    hosts: Sequence[str], start: Callable[[Path], list[Process]], refuses: bool = False
) -> Iterator[tuple[list[Process], Grants, Path]]:
    """Return what `start` makes of a job service's path, on a network of `hosts`; they begin when all is there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.sock"
        processes = start(path)  # before there are threads
        switch = Switch()
        grants = Grants(switch, refuses)
        ready, loop = threading.Event(), asyncio.new_event_loop()
        ending = asyncio.Event()

        async def serve() -> None:
            service = JobService(hosts, grants.open, print)
            async with serving_workers(service, path), service:
                grants.revoke = lambda name: asyncio.run_coroutine_threadsafe(
                    service.jobs.revoke(name), loop
                ).result(PATIENCE)
                grants.jobs = service.jobs.documents
                ready.set()
                await ending.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
        thread.start()
        try:
            assert ready.wait(PATIENCE)
            for process in processes:
                process.begin()
            yield processes, grants, path
        finally:
            loop.call_soon_threadsafe(ending.set)
            thread.join()
            loop.close()
            switch.close()
