"""Collectives of tensors that are not in main memory, with a device that PyTorch believes in: no GPU is here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fanin.workers.communicator import Communicator
from tests.workers.loopback import SWITCH, everywhere, job

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
import torch.distributed as dist  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend  # noqa: E402

from fanin.workers.process_group import ProcessGroup  # noqa: E402

pytestmark = pytest.mark.torch
N = 3

_setup_privateuseone_for_python_backend("pretended")


class Pretended(torch.Tensor):
    """A tensor of the device, whose memory nobody can address. Only copies lead out of it and into it."""

    values: Any

    @staticmethod
    def __new__(cls, values: Any) -> Any:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls, values.shape, dtype=values.dtype, device="pretended:0"
        )
        tensor.values = values
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kinds = {each.device.type for each in pytree.tree_leaves(args) if isinstance(each, torch.Tensor)}
        assert kinds == {"pretended"} or func is torch.ops.aten.copy_.default, f"{func} of {kinds}"
        plain = pytree.tree_map_only(Pretended, lambda each: each.values, (args, kwargs or {}))
        result = func(*plain[0], **plain[1])
        if func is torch.ops.aten.copy_.default:
            return args[0]
        return pytree.tree_map_only(torch.Tensor, Pretended, result)


@pytest.fixture(scope="module")
def comms() -> Iterator[list[Communicator]]:
    with job(N, at=(SWITCH[0], SWITCH[1] + 3)) as (members, _):
        yield members


def of(rank: int, dtype: Any = torch.float32, size: int = 300) -> Any:
    return Pretended((torch.arange(size) % 7 + rank).to(dtype))


def on_all(comms: list[Communicator], do: Callable[[ProcessGroup, int], Any]) -> list[Any]:
    return everywhere(comms, lambda comm: do(ProcessGroup(comm), comm.rank))


@pytest.mark.parametrize("in_background", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_all_reduce_puts_the_sum_back_on_the_device(
    comms: list[Communicator], dtype: Any, in_background: bool
) -> None:
    def do(group: ProcessGroup, rank: int) -> Any:
        x = of(rank, dtype)
        for _ in range(2):  # the second time, a request of the first one must not be used
            x.copy_(of(rank, dtype))
            work = dist.all_reduce(x, group=group, async_op=in_background)
            if in_background:
                work.wait()
                assert work.get_future().value()[0] is x
        return x

    total = sum((torch.arange(300) % 7 + rank).to(dtype) for rank in range(N))
    for x in on_all(comms, do):
        torch.testing.assert_close(x.values, total, atol=1e-3, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_broadcast_copies_the_bits_of_the_root(comms: list[Communicator], dtype: Any) -> None:
    def do(group: ProcessGroup, rank: int) -> Any:
        x = of(rank, dtype)
        options = dist.BroadcastOptions()
        options.rootRank = 1
        group.broadcast([x], options).wait()
        return x

    for x in on_all(comms, do):
        assert torch.equal(x.values, of(1, dtype).values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_gathers_and_scatters(comms: list[Communicator], dtype: Any) -> None:
    def do(group: ProcessGroup, rank: int) -> Any:
        gathered = [of(9, dtype) for _ in range(N)]
        dist.all_gather(gathered, of(rank, dtype), group=group)
        whole = of(9, dtype, 300 * N)
        dist.all_gather_single(whole, of(rank, dtype), group=group)
        part = of(9, dtype, 100)
        dist.reduce_scatter_single(part, of(rank, dtype), group=group)
        return gathered, whole, part

    each = [of(rank, dtype).values for rank in range(N)]
    for rank, (gathered, whole, part) in enumerate(on_all(comms, do)):
        assert all(torch.equal(x.values, expected) for x, expected in zip(gathered, each, strict=True))
        assert torch.equal(whole.values, torch.cat(each))
        total = sum(x[100 * rank : 100 * (rank + 1)].float() for x in each)
        torch.testing.assert_close(part.values.float(), total, atol=1e-3, rtol=0)
