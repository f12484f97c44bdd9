"""The membership of a worker in a job of a running network: the job service gives it a rank, a lease and addresses.

A script that `fanin exec` runs on a host calls `workers.join()` and gets the host's part in an all-reduce.
"""

import json
import math
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.native.python_file import functions
from fanin.workers.collective import CollectiveError, StallError
from fanin.workers.engines.buffers import Buffers
from fanin.workers.job.calls import AbortedError, Calls, collective
from fanin.workers.job.environment import HOST, JOB, SERVICE, SLOTS
from fanin.workers.job.reporting import Reporter
from fanin.workers.job.ring_fallback import LeaseLostError, RingFallback, UnderWay
from fanin.workers.lease import Lease
from fanin.workers.participant_udp import PluggedWorker
from fanin.workers.recovery import Recovery
from fanin.workers.tensor import NOBODY, Partition
from fanin.workers.udp import InNetworkAllReduce, InNetworkConfig, SocketWorker

_LOOK = 0.25  # longest time in seconds for which a worker that waits for news does not report
# How long to wait without anything new for packets that a worker sent before it ended, and their retransmissions.
_LEFT_SECONDS = 1.0


class JoinError(CollectiveError):
    """A failure to join a job; the text explains why."""


class LeftError(AbortedError):
    """The end of a worker that the other workers of its job wait for."""


class Service:
    """The connection to the job service: each message is a line of JSON. A worker is a member while it is open."""

    def __init__(self) -> None:
        if HOST not in os.environ or SERVICE not in os.environ:
            raise JoinError(
                f"{HOST} and {SERVICE} are not set: this is not a host of a network. Start this program with "
                "`fanin launch`; or start a network with `fanin up`, and this program with `fanin exec h1 …`"
            )
        path = Path(os.environ[SERVICE])
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._received = b""
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

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message. If the service has ended, receive() notices it, after the last messages of the service."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def send_or_drop(self, message: Mapping[str, Any]) -> None:
        """Send a message that nobody waits for, or drop it if the service is too slow to take it.

        Such a short line is sent completely or not at all. If the service has ended, receive() notices it.
        """
        with suppress(OSError):
            self._socket.send(json.dumps(message).encode() + b"\n", socket.MSG_DONTWAIT)

    def receive(self, timeout: float | None) -> Any:
        """Return the next message; None if there is none within `timeout` seconds.

        Raises:
            JoinError: If the service has ended.
        """
        while b"\n" not in self._received:
            if not self._poll.poll(None if timeout is None else math.ceil(timeout * 1000)):
                return None
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                raise JoinError("the network has ended")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return json.loads(line)

    def fileno(self) -> int:
        """Return the descriptor, for poll()."""
        return self._socket.fileno()

    def close(self) -> None:
        """Leave the job."""
        self._socket.close()


class JobMessages:
    """The messages that a worker receives from the job service once its job has begun."""

    def __init__(self, service: Service, rank: int) -> None:
        self._service = service
        self.left: dict[int, str] = {}  # by rank
        self.left_at = 0.0  # when the first of them was reported
        self.revoked: Callable[[str], None] = lambda _: None
        self.carry_on: Callable[[Any], None] = lambda _: None
        self.calls = Calls(service.send, rank, send_or_drop=service.send_or_drop)

    def listen(self, timeout: float) -> None:
        """Process messages, after waiting at most `timeout` seconds for one.

        Raises:
            JoinError: If the network has ended.
            AbortedError: If a call has failed at some worker.
        """
        self.calls.look()
        while (message := self._service.receive(timeout)) is not None:
            match message:
                case {"left": {"rank": rank, "host": host, "process": process}}:
                    self.left[rank] = f"rank {rank} (process {process} on {host})"
                    self.left_at = self.left_at or time.monotonic()
                case {"revoked": str(why)}:
                    self.revoked(why)
                case {"carry_on": numbers}:
                    self.carry_on(numbers)
                case _:
                    self.calls.receive(message)
            timeout = 0.0

    def others_left(self, timeout: float = 0.0) -> list[str]:
        """Return which other workers have ended, in order, after waiting `timeout` seconds for news.

        Raises:
            JoinError: See listen().
            AbortedError: See listen().
        """
        deadline = time.monotonic() + timeout
        while not self.left and (remaining := deadline - time.monotonic()) > 0:
            self.listen(remaining)
        self.listen(0.0)
        return list(self.left.values())

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to the service."""
        self._service.send(message)

    def close(self) -> None:
        """Leave the job."""
        self._service.close()


class Member(InNetworkAllReduce):
    """One worker's part in a job. The lease ends when the last member leaves.

    Args:
        config: The settings of the all-reduce.
        addresses: IPv4 address and TCP port where each rank may listen for the others, by rank.
        service: The connection to the job service.
        ring: Whether the job continues without its lease. If so, sum_in_network() raises LeaseLostError once the lease
            is lost, at all workers from the same call on. fanin's own worker only.
        worker: The worker of another protocol; None: fanin's own.

    Attributes:
        addresses: See Args.
        exact: See reducer.Membership.
        calls: This worker's calls.
    """

    def __init__(
        self,
        config: InNetworkConfig,
        addresses: Sequence[tuple[str, int]],
        service: Service,
        *,
        ring: bool = False,
        worker: SocketWorker | None = None,
    ) -> None:
        super().__init__(config, worker)
        self.exact = worker is None
        self.addresses = tuple(addresses)
        self._reporter = Reporter(self.worker, service.send_or_drop)
        self.messages = JobMessages(service, config.lease.rank)
        self.messages.revoked = self._revoked
        self.calls = self.messages.calls
        self.socket.notice(service.fileno())
        self._fallback: RingFallback | None = None
        if ring:
            patience = config.recovery.give_up
            watch = partial(self.messages.listen, 0.0)
            self._fallback = RingFallback(self.rank, self.addresses, self.messages.send, watch, patience)
            self.messages.carry_on = self._fallback.agree

    @property
    def rank(self) -> int:
        """Return this worker's number, from 0 on."""
        return self.config.lease.rank

    @property
    def workers(self) -> int:
        """Return the number of workers of the job."""
        return self.config.lease.workers

    def left(self, timeout: float = 0.0) -> list[str]:
        """Return which other workers have ended, in order, after waiting `timeout` seconds for news.

        Raises:
            JoinError: If the network has ended.
            AbortedError: If a call has failed.
            CollectiveError: If the lease is revoked.
        """
        return self.messages.others_left(timeout)

    @collective
    def all_reduce(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None, call: str = ""
    ) -> NDArray[np.float32]:
        """Return the sum of `x`; see InNetworkAllReduce. After an error no worker can make another call.

        Raises:
            LeaseLostError: See sum_in_network().
            LeftError: See sum_in_network().
            AbortedError: See sum_in_network().
        """
        what = f"{call or 'all-reduce'} of {np.size(x):,} float32"
        number = self.calls.begin(what)
        try:
            result = super().all_reduce(x, out, call)
        except BaseException as error:
            self.calls.abort(error, number, what)
            raise
        self.calls.end()
        return result

    def sum_in_network(self, buffers: Buffers, call: str) -> None:
        """Sum in the network; see InNetworkAllReduce.

        Raises:
            LeaseLostError: If the ring has to do this sum and all later ones.
            LeftError: If another worker has ended.
            AbortedError: If a call has failed at another worker.
        """
        fallback = self._fallback
        if fallback is None or not buffers.elements:  # an empty sum finishes at once, whatever others do
            super().sum_in_network(buffers, call)
        elif buffers.elements > self.config.lease.window * self.config.lease.block(buffers.bits):
            self._long_sum(fallback, buffers, call)
        elif fallback.why:
            self._take_over(fallback, buffers)
        else:
            # The sum is made where it is kept, since `out` may be `x`: if results are missing, the ring begins with
            # `x`. There is no need to listen for messages first, since they end a wait for packets.
            buffers.keep(fallback.buffer(buffers.elements))
            try:
                super().sum_in_network(buffers, call)
            except LeaseLostError:
                self._take_over(fallback, buffers)
            else:
                self._finish(fallback)
        self._reporter.look(time.monotonic())

    def exchange_in_network(self, buffers: Buffers, partition: Partition, call: str) -> None:
        """Gather or scatter in the network; see InNetworkAllReduce.

        A worker that has its own part cannot help others who lack theirs once its caller may have changed the input. So
        it returns only when all have theirs, which the shortest gather tells it. If the lease is lost before any worker
        knows that, nobody has returned, and all have their input. If some worker knows it, all have their parts.

        Raises:
            LeaseLostError: If the ring has to do this operation, from its input, and all later ones.
            LeftError: See sum_in_network().
            AbortedError: See sum_in_network().
        """
        fallback = self._fallback
        if fallback is None:
            super().exchange_in_network(buffers, partition, call)
            return
        if fallback.why:  # nobody can have finished what this worker has not begun
            self._agree(fallback)
            raise LeaseLostError(fallback.why)
        unsummed = np.zeros(0, np.int64)
        fallback.buffer(1)  # those behind get something, but they need nothing
        try:
            super().exchange_in_network(buffers, partition, call)
            unsummed = self.unsummed
            nothing = np.zeros(1, np.float32)
            super().exchange_in_network(
                Buffers(nothing, nothing), Partition("gather", 1, NOBODY), f"{call}: all have it"
            )
        except LeaseLostError:
            self._agree(fallback)
            if not fallback.behind:
                raise LeaseLostError(fallback.why) from None
            fallback.take()
        else:
            fallback.finish()
        self.unsummed = unsummed
        self._reporter.look(time.monotonic())

    def _finish(self, fallback: RingFallback, first: int = 0) -> None:
        """Keep a result for other workers, from element `first` on. NaN marks elements without a sum."""
        fallback.finish()
        if len(unsummed := self.unsummed):
            fallback.last[unsummed[unsummed >= first] - first] = np.nan

    def _take_over(self, fallback: RingFallback, buffers: Buffers) -> None:
        """Take the sum from workers that have it, or let the ring begin."""
        self._agree(fallback)
        if not fallback.behind:
            raise LeaseLostError(fallback.why)
        result = fallback.take()
        summed = ~np.isnan(result)
        self.unsummed = np.flatnonzero(~summed)
        if buffers.out is not buffers.x:
            np.copyto(buffers.out, buffers.x)
        np.copyto(buffers.out, result, where=summed)

    def _long_sum(self, fallback: RingFallback, buffers: Buffers, call: str) -> None:
        """Sum a vector of more blocks than the window into the caller's array, and keep only the end of the result.

        A worker that sends a packet has the result of the chunk that used the slot before. So once this worker has all
        results, the others can lack only results of the last window.
        """
        x, out = buffers.x, buffers.out
        if x is not out and np.may_share_memory(x, out) and x.ctypes.data != out.ctypes.data:
            x = x.copy()
            buffers = Buffers(x, out, buffers.bits)
        lease = self.config.lease
        values = lease.block(buffers.bits)
        blocks = -(-len(x) // values)
        end = out[(blocks - lease.window) * values :]
        if fallback.why:
            summed = np.zeros(blocks, np.bool_)
        else:
            fallback.take_into(end)
            try:
                super().sum_in_network(buffers, call)
            except LeaseLostError:
                summed = self.worker.summed
            else:
                fallback.buffer(len(end))[:] = end
                self._finish(fallback, len(out) - len(end))
                return
        self._agree(fallback)
        if not fallback.behind:
            raise LeaseLostError(fallback.why, UnderWay(x, out, summed, values))
        fallback.take()
        # If `out` is `x`, this worker's own values there are lost: the sums will be NaN at all workers.
        first, before = len(out) - len(end), self.worker.unsummed
        self.unsummed = np.append(before[before < first], first + np.flatnonzero(np.isnan(end)))
        out[self.unsummed] = x[self.unsummed]

    def _agree(self, fallback: RingFallback) -> None:
        """Wait until it is known what all workers have finished."""
        deadline = time.monotonic() + self.config.recovery.give_up
        while not fallback.agreed:
            if (left := deadline - time.monotonic()) <= 0:
                raise StallError(
                    f"rank {self.rank} of {self.workers}: {fallback.why}, and others have not come to their next call "
                    f"for {self.config.recovery.give_up:g} s"
                )
            self.messages.listen(min(left, _LOOK))

    def _revoked(self, why: str) -> None:
        if self._fallback is None:
            raise CollectiveError(f"the job has lost its lease: {why}")
        self._fallback.lose(why)

    def _send(self) -> None:
        """Send what the timers ask for, and give up if another worker has ended.

        Without the ended worker there are no new sums, except from packets that it had sent before.
        """
        self._reporter.look(time.monotonic())
        super()._send()
        left = self.left()
        if self._fallback is not None and self._fallback.why:
            raise LeaseLostError(self._fallback.why)
        if not left:
            return
        now = time.monotonic()
        waiting = self.worker.outstanding(now)
        if waiting and min(now - self.messages.left_at, waiting.silent) >= _LEFT_SECONDS:
            raise LeftError(f"{left[0]} ended while others wait: {waiting}")

    def close(self) -> None:
        """Release the port, and leave the job."""
        super().close()
        if self._fallback is not None:
            self._fallback.close()
        self.messages.close()


class Outsider:
    """One worker's part in a job that was refused a lease. For the methods see Member.

    Args:
        rank: This worker's number.
        addresses: Where each rank may listen, by rank.
        why: Why the job has no lease.
        service: The connection to the job service.
    """

    def __init__(self, rank: int, addresses: Sequence[tuple[str, int]], why: str, service: Service) -> None:
        self.rank = rank
        self.exact = True
        self.workers = len(addresses)
        self.unsummed = np.zeros(0, np.int64)
        self.addresses = tuple(addresses)
        self._why = why
        self.messages = JobMessages(service, rank)
        self.calls = self.messages.calls

    def sum_in_network(self, buffers: Buffers, call: str) -> None:  # noqa: ARG002
        """Raise LeaseLostError: the ring has to do the sum.

        Raises:
            LeaseLostError: Always.
        """
        raise LeaseLostError(self._why)

    def left(self, timeout: float = 0.0) -> list[str]:
        """Return which other workers have ended; see Member.left()."""
        return self.messages.others_left(timeout)

    def close(self) -> None:
        """Leave the job."""
        self.messages.close()


def join(
    hosts: Sequence[str] | int | None = None,
    *,
    job: str | None = None,
    slots: int | None = None,
    slot_share: int | None = None,
    timeout: float | None = None,
    give_up: float | None = None,
    **settings: Any,
) -> Member:
    """Join a job once all its workers have come, and return this host's part.

    Args:
        hosts: The hosts' names, or their number. None: all hosts of the network.
        job: The job's name. None uses FANIN_JOB of the environment, or no name. A host can be in one job without a name
            at a time.
        slots: Number of slots in each of the job's switches. None uses FANIN_SLOTS of the environment, or as many as
            suit the network. If other jobs have the slots, the job waits in a queue.
        slot_share: See fanin.init().
        timeout: Seconds to wait for the other workers, and in the queue. None waits indefinitely.
        give_up: Seconds without anything new after which an all-reduce fails. None uses a time that suits the network.
        **settings: Fields of InNetworkConfig, which replace those that suit the network.

    Raises:
        JoinError: If there is no network, the place is taken, or other workers did not come.
    """
    asked = {
        "hosts": hosts if hosts is None or isinstance(hosts, int) else list(hosts),
        "job": job,
        "slots": slots,
        "slot_share": slot_share,
    }
    service, assignment = ask({**asked, "ring": False}, timeout)
    return member_of(service, assignment, give_up, settings, ring=False)


def join_or_ring(
    hosts: Sequence[str] | int | None,
    timeout: float,
    *,
    job: str | None = None,
    slot_share: int | None = None,
    **settings: Any,
) -> Member | Outsider:
    """Join a job that continues with the ring if it gets no lease, instead of waiting in a queue; see join()."""
    asked = {"hosts": hosts, "job": job, "slots": None, "slot_share": slot_share, "ring": True}
    service, assignment = ask(asked, timeout)
    if assignment["config"] is None:
        why = f"no lease: {assignment['refused']}"
        return Outsider(assignment["rank"], addresses_of(assignment), why, service)
    return member_of(service, assignment, timeout, settings, ring=True)


def member_of(
    service: Service,
    assignment: Mapping[str, Any],
    give_up: float | None,
    settings: Mapping[str, Any],
    *,
    ring: bool,
) -> Member:
    """Return the part of a worker that has been given a lease; see join() for `give_up` and `settings`."""
    try:
        config = config_of(assignment["config"], give_up, settings)
        worker = None
        if file := assignment["config"].get("worker"):
            made = functions(Path(file), ("participant",))["participant"](config.lease, config.recovery)
            worker = PluggedWorker(made)
        return Member(config, addresses_of(assignment), service, ring=ring and worker is None, worker=worker)
    except BaseException:
        service.close()
        raise


def ask(asked: Mapping[str, Any], timeout: float | None) -> tuple[Service, dict[str, Any]]:
    """Send a request to join a job, and wait for the answer.

    Args:
        asked: The request. `job` and `slots` that are None are taken from the environment.
        timeout: Seconds to wait for the service's next message. None waits indefinitely.

    Returns:
        The connection and the assignment.

    Raises:
        JoinError: See join().
    """
    job = os.environ.get(JOB) if asked["job"] is None else asked["job"]
    slots = number_of_environment(SLOTS, "slots") if asked["slots"] is None else asked["slots"]
    service = Service()
    try:
        me = {"host": os.environ[HOST], "process": os.getpid()}
        service.send({**asked, **me, "job": job, "slots": slots})
        return service, _assignment(service, timeout)
    except BaseException:
        service.close()
        raise


def addresses_of(assignment: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Return where each rank may listen, by rank."""
    return tuple((str(address), int(port)) for address, port in assignment["addresses"])


def _assignment(service: Service, timeout: float | None) -> dict[str, Any]:
    """Return the service's final answer."""
    waits = "the job service has sent nothing"
    while True:
        match service.receive(timeout):
            case None:
                raise JoinError(f"{waits} for {timeout:g} s")
            case {"waiting_for": list(missing)}:
                waits = f"no worker has joined on {', '.join(missing)}"
            case {"queued": {"rank": int(rank), "place": int(place), "why": str(why)}}:
                waits = f"the job has been number {place} in the queue for a lease ({why})"
                if not rank:
                    print(f"fanin: number {place} in the queue for a lease: {why}", file=sys.stderr)
            case {"left": _}:  # the service will soon report that there is no job
                pass
            case {"error": str(why)}:
                raise JoinError(why)
            case dict(assignment):
                return assignment


def refuse_other_protocols(assignment: Mapping[str, Any], what: str) -> None:
    """Refuse a job of which only fanin's own worker is capable.

    Args:
        assignment: The job service's answer.
        what: The job, in words.

    Raises:
        JoinError: If the network has another protocol.
    """
    if assignment["config"] and (file := assignment["config"].get("worker")):
        raise JoinError(
            f"{what} needs fanin's own protocol, and this network has {Path(file).parent.name}: start one with "
            "`fanin up` without --protocol"
        )


def number_of_environment(name: str, of: str) -> int | None:
    """Return a number from the environment; None if the variable is not set.

    Args:
        name: The variable.
        of: The things counted, for the error message.

    Raises:
        JoinError: If the value is not a number.
    """
    said = os.environ.get(name)
    if said is None:
        return None
    try:
        return int(said)
    except ValueError:
        raise JoinError(f"{name}: is {said!r}, must be a number of {of}") from None


def config_of(
    granted: Mapping[str, Any], give_up: float | None, settings: Mapping[str, Any]
) -> InNetworkConfig:
    """Return the settings of an all-reduce from an assignment; for `give_up` and `settings` see join()."""
    recovery = granted["recovery"] if give_up is None else {**granted["recovery"], "give_up": give_up}
    given = {
        **granted,
        "lease": Lease(**granted["lease"]),
        "local": tuple(granted["local"]),
        "remote": tuple(granted["remote"]),
        "recovery": Recovery(**recovery),
    }
    given.pop("worker", None)
    return InNetworkConfig(**{**given, **settings})
