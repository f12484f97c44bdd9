"""Does what PyTorch's users do with a group, with the backend "fanin" and with Gloo, and compares the results.

Prints "same NAME" for each that is the same, and fails at the first that differs.
"""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

Group = Any
CPU = torch.device("cpu")
STEPS = 3


def own(size: int = 6) -> torch.Tensor:
    return torch.arange(float(size)) + 10 * dist.get_rank()


def ranks() -> range:
    return range(dist.get_world_size())


def next_rank() -> int:
    return (dist.get_rank() + 1) % dist.get_world_size()


def previous_rank() -> int:
    return (dist.get_rank() - 1) % dist.get_world_size()


def send_and_recv(group: Group) -> Any:
    received = torch.zeros(6)
    sent = dist.isend(own(), next_rank(), group=group)
    dist.recv(received, group=group)  # from any rank
    sent.wait()
    return received


def batch_isend_irecv(group: Group) -> Any:
    received = torch.zeros(6)
    operations = [
        dist.P2POp(dist.isend, own(), next_rank(), group),
        dist.P2POp(dist.irecv, received, previous_rank(), group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    return received


def scatter(group: Group) -> Any:
    received = torch.zeros(6)
    parts = [own() + rank for rank in ranks()] if dist.get_rank() == 0 else None
    dist.scatter(received, parts, 0, group=group)
    return received


def all_to_all(group: Group) -> Any:
    received = [torch.zeros(2) for _ in ranks()]
    dist.all_to_all(received, [own(2) + rank for rank in ranks()], group=group)
    return received


def all_to_all_of_unequal_parts(group: Group) -> Any:
    rank = dist.get_rank()
    received = torch.zeros(len(ranks()) * (rank + 1))
    dist.all_to_all_single(
        received,
        own(sum(other + 1 for other in ranks())),
        [rank + 1] * len(ranks()),
        [other + 1 for other in ranks()],
        group=group,
    )
    return received


def reductions_of_integers(group: Group) -> Any:
    results = []
    for op in (dist.ReduceOp.PRODUCT, dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        x = torch.arange(6) + 3 * dist.get_rank()
        dist.all_reduce(x, op, group=group)
        dist.all_reduce(x, op, group=group, async_op=True).wait()
        to_one = torch.arange(6) + dist.get_rank()
        dist.reduce(to_one, 0, op, group=group)
        results += [x, to_one if dist.get_rank() == 0 else x]
    return results


def reduce_scatter_of_products(group: Group) -> Any:
    part, parts = torch.zeros(3), torch.zeros(3)
    dist.reduce_scatter_tensor(part, own(3 * len(ranks())), dist.ReduceOp.PRODUCT, group=group)
    dist.reduce_scatter(parts, [own(3) for _ in ranks()], dist.ReduceOp.PRODUCT, group=group)
    return [part, parts]


def reduce_scatter_of_unequal_parts(group: Group) -> Any:
    part = torch.zeros(dist.get_rank() + 1)
    dist.reduce_scatter(part, [own(rank + 1) for rank in ranks()], group=group)
    return part


def sum_of_truth_values(group: Group) -> Any:
    x = torch.tensor([True, False, dist.get_rank() == 0])
    dist.all_reduce(x, group=group)
    return x


def complex_numbers(group: Group) -> Any:
    x = torch.complex(own(), -own())
    dist.all_reduce(x, group=group)
    to_one = torch.complex(own(), -own())
    dist.reduce(to_one, 0, group=group)
    part = torch.zeros(2, dtype=x.dtype)
    dist.reduce_scatter_tensor(part, torch.complex(own(2 * len(ranks())), own(2 * len(ranks()))), group=group)
    return [x, to_one if dist.get_rank() == 0 else x, part]


def objects(group: Group) -> Any:
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, [{"of": rank} for rank in ranks()], 0, group=group)
    return torch.tensor(mine[0]["of"])


def groups_of_some(group: Group) -> Any:
    backend = dist.get_backend(group)
    one, turned = dist.new_group([1], backend=backend), dist.new_group([*ranks()][::-1], backend=backend)
    x = own()
    if dist.get_rank() == 1:
        dist.all_reduce(x, group=one)
    dist.all_reduce(x, group=turned)
    return x


def functional_collectives(group: Group) -> Any:
    return [
        functional.all_reduce(own(), "avg", group) + 0,
        functional.all_gather_single(own(), 0, group) + 0,
        functional.reduce_scatter_single(own(3 * len(ranks())), "sum", 0, group) + 0,
        functional.broadcast(own(), 0, group) + 0,
        functional.all_to_all_single(own(len(ranks())), None, None, group) + 0,
    ]


def distributed_tensors(group: Group) -> Any:
    mesh = DeviceMesh.from_group(group, "cpu")
    rows = distribute_tensor(torch.arange(24.0).reshape(6, 4), mesh, [Shard(0)])
    columns = distribute_tensor(torch.arange(8.0).reshape(4, 2), mesh, [Shard(1)])
    return (rows @ columns).full_tensor()


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def trained(network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(STEPS):
        torch.manual_seed(100 * step + dist.get_rank())
        optimizer.zero_grad()
        network(torch.randn(5, 8)).square().mean().backward()
        optimizer.step()


def fsdp2(group: Group) -> Any:
    network, mesh = model(), DeviceMesh.from_group(group, "cpu")
    for layer in (network[0], network[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    trained(network, torch.optim.Adam(network.parameters(), 0.01))
    whole: list[Any] = [each.full_tensor() for each in network.parameters()]  # type: ignore[attr-defined]
    return whole


def fsdp1(group: Group) -> Any:
    network = FullyShardedDataParallel(model(), process_group=group, device_id=CPU)
    trained(network, torch.optim.Adam(network.parameters(), 0.01))
    with FullyShardedDataParallel.summon_full_params(network):
        return [each.detach().clone() for each in network.parameters()]


def zero(group: Group) -> Any:
    network = DistributedDataParallel(model(), process_group=group)
    optimizer = ZeroRedundancyOptimizer(
        network.parameters(), optimizer_class=torch.optim.Adam, process_group=group, lr=0.01
    )
    trained(network, optimizer)
    return list(network.parameters())


def compiled(group: Group) -> Any:
    network = DistributedDataParallel(model(), process_group=group)
    trained(torch.compile(network, backend="aot_eager"), torch.optim.SGD(network.parameters(), 0.1))
    return list(network.parameters())


def builtin_hook(group: Group) -> Any:
    network = DistributedDataParallel(model(), process_group=group)
    network._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    trained(network, torch.optim.SGD(network.parameters(), 0.1))
    return list(network.parameters())


def checkpoint(group: Group) -> Any:
    network = model()
    saved = {"model": copy.deepcopy(network.state_dict())}
    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        dist.broadcast_object_list(folder, 0, group=group)
        dcp.save(saved, checkpoint_id=folder[0], process_group=group)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.zero_()
        loaded = {"model": network.state_dict()}
        dcp.load(loaded, checkpoint_id=folder[0], process_group=group)
        dist.barrier(group)  # all have read it
    return list(loaded["model"].values())


def pipeline(group: Group) -> Any:
    rank, last = dist.get_rank(), len(ranks()) - 1
    torch.manual_seed(rank)
    stage = PipelineStage(nn.Linear(4, 4), rank, len(ranks()), CPU, group=group)
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    arguments = [torch.ones(8, 4)] if rank == 0 else []
    schedule.step(*arguments, **({"target": torch.zeros(8, 4)} if rank == last else {}))
    return [parameter.grad for parameter in stage.submod.parameters()]


USES: list[Callable[[Group], Any]] = [
    send_and_recv,
    batch_isend_irecv,
    scatter,
    all_to_all,
    all_to_all_of_unequal_parts,
    reductions_of_integers,
    reduce_scatter_of_products,
    reduce_scatter_of_unequal_parts,
    sum_of_truth_values,
    complex_numbers,
    objects,
    groups_of_some,
    functional_collectives,
    distributed_tensors,
    fsdp2,
    fsdp1,
    zero,
    compiled,
    builtin_hook,
    checkpoint,
    pipeline,
]

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    dist.init_process_group("fanin")
    reference = dist.new_group(backend="gloo")
    for use in USES:
        results, expected = use(dist.group.WORLD), use(reference)
        torch.testing.assert_close(results, expected, atol=1e-5, rtol=1e-4)
        print("same", use.__name__, flush=True)
    dist.destroy_process_group()
