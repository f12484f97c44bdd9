"""A process group of PyTorch: the calls of torch.distributed, on tensors in main memory, by those of a Communicator.

Tensors whose numbers numpy has, and that lie in memory without gaps, are summed where they are. Others are copied;
bfloat16, which numpy has not, is summed as float32 and rounded once.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from fanin.workers.arguments import Array, Operation
from fanin.workers.communicator import Communicator, Handle, Request
from fanin.workers.job.calls import Calls, collective
from fanin.workers.prepared_calls import Remembered, borrowed_view
from fanin.workers.values.compression import Compression

Tensors = Sequence[torch.Tensor]
Copies = list[tuple[Array, torch.Tensor]]

# Not a dict: it takes a microsecond to find one of PyTorch's in it.
_SUM: Any = dist.ReduceOp.SUM
_OTHERS: tuple[tuple[Any, Operation], ...] = (
    (dist.ReduceOp.AVG, "mean"),
    (dist.ReduceOp.MAX, "max"),
    (dist.ReduceOp.MIN, "min"),
)


class Work(dist.Work):
    """An operation begun: done once all of `handles` are, and `finish` after them, which has the result in `tensors`.

    What goes wrong comes out of wait(), and as a RuntimeError with the same text out of the future. Callbacks of the
    future are called when the operation has ended and before the next one begins, or at once if it has already. What
    they begin themselves is carried out before the next one, too, at all ranks alike; so they may wait for it.
    """

    def __init__(
        self,
        calls: Calls,
        handles: Sequence[Handle[Any]],
        tensors: Tensors,
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._handles = handles
        ended: torch.futures.Future[None] = torch.futures.Future()

        # Only what is raised in here, DDP's reducer takes for an error: set_exception() is for Python's eyes.
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
        handles[-1].add_done_callback(lambda: ended.set_result(None))

    def wait(self, timeout: object = None) -> bool:  # noqa: ARG002
        """Return when it is done; or raise. The time limit is the communicator's, whatever `timeout` says."""
        for handle in self._handles:
            handle.wait()
        self._future.wait()
        return True

    def get_future(self) -> "torch.futures.Future[list[torch.Tensor]]":
        """Of the tensors with the result."""
        return self._future

    def is_completed(self) -> bool:
        """Whether it has ended, one way or the other."""
        return bool(self._future.done())


@collective
def allreduce(
    communicator: Communicator, tensors: Tensors, op: Operation, compression: Compression | None = None
) -> Work:
    """Begin to all-reduce tensors in place, those of one type as one vector.

    Raises:
        TypeError, ValueError: as Communicator.allreduce(), and for tensors on another device.
    """
    arrays, copies = _arrays(tensors)
    handle = communicator.allreduce(arrays, op, out=arrays, compression=compression, async_op=True)
    return Work(communicator.calls, [handle], tensors, lambda: _put_back(copies))


def _refused(name: str) -> Callable[..., Work]:
    def refuse(*_: object, **__: object) -> Work:
        raise NotImplementedError(
            f'the backend "fanin" has no {name}; for it, make a group of Gloo beside: '
            'torch.distributed.new_group(backend="gloo")'
        )

    refuse.__name__ = name
    return collective(refuse)


class ProcessGroup(dist.ProcessGroup):
    """The group of all workers of a job, under the names by which torch.distributed and its reducer call it.

    All operations run in the background, one after the other, and return a Work at once; but for an all-reduce that
    the caller waits for in any case, which would take hundreds of microseconds more by way of another thread.
    """

    def __init__(self, communicator: Communicator) -> None:
        super().__init__(communicator.rank, communicator.size)
        self.calls = communicator.calls
        self._communicator = communicator
        self._requests: Remembered[Request[Any] | None] = Remembered()

    def getBackendName(self) -> str:  # noqa: N802
        """What init_process_group() calls it."""
        return "fanin"

    # -- summed in the network -------------------------------------------------------------------------------

    @collective
    def allreduce(self, tensors: Tensors, opts: Any) -> Work | None:
        """Each tensor in place. None: it is done; as PyTorch has it of a backend that does not return before."""
        op = _operation(opts)
        if opts.asyncOp:
            return allreduce(self._communicator, tensors, op)
        if len(tensors) == 1 and (request := self._request(tensors[0], op)):
            self._communicator.carry_out(request)
            return None
        arrays, copies = _arrays(tensors)
        self._communicator.allreduce(arrays, op, out=arrays)
        _put_back(copies)
        return None

    def _request(self, tensor: torch.Tensor, op: Operation) -> Request[Any] | None:
        """To all-reduce what is in its memory; None: numpy cannot have it there.

        A training step has the same tensors each time, and numpy's array of one takes microseconds. It is remembered by
        all that it depends on, so that another tensor in the same place may have it; no device has memory there, too.
        """
        try:
            key = op, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.is_contiguous(), tensor.is_neg()
            return self._requests[key]
        except RuntimeError:  # it has no memory of that kind
            return None
        except KeyError:
            return self._requests.remember(key, self._new_request(tensor, op))

    def _new_request(self, tensor: torch.Tensor, op: Operation) -> Request[Any] | None:
        array = _in_place(tensor)
        if array is None:
            return None
        mine = borrowed_view(array)
        return self._communicator.allreduce_init(mine, op, mine)

    @collective
    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Work | None:
        """As allreduce(), which takes several tensors, too."""
        return self.allreduce(tensors, opts)

    @collective
    def reduce(self, tensors: Tensors, opts: Any) -> Work:
        """Each tensor in place, at the root; the others' stay as they are."""
        root = opts.rootRank == self._communicator.rank
        arrays, copies = _arrays(tensors)
        out = arrays if root else None
        handle = self._communicator.reduce(arrays, opts.rootRank, _operation(opts), out=out, async_op=True)
        return Work(self.calls, [handle], tensors, lambda: _put_back(copies) if root else None)

    @collective
    def broadcast(self, tensors: Tensors, opts: Any) -> Work:
        """The root's tensors into the others'."""
        bits = [_bits(tensor) for tensor in tensors]
        return Work(self.calls, [self._communicator.broadcast(bits, opts.rootRank, async_op=True)], tensors)

    @collective
    def barrier(self, opts: Any = None) -> Work:  # noqa: ARG002
        """Done when all have called it."""
        return Work(self.calls, [self._communicator.barrier(async_op=True)], [])

    # -- round the ring --------------------------------------------------------------------------------------

    @collective
    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:  # noqa: ARG002
        """Of each input, what each rank has, into one of the outputs."""
        return self._gather(inputs, outputs, _place_all)

    @collective
    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        """As allgather() of several inputs, with a list of outputs for each rank, not for each input."""
        return self.allgather(list(zip(*outputs, strict=True)), inputs, opts)

    @collective
    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """What each rank has, one after the other."""
        return self.all_gather_single_coalesced([output], [input], opts)

    @collective
    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:  # noqa: ARG002
        """As all_gather_single(), of several."""
        return self._gather(inputs, outputs, _place)

    @collective
    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        """As allgather(), with the result at the root only; the traffic is the same."""
        if opts.rootRank == self._communicator.rank:
            return self._gather(inputs, outputs, _place_all)
        return self._gather(inputs, [[]], lambda _gathered, _nowhere: None)

    @collective
    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        """Of each list of inputs, one for each rank, what all of them have for this rank."""
        arrays = [np.stack([_numbers(tensor) for tensor in tensors]) for tensors in inputs]
        return self._reduce_scatter(outputs, arrays, opts)

    @collective
    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work:
        """This rank's part of the sum."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    @collective
    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work:
        """As reduce_scatter_single(), of several."""
        return self._reduce_scatter(outputs, [_numbers(tensor).reshape(-1) for tensor in inputs], opts)

    def _gather(self, inputs: Tensors, outputs: Sequence[Any], place: Callable[[Array, Any], None]) -> Work:
        handles = [self._communicator.allgather(_bits(tensor), async_op=True) for tensor in inputs]

        def finish() -> None:
            for handle, output in zip(handles, outputs, strict=True):
                place(handle.wait(), output)

        return Work(self.calls, handles, outputs, finish)

    def _reduce_scatter(self, outputs: Tensors, arrays: Sequence[Array], opts: Any) -> Work:
        op = _operation(opts)
        handles = [self._communicator.reduce_scatter(array, op, async_op=True) for array in arrays]

        def finish() -> None:
            for handle, output in zip(handles, outputs, strict=True):
                _round(handle.wait(), output)

        return Work(self.calls, handles, outputs, finish)

    # -- not at all ------------------------------------------------------------------------------------------

    send = _refused("send")
    recv = _refused("recv")
    recv_anysource = _refused("recv from any rank")
    scatter = _refused("scatter")
    alltoall = _refused("all_to_all")
    all_to_all_single = _refused("all_to_all_single")


def _operation(opts: Any) -> Operation:
    asked = opts.reduceOp
    if asked == _SUM:
        return "sum"
    for operation, name in _OTHERS:
        if asked == operation:
            return name
    raise NotImplementedError(
        f'the backend "fanin" reduces with SUM, AVG, MAX and MIN, not with {asked.op.name}'
    )


def _arrays(tensors: Tensors) -> tuple[list[Array], Copies]:
    """Each tensor's numbers, in its own memory where these can be calculated with there, and which are copies."""
    arrays, copies = [], []
    for tensor in tensors:
        array = _in_place(tensor)
        if array is None:
            array = _numbers(tensor)
            copies.append((array, tensor))
        arrays.append(array)
    return arrays, copies


def _in_place(tensor: torch.Tensor) -> Array | None:
    """Its own memory, if numpy can have it, and has no gaps."""
    tensor = _checked(tensor)
    if tensor.dtype == torch.bfloat16 or not tensor.is_contiguous():
        return None
    return _memory(tensor)


def _numbers(tensor: torch.Tensor) -> Array:
    """To calculate with, without gaps."""
    tensor = _checked(tensor)
    return _memory((tensor.float() if tensor.dtype == torch.bfloat16 else tensor).contiguous())


def _bits(tensor: torch.Tensor) -> Array:
    """To pass on unread: the tensor's own memory."""
    tensor = _checked(tensor)
    return _memory(tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor)


def _memory(tensor: torch.Tensor) -> Array:
    """Return a tensor's memory as an array that keeps it alive.

    After Tensor.numpy(), PyTorch refuses to resize the tensor, which its batched PowerSGD does.
    """
    if tensor.is_neg() or tensor.is_conj():
        tensor.numpy()  # raises, and says what to do
    storage = tensor.untyped_storage()
    memory: Any = (ctypes.c_byte * storage.nbytes()).from_address(storage.data_ptr())
    memory.owner = tensor
    size = tensor.element_size()
    array: Array = np.ndarray(
        tuple(tensor.shape),
        str(tensor.dtype).removeprefix("torch."),
        memory,
        tensor.storage_offset() * size,
        [stride * size for stride in tensor.stride()],
    )
    return array


def _checked(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_cpu or tensor.layout != torch.strided:
        raise TypeError(
            f'the backend "fanin" takes dense tensors in main memory, not {tensor.layout} on {tensor.device}; '
            "tensor.cpu() and tensor.to_dense() make such"
        )
    return tensor.detach() if tensor.requires_grad else tensor


def _put_back(copies: Copies) -> None:
    """Results that are not where the tensors are."""
    for array, tensor in copies:
        _round(array, tensor)


def _round(array: Array, tensor: torch.Tensor) -> None:
    """Into a tensor, of whatever type."""
    tensor.detach().copy_(torch.from_numpy(array).view(tensor.shape))


def _place(array: Array, tensor: torch.Tensor) -> None:
    """What was _bits() into a tensor of the same type."""
    np.copyto(_bits(tensor), array.reshape(tensor.shape), casting="no")


def _place_all(arrays: Array, tensors: Tensors) -> None:
    for array, tensor in zip(arrays, tensors, strict=True):
        _place(array, tensor)
