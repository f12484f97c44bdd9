"""Logs of NCCL and outputs of nccl-tests."""

from __future__ import annotations

import pytest

from fanin.experiments.workloads.nccl_log import NcclLog, nccl_traces
from fanin.experiments.workloads.nccl_tests import Calibration, read_nccl_tests
from fanin.experiments.workloads.trace import TraceError, joined

BEGIN = "node1:10:21 [{0}] NCCL INFO comm 0xa{0} rank {0} nranks 2 cudaDev {0} busId c1000 - Init COMPLETE"
CALL = (
    "node1:10:21 [{0}] NCCL INFO {1}: opCount 1a sendbuff 0x1 recvbuff 0x2 count {2} datatype {3} op 0 root {4} "
    "comm 0xa{0} [nranks=2] stream 0x5"
)


def log(*calls: str) -> list[str]:
    return [
        "node1:10:10 [0] NCCL INFO Bootstrap : Using eth0",
        *(BEGIN.format(rank) for rank in (0, 1)),
        *calls,
    ]


def test_calls_of_a_log_follow_each_other_without_times() -> None:
    names = [("AllReduce", 64, 7), ("AllGather", 10, 6), ("ReduceScatter", 10, 9), ("Broadcast", 53, 0)]
    lines = log(*(CALL.format(rank, name, n, kind, 0) for name, n, kind in names for rank in (1, 0)))
    trace = joined(nccl_traces([NcclLog(lines, "nccl.log")]))
    for nodes in trace.ranks:
        assert [node.call.text for node in nodes if node.call] == [
            "all-reduce of 256 bytes on 2 ranks",
            "all-gather of 40 bytes on 2 ranks",
            "reduce-scatter of 40 bytes on 2 ranks",
            "broadcast of 53 bytes on 2 ranks",
        ]
        assert [node.after for node in nodes] == [(), (0,), (1,), (2,)]
    assert trace.notes == ("an NCCL log has no times: nothing is computed",)


def test_sends_name_their_peer_as_root() -> None:
    lines = log(CALL.format(0, "Send", 8, 7, 1), CALL.format(1, "Recv", 8, 7, 0))
    (key,) = joined(nccl_traces([NcclLog(lines, "nccl.log")])).groups
    assert key == ((0, 1), True)


SPLIT = (
    "node1:1{0}:21 [{0}] NCCL INFO ncclCommSplit comm 0xb{0} rank {1} nranks 2 cudaDev {0} parent 0xa{0} color {2} "
    "key {1} {3}- Init {4}"
)


def rank_log(rank: int, name: str = "commId 0x{0}77 ") -> list[str]:
    """Return the log of one of four ranks, of which each two share a communicator, as NCCL 2.2x writes it."""
    pair, place = divmod(rank, 2)
    world = f"node1:1{rank}:21 [{rank}] NCCL INFO ncclCommInitRank comm 0xa{rank} rank {rank} nranks 4 - Init COMPLETE"
    call = (
        "node1:1{0}:9 [{0}] NCCL INFO [{0}] {1}: opCount e sendbuff (nil) count {2} datatype 7 op 0 root {3} "
        "comm 0x{4}{0} [nranks={5}]"
    )
    return [
        world,
        SPLIT.format(rank, place, pair, name.format(pair), "START"),
        SPLIT.format(rank, place, pair, "", "COMPLETE"),
        call.format(rank, "AllReduce", 1, 0, "c", 1),
        call.format(rank, "AllReduce", 8, 0, "a", 4),
        call.format(rank, "AllGather", 8, 0, "b", 2),
        call.format(rank, "Recv" if place else "Send", 8, 1 - place, "b", 2),
    ]


def test_communicators_of_some_ranks_are_found_by_their_name_in_all_logs() -> None:
    """A communicator of one rank sends nothing."""
    trace = joined(nccl_traces([NcclLog(rank_log(rank), f"{rank}.log") for rank in range(4)]))
    assert {key: [call.text for call in calls] for key, calls in trace.groups.items()} == {
        ((0, 1, 2, 3), False): ["all-reduce of 32 bytes on 4 ranks"],
        ((0, 1), False): ["all-gather of 64 bytes on 2 ranks"],
        ((0, 1), True): ["a send of 32 bytes from rank 0 to rank 1"],
        ((2, 3), False): ["all-gather of 64 bytes on 2 ranks"],
        ((2, 3), True): ["a send of 32 bytes from rank 2 to rank 3"],
    }


@pytest.mark.parametrize(
    ("logs", "words"),
    [
        ([rank_log(0, "")], "0.log:6: field 'nranks': is 2 of 4 ranks; the log does not tell which"),
        (
            [rank_log(0)],
            "0.log:6: field 'nranks': is 2 of 4 ranks, and the logs have 1 of them; give the log",
        ),
    ],
)
def test_unknown_ranks_of_a_communicator_are_refused(logs: list[list[str]], words: str) -> None:
    with pytest.raises(TraceError) as error:
        list(nccl_traces([NcclLog(lines, f"{place}.log") for place, lines in enumerate(logs)]))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (log(), "nccl.log: has no calls of collectives; run with NCCL_DEBUG=INFO"),
        (log(CALL.format(0, "Gather", 8, 7, 0)), "nccl.log:4: unknown collective 'Gather'"),
        (log(CALL.format(0, "AllReduce", 8, 42, 0)), "nccl.log:4: field 'datatype': is 42, an unknown type"),
        (
            log("node1:10:21 [0] NCCL INFO AllReduce: opCount 1 count 8 op 0 root 0 comm 0xa0 [nranks=2]"),
            "nccl.log:4: field 'datatype': missing in AllReduce",
        ),
        (
            log(CALL.format(0, "Send", 8, 7, 5)),
            "nccl.log:4: field 'root': is 5, must be another of the 2 ranks",
        ),
        (
            [CALL.format(rank, "AllReduce", 8, 7, 0) for rank in (0, 1)],
            "nccl.log:1: field 'comm': the line 'comm … rank … nranks 2' of this process is missing",
        ),
    ],
)
def test_wrong_lines_are_named_with_their_field(lines: list[str], words: str) -> None:
    with pytest.raises(TraceError) as error:
        list(nccl_traces([NcclLog(lines, "nccl.log")]))
    assert words in str(error.value)


HEADER = [
    "# nThread 1 nGpus 4 minBytes 8 maxBytes 134217728 step: 2(factor)",
    "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)",
]


def row(size: int, seconds: float, factor: float, redop: str = "sum") -> str:
    algbw = size / seconds / 1e9
    cells = (size, size // 4, "float", redop, -1, 1e6 * seconds, algbw, factor * algbw, 0, 1, 1, 1, 0)
    return "  ".join(str(cell) for cell in cells)


def test_latency_and_rate_are_those_that_made_the_times() -> None:
    """Four ranks round a ring: 6 hops of 5 us, and 1.5 times the bytes at 10 GB/s; out-of-place."""
    rows = [row(size, 6 * 5e-6 + 1.5 * size / 10e9, 1.5) for size in (8, 8192, 1 << 20, 1 << 24)]
    found = read_nccl_tests([*HEADER, *rows, "# Avg bus bandwidth : 3"], "out.txt")
    assert (found.operation, found.ranks) == ("all-reduce", 4)
    assert found.latency == pytest.approx(5e-6)
    assert found.bandwidth == pytest.approx(10e9)
    assert found.predicted(1 << 20) == pytest.approx(found.seconds[2])


def test_the_name_of_the_program_decides_about_the_operation() -> None:
    rows = [row(size, 3 * 5e-6 + 0.75 * size / 10e9, 0.75, "none") for size in (8, 8192, 1 << 20, 1 << 24)]
    found = read_nccl_tests(["# Collective test starting: all_gather_perf", *HEADER, *rows], "out.txt", 4)
    assert found.operation == "all-gather"
    assert found.bandwidth == pytest.approx(10e9)


def test_no_latency_is_negative() -> None:
    rows = [
        row(size, 1.5 * size / 10e9 * (1.2 if size > 10**6 else 1), 1.5) for size in (8192, 1 << 20, 1 << 24)
    ]
    found: Calibration = read_nccl_tests([*HEADER, *rows], "out.txt")
    assert found.latency == 0
    assert found.bandwidth == pytest.approx(10e9 / 1.13, rel=0.1)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (HEADER, "out.txt: has 0 rows; a calibration needs 3 sizes"),
        ([row(8, 1e-6, 1.5)], "out.txt:1: has a row before the line of column names"),
        ([*HEADER, row(8, 1e-6, 1.5).replace("  1.0  ", "  N/A  ")], "out.txt:4: field 'time': is 'N/A'"),
        (
            [HEADER[0], HEADER[1].replace("time", "tim"), row(8, 1e-6, 1.5)],
            "out.txt:3: field 'time': missing",
        ),
        (
            [*HEADER[1:], *(row(2**n, 2e-6, 1.5) for n in (8, 12, 16))],
            "out.txt: does not state the number of ranks",
        ),
        (
            [*HEADER, *(row(2**n, 1e-6 + 2**n / 1e9, 0.75, "none") for n in (18, 20, 22))],
            "out.txt: does not name the collective; add a line such as",
        ),
    ],
)
def test_outputs_that_do_not_tell_enough_are_refused(lines: list[str], words: str) -> None:
    with pytest.raises(TraceError) as error:
        read_nccl_tests(lines, "out.txt")
    assert words in str(error.value)
