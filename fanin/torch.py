"""fanin as a backend of torch.distributed, `init_process_group("fanin")`, and a hook for DistributedDataParallel.

To import this registers the backend. Where fanin is installed, PyTorch does so itself when it is imported.
"""

# Annotations stay objects: DistributedDataParallel compares those of a hook.
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

import fanin

if TYPE_CHECKING:
    from fanin.workers.communicator import Communicator
    from fanin.workers.process_group import ProcessGroup
    from fanin.workers.values.compression import Compressor, ErrorFeedback

__all__ = ["CompressionState", "allreduce_hook", "compression_hook"]


def allreduce_hook(
    communicator: "Communicator | None", bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """For `model.register_comm_hook(None, allreduce_hook)`: means of gradients by fanin, whatever the group's backend.

    A bucket is on its way as soon as its gradients are there, while the backward pass goes on to the next.

    communicator: None is fanin.init()'s.

    Raises:
        workers.JoinError: this process was not started by `fanin launch`.
    """
    from fanin.workers.process_group import allreduce

    work = allreduce(communicator or fanin.init(), [bucket.buffer()], "mean")
    return work.get_future().then(lambda done: done.value()[0])


class CompressionState:
    """The state of compression_hook(), of one model: what compresses its gradients, and what that has left out of them.

    communicator: None is fanin.init()'s.
    """

    def __init__(self, compressor: "Compressor", communicator: "Communicator | None" = None) -> None:
        self.communicator = communicator
        self._compressor = compressor
        self._feedback: dict[tuple[int, int], ErrorFeedback] = {}

    def feedback(self, bucket: dist.GradBucket) -> "ErrorFeedback":
        """The bucket's own. After the first step there are other buckets, with nothing left out of them yet."""
        from fanin.workers.values.compression import ErrorFeedback

        key = bucket.index(), bucket.buffer().numel()
        return self._feedback.setdefault(key, ErrorFeedback(self._compressor))


def compression_hook(state: CompressionState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For `model.register_comm_hook(CompressionState(TopK(0.01)), compression_hook)`: means of gradients that hosts
    compress, send to each other and add up, with error feedback, whatever the group's backend.

    Raises:
        workers.JoinError: this process was not started by `fanin launch`.
    """
    from fanin.workers.process_group import allreduce

    communicator = state.communicator or fanin.init()
    work = allreduce(communicator, [bucket.buffer()], "mean", state.feedback(bucket))
    return work.get_future().then(lambda done: done.value()[0])


def _create(_store: dist.Store, rank: int, size: int, timeout: timedelta) -> "ProcessGroup":
    # Not above: whoever imports PyTorch where fanin is installed comes by here.
    from fanin.workers.process_group import ProcessGroup

    communicator = fanin.init(timeout=timeout.total_seconds(), non_finite="propagate")
    if (rank, size) != (communicator.rank, communicator.size):
        raise ValueError(
            f'a group of "fanin" has all {communicator.size} processes of the launch, ranked as RANK says: this one '
            f"is {communicator.rank}, not {rank} of {size}. For other groups, name another backend: "
            'new_group(…, backend="gloo")'
        )
    return ProcessGroup(communicator)


dist.Backend.register_backend("fanin", _create, devices=["cpu"])
