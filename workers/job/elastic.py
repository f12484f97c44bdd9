"""A job that goes on without workers that have ended: groups, one after the other, and how they agree.

As MPI_Comm_shrink and elastic jobs of PyTorch and Horovod. Whenever a worker ends, the job service has a *round*:

1. It tells all who are left to stop. Each closes its sockets, and only then says how many operations it has finished.
   From there on it finishes nothing; what old packets and connections still bring reaches nobody.
2. When all have said so, the service gives those who are left a lease of their own, and tells them the new group and
   all numbers. An operation is finished only if all of the group have begun it, and so have finished the one before:
   the numbers differ by one at most. If they do, those behind get the results of the first of the others; so all have
   the same, over the values of the group before. If not, nobody has a result of the operation that was under way.
3. The next operation, or the one under way, is carried out in the new group, from the callers' arrays, which nobody has
   written to. Its packets have another lease, its connections are new.

If another one ends in the middle of a round there is a new one; numbers only grow, by what step 2 has brought.

A worker that has been started again joins where the program has a place for it: all call regroup(), which is an
operation as others are. Once all of the group are in it, the service says that nobody waits, or has a round in which
the joiner gets its place; it begins with as many operations finished as the others. What the service says reaches all
in the same order, so all who hear of a round behind its answer have finished that operation, with the same result;
one that has not looked at a group before the next round gets the result from one that has.
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
from fanin.workers.job.membership import LeftError, Service, addresses_of, ask, config_of
from fanin.workers.job.ring_fallback import LeaseLostError
from fanin.workers.udp import InNetworkAllReduce, InNetworkConfig

Array = NDArray[Any]

_LOOK = 0.25  # seconds, at most, between looks at what the service says
_JOINED, _NOBODY = np.ones(1), np.zeros(1)  # results of meet()
_NEWS_SECONDS = 5.0  # after which it is known whether a peer that has hung up has ended


class RegroupError(CollectiveError):
    """What is under way is to be done again by another group."""


class _Aggregation(InNetworkAllReduce):
    """A group's sums in the network; `watch` ends them."""

    def __init__(self, config: InNetworkConfig, elastic: Elastic) -> None:
        super().__init__(config)
        self._elastic = elastic

    def _send(self) -> None:
        super()._send()
        self._elastic.left()


class Elastic:
    """One worker's part in such a job. For what else there is, see membership.Member.

    rank, workers, addresses, hosts: this worker's, and everybody's by rank, in the present group. why: there is another
    group than before. calls: this worker's. out: there is none for this worker any more.
    """

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
        self._round = int(assignment.get("round", 0))  # of which it was told last
        self.why = ""
        self._waits = "the job service says nothing"
        self._next: Mapping[str, Any] = {}
        self._kept: Sequence[Array] = ()  # the results of the last operation
        self._finished = int(assignment.get("begun", 0))
        self.calls = Calls(service.say, int(assignment["rank"]), self._finished)
        if self._finished:  # somebody may need the result of the regroup() in which this worker has joined
            self._kept = [_JOINED]
        self._met = -1  # the round after which nobody has joined in regroup()
        self._aggregation: _Aggregation | None = None
        self._entered = 0
        self.enter(assignment)

    def enter(self, group: Mapping[str, Any]) -> None:
        """From now on it is in this group."""
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
        """How many are in the group."""
        return len(self.addresses)

    def sum(self, buffers: Buffers, call: str) -> None:
        """See InNetworkAllReduce.

        Raises:
            LeaseLostError: the group has no lease. RegroupError: it is another one.
        """
        if self._aggregation is None:
            raise LeaseLostError(f"no lease: {self._refused}")
        self._aggregation.sum(buffers, call)

    @property
    def unsummed(self) -> NDArray[np.int64]:
        """See InNetworkAllReduce."""
        assert self._aggregation
        return self._aggregation.unsummed

    def left(self, timeout: float = 0.0) -> list[str]:
        """Nobody of the group, as far as is known after waiting `timeout` seconds for news.

        Raises:
            RegroupError: somebody, so it is the group no longer. LeftError: too few are left. AbortedError: a call has
                failed. JoinError: the network has ended.
        """
        if self.out:
            raise LeftError(self._refused)
        self._watch(self._entered, timeout)
        return []

    def begin(self) -> None:
        """An operation, in this group.

        Raises:
            RegroupError, AbortedError, JoinError: see left().
        """
        self.left()

    def meet(self) -> Array:
        """Wait until all of the group have come to this: nobody waits to join it, or there is a round.

        Raises:
            RegroupError, AbortedError, JoinError: see left(). StallError: others have not come.
        """
        self._met = -1
        self._service.say({"meeting": self._entered})
        deadline = time.monotonic() + self._timeout
        while self._met != self._entered:
            if self._round > self._entered:
                raise RegroupError(self.why)
            if (left := deadline - time.monotonic()) <= 0:
                raise StallError(
                    f"rank {self.rank} of {self.workers}: others have not come to regroup() for {self._timeout:g} s"
                )
            # A round of which it hears behind the answer is for the next operation.
            self._listen(min(left, _LOOK))
        return _NOBODY

    def keep(self, results: Sequence[Array]) -> None:
        """An operation is finished; somebody may not get these results, and ask for them."""
        self._finished += 1
        self._kept = results

    def regroup(self) -> tuple[Mapping[str, Any], Sequence[Array] | None]:
        """The next group, once all agree, and if others have finished the operation that is under way, its results.

        Raises:
            StallError: others have not come to their next operation. LeftError: too few are left.
        """
        self._stop()
        while True:
            number = self._round
            with (
                suppress(RegroupError),  # and once more
                socket.create_server((self.addresses[self.rank][0], 0)) as listener,
            ):
                self._service.say({"finished": [self._finished, listener.getsockname()[1]], "round": number})
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
                if group["joined"]:  # which is what all of them were waiting for
                    self.keep([_JOINED])
                    return group, self._kept
                return group, None

    def leave(self) -> None:
        """End, once the others have all that this worker has finished."""
        self._service.say({"leaving": True})
        while not self.out:
            with suppress(RegroupError):
                self.left(self._timeout)
                return
            group, _ = self.regroup()
            self.enter(group)

    def close(self) -> None:
        """Hang up."""
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
        """Of one who has left the group before, or has joined this one, too."""
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

    # -- what the service says -------------------------------------------------------------------------------

    def _watch(self, number: int, timeout: float) -> None:
        """RegroupError if there is a round after this one, as far as is known after waiting `timeout` seconds."""
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
        while (message := self._service.hear(timeout)) is not None:
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
                    self.calls.hear(message)
            timeout = 0.0


def join_elastic(workers: int | None, min_workers: int, timeout: float, **settings: Any) -> Elastic:
    """This host's part in a job of so many hosts (None: all) that goes on as long as `min_workers` are left.

    settings: see membership.join().

    Raises:
        JoinError: see membership.join().
    """
    asked = {"hosts": workers, "job": None, "slots": None, "ring": True, "min_workers": min_workers}
    service, assignment = ask(asked, timeout)
    try:
        return Elastic(service, assignment, timeout, settings)
    except BaseException:
        service.close()
        raise
