"""torch.distributed's calls among workers on the loopback, DistributedDataParallel among them."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from fanin.workers.collective import CollectiveError, StallError
from fanin.workers.communicator import Communicator
from fanin.workers.job.calls import AbortedError, RefusedError
from fanin.workers.values.compression import Compressor, Rounded, TopK
from tests.workers.loopback import SWITCH, everywhere, job

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import (  # noqa: E402
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_hooks,
)
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from fanin.torch import CompressionState, allreduce_hook, compression_hook  # noqa: E402
from fanin.workers import process_group  # noqa: E402
from fanin.workers.process_group import ProcessGroup  # noqa: E402
from fanin.workers.tensor_memory import in_place  # noqa: E402

pytestmark = pytest.mark.torch
N = 3


@pytest.fixture(scope="module")
def comms() -> Iterator[list[Communicator]]:
    with job(N, at=(SWITCH[0], SWITCH[1] + 2)) as (members, _):
        yield members


def of(rank: int, dtype: Any, shape: tuple[int, ...] = (6, 50)) -> Any:
    return (torch.arange(300).reshape(shape) % 7 + rank).to(dtype)


def all_of(dtype: Any) -> Any:
    return torch.stack([of(rank, dtype) for rank in range(N)])


def close(x: Any, expected: Any) -> None:
    torch.testing.assert_close(x, expected, atol=1e-3, rtol=0)


FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int32, torch.int64, torch.uint8]


def in_the_background(group: ProcessGroup, x: Any) -> None:
    work = dist.all_reduce(x, group=group, async_op=True)
    assert work.wait()
    assert work.is_completed()
    assert work.get_future().value()[0] is x


def at_once(group: ProcessGroup, x: Any) -> None:
    assert dist.all_reduce(x, group=group) is None


@pytest.mark.parametrize("how", [in_the_background, at_once])
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_all_reduce_in_place(
    comms: list[Communicator], dtype: Any, how: Callable[[ProcessGroup, Any], None]
) -> None:
    def do(comm: Communicator) -> Any:
        x = of(comm.rank, dtype)
        how(ProcessGroup(comm), x)
        return x

    for x in everywhere(comms, do):
        close(x, all_of(dtype).sum(0).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("how", [in_the_background, at_once])
def test_types_of_16_bits_travel_as_such_if_the_job_says_so(
    how: Callable[[ProcessGroup, Any], None], dtype: Any
) -> None:
    """With half the packets, and results within the rounding of their type and as much of the integers."""

    def do(comm: Communicator) -> tuple[Any, int]:
        x = torch.linspace(-1, 2, 50_000).to(dtype) * (comm.rank + 1)
        how(ProcessGroup(comm), x)
        return x, comm._place.statistics.bytes_sent

    sent = {}
    for half_bits in (32, 16):
        with job(N, at=(SWITCH[0], SWITCH[1] + 4), half_bits=half_bits) as (members, _):
            for x, count in everywhere(members, do):
                sent[half_bits] = count
                exact = torch.linspace(-1, 2, 50_000).to(dtype).double() * sum(range(1, N + 1))
                torch.testing.assert_close(x.double(), exact, atol=2 * 16 * torch.finfo(dtype).eps, rtol=0)
    assert sent[16] < 0.6 * sent[32]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["AVG", "MAX", "MIN"])
def test_other_reductions(comms: list[Communicator], op: str, dtype: Any) -> None:
    def do(comm: Communicator) -> Any:
        x = of(comm.rank, dtype)
        dist.all_reduce(x, getattr(dist.ReduceOp, op), group=ProcessGroup(comm))
        return x

    expected = of({"AVG": 1, "MAX": 2, "MIN": 0}[op], dtype)
    for x in everywhere(comms, do):
        close(x, expected)


def average(options: Any) -> Any:
    options.reduceOp = dist.ReduceOp.AVG
    return options


@pytest.mark.parametrize("dtype", INTEGERS)
def test_means_of_integers_are_rounded_toward_zero_as_by_nccl(comms: list[Communicator], dtype: Any) -> None:
    def do(comm: Communicator) -> list[Any]:
        group = ProcessGroup(comm)
        values = (
            torch.tensor([1, 2, 5, 7, 8, 9]) if dtype is torch.uint8 else torch.tensor([-5, 0, 5, -7, 8, 9])
        )
        x = (values + comm.rank).to(dtype)
        now, later, at_root, part, parts = x.clone(), x.clone(), x.clone(), x[:2].clone(), x[:2].clone()
        with_gaps = torch.stack([x, x]).T[:, 0]
        dist.all_reduce(now, dist.ReduceOp.AVG, group=group)
        dist.all_reduce(later, dist.ReduceOp.AVG, group=group, async_op=True).wait()
        dist.all_reduce(with_gaps, dist.ReduceOp.AVG, group=group)
        group.reduce([at_root], average(root_of(1, dist.ReduceOptions()))).wait()
        dist.reduce_scatter_single(part, x, dist.ReduceOp.AVG, group=group)
        dist.reduce_scatter(parts, list(x.clone().chunk(N)), dist.ReduceOp.AVG, group=group)
        return [x, now, later, with_gaps, at_root, part, parts]

    results = everywhere(comms, do)
    total = torch.stack([x for x, *_ in results]).long().sum(0)
    mean = total.div(N, rounding_mode="trunc").to(dtype)
    for rank, (x, now, later, with_gaps, at_root, part, parts) in enumerate(results):
        for found in (now, later, with_gaps):
            assert torch.equal(found, mean)
        assert torch.equal(at_root, mean if rank == 1 else x)
        assert torch.equal(part, mean.chunk(N)[rank])
        assert torch.equal(parts, mean.chunk(N)[rank])


@pytest.mark.filterwarnings("ignore:.*all_reduce_coalesced.*:FutureWarning")
def test_tensors_with_gaps_those_with_gradients_and_several_at_once(comms: list[Communicator]) -> None:
    def do(comm: Communicator) -> list[Any]:
        xs = [of(comm.rank, torch.float32).T, nn.Parameter(of(comm.rank, torch.float32)), torch.empty(0)]
        dist.all_reduce_coalesced(xs, group=ProcessGroup(comm))
        return xs

    total = all_of(torch.float32).sum(0)
    for turned, parameter, _ in everywhere(comms, do):
        close(turned, total.T)
        close(parameter.data, total)
        assert parameter.is_leaf


def test_a_tensor_that_numpy_can_have_is_summed_where_it_is() -> None:
    for x in (torch.ones(3), torch.ones(4)[1:], nn.Parameter(torch.ones(2, 2))):
        array = in_place(x)
        assert array is not None
        assert array.ctypes.data == x.data_ptr()


def test_tensors_that_follow_each_other_in_one_memory(comms: list[Communicator]) -> None:
    """A prepared call is right for another tensor at its address only if that is laid out alike."""

    def do(comm: Communicator) -> None:
        group, memory = ProcessGroup(comm), torch.empty(300)
        seen = [
            memory.view(6, 50),
            memory,
            memory[:150],
            memory.view(50, 6).T,
            memory[::2],
            memory.view(torch.int32),
            memory.view(6, 50),
            nn.Parameter(memory.view(6, 50)),
        ]
        for x in seen:
            memory.zero_()
            with torch.no_grad():
                x.fill_(1 + comm.rank)
            at_once(group, x)
            close(x.detach(), torch.full_like(x, 6))
            assert memory.count_nonzero() == x.numel()

    everywhere(comms, do)


def test_a_tensor_that_numpy_would_read_wrongly_is_refused_where_another_was_summed() -> None:
    with job(1) as ([comm], _):
        memory = torch.ones(3)
        at_once(ProcessGroup(comm), memory)
        with pytest.raises(RefusedError, match="negative or conjugate bit"):
            at_once(ProcessGroup(comm), torch._neg_view(memory))


def test_what_is_remembered_of_a_tensor_reads_what_is_there_now(comms: list[Communicator]) -> None:
    def do(comm: Communicator) -> list[float]:
        group, x, sums = ProcessGroup(comm), torch.empty(3), []
        for step in range(3):
            x.fill_(step + comm.rank)
            at_once(group, x)
            sums.append(x.tolist())
        return sums

    assert everywhere(comms, do) == [[[3.0] * 3, [6.0] * 3, [9.0] * 3]] * N


def test_reduce_at_the_root_alone(comms: list[Communicator]) -> None:
    def do(comm: Communicator) -> Any:
        x = of(comm.rank, torch.bfloat16)
        dist.reduce(x, group_dst=1, group=ProcessGroup(comm))
        return x

    first, second, third = everywhere(comms, do)
    close(first, of(0, torch.bfloat16))
    close(second, all_of(torch.bfloat16).sum(0))
    close(third, of(2, torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.complex64])
def test_broadcast_to_the_bit(comms: list[Communicator], dtype: Any) -> None:
    def do(comm: Communicator) -> Any:
        x = of(comm.rank, dtype).T
        dist.broadcast(x, group_src=2, group=ProcessGroup(comm))
        return x

    assert all(torch.equal(x, of(2, dtype).T) for x in everywhere(comms, do))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_gathers(comms: list[Communicator], dtype: Any) -> None:
    def do(comm: Communicator) -> None:
        group, x = ProcessGroup(comm), of(comm.rank, dtype)
        xs = [torch.zeros_like(x) for _ in range(N)]
        dist.all_gather(xs, x, group=group)
        assert torch.equal(torch.stack(xs), all_of(dtype))
        together = torch.zeros(6 * N, 50, dtype=dtype)
        dist.all_gather_single(together, x, group=group)
        assert torch.equal(together, all_of(dtype).flatten(0, 1))
        xs = [torch.zeros_like(x) for _ in range(N)]
        dist.gather(x, xs if comm.rank == 1 else None, group_dst=1, group=group)
        assert torch.equal(
            torch.stack(xs), all_of(dtype) if comm.rank == 1 else torch.zeros_like(all_of(dtype))
        )

    everywhere(comms, do)


@pytest.mark.filterwarnings("ignore:.*all_gather_coalesced.*:FutureWarning")
def test_several_are_gathered_into_a_list_for_each_rank(comms: list[Communicator]) -> None:
    def do(comm: Communicator) -> Any:
        xs = [torch.full((2, 2), float(comm.rank)), torch.full((5,), 10.0 + comm.rank)]
        gathered = [[torch.empty(2, 2), torch.empty(5)] for _ in range(N)]
        dist.all_gather_coalesced(gathered, xs, group=ProcessGroup(comm))
        return [[x.flatten()[0].item() for x in of_rank] for of_rank in gathered]

    assert everywhere(comms, do) == [[[0, 10], [1, 11], [2, 12]]] * N


@pytest.mark.parametrize("dtype", FLOATS)
def test_reduce_scatter(comms: list[Communicator], dtype: Any) -> None:
    total = all_of(dtype).sum(0).to(dtype).chunk(N)

    def do(comm: Communicator) -> None:
        group, x = ProcessGroup(comm), of(comm.rank, dtype)
        part = torch.zeros(2, 50, dtype=dtype)
        dist.reduce_scatter(part, list(x.chunk(N)), group=group)
        close(part, total[comm.rank])
        dist.reduce_scatter_single(part.zero_(), x, group=group)
        close(part, total[comm.rank])

    everywhere(comms, do)


def test_operations_of_pytorch_s_compiler(comms: list[Communicator]) -> None:
    """They call the group from C++."""
    from torch.distributed.distributed_c10d import _register_process_group, _unregister_process_group

    def do(comm: Communicator) -> None:
        name = f"test {comm.rank}"
        group = ProcessGroup(comm)
        _register_process_group(name, group)
        ops, x = torch.ops._c10d_functional, of(comm.rank, torch.float32)
        close(ops.wait_tensor(ops.all_reduce(x, "sum", name)), all_of(torch.float32).sum(0))
        close(ops.wait_tensor(ops.all_gather_into_tensor(x, N, name)), all_of(torch.float32).flatten(0, 1))
        part = ops.wait_tensor(ops.reduce_scatter_tensor(x, "sum", N, name))
        close(part, all_of(torch.float32).sum(0).chunk(N)[comm.rank])
        _unregister_process_group(name)

    everywhere(comms, do)


def test_nobody_passes_a_barrier_before_all_have_come(comms: list[Communicator]) -> None:
    come: list[int] = []

    def do(comm: Communicator) -> int:
        come.append(comm.rank)
        dist.barrier(group=ProcessGroup(comm))
        return len(come)

    assert everywhere(comms, do) == [N] * N


def ones(*shape: int, dtype: Any = None) -> Any:
    return torch.ones(shape, dtype=dtype)


def gathering(outputs: list[Any]) -> Callable[[Any], object]:
    return lambda group: dist.all_gather(outputs, ones(3), group=group)


REFUSED: list[tuple[Callable[[Any], object], str]] = [
    (
        lambda group: dist.all_reduce(torch.ones(3, device="meta"), group=group),
        "device meta has no values",
    ),
    (
        lambda group: dist.all_reduce(torch.eye(3).to_mkldnn(), group=group),
        "dense tensors, not torch._mkldnn: convert",
    ),
    (lambda group: dist.all_reduce(torch._neg_view(ones(3)), group=group), "negative or conjugate bit"),
    (
        lambda group: group.allreduce_coalesced(
            [ones(3), ones(3, dtype=torch.int64)], average(dist.AllreduceOptions())
        ),
        "means of integers and of floating-point numbers",
    ),
    (lambda group: dist.all_reduce(ones(3, dtype=torch.float8_e5m2), group=group), "no torch.float8_e5m2"),
    (lambda group: group.reduce([ones(3)], root_of(7, dist.ReduceOptions())), "from 0 to 2, not 7"),
    (lambda group: group.broadcast([ones(3)], root_of(-1, dist.BroadcastOptions())), "from 0 to 2, not -1"),
    (lambda group: group.gather([[]], [ones(3)], root_of(3, dist.GatherOptions())), "from 0 to 2, not 3"),
    (gathering([ones(3), ones(3), ones(4)]), r"3 elements of torch.float32 and 4 of torch.float32"),
    (gathering([ones(3)] * (N - 1)), "a tensor for each of 3 ranks, and has 2"),
    (
        lambda group: group.allgather([[ones(3, dtype=torch.float64)] * N], [ones(3)]),
        "3 elements of torch.float32 and 3 of torch.float64",
    ),
    (
        lambda group: dist.all_gather_single(ones(7), ones(2), group=group),
        "2 elements of torch.float32 from each of 3 ranks and 7 of torch.float32",
    ),
    (lambda group: dist.reduce_scatter(ones(2), [ones(2)] * 4, group=group), "each of 3 ranks, and has 4"),
    (lambda group: dist.reduce_scatter(ones(3), [ones(2)] * N, group=group), "2 elements .* and 3 of"),
    (lambda group: group.reduce_scatter([ones(2)], [[ones(2).half()] * N]), "different types: .*float16"),
    (
        lambda group: dist.reduce_scatter_single(ones(2), ones(7), group=group),
        "2 elements of torch.float32 from each of 3 ranks and 7 of torch.float32",
    ),
]


def root_of(rank: int, options: Any) -> Any:
    options.rootRank = rank
    return options


@pytest.mark.parametrize(("wrong", "says"), REFUSED)
def test_a_call_that_all_ranks_refuse_is_followed_by_others(
    comms: list[Communicator], wrong: Callable[[Any], object], says: str
) -> None:
    def do(comm: Communicator) -> Any:
        group, x, other = ProcessGroup(comm), ones(3), ones(3)
        before = dist.all_reduce(x, group=group, async_op=True)
        with pytest.raises(RefusedError, match=says):
            wrong(group)
        dist.all_reduce(other, group=group)
        before.wait()
        return torch.stack([x, other])

    for sums in everywhere(comms, do):
        close(sums, torch.full((2, 3), float(N)))


def test_a_call_that_one_rank_refuses_is_not_summed_with_its_next() -> None:
    """Although that is of the same type and size, and has been made before by all."""

    def do(comm: Communicator) -> None:
        group = ProcessGroup(comm)
        at_once(group, ones(3))
        if comm.rank == 1:
            with pytest.raises(RefusedError):
                dist.all_reduce(torch._neg_view(ones(3)), group=group)
        with pytest.raises(CollectiveError, match=r"another length or for another purpose|do not agree"):
            at_once(group, ones(3))

    with job(N, timeout=0.5) as (comms, _):
        everywhere(comms, do)


def test_tensors_of_other_shapes_but_as_many_elements_are_combined_as_by_gloo(
    comms: list[Communicator],
) -> None:
    def do(comm: Communicator) -> None:
        group, shape = ProcessGroup(comm), (2, 150) if comm.rank else (6, 50)
        x = of(comm.rank, torch.float32, shape)
        at_once(group, x)
        close(x, all_of(torch.float32).sum(0).reshape(shape))
        in_the_background(group, x)
        copied = of(comm.rank, torch.bfloat16, shape)
        dist.broadcast(copied, group_src=0, group=group)
        assert torch.equal(copied, of(0, torch.bfloat16, shape))
        gathered = [torch.empty(shape) for _ in range(N)]
        dist.all_gather(gathered, of(comm.rank, torch.float32, shape), group=group)
        assert torch.equal(torch.stack(gathered).reshape(-1), all_of(torch.float32).reshape(-1))

    everywhere(comms, do)


@pytest.mark.parametrize("dtype", FLOATS)
def test_reduce_scatter_of_parts_of_different_sizes(comms: list[Communicator], dtype: Any) -> None:
    total = all_of(dtype).sum(0).to(dtype).reshape(-1).split([100, 50, 150])

    def do(comm: Communicator) -> None:
        parts = list(of(comm.rank, dtype).reshape(-1).split([100, 50, 150]))
        part = torch.zeros_like(parts[comm.rank])
        dist.reduce_scatter(part, parts, group=ProcessGroup(comm))
        close(part, total[comm.rank])

    everywhere(comms, do)


@pytest.mark.parametrize(
    "late",
    [
        lambda comm: dist.all_reduce(ones(3), group=ProcessGroup(comm, limit=0.1)),
        lambda comm: dist.barrier(group=ProcessGroup(comm, limit=0.1)),
        lambda comm: dist.all_gather([ones(3)] * 2, ones(3), group=ProcessGroup(comm, limit=0.1)),
        lambda comm: dist.all_reduce(ones(3), group=ProcessGroup(comm), async_op=True).wait(
            timedelta(seconds=0.1)
        ),
    ],
)
def test_a_time_limit_of_a_group_or_of_a_wait_that_is_shorter_than_the_job_s(
    late: Callable[[Communicator], object],
) -> None:
    with job(2, timeout=1.0) as (comms, _):
        with pytest.raises(StallError, match=r"timeout of 0\.1 s"):
            late(comms[0])
        with pytest.raises(AbortedError, match=r"timeout of 0\.1 s"):
            comms[0].barrier()


def test_an_error_that_is_found_in_the_call_is_followed_by_no_other() -> None:
    with job(1) as ([comm], _):
        group = ProcessGroup(comm)
        with pytest.raises(ValueError, match="element 0 is nan"):
            dist.all_reduce(torch.tensor(torch.nan), group=group)
        with pytest.raises(AbortedError, match="element 0 is nan"):
            dist.all_reduce(torch.ones(3), group=group)


def test_what_only_hosts_can_do_is_done_with_gloo(
    comms: list[Communicator], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a rank takes no part in it, as in a message between two others."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    store = dist.HashStore()

    def do(comm: Communicator) -> tuple[Any, Any]:
        hosts = process_group.gloo(store, comm.rank, N, timedelta(seconds=20), late=True)
        group = ProcessGroup(comm, hosts)
        message, product = torch.zeros(3), of(comm.rank, torch.float64)
        if comm.rank == 0:
            group.send([torch.ones(3)], 1, 0).wait()
        if comm.rank == 1:
            group.recv([message], 0, 0).wait()
        dist.barrier(group=group)
        dist.all_reduce(product, dist.ReduceOp.PRODUCT, group=group)
        return message, product

    (_, *products), (message, product), _ = everywhere(comms, do)
    assert message.tolist() == [1, 1, 1]
    for each in (*products, product):
        close(each, all_of(torch.float64).prod(0))


def test_a_result_that_cannot_be_put_back_is_an_error() -> None:
    with job(1) as ([comm], _):
        work = ProcessGroup(comm).allreduce([torch.ones(1).expand(3)], in_background_options())
        with pytest.raises(RuntimeError, match="more than one element"):
            work.wait()
        with pytest.raises(AbortedError, match="more than one element"):
            comm.barrier()


def in_background_options() -> Any:
    options = dist.AllreduceOptions()
    options.asyncOp = True
    return options


def test_every_call_of_the_group_ends_the_calls_if_it_fails() -> None:
    """And so does what the hooks call."""
    names = [
        name
        for name, value in vars(ProcessGroup).items()
        if inspect.isfunction(value) and name[0] != "_" and name not in ("getBackendName", "shutdown")
    ]
    assert {"allreduce", "all_gather_single", "send", "barrier"} <= set(names)
    calls = {name: getattr(ProcessGroup, name) for name in names}
    for name, call in [*calls.items(), ("allreduce", process_group.allreduce)]:
        with job(1) as ([comm], _):
            group = ProcessGroup(comm) if name in calls and call is calls[name] else comm
            with pytest.raises(TypeError):
                call(group, nothing="that it takes")
            with pytest.raises(AbortedError, match=r"failed in call 1, .*nothing"):
                call(group)


def test_a_tensor_that_has_been_summed_where_it_is_can_be_resized() -> None:
    with job(1) as ([comm], _):
        x = torch.ones(3)
        at_once(ProcessGroup(comm), x)
        dist.broadcast(x, group_src=0, group=ProcessGroup(comm))
        x.resize_(50)


# -- DistributedDataParallel ---------------------------------------------------------------------------------


def network() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 5))


def train(model: Any, x: Any, y: Any, steps: int = 5) -> Any:
    """The parameters after some steps, as one vector."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def gradients(model: Any) -> Any:
    """Return the gradients of all parameters as one vector."""
    return torch.cat([each.grad.reshape(-1) for each in model.parameters()])


def batch() -> tuple[Any, Any]:
    numbers = torch.Generator().manual_seed(2)
    return torch.randn(N * 8, 20, generator=numbers), torch.randint(5, (N * 8,), generator=numbers)


@pytest.mark.parametrize("hook", [None, allreduce_hook])
def test_ranks_stay_equal_and_learn_what_one_process_does(comms: list[Communicator], hook: Any) -> None:
    x, y = batch()
    models = [network() for _ in range(N)]  # one after the other: the seed is the process's
    for model in models[1:]:
        nn.init.zeros_(model[0].weight)  # DistributedDataParallel begins with what rank 0 has
    alone = train(network(), x, y)

    def do(comm: Communicator) -> Any:
        parallel = DistributedDataParallel(models[comm.rank], process_group=ProcessGroup(comm))
        if hook:
            parallel.register_comm_hook(comm, hook)
        before = comm._place.statistics.all_reduces
        parameters = train(parallel, x.chunk(N)[comm.rank], y.chunk(N)[comm.rank], steps=5)
        assert comm._place.statistics.all_reduces - before >= 5  # in the network
        return parameters

    first, *others = everywhere(comms, do)
    assert all(torch.equal(first, other) for other in others)
    torch.testing.assert_close(first, alone, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(first, nn.utils.parameters_to_vector(network().parameters()), atol=1e-2)


@pytest.mark.parametrize("compressor", [TopK(0.1), Rounded(8), Rounded(4)], ids=str)
def test_compressed_gradients_are_alike_at_all_and_what_is_left_out_goes_with_the_next(
    comms: list[Communicator], compressor: Compressor
) -> None:
    """The same step again and again, without learning from it: the mean of what comes back nears the gradient."""
    steps = 40
    x, y = batch()
    models = [network() for _ in range(N)]
    alone = network()
    nn.functional.cross_entropy(alone(x), y).backward()
    whole = gradients(alone)

    def do(comm: Communicator) -> Any:
        group = ProcessGroup(comm)
        # Several buckets, each with what is left out of its own gradients.
        parallel = DistributedDataParallel(models[comm.rank], process_group=group, bucket_cap_mb=0.001)
        parallel.register_comm_hook(CompressionState(compressor, comm), compression_hook)
        before, found = comm._place.statistics.all_reduces, []
        for _ in range(steps):
            parallel.zero_grad()
            nn.functional.cross_entropy(parallel(x.chunk(N)[comm.rank]), y.chunk(N)[comm.rank]).backward()
            found.append(gradients(parallel))
        assert comm._place.statistics.all_reduces - before < steps  # in the network are DDP's own
        return torch.stack(found)

    first, *others = everywhere(comms, do)
    assert all(torch.equal(first, other) for other in others)
    assert torch.norm(first.mean(0) - whole) < torch.norm(first[0] - whole) / 3


@pytest.mark.parametrize("hook", [None, allreduce_hook])
def test_a_gradient_that_cannot_be_summed_fails_the_backward_pass(hook: Any) -> None:
    models = [network() for _ in range(N)]

    def do(comm: Communicator) -> None:
        parallel = DistributedDataParallel(models[comm.rank], process_group=ProcessGroup(comm))
        if hook:
            parallel.register_comm_hook(comm, hook)
        with pytest.raises(RuntimeError, match="nan"):
            parallel(torch.full((2, 20), torch.nan)).sum().backward()

    with job(N) as (comms, _):
        everywhere(comms, do)


def gloo(store: Any, rank: int) -> Any:
    """Return a group of PyTorch's own backend, of ranks in threads."""
    backend = dist.ProcessGroupGloo(store, rank, N, timedelta(seconds=20))
    group = dist.ProcessGroup(store, rank, N)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
    return group


def train_scaled(model: Any, rank: int, group: Any) -> tuple[list[float], Any]:
    """Train with a GradScaler; return its scale and all parameters after each step [steps, parameters].

    In step 2 a gradient overflows at rank 1 only, and in step 4 one is NaN at rank 0 only.
    """
    x, y = (each.chunk(N)[rank] for each in batch())
    parallel = DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", growth_interval=2)
    scales, parameters = [], []
    for step in range(7):
        wrong = {(2, 1): 1e38, (4, 0): torch.nan}.get((step, rank), 1.0)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(parallel(x), y)
        scaler.scale(loss * wrong).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        parameters.append(nn.utils.parameters_to_vector(parallel.parameters()).detach())
    return scales, torch.stack(parameters)


def test_a_step_that_overflows_at_one_rank_is_skipped_at_all_as_with_gloo() -> None:
    models = [network() for _ in range(2 * N)]
    store = dist.HashStore()
    with ThreadPoolExecutor(N) as pool:
        expected = list(pool.map(lambda rank: train_scaled(models[rank], rank, gloo(store, rank)), range(N)))

    def do(comm: Communicator) -> tuple[list[float], Any]:
        found = train_scaled(models[N + comm.rank], comm.rank, ProcessGroup(comm))
        assert comm._place.statistics.all_reduces >= 7  # in the network
        return found

    with job(N, non_finite="propagate") as (comms, _):
        found = everywhere(comms, do)
    for (scales, parameters), (scales_of_gloo, parameters_of_gloo) in zip(found, expected, strict=True):
        assert [scale / 2.0**16 for scale in scales] == [1, 2, 1, 1, 0.5, 0.5, 1]
        assert scales == scales_of_gloo
        torch.testing.assert_close(parameters, parameters_of_gloo, atol=1e-6, rtol=1e-5)
        assert torch.equal(parameters, found[0][1])
        skipped = (parameters[1:] == parameters[:-1]).all(1).tolist()
        assert skipped == [False, True, False, True, False, False]


HOOKS: dict[str, tuple[Callable[[ProcessGroup], Any], Any, float | None]] = {
    "fp16": (lambda group: group, default_hooks.fp16_compress_hook, 1e-2),
    # Under another name, for by its own DistributedDataParallel asks for a GPU.
    "bf16": (
        lambda group: group,
        lambda group, bucket: default_hooks.bf16_compress_hook(group, bucket),
        5e-2,
    ),
    "PowerSGD": (lambda group: powersgd(group, rank=20), powerSGD_hook.powerSGD_hook, 1e-2),
    "PowerSGD, of which much is left out": (lambda group: powersgd(group), powerSGD_hook.powerSGD_hook, None),
    "batched PowerSGD": (lambda group: powersgd(group), powerSGD_hook.batched_powerSGD_hook, None),
    "fp16, then PowerSGD": (
        lambda group: powersgd(group, rank=20),
        default_hooks.fp16_compress_wrapper(powerSGD_hook.powerSGD_hook),
        1e-2,
    ),
    "quantization": (  # PyTorch's other hook, by channel, fails with any backend
        lambda group: group,
        quantization_hooks.quantization_pertensor_hook,
        None,
    ),
    "post-local SGD": (
        lambda group: post_localSGD_hook.PostLocalSGDState(group, group, start_localSGD_iter=2),
        post_localSGD_hook.post_localSGD_hook,
        1e-4,
    ),
}


def powersgd(group: ProcessGroup, rank: int = 1) -> Any:
    return powerSGD_hook.PowerSGDState(
        group, matrix_approximation_rank=rank, start_powerSGD_iter=2, min_compression_rate=0.1
    )


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_of_pytorch_whose_callbacks_begin_and_wait_for_other_operations(
    comms: list[Communicator], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks have the same parameters after some steps, in several buckets; those of one process if it is exact."""
    state, hook, tolerance = HOOKS[name]
    # PyTorch 2.13's batched PowerSGD gives its matrices to a function that takes batches of them, with any backend.
    of_batches = powerSGD_hook._orthogonalize
    monkeypatch.setattr(
        powerSGD_hook,
        "_orthogonalize",
        lambda x, epsilon=0: of_batches(x.unsqueeze(0) if x.dim() == 2 else x, epsilon),
    )
    x, y = batch()
    models = [network() for _ in range(N)]
    alone = train(network(), x, y)

    def do(comm: Communicator) -> Any:
        group = ProcessGroup(comm)
        parallel = DistributedDataParallel(models[comm.rank], process_group=group, bucket_cap_mb=0.001)
        parallel.register_comm_hook(state(group), hook)
        return train(parallel, x.chunk(N)[comm.rank], y.chunk(N)[comm.rank])

    first, *others = everywhere(comms, do)
    assert all(torch.equal(first, other) for other in others)
    if tolerance is not None:
        torch.testing.assert_close(first, alone, atol=tolerance, rtol=tolerance)
    assert not torch.allclose(first, nn.utils.parameters_to_vector(network().parameters()), atol=1e-2)


def test_buckets_are_reduced_while_the_backward_pass_goes_on(comms: list[Communicator]) -> None:
    """Which stops before the first layer's gradient until the last layer's has come back from all."""
    models = [nn.Sequential(nn.Linear(600, 600), nn.Linear(600, 600)) for _ in range(N)]

    def do(comm: Communicator) -> list[str]:
        said: list[str] = []
        reduced = threading.Event()

        def hook(state, bucket):
            said.append(f"bucket of {len(bucket.gradients())} begun")
            future = allreduce_hook(state, bucket)
            future.add_done_callback(lambda _: reduced.set())
            return future

        def stop(gradient: Any) -> Any:
            said.append("first layer: " + ("goes on" if reduced.wait(20) else "waited in vain"))
            return gradient

        group = ProcessGroup(comm)
        parallel = DistributedDataParallel(models[comm.rank], process_group=group, bucket_cap_mb=1)
        parallel.register_comm_hook(comm, hook)
        parallel(
            torch.ones(2, 600)
        ).sum().backward()  # in one bucket, after which there are as many as should be
        said.clear()
        reduced.clear()
        models[comm.rank][0].weight.register_hook(stop)
        parallel(torch.ones(2, 600)).sum().backward()
        return said

    for said in everywhere(comms, do):
        assert said == ["bucket of 2 begun", "first layer: goes on", "bucket of 2 begun"]
