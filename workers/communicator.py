"""The collective operations of one worker in a job, under the names of MPI and torch.distributed.

Sums of float32, float16 and integers, gathers, scatters, broadcasts and barriers go through the switches. Operations
that the switches cannot do (float64, maxima, minima, and compressed vectors) use a ring of TCP connections between the
hosts, which is opened when it is first needed.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar, overload

import numpy as np

from fanin.native.text import MAX_NAME
from fanin.workers.arguments import (
    Array,
    Operation,
    as_given,
    bytes_of,
    described,
    flattened,
    listed,
    reduction,
    split,
)
from fanin.workers.collective import Closing, CollectiveError, StallError
from fanin.workers.engines.buffers import Buffers
from fanin.workers.job.calls import AbortedError, Calls, RefusedError, collective
from fanin.workers.job.elastic import Elastic, RegroupError
from fanin.workers.job.membership import LeftError, Outsider, join_or_ring
from fanin.workers.prepared_calls import PreparedCalls
from fanin.workers.reducer import COMBINE, Membership, Reducer, plain_sum
from fanin.workers.values import quantization
from fanin.workers.values.compressed import Compressed
from fanin.workers.values.compression import Compression

# A quarter: a mesh of two by two, in which a leaf's switch may need slots for three groups, leaves some for others.
_SHARE_OF_GROUP = 4
_NEWS_SECONDS = 1.0  # until it is known whether a peer that closed its connection has ended

NonFinite = Literal["refuse", "propagate"]
Bits = Literal[16, 32]

_T = TypeVar("_T")
_X = TypeVar("_X", Array, list[Array])


class Handle(Generic[_T]):
    """An operation begun with async_op=True. Do not change its arrays until it is done."""

    def __init__(self, future: Future[_T], calls: Calls) -> None:
        self._future = future
        self._calls = calls

    def done(self) -> bool:
        """Return whether the operation has ended, with a result or an error."""
        return self._future.done()

    def wait(self, limit: float | None = None) -> _T:
        """Wait until the operation is done, and return its result or raise its error.

        Args:
            limit: Seconds to wait. None: until it is done.

        Raises:
            StallError: If it takes longer. The calls of all workers have then ended.
        """
        if not self._future.done():
            self._calls.waits = time.monotonic()
        try:
            if limit is not None and not wait_for([self._future], limit).done:
                slow = f"; {self._calls.slow} did not come" if self._calls.slow else ""
                raise StallError(f"the call has not ended within its timeout of {limit:g} s{slow}")
            return self._future.result()
        except BaseException as error:  # including Ctrl-C, after which the caller may change the arrays
            self._calls.abort(error, self._calls.count, "which it waited for")
            raise
        finally:
            self._calls.waits = None

    def add_done_callback(self, call: Callable[[Handle[_T]], object]) -> None:
        """Register a function to be called with this handle once the operation has ended.

        It is called before the next operation begins, or at once if this one has already ended. If the
        function starts operations on the communicator, these are carried out before others that still wait.
        """
        self._future.add_done_callback(lambda _: call(self))


@dataclass(slots=True)
class Request(Generic[_T]):
    """A call that is ready to be carried out.

    Attributes:
        what: The call, in words that must be the same at all workers.
        needs_others: Whether there is anything to send.
        attempt: Computes everything that the worker may need, into the arrays it is given, or into new arrays for None.
            In a job with groups, it computes the same at all workers. It writes to no other array of the caller.
        outs: Where the results go; None for new arrays.
        deliver: Turns the results into what the call returns.
        plain: The memory of a sum into `outs` that needs no more than Reducer.sum(); None for any other operation.
    """

    what: str
    needs_others: bool
    attempt: Callable[[Sequence[Array | None]], list[Array]]
    outs: Sequence[Array | None]
    deliver: Callable[[list[Array]], _T]
    plain: Buffers | None = None

    def placed(self, results: Sequence[Array]) -> list[Array]:
        """Return copies of the results, made in `outs`; the originals are kept for other workers."""
        outs = [
            np.empty_like(each) if out is None else out for each, out in zip(results, self.outs, strict=True)
        ]
        for each, out in zip(results, outs, strict=True):
            out[...] = each
        return outs


class Communicator(Closing):
    """One worker's end of a job.

    Every worker makes the same calls in the same order, with arrays of the same shapes, and from one thread at a time.

    If `x` is a list of arrays, those of one type travel as one vector, and a list is returned. With async_op=True a
    call returns a Handle at once; operations are carried out in the order of the calls. Workers whose calls differ in
    the operation, its arguments, types or shapes get a CollectiveError, and never a wrong result.

    After a call has raised an error at any worker (including TypeError and ValueError for its arguments), the job can
    make no more calls. Each further call, at all workers, raises AbortedError, which names the worker, its call and its
    error (workers/job/calls.py).

    In a job with min_workers, an operation during which a worker ends is repeated without that worker, from arrays that
    nobody has written to. Workers whose ranks change have their new ranks when the operation returns (elastic.py).

    Attributes:
        rank: This worker's number.
        size: Number of workers.
        calls: The calls of this worker.
        timeout: Seconds to wait for other workers.

    Args:
        place: The worker's membership in the job.
        timeout: Seconds to wait for other workers.
        in_network: See fanin.init().
        non_finite: See fanin.init().
        half_bits: See fanin.init().
        job: The job's name; None if it has none, or the name is not known.
        settings: Fields of InNetworkConfig with which the worker has joined, for its groups.
    """

    def __init__(
        self,
        place: Membership,
        timeout: float,
        in_network: Literal["preferred", "required"] = "preferred",
        non_finite: NonFinite = "refuse",
        half_bits: Bits = 32,
        job: str | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.rank = place.rank
        self.size = place.workers
        self.calls = place.calls
        self.timeout = timeout
        self._job = job
        self._settings = settings
        self._non_finite: NonFinite = non_finite
        self._half_bits: Bits = half_bits
        self._place = place
        self._required = in_network == "required"
        self._reducer = Reducer(place, timeout, propagate=non_finite == "propagate", half_bits=half_bits)
        self._prepared: PreparedCalls[Request[Any]] = PreparedCalls(self._allreduce_request)
        self._thread: ThreadPoolExecutor | None = None
        self._background = 0  # that thread's identifier
        self._turn = threading.RLock()
        self._begun = False  # an operation in that thread may be unfinished
        self._closed = False
        self._new = True
        self._elastic = place if isinstance(place, Elastic) else None
        self._hosts = () if self._elastic is None else self._elastic.hosts

    def __repr__(self) -> str:
        job = "" if self._job is None else f", job {self._job}"
        return f"<fanin.Communicator: rank {self.rank} of {self.size}{job}>"

    # -- operations ------------------------------------------------------------------------------------------

    @overload
    def allreduce(
        self,
        x: _X,
        op: Operation = "sum",
        *,
        out: _X | None = None,
        bits: Bits | None = None,
        compression: Compression | None = None,
        async_op: Literal[False] = False,
    ) -> _X: ...

    @overload
    def allreduce(
        self,
        x: _X,
        op: Operation = "sum",
        *,
        out: _X | None = None,
        bits: Bits | None = None,
        compression: Compression | None = None,
        async_op: Literal[True],
    ) -> Handle[_X]: ...

    @collective
    def allreduce(
        self,
        x: Array | list[Array],
        op: Operation = "sum",
        *,
        out: Array | list[Array] | None = None,
        bits: Bits | None = None,
        compression: Compression | None = None,
        async_op: bool = False,
    ) -> Any:
        """Sum `x` over all workers, or compute the mean, maximum or minimum.

        Sum and mean of float32 and float16 (summed as float32) are made in the network, within the bound of
        quantization.py. Each worker sends and receives 4 bytes per element. Sums of integers are made in the network,
        too. They are exact, wrap as numpy's do, and cost twice their size (8-bit integers: four times). These use the
        ring and cost 2 (n - 1) / n times their size: float64, max and min, and integers of more than 64 workers.

        Args:
            x: An array, or a list of arrays.
            op: The operation.
            out: Where the result is written, of the same form as `x`; may be `x`. None allocates new arrays.
            bits: Bits of the integers as which float32 and float16 travel in the network. 16 halves the bytes. The
                error of n workers, 256 at most, is then up to n^2 / 65534 of a block's largest value; for short
                vectors, up to four times that. None: 32, or for float16 the setting of fanin.init(half_bits=…).
                Protocols other than fanin's own do not use it.
            compression: How to compress float32 and float16. All arrays are then one vector, which goes round the ring
                to all other workers at n - 1 times its size; each worker adds up what it receives.
            async_op: Whether to return a Handle at once.

        Returns:
            The result, of the form of `x`.

        Raises:
            TypeError: For an array that does not hold numbers, a mean of integers, or compression of other numbers.
            ValueError: If `out` does not fit; for float32 numbers that cannot be summed (NaN, infinities, 2^127 and
                more), unless the job propagates them; or if compression is combined with another `op` or
                in_network="required".
        """
        if compression is None:
            if not async_op and bits is None and (prepared := self._prepared.find(x, op, out)):
                if self._begun:
                    self._wait_for_background()
                self._carry_out(prepared)
                return out
            return self._begin(self._allreduce_request(x, op, out, bits), async_op=async_op)
        xs, outs, what = reduction(f"allreduce {op} by {compression}", op, x, out)
        if self._required:
            raise ValueError(
                "what is compressed is added up by the hosts: leave out compression, or in_network='required'"
            )
        attempt = partial(self._reducer.reduce_compressed, Compressed(compression, xs, op), what)
        request = Request(what, _any(xs), attempt, outs, as_given(x))
        return self._begin(request, async_op=async_op)

    @collective
    def allreduce_init(
        self, x: Array | list[Array], op: Operation = "sum", out: Array | list[Array] | None = None
    ) -> Request[Any]:
        """Prepare an allreduce() that can be carried out any number of times, like MPI_Allreduce_init.

        Args:
            x: An array, or a list of arrays.
            op: The operation.
            out: Where the result is written; see allreduce().

        Raises:
            TypeError: See allreduce(); errors that depend on the numbers are raised later.
            ValueError: See allreduce(); errors that depend on the numbers are raised later.
        """
        return self._allreduce_request(x, op, out)

    def _allreduce_request(
        self,
        x: Array | list[Array],
        op: Operation,
        out: Array | list[Array] | None,
        bits: Bits | None = None,
    ) -> Request[Any]:
        xs, outs, what = reduction(f"allreduce {op}{f' in {bits} bits' if bits else ''}", op, x, out)
        if bits not in (None, *quantization.MAX_WORKERS):
            raise ValueError(f"bits must be 16 or 32, not {bits!r}")
        if bits and self.size > (most := quantization.MAX_WORKERS[bits]):
            raise ValueError(f"bits={bits} is for {most} workers at most, not {self.size}")
        attempt = partial(self._reducer.reduce, xs, op, what, bits=bits)
        return Request(what, _any(xs), attempt, outs, as_given(x), plain_sum(xs, op, outs, bits))

    @property
    def bfloat16_bits(self) -> int:
        """Return the bits of the integers as which bfloat16, which numpy does not have, is to travel."""
        return self._reducer.bits_of_half(quantization.BFLOAT16)

    @overload
    def reduce(
        self,
        x: _X,
        root: int = 0,
        op: Operation = "sum",
        *,
        out: _X | None = None,
        async_op: Literal[False] = False,
    ) -> _X | None: ...

    @overload
    def reduce(
        self, x: _X, root: int = 0, op: Operation = "sum", *, out: _X | None = None, async_op: Literal[True]
    ) -> Handle[_X | None]: ...

    @collective
    def reduce(
        self,
        x: Array | list[Array],
        root: int = 0,
        op: Operation = "sum",
        *,
        out: Array | list[Array] | None = None,
        async_op: bool = False,
    ) -> Any:
        """Do an allreduce() with the result at the worker `root` only.

        The switches, and the ring, bring the result to all workers: the traffic is that of allreduce().

        Args:
            x: An array, or a list of arrays.
            root: The rank that gets the result.
            op: The operation.
            out: Where the root's result is written; the other workers' `out` is not touched.
            async_op: Whether to return a Handle at once.

        Returns:
            The result at the root, None at the other workers.
        """
        self._check_root(root)
        into = out if root == self.rank else None
        xs, outs, what = reduction(f"reduce {op} to {root}", op, x, into)

        def attempt(into: Sequence[Array | None]) -> list[Array]:
            self._check_present(root)
            return self._reducer.reduce(xs, op, what, into)

        give = as_given(x)

        def deliver(results: list[Array]) -> Any:
            return give(results) if root == self.rank else None

        return self._begin(Request(what, _any(xs), attempt, outs, deliver), async_op=async_op)

    @overload
    def broadcast(self, x: _X, root: int = 0, *, async_op: Literal[False] = False) -> _X: ...

    @overload
    def broadcast(self, x: _X, root: int = 0, *, async_op: Literal[True]) -> Handle[_X]: ...

    @collective
    def broadcast(self, x: Array | list[Array], root: int = 0, *, async_op: bool = False) -> Any:
        """Copy `x` of the worker `root`, bit by bit, into `x` of all other workers.

        In the network: `root` sends `x`, and the switches copy it to the others. With min_workers, or several workers
        on a host, the others send zeros, and get the sum. Each worker then sends and receives twice the size of `x`;
        with more than 64 workers it goes round the ring, and that is 2 (n - 1) / n times.

        Args:
            x: An array, or a list of arrays.
            root: The rank whose values are copied.
            async_op: Whether to return a Handle at once.

        Returns:
            `x`.
        """
        self._check_root(root)
        xs = listed(x)
        for each in xs:
            if each.dtype.hasobject:
                raise TypeError(f"broadcast takes arrays of numbers, not of {each.dtype}")
            if root != self.rank and not each.flags.writeable:
                raise ValueError(f"x is written to at all ranks except the root, {root}: it must be writable")
        what = described(f"broadcast from {root}", xs)

        def attempt(_: Sequence[Array | None]) -> list[Array]:
            self._check_present(root)
            sent = np.concatenate([bytes_of(each) for each in xs]) if root == self.rank else None
            return [self._reducer.broadcast(sent, sum(each.nbytes for each in xs), what)]

        def deliver(results: list[Array]) -> Any:
            [received] = results
            if root != self.rank:
                for each, part in zip(xs, split(received, [each.nbytes for each in xs]), strict=True):
                    each[...] = part.view(each.dtype).reshape(each.shape)
            return x

        return self._begin(Request(what, _any(xs), attempt, [None], deliver), async_op=async_op)

    @overload
    def allgather(self, x: Array, *, async_op: Literal[False] = False) -> Array: ...

    @overload
    def allgather(self, x: Array, *, async_op: Literal[True]) -> Handle[Array]: ...

    @collective
    def allgather(self, x: Array, *, async_op: bool = False) -> Any:
        """Return the `x` of all workers, by rank: [size, *shape].

        In the network: each worker sends its own `x`, and the switches copy it to the n - 1 others. Without a lease,
        with min_workers, or with several workers on a host, it goes round the ring: each worker sends and receives
        n - 1 times the size of `x`.
        """
        (x,) = listed([x])
        if x.dtype.hasobject:
            raise TypeError(f"allgather takes arrays of numbers, not of {x.dtype}")
        what = described("allgather", [x])

        def attempt(_: Sequence[Array | None]) -> list[Array]:
            shape = self._place.workers, *x.shape
            if not x.size:
                return [np.empty(shape, x.dtype)]
            gathered = np.ascontiguousarray(self._reducer.all_gather(bytes_of(x), what))
            return [gathered.view(x.dtype).reshape(shape)]

        request = Request(what, _any([x]), attempt, [None], lambda results: results[0])
        return self._begin(request, async_op=async_op)

    @overload
    def reduce_scatter(
        self, x: Array, op: Operation = "sum", *, async_op: Literal[False] = False
    ) -> Array: ...

    @overload
    def reduce_scatter(
        self, x: Array, op: Operation = "sum", *, async_op: Literal[True]
    ) -> Handle[Array]: ...

    @collective
    def reduce_scatter(self, x: Array, op: Operation = "sum", *, async_op: bool = False) -> Any:
        """Return this worker's part of the result of allreduce().

        The first axis is divided into `size` equal parts, by rank. Sum and mean of float32 and float16 (summed as
        float32) are made in the network, within the bound of quantization.py. Each worker sends the n - 1 parts of the
        others, and receives the sum of its own. Other types and operations go round the ring, where each worker sends
        and receives n - 1 parts. So does everything without a lease, with min_workers, or with several workers on a
        host. Sums of the ring are rounded to the type at each step; integers wrap.

        Args:
            x: An array whose first axis can be divided by `size`.
            op: The operation.
            async_op: Whether to return a Handle at once.

        Raises:
            TypeError: See allreduce().
            ValueError: If the first axis cannot be divided into equal parts; for numbers that cannot be summed, see
                allreduce().
        """
        (x,), _, what = reduction(f"reduce_scatter {op}", op, [x], None)
        if not x.ndim or x.shape[0] % self.size:
            raise ValueError(
                f"reduce_scatter divides the first axis among {self.size} workers; an array of shape {x.shape} "
                "cannot be divided"
            )

        def attempt(_: Sequence[Array | None]) -> list[Array]:
            if x.shape[0] % self._place.workers:
                raise CollectiveError(
                    f"{what}: the first axis cannot be divided among the {self._place.workers} workers that are left"
                )
            if not x.size:
                return [x]
            if self._elastic is None:
                return [self._reducer.reduce_scatter(x, op, what)]
            whole = flattened(x).astype(np.float32 if x.dtype == np.float16 else x.dtype)
            self._reducer.ring().all_reduce(whole, COMBINE[op], what)  # others may need this worker's result
            return [whole]

        def deliver(results: list[Array]) -> Array:
            size = self._place.workers
            [part] = results
            if self._elastic is not None:
                part = part.reshape(size, -1)[self._place.rank]
            part = part.reshape(x.shape[0] // size, *x.shape[1:])
            with np.errstate(over="ignore"):  # beyond float16: an infinity
                result: Array = (part / size if op == "mean" else part).astype(x.dtype)
            return result

        return self._begin(Request(what, _any([x]), attempt, [None], deliver), async_op=async_op)

    @overload
    def barrier(self, *, async_op: Literal[False] = False) -> None: ...

    @overload
    def barrier(self, *, async_op: Literal[True]) -> Handle[None]: ...

    @collective
    def barrier(self, *, async_op: bool = False) -> Any:
        """Return when all workers have called it: the smallest all-reduce, of one element, in the network."""

        def attempt(_: Sequence[Array | None]) -> list[Array]:
            zero = np.zeros(1, np.float32)
            self._reducer.sum(Buffers(zero, zero), "barrier")
            return [zero]

        return self._begin(Request("barrier", True, attempt, [None], lambda _: None), async_op=async_op)

    @collective
    def regroup(self) -> bool:
        """Let restarted workers join, between two steps, and return whether somebody has joined.

        All workers call it, and it returns the same at all of them. If it returns True, rank 0 should broadcast what a
        new worker must know to continue; rank 0 is never new itself. The first call of each worker returns True at
        once: a joiner returns from fanin.init() when the others return from this call, so no operation that needs
        others may come before the first call. Workers that stay keep their order, and joiners come after them; `rank`
        and `size` are the new ones. Without min_workers nobody joins.

        In a job with min_workers it waits for all workers and for the job service; no packet is sent.
        """
        first, self._new = self._new, False
        if first or self._elastic is None:
            return first
        elastic = self._elastic
        meeting = Request(
            "regroup", True, lambda _: [elastic.meet()], [None], lambda results: bool(results[0][0])
        )
        joined = self._begin(meeting, async_op=False)
        self._renumber(elastic)
        return joined is True

    def join_group(self, hosts: Sequence[str], name: str) -> Communicator | None:
        """Join a group of this job's workers, which is a job of its own, once all of them have come.

        Args:
            hosts: The host of each of its workers, by rank in the group: all are different.
            name: Name of the group, which no other group of the job has.

        Returns:
            The group's communicator; None, at all its workers, if the switches have no room for the group.

        Raises:
            JoinError: If the others do not come in time.
        """
        job = f"{(self._job or 'job')[: MAX_NAME - len(name) - 1]}/{name}"
        place = join_or_ring(hosts, self.timeout, job=job, slot_share=_SHARE_OF_GROUP, **self._settings)
        if isinstance(place, Outsider):
            place.close()
            return None
        group = Communicator(
            place, self.timeout, "preferred", self._non_finite, self._half_bits, job, self._settings
        )
        atexit.register(group.close)
        return group

    def close(self) -> None:
        """Leave the job once all operations are done. Workers that wait for this one are notified."""
        if self._thread is not None:
            self._thread.shutdown()
        self._reducer.close()
        if self._elastic is not None and not self.calls.failure and not self._closed:
            with suppress(CollectiveError):
                self._elastic.leave()
        self._closed = True
        self._place.close()

    # -- carrying them out -----------------------------------------------------------------------------------

    @collective
    def carry_out(self, operation: Request[_T], *, async_op: bool = False) -> _T | Handle[_T]:
        """Carry out a prepared operation and return its result. Its arrays are read and written now."""
        return self._begin(operation, async_op=async_op)

    def _begin(self, operation: Request[_T], *, async_op: bool) -> _T | Handle[_T]:
        """Carry out an operation after those that were begun before, here or in the background."""
        if async_op and self._in_background:
            done: Future[_T] = Future()
            try:
                done.set_result(self._carry_out(operation, time.monotonic()))
            except BaseException as error:
                done.set_exception(error)
            return Handle(done, self.calls)
        if async_op:
            self._thread = self._thread or ThreadPoolExecutor(1, "fanin", self._note_thread)
            self._begun = True
            submitted = self._thread.submit(self._carry_out, operation, time.monotonic())
            return Handle(submitted, self.calls)
        if self._begun:
            self._wait_for_background()
        return self._carry_out(operation)

    def _wait_for_background(self) -> None:
        """Wait for the calls in the background and their callbacks, which keeps the order of the calls."""
        if self._thread is not None and not self._in_background:
            self._thread.submit(lambda: None).result()
            self._begun = False

    def _note_thread(self) -> None:
        self._background = threading.get_ident()

    def refuse(self, error: RefusedError, what: str) -> None:
        """Count a call that is refused, after those in the background; see Calls.refuse()."""
        if self._begun:
            self._wait_for_background()
        self.calls.refuse(error, what)

    @property
    def _in_background(self) -> bool:
        """Return whether the call comes from a callback of an operation that has ended.

        Such a call must be carried out at once: the next operation begins only after it, at all workers alike.
        """
        return self._background == threading.get_ident()

    def _carry_out(self, operation: Request[_T], submitted: float | None = None) -> _T:
        """Carry out an operation that was begun in the background at `submitted`; None: the program waits for it."""
        if not self._turn.acquire(blocking=False):
            # Without order between the threads, their arrays could be added up crosswise.
            alone = CollectiveError("another thread is in a call: make calls from one thread at a time")
            self.calls.abort(alone, self.calls.count + 1, operation.what)
            raise alone
        try:
            number = self.calls.begin(operation.what, needs_others=operation.needs_others)
            try:
                if self._elastic is not None:
                    value = self._carry_out_in_groups(self._elastic, operation)
                elif operation.plain is not None:
                    self._reducer.sum(operation.plain, operation.what)
                    value = operation.deliver(operation.outs)  # type: ignore[arg-type]  # a plain sum has all of them
                else:
                    value = operation.deliver(operation.attempt(operation.outs))
            except BaseException as error:
                cause = self._cause(error) if isinstance(error, CollectiveError) else error
                self.calls.abort(cause, number, operation.what)
                if cause is error:
                    raise
                raise cause from error
            self.calls.end(submitted)
            return value
        finally:
            self._turn.release()

    def _cause(self, error: CollectiveError) -> CollectiveError:
        """Return the actual cause of `error`, which may lie at another worker."""
        if not isinstance(error, AbortedError):
            self.calls.report()
            try:
                if left := self._left():
                    error = LeftError(f"{left[0]} ended: {error}")
            except CollectiveError as news:
                return news
        elif not isinstance(error, LeftError):
            return error
        if (
            slow := self.calls.slow
        ):  # the worker that gave up first closed its connection, but is not the cause
            return StallError(f"{slow} did not come: {error}")
        return error

    def _left(self) -> list[str]:
        """Return which workers have ended, after an error that this may have caused."""
        return [] if self._elastic is not None else self._place.left(_NEWS_SECONDS)

    def _carry_out_in_groups(self, elastic: Elastic, operation: Request[_T]) -> _T:
        """Carry out an operation in the first group that does not change before the operation is done."""
        while True:
            try:
                return self._finish(elastic, operation)
            except RegroupError:
                pass
            except AbortedError:
                raise
            except CollectiveError:
                # Perhaps a peer has ended, and its connection closed before the job service reported it.
                self.calls.report()
                try:
                    elastic.left(_NEWS_SECONDS)
                except RegroupError:
                    pass
                else:
                    raise
            self._reducer.renew()
            group, results = elastic.regroup()
            before = elastic.workers
            value = None if results is None else operation.deliver(operation.placed(results))
            elastic.enter(group)
            if not elastic.out and not elastic.rank:
                of = "" if elastic.workers > before else f" of {before}"
                print(f"fanin: {elastic.why}; {elastic.workers}{of} workers continue", file=sys.stderr)
            if results is not None:
                return value  # type: ignore[return-value]

    def _finish(self, elastic: Elastic, operation: Request[_T]) -> _T:
        elastic.begin()
        results = operation.attempt([None] * len(operation.outs))
        if not operation.needs_others:
            return operation.deliver(results)
        elastic.keep(results)
        value = operation.deliver(operation.placed(results))
        self._renumber(elastic)
        return value

    def _renumber(self, elastic: Elastic) -> None:
        self.rank, self.size, self._hosts = elastic.rank, elastic.workers, elastic.hosts

    def _check_present(self, root: int) -> None:
        """Raise LeftError if the operation's root has ended: no group can do the operation without it."""
        if self._elastic is not None and self._hosts[root] not in self._elastic.hosts:
            raise LeftError(f"rank {root}, the root, ended: {self._elastic.why}")

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self.size:
            raise ValueError(f"root must be a rank from 0 to {self.size - 1}, not {root}")


def _any(xs: Sequence[Array]) -> bool:
    """Return whether any of the arrays has an element."""
    return any(each.size for each in xs)
