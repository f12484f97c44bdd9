"""How a worker on a network that is up joins a job: from the job service it gets its rank, its lease and its place.

A script that `fanin exec` runs on a host says `workers.join()` and has the host's part in an all-reduce.
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

from fanin.workers.collective import CollectiveError, StallError
from fanin.workers.engines.buffers import Buffers
from fanin.workers.job.calls import AbortedError, Calls, collective
from fanin.workers.job.environment import HOST, JOB, SERVICE, SLOTS
from fanin.workers.job.reporting import Reporter
from fanin.workers.job.ring_fallback import Handover, LeaseLostError, UnderWay
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.udp import InNetworkAllReduce, InNetworkConfig

_LOOK = 0.25  # seconds, at most, in which a worker that waits for news does not report
_LEFT_SECONDS = (
    1.0  # that what a worker sent before it ended may be on the way, and sent again, without anything new
)


class JoinError(CollectiveError):
    """There is no job to be part of; the text says why."""


class LeftError(AbortedError):
    """A worker of the job has ended, and the others wait for it in vain."""


class Service:
    """The connection to the job service: a line of JSON for each message. As long as it is open, one is a member."""

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

    def mention(self, message: Mapping[str, Any]) -> None:
        """Send a message for which nobody waits, unless the service is too slow to take it.

        So short a line is taken whole or not at all. That the service has ended is noticed where one listens to it.
        """
        with suppress(OSError):
            self._socket.send(json.dumps(message).encode() + b"\n", socket.MSG_DONTWAIT)

    def hear(self, timeout: float | None) -> Any:
        """The next message; None: there is none within `timeout` seconds.

        Raises:
            JoinError: the service has ended.
        """
        while b"\n" not in self._heard:
            if not self._poll.poll(None if timeout is None else math.ceil(timeout * 1000)):
                return None
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                raise JoinError("the network has ended")
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def fileno(self) -> int:
        """The descriptor, for poll()."""
        return self._socket.fileno()

    def close(self) -> None:
        """Leave."""
        self._socket.close()


class _Membership:
    """What a worker hears from the job service once its job has begun."""

    def __init__(self, service: Service, rank: int) -> None:
        self._service = service
        self.left: list[str] = []
        self.left_at = 0.0  # the first of them
        self.revoked: Callable[[str], None] = lambda _: None
        self.carry_on: Callable[[Any], None] = lambda _: None
        self.calls = Calls(service.say, rank)

    def listen(self, timeout: float) -> None:
        """Take what has been said, after waiting `timeout` seconds at most for it.

        Raises:
            JoinError: the network has ended. AbortedError: a call has failed at some worker.
        """
        self.calls.look()
        while (message := self._service.hear(timeout)) is not None:
            match message:
                case {"left": {"rank": rank, "host": host, "process": process}}:
                    self.left.append(f"rank {rank} (process {process} on {host})")
                    self.left_at = self.left_at or time.monotonic()
                case {"revoked": str(why)}:
                    self.revoked(why)
                case {"carry_on": numbers}:
                    self.carry_on(numbers)
                case _:
                    self.calls.hear(message)
            timeout = 0.0

    def others_left(self, timeout: float = 0.0) -> list[str]:
        """Which others have ended, in that order, as far as is known after waiting `timeout` seconds for news.

        Raises:
            JoinError, AbortedError: see listen().
        """
        deadline = time.monotonic() + timeout
        while not self.left and (remaining := deadline - time.monotonic()) > 0:
            self.listen(remaining)
        self.listen(0.0)
        return self.left

    def say(self, message: Mapping[str, Any]) -> None:
        """Tell the service something."""
        self._service.say(message)

    def close(self) -> None:
        """Leave."""
        self._service.close()


class Member(InNetworkAllReduce):
    """One worker's part in a job, whose lease ends with its last member's.

    addresses: (IPv4 address, TCP port) where each rank may listen for the others, by rank. ring: whether the job goes
    on without its lease: then all_reduce() raises LeaseLostError once it is lost, at all workers from the same call on.
    calls: this worker's.
    """

    def __init__(
        self,
        config: InNetworkConfig,
        addresses: Sequence[tuple[str, int]],
        service: Service,
        *,
        ring: bool = False,
    ) -> None:
        super().__init__(config)
        self._window = config.lease.window * config.lease.values  # in elements
        self.addresses = tuple(addresses)
        self._reporter = Reporter(self.worker, service.mention)
        self._membership = _Membership(service, config.lease.rank)
        self._membership.revoked = self._revoked
        self.calls = self._membership.calls
        self.socket.notice(service.fileno())
        self._handover: Handover | None = None
        if ring:
            patience = config.recovery.give_up
            watch = partial(self._membership.listen, 0.0)
            self._handover = Handover(self.rank, self.addresses, self._membership.say, watch, patience)
            self._membership.carry_on = self._handover.agree

    @property
    def rank(self) -> int:
        """This worker's number, from 0 on."""
        return self.config.lease.rank

    @property
    def workers(self) -> int:
        """How many the job has."""
        return self.config.lease.workers

    def left(self, timeout: float = 0.0) -> list[str]:
        """Which others have ended, in that order, as far as is known after waiting `timeout` seconds for news.

        Raises:
            JoinError: the network has ended. AbortedError: a call has failed. CollectiveError: the lease is revoked.
        """
        return self._membership.others_left(timeout)

    @collective
    def all_reduce(
        self, x: NDArray[np.float32], out: NDArray[np.float32] | None = None, call: str = ""
    ) -> NDArray[np.float32]:
        """See InNetworkAllReduce. Whatever it raises, no call can be made after it, at any worker.

        Raises:
            LeaseLostError, LeftError, AbortedError: see sum().
        """
        what = f"{call or 'all-reduce'} of {np.size(x):,} float32"
        number = self.calls.begin(what)
        try:
            return super().all_reduce(x, out, call)
        except BaseException as error:
            self.calls.abort(error, number, what)
            raise

    def sum(self, buffers: Buffers, call: str) -> None:
        """See InNetworkAllReduce.

        Raises:
            LeaseLostError: this and all that follow are the ring's. LeftError: somebody has ended. AbortedError: a call
                has failed at another worker.
        """
        handover = self._handover
        if handover is None or not buffers.elements:  # then it is finished at once, whatever others do
            super().sum(buffers, call)
        elif buffers.elements > self._window:
            self._long_sum(handover, buffers, call)
        elif handover.why:
            self._take_over(handover, buffers)
        else:
            # Made where it is kept, for `out` may be `x`: without results of all of it, the ring begins with `x`. For
            # news it need not listen before, since those end a wait for packets.
            buffers.keep(handover.buffer(buffers.elements))
            try:
                super().sum(buffers, call)
            except LeaseLostError:
                self._take_over(handover, buffers)
            else:
                self._finish(handover)

    def _finish(self, handover: Handover, first: int = 0) -> None:
        """A result is kept for others, from this element on: NaN tells them of what has no sum."""
        handover.finish()
        if len(unsummed := self.unsummed):
            handover.last[unsummed[unsummed >= first] - first] = np.nan

    def _take_over(self, handover: Handover, buffers: Buffers) -> None:
        """The sum from others, who have all of it; or the ring begins."""
        self._agree(handover)
        if not handover.behind:
            raise LeaseLostError(handover.why)
        result = handover.take()
        summed = ~np.isnan(result)
        self.unsummed = np.flatnonzero(~summed)
        if buffers.out is not buffers.x:
            np.copyto(buffers.out, buffers.x)
        np.copyto(buffers.out, result, where=summed)

    def _long_sum(self, handover: Handover, buffers: Buffers, call: str) -> None:
        """Of more blocks than the window, into the caller's array, of which only the end is kept.

        Who sends a packet has the result of the one that had its slot before: once all results are there, the others
        lack none but of the last window.
        """
        x, out = buffers.x, buffers.out
        if x is not out and np.may_share_memory(x, out) and x.ctypes.data != out.ctypes.data:
            x = x.copy()
            buffers = Buffers(x, out)
        lease = self.config.lease
        blocks = -(-len(x) // lease.values)
        end = out[(blocks - lease.window) * lease.values :]
        if handover.why:
            summed = np.zeros(blocks, np.bool_)
        else:
            handover.take_into(end)
            try:
                super().sum(buffers, call)
            except LeaseLostError:
                summed = self.worker.summed
            else:
                handover.buffer(len(end))[:] = end
                self._finish(handover, len(out) - len(end))
                return
        self._agree(handover)
        if not handover.behind:
            raise LeaseLostError(handover.why, UnderWay(x, out, summed, lease.values))
        handover.take()
        # What was in `out` there, if it is `x`, is lost: the sums will be NaN at all workers.
        first, before = len(out) - len(end), self.worker.unsummed
        self.unsummed = np.append(before[before < first], first + np.flatnonzero(np.isnan(end)))
        out[self.unsummed] = x[self.unsummed]

    def _agree(self, handover: Handover) -> None:
        """Wait until all workers know what all have finished."""
        deadline = time.monotonic() + self.config.recovery.give_up
        while not handover.agreed:
            if (left := deadline - time.monotonic()) <= 0:
                raise StallError(
                    f"rank {self.rank} of {self.workers}: {handover.why}, and others have not come to their next call "
                    f"for {self.config.recovery.give_up:g} s"
                )
            self._membership.listen(min(left, _LOOK))

    def _finished(self) -> None:
        self._reporter.look(time.monotonic())

    def _revoked(self, why: str) -> None:
        if self._handover is None:
            raise CollectiveError(f"the job has no lease any more: {why}")
        self._handover.lose(why)

    def _send(self) -> None:
        """Without those who have ended there are no new sums; of what they had sent before, there may be."""
        self._reporter.look(time.monotonic())
        super()._send()
        left = self.left()
        if self._handover is not None and self._handover.why:
            raise LeaseLostError(self._handover.why)
        if not left:
            return
        now = time.monotonic()
        waiting = self.worker.outstanding(now)
        if waiting and min(now - self._membership.left_at, waiting.silent) >= _LEFT_SECONDS:
            raise LeftError(f"{left[0]} ended while others wait: {waiting}")

    def close(self) -> None:
        """Release the port, and leave the job."""
        super().close()
        if self._handover is not None:
            self._handover.close()
        self._membership.close()


class Outsider:
    """One worker's part in a job that was refused a lease; `why`. For what else there is, see Member."""

    def __init__(self, rank: int, addresses: Sequence[tuple[str, int]], why: str, service: Service) -> None:
        self.rank = rank
        self.workers = len(addresses)
        self.unsummed = np.zeros(0, np.int64)
        self.addresses = tuple(addresses)
        self._why = why
        self._membership = _Membership(service, rank)
        self.calls = self._membership.calls

    def sum(self, buffers: Buffers, call: str) -> None:  # noqa: ARG002
        """Not here.

        Raises:
            LeaseLostError: always.
        """
        raise LeaseLostError(self._why)

    def left(self, timeout: float = 0.0) -> list[str]:
        """As Member.left()."""
        return self._membership.others_left(timeout)

    def close(self) -> None:
        """Leave the job."""
        self._membership.close()


def join(
    hosts: Sequence[str] | int | None = None,
    *,
    job: str | None = None,
    slots: int | None = None,
    timeout: float | None = None,
    give_up: float | None = None,
    **settings: Any,
) -> Member:
    """This host's part in a job of `hosts` (names, or how many; None: all of the network), once all have joined.

    job: its name, and slots: how many it has in each of its switches; None: as FANIN_JOB and FANIN_SLOTS in the
    environment have it, or else no name, of which a host is in one job at a time, and as many as suit the network. If
    others have them, the job waits in a queue. timeout: seconds to wait for the other workers, and in the queue; None:
    for ever. give_up: seconds without anything new after which an all-reduce fails; settings: fields of
    InNetworkConfig; both in place of those that suit the network.

    Raises:
        JoinError: no network, a place that is taken, or others that did not come.
    """
    asked = {
        "hosts": hosts if hosts is None or isinstance(hosts, int) else list(hosts),
        "job": job,
        "slots": slots,
    }
    service, assignment = ask({**asked, "ring": False}, timeout)
    return _member(service, assignment, give_up, settings, ring=False)


def join_or_ring(workers: int | None, timeout: float, **settings: Any) -> Member | Outsider:
    """As join(), of a job that does not wait in a queue but goes on by ring where it has no lease."""
    service, assignment = ask({"hosts": workers, "job": None, "slots": None, "ring": True}, timeout)
    if assignment["config"] is None:
        why = f"no lease: {assignment['refused']}"
        return Outsider(assignment["rank"], addresses_of(assignment), why, service)
    return _member(service, assignment, timeout, settings, ring=True)


def _member(
    service: Service,
    assignment: Mapping[str, Any],
    give_up: float | None,
    settings: Mapping[str, Any],
    *,
    ring: bool,
) -> Member:
    try:
        config = config_of(assignment["config"], give_up, settings)
        return Member(config, addresses_of(assignment), service, ring=ring)
    except BaseException:
        service.close()
        raise


def ask(asked: Mapping[str, Any], timeout: float | None) -> tuple[Service, dict[str, Any]]:
    """Join a job; for `job` and `slots` that are None, what the environment says. The connection, and the assignment.

    Raises:
        JoinError: see join().
    """
    job = os.environ.get(JOB) if asked["job"] is None else asked["job"]
    slots = number_of_environment(SLOTS, "slots") if asked["slots"] is None else asked["slots"]
    service = Service()
    try:
        me = {"host": os.environ[HOST], "process": os.getpid()}
        service.say({**asked, **me, "job": job, "slots": slots})
        return service, _assignment(service, timeout)
    except BaseException:
        service.close()
        raise


def addresses_of(assignment: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Where each rank may listen."""
    return tuple((str(address), int(port)) for address, port in assignment["addresses"])


def _assignment(service: Service, timeout: float | None) -> dict[str, Any]:
    """What the service says in the end."""
    waits = "the job service says nothing"
    while True:
        match service.hear(timeout):
            case None:
                raise JoinError(f"{waits} for {timeout:g} s")
            case {"waiting_for": list(missing)}:
                waits = f"no worker has joined on {', '.join(missing)}"
            case {"queued": {"rank": int(rank), "place": int(place), "why": str(why)}}:
                waits = f"the job has been number {place} of those that wait for a lease ({why})"
                if not rank:
                    print(f"fanin: number {place} of the jobs that wait for a lease: {why}", file=sys.stderr)
            case {"left": _}:  # and soon it will say that there is no job
                pass
            case {"error": str(why)}:
                raise JoinError(why)
            case dict(assignment):
                return assignment


def number_of_environment(name: str, of: str) -> int | None:
    """What the variable `name` says, a number `of` something; None: nothing.

    Raises:
        JoinError: it is no number.
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
    """Of an assignment; `give_up` and `settings` as join() has them."""
    recovery = granted["recovery"] if give_up is None else {**granted["recovery"], "give_up": give_up}
    given = {
        **granted,
        "lease": Lease(**granted["lease"]),
        "local": tuple(granted["local"]),
        "remote": tuple(granted["remote"]),
        "recovery": Recovery(**recovery),
    }
    return InNetworkConfig(**{**given, **settings})
