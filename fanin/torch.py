"""fanin as a backend of torch.distributed, `init_process_group("fanin")`, and hooks for DistributedDataParallel.

Importing this module registers the backend. Where fanin is installed, PyTorch imports it by itself.
"""

# No `from __future__ import annotations`: DistributedDataParallel compares the annotations of a hook.
import os
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

import fanin

if TYPE_CHECKING:
    from fanin.workers.communicator import Communicator
    from fanin.workers.values.compression import Compressor, ErrorFeedback

__all__ = ["CompressionState", "allreduce_hook", "compression_hook"]


_SLOT_SHARE = 2  # groups of some ranks, such as those of a DeviceMesh, get slots of the other half


def allreduce_hook(
    communicator: "Communicator | None", bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Average the gradients of a bucket with fanin, whatever the backend of the group.

    Register it with `model.register_comm_hook(None, allreduce_hook)`. A bucket is sent as soon as its gradients are
    computed, while the backward pass continues.

    Args:
        communicator: The communicator to use; None is that of fanin.init().
        bucket: The gradients.

    Returns:
        A future of the means.

    Raises:
        JoinError: If this process was not started by `fanin launch`.
    """
    from fanin.workers.process_group import allreduce

    work = allreduce(communicator or fanin.init(), [bucket.buffer()], "mean")
    return work.get_future().then(lambda done: done.value()[0])


class CompressionState:
    """The state of compression_hook() for one model: the compressor and the error feedback of each bucket."""

    def __init__(self, compressor: "Compressor", communicator: "Communicator | None" = None) -> None:
        """Compress with `compressor`, and send with `communicator` or, if None, with that of fanin.init()."""
        self.communicator = communicator
        self._compressor = compressor
        self._feedback: dict[tuple[int, int], ErrorFeedback] = {}

    def feedback(self, bucket: dist.GradBucket) -> "ErrorFeedback":
        """Return the error feedback of a bucket.

        DistributedDataParallel builds other buckets after the first step; their feedback begins empty.
        """
        from fanin.workers.values.compression import ErrorFeedback

        key = bucket.index(), bucket.buffer().numel()
        return self._feedback.setdefault(key, ErrorFeedback(self._compressor))


def compression_hook(state: CompressionState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average compressed gradients of a bucket, with error feedback, whatever the backend of the group.

    Register it with `model.register_comm_hook(CompressionState(TopK(0.01)), compression_hook)`. Hosts compress the
    gradients, send them to each other and add them up.

    Args:
        state: The compressor and the error feedback of the model.
        bucket: The gradients.

    Returns:
        A future of the means.

    Raises:
        JoinError: If this process was not started by `fanin launch`.
    """
    from fanin.workers.process_group import allreduce

    communicator = state.communicator or fanin.init()
    work = allreduce(communicator, [bucket.buffer()], "mean", state.feedback(bucket))
    return work.get_future().then(lambda done: done.value()[0])


def _create(options: Any, _backend_options: object) -> dist.ProcessGroup | dist.Backend:
    # Imported here because PyTorch imports this module wherever fanin is installed.
    from fanin.workers.process_group import ProcessGroup, gloo, join_group

    rank, size, timeout = options.group_rank, options.group_size, options.timeout
    ranks = list(options.global_ranks_in_group)
    if not ranks:
        # Before init() waits for ranks that may not come.
        _check_world(rank, size, int(os.environ.get("RANK", rank)), int(os.environ.get("WORLD_SIZE", size)))
    communicator = fanin.init(
        timeout=timeout.total_seconds(),
        non_finite="propagate",
        deterministic=torch.are_deterministic_algorithms_enabled(),
        slot_share=_SLOT_SHARE,
    )
    if not ranks:
        _check_world(rank, size, communicator.rank, communicator.size)
    seconds = timeout.total_seconds()
    limit = seconds if seconds < communicator.timeout else None
    group: Communicator | None = communicator
    if ranks:  # a second group of all ranks, too, makes calls at times of its own
        group = join_group(communicator, options.group_id, options.store, rank, size)
    hosts = gloo(options.store, rank, size, timeout, late=group is not None)
    return ProcessGroup(group, hosts, limit, owned=bool(ranks)) if group else hosts


def _check_world(rank: int, size: int, launched_rank: int, launched: int) -> None:
    """Raise ValueError if the first group is not of all processes that `fanin launch` has started."""
    if (rank, size) != (launched_rank, launched):
        raise ValueError(
            f"`fanin launch` has started {launched} processes, of which this is rank {launched_rank}, but RANK and "
            f"WORLD_SIZE, or the arguments, say rank {rank} of {size}: leave them as fanin launch sets them"
        )


dist.Backend.register_backend("fanin", _create, extended_api=True, devices=["cpu"])
