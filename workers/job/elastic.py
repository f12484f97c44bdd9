"""A job that continues without workers that have ended: consecutive groups of workers, and how they agree.

The model is that of MPI_Comm_shrink and of elastic jobs of PyTorch and Horovod. Whenever a worker ends, the job service
holds a *round*:

1. It tells all remaining workers to stop. Each closes its sockets, and then reports how many operations it has
finished. From then on it finishes none; old packets and connections reach nobody.
2. When all have reported, the service gives the remaining workers a new lease, and sends them the new group and all
numbers. An operation is finished only if all of the group have begun it, and so have finished the one before: the
numbers differ by at most one. If they differ, the workers that are behind get the results from the first of the others;
so all have the same results, over the values of the old group. If they do not differ, nobody has a result of the
interrupted operation.
3. The next operation, or the interrupted one, is carried out in the new group, from the callers' arrays, which nobody
has written to. Its packets have another lease, and its connections are new.

If another worker ends during a round, a new round begins. The numbers only grow, by what step 2 has delivered.

A restarted worker joins at a point that the program chooses: all workers call regroup(), which is an operation like any
other. Once all of the group are in it, the service either reports that nobody waits, or holds a round in which the
joiner gets its place. The joiner starts with as many finished operations as the others. Messages of the service reach
all workers in the same order. So all workers that receive the announcement of a round after the answer to regroup()
have finished that operation, with the same result. A worker that has not entered a group before the next round gets the
result from one that has.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.workers.collective import CollectiveError, StallError
from fanin.workers.engines.buffers import Buffers
from fanin.workers.job.calls import Calls
from fanin.workers.job.membership import (
    LeftError,
    Service,
    addresses_of,
    ask,
    config_of,
    refuse_other_protocols,
)
from fanin.workers.job.ring_fallback import LeaseLostError
from fanin.workers.udp import InNetworkAllReduce, InNetworkConfig

Array = NDArray[Any]

_LOOK = 0.25  # longest time in seconds between checks for messages of the service
_JOINED, _NOBODY = np.ones(1), np.zeros(1)  # results of meet()
_NEWS_SECONDS = 5.0  # until it is known whether a peer that closed its connection has ended


class RegroupError(CollectiveError):
    """A change of the group, after which another group has to repeat the interrupted operation."""


class _Aggregation(InNetworkAllReduce):
    """A group's sums in the network, which end when Elastic.left() reports a change."""

    def __init__(self, config: InNetworkConfig, elastic: Elastic) -> None:
        super().__init__(config)
        self._elastic = elastic

    def _send(self) -> None:
        super()._send()
        self._elastic.left()


class Elastic:
    """One worker's part in a job that continues without workers that have ended; see also membership.Member.

    Args:
        service: The connection to the job service.
        assignment: The service's answer to the request to join.
        timeout: Seconds to wait for other workers.
        settings: Fields of InNetworkConfig that replace the assigned ones.

    Attributes:
        rank: This worker's number in the present group.
        addresses: Where each rank of the present group may listen, by rank.
        hosts: The hosts of the present group, by rank.
        why: Why the last round took place; empty before the first round.
        calls: This worker's calls.
        out: Whether this worker is no longer in a group.
    """

    exact = True  # see reducer.Membership: other protocols are refused

    def __init__(
        self,
        service: Service,
        assignment: Mapping[str, Any],
        timeout: float,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._service = service
        self._timeout = timeout
        self._settings = settings or {}
        self._round = int(assignment.get("round", 0))  # the last one announced
        self.why = ""
        self._waits = "the job service has sent nothing"
        self._next: Mapping[str, Any] = {}
        self._kept: Sequence[Array] = ()  # the results of the last operation
        self._finished = int(assignment.get("begun", 0))
        self.calls = Calls(service.send, int(assignment["rank"]), self._finished, service.send_or_drop)
        if (
            self._finished
        ):  # another worker may need the result of the regroup() in which this worker has joined
            self._kept = [_JOINED]
        self._met = -1  # the last round after which a regroup() ended without a joiner
        self._aggregation: _Aggregation | None = None
        self._entered = 0
        self.enter(assignment)

    def enter(self, group: Mapping[str, Any]) -> None:
        """Enter a group."""
        self._entered = self._round
        self._refused = str(group["refused"])
        self.out = "rank" not in group
        if self.out:
            return
        self.rank = self.calls.rank = int(group["rank"])
        self.addresses = addresses_of(group)
        self.hosts = tuple(map(str, group["hosts"]))
        if group["config"] is not None:
            self._aggregation = _Aggregation(config_of(group["config"], self._timeout, self._settings), self)

    @property
    def workers(self) -> int:
        """Return the number of workers in the group."""
        return len(self.addresses)

    def sum_in_network(self, buffers: Buffers, call: str) -> None:
        """Sum in the network; see InNetworkAllReduce.

        Raises:
            LeaseLostError: If the group has no lease.
            RegroupError: If the group has changed.
        """
        if self._aggregation is None:
            raise LeaseLostError(f"no lease: {self._refused}")
        self._aggregation.sum_in_network(buffers, call)

    @property
    def unsummed(self) -> NDArray[np.int64]:
        """Return the elements of the last sum that have no sum; see InNetworkAllReduce."""
        assert self._aggregation
        return self._aggregation.unsummed

    def left(self, timeout: float = 0.0) -> list[str]:
        """Return an empty list if nobody of the group has ended, after waiting `timeout` seconds for news.

        Raises:
            RegroupError: If a worker has ended, so that there will be another group.
            LeftError: If too few workers are left.
            AbortedError: If a call has failed.
            JoinError: If the network has ended.
        """
        if self.out:
            raise LeftError(self._refused)
        self._watch(self._entered, timeout)
        return []

    def begin(self) -> None:
        """Check that an operation can begin in this group.

        Raises:
            RegroupError: See left().
            AbortedError: See left().
            JoinError: See left().
        """
        self.left()

    def meet(self) -> Array:
        """Wait until the whole group has called this, and nobody waits to join or a round begins.

        Raises:
            RegroupError: See left().
            AbortedError: See left().
            JoinError: See left().
            StallError: If other workers have not come in time.
        """
        self._met = -1
        self._service.send({"meeting": self._entered})
        deadline = time.monotonic() + self._timeout
        while self._met != self._entered:
            if self._round > self._entered:
                raise RegroupError(self.why)
            if (left := deadline - time.monotonic()) <= 0:
                raise StallError(
                    f"rank {self.rank} of {self.workers}: others have not come to regroup() for {self._timeout:g} s"
                )
            # A round that is announced after the answer concerns the next operation.
            self._listen(min(left, _LOOK))
        return _NOBODY

    def keep(self, results: Sequence[Array]) -> None:
        """Record that an operation is finished, and keep its results for workers that may not get them."""
        self._finished += 1
        self._kept = results

    def regroup(self) -> tuple[Mapping[str, Any], Sequence[Array] | None]:
        """Agree on the next group with all its workers.

        Returns:
            The group; and the results of the interrupted operation if other workers have finished it, otherwise None.

        Raises:
            StallError: If other workers have not come to their next operation.
            LeftError: If too few workers are left.
        """
        self._stop()
        while True:
            number = self._round
            with (
                suppress(RegroupError),  # then try again
                socket.create_server((self.addresses[self.rank][0], 0)) as listener,
            ):
                self._service.send({"finished": [self._finished, listener.getsockname()[1]], "round": number})
                group = self._group(number)
                finished = [(str(host), int(count), int(port)) for host, count, port in group["finished"]]
                most = max(count for _, count, _ in finished)
                giver, _, port = next(each for each in finished if each[1] == most)
                if self._finished < most:
                    return group, self._take(self._address(group, giver), port)
                if giver == self.hosts[self.rank] and (
                    behind := sum(count < most for _, count, _ in finished)
                ):
                    self._give(listener, behind)
                if group["joined"]:  # all workers were waiting for this in regroup()
                    self.keep([_JOINED])
                    return group, self._kept
                return group, None

    def leave(self) -> None:
        """Leave the job once the others have all results that this worker has finished."""
        self._service.send({"leaving": True})
        while not self.out:
            with suppress(RegroupError):
                self.left(self._timeout)
                return
            group, _ = self.regroup()
            self.enter(group)

    def close(self) -> None:
        """Close all connections."""
        self._stop()
        self._service.close()

    # -- one round -------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        if self._aggregation is not None:
            self._aggregation.close()
        self._aggregation = None

    def _group(self, number: int) -> Mapping[str, Any]:
        deadline = time.monotonic() + self._timeout
        self._next = {}
        while True:
            left = deadline - time.monotonic()
            self._listen(min(max(left, 0.0), _LOOK))
            if self._round > number:
                raise RegroupError(self.why)
            if self._next.get("round") == number:
                return self._next
            if left <= 0:
                raise StallError(
                    f"rank {self.rank} of {self.workers}: {self.why}, and {self._waits} for {self._timeout:g} s"
                )

    def _address(self, group: Mapping[str, Any], host: str) -> str:
        """Return the address of a host of the old or the new group."""
        addresses = dict(zip(self.hosts, self.addresses, strict=True))
        if "rank" in group:
            addresses |= zip(group["hosts"], addresses_of(group), strict=True)
        return addresses[host][0]

    def _take(self, host: str, port: int) -> Sequence[Array]:
        try:
            with (
                socket.create_connection((host, port), self._timeout) as connection,
                connection.makefile("rb") as said,
            ):
                received = io.BytesIO(said.read())
            [count] = np.lib.format.read_array(received)
            results = [np.lib.format.read_array(received) for _ in range(count)]
        except (OSError, ValueError) as error:
            self._watch(self._round, _NEWS_SECONDS)
            raise CollectiveError(
                f"rank {self.rank}: {host} had finished an operation in the middle of which {self.why}, and its result "
                f"did not come: {error}"
            ) from error
        self.keep(results)
        return results

    def _give(self, listener: socket.socket, behind: int) -> None:
        results = io.BytesIO()
        for array in (np.array([len(self._kept)]), *self._kept):
            np.lib.format.write_array(results, array, allow_pickle=False)
        deadline = time.monotonic() + self._timeout
        listener.settimeout(_LOOK)
        while behind and time.monotonic() < deadline:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                self._watch(self._round, 0.0)
                continue
            connection.settimeout(self._timeout)
            with connection, suppress(OSError):
                connection.sendall(results.getbuffer())
                behind -= 1

    # -- messages of the service -----------------------------------------------------------------------------

    def _watch(self, number: int, timeout: float) -> None:
        """Raise RegroupError if a round after this one is announced, after waiting `timeout` seconds for news."""
        deadline = time.monotonic() + timeout
        while True:
            left = max(deadline - time.monotonic(), 0.0)
            self._listen(left)
            if self._round > number:
                raise RegroupError(self.why)
            if not left:
                return

    def _listen(self, timeout: float) -> None:
        self.calls.look()
        while (message := self._service.receive(timeout)) is not None:
            match message:
                case {"regroup": {"round": int(number), "why": str(why)}}:
                    self._round, self.why = number, why
                case {"group": dict(group)}:
                    self._next = group
                case {"met": int(number)}:
                    self._met = number
                case {"waiting_for": list(missing)}:
                    self._waits = f"the workers on {', '.join(missing)} have not come to their next operation"
                case {"error": str(why)}:
                    raise LeftError(why)
                case _:
                    self.calls.receive(message)
            timeout = 0.0


def join_elastic(
    workers: int | None, min_workers: int, timeout: float, *, slot_share: int | None = None, **settings: Any
) -> Elastic:
    """Join a job that continues as long as enough workers are left, and return this host's part.

    Args:
        workers: Number of hosts. None: all of them.
        min_workers: The job continues as long as this many workers are left.
        timeout: Seconds to wait for other workers.
        slot_share: See fanin.init().
        **settings: See membership.join().

    Raises:
        JoinError: See membership.join().
    """
    asked = {
        "hosts": workers,
        "job": None,
        "slots": None,
        "slot_share": slot_share,
        "ring": True,
        "min_workers": min_workers,
    }
    service, assignment = ask(asked, timeout)
    try:
        refuse_other_protocols(assignment, "a job with min_workers")
        return Elastic(service, assignment, timeout, settings)
    except BaseException:
        service.close()
        raise
