"""Chakra's execution traces: their nodes, dependencies and collectives, and what is wrong in them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.workloads import chakra_pb2 as pb
from fanin.experiments.workloads.chakra import ChakraFile
from fanin.experiments.workloads.trace import RankTrace, TraceError, joined

TRACES = Path(__file__).parent / "traces"


def node(number: int, kind: int = pb.COMPUTE, *deps: int, micros: int = 0, **attributes: Any) -> Any:
    found = pb.Node(id=number, name=f"node {number}", type=kind, data_deps=deps, duration_micros=micros)
    for name, value in attributes.items():
        one = found.attr.add(name=name)
        if isinstance(value, list):
            one.bool_list.values.extend(value)
        else:
            setattr(one, {bool: "bool_val", int: "int64_val", str: "string_val"}[type(value)], value)
    return found


def collective(number: int, *deps: int, **attributes: Any) -> Any:
    return node(number, pb.COLLECTIVE, *deps, **{"comm_type": pb.ALL_REDUCE, "comm_size": 4000} | attributes)


def written(*nodes: Any) -> bytes:
    data = b""
    for message in (pb.Metadata(version="1.0.0"), *nodes):
        record = message.SerializeToString()
        size = len(record)
        while size >= 0x80:
            data += bytes([size & 0x7F | 0x80])
            size >>= 7
        data += bytes([size]) + record
    return data


def read(*nodes: Any, rank: int = 0, world: int = 4, groups: Any = ()) -> RankTrace:
    return ChakraFile(BytesIO(written(*nodes)), "trace.0.et", rank).trace(world, dict(groups))


def refusal(*nodes: Any) -> str:
    with pytest.raises(TraceError) as error:
        read(*nodes)
    return str(error.value)


def test_nodes_come_in_an_order_in_which_they_can_be_done() -> None:
    trace = read(node(5, pb.COMPUTE, 9, micros=7), collective(9), node(2, pb.COMPUTE, 5, 9, is_cpu_op=True))
    assert [(one.name, one.after, one.processor) for one in trace.nodes] == [
        ("node 9", (), "gpu"),
        ("node 5", (0,), "gpu"),
        ("node 2", (0, 1), "cpu"),
    ]
    assert trace.nodes[1].seconds == 7e-6


def test_arrays_are_whole_and_groups_have_their_ranks() -> None:
    trace = read(
        collective(1, comm_type=pb.ALL_GATHER),
        collective(2, comm_type=pb.REDUCE_SCATTER, pg_name="tensor"),
        collective(3, comm_type=pb.BARRIER, comm_size=0),
        node(4, pb.SEND, comm_dst=3, comm_size=8),
        node(5, pb.RECEIVE, comm_src=1, comm_size=8),
        groups={"tensor": (0, 2)},
    )
    assert [one.call.text for one in trace.nodes if one.call] == [
        "all-gather of 16,000 bytes on 4 ranks",
        "reduce-scatter of 4,000 bytes on 2 ranks",
        "all-reduce of 4 bytes on 4 ranks",
        "a send of 8 bytes from rank 0 to rank 3",
        "a send of 8 bytes from rank 1 to rank 0",
    ]


def test_a_node_without_a_time_has_its_operations() -> None:
    one, other = read(node(1, num_ops=1000), node(2, micros=3, num_ops=1000)).nodes
    assert (one.flop, one.seconds, other.flop, other.seconds) == (1000, 0, 0, 3e-6)


def test_the_measured_time_is_that_from_the_first_beginning_to_the_last_end() -> None:
    first, last = node(1, micros=5), node(2, pb.COMPUTE, 1, micros=30)
    first.start_time_micros, last.start_time_micros = 1000, 1100
    assert read(first, last).step_seconds == (130e-6,)
    assert read(node(1)).step_seconds == ()


def test_traces_of_chakras_own_converter() -> None:
    """Three layers whose gradients are summed in the backward pass, twice; traces/README.md has them."""
    traces = [
        ChakraFile(BytesIO((TRACES / f"dp.{rank}.et").read_bytes()), f"dp.{rank}.et", rank).trace(4, {})
        for rank in range(4)
    ]
    found = joined(traces)
    assert found.counts() == {"all-reduce": (6, 6_400_000)}
    # Two passes, each of 1.1 ms forward, 0.9 ms of weights' gradients and 0.7 ms of the inputs' of two layers.
    assert [sum(one.seconds for one in nodes) for nodes in found.ranks] == pytest.approx([5.4e-3] * 4)


def test_nodes_in_a_circle_are_named() -> None:
    text = refusal(node(1), node(7, pb.COMPUTE, 9), node(8, pb.COMPUTE, 7), node(9, pb.COMPUTE, 8, 1))
    assert text == "trace.0.et: nodes depend on each other in a circle: 7 after 9 after 8 after 7"


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([node(1, pb.COMPUTE, 2)], "node 1 (node 1): depends on node 2, which is missing"),
        ([node(1), node(1)], "node 1 (node 1): field 'id': is there twice"),
        ([node(1, pb.INVALID)], "field 'type': is INVALID_NODE"),
        ([collective(1, comm_type=pb.GATHER)], "field 'comm_type': is GATHER, an unknown collective"),
        ([collective(1, comm_type=77)], "field 'comm_type': is 77, an unknown collective"),
        ([node(1, pb.COLLECTIVE, comm_size=4)], "field 'comm_type': missing"),
        ([node(1, pb.COLLECTIVE, comm_type=0)], "field 'comm_size': missing"),
        ([collective(1, comm_size=-4)], "field 'comm_size': is -4, must be a whole number"),
        ([collective(1, involved_dim=[True, False])], "field 'involved_dim': names a part of a topology"),
        ([node(1, pb.SEND, comm_size=4)], "field 'comm_dst': missing"),
        ([node(1, pb.SEND, comm_size=4, comm_dst=0)], "field 'comm_dst': is 0, must be another"),
        ([node(1, pb.RECEIVE, comm_size=4, comm_src=1, comm_dst=2)], "field 'comm_dst': is 2, but this is"),
        ([], "has no node"),
    ],
)
def test_wrong_nodes_are_named_with_their_field(nodes: list[Any], words: str) -> None:
    assert words in refusal(*nodes)


@pytest.mark.parametrize("end", range(1, 60, 3))
def test_a_file_that_is_cut_anywhere_is_refused_or_lacks_only_whole_nodes(end: int) -> None:
    whole = written(*(node(number, micros=5) for number in range(8)))
    cut = BytesIO(whole[:-end])
    ends = {len(written(*(node(number, micros=5) for number in range(count)))) for count in range(1, 8)}
    if len(whole) - end in ends:
        assert len(ChakraFile(cut, "trace.0.et", 0).trace(1, {}).nodes) < 8
    else:
        with pytest.raises(TraceError, match=r"truncated|has no node"):
            ChakraFile(cut, "trace.0.et", 0)


@pytest.mark.parametrize(
    "data", [b"\xff" * 40, b"\x05hello", b"PK\x03\x04 a zip archive, for instance", b"\x80\x80\x80\x80\x7f"]
)
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(TraceError, match=r"trace.0.et: (is no trace that fanin reads|has no node)"):
        ChakraFile(BytesIO(data), "trace.0.et", 0)
