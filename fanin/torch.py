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
    from workers.communicator import Communicator
    from workers.process_group import ProcessGroup

__all__ = ["allreduce_hook"]


def allreduce_hook(
    communicator: "Communicator | None", bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """For `model.register_comm_hook(None, allreduce_hook)`: means of gradients by fanin, whatever the group's backend.

    A bucket is on its way as soon as its gradients are there, while the backward pass goes on to the next.

    communicator: None is fanin.init()'s.

    Raises:
        workers.JoinError: this process was not started by `fanin launch`.
    """
    from workers.process_group import allreduce

    work = allreduce(communicator or fanin.init(), [bucket.buffer()], "mean")
    return work.get_future().then(lambda done: done.value()[0])


def _create(_store: dist.Store, rank: int, size: int, timeout: timedelta) -> "ProcessGroup":
    # Not above: whoever imports PyTorch where fanin is installed comes by here.
    from workers.process_group import ProcessGroup

    communicator = fanin.init(timeout=timeout.total_seconds())
    if (rank, size) != (communicator.rank, communicator.size):
        raise ValueError(
            f'a group of "fanin" has all {communicator.size} processes of the launch, ranked as RANK says: this one '
            f"is {communicator.rank}, not {rank} of {size}. For other groups, name another backend: "
            'new_group(…, backend="gloo")'
        )
    return ProcessGroup(communicator)


dist.Backend.register_backend("fanin", _create, devices=["cpu"])
