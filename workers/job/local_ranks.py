"""Several workers on one host: they combine their vectors in shared memory, and the first one takes part in the job.

The model is that of servers with several GPUs: the gradients of a server are added up inside of it, and one sum per
server goes to the network. Every collective is made in three steps:

1. Each worker writes its vector into memory that the first worker of the host, its *leader*, has mapped, and sends the
   leader the number and the text of its call. If they are not those of the leader, the call fails.
2. The leader combines the vectors in the order of their ranks, and takes part in the collective between hosts with the
   result, as the only worker of a host does.
3. It writes the outcome into memory that the others have mapped, and tells them to read it.

So all ranks of all hosts read the same bits. The leader writes its memory again only after all have sent their next
call, which they do after they have read the last outcome.

Each worker is a member of the job service. Errors, ends of processes and calls that differ therefore reach all workers
of the job as they do with one worker on each host.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fanin.workers.arguments import Array
from fanin.workers.collective import CollectiveError, StallError
from fanin.workers.engines.buffers import Buffers
from fanin.workers.host_based.tcp import TcpRing
from fanin.workers.job.environment import HOST, JOB
from fanin.workers.job.membership import (
    JoinError,
    LeftError,
    Member,
    Outsider,
    Service,
    addresses_of,
    ask,
    member_of,
    refuse_other_protocols,
)
from fanin.workers.job.ring_fallback import LeaseLostError
from fanin.workers.protocol import not_finite

_LOOK = 0.25  # longest time in seconds between checks for messages of the job service
_VERDICT_SECONDS = 3.0  # until the job service reports which rank is to blame
_LONGEST_MESSAGE = 1 << 14  # bytes; those of a call have at most _LONGEST_WHAT characters of text
_LONGEST_WHAT = 1000
_CREDENTIALS = struct.Struct("3i")  # struct ucred: process, user, group
_SMALLEST = 1 << 16  # bytes of a shared memory
_NO_ELEMENTS = np.zeros(0, np.int64)
# A worker's number on its host and their number, and what they are if nobody has set them.
_TORCHRUN = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


class _Memory:
    """Memory of this process that it can share with other processes of its host, in no file.

    Attributes:
        growths: How often it has grown. Each time, others have to map it again.
        descriptor: The descriptor by which others map it; negative if there is none.
    """

    def __init__(self) -> None:
        self._bytes = np.zeros(0, np.uint8)
        self.growths = 0
        self.descriptor = -1

    def room(self, size: int) -> NDArray[np.uint8]:
        """Return the first `size` bytes. Their content is lost if the memory has to grow."""
        if size > len(self._bytes):
            self.close()
            whole = max(_SMALLEST, 1 << (size - 1).bit_length())
            self.growths += 1
            self.descriptor = os.memfd_create("fanin", os.MFD_CLOEXEC)
            os.ftruncate(self.descriptor, whole)
            self._bytes = np.frombuffer(mmap.mmap(self.descriptor, whole), np.uint8)
        return self._bytes[:size]

    def close(self) -> None:
        """Close the descriptor. The memory stays for as long as somebody has it mapped."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class _Connection:
    """A connection between the leader and another worker of its host.

    Args:
        connected: The socket.
        rank: The rank at the other end.
        wait: Waits until the socket can be read; see LocalMember.
    """

    def __init__(self, connected: socket.socket, rank: int) -> None:
        self.rank = rank
        self.socket = connected
        self._theirs = np.zeros(0, np.uint8)
        self._mapped = 0  # growths of this end's memory that the other end has mapped

    def send(self, message: Mapping[str, Any], memory: _Memory) -> None:
        """Send a message about the content of `memory`. If the other end is gone, receive() notices it."""
        grown = [memory.descriptor] if memory.growths > self._mapped else []
        self._mapped = memory.growths
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self.socket, [json.dumps(message).encode()], grown)

    def receive(self) -> dict[str, Any]:
        """Return a message that has arrived, and map the memory that it is about.

        Raises:
            CollectiveError: If the other end has closed the connection.
        """
        try:
            text, descriptors, _, _ = socket.recv_fds(self.socket, _LONGEST_MESSAGE, 1)
        except ConnectionResetError:
            text, descriptors = b"", []
        for descriptor in descriptors:
            self._theirs = np.frombuffer(mmap.mmap(descriptor, 0), np.uint8)
            os.close(descriptor)
        if not text:
            raise CollectiveError(f"rank {self.rank} of this host has closed its connection")
        message: dict[str, Any] = json.loads(text)
        return message

    def read(self, size: int) -> NDArray[np.uint8]:
        """Return the first bytes of the memory of the other end."""
        return self._theirs[:size]


class LocalMember:
    """One of several workers of a host in a job; for the methods see Member.

    Args:
        place: The part of the leader in the job of the hosts; at other workers, the connection to the job service.
        service: The connection to the job service.
        local: This worker's number on its host; that of the leader is 0.
        processes: Process ids of the workers of this host, by their numbers.
        address: The name of the leader's socket.
        first_rank: The rank of the leader.
        workers: Number of workers of all hosts.
        listener: Where the leader accepts the others; None at the others.
        timeout: Seconds to wait for the other workers of this host.

    Raises:
        JoinError: If the workers of the host do not find each other.
    """

    exact = True  # see reducer.Membership: other protocols are refused

    def __init__(
        self,
        place: Member | Outsider,
        service: Service,
        local: int,
        processes: Sequence[int],
        address: str,
        first_rank: int,
        workers: int,
        listener: socket.socket | None,
        timeout: float,
    ) -> None:
        self.place = place
        self.rank = first_rank + local
        self.workers = workers
        self.per_host = len(processes)
        self.unsummed = _NO_ELEMENTS
        self.calls = place.calls
        self.calls.rank = self.rank
        self._service = service
        self._timeout = timeout
        self._mine = _Memory()  # input at other workers, outcomes at the leader
        self._sum = np.zeros(0, np.float32)
        self._others: list[_Connection] = []  # at the leader all others, at another worker the leader
        try:
            if listener is None:
                self._others.append(self._connected(address, processes[0], first_rank))
            else:
                self._accept(listener, processes, first_rank)
        except BaseException:
            self.close()
            raise

    @property
    def leads(self) -> bool:
        """Return whether this worker is the leader of its host."""
        return self.rank % self.per_host == 0

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """Return where the leader of each host may listen, by host."""
        return self.place.addresses

    def left(self, timeout: float = 0.0) -> list[str]:
        """Return which other workers have ended; see Member.left()."""
        return self.place.left(timeout)

    def sum_in_network(self, buffers: Buffers, call: str) -> None:
        """Sum on this host, and then in the network; see Member.sum_in_network().

        Raises:
            LeaseLostError: If the ring has to do this sum and all later ones. It is raised at all workers.
        """
        if not buffers.elements:
            return

        def carry_out(xs: Sequence[Array]) -> tuple[Array, dict[str, Any]]:
            result = self.room(buffers.x)
            try:
                self.place.sum_in_network(Buffers(self._sum_of(xs), result, buffers.bits), call)
            except LeaseLostError as lost:
                return result[:0], {"lost": str(lost)}
            except ValueError:
                refused = [rank for rank, x in enumerate(xs, self.rank) if not np.isfinite(x).all()]
                if not refused:  # the sum of the host is too large
                    raise
                return result[:0], {"refused": refused[0]}
            # Sums of the network are never NaN: here it marks the elements without one.
            result[self.place.unsummed] = np.nan
            return result, {"unsummed": len(self.place.unsummed) > 0}

        result, said = self.exchange(f"{call}: sum", buffers.x, carry_out)
        if lost := said.get("lost"):
            raise LeaseLostError(lost)
        if (refused := said.get("refused")) is not None:
            self._refuse(buffers.x, refused)
        if not said["unsummed"]:
            self.unsummed = _NO_ELEMENTS
            np.copyto(buffers.out, result)
            return
        self.unsummed = np.flatnonzero(np.isnan(result))
        own = buffers.x[self.unsummed]
        np.copyto(buffers.out, result)
        buffers.out[self.unsummed] = own

    def exchange(
        self,
        what: str,
        mine: Array,
        carry_out: Callable[[Sequence[Array]], tuple[Array, dict[str, Any]]],
    ) -> tuple[Array, dict[str, Any]]:
        """Give the leader this worker's array, and return what the leader makes of the arrays of its host.

        Args:
            what: The step, in words that must be the same at all workers.
            mine: This worker's array, flat.
            carry_out: Called at the leader with the arrays by rank. Returns the outcome, an array of the same type
                in memory of room(), and what else the workers have to know, in JSON's types.

        Returns:
            The outcome, in shared memory that is valid until the next exchange, and what else was said.

        Raises:
            CollectiveError: If another worker of the host is gone, does not come, or makes another call.
        """
        number = self.calls.count
        described = f"{what}, {mine.size:,} {mine.dtype}"
        digest = blake2b(f"{number} {described}".encode(), digest_size=16).hexdigest()
        step = {"call": number, "what": described[:_LONGEST_WHAT], "digest": digest}
        if not self.leads:
            [leader] = self._others
            self._mine.room(mine.nbytes)[:] = mine.view(np.uint8)
            leader.send(step, self._mine)
            self._await([leader], described)
            said = leader.receive()
            return leader.read(said["size"]).view(mine.dtype), said["said"]
        waiting = list(self._others)
        while waiting:
            for other in self._await(waiting, described):
                self._compare(step, other.receive(), other.rank)
                waiting.remove(other)
        outcome, said = carry_out([mine, *(o.read(mine.nbytes).view(mine.dtype) for o in self._others)])
        for other in self._others:
            other.send({"size": outcome.nbytes, "said": said}, self._mine)
        return outcome, said

    def room(self, like: Array) -> Array:
        """Return shared memory for an outcome of the size and type of an array."""
        return self._mine.room(like.nbytes).view(like.dtype)

    def close(self) -> None:
        """Leave the job."""
        for other in self._others:
            other.socket.close()
        self._mine.close()
        self.place.close()

    def _sum_of(self, xs: Sequence[Array]) -> NDArray[np.float32]:
        """Return the sum of arrays in the order of their ranks, in memory that the next sum uses again."""
        if len(self._sum) < len(xs[0]):
            self._sum = np.empty(len(xs[0]), np.float32)
        total = self._sum[: len(xs[0])]
        combine_into(total, np.add, xs)
        return total

    def _refuse(self, x: Array, rank: int) -> NoReturn:
        """Raise an error at the rank that has a value that cannot be summed; the others wait for that one's."""
        if rank == self.rank:
            index = int(np.argmin(np.isfinite(x)))
            raise ValueError(not_finite(index, x[index]))
        self.left(_VERDICT_SECONDS)
        raise CollectiveError(f"rank {rank} of this host has a value that cannot be summed")

    def _compare(self, mine: Mapping[str, Any], theirs: Mapping[str, Any], rank: int) -> None:
        """Raise an error if another worker is in another call.

        The job service compares the calls of all workers, of other hosts too, and finds out who differs.
        """
        if mine["digest"] == theirs["digest"]:
            return
        self.calls.report()
        self.left(_VERDICT_SECONDS)
        raise CollectiveError(
            f"the workers make different calls. rank {rank}: call {theirs['call']}, {theirs['what']}; "
            f"rank {self.rank}: call {mine['call']}, {mine['what']}"
        )

    def _await(self, others: Sequence[_Connection], what: str) -> list[_Connection]:
        """Wait until some connections can be read, and return them.

        A worker that waits for its leader cannot see the progress of the others. The job service can: as long as it
        finds nobody who does not come, there is progress, or the leader gives up.

        Raises:
            StallError: If nothing comes.
        """
        poll = select.poll()
        poll.register(self._service.fileno(), select.POLLIN)
        by_descriptor = {other.socket.fileno(): other for other in others}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        ranks = {other.rank for other in others}
        ended: list[str] = []
        began = time.monotonic()
        while True:
            ready = [by_descriptor[each] for each, _ in poll.poll(_LOOK * 1000) if each in by_descriptor]
            if ready:
                return ready
            if ended:
                raise LeftError(f"{ended[0]} ended while rank {self.rank} waits for it: {what}")
            self.left()
            # Children of a process that has ended may keep its connection open.
            ended = [told for rank, told in self.place.messages.left.items() if rank in ranks]
            seconds = time.monotonic() - began
            if seconds > self._timeout and (self.leads or self.calls.slow):
                late = ", ".join(map(str, sorted(ranks)))
                raise StallError(
                    f"rank {self.rank} has waited {seconds:.0f} s for rank {late} of its host: {what}"
                )

    # -- finding each other ----------------------------------------------------------------------------------

    def _connected(self, address: str, process: int, rank: int) -> _Connection:
        """Connect to the leader, which has listened since before it joined."""
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection = _Connection(connected, rank)
        try:
            connected.connect(address)
            if _process_at(connected) != process:
                raise JoinError(f"another process than {process}, the first worker of this host, answers")
            connection.send({"local": self.rank - rank}, self._mine)
        except OSError as error:
            connected.close()
            raise JoinError(
                f"process {process}, the first worker of this host, does not answer: {error}"
            ) from error
        except BaseException:
            connected.close()
            raise
        return connection

    def _accept(self, listener: socket.socket, processes: Sequence[int], first_rank: int) -> None:
        deadline = time.monotonic() + self._timeout
        listener.settimeout(_LOOK)
        while (missing := len(processes) - 1 - len(self._others)) > 0:
            if left := self.left():
                raise JoinError(f"{left[0]} ended before the job began")
            if time.monotonic() > deadline:
                raise JoinError(f"{missing} workers of this host did not connect within {self._timeout:g} s")
            try:
                connected, _ = listener.accept()
            except TimeoutError:
                continue
            connected.settimeout(self._timeout)
            process = _process_at(connected)
            if process not in processes:  # nobody of this job
                connected.close()
                continue
            self._others.append(_Connection(connected, first_rank))
            local = int(self._others[-1].receive()["local"])
            if process != processes[local]:
                raise JoinError(f"process {process} of this host has the place of process {processes[local]}")
            self._others[-1].rank += local
        self._others.sort(key=lambda other: other.rank)


class LocalRing:
    """The ring of the hosts for all their workers; for the methods see TcpRing.

    Args:
        member: This worker.
        connect: Returns the ring of the leaders; called at the leader when it is first needed.
    """

    def __init__(self, member: LocalMember, connect: Callable[[], TcpRing]) -> None:
        self._member = member
        self._connect = connect
        self._hosts: TcpRing | None = None

    def all_reduce(self, array: Array, combine: np.ufunc, call: str) -> None:
        """Combine the arrays of all ranks element by element, in place."""

        def carry_out(arrays: Sequence[Array]) -> tuple[Array, dict[str, Any]]:
            result = self._member.room(array)
            combine_into(result, combine, arrays)
            self._of_hosts().all_reduce(result, combine, call)
            return result, {}

        np.copyto(array, self._member.exchange(f"{call}: {combine.__name__} of all", array, carry_out)[0])

    def reduce_scatter(self, array: Array, combine: np.ufunc, call: str) -> None:
        """Compute this rank's part of all_reduce() in place; the rest of the array does not matter."""
        member = self._member

        def carry_out(arrays: Sequence[Array]) -> tuple[Array, dict[str, Any]]:
            result = member.room(array)
            combine_into(result, combine, arrays)
            self._of_hosts().reduce_scatter(result, combine, call)
            return result, {}

        result, _ = member.exchange(f"{call}: {combine.__name__} in parts", array, carry_out)
        mine = self._parts(array)[member.rank]
        mine[:] = self._parts(result)[member.rank]

    def all_gather(self, array: Array, call: str) -> None:
        """Copy each rank's part of the array to all ranks."""
        member = self._member
        parts = self._parts(array)

        def carry_out(mine: Sequence[Array]) -> tuple[Array, dict[str, Any]]:
            result = member.room(array)
            np.concatenate(mine, out=self._parts(result)[member.rank : member.rank + len(mine)].reshape(-1))
            self._of_hosts().all_gather(result, call)
            return result, {}

        np.copyto(array, member.exchange(f"{call}: gathered", parts[member.rank], carry_out)[0])

    def close(self) -> None:
        """Close the connections of the leader."""
        if self._hosts is not None:
            self._hosts.close()

    def _of_hosts(self) -> TcpRing:
        if self._hosts is None:
            self._hosts = self._connect()
        return self._hosts

    def _parts(self, array: Array) -> Array:
        """Return an array, whose size is a multiple of the number of ranks, by rank: [workers, elements]."""
        return array.reshape(self._member.workers, -1)


def combine_into(total: Array, combine: np.ufunc, arrays: Sequence[Array]) -> None:
    """Combine arrays element by element, in the order of their ranks; infinities come out as IEEE 754 has them."""
    with np.errstate(over="ignore", invalid="ignore"):
        combine(arrays[0], arrays[1], out=total)
        for array in arrays[2:]:
            combine(total, array, out=total)


def place_on_host(workers: int | None) -> tuple[int, int]:
    """Return this worker's number on its host, and the number of workers on each host, from torchrun's variables.

    Args:
        workers: Number of workers of all hosts. None: that of the network's hosts, each with one worker.

    Raises:
        ValueError: If the variables contradict each other.
    """
    local, per_host = (int(os.environ.get(name, default)) for name, default in _TORCHRUN.items())
    if workers is None:
        return 0, 1
    if per_host < 1 or workers % per_host or not 0 <= local < per_host:
        raise ValueError(
            f"WORLD_SIZE is {workers}, LOCAL_WORLD_SIZE {per_host} and LOCAL_RANK {local}: each host has the same "
            "number of workers, numbered from 0"
        )
    return local, per_host


def join_local(
    workers: int,
    local: int,
    per_host: int,
    timeout: float,
    *,
    ring: bool,
    slot_share: int | None = None,
    **settings: Any,
) -> LocalMember:
    """Join a job with several workers on each host, once all have come.

    Args:
        workers: Number of workers; those of a host follow each other.
        local: This worker's number on its host.
        per_host: Number of workers on each host.
        timeout: Seconds to wait for the others, here and in every operation.
        ring: Whether the job continues with the ring if it gets no lease, or loses it.
        slot_share: See fanin.init().
        **settings: Fields of InNetworkConfig, which replace those that suit the network.

    Raises:
        JoinError: If there is no network, the place is taken, or other workers did not come.
    """
    listener = listen(local_address(os.getpid())) if local == 0 else None
    try:
        asked = {
            "hosts": workers // per_host,
            "job": None,
            "slots": None,
            "slot_share": slot_share,
            "ring": ring,
            "per_host": per_host,
            "local": local,
        }
        service, assignment = ask(asked, timeout)
        refuse_other_protocols(assignment, "a job with several workers on a host")
        rank = int(assignment["rank"])
        if assignment["config"] is None:
            why = f"no lease: {assignment['refused']}"
            place: Member | Outsider = Outsider(rank // per_host, addresses_of(assignment), why, service)
        else:
            place = member_of(service, assignment, timeout, settings, ring=ring)
        processes = [int(each) for each in assignment["processes"]]
        address = local_address(processes[0])
        return LocalMember(
            place, service, local, processes, address, rank - local, workers, listener, timeout
        )
    finally:
        if listener is not None:
            listener.close()


def listen(address: str) -> socket.socket:
    """Return a socket where a leader accepts the other workers of its host, which it begins to do before it joins.

    Raises:
        JoinError: If the address is taken.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise JoinError(
            f"the workers of this host cannot connect to process {os.getpid()}: {error}"
        ) from None
    return listener


def local_address(process: int) -> str:
    """Return the abstract name of the leader's socket, which only this host's network namespace has.

    Args:
        process: The leader's process id.
    """
    job = os.environ.get(JOB, ""), os.environ.get(HOST, "")
    return f"\0fanin-{process}-{blake2b(repr(job).encode(), digest_size=16).hexdigest()}"


def _process_at(connected: socket.socket) -> int:
    """Return the process at the other end of a connection."""
    credentials = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(credentials)[0])
