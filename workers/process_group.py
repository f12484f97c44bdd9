"""A process group for PyTorch: torch.distributed's calls on tensors in main memory, made with a Communicator.

Tensors whose types numpy has, and whose memory has no gaps, are summed in place. Others are copied; bfloat16, which
numpy lacks, is summed as float32 and rounded once. Tensors of a device are copied to main memory, and results back.

PyTorch's own Gloo does the rest, on the same hosts and links: messages from rank to rank, products, bit operations, and
groups of some of the ranks that get no lease.
"""

import atexit
import os
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from inspect import isfunction
from itertools import repeat
from typing import Any, Literal, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch._C._dynamo import eval_frame
from torch._C._profiler import _RecordFunctionFast
from torch.autograd import profiler

from fanin.workers.arguments import Array, Operation, flattened
from fanin.workers.communicator import Communicator, Handle, Request
from fanin.workers.job.calls import Calls, RefusedError, collective
from fanin.workers.job.environment import HOST
from fanin.workers.prepared_calls import Remembered, borrowed_view
from fanin.workers.tensor_memory import (
    Tensors,
    arrays_of,
    bits_of,
    check_fit,
    flat,
    in_place,
    numbers_of,
    place,
    place_all,
    put_back,
    round_into,
)
from fanin.workers.values.compression import Compression

_LONGEST_NAME = 12  # of a group, of which PyTorch makes a number or a hash
_LITTLE = 1024  # bytes

_Class = TypeVar("_Class")

# Not a dict: looking up one of PyTorch's operations in it takes a microsecond.
_SUM: Any = dist.ReduceOp.SUM
_MEAN: Any = dist.ReduceOp.AVG
_OTHERS: tuple[tuple[Any, Operation], ...] = (
    (_MEAN, "mean"),
    (dist.ReduceOp.MAX, "max"),
    (dist.ReduceOp.MIN, "min"),
)

# What callers leave out, as with PyTorch's own groups.
_ALLREDUCE = dist.AllreduceOptions()
_REDUCE = dist.ReduceOptions()
_BROADCAST = dist.BroadcastOptions()
_GATHER = dist.GatherOptions()
_REDUCE_SCATTER = dist.ReduceScatterOptions()
_SCATTER = dist.ScatterOptions()
_ALL_TO_ALL = dist.AllToAllOptions()


# DDP's join() hands the work of a counter to C++, which may wait for it when Python has no reference to it any more.
# Then C++ would wait for its own part of the object only, which never ends.
_kept: deque["Work"] = deque(maxlen=64)


def _uncompiled(whole: type[_Class]) -> type[_Class]:
    """Keep torch.compile() out of the methods of a class, and of what they call.

    It would compile them, and fail, since PyTorch's C++ code calls them within a compiled function. torch._dynamo has a
    decorator for this, but takes seconds to import.
    """
    skip = eval_frame._FrameAction.SKIP
    for method in vars(whole).values():
        if isfunction(method):
            eval_frame.set_code_exec_strategy(method.__code__, eval_frame._FrameExecStrategy(skip, skip))
    return whole


@_uncompiled
class Work(dist.Work):
    """An operation in the background. It is done when all `handles` are done and `finish` has run.

    Errors are raised by wait(), and by the future as a RuntimeError with the same text. Callbacks of the future are
    called after the operation has ended and before the next one begins, or at once if it has already ended. Operations
    that they start are carried out before the next one, too, at all ranks alike; so they may wait for them.

    Args:
        name: Its name among PyTorch's operators, for the profiler.
        calls: The calls of the communicator.
        handles: The communicator's operations.
        tensors: The tensors that will hold the result.
        finish: Called after the operations, to move the result into `tensors`.
        whole: The tensors whose size the profiler shows. None: `tensors`.

    Attributes:
        limit: Seconds that wait() waits if it gets no time limit. None: until the communicator's own limit passes.
    """

    limit: float | None = None

    def __init__(
        self,
        name: str,
        calls: Calls,
        handles: Sequence[Handle[Any]],
        tensors: Sequence[Any],
        finish: Callable[[], None] = lambda: None,
        whole: Sequence[Any] | None = None,
    ) -> None:
        super().__init__()
        self._handles = handles
        # A future knows on which devices its tensors are: whoever waits for it then waits for copies to them.
        devices = sorted({tensor.device for tensor in flat(tensors) if tensor.is_cuda}, key=str)
        ended: torch.futures.Future[None] = torch.futures.Future(devices=devices)

        # DDP's reducer notices only errors raised in here: those of set_exception() are visible to Python only.
        def complete(_: object) -> list[torch.Tensor]:
            for handle in handles:
                handle.wait()
            try:
                finish()
            except BaseException as error:
                calls.abort(error, calls.count, "whose result does not fit")
                raise
            return list(tensors)

        self._future = ended.then(complete)
        if sum(tensor.nbytes for tensor in tensors if isinstance(tensor, torch.Tensor)) <= _LITTLE:
            _kept.append(self)
        if profiler._is_profiler_enabled:
            span = _recorded(name, flat(tensors if whole is None else whole))
            span.__enter__()
            span._call_end_callbacks_on_future(self._future)
        handles[-1].add_done_callback(lambda _: ended.set_result(None))

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the operation is done, or raise its error.

        Args:
            timeout: Time to wait; None or zero for the time limit of the group.

        Raises:
            StallError: If it takes longer. No rank can make another call then.
        """
        limit = timeout.total_seconds() if timeout else self.limit
        for handle in self._handles:
            handle.wait(limit)
        self._future.wait()
        return True

    def get_future(self) -> "torch.futures.Future[list[torch.Tensor]]":
        """Return the future of the tensors with the result."""
        return self._future

    def is_completed(self) -> bool:
        """Return whether the operation has ended, with a result or an error."""
        return bool(self._future.done())


@collective
def allreduce(
    communicator: Communicator,
    tensors: Tensors,
    op: Operation,
    compression: Compression | None = None,
    finish: Callable[[], None] = lambda: None,
) -> Work:
    """Begin to all-reduce tensors in place; those of one type travel as one vector.

    Args:
        communicator: The worker's communicator.
        tensors: The tensors.
        op: The reduction operation.
        compression: How to compress what is sent. None does not compress.
        finish: Called when the result is in the tensors.

    Raises:
        RefusedError: If the tensors have no values in memory, or numbers that have no such reduction.
        ValueError: See Communicator.allreduce().
    """
    arrays, copies = arrays_of(tensors)
    bits = None if compression else _integer_bits(communicator, tensors)
    handle = communicator.allreduce(arrays, op, out=arrays, bits=bits, compression=compression, async_op=True)

    def finish_all() -> None:
        put_back(copies)
        finish()

    return Work("allreduce_", communicator.calls, [handle], tensors, finish_all)


def gloo(store: dist.Store, rank: int, size: int, timeout: timedelta, *, late: bool) -> dist.ProcessGroupGloo:
    """Return Gloo's process group of these ranks.

    Args:
        store: Where the ranks find each other; no other group may use it.
        rank: This process's number in the group.
        size: Number of ranks.
        timeout: Time to wait for the other ranks in a call.
        late: Whether two ranks connect when one first has something for the other, instead of now. While they do,
            `timeout` does not hold.
    """
    # Only with options of its own does Gloo connect late; then it does not read its variable by itself.
    interfaces = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")
    options = dist.ProcessGroupGloo._Options()
    options._devices = [
        dist.ProcessGroupGloo.create_device(interface=interface, lazy_init=late)
        if interface
        else dist.ProcessGroupGloo.create_default_device(lazy_init=late)
        for interface in interfaces
    ]
    options._timeout = timeout
    return dist.ProcessGroupGloo(store, rank, size, options)


def join_group(
    communicator: Communicator, name: str, store: dist.Store, rank: int, size: int
) -> Communicator | None:
    """Return the communicator of a group of some ranks.

    Args:
        communicator: That of all ranks.
        name: PyTorch's name of the group.
        store: A store that no other group uses.
        rank: This process's number in the group.
        size: Number of ranks.

    Returns:
        The group's communicator. None, at all its ranks, if two of them are on one host, or switches have no room for
        the group: only hosts can then carry out its calls.

    Raises:
        JoinError: If the others do not come in time.
    """
    store.set(f"host of {rank}", os.environ[HOST])
    hosts = [store.get(f"host of {each}").decode() for each in range(size)]
    if size == 1 or len({*hosts}) < size:
        return None
    return communicator.join_group(hosts, name[:_LONGEST_NAME])


@_uncompiled
class ProcessGroup(dist.ProcessGroup):
    """The group of all workers of a job, with the method names that torch.distributed and its reducer use.

    Operations run in the background, one after the other, and return a Work at once. The exception is an all-reduce
    that the caller waits for in any case: another thread would add hundreds of microseconds.

    Arguments are checked before anything is sent. As with Gloo, tensors of different shapes at different ranks are
    combined if they have the same number of elements. All calls raise RefusedError for arguments that do not fit.

    Args:
        communicator: The worker's communicator.
        hosts: A group of the same ranks for what only hosts can do. PyTorch gives it whatever this class does not
            define.
        limit: The group's time limit in seconds. None: that of the communicator.
        owned: Whether the communicator is closed together with the group.
    """

    def __init__(
        self,
        communicator: Communicator,
        hosts: dist.Backend | None = None,
        limit: float | None = None,
        *,
        owned: bool = False,
    ) -> None:
        super().__init__(communicator.rank, communicator.size)
        self.calls = communicator.calls
        self.refuse = communicator.refuse
        self._communicator = communicator
        self._requests: Remembered[Request[Any] | None] = Remembered()
        self._hosts: Any = hosts
        self._limit = limit
        self._owned = owned
        if hosts is not None:  # it also keeps the name of the group
            self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, hosts)
            self._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)

    def getBackendName(self) -> str:  # noqa: N802
        """Return the backend's name in init_process_group()."""
        return "fanin"

    def shutdown(self) -> None:
        """End the group, which destroy_process_group() calls."""
        if self._owned:
            atexit.unregister(self._communicator.close)
            self._communicator.close()
        super().shutdown()

    # -- summed in the network -------------------------------------------------------------------------------

    @collective
    def allreduce(self, tensors: Tensors, opts: Any = _ALLREDUCE) -> dist.Work | None:
        """All-reduce each tensor in place.

        Returns:
            None if it is done, as PyTorch expects of a backend that returns only then; otherwise the running operation.
        """
        op = _operation(opts, tensors)
        if op is None:
            return self._on_hosts("allreduce", tensors, opts)
        divide = partial(self._divide, opts, tensors)
        if opts.asyncOp or self._limit is not None:
            work = self._limited(allreduce(self._communicator, tensors, op, finish=divide))
            if opts.asyncOp:
                return work
            work.wait()
            return None
        if profiler._is_profiler_enabled:
            with _recorded("allreduce_", tensors):
                self._allreduce_now(tensors, op)
        else:
            self._allreduce_now(tensors, op)
        divide()
        return None

    def _allreduce_now(self, tensors: Tensors, op: Operation) -> None:
        """All-reduce each tensor in place, and return only then."""
        if len(tensors) == 1 and (request := self._request(tensors[0], op)):
            self._communicator.carry_out(request)
            return
        arrays, copies = arrays_of(tensors)
        self._communicator.allreduce(arrays, op, out=arrays, bits=_integer_bits(self._communicator, tensors))
        put_back(copies)

    def _request(self, tensor: torch.Tensor, op: Operation) -> Request[Any] | None:
        """Return a request to all-reduce a tensor in place; None if numpy cannot use its memory.

        A training step has the same tensors each time, and making a numpy array of one takes microseconds. So requests
        are cached by everything that they depend on: another tensor at the same address can use the request, and no
        device has memory at that address.
        """
        try:
            key = op, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.is_contiguous(), tensor.is_neg()
            return self._requests[key]
        except RuntimeError:  # it has no memory that can be addressed
            return None
        except KeyError:
            return self._requests.remember(key, self._new_request(tensor, op))

    def _new_request(self, tensor: torch.Tensor, op: Operation) -> Request[Any] | None:
        array = in_place(tensor)
        if array is None:
            return None
        mine = borrowed_view(array)
        return self._communicator.allreduce_init(mine, op, mine)

    @collective
    def allreduce_coalesced(self, tensors: Tensors, opts: Any = _ALLREDUCE) -> dist.Work | None:
        """All-reduce several tensors, as allreduce() does, too."""
        if _operation(opts, tensors) is None:
            return self._on_hosts("allreduce_coalesced", tensors, opts)
        return self.allreduce(tensors, opts)

    @collective
    def reduce(self, tensors: Tensors, opts: Any = _REDUCE) -> dist.Work:
        """Reduce each tensor in place at the root; tensors at other ranks keep their values."""
        op = _operation(opts, tensors)
        if op is None:
            return self._on_hosts("reduce", tensors, opts)
        self._check_root(opts.rootRank)
        root = opts.rootRank == self._communicator.rank
        arrays, copies = arrays_of(tensors)
        out = arrays if root else None
        handle = self._communicator.reduce(arrays, opts.rootRank, op, out=out, async_op=True)

        def finish() -> None:
            if root:
                put_back(copies)
                self._divide(opts, tensors)

        return self._limited(Work("reduce_", self.calls, [handle], tensors, finish))

    @collective
    def broadcast(self, tensors: Tensors, opts: Any = _BROADCAST) -> Work:
        """Copy the root's tensors into those of the other ranks."""
        self._check_root(opts.rootRank)
        bits = [flattened(bits_of(tensor)) for tensor in tensors]
        handle = self._communicator.broadcast(bits, opts.rootRank, async_op=True)

        def finish() -> None:
            for array, tensor in zip(bits, tensors, strict=True):
                if not (tensor.is_cpu and tensor.is_contiguous()):
                    place(array, tensor)

        return self._limited(Work("broadcast_", self.calls, [handle], tensors, finish))

    @collective
    def barrier(self, opts: Any = None) -> Work:  # noqa: ARG002
        """Return an operation that is done when all ranks have called this."""
        return self._limited(Work("barrier", self.calls, [self._communicator.barrier(async_op=True)], []))

    # -- round the ring --------------------------------------------------------------------------------------

    @collective
    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:  # noqa: ARG002
        """Gather each input from all ranks into one list of outputs, with a tensor for each rank."""
        self._check_lists(inputs, outputs)
        return self._gather(inputs, outputs, place_all)

    @collective
    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """Gather several inputs, as allgather(), with a list of outputs for each rank, not for each input."""
        return self.allgather(list(zip(*outputs, strict=True)), inputs, opts)

    @collective
    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """Gather the inputs of all ranks into one tensor, one after the other."""
        return self.all_gather_single_coalesced([output], [input], opts)

    @collective
    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:  # noqa: ARG002
        """Gather several inputs as all_gather_single() does one."""
        for tensor, output in zip(inputs, outputs, strict=True):
            check_fit(output, tensor, self._communicator.size)
        return self._gather(inputs, outputs, place)

    @collective
    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = _GATHER) -> Work:
        """Gather as allgather(), with the result at the root only; the traffic is the same."""
        self._check_root(opts.rootRank)
        if opts.rootRank == self._communicator.rank:
            self._check_lists(inputs, outputs)
            return self._gather(inputs, outputs, place_all)
        return self._gather(inputs, [[]], lambda _gathered, _nowhere: None)

    @collective
    def reduce_scatter(
        self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = _REDUCE_SCATTER
    ) -> dist.Work:
        """Reduce lists of inputs, each with one tensor for each rank, and keep this rank's result of each list.

        Lists whose tensors differ in size are all-reduced: switches scatter equal parts only.
        """
        op = _operation(opts, outputs)
        if op is None:
            return self._on_hosts("reduce_scatter", outputs, inputs, opts)
        for output, tensors in zip(outputs, inputs, strict=True):
            self._check_count(tensors)
            for tensor in (output, *tensors):
                if tensor.dtype != output.dtype:
                    raise RefusedError(
                        f"the tensors are of different types: {output.dtype} and {tensor.dtype}"
                    )
            check_fit(output, tensors[self._communicator.rank])
        lists = [[numbers_of(tensor) for tensor in tensors] for tensors in inputs]
        handles: list[Handle[Any]] = []
        for arrays in lists:
            if len({array.size for array in arrays}) == 1:
                whole = np.concatenate(arrays)
                handles.append(self._communicator.reduce_scatter(whole, op, async_op=True))
            else:
                handles.append(self._communicator.allreduce(arrays, op, async_op=True))
        return self._scattered(outputs, inputs, handles, opts)

    @collective
    def reduce_scatter_single(
        self, output: torch.Tensor, input: torch.Tensor, opts: Any = _REDUCE_SCATTER
    ) -> dist.Work:
        """Reduce a tensor and keep this rank's part."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    @collective
    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = _REDUCE_SCATTER
    ) -> dist.Work:
        """Reduce several tensors as reduce_scatter_single() does one."""
        op = _operation(opts, outputs)
        if op is None:
            reduce_scatter = partial(self._on_hosts, "_reduce_scatter_base")
            *others, last = map(reduce_scatter, outputs, inputs, repeat(opts))
            for work in others:
                work.wait()
            return last
        for output, tensor in zip(outputs, inputs, strict=True):
            check_fit(tensor, output, self._communicator.size)
        arrays = [numbers_of(tensor) for tensor in inputs]
        handles = [self._communicator.reduce_scatter(array, op, async_op=True) for array in arrays]
        return self._scattered(outputs, inputs, handles, opts)

    def _gather(self, inputs: Tensors, outputs: Sequence[Any], place: Callable[[Array, Any], None]) -> Work:
        arrays = [flattened(bits_of(tensor)) for tensor in inputs]
        handles = [self._communicator.allgather(array, async_op=True) for array in arrays]

        def finish() -> None:
            for handle, output in zip(handles, outputs, strict=True):
                place(handle.wait(), output)

        whole = [*inputs] * self._communicator.size
        return self._limited(Work("_allgather_base_", self.calls, handles, outputs, finish, whole))

    def _scattered(
        self, outputs: Tensors, inputs: Sequence[Any], handles: Sequence[Handle[Any]], opts: Any
    ) -> Work:
        """Return the operation that puts this rank's results into `outputs`.

        Args:
            outputs: The tensors of the result.
            inputs: What is reduced.
            handles: Operations that have this rank's result, or the results of all ranks as a list.
            opts: PyTorch's options, with the reduction.
        """
        rank = self._communicator.rank

        def finish() -> None:
            for handle, output in zip(handles, outputs, strict=True):
                result = handle.wait()
                round_into(result[rank] if isinstance(result, list) else result, output)
            self._divide(opts, outputs)

        return self._limited(
            Work("_reduce_scatter_base_", self.calls, handles, outputs, finish, whole=inputs)
        )

    def _divide(self, opts: Any, tensors: Tensors) -> None:
        """Make means of sums of integers, if means are asked for; round them toward zero, as NCCL does."""
        if not tensors[0].dtype.is_floating_point and opts.reduceOp == _MEAN:
            for tensor in tensors:
                tensor.div_(self._communicator.size, rounding_mode="trunc")

    def _limited(self, work: Work) -> Work:
        """Return the operation with the time limit of this group."""
        work.limit = self._limit
        return work

    # -- before anything is sent -----------------------------------------------------------------------------

    def _check_root(self, root: int) -> None:
        if not 0 <= root < self._communicator.size:
            raise RefusedError(f"the root must be a rank from 0 to {self._communicator.size - 1}, not {root}")

    def _check_lists(self, inputs: Tensors, outputs: Sequence[Tensors]) -> None:
        """Raise RefusedError if a list of outputs has no place for each rank's input, taken as large as its own."""
        for tensor, output in zip(inputs, outputs, strict=True):
            self._check_count(output)
            for each in output:
                check_fit(each, tensor)

    def _check_count(self, tensors: Tensors) -> None:
        if len(tensors) != self._communicator.size:
            raise RefusedError(
                f"the list needs a tensor for each of {self._communicator.size} ranks, and has {len(tensors)}"
            )

    def _on_hosts(self, call: str, *arguments: Any) -> dist.Work:
        """Make a call of all ranks with Gloo."""
        try:
            work: dist.Work = getattr(self._hosts, call)(*arguments)
        except RuntimeError as error:
            raise RefusedError(str(error)) from error
        return work

    # -- from rank to rank -----------------------------------------------------------------------------------

    @collective
    def send(self, tensors: Tensors, to: int, tag: int) -> dist.Work:
        """Send a tensor to a rank."""
        _operator("send", tensors, to, tag)
        return self._hosts.send(tensors, to, tag)

    @collective
    def recv(self, tensors: Tensors, source: int, tag: int) -> dist.Work:
        """Receive a tensor from a rank."""
        _operator("recv_", tensors, source, tag)
        return self._hosts.recv(tensors, source, tag)

    @collective
    def recv_anysource(self, tensors: Tensors, tag: int) -> dist.Work:
        """Receive a tensor from whichever rank sends one."""
        return self._hosts.recv_anysource(tensors, tag)

    @collective
    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = _SCATTER) -> dist.Work:
        """Send each rank its tensor of the root's list."""
        return self._on_hosts("scatter", outputs, inputs, opts)

    @collective
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = _ALL_TO_ALL) -> dist.Work:
        """Send each rank its tensor of the list."""
        _operator("alltoall_", outputs)
        return self._on_hosts("alltoall", outputs, inputs, opts)

    @collective
    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        received: list[int],
        sent: list[int],
        opts: Any = _ALL_TO_ALL,
    ) -> dist.Work:
        """Send each rank its part of a tensor.

        Args:
            output: Where the parts of all ranks are put together.
            input: The tensor.
            received: Number of rows from each rank; empty for equal parts.
            sent: Number of rows to each rank; empty for equal parts.
            opts: PyTorch's options.
        """
        _operator("alltoall_base_", [output])
        return self._on_hosts("alltoall_base", output, input, received, sent, opts)


def _operator(name: str, tensors: Tensors, *numbers: int) -> None:
    """Let PyTorch's profiler record the call of an operator of its own backends, if one runs.

    PyTorch calls the methods of a group that is written in Python directly, so that its operators do not occur.

    Args:
        name: The operator.
        tensors: The tensors, of which the trace has the sizes. It has the type of a single one only.
        numbers: Other arguments, which follow the group.
    """
    if profiler._is_profiler_enabled:
        with _RecordFunctionFast(
            f"c10d::{name}", [tensors[0] if len(tensors) == 1 else list(tensors), None, *numbers]
        ):
            pass


def _recorded(name: str, tensors: Tensors) -> profiler.record_function:
    """Let PyTorch's profiler record the call of an operator, and return what records the time until it has ended."""
    _operator(name, tensors)
    return profiler.record_function(f"fanin:{name.rstrip('_')}")


def _operation(opts: Any, tensors: Tensors) -> Operation | None:
    """Return the communicator's name of a reduction; None if only Gloo has it for these tensors.

    That of a mean of integers is "sum": ProcessGroup._divide() makes the mean.
    """
    asked, dtype = opts.reduceOp, tensors[0].dtype
    if dtype is torch.bool or dtype.is_complex or tensors[0].is_sparse:
        return None
    if asked == _SUM:
        return "sum"
    for operation, name in _OTHERS:
        if asked == operation:
            if name != "mean":
                return name
            if len({tensor.dtype.is_floating_point for tensor in tensors}) > 1:
                raise RefusedError("means of integers and of floating-point numbers need a call each")
            return "mean" if dtype.is_floating_point else "sum"
    return None


def _integer_bits(communicator: Communicator, tensors: Tensors) -> Literal[16] | None:
    """Return 16 if these tensors are to travel as integers of 16 bits, although they become float32 here."""
    short = communicator.bfloat16_bits == 16 and all(tensor.dtype == torch.bfloat16 for tensor in tensors)
    return 16 if short else None
