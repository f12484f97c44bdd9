"""Traces of PyTorch's profiler become chains of computing and calls; times worked out by hand."""

from __future__ import annotations

import gzip
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.workloads.kineto import read_kineto
from fanin.experiments.workloads.trace import RankTrace, TraceError

TRACES = Path(__file__).parent / "traces"
Event = dict[str, Any]


def event(kind: str, name: str, ts: float, dur: float, **args: Any) -> Event:
    return {"ph": "X", "cat": kind, "name": name, "ts": ts, "dur": dur, "pid": 0, "tid": 1, "args": args}


def kernel(name: str, launch: float, ts: float, dur: float, number: int, **args: Any) -> list[Event]:
    return [
        event("cuda_runtime", "cudaLaunchKernel", launch, 1, correlation=number),
        event("kernel", name, ts, dur, correlation=number, **args),
    ]


def nccl(launch: float, ts: float, dur: float, number: int, **args: Any) -> list[Event]:
    told = {
        "Collective name": "allreduce",
        "In msg nelems": 1000,
        "Out msg nelems": 1000,
        "dtype": "Float",
        "Group size": 2,
        "Process Group Ranks": "[0, 1]",
    }
    return kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", launch, ts, dur, number, **told | args)


INFO = {"rank": 0, "world_size": 2, "pg_count": 1}


def read(events: list[Event], info: Any = INFO) -> RankTrace:
    document = {"distributedInfo": info, "traceEvents": events}
    return read_kineto(StringIO(json.dumps(document, indent=0)), "trace.json", 0)


def shown(trace: RankTrace) -> list[Any]:
    """Return each node: its time in us or its call, and what it waits for."""
    return [
        (node.call.text if node.call else round(1e6 * node.seconds, 6), node.after)
        for node in trace.nodes
        if node.name != "end of the step"
    ]


STEP = event("user_annotation", "ProfilerStep#1", 0, 1000)


def test_a_gpu_waits_for_the_call_that_ends_before_a_queued_kernel() -> None:
    """Kernels from 0 to 400 and from 700; the call runs from 300 to 690, and all were launched before 20."""
    trace = read(
        [
            STEP,
            *kernel("gemm", 1, 0, 300, 1),
            *nccl(5, 300, 390, 2),
            *kernel("gemm", 10, 300, 100, 3),
            *kernel("adam", 20, 700, 300, 4),
        ]
    )
    assert trace.step_seconds == (1e-3,)
    assert shown(trace) == [
        (300, ()),
        ("all-reduce of 4,000 bytes on 2 ranks", (0,)),
        (100, (0,)),
        (310, (1, 2)),  # after the wait from 400 to 690
    ]


def test_a_gap_in_which_the_cpu_is_late_is_no_wait() -> None:
    """As above, but the CPU launches the last kernel only at 695: nothing waits for the call."""
    trace = read(
        [STEP, *kernel("gemm", 1, 0, 300, 1), *nccl(5, 300, 390, 2), *kernel("adam", 695, 700, 300, 4)]
    )
    assert shown(trace) == [(300, ()), ("all-reduce of 4,000 bytes on 2 ranks", (0,)), (700, (0,))]
    assert trace.nodes[-1].after == (1, 2)  # the step ends with its calls


@pytest.mark.parametrize(("late", "waits"), [(0, True), (20, True), (60, False)])
def test_a_gap_waits_for_a_call_that_gloo_ends_shortly_after_it(late: int, waits: bool) -> None:
    """The operator of the call begins at 200; the rank computes up to 210, and again from 810 on."""
    dims = {"Input Dims": [[1000]], "Input type": ["float"]}
    trace = read(
        [
            STEP,
            event("cpu_op", "aten::mm", 0, 200),
            event(
                "cpu_op",
                "c10d::allreduce_",
                200,
                10,
                **{"Input Dims": [[[1000]]], "Input type": ["TensorList"]},
            ),
            event("user_annotation", "gloo:all_reduce", 205, 605 + late, **dims),
            event("cpu_op", "aten::add_", 810, 190),
        ]
    )
    computing = sum(node.seconds for node in trace.nodes if node.call is None)
    assert computing == pytest.approx(400e-6 if waits else 1000e-6)


@pytest.mark.parametrize(
    ("operator", "span", "array", "thread"),
    [
        ("c10d::_reduce_scatter_base_", "gloo:all_reduce", [2000], 2),
        ("c10d::_allgather_base_", "gloo:all_gather", [1000], 2),
        ("c10d::_reduce_scatter_base_", "fanin:_reduce_scatter_base", [], 1),
    ],
)
def test_an_operator_that_waits_for_its_own_call_does_not_compute(
    operator: str, span: str, array: list[int], thread: int
) -> None:
    """As FSDP does in the backward pass: from 200 to 800, but it only computes from 210 to 300 and from 750 on.

    Gloo has its own threads, which copy the result.
    """
    dims = {"Input Dims": [[1000], [2000]], "Input type": ["float", "float"]}
    trace = read(
        [
            STEP,
            event("cpu_op", "aten::mm", 0, 200),
            event("cpu_op", "RegisterPostBackwardFunctionBackward", 200, 600),
            event("cpu_op", operator, 200, 10, **dims),
            event("user_annotation", span, 205, 545, **{"Input Dims": [array], "Input type": ["float"]})
            | {"tid": thread},
            *([event("cpu_op", "aten::copy_", 740, 10) | {"tid": thread}] if thread == 2 else []),
            event("cpu_op", "aten::copy_", 210, 90),
            event("cpu_op", "aten::div_", 750, 50),
            event("cpu_op", "aten::add_", 800, 200),
        ]
    )
    assert [node.seconds for node in trace.nodes if node.seconds] == pytest.approx([200e-6, 100e-6, 250e-6])
    assert trace.nodes[3].after == (1, 2)


@pytest.mark.parametrize(
    ("name", "dims", "kinds", "size"),
    [
        ("allgather_", [[], [[10]]], ["", "TensorList"], 80),
        ("_allgather_base_", [[20], [10]], ["float", "float"], 80),
        ("reduce_scatter_", [[[10]], []], ["TensorList", ""], 80),
        ("_reduce_scatter_base_", [[10], [20]], ["float", "float"], 80),
    ],
)
def test_gloo_shows_the_whole_array_or_the_part_of_a_rank(
    name: str, dims: Any, kinds: list[str], size: int
) -> None:
    operator = event("cpu_op", f"c10d::{name}", 200, 10, **{"Input Dims": dims, "Input type": kinds})
    (call,) = [node.call for node in read([STEP, operator]).nodes if node.call]
    assert call.size == size


def test_calls_of_the_backend_fanin_end_in_the_order_in_which_they_begin() -> None:
    """Two calls begin at 200 and 300. The rank waits from 310 to 500 for one, and from 600 to 900 for the other."""
    dims = {"Input Dims": [[1000], []], "Input type": ["float", ""]}
    trace = read(
        [
            STEP,
            event("cpu_op", "aten::mm", 0, 200),
            event("cpu_op", "aten::mm", 201, 99),
            event("cpu_op", "aten::mm", 301, 9),
            event("cpu_op", "c10d::allreduce_", 200, 1, **dims),
            event("user_annotation", "fanin:allreduce", 201, 299),
            event("cpu_op", "c10d::allreduce_", 300, 1, **dims),
            event("user_annotation", "fanin:allreduce", 301, 599),
            event("cpu_op", "aten::add_", 500, 100),
            event("cpu_op", "aten::add_", 900, 100),
        ]
    )
    call = "all-reduce of 4,000 bytes on 2 ranks"
    assert shown(trace) == [
        (200, ()),
        (call, (0,)),
        (100, (0,)),
        (call, (2,)),
        (10, (2,)),
        (100, (1, 4)),
        (100, (3, 5)),
    ]


def test_calls_behind_each_other_were_ready_when_what_they_need_was_computed() -> None:
    """The second call begins only when the first has ended at 600, but its input was there at 200."""
    trace = read(
        [
            STEP,
            *kernel("layer2", 1, 0, 100, 1),
            *nccl(2, 100, 500, 2),
            *kernel("layer1", 3, 100, 100, 3),
            *nccl(4, 600, 300, 4),
        ]
    )
    first, call, second, other, *_ = shown(trace)
    assert (first, call[1], second, other[1]) == ((100, ()), (0,), (100, (0,)), (2,))


def test_calls_have_the_sizes_and_the_ranks_of_their_arguments() -> None:
    found = []
    for name, sent, received in (
        ("reduce_scatter_tensor_coalesced", 400, 100),
        ("_allgather_base", 100, 400),
        ("all_to_allv", 400, 400),
        ("broadcast", 100, 100),
    ):
        told = {
            "Collective name": name,
            "In msg nelems": sent,
            "Out msg nelems": received,
            "dtype": "BFloat16",
        }
        (node,) = [
            one
            for one in read([STEP, *nccl(1, 0, 10, 1, **told)], INFO | {"world_size": 4}).nodes
            if one.call is not None
        ]
        found.append(node.call.text if node.call else "")
    assert found == [
        "reduce-scatter of 800 bytes on 2 ranks",
        "all-gather of 800 bytes on 2 ranks",
        "all-to-all of 800 bytes on 2 ranks",
        "broadcast of 200 bytes on 2 ranks",
    ]


def test_ranks_of_a_large_group_are_those_of_its_configuration() -> None:
    info = INFO | {"world_size": 4, "pg_config": [{"pg_name": "7", "ranks": [1, 3]}]}
    told = {"Process Group Ranks": "[1, ...]", "Process Group Name": "7"}
    calls = [node.call for node in read([STEP, *nccl(1, 0, 10, 1, **told)], info).nodes if node.call]
    assert calls[0].ranks == (1, 3)


def test_sizes_of_older_traces_are_those_of_the_annotation_that_launched_the_kernel() -> None:
    annotation = event(
        "user_annotation", "nccl:all_to_all", 3, 4, **{"Input Dims": [[8, 16]], "Input type": ["c10::Half"]}
    )
    trace = read([STEP, annotation, *kernel("ncclKernel_SendRecv_RING", 5, 100, 50, 1)])
    assert [node.call.text for node in trace.nodes if node.call] == ["all-to-all of 256 bytes on 2 ranks"]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_recorded_training_has_its_steps_its_buckets_and_no_more_computing_than_time(rank: int) -> None:
    """record_training.py has made them: 3 steps of a model whose last two layers are the first bucket."""
    file = TRACES / f"gloo-rank{rank}.json.gz"
    with gzip.open(file, "rt") as text:
        trace = read_kineto(text, file.name, 9)
    assert (trace.rank, trace.world, len(trace.step_seconds)) == (rank, 2, 3)
    late, early = 4 * (1024 * 1024 + 1024 + 10 * 1024 + 10), 4 * (256 * 1024 + 1024)
    for step, seconds in enumerate(trace.step_seconds):
        nodes = [node for node in trace.nodes if node.step == step]
        assert [node.call.size for node in nodes if node.call] == [late, early]
        assert 0.3 * seconds < sum(node.seconds for node in nodes) <= seconds * (1 + 1e-9)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"ts": "soon"}, "field 'ts': is 'soon', must be a number of microseconds"),
    ({"dur": None}, "field 'dur': is None, must be a number"),
    ({"dur": -1}, "field 'dur': is -1, must not be negative"),
    ({"name": 5}, "field 'name': is 5"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_wrong_events_are_named_with_line_and_field(changes: dict[str, Any], words: str) -> None:
    events = [STEP, event("kernel", "gemm", 0, 1) | changes]
    with pytest.raises(TraceError) as error:
        read(events)
    text = json.dumps({"distributedInfo": INFO, "traceEvents": events}, indent=0).splitlines()
    line = [number for number, one in enumerate(text, start=1) if one == "{"][2]
    assert f"trace.json:{line}: {words}" in str(error.value)


@pytest.mark.parametrize(
    ("events", "info", "words"),
    [
        ([STEP], INFO, "has no collective"),
        (
            [STEP, *nccl(1, 0, 1, 1, **{"Collective name": "gather"})],
            INFO,
            "field 'Collective name': unknown collective 'gather'; fanin replays all-reduce",
        ),
        ([STEP, *nccl(1, 0, 1, 1, dtype="Quad")], INFO, "field 'dtype': unknown type 'Quad'"),
        ([STEP, *nccl(1, 0, 1, 1, **{"In msg nelems": None})], INFO, "field 'In msg nelems': is None"),
        (
            [STEP, *nccl(1, 0, 1, 1, **{"Process Group Ranks": "[0, ...]", "Group size": 2})],
            INFO | {"world_size": 4},
            "so the 2 ranks of the group are unknown",
        ),
        ([STEP, *kernel("ncclKernel_X", 1, 0, 1, 1)], INFO, "no annotation nccl:… contains its launch"),
        ([STEP, event("cpu_op", "c10d::allreduce_", 0, 1)], INFO, "field 'Input Dims': missing"),
        (
            [STEP, event("cpu_op", "c10d::gather_", 0, 1, **{"Input Dims": [[4]], "Input type": ["float"]})],
            INFO,
            "unknown collective 'c10d::gather_'",
        ),
        (
            [STEP, event("cpu_op", "c10d::allreduce_", 0, 1)],
            {"rank": 0},
            "distributedInfo.world_size, which is missing",
        ),
        ([STEP, event("cpu_op", "c10d::allreduce_", 0, 1)], INFO | {"pg_count": 2}, "has several groups"),
        ([STEP], {"rank": "first"}, "field distributedInfo.rank: is 'first', must be a whole number"),
    ],
)
def test_what_cannot_be_replayed_is_refused(events: list[Event], info: Any, words: str) -> None:
    with pytest.raises(TraceError) as error:
        read(events, info)
    assert words in str(error.value)
    assert str(error.value).startswith("trace.json")
