"""Trace of when one step's buckets of gradients are on their way, next to the backward pass.

fanin launch docs/how-to/torch/overlap.py
"""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from fanin.torch import allreduce_hook

dist.init_process_group("fanin")
model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(6)))
parallel = DistributedDataParallel(model, bucket_cap_mb=1)
trace: list[tuple[float, str]] = []


def note(what: str) -> None:
    """Write down that it is now."""
    trace.append((time.monotonic(), what))


def traced_hook(communicator, bucket):
    """Call fanin's hook, and note when."""
    index = bucket.index()
    note(f"bucket {index} begins")

    def done(future):
        note(f"bucket {index} ends")
        return future.value()

    return allreduce_hook(communicator, bucket).then(done)


parallel.register_comm_hook(None, traced_hook)
for place, layer in enumerate(model):
    layer.weight.register_hook(lambda _, place=place: note(f"    gradient of layer {place}"))

images = torch.randn(1024, 512)
for step in range(3):  # the first has one bucket, after which DistributedDataParallel divides anew
    trace.clear()
    dist.barrier()
    note(f"backward pass of step {step} begins")
    parallel(images).square().mean().backward()
    note("backward pass ends")
if dist.get_rank() == 0:
    for at, what in trace:
        print(f"{1000 * (at - trace[0][0]):6.1f} ms  {what}")
dist.destroy_process_group()
